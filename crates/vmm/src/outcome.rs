//! How a machine ends, and why there is none or it cannot go on.

use crate::limits::MAX_PROCESSORS;

/// How a machine ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The guest switched it off.
    PoweredOff,
    /// The guest reset it, and it was not to boot again.
    Reset,
    /// The processor shut down; the text describes its state.
    TripleFault(String),
    /// The guest wrote the debug-exit port; the exit status.
    DebugExit(u8),
    /// [`crate::Stop::stop`] was called.
    Stopped,
}

/// Why there is no machine, or why it cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel or what belongs to it cannot be loaded.
    #[error(transparent)]
    Boot(#[from] boot::Error),
    /// The firmware cannot be started.
    #[error(transparent)]
    Firmware(#[from] crate::firmware::Error),
    /// A paravirtual domain cannot be started.
    #[error("cannot start the domain: {0}")]
    Domain(#[from] machine::board::LoadError),
    /// Guest memory cannot be had.
    #[error(transparent)]
    Memory(#[from] host::Error),
    /// The processor cannot run here.
    #[error(transparent)]
    Processor(#[from] cpu::Error),
    /// The firmware tables do not fit.
    #[error("cannot describe the machine to its kernel: {0}")]
    Tables(String),
    /// It cannot go on from a snapshot.
    #[error("cannot go on from the snapshot: {0}")]
    Snapshot(#[from] crate::snapshot::Error),
    /// The process cannot be confined.
    #[error(transparent)]
    Confine(#[from] host::confine::Error),
    /// What was to be done before it starts.
    #[error("{0}")]
    Preparation(String),
    /// Too little memory for anything.
    #[error(
        "a machine needs at least {} MiB of memory, not {wanted} bytes; give a larger --mem",
        least >> 20
    )]
    TooLittleMemory {
        /// Bytes asked for.
        wanted: u64,
        /// Bytes needed.
        least: u64,
    },
    /// More memory than a machine can have.
    #[error(
        "a machine has at most {} GiB of memory, not {}; give a smaller --mem",
        most >> 30, wanted >> 30
    )]
    TooMuchMemory {
        /// Bytes asked for.
        wanted: u64,
        /// Bytes possible.
        most: u64,
    },
    /// None, or too many.
    #[error("a machine has 1 to {MAX_PROCESSORS} processors, not {0}; change --cpus")]
    Processors(usize),
    /// A fault of ours on a processor's thread.
    #[error("the thread of processor {0} panicked; please report this with the message above")]
    Panicked(usize),
    /// Something is where a device belongs.
    #[error("cannot plug a device in: {0}")]
    Slot(#[from] machine::bus::Error),
    /// A card of a paravirtual machine is connected to a process.
    #[error("a machine of Xen's interface cannot use a TAP interface yet; use --net user")]
    TapOfXen,
    /// A card of a PC is in a network between domains.
    #[error("only a machine of Xen's interface can be in a network between domains")]
    MemoryOfPc,
    /// A disk of a PC has parts of its image.
    #[error("only a machine of Xen's interface has disks of extents")]
    Extents,
    /// The board has no bus for split devices: our own mistake.
    #[error(transparent)]
    Split(#[from] machine::board::NoSplitDevices),
    /// The PCI bus is full.
    #[error(transparent)]
    Pci(#[from] machine::pci::Error),
    /// A thread, a timer or an event descriptor.
    #[error("cannot set up the machine: {0}")]
    Host(#[from] std::io::Error),
}

impl From<rustix::io::Errno> for Error {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Host(errno.into())
    }
}
