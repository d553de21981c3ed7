//! What the rings of devices have in common (public/io/ring.h): a header, then as many entries as fit into the
//! ring's pages, rounded down to a power of two. An entry is a request or, in the same place, its response.

structure! {
    /// The header. Indices run freely.
    RingHeader = "struct ring_header", 64 {
        request_producer: u32 = "req_prod" @ 0,
        /// The back-end wants an event when this request is there.
        request_event: u32 = "req_event" @ 4,
        response_producer: u32 = "rsp_prod" @ 8,
        /// The front-end wants an event when this response is there.
        response_event: u32 = "rsp_event" @ 12,
        private: [u8; 4] = "pvt" @ 16,
        padding: [u8; 44] = "__pad" @ 20,
    }
}

/// How many entries of `entry_bytes` a ring of `ring_bytes` has; none if not even one fits.
pub const fn entries(ring_bytes: usize, entry_bytes: usize) -> usize {
    if entry_bytes == 0 || ring_bytes < 64 + entry_bytes {
        return 0;
    }
    let fitting = (ring_bytes - 64) / entry_bytes;
    1 << fitting.ilog2()
}
