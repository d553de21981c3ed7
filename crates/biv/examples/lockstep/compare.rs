//! The comparison, checkpoint by checkpoint.
//!
//! The constraints, and how they are met:
//!
//! 1. *Bivouac says where a block begins, not how many instructions it had.* QEMU steps until it has the
//!    state of Bivouac's next block. It may come by the same address before, within a loop; then the
//!    states differ, and it goes on, for as many steps as a block can have.
//! 2. *Both start alike.* QEMU's firmware brings it to the kernel's entry; there it is given
//!    Bivouac's memory, general-purpose registers, flags and control registers. Selectors cannot be
//!    given: those of the entry count as equal until they change.
//! 3. *Some instructions may do differently*: flags that they leave undefined, and what CPUID, ports,
//!    platform registers and the time-stamp counter say (analyse.rs). Where nothing else differs,
//!    QEMU is given what Bivouac has.
//! 4. *No interrupt comes in QEMU while it is stepped.* When one comes in Bivouac, that is the end.
//! 5. *Memory is compared* now and then, where QEMU stands at the same instruction: all RAM, except
//!    for accessed and dirty bits, which a processor may set early (SDM 3A 4.8), and for RF in the flags
//!    that a fault has pushed, which TCG leaves clear.

use std::fmt::Write;

use domain::inspect::Symbols;
use vmm::history::{ExitKind, Happened};
use vmm::inspect::{Traced, disassemble};

use crate::analyse::Analysis;
use crate::gdb::Qemu;
use crate::state::{Field, RFLAGS, RIP, State};
use crate::{Failure, Options};

/// Steps to other instructions in which QEMU must come to the next checkpoint: a block has at most 64,
/// and the delivery of an event is one.
const MAX_STEPS: usize = 80;

/// The same with repetitions of one instruction.
const MAX_REPETITIONS: usize = 1 << 20;

/// Instructions that are shown where the two have parted.
const MAX_SHOWN: usize = 20;

/// Pages, and where there is no RAM on a PC.
const PAGE_BYTES: usize = 4096;
const NO_RAM: std::ops::Range<usize> = 0xa_0000..0x10_0000;

/// The accessed and dirty bits of a page-table entry.
const ACCESSED_AND_DIRTY: u64 = 0x60;

/// RF, where nothing else differs.
const RESUME_FLAG: u64 = 1 << 16;

/// The port by which a machine ends.
const EXIT_PORT: u64 = 0xf4;

/// How it ended.
pub enum Verdict {
    /// Both did the same.
    Agreed(String),
    /// They did not.
    Differed(String),
}

/// Both sides.
pub struct Comparison {
    qemu: Qemu,
    symbols: Symbols,
    options: Options,
    /// QEMU's state, and both sides' selectors at the entry.
    theirs: Option<State>,
    entry: Option<(State, State)>,
    /// Code size in bits at the last checkpoint.
    bits: u32,
    checkpoints: u64,
    taken_over: u64,
    memory_looks: u64,
}

impl Comparison {
    /// Starts QEMU.
    pub fn new(options: &Options, symbols: Symbols) -> Result<Comparison, Failure> {
        Ok(Comparison {
            qemu: Qemu::start(options)?,
            symbols,
            options: options.clone(),
            theirs: None,
            entry: None,
            bits: 32,
            checkpoints: 0,
            taken_over: 0,
            memory_looks: 0,
        })
    }

    /// Something happened in Bivouac; the verdict, if this was the end.
    pub fn happened(
        &mut self,
        cpu: &Traced<'_>,
        what: &Happened,
    ) -> Result<Option<Verdict>, Failure> {
        match *what {
            Happened::Block { .. } | Happened::Interpreted { .. } => self.checkpoint(cpu),
            Happened::Interrupt { rip, vector } => {
                let when = format!("Bivouac delivers interrupt {vector:#x} at {rip:#x}");
                Ok(Some(Verdict::Agreed(self.agreement(&when))))
            }
            // The instruction that ends the machine changes nothing before.
            Happened::Exit { kind: ExitKind::IoWrite, place: EXIT_PORT, .. } => {
                self.compare_memory(cpu)
            }
            _ => Ok(None),
        }
    }

    /// For when there was no difference.
    pub fn agreement(&self, end: &str) -> String {
        format!(
            "no difference at {} checkpoints and {} looks at memory; {} times something was taken \
             over that may differ; the end: {end}",
            self.checkpoints, self.memory_looks, self.taken_over,
        )
    }

    fn checkpoint(&mut self, cpu: &Traced<'_>) -> Result<Option<Verdict>, Failure> {
        let ours = State::of(cpu.registers());
        if self.entry.is_none() {
            self.start_alike(cpu, &ours)?;
        }
        if let Some(report) = self.follow(&ours)? {
            return Ok(Some(Verdict::Differed(report)));
        }
        self.bits = bits(cpu);
        self.checkpoints += 1;
        if self.checkpoints.is_multiple_of(self.options.memory_every.max(1))
            && let Some(verdict) = self.compare_memory(cpu)?
        {
            return Ok(Some(verdict));
        }
        let enough = self.checkpoints >= self.options.count;
        Ok(enough.then(|| Verdict::Agreed(self.agreement("enough has been compared"))))
    }

    /// Brings QEMU to the entry, and to the same state.
    fn start_alike(&mut self, cpu: &Traced<'_>, ours: &State) -> Result<(), Failure> {
        self.qemu.run_to(ours.get(RIP))?;
        let mut theirs = self.qemu.state()?;
        for field in theirs.differences(ours) {
            if !field.is_selector() {
                self.qemu.set(field, ours.get(field))?;
                theirs.set(field, ours.get(field));
            }
        }
        // The bytes of QEMU's own kernel stay, if it has one of its own.
        let kernel = self.options.qemu_kernel.is_some().then(|| self.kernel_pages()).transpose()?;
        let memory = self.qemu.memory(self.options.mem << 20)?;
        for (at, page) in pages(&memory) {
            let mut wanted = [0; PAGE_BYTES];
            cpu.read_physical(at as u64, &mut wanted);
            let kept = kernel.as_ref().is_some_and(|pages| pages.contains(&at));
            if wanted != page && !kept {
                self.qemu.write_memory(at as u64, &wanted)?;
            }
        }
        self.entry = Some((*ours, theirs));
        self.theirs = Some(self.qemu.state()?);
        self.bits = bits(cpu);
        Ok(())
    }

    /// The pages of the kernel, which are not taken over: those that differ between the files would
    /// be.
    fn kernel_pages(&self) -> Result<Vec<usize>, Failure> {
        use object::read::elf::{ElfFile32, ElfFile64};
        use object::{Endianness, Object, ObjectSegment};
        let file = std::fs::read(&self.options.kernel)?;
        let spans: Vec<(u64, u64)> = match ElfFile32::<Endianness>::parse(&*file) {
            Ok(elf) => elf.segments().map(|part| (part.address(), part.size())).collect(),
            Err(_) => {
                let elf = ElfFile64::<Endianness>::parse(&*file)?;
                elf.segments().map(|part| (part.address(), part.size())).collect()
            }
        };
        let page = PAGE_BYTES as u64;
        let pages = |(start, size): (u64, u64)| start / page..(start + size).div_ceil(page);
        Ok(spans.into_iter().flat_map(pages).map(|number| (number * page) as usize).collect())
    }

    /// Lets QEMU come to the state of Bivouac; what is to be said if it does not.
    fn follow(&mut self, ours: &State) -> Result<Option<String>, Failure> {
        let mut theirs = self.theirs.take().ok_or("QEMU has no state")?;
        let mut path: Vec<u64> = Vec::new();
        let mut nearest: Option<State> = None;
        for _ in 0..MAX_REPETITIONS {
            let differences = self.differences(&theirs, ours);
            if differences.is_empty() {
                self.theirs = Some(theirs);
                return Ok(None);
            }
            if theirs.get(RIP) == ours.get(RIP) && !path.is_empty() {
                if self.may_differ(&theirs, ours, &differences, &path)? {
                    self.take_over(ours, &differences)?;
                    self.theirs = Some(self.qemu.state()?);
                    return Ok(None);
                }
                nearest.get_or_insert(theirs);
            }
            if path.len() == MAX_STEPS {
                break;
            }
            if path.last() != Some(&theirs.get(RIP)) {
                path.push(theirs.get(RIP));
            }
            self.qemu.step()?;
            theirs = self.qemu.state()?;
        }
        self.report(ours, nearest.as_ref(), &path).map(Some)
    }

    fn differences(&self, theirs: &State, ours: &State) -> Vec<Field> {
        let mut all = theirs.differences(ours);
        if let Some((our_entry, their_entry)) = &self.entry {
            all.retain(|&field| {
                let untouched = ours.get(field) == our_entry.get(field)
                    && theirs.get(field) == their_entry.get(field);
                !(field.is_selector() && untouched)
            });
        }
        all
    }

    /// Whether the instructions of the path leave open what differs.
    fn may_differ(
        &mut self,
        theirs: &State,
        ours: &State,
        differences: &[Field],
        path: &[u64],
    ) -> Result<bool, Failure> {
        if differences.iter().any(|&field| field != RFLAGS && field.number() >= 16) {
            return Ok(false);
        }
        let mut analysis = Analysis::new();
        for &rip in path {
            let code = self.qemu.read_code(rip)?;
            analysis.add(&code, self.bits);
        }
        let freedom = analysis.freedom();
        Ok(differences.iter().all(|&field| match field {
            RFLAGS => (theirs.get(field) ^ ours.get(field)) & !freedom.flags == 0,
            field => freedom.registers.contains(&field),
        }))
    }

    fn take_over(&mut self, ours: &State, differences: &[Field]) -> Result<(), Failure> {
        self.taken_over += 1;
        differences.iter().try_for_each(|&field| self.qemu.set(field, ours.get(field)))
    }

    /// Where they parted.
    fn report(
        &mut self,
        ours: &State,
        nearest: Option<&State>,
        path: &[u64],
    ) -> Result<String, Failure> {
        let named = |address: u64| {
            let name = self.symbols.name(address).unwrap_or_default();
            format!("{address:#x} {name}").trim_end().to_owned()
        };
        let from = path.first().copied().unwrap_or_default();
        let mut text = format!(
            "difference after {} checkpoints that agree, the last one at {}\n",
            self.checkpoints,
            named(from),
        );
        match nearest {
            None => {
                writeln!(text, "Bivouac comes to {}; QEMU does not", named(ours.get(RIP)))?;
            }
            Some(theirs) => {
                writeln!(text, "both come to {}", named(ours.get(RIP)))?;
                for field in self.differences(theirs, ours) {
                    let (ours, theirs) = (ours.get(field), theirs.get(field));
                    writeln!(text, "  {field:<15} Bivouac {ours:#018x}  QEMU {theirs:#018x}")?;
                }
            }
        }
        text.push_str("what QEMU has executed since:\n");
        let end = path.iter().skip(1).position(|&rip| rip == ours.get(RIP));
        for &rip in &path[..end.map_or(path.len(), |end| end + 1).min(MAX_SHOWN)] {
            let code = self.qemu.read_code(rip)?;
            text.push_str(&first_instruction(&code, rip, self.bits));
        }
        Ok(text)
    }

    fn compare_memory(&mut self, cpu: &Traced<'_>) -> Result<Option<Verdict>, Failure> {
        self.memory_looks += 1;
        let memory = self.qemu.memory(self.options.mem << 20)?;
        for (at, page) in pages(&memory) {
            let mut ours = [0; PAGE_BYTES];
            cpu.read_physical(at as u64, &mut ours);
            if let Some(offset) = first_difference(&ours, page)
                && !self.is_foreign_kernel(at)?
            {
                let word = |page: &[u8]| {
                    u64::from_le_bytes(std::array::from_fn(|index| page[offset + index]))
                };
                let rip = cpu.registers().rip;
                return Ok(Some(Verdict::Differed(format!(
                    "difference in memory after {} checkpoints that agree, at {rip:#x}\n  physical \
                     {:#x}  Bivouac {:#018x}  QEMU {:#018x}",
                    self.checkpoints,
                    at + offset,
                    word(&ours),
                    word(page),
                ))));
            }
        }
        Ok(None)
    }

    /// Two kernels differ, of course.
    fn is_foreign_kernel(&self, at: usize) -> Result<bool, Failure> {
        Ok(self.options.qemu_kernel.is_some() && self.kernel_pages()?.contains(&at))
    }
}

/// The pages of RAM, with their addresses.
fn pages(memory: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let pages = memory.chunks_exact(PAGE_BYTES).enumerate();
    pages.map(|(number, page)| (number * PAGE_BYTES, page)).filter(|(at, _)| !NO_RAM.contains(at))
}

/// Where two pages differ in more than what may differ.
fn first_difference(ours: &[u8], theirs: &[u8]) -> Option<usize> {
    let word = |bytes: &[u8]| u64::from_le_bytes(std::array::from_fn(|index| bytes[index]));
    let mut words = ours.chunks_exact(8).zip(theirs.chunks_exact(8));
    let differ = |(ours, theirs): (&[u8], &[u8])| {
        let differing = word(ours) ^ word(theirs);
        differing & !ACCESSED_AND_DIRTY != 0 && differing != RESUME_FLAG
    };
    words.position(differ).map(|number| number * 8)
}

fn bits(cpu: &Traced<'_>) -> u32 {
    cpu.registers().code_bits()
}

/// The first instruction of some bytes of code of so many bits, as a line.
fn first_instruction(code: &[u8], rip: u64, bits: u32) -> String {
    disassemble(code, rip, bits).lines().next().map(|line| format!("{line}\n")).unwrap_or_default()
}
