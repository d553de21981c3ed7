//! What a machine is made from, and how it can end.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::devices::Devices;
use crate::snapshot::Snapshot;

/// The bytes of a file, wherever they are. Clones share them.
#[derive(Clone)]
pub struct Contents(Arc<dyn AsRef<[u8]> + Send + Sync>);

impl Contents {
    /// These bytes: a `Vec<u8>`, a [`host::Buffer`], a static slice.
    pub fn new(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self(Arc::new(bytes))
    }
}

impl Default for Contents {
    fn default() -> Self {
        Self::new([])
    }
}

impl Deref for Contents {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl fmt::Debug for Contents {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} bytes", self.len())
    }
}

/// The most processors that a machine can have.
pub const MAX_PROCESSORS: usize = 16;

/// A file that the kernel gets: the initrd, or a Multiboot module.
#[derive(Debug, Clone, Default)]
pub struct Module {
    /// Its bytes.
    pub data: Contents,
    /// Its own command line, if the protocol has such.
    pub command_line: String,
}

/// Something that is called once.
pub struct Notice(Box<dyn FnOnce() + Send>);

impl Notice {
    /// To be called when it is time.
    pub fn new(act: impl FnOnce() + Send + 'static) -> Self {
        Self(Box::new(act))
    }

    pub(crate) fn give(self) {
        (self.0)();
    }
}

impl fmt::Debug for Notice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Notice")
    }
}

/// Who is told what a processor does, when somebody has asked ([`crate::Questions`]): the processor's
/// number and its state, in lines. Called on the processors' threads.
#[derive(Clone, Default)]
pub struct Reporter(pub Option<Arc<Report>>);

/// See [`Reporter`].
pub type Report = dyn Fn(usize, &str) + Send + Sync;

impl Reporter {
    pub(crate) fn say(&self, processor: usize, state: &str) {
        if let Some(report) = &self.0 {
            report(processor, state);
        }
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Reporter")
    }
}

/// What is still to be done before the machine starts and its process is confined: what takes its time,
/// and can take it while the kernel is loaded.
#[derive(Default)]
pub struct Preparation(pub Option<Box<Prepare>>);

/// See [`Preparation`]; the error is for the user.
pub type Prepare = dyn FnOnce() -> Result<(), String> + Send;

impl fmt::Debug for Preparation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Preparation")
    }
}

/// Who unpacks a kernel's payload when it is not in the cache: this process, unless somebody else is named.
#[derive(Clone, Default)]
pub struct Unpacker(pub Option<Arc<UnpackPayload>>);

/// See [`Unpacker`]; the error is for the user.
pub type UnpackPayload = dyn Fn(&[u8]) -> Result<Vec<u8>, String> + Send + Sync;

impl Unpacker {
    pub(crate) fn unpack(&self, payload: &[u8]) -> Result<Vec<u8>, boot::Error> {
        match &self.0 {
            Some(unpack) => unpack(payload).map_err(boot::Error::Unpack),
            None => boot::unpack_payload(payload),
        }
    }
}

impl fmt::Debug for Unpacker {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Unpacker")
    }
}

/// Everything that makes one machine.
#[derive(Debug)]
pub struct Configuration {
    /// The kernel file's bytes.
    pub kernel: Contents,
    /// Its name, which Multiboot kernels see.
    pub kernel_name: String,
    /// The initrd, or modules.
    pub modules: Vec<Module>,
    /// The kernel's command line.
    pub command_line: String,
    /// Go on from there instead of booting; memory and processors are as many as it says, devices are the
    /// same.
    pub snapshot: Option<Snapshot>,
    /// Bytes of memory.
    pub memory: u64,
    /// Processors, 1 to [`MAX_PROCESSORS`].
    pub processors: usize,
    /// The devices, in the order that they have on the PCI bus.
    pub devices: Devices,
    /// What is to be done before it starts.
    pub preparation: Preparation,
    /// Called when the kernel is loaded and the guest starts.
    pub on_start: Option<Notice>,
    /// Boot again when the guest resets the machine.
    pub reboot: bool,
    /// Execute everything in the interpreter, user code included.
    pub interpret: bool,
    /// How the guest's user code is executed.
    pub user_execution: cpu::UserExecution,
    /// What makes it fast, all of it unless that is to be measured.
    pub techniques: cpu::Techniques,
    /// Where unpacked kernels are kept; without it, a kernel is unpacked at each start.
    pub cache: Option<Arc<dyn boot::KernelCache>>,
    /// Who unpacks the others.
    pub unpacker: Unpacker,
    /// Count what the interpreter executes.
    pub count_interpreted: bool,
    /// What is looked at, and changed, in the engine.
    pub inspection: cpu::inspect::Inspection,
    /// Who is told what the processors do.
    pub reporter: Reporter,
    /// Confine this process for good before the guest starts (see [`host::confine`]).
    pub confine: bool,
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            kernel: Contents::default(),
            kernel_name: String::new(),
            modules: Vec::new(),
            command_line: String::new(),
            snapshot: None,
            memory: 0,
            processors: 1,
            devices: Devices::new(),
            preparation: Preparation::default(),
            on_start: None,
            reboot: false,
            interpret: false,
            user_execution: cpu::UserExecution::default(),
            techniques: cpu::Techniques::ALL,
            cache: None,
            unpacker: Unpacker::default(),
            count_interpreted: false,
            inspection: cpu::inspect::Inspection::default(),
            reporter: Reporter::default(),
            confine: false,
        }
    }
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
    Boot(#[from] boot::Error),
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
