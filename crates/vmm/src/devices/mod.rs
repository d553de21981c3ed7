//! The devices that a machine is built with, each with its back-end on the host.
//!
//! A machine's configuration has a list of them ([`Device`]); the machine plugs them in once, in the order of the list,
//! before its first instruction. What a device emulates is in the crate `devices`; what connects that to the host
//! (descriptors, I/O threads, other processes) is here, a file for each kind. What others want of a device later (to
//! resize a console, to inflate a balloon) goes through a handle that the device's constructor returns together with
//! the device.

pub(crate) mod backoff;
mod balloon;
pub(crate) mod collector;
mod console;
mod debug;
mod directories;
pub mod disk;
mod entropy;
pub(crate) mod file_server;
mod firmware;
mod flash;
mod io_thread;
mod network;
mod serial;
mod slots;
mod sockets;
mod split;

use std::fmt::Debug;

pub use balloon::{Balloon, BalloonHandle, Ballooned};
pub use console::{Console, ConsolePort, Port, Window};
pub use debug::{DebugConsole, DebugExit};
pub use directories::{SharedDirectories, SharedDirectory};
pub use entropy::Entropy;
pub use file_server::DirectoryRequests;
pub use firmware::{FirmwareConfiguration, Post};
pub use flash::{Flash, Keeper};
pub use network::{Netdev, Network};
pub use serial::{Serial, SerialBackend};
pub use slots::Slots;
pub(crate) use slots::{Plugged, Polled};
pub use sockets::Sockets;

use crate::outcome::Error;

/// A device that a machine is built with: the model and its back-end.
pub trait Device: Debug + Send {
    /// Its kind, the name that its saved state has ("virtio-rng").
    fn kind(&self) -> &'static str;

    /// Plug it into the board. The machine calls this once, on the thread that builds it, when memory and vCPUs
    /// exist and no vCPU has run.
    ///
    /// # Errors
    ///
    /// [`Error`] when the board has no room for it, or the host has no thread or descriptor.
    fn plug_in(self: Box<Self>, slots: &mut Slots<'_>) -> Result<(), Error>;
}

/// A list of devices, in the order in which they are plugged in, which is their order on the PCI bus.
pub type Devices = Vec<Box<dyn Device>>;
