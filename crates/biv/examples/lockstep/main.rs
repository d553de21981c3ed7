//! Runs a kernel in Bivouac's engine and in QEMU's TCG at once, and says where they part: the first
//! block, or interpreted instruction, at whose start registers, flags, segment bases or control
//! registers differ, or the first look at memory that finds a difference.
//!
//! `cargo run --release --example lockstep -- --kernel FILE [OPTION]...`
//!
//! Every block of Bivouac's is a checkpoint: QEMU steps, instruction by instruction, until it has the
//! same state. See docs/debugging.md for what is compared, and what is taken over from one side because
//! it may be different (`compare.rs` has the rules).
//!
//! The status is 0 if there was no difference, 1 if there was one, 2 if nothing could be compared.

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use clap::Parser;
use domain::inspect::Symbols;
use locks::Unpoisoned;
use vmm::devices::{DebugExit, Serial, SerialBackend};
use vmm::history::Happened;
use vmm::inspect::{BlockId, Inspection, Traced, Tracer};
use vmm::{Configuration, Contents, Machine, Module, UserExecution};

mod analyse;
mod compare;
mod gdb;
mod state;

use compare::{Comparison, Verdict};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Compare Bivouac's engine with QEMU's TCG, block by block.
#[derive(Debug, Clone, Parser)]
struct Options {
    /// The kernel: Multiboot or PVH, with interrupts off
    #[arg(long)]
    kernel: PathBuf,
    /// Another kernel for QEMU, which is otherwise given the same
    #[arg(long)]
    qemu_kernel: Option<PathBuf>,
    /// Its module
    #[arg(long)]
    initrd: Option<PathBuf>,
    /// Its command line
    #[arg(long, default_value = "")]
    append: String,
    /// MiB of memory
    #[arg(long, default_value = "16")]
    mem: u64,
    /// Stop after so many checkpoints
    #[arg(long, default_value = "1000000")]
    count: u64,
    /// Compare memory after each so many checkpoints, and at the end
    #[arg(long, default_value = "4096")]
    memory_every: u64,
    /// Interpret everything in Bivouac
    #[arg(long)]
    interpret: bool,
    /// Translate this block wrongly in Bivouac
    #[arg(long)]
    plant_fault: Option<BlockId>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match compare(&options) {
        Ok(Verdict::Agreed(said)) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Ok(Verdict::Differed(said)) => {
            println!("{said}");
            ExitCode::from(1)
        }
        Err(error) => {
            eprintln!("lockstep: {error}");
            ExitCode::from(2)
        }
    }
}

fn compare(options: &Options) -> Result<Verdict, Failure> {
    let kernel = std::fs::read(&options.kernel)
        .map_err(|error| format!("{}: {error}", options.kernel.display()))?;
    let symbols = Symbols::parse(&kernel).unwrap_or_default();
    let comparison = Comparison::new(options, symbols)?;
    let (sender, verdicts) = channel();
    let comparison = Arc::new(Mutex::new(Some(comparison)));
    let tracer = Lockstep { comparison: Arc::clone(&comparison), sender };
    let ended = start(options, kernel, tracer)?;
    // Either the comparison comes to an end, or the machine does.
    if let Ok(verdict) = verdicts.recv() {
        return verdict;
    }
    let outcome = ended.recv()?.map_err(|error| error.to_string())?;
    let mut comparison = comparison.lock().unpoisoned();
    let comparison = comparison.as_mut().ok_or("the comparison has ended without a verdict")?;
    Ok(Verdict::Agreed(comparison.agreement(&outcome)))
}

/// Starts the machine in a thread, which dies with this process; how it ends.
fn start(
    options: &Options,
    kernel: Vec<u8>,
    tracer: Lockstep,
) -> Result<Receiver<Result<String, vmm::Error>>, Failure> {
    let initrd = options.initrd.as_ref().map(std::fs::read).transpose()?;
    let name = |path: &PathBuf| path.to_string_lossy().into_owned();
    let module = |data| Module {
        data: Contents::new(data),
        command_line: options.initrd.as_ref().map(name).unwrap_or_default(),
    };
    let inspection = Inspection {
        tracer: Some(Arc::new(tracer)),
        planted_fault: options.plant_fault,
        ..Inspection::default()
    };
    let line = || -> std::io::Result<SerialBackend> {
        let input = File::open("/dev/null")?.into();
        Ok(SerialBackend { input: Some(input), output: Some(Box::new(std::io::sink())) })
    };
    let configuration = Configuration {
        kernel: Contents::new(kernel),
        kernel_name: name(&options.kernel),
        modules: initrd.map(module).into_iter().collect(),
        command_line: options.append.clone(),
        memory: options.mem << 20,
        devices: vec![
            Box::new(Serial::first(line()?)),
            Box::new(Serial::second(line()?)),
            Box::new(DebugExit),
        ],
        interpret: options.interpret,
        user_execution: UserExecution::Translate,
        inspection,
        ..Configuration::default()
    };
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let outcome = Machine::new(configuration).and_then(|mut machine| machine.run());
        // Nobody listens if there was a verdict before.
        let _ = sender.send(outcome.map(|outcome| format!("{outcome:?}")));
    });
    Ok(receiver)
}

/// Stops the machine's processor at each checkpoint until QEMU has come there, too.
struct Lockstep {
    comparison: Arc<Mutex<Option<Comparison>>>,
    sender: Sender<Result<Verdict, Failure>>,
}

impl Tracer for Lockstep {
    fn trace(&self, cpu: &Traced<'_>, happened: &Happened) -> bool {
        let mut comparison = self.comparison.lock().unpoisoned();
        let Some(running) = comparison.as_mut() else { return false };
        let verdict = running.happened(cpu, happened).transpose();
        let Some(verdict) = verdict else { return true };
        *comparison = None;
        // Somebody waits for it, or has given up.
        let _ = self.sender.send(verdict);
        false
    }
}
