//! Network devices (public/io/netif.h).

constants! {
    /// Flags of a transmitted slot.
    transmit: u16 {
        CSUM_BLANK = 1 << 0, "NETTXF_csum_blank";
        DATA_VALIDATED = 1 << 1, "NETTXF_data_validated";
        MORE_DATA = 1 << 2, "NETTXF_more_data";
        EXTRA_INFO = 1 << 3, "NETTXF_extra_info";
    }
}

constants! {
    /// Flags of a received slot.
    receive: u16 {
        DATA_VALIDATED = 1 << 0, "NETRXF_data_validated";
        CSUM_BLANK = 1 << 1, "NETRXF_csum_blank";
        MORE_DATA = 1 << 2, "NETRXF_more_data";
        EXTRA_INFO = 1 << 3, "NETRXF_extra_info";
        GSO_PREFIX = 1 << 4, "NETRXF_gso_prefix";
    }
}

constants! {
    /// What a slot comes to. A received slot has its length instead.
    status: i16 {
        NULL = 1, "NETIF_RSP_NULL";
        OKAY = 0, "NETIF_RSP_OKAY";
        ERROR = -1, "NETIF_RSP_ERROR";
        DROPPED = -2, "NETIF_RSP_DROPPED";
    }
}

constants! {
    /// Kinds of [`ExtraInfo`].
    extra: u8 {
        NONE = 0, "XEN_NETIF_EXTRA_TYPE_NONE";
        GSO = 1, "XEN_NETIF_EXTRA_TYPE_GSO";
        MCAST_ADD = 2, "XEN_NETIF_EXTRA_TYPE_MCAST_ADD";
        MCAST_DEL = 3, "XEN_NETIF_EXTRA_TYPE_MCAST_DEL";
        HASH = 4, "XEN_NETIF_EXTRA_TYPE_HASH";
        /// In [`super::ExtraInfo::flags`]: one more follows.
        FLAG_MORE = 1, "XEN_NETIF_EXTRA_FLAG_MORE";
    }
}

constants! {
    /// How a large packet is to be cut up.
    gso: u8 {
        NONE = 0, "XEN_NETIF_GSO_TYPE_NONE";
        TCPV4 = 1, "XEN_NETIF_GSO_TYPE_TCPV4";
        TCPV6 = 2, "XEN_NETIF_GSO_TYPE_TCPV6";
    }
}

constants! {
    /// How much there may be.
    limit: u32 {
        /// Slots of a packet that each back-end has to take.
        SLOTS_AT_LEAST = 18, "XEN_NETIF_NR_SLOTS_MIN";
        TRANSMIT_BYTES = 0xffff, "XEN_NETIF_MAX_TX_SIZE";
        TRANSMIT_ENTRY_BYTES = 12, "sizeof(union netif_tx_sring_entry)";
        RECEIVE_ENTRY_BYTES = 8, "sizeof(union netif_rx_sring_entry)";
        TRANSMIT_PAGE_ENTRIES = 256, "__CONST_RING_SIZE(netif_tx, 4096)";
        RECEIVE_PAGE_ENTRIES = 256, "__CONST_RING_SIZE(netif_rx, 4096)";
    }
}

structure! {
    /// A slot to transmit. The first of a packet has the length of all.
    TransmitRequest = "struct netif_tx_request", 12 {
        reference: u32 = "gref" @ 0,
        offset: u16 = "offset" @ 4,
        /// Of [`transmit`].
        flags: u16 = "flags" @ 6,
        id: u16 = "id" @ 8,
        size: u16 = "size" @ 10,
    }
}

structure! {
    /// A slot that has been transmitted.
    TransmitResponse = "struct netif_tx_response", 4 {
        id: u16 = "id" @ 0,
        /// One of [`status`].
        status: i16 = "status" @ 2,
    }
}

structure! {
    /// A page to receive into.
    ReceiveRequest = "struct netif_rx_request", 8 {
        id: u16 = "id" @ 0,
        padding: u16 = "pad" @ 2,
        reference: u32 = "gref" @ 4,
    }
}

structure! {
    /// A slot that has been received.
    ReceiveResponse = "struct netif_rx_response", 8 {
        id: u16 = "id" @ 0,
        offset: u16 = "offset" @ 2,
        /// Of [`receive`].
        flags: u16 = "flags" @ 4,
        /// A length, or one of [`status`].
        status: i16 = "status" @ 6,
    }
}

structure! {
    /// What takes a slot's place behind the first of a packet, if that has `EXTRA_INFO`.
    ExtraInfo = "struct netif_extra_info", 8 {
        /// One of [`extra`].
        kind: u8 = "type" @ 0,
        flags: u8 = "flags" @ 1,
        /// For [`extra::GSO`]: bytes of a segment.
        gso_size: u16 = "u.gso.size" @ 2,
        /// For [`extra::GSO`]: one of [`gso`].
        gso_kind: u8 = "u.gso.type" @ 4,
        padding: u8 = "u.gso.pad" @ 5,
        gso_features: u16 = "u.gso.features" @ 6,
    }
}
