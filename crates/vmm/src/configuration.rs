//! What a machine is made from, and how it can end.

use std::fmt;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// A file that the kernel gets: the initrd, or a Multiboot module.
#[derive(Debug, Clone, Default)]
pub struct Module {
    /// Its bytes.
    pub data: Vec<u8>,
    /// Its own command line, if the protocol has such.
    pub command_line: String,
}

/// One end of a serial line.
#[derive(Default)]
pub struct Line {
    /// Where the guest's input comes from; it is read on a thread of its own. Non-blocking or not.
    pub input: Option<OwnedFd>,
    /// Where the guest's output goes.
    pub output: Option<Box<dyn Write + Send>>,
}

impl fmt::Debug for Line {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Line").field("input", &self.input).finish_non_exhaustive()
    }
}

/// Everything that makes one machine.
#[derive(Debug, Default)]
pub struct Configuration {
    /// The kernel file's bytes.
    pub kernel: Vec<u8>,
    /// Its name, which Multiboot kernels see.
    pub kernel_name: String,
    /// The initrd, or modules.
    pub modules: Vec<Module>,
    /// The kernel's command line.
    pub command_line: String,
    /// Bytes of memory.
    pub memory: u64,
    /// The first serial port.
    pub console: Line,
    /// The second serial port, the channel to the guest's init.
    pub channel: Line,
    /// Boot again when the guest resets the machine.
    pub reboot: bool,
    /// Offer the debug-exit port at 0xf4.
    pub debug_exit: bool,
    /// Execute everything in the interpreter.
    pub interpret: bool,
    /// Directory where unpacked kernels are kept.
    pub cache: Option<PathBuf>,
    /// Count what the interpreter executes.
    pub count_interpreted: bool,
}

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
    /// Somebody called [`crate::Stop::stop`].
    Stopped,
}

/// Why there is no machine, or why it cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel or what belongs to it cannot be loaded.
    #[error(transparent)]
    Boot(#[from] machine::boot::Error),
    /// Guest memory cannot be had.
    #[error(transparent)]
    Memory(#[from] host::Error),
    /// The processor cannot run here.
    #[error(transparent)]
    Processor(#[from] cpu::Error),
    /// The firmware tables do not fit.
    #[error("cannot describe the machine to its kernel: {0}")]
    Tables(String),
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
    /// A thread, a timer or an event descriptor.
    #[error("cannot set up the machine: {0}")]
    Host(#[from] std::io::Error),
}

impl From<rustix::io::Errno> for Error {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Host(errno.into())
    }
}
