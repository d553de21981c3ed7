//! Inspection of the engine, for debuggers and profilers.
//!
//! The caller that builds a machine may pass an [`Inspection`]. It shows three things: the host code
//! ([`CodeWatcher`]), what each vCPU does ([`Tracer`]), and what it did last
//! ([`crate::history`]). It changes two: which blocks are interpreted instead of translated
//! ([`BlockRanges`]), and which block is translated wrongly on purpose, to test the tools themselves.
//!
//! What rules it:
//!
//! 1. *Nothing of it is on the path of translated code.* All questions are asked where a block is
//!    made, where translated code has been left anyway, or before an instruction is interpreted.
//! 2. *A trace sees every block*, because while there is a tracer, no block is linked to another and
//!    none is entered into the jump cache: each returns to Rust. The same code is executed.
//! 3. *A block is known by what it is made of* ([`BlockId`]): its bytes, its place in its page and its
//!    privilege level, not its address. So it has the same name in the next run, wherever the guest's
//!    kernel puts its pages; if it contains no addresses, also wherever the kernel puts itself.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::history::Happened;
use crate::memory::Physical;
use crate::memory::ram::Ram;
use crate::state::Registers;

/// What to inspect, and change, in the vCPUs of one machine.
#[derive(Default)]
pub struct Inspection {
    /// These are told of all host code.
    pub watchers: Vec<Box<dyn CodeWatcher>>,
    /// This is told what the vCPUs do.
    pub tracer: Option<Arc<dyn Tracer>>,
    /// Entries of each vCPU's history; rounded up, and never very few.
    pub history_entries: usize,
    /// Blocks that are interpreted.
    pub interpreted: BlockRanges,
    /// A block that is translated wrongly: its first instruction that would be copied is left out.
    pub planted_fault: Option<BlockId>,
    /// Each instruction that can have a way for operands that cross a page has it from the start, not when
    /// that has happened to it: for tests.
    pub all_crossings: bool,
}

impl fmt::Debug for Inspection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Inspection")
            .field("watchers", &self.watchers.len())
            .field("tracer", &self.tracer.is_some())
            .field("history_entries", &self.history_entries)
            .field("interpreted", &self.interpreted)
            .field("planted_fault", &self.planted_fault)
            .field("all_crossings", &self.all_crossings)
            .finish()
    }
}

impl Inspection {
    /// Whether any part of it concerns blocks.
    pub(crate) fn concerns_blocks(&self) -> bool {
        !self.watchers.is_empty()
            || !self.interpreted.is_empty()
            || self.planted_fault.is_some()
            || self.all_crossings
    }

    /// Tell of code that is there.
    pub(crate) fn tell(&mut self, start: u64, bytes: &[u8], origin: Origin<'_>) {
        self.tell_all(&CodePiece { start, size: bytes.len() as u64, bytes, origin });
    }

    /// Tell of a place that the engine will fill, and keep.
    pub(crate) fn tell_of_place(&mut self, (start, end): (u64, u64), name: &'static str) {
        let origin = Origin::Place(name);
        self.tell_all(&CodePiece { start, size: end - start, bytes: &[], origin });
    }

    fn tell_all(&mut self, code: &CodePiece<'_>) {
        self.watchers.iter_mut().for_each(|watcher| watcher.added(code));
    }
}

/// An observer of the code cache.
///
/// It is called under a lock that every vCPU needs: it must not call the engine.
pub trait CodeWatcher: Send {
    /// There is new host code.
    fn added(&mut self, code: &CodePiece<'_>);

    /// All host code has been dropped; what comes will use its addresses again.
    fn dropped(&mut self);
}

/// A piece of host code.
#[derive(Debug, Clone, Copy)]
pub struct CodePiece<'a> {
    /// Host address of its first byte.
    pub start: u64,
    /// Its length.
    pub size: u64,
    /// The code, before any jump in it has been linked; empty for a place.
    pub bytes: &'a [u8],
    /// What it is.
    pub origin: Origin<'a>,
}

/// Where host code comes from.
#[derive(Debug, Clone, Copy)]
pub enum Origin<'a> {
    /// It is a translation.
    Block(GuestCode<'a>),
    /// It is the engine's own, of this name.
    Engine(&'static str),
    /// It is a place of this name that the engine fills and empties as it likes; it stays when code
    /// is dropped.
    Place(&'static str),
}

/// What a block is made from.
#[derive(Debug, Clone, Copy)]
pub struct GuestCode<'a> {
    /// The block's name.
    pub id: BlockId,
    /// Its linear address when it was translated; the same translation may run at others.
    pub linear: u64,
    /// Its guest-physical address.
    pub physical: u64,
    /// Its privilege level.
    pub cpl: u8,
    /// Bits of an address in its code: 64 or 32.
    pub bits: u32,
    /// The guest's code.
    pub bytes: &'a [u8],
    /// The block is left to the interpreter, because the inspection asks for that.
    pub interpreted: bool,
}

/// The name of a block, from what it is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u64);

impl BlockId {
    pub(crate) fn new(offset_in_page: u64, cpl: u8, bytes: &[u8]) -> Self {
        // FNV-1a: no secret is kept by it, and it is the same in every version of this program.
        const PRIME: u64 = 0x0000_0100_0000_01b3;
        let head = [offset_in_page as u8, (offset_in_page >> 8) as u8, cpl];
        let hash = head.iter().chain(bytes).fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(PRIME)
        });
        Self(hash)
    }
}

impl fmt::Display for BlockId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:016x}", self.0)
    }
}

impl std::str::FromStr for BlockId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let value = u64::from_str_radix(text, 16);
        value.map(Self).map_err(|_| format!("{text:?} is not the name of a block"))
    }
}

/// Ranges of names of blocks, as `FIRST-LAST,FIRST-LAST` or single names. There may be many.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockRanges {
    /// In order, and apart from each other.
    sorted: Vec<RangeInclusive<u64>>,
}

impl BlockRanges {
    /// These, in whatever order.
    pub fn new(mut ranges: Vec<RangeInclusive<u64>>) -> Self {
        ranges.retain(|range| !range.is_empty());
        ranges.sort_by_key(|range| *range.start());
        let mut sorted: Vec<RangeInclusive<u64>> = Vec::new();
        for range in ranges {
            match sorted.last_mut() {
                Some(last) if last.end() >= range.start() => {
                    *last = *last.start()..=*last.end().max(range.end());
                }
                _ => sorted.push(range),
            }
        }
        Self { sorted }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Whether a block is in one of them.
    pub fn contains(&self, id: BlockId) -> bool {
        let after = self.sorted.partition_point(|range| *range.start() <= id.0);
        after > 0 && self.sorted[after - 1].contains(&id.0)
    }
}

impl fmt::Display for BlockRanges {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, range) in self.sorted.iter().enumerate() {
            let comma = if number > 0 { "," } else { "" };
            write!(out, "{comma}{}-{}", BlockId(*range.start()), BlockId(*range.end()))?;
        }
        Ok(())
    }
}

impl std::str::FromStr for BlockRanges {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let range = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let (first, last): (BlockId, BlockId) = (first.parse()?, last.parse()?);
            if first > last {
                return Err(format!("{text:?} ends before it begins"));
            }
            Ok(first.0..=last.0)
        };
        text.split(',').map(range).collect::<Result<_, _>>().map(Self::new)
    }
}

/// What a [`Tracer`] sees of a vCPU.
#[derive(Clone, Copy)]
pub struct Traced<'a> {
    pub(crate) number: usize,
    pub(crate) registers: &'a Registers,
    pub(crate) ram: &'a Ram,
}

impl Traced<'_> {
    /// The vCPU's index in its machine.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Its registers.
    pub fn registers(&self) -> &Registers {
        self.registers
    }

    /// Guest-physical memory, as much of `bytes` as lies in RAM; the rest is left alone.
    pub fn read_physical(&self, at: u64, bytes: &mut [u8]) {
        read_physical(self.ram, at, bytes);
    }
}

/// Guest-physical memory, as much of `bytes` as lies in RAM.
pub(crate) fn read_physical(ram: &Ram, at: u64, bytes: &mut [u8]) {
    for (offset, byte) in bytes.iter_mut().enumerate() {
        if let Some(host) = ram.host(Physical(at.wrapping_add(offset as u64))) {
            // SAFETY: a byte of RAM; the guest may write it meanwhile, and it is plain data.
            *byte = unsafe { host.read_volatile() };
        }
    }
}

/// An observer of the vCPUs, step by step.
pub trait Tracer: Send + Sync {
    /// This is about to happen, or has happened: see [`Happened`]. `false` ends the trace
    /// of this vCPU, which goes on at full speed then.
    fn trace(&self, cpu: &Traced<'_>, happened: &Happened) -> bool;
}

/// The instructions in `bytes`, one per line, as code of so many bits (16, 32 or 64) at `address`.
pub fn disassemble(bytes: &[u8], address: u64, bits: u32) -> String {
    use iced_x86::{Decoder, DecoderOptions, Formatter, GasFormatter, Instruction};
    let mut decoder = Decoder::with_ip(bits, bytes, address, DecoderOptions::NONE);
    let (mut formatter, mut instruction) = (GasFormatter::new(), Instruction::default());
    let (mut text, mut line) = (String::new(), String::new());
    while decoder.can_decode() {
        let start = decoder.position();
        decoder.decode_out(&mut instruction);
        line.clear();
        formatter.format(&instruction, &mut line);
        let hex: String =
            bytes[start..decoder.position()].iter().map(|byte| format!("{byte:02x}")).collect();
        text.push_str(&format!("  {:#018x}  {hex:<30}  {line}\n", instruction.ip()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_known_by_what_it_is_made_of() {
        let id = BlockId::new(0x123, 0, b"code");
        assert_eq!(id, BlockId::new(0x123, 0, b"code"));
        for other in [(0x124, 0, &b"code"[..]), (0x123, 3, b"code"), (0x123, 0, b"cede")] {
            assert_ne!(id, BlockId::new(other.0, other.1, other.2));
        }
        assert_eq!(id.to_string().parse(), Ok(id));
    }

    #[test]
    fn ranges_are_read_as_they_are_written() {
        let ranges: BlockRanges = "1-ff,200,fffffffffffffff0-ffffffffffffffff".parse().unwrap();
        let inside = [1, 0x80, 0xff, 0x200, u64::MAX];
        let outside = [0, 0x100, 0x1ff, 0x201, u64::MAX - 16];
        assert!(inside.into_iter().all(|id| ranges.contains(BlockId(id))));
        assert!(!outside.into_iter().any(|id| ranges.contains(BlockId(id))));
        assert_eq!(ranges.to_string().parse(), Ok(ranges));
        for wrong in ["", "-", "2-1", "x", "1,,2", "1-"] {
            assert!(wrong.parse::<BlockRanges>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn ranges_that_touch_are_one() {
        let ranges: BlockRanges = "30-40,1-8,5-20,20-22,35-36".parse().unwrap();
        assert_eq!(ranges, BlockRanges::new(vec![1..=0x22, 0x30..=0x40]));
        assert!(BlockRanges::default().is_empty() && !BlockRanges::default().contains(BlockId(0)));
    }

    #[test]
    fn code_is_printed_instruction_by_instruction() {
        let text = disassemble(&[0x90, 0xeb, 0xfd], 0x1000, 64);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].contains("0x0000000000001000") && lines[0].ends_with("nop"), "{text}");
        assert!(lines[1].contains("ebfd") && lines[1].contains("jmp"), "{text}");
        assert_eq!(lines.len(), 2, "{text}");
    }
}
