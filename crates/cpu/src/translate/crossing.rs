//! Accesses that cross a page.
//!
//! A look-up finds one page; an operand that lies in two misses, and is the interpreter's, at a few hundred
//! times the price. Compilers align what they lay out, so that hardly any instruction ever meets such
//! an operand; but copies and comparisons of bytes do, each a few in a thousand times. So an instruction
//! whose operand has crossed a page a few times ([`RIPE`]) is translated again, with a second way out of
//! line for where its look-up misses:
//!
//! ```text
//!        ...                              ; look-up; s0 = offset in the page, s1 = index of its entry
//!        jrcxz hit
//!        jmp   second
//! hit:   mov   rcx, s2
//!        mov   s1, gs:[s1*8 + host]
//! found: op    [s1 + s0]
//! done:  ...
//!
//! second: the first page is not there?    -> miss, as without a second way
//!        the next entry is not the next page's, or not for this access? -> miss
//!        copy the last bytes of the first page, and the first of the second, into the bounce buffer,
//!        as many of either as the operand has (at least 8, and a multiple of 8)
//!        s1 = bounce buffer - s0 of the operand's first byte
//!        jmp   found                      ; if the operand is only read
//!        op    [s1 + s0]
//!        copy the operand out of the bounce buffer, first part and second part
//!        jmp   done
//! ```
//!
//! The operand needs not be moved to one place in the buffer: with the last `n` bytes of one page and the
//! first `n` of the next side by side, it lies where its offset says. So there is no loop and no count in
//! reading.
//!
//! Rules:
//!
//! 1. *Nothing has happened before both pages are known.* Everything else (a page that is not there, or lacks
//!    a right, or has translations; a device) is a miss, at the start of the instruction: Rust fills the
//!    TLB or has the interpreter find the fault.
//! 2. Bytes beside the operand may be read: they are of pages that may be read, and reading memory shows
//!    nowhere. They are not written, not even with what they held: another processor may be writing them. So
//!    masked stores, of which the mask leaves out bytes, are the interpreter's.
//! 3. So are locked instructions (native/locked.rs), and those of which the bit number moves the operand.
//! 4. The operand has in the buffer the alignment that it has in memory, so that an instruction that requires
//!    alignment faults.
//! 5. A second way has a mark, too: that of its instruction, for when that faults there. Where it faults, the state
//!    is that of the instruction's start, because what it would have written is in the buffer.
//! 6. In 32-bit code, the page behind the last one is the first (code_32.rs). An operand that lies in these two is a
//!    miss, and the interpreter's, also where 64-bit code has a page at 4 GiB.
//! 7. Flags stay (`not`, `lea`, `pext`, `rep movsb`); DF is clear in translated code.

use iced_x86::{Instruction, Register};
use rustc_hash::FxHashSet;

use super::Translator;
use super::action::Action;
use super::block::Mark;
use super::builder::{Builder, Second};
use super::emit::{at, field};
use super::host_code::HostCode;
use super::key::{Key, Mode};
use super::reach::set_offset;
use crate::context::context_offset;
use crate::instruction::{MemoryUse, has_masked_memory, immediate_bit_form, is_locked};
use crate::memory::tlb::Entries;
use crate::memory::{PAGE_SIZE, Physical};
use crate::run::Resume;
use crate::techniques::Technique;
use crate::vcpu::Vcpu;
use crate::vcpu_group::VcpuGroup;

use super::miss::Restart;

/// Largest operand, in bytes.
const MAX_BYTES: usize = 64;

/// Which instructions of a page have a second way.
pub(super) enum Crossing {
    Some(FxHashSet<Physical>),
    All,
}

impl Crossing {
    /// What a run at `key` is to be translated with.
    pub(super) fn new(key: Key, translator: &Translator, group: &VcpuGroup) -> Self {
        if !group.techniques.has(Technique::Crossings) {
            return Self::Some(FxHashSet::default());
        }
        if translator.inspection.as_ref().is_some_and(|inspection| inspection.all_crossings) {
            return Self::All;
        }
        let ripe = translator.crossings.ripe.get(&key.physical.page());
        Self::Some(ripe.cloned().unwrap_or_default())
    }

    /// Whether the instruction at `physical` has one.
    pub(super) fn includes(
        &self,
        instruction: &Instruction,
        action: Action,
        physical: Physical,
    ) -> bool {
        let is_wanted = match self {
            Self::Some(ripe) => ripe.contains(&physical),
            Self::All => true,
        };
        is_wanted && covers(instruction, action)
    }
}

/// Whether an instruction can have a second way.
fn covers(instruction: &Instruction, action: Action) -> bool {
    let Action::Memory(MemoryUse { size, writes, .. }) = action else { return false };
    (2..=MAX_BYTES).contains(&size)
        && !is_locked(instruction)
        && !(writes && has_masked_memory(instruction))
        && immediate_bit_form(instruction.code()).is_none()
}

impl Translator {
    /// Whether the instruction with this mark has a second way.
    fn has_second_way(&self, mark: u32) -> bool {
        let Mark { block, guest, .. } = self.marks[mark as usize];
        let end = self.blocks[block as usize].marks.end;
        self.marks[mark as usize + 1..end as usize].iter().any(|other| other.guest == guest)
    }

    /// The marks of a block without those of second ways, which are behind the others.
    pub(super) fn straight_marks(&self, range: std::ops::Range<u32>) -> &[Mark] {
        let marks = &self.marks[range.start as usize..range.end as usize];
        let last = marks.windows(2).position(|pair| pair[1].guest <= pair[0].guest);
        &marks[..last.map_or(marks.len(), |last| last + 1)]
    }
}

impl Vcpu {
    /// The operand of an instruction crosses a page, and both pages are in the TLB now.
    pub(super) fn serve_crossing(
        &mut self,
        instruction: &Instruction,
        (key, at): (Key, Physical),
        restart: Restart,
    ) -> Resume {
        let mark = self.arch.context.detail;
        let group = std::sync::Arc::clone(&self.arch.group);
        let covered = self.is_covered(instruction, key.mode);
        let mut translator = group.translator();
        if covered && translator.has_second_way(mark) {
            drop(translator);
            return self.try_again(restart);
        }
        if covered && translator.crossings.note(at) {
            let block = translator.marks[mark as usize].block;
            translator.kill(block, &group.peers);
        }
        drop(translator);
        self.arch.statistics.crossings_interpreted += 1;
        Resume::Dispatch(self.interpret())
    }

    fn is_covered(&mut self, instruction: &Instruction, mode: Mode) -> bool {
        let techniques = self.arch.group.techniques;
        let action =
            super::plan::plan(&mut self.arch.info_factory, instruction, mode).by(techniques);
        techniques.has(Technique::Crossings) && covers(instruction, action)
    }
}

/// Displacements of the jumps of a second way that are taken where it does not find the pages.
struct Absent {
    /// The first is not there.
    first: HostCode,
    /// The second is not.
    second: HostCode,
    /// The second would be behind the last of 32-bit code, which goes on with its first.
    wraps: Option<HostCode>,
}

/// Bytes of either page that are copied for an operand of so many.
fn chunk(size: usize) -> i32 {
    size.next_multiple_of(8) as i32
}

impl Builder<'_> {
    /// Write a second way.
    pub(super) fn second_way(&mut self, second: Second) {
        let Second { at: displacement, mark, usage, moved: (moved, high), found, done } = second;
        let here = self.out.here();
        self.out.patch(displacement, here);
        self.mark_again(mark);
        let absent = self.find_both(usage);
        let chunk = chunk(usage.size);
        if usage.reads || !usage.writes {
            self.copy_in(chunk);
        }
        let [_, s1, _] = self.s();
        self.out.load(s1, field(context_offset!(itself)));
        let bounce = context_offset!(bounce) + chunk - PAGE_SIZE as i32;
        self.out.lea(s1, at(s1, Register::None, bounce));
        self.count(context_offset!(crossing.count), Register::RCX);
        self.out.load(Register::RCX, field(context_offset!(crossing.rcx)));
        if usage.writes {
            self.load_high_byte(high);
            self.out.instruction(&moved);
            self.copy_out(usage.size as i32);
            self.out.jump(done);
        } else {
            self.out.jump(found);
        }
        self.miss_again(absent, mark);
    }

    /// Where the pages turn out not to be there.
    fn miss_again(&mut self, Absent { first, second, wraps }: Absent, mark: u32) {
        let [_, _, s2] = self.s();
        let here = self.out.here();
        self.out.patch(second, here);
        if let Some(wraps) = wraps {
            self.out.patch(wraps, here);
        }
        self.out.load(s2, field(context_offset!(crossing.rcx)));
        let here = self.out.here();
        self.out.patch(first, here);
        self.way_out(self.thunks().miss.with_rcx, mark);
    }

    /// Look up both pages, with the index of the first one's entry in s1, and in s0 the offset in it if that is
    /// what it is the entry of. Keeps RCX and the host addresses of the pages in the context, and that of the
    /// second in s2, too.
    fn find_both(&mut self, usage: MemoryUse) -> Absent {
        let [s0, s1, s2] = self.s();
        let tags = if usage.writes {
            std::mem::offset_of!(Entries, write)
        } else {
            std::mem::offset_of!(Entries, read)
        };
        let hosts = set_offset(std::mem::offset_of!(Entries, host));
        self.out.extract(Register::RCX, s0, context_offset!(page_number_mask));
        let first = self.out.jump_unless_rcx_zero();
        self.out.store(field(context_offset!(crossing.rcx)), s2);
        let tag = self.indexed(s2, s1, set_offset(tags));
        self.out.load(s2, tag);
        let host = self.indexed(Register::RCX, s1, hosts);
        self.out.load(Register::RCX, host);
        self.out.store(field(context_offset!(crossing.hosts)), Register::RCX);
        self.out.lea(s1, at(s1, Register::None, 1));
        self.out.extract(s1, s1, context_offset!(crossing.entry_mask));
        // The second tag is the first minus a page's size: both are minus the page's address. What stands for
        // no tag is that of no page with the entry.
        self.out.complement(s2);
        let wraps = (!self.key.is_64_bit()).then(|| {
            self.out.lea(Register::RCX, at(s2, Register::None, PAGE_SIZE as i32 + 1));
            self.out.extract(Register::RCX, Register::RCX, context_offset!(crossing.wrap_mask));
            self.out.jump_unless_rcx_zero()
        });
        let tag = self.indexed(Register::RCX, s1, set_offset(tags));
        self.out.load(Register::RCX, tag);
        self.out.lea(Register::RCX, at(Register::RCX, s2, PAGE_SIZE as i32 + 1));
        let second = self.out.jump_unless_rcx_zero();
        let host = self.indexed(s2, s1, hosts);
        self.out.load(s2, host);
        if usage.writes {
            self.out.store(field(context_offset!(crossing.hosts) + 8), s2);
        }
        Absent { first, second, wraps }
    }

    /// Copy the last bytes of the first page and the first of the second one, at s2, into the bounce buffer.
    fn copy_in(&mut self, chunk: i32) {
        let [_, s1, s2] = self.s();
        let rcx = Register::RCX;
        self.out.load(rcx, field(context_offset!(crossing.hosts)));
        let pages = [(rcx, PAGE_SIZE as i32 - chunk, 0), (s2, 0, chunk)];
        for (page, from, to) in pages {
            for offset in (0..chunk).step_by(8) {
                self.out.load(s1, at(page, Register::None, from + offset));
                self.out.store(field(context_offset!(bounce) + to + offset), s1);
            }
        }
    }

    /// Copy an operand of `size` bytes at s1 + s0, where s0 is its offset in the first page, out of the bounce
    /// buffer. All registers but s0 to s2 stay.
    fn copy_out(&mut self, size: i32) {
        let [s0, s1, s2] = self.s();
        let (rcx, rsi, rdi) = (Register::RCX, Register::RSI, Register::RDI);
        let part = |number: i32| field(context_offset!(crossing.parts) + 8 * number);
        let host = |number: i32| field(context_offset!(crossing.hosts) + 8 * number);
        let kept = |number: i32| field(context_offset!(crossing.kept) + 8 * number);
        self.out.lea(s1, at(s1, s0, 0));
        self.out.store(field(context_offset!(crossing.from)), s1);
        self.out.load(s2, host(0));
        self.out.lea(s2, at(s2, s0, 0));
        self.out.store(host(0), s2);
        self.out.complement(s0);
        self.out.lea(s0, at(s0, Register::None, PAGE_SIZE as i32 + 1));
        self.out.store(part(0), s0);
        self.out.complement(s0);
        self.out.lea(s0, at(s0, Register::None, size + 1));
        self.out.store(part(1), s0);
        for (number, register) in (0..).zip([rcx, rsi, rdi]) {
            self.out.store(kept(number), register);
        }
        self.out.load(rsi, field(context_offset!(crossing.from)));
        for number in 0..2 {
            self.out.load(rdi, host(number));
            self.out.load(rcx, part(number));
            let copy = Instruction::with_rep_movsb(64).expect("there is such an instruction");
            self.out.instruction(&copy);
        }
        for (number, register) in (0..).zip([rcx, rsi, rdi]) {
            self.out.load(register, kept(number));
        }
    }

    /// The guest instruction with this mark is here, too.
    fn mark_again(&mut self, mark: u32) {
        let host = (self.out.here() - self.cache_start) as u32;
        let first = self.marks[(mark - self.first_mark) as usize];
        self.marks.push(Mark { host, ..first });
    }
}
