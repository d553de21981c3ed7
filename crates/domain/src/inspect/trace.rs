//! The trace of blocks: one line for each block that a vCPU enters, for each instruction that it
//! interprets, and for each event in between, numbered over all vCPUs.

use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex};

use locks::Unpoisoned;
use vmm::history::Happened;
use vmm::inspect::{Traced, Tracer};

use super::{Error, Symbols, create};
use spec::TraceBlocks;

/// The file, and how far it is.
pub(super) struct Trace {
    symbols: Arc<Symbols>,
    from: u64,
    end: u64,
    /// The number of the next step. Nothing else is locked under it.
    written: Mutex<(File, u64)>,
}

impl Trace {
    /// Makes the file.
    pub(super) fn create(order: &TraceBlocks, symbols: Arc<Symbols>) -> Result<Self, Error> {
        let (from, end) = (order.from, order.from.saturating_add(order.count));
        Ok(Self { symbols, from, end, written: Mutex::new((create(&order.path)?, 0)) })
    }
}

impl Tracer for Trace {
    fn trace(&self, cpu: &Traced<'_>, happened: &Happened) -> bool {
        let mut written = self.written.lock().unpoisoned();
        let (file, next) = &mut *written;
        let number = *next;
        if number >= self.end {
            return false;
        }
        let is_step = matches!(happened, Happened::Block { .. } | Happened::Interpreted { .. });
        *next += u64::from(is_step);
        // Each block comes back to Rust: that says nothing.
        if number >= self.from && !matches!(happened, Happened::Left { .. }) {
            let number = if is_step { number.to_string() } else { "-".to_owned() };
            let said = self.symbols.annotate(&happened.to_string());
            let (processor, cpl) = (cpu.number(), cpu.registers().cpl);
            // A full disk costs lines, not the machine.
            let _ =
                file.write_all(format!("{said}  #{number} cpu {processor} cpl {cpl}\n").as_bytes());
        }
        true
    }
}
