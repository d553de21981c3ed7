//! What real Xen leaves to domain 0, and this board does itself: the store and the console.
//!
//! The vCPU's thread serves a ring when the guest notifies its port: there is no thread to wake. What comes from the
//! host (characters for the console, news in the store) is put into the ring on the thread that brings it.

mod console;
mod page;
mod store;

pub(crate) use console::{Console, Line};
pub use store::Described;
pub(crate) use store::StoreService;

/// The services of a domain that has started.
pub(crate) struct Services {
    pub(crate) store: StoreService,
    pub(crate) console: Console,
}

/// The ports that a domain has from its start (public/xen.h: `store_evtchn`, `console.domU.evtchn`).
pub(crate) mod port {
    pub const STORE: u32 = 1;
    pub const CONSOLE: u32 = 2;
}
