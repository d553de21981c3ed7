//! What real Xen leaves to domain 0, and this board does itself: the store, the consoles, and the bus of the devices.
//!
//! The vCPU's thread serves a ring when the guest notifies its port: there is no thread to wake. What comes from the
//! host (characters for a console) is put into the ring on the thread that brings it.
//!
//! Lock order: the store, then the bus, then what a device has.

mod bus;
mod bus_console;
mod console;
mod numbers;
mod page;
mod store;
mod watchers;

pub(crate) use bus::Bus;
pub(crate) use bus_console::BusConsole;
pub(crate) use console::Console;
pub(crate) use numbers::{DOMAIN_ID, HOST_ID, port};
pub use store::Described;
pub(crate) use store::{SavedStore, StoreService, home};
pub(crate) use watchers::Watchers;
