//! Machines in the test's own process: built, run and dropped through `vmm`, without the command.

use std::io::{self, PipeWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use provision::initramfs;
use provision::{Guest, Part, UnpackedKernels};
use vmm::devices::{Serial, SerialBackend};
use vmm::{Configuration, Contents, Error, KernelCache, Machine, Module, Outcome};

use crate::modes::Mode;

/// Memory of these machines.
const MEMORY_BYTES: u64 = 256 << 20;

/// What Linux boots from, read once and shared by all machines.
#[derive(Debug, Clone)]
pub struct Files {
    kernel: Contents,
    initramfs: Contents,
    cache: Option<Arc<dyn KernelCache>>,
    mode: Mode,
}

/// How a machine ended, and what it had said.
#[derive(Debug)]
pub struct Booted {
    /// How.
    pub outcome: Outcome,
    /// Its serial console.
    pub console: String,
}

impl Files {
    /// The default guest; its kernel is unpacked at each boot.
    ///
    /// # Panics
    ///
    /// If the host cannot provide it.
    pub fn default_guest() -> Files {
        let guest = Guest::provide(&[Part::Kernel, Part::Busybox]).expect("the default guest");
        let busybox = guest.busybox().expect("its busybox");
        let kernel = std::fs::read(guest.kernel()).expect("its kernel");
        let initramfs = initramfs::default_guest(&busybox).expect("its initramfs");
        let (kernel, initramfs) = (Contents::new(kernel), Contents::new(initramfs));
        Files { kernel, initramfs, cache: None, mode: Mode::ALL[0] }
    }

    /// The same, with unpacked kernels kept in `directory`.
    pub fn cached_in(self, directory: PathBuf) -> Files {
        Files { cache: Some(Arc::new(UnpackedKernels::new(directory))), ..self }
    }

    /// The same with the files of a directory instead of the default guest's.
    ///
    /// # Panics
    ///
    /// If they cannot be read.
    pub fn holding(self, directory: &Path) -> Files {
        let initramfs = initramfs::from_directory(directory, MEMORY_BYTES).expect("its files");
        Files { initramfs: Contents::new(initramfs), ..self }
    }

    /// The same, executed in this mode.
    pub fn in_mode(self, mode: Mode) -> Files {
        Files { mode, ..self }
    }

    /// A machine that boots these, and the ends of its lines.
    pub fn configuration(&self, words: &str) -> (Configuration, Ends) {
        let initrd = Module { data: self.initramfs.clone(), command_line: String::new() };
        let (configuration, ends) = lines();
        let configuration = Configuration {
            kernel: self.kernel.clone(),
            modules: vec![initrd],
            command_line: format!("console=ttyS0 quiet panic=-1 {words}"),
            cache: self.cache.clone(),
            ..configuration
        };
        (self.mode.apply(configuration), ends)
    }

    /// Boot with `words` on the command line and run to the end.
    ///
    /// # Panics
    ///
    /// If there is no machine.
    pub fn boot(&self, words: &str) -> Booted {
        let (configuration, ends) = self.configuration(words);
        run(configuration, ends).expect("the machine runs")
    }
}

/// A machine for a kernel of a few instructions.
pub fn tiny(code: &[u8]) -> (Configuration, Ends) {
    let (configuration, ends) = lines();
    let kernel = Contents::new(tiny_kernels::image(code));
    (Configuration { kernel, ..configuration }, ends)
}

/// The outer ends of a machine's lines. As long as they are there, nobody hangs up.
#[derive(Debug)]
pub struct Ends {
    console: io::PipeReader,
    inputs: [PipeWriter; 2],
}

impl Ends {
    /// Nobody is interested in what the machine says; the thread ends with the machine.
    pub fn discard(self) -> JoinHandle<()> {
        let Ends { mut console, inputs } = self;
        std::thread::spawn(move || {
            // Until it ends, one way or the other.
            let _ = io::copy(&mut console, &mut io::sink());
            drop(inputs);
        })
    }
}

fn lines() -> (Configuration, Ends) {
    let (console, output) = io::pipe().expect("a pipe");
    let (console_input, keys) = io::pipe().expect("a pipe");
    let (channel_input, frames) = io::pipe().expect("a pipe");
    let configuration = Configuration {
        memory: MEMORY_BYTES,
        devices: vec![
            Box::new(Serial::first(SerialBackend {
                input: Some(console_input.into()),
                output: Some(Box::new(output)),
            })),
            Box::new(Serial::second(SerialBackend {
                input: Some(channel_input.into()),
                output: Some(Box::new(io::sink())),
            })),
        ],
        ..Configuration::default()
    };
    (configuration, Ends { console, inputs: [keys, frames] })
}

/// Build it, run it, drop it.
///
/// # Errors
///
/// Those of [`Machine`].
pub fn run(configuration: Configuration, ends: Ends) -> Result<Booted, Error> {
    run_with(configuration, ends, Machine::run)
}

/// The same; it is stopped when it takes longer than this.
///
/// # Errors
///
/// Those of [`Machine`].
pub fn run_within(
    limit: Duration,
    configuration: Configuration,
    ends: Ends,
) -> Result<Booted, Error> {
    run_with(configuration, ends, |machine| {
        let stop = machine.stop_handle();
        let (ended, end) = mpsc::channel::<()>();
        let watchdog = std::thread::spawn(move || {
            if end.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
                stop.stop();
            }
        });
        let outcome = machine.run();
        drop(ended);
        watchdog.join().expect("no panic");
        outcome
    })
}

fn run_with(
    configuration: Configuration,
    ends: Ends,
    act: impl FnOnce(&mut Machine) -> Result<Outcome, Error>,
) -> Result<Booted, Error> {
    let Ends { mut console, inputs: [mut keys, frames] } = ends;
    let reader = std::thread::spawn(move || {
        let mut said = Vec::new();
        console.read_to_end(&mut said).map(|_| said)
    });
    // Input that nobody takes, so that its reader has to be stopped with the line half full.
    keys.write_all(&[b'x'; 4096]).expect("a pipe takes a page");
    let outcome = Machine::new(configuration).and_then(|mut machine| act(&mut machine));
    let said = reader.join().expect("no panic").expect("a pipe can be read");
    drop((keys, frames));
    Ok(Booted { outcome: outcome?, console: String::from_utf8_lossy(&said).into_owned() })
}
