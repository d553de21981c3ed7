//! Numbers that a domain and its services know each other by.

/// The domain's number in its own store. No other domain is in it.
pub const DOMAIN_ID: u16 = 1;

/// The number of domain 0, whose part the host plays.
pub const HOST_ID: u16 = 0;

/// The ports that a domain has from its start (public/xen.h: `store_evtchn`, `console.domU.evtchn`).
pub mod port {
    pub const STORE: u32 = 1;
    pub const CONSOLE: u32 = 2;
}
