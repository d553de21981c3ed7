//! What real Xen leaves to domain 0, and this board does itself: the store and the consoles.
//!
//! The vCPU's thread serves a ring when the guest notifies its port: there is no thread to wake. What comes from the
//! host (characters for a console, news in the store) is put into the ring on the thread that brings it.

pub(crate) mod page;
pub(crate) mod store;
