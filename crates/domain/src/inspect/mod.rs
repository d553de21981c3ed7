//! Views into a running machine, for debugging and profiling it: symbols for perf(1), traces of
//! blocks, the history of each vCPU, and which blocks the interpreter executes.
//!
//! What it is not: a debugger of the guest. What rules it:
//!
//! 1. *Every file is open before the machine runs*, because a confined process opens none.
//! 2. *What was written is in the file*, however `biv` ends: nothing is kept in buffers of ours.
//! 3. *Every file has a bound.*

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use locks::Unpoisoned;
use spec::Watch;
use vmm::inspect::Inspection;
use vmm::{Contents, Processor, Questions, Reporter};

mod blocks;
mod options;
mod perf_map;
mod symbols;
mod trace;

pub use blocks::{BLOCK, names};
pub(crate) use options::is_used;
pub use options::{INTERPRET_BLOCKS, LIST_BLOCKS};
pub use symbols::Symbols;

/// How long a machine may take to say what its processors do.
const REPORT_PATIENCE: Duration = Duration::from_millis(500);

/// Why there is nothing to be seen.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that is to be written.
    #[error("cannot write {path}: {error}", path = path.display())]
    Create {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
    /// The file of symbols.
    #[error("cannot use the symbols of {path}: {reason}", path = path.display())]
    Symbols {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Blocks that are no blocks.
    #[error("{name}: {reason}")]
    Blocks {
        /// Of which option.
        name: &'static str,
        /// What is wrong with them.
        reason: String,
    },
    /// A variable of the environment that stands for an option.
    #[error("{name}: {reason}")]
    Variable {
        /// Which.
        name: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

fn create(path: &Path) -> Result<File, Error> {
    File::create(path).map_err(|error| Error::Create { path: path.to_owned(), error })
}

/// What the machine is built with, and what is left to tell about it.
pub struct Prepared {
    /// For the machine.
    pub inspection: Inspection,
    /// For the thread that watches it.
    pub teller: Option<Teller>,
}

/// Opens what the options name. `kernel` is the kernel's file, which may have symbols.
pub fn prepare(watch: &Watch, kernel: &Contents) -> Result<Prepared, Error> {
    let mut inspection = Inspection {
        history_entries: watch.history.unwrap_or(0),
        interpreted: options::interpreted(watch)?,
        planted_fault: options::planted(watch)?,
        ..Inspection::default()
    };
    let list = options::list(watch)?;
    let wants_names =
        watch.perf_map || watch.history.is_some() || watch.trace_blocks.is_some() || list.is_some();
    let symbols = if wants_names { find_symbols(watch, kernel)? } else { Symbols::default() };
    let symbols = Arc::new(symbols);
    if watch.perf_map {
        inspection.watchers.push(Box::new(perf_map::PerfMap::create(Arc::clone(&symbols))?));
    }
    if let Some((list, show)) = list {
        let list = blocks::BlockList::create(&list.path, show, Arc::clone(&symbols))?;
        inspection.watchers.push(Box::new(list));
    }
    if let Some(trace) = &watch.trace_blocks {
        inspection.tracer = Some(Arc::new(trace::Trace::create(trace, Arc::clone(&symbols))?));
    }
    let teller = watch.history.map(|entries| Teller::new(entries, symbols));
    Ok(Prepared { inspection, teller })
}

fn find_symbols(watch: &Watch, kernel: &Contents) -> Result<Symbols, Error> {
    let Some(path) = &watch.symbols else {
        // Most kernels have none; those that have them need no option.
        return Ok(Symbols::parse(kernel).unwrap_or_default());
    };
    let failure = |reason| Error::Symbols { path: path.clone(), reason };
    let mut bytes = Vec::new();
    let read = host::open_regular(path).and_then(|mut file| file.read_to_end(&mut bytes));
    read.map_err(|error| failure(error.to_string()))?;
    Symbols::parse(&bytes).map_err(failure)
}

/// Tells, on standard error, what the processors did last. Clones are the same.
#[derive(Clone)]
pub struct Teller {
    shared: Arc<Shared>,
}

struct Shared {
    entries: usize,
    symbols: Arc<Symbols>,
    questions: OnceLock<Questions>,
    /// Told each time that a processor has answered.
    answers: (std::sync::Mutex<usize>, std::sync::Condvar),
}

impl Teller {
    fn new(entries: usize, symbols: Arc<Symbols>) -> Self {
        let (questions, answers) = (OnceLock::new(), Default::default());
        Self { shared: Arc::new(Shared { entries, symbols, questions, answers }) }
    }

    /// What the machine calls when it has been asked.
    pub fn reporter(&self) -> Reporter {
        let teller = self.clone();
        Reporter(Some(Arc::new(move |processor, state: &str| {
            teller.tell(processor, state);
            let (count, changed) = &teller.shared.answers;
            *count.lock().unpoisoned() += 1;
            changed.notify_all();
        })))
    }

    /// There is a machine that can be asked.
    pub fn attend(&self, questions: Questions) {
        // There is one machine in a process.
        let _ = self.shared.questions.set(questions);
    }

    /// Asks the running machine; the processors answer when they come to it.
    pub fn ask(&self) {
        if let Some(questions) = self.shared.questions.get() {
            questions.ask();
        }
    }

    /// Asks, and waits until `processors` have answered; not for long, because one may hang.
    pub fn ask_and_wait(&self, processors: usize) {
        let (count, changed) = &self.shared.answers;
        let before = *count.lock().unpoisoned();
        self.ask();
        let guard = count.lock().unpoisoned();
        // Whoever has not answered by now has not answered; there is nothing to be done about it.
        let _ = changed.wait_timeout_while(guard, REPORT_PATIENCE, |count| {
            self.shared.questions.get().is_some() && *count < before + processors
        });
    }

    /// Tells of the processors of a machine that has ended.
    pub fn tell_of(&self, processors: &[vmm::Vcpu]) {
        for (number, processor) in processors.iter().enumerate() {
            self.tell(number, &processor.describe());
        }
    }

    fn tell(&self, processor: usize, state: &str) {
        let text = self.text(processor, state);
        // Standard error may be closed.
        let _ = io::stderr().write_all(text.as_bytes());
    }

    /// The registers, and the last lines of the history with the names of their addresses.
    fn text(&self, processor: usize, state: &str) -> String {
        let mut lines = state.lines();
        let head = lines.next().unwrap_or_default();
        let mut text = format!("biv: processor {processor}: {head}\n");
        let lines: Vec<_> = lines.collect();
        for line in &lines[lines.len().saturating_sub(self.shared.entries)..] {
            text.push_str(&format!("  {}\n", self.shared.symbols.annotate(line)));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_told_with_names() {
        let symbols = Symbols::parse(b"ffffffff81000000 T start\n").unwrap();
        let teller = Teller::new(2, Arc::new(symbols));
        let state = "rip=0x1\n0xffffffff81000000 a\n0xffffffff81000004 b\n0x0000000000001000 c\n";
        let expected = "biv: processor 1: rip=0x1\n  0xffffffff81000004 b  start+0x4\n  \
                        0x0000000000001000 c\n";
        assert_eq!(teller.text(1, state), expected);
    }
}
