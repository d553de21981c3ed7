//! The wire of the xenstore (public/io/xs_wire.h).

constants! {
    /// Kinds of messages.
    kind: u32 {
        CONTROL = 0, "XS_CONTROL";
        DIRECTORY = 1, "XS_DIRECTORY";
        READ = 2, "XS_READ";
        GET_PERMS = 3, "XS_GET_PERMS";
        WATCH = 4, "XS_WATCH";
        UNWATCH = 5, "XS_UNWATCH";
        TRANSACTION_START = 6, "XS_TRANSACTION_START";
        TRANSACTION_END = 7, "XS_TRANSACTION_END";
        INTRODUCE = 8, "XS_INTRODUCE";
        RELEASE = 9, "XS_RELEASE";
        GET_DOMAIN_PATH = 10, "XS_GET_DOMAIN_PATH";
        WRITE = 11, "XS_WRITE";
        MKDIR = 12, "XS_MKDIR";
        RM = 13, "XS_RM";
        SET_PERMS = 14, "XS_SET_PERMS";
        /// From the store only.
        WATCH_EVENT = 15, "XS_WATCH_EVENT";
        /// From the store only; the payload is the error's name.
        ERROR = 16, "XS_ERROR";
        IS_DOMAIN_INTRODUCED = 17, "XS_IS_DOMAIN_INTRODUCED";
        RESUME = 18, "XS_RESUME";
        SET_TARGET = 19, "XS_SET_TARGET";
        RESET_WATCHES = 21, "XS_RESET_WATCHES";
        DIRECTORY_PART = 22, "XS_DIRECTORY_PART";
        INVALID = 0xffff, "XS_INVALID";
    }
}

constants! {
    /// How long things may be.
    limit: u32 {
        RING_BYTES = 1024, "XENSTORE_RING_SIZE";
        PAYLOAD_BYTES = 4096, "XENSTORE_PAYLOAD_MAX";
        ABSOLUTE_PATH_BYTES = 3072, "XENSTORE_ABS_PATH_MAX";
        RELATIVE_PATH_BYTES = 2048, "XENSTORE_REL_PATH_MAX";
    }
}

constants! {
    /// What the store says in [`StoreRing::features`].
    feature: u32 {
        RECONNECTION = 1, "XENSTORE_SERVER_FEATURE_RECONNECTION";
        ERROR = 2, "XENSTORE_SERVER_FEATURE_ERROR";
    }
}

structure! {
    /// What precedes the payload of a message.
    Header = "struct xsd_sockmsg", 16 {
        /// One of [`kind`].
        kind: u32 = "type" @ 0,
        /// Chosen by whoever asks, repeated in the answer.
        request: u32 = "req_id" @ 4,
        /// 0 outside of transactions.
        transaction: u32 = "tx_id" @ 8,
        /// Bytes of the payload.
        length: u32 = "len" @ 12,
    }
}

structure! {
    /// The page of the rings. Indices run freely.
    StoreRing = "struct xenstore_domain_interface", 2076 {
        requests: [u8; 1024] = "req" @ 0,
        answers: [u8; 1024] = "rsp" @ 1024,
        request_consumer: u32 = "req_cons" @ 2048,
        request_producer: u32 = "req_prod" @ 2052,
        answer_consumer: u32 = "rsp_cons" @ 2056,
        answer_producer: u32 = "rsp_prod" @ 2060,
        /// Of [`feature`].
        features: u32 = "server_features" @ 2064,
        connection: u32 = "connection" @ 2068,
        error: u32 = "error" @ 2072,
    }
}
