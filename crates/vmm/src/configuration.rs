//! What a machine is made from.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use boot::{KernelCache, Unpacked};

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

/// Is told what a vCPU does, when another thread has asked ([`crate::Questions`]): the vCPU's
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

/// Is told the number of the process that forks a machine's helpers when there is one; its process group is theirs.
#[derive(Default)]
pub struct OnHelpers(pub Option<Box<Told>>);

/// See [`OnHelpers`].
pub type Told = dyn FnOnce(u32) + Send;

impl fmt::Debug for OnHelpers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("OnHelpers")
    }
}

/// Unpacks a kernel's payload that is not in the cache, in place of this process.
#[derive(Clone, Default)]
pub struct Unpacker(pub Option<Arc<UnpackPayload>>);

/// See [`Unpacker`]; the error is for the user.
pub type UnpackPayload = dyn Fn(&[u8]) -> Result<Vec<u8>, String> + Send + Sync;

impl Unpacker {
    /// What is to be loaded of a kernel's file: what a bzImage holds, from the cache if it is there, or the file
    /// itself.
    ///
    /// # Errors
    ///
    /// It cannot be unpacked, or the cache cannot be read or written.
    pub fn unpack_kernel<'a>(
        &self,
        kernel: &'a [u8],
        cache: Option<&dyn KernelCache>,
    ) -> Result<Unpacked<'a>, boot::Error> {
        boot::unpack(kernel, cache, &|payload| self.unpack(payload))
    }

    fn unpack(&self, payload: &[u8]) -> Result<Vec<u8>, boot::Error> {
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
    /// The machine's own firmware, which the first processor starts instead of a kernel.
    pub firmware: Option<Contents>,
    /// The initrd, or modules.
    pub modules: Vec<Module>,
    /// The kernel's command line.
    pub command_line: String,
    /// Go on from there instead of booting; memory and processors are as many as it says, devices are the
    /// same.
    pub snapshot: Option<Snapshot>,
    /// Bytes of memory.
    pub memory: u64,
    /// The most that it may ever have, if that is more: on a board on which it can change.
    pub maximum_memory: u64,
    /// Processors, 1 to [`crate::MAX_PROCESSORS`].
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
    /// Unpacks the payload of a kernel that is not in the cache.
    pub unpacker: Unpacker,
    /// Count what the interpreter executes.
    pub count_interpreted: bool,
    /// What is looked at, and changed, in the engine.
    pub inspection: cpu::inspect::Inspection,
    /// Is told what the vCPUs do.
    pub reporter: Reporter,
    /// What says when its vCPUs may run, if somebody does.
    pub gates: Option<gates::Gates>,
    /// Told about the machine's helpers, for who counts what they use.
    pub on_helpers: OnHelpers,
    /// A debugger holds the processors from the start on ([`crate::Debugger::release`]).
    pub held: bool,
    /// Confine this process for good before the guest starts (see [`host::confine`]).
    pub confine: bool,
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            kernel: Contents::default(),
            kernel_name: String::new(),
            firmware: None,
            modules: Vec::new(),
            command_line: String::new(),
            snapshot: None,
            memory: 0,
            maximum_memory: 0,
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
            gates: None,
            on_helpers: OnHelpers::default(),
            held: false,
            confine: false,
        }
    }
}
