//! Thunks: the common ends of ways out of blocks. A thunk reloads the scratch registers, stores the reason
//! and leaves. There is one of each kind for every choice of scratch registers, so that a way out is two
//! instructions in the block.

use std::mem::offset_of;

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::Translator;
use super::cache::Part;
use super::emit::{Emitter, at, field, in_tlb};
use super::host_code::HostCode;
use super::leave::{look_at_first_line, look_at_second_line, of_line};
use super::scratch::{Scratch, make_canonical, reload};
use super::way_out::{Thunk, ThunkKey, Thunks};
use crate::context::{Reason, context_offset, register_offset};
use crate::memory::physical_jumps::Line;
use crate::memory::tlb::{Entries, FetchEntry, JumpEntry};

/// What a block without scratch registers never jumps to.
const NOWHERE: HostCode = HostCode(0);

impl Translator {
    /// The ways out for `key`, made when first asked for. The caller has made room.
    pub(super) fn thunks(&mut self, key: ThunkKey) -> Thunks {
        if let Some(&known) = self.thunks.get(&key) {
            return known;
        }
        let scratch = key.scratch;
        let lookup = self.thunk(scratch, Reason::Lookup);
        let second = scratch.map_or(NOWHERE, |scratch| self.second(scratch, key.kernel, lookup));
        let first = scratch.map_or(NOWHERE, |scratch| self.first(scratch, key.kernel, second));
        let unlinked = self.thunk(scratch, Reason::Unlinked);
        let thunks = Thunks {
            unlinked,
            lookup,
            interpret: self.thunk(scratch, Reason::Interpret),
            assist: self.thunk(scratch, Reason::Assist),
            miss: self.thunk(scratch, Reason::Miss),
            call: self.thunk(scratch, Reason::Call),
            cross_page: scratch
                .map_or(NOWHERE, |scratch| self.cross_page(scratch, first, Some(unlinked))),
            refused: scratch.map_or(NOWHERE, |scratch| self.cross_page(scratch, first, None)),
            second,
            returned: std::array::from_fn(|ring| self.returned(key, ring, first)),
        };
        self.thunks.insert(key, thunks);
        thunks
    }

    /// Load x87 and vector state and go on at `jump_target`. It is in the code cache, so that the
    /// signal handler takes it for translated code that comes to a slot soon.
    pub(super) fn load_vectors(&mut self) -> HostCode {
        if let Some(known) = self.load_vectors {
            return known;
        }
        let mut out = Emitter::new(self.cache.next(Part::Bodies));
        let start = out.here();
        let kept =
            [(Register::RAX, context_offset!(temporary)), (Register::RDX, context_offset!(left))];
        for (register, place) in kept {
            out.store(field(place), register);
        }
        out.load32(Register::EAX, field(context_offset!(xsave_mask)));
        out.load32(Register::EDX, field(context_offset!(xsave_mask) + 4));
        let load = Instruction::with1(Code::Xrstor64_mem, field(context_offset!(xsave)));
        out.instruction(&load.expect("operands fit the code"));
        out.set_field8(context_offset!(vectors_absent), 0);
        for (register, place) in kept {
            out.load(register, field(place));
        }
        out.jump_field(context_offset!(jump_target));
        self.append_own("load_vectors", out.bytes());
        self.load_vectors = Some(start);
        start
    }

    fn thunk(&mut self, scratch: Option<Scratch>, reason: Reason) -> Thunk {
        let mut out = Emitter::new(self.cache.next(Part::Bodies));
        let with_rcx = out.here();
        if let Some([_, _, s2]) = scratch {
            out.copy(Register::RCX, s2);
        }
        let plain = out.here();
        scratch.into_iter().for_each(|scratch| reload(&mut out, scratch));
        out.set_field32(context_offset!(reason), reason as u32);
        out.jump_field(context_offset!(leave));
        self.append_own(reason.way_out(), out.bytes());
        Thunk { plain, with_rcx }
    }

    /// Begin to look for the address in s0. If `ask` is given, one time in sixteen ask Rust to link the slot in
    /// the detail instead.
    fn cross_page(&mut self, scratch: Scratch, first: HostCode, ask: Option<Thunk>) -> HostCode {
        let [s0, _, s2] = scratch;
        let mut out = Emitter::new(self.cache.next(Part::Bodies));
        let start = out.here();
        out.store(field(register_offset!(rip)), s0);
        out.copy(s2, Register::RCX);
        if let Some(ask) = ask {
            let sampled = sample(&mut out);
            out.patch(sampled, ask.with_rcx);
        }
        out.jump(first);
        self.append_own("cross_page", out.bytes());
        start
    }

    /// The first look at the jump cache, for slots that are not linked and returns that were not predicted.
    fn first(&mut self, scratch: Scratch, kernel: bool, second: HostCode) -> HostCode {
        let mut out = Emitter::new(self.cache.next(Part::Bodies));
        let start = out.here();
        let miss = look_at_first_line(&mut out, scratch, kernel);
        out.patch(miss, second);
        enter_line(&mut out, scratch, kernel);
        self.append_own("first_look", out.bytes());
        start
    }

    /// The second look at the jump cache, and a third look elsewhere.
    fn second(&mut self, scratch: Scratch, kernel: bool, lookup: Thunk) -> HostCode {
        let [s0, ..] = scratch;
        let mut out = Emitter::new(self.cache.next(Part::Bodies));
        let start = out.here();
        out.store(field(register_offset!(rip)), s0);
        let miss = look_at_second_line(&mut out, scratch, kernel);
        enter_line(&mut out, scratch, kernel);
        let here = out.here();
        out.patch(miss, if kernel { lookup.with_rcx } else { here });
        if !kernel {
            by_physical_address(&mut out, scratch, lookup);
        }
        self.append_own("second_look", out.bytes());
        start
    }
}

/// Enter the block whose line in the jump cache s1 leads to.
fn enter_line(out: &mut Emitter, scratch: Scratch, kernel: bool) {
    let [_, s1, _] = scratch;
    if !kernel {
        out.load(Register::RCX, of_line(s1, kernel, offset_of!(JumpEntry, page)));
        out.store(field(context_offset!(code_page)), Register::RCX);
    }
    enter(out, scratch, of_line(s1, kernel, offset_of!(JumpEntry, canonical)));
}

/// The displacement of a jump that is taken once in sixteen times. RCX is lost.
fn sample(out: &mut Emitter) -> HostCode {
    out.load(Register::RCX, field(context_offset!(sample)));
    out.rotate(Register::RCX, Register::RCX, 1);
    out.store(field(context_offset!(sample)), Register::RCX);
    out.extract(Register::RCX, Register::RCX, context_offset!(sample_mask));
    out.jump_unless_rcx_zero()
}

/// Look for the block at the address in s0, and in RIP, by its physical address
/// (memory/physical_jumps.rs), with the guest's RCX in s2.
fn by_physical_address(out: &mut Emitter, scratch: Scratch, lookup: Thunk) {
    let [s0, s1, _] = scratch;
    let fetch =
        |offset: usize| in_tlb(Register::None, s1, (offset_of!(Entries, fetches) + offset) as i32);
    out.extract(s1, s0, context_offset!(fetch_index_mask));
    // A fetch entry is two words.
    out.lea(s1, at(s1, s1, 0));
    out.load(Register::RCX, fetch(offset_of!(FetchEntry, negative_page)));
    out.lea(Register::RCX, at(Register::RCX, s0, 0));
    out.extract(Register::RCX, Register::RCX, context_offset!(page_number_mask));
    let elsewhere = out.jump_unless_rcx_zero();
    out.load(Register::RCX, fetch(offset_of!(FetchEntry, distance)));
    out.lea(s0, at(s0, Register::RCX, 0));
    out.rotate(s1, s0, 12);
    out.lea(s1, at(s1, s0, 0));
    out.extract(s1, s1, context_offset!(physical_index_mask));
    out.deposit(s1, s1, context_offset!(physical_line_mask));
    out.load(Register::RCX, field(context_offset!(physical_jumps)));
    out.lea(s1, at(s1, Register::RCX, 0));
    let line = |offset: usize| at(s1, Register::None, offset as i32);
    out.load(Register::RCX, line(offset_of!(Line, negative_tag)));
    out.lea(Register::RCX, at(Register::RCX, s0, 0));
    let unknown = out.jump_unless_rcx_zero();
    // One hit in so many goes to Rust, which enters the block into the jump cache.
    let sampled = sample(out);
    out.load(s0, field(register_offset!(rip)));
    out.extract(s0, s0, context_offset!(page_number_mask));
    out.deposit(s0, s0, context_offset!(page_number_mask));
    out.store(field(context_offset!(code_page)), s0);
    enter(out, scratch, line(offset_of!(Line, canonical)));
    for miss in [elsewhere, unknown, sampled] {
        out.patch(miss, lookup.with_rcx);
    }
}

/// Enter the block that has been found; `canonical` is where its entry is, through s1. The guest's RCX is in
/// s2.
fn enter(out: &mut Emitter, scratch: Scratch, canonical: MemoryOperand) {
    let [_, s1, s2] = scratch;
    out.copy(Register::RCX, s2);
    out.set_field8(context_offset!(resume_pending), 0);
    make_canonical(out, scratch, s1, canonical);
}
