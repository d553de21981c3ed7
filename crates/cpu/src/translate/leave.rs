//! Ways out of a block: links, the jump cache, Rust.

use iced_x86::{MemoryOperand, Register};

use super::builder::{Builder, Later, NopSlot, is_linkable};
use super::emit::{Emitter, at, field, in_tlb, scaled};
use super::host_code::HostCode;
use super::jump_slot::{JumpSlot, NONE, SlotPlaces};
use super::reach::set_offset;
use super::scratch::{CANONICAL, Scratch, make_canonical, reload};
use super::unchain::Unchaining;
use super::views::NOP;
use super::way_out::Thunks;
use crate::context::{NOT_COMPUTED, context_offset, register_offset};
use crate::memory::Linear;
use crate::memory::tlb::{Entries, JumpEntry, jump_index_of};

impl Builder<'_> {
    /// The ways out with the scratch registers spilled.
    pub(super) fn thunks(&self) -> Thunks {
        self.thunks[usize::from(self.kernel)]
    }

    /// Give the scratch registers their guest values back.
    pub(super) fn reload(&mut self) {
        self.scratch.into_iter().for_each(|scratch| reload(self.out, scratch));
    }

    /// Go out to Rust through a thunk, with a number that says more.
    pub(super) fn way_out(&mut self, thunk: HostCode, detail: u32) {
        self.out.set_field32(context_offset!(detail), detail);
        self.out.jump(thunk);
    }

    /// Have the interpreter execute the instruction at `mark`.
    pub(super) fn interpret(&mut self, mark: u32) {
        self.way_out(self.thunks().interpret.plain, mark);
    }

    /// The jump whose displacement is at `at` leads to the interpreter.
    pub(super) fn delicate(&mut self, at: HostCode, mark: u32) {
        self.postpone(Later::Delicate { at, mark });
    }

    /// Leave the block for a known address.
    pub(super) fn leave_to(&mut self, target: Linear) {
        if is_linkable(self.key, target, self.techniques) || self.may_cross_page(target) {
            let at = self.jump_somewhere();
            self.leave_from(at, target);
        } else {
            self.leave_by_jump_cache(target);
        }
    }

    /// The same for a jump that has been written, with its displacement at `at`.
    pub(super) fn leave_from(&mut self, at: HostCode, target: Linear) {
        if is_linkable(self.key, target, self.techniques) {
            self.link(at, target);
        } else if self.may_cross_page(target) {
            self.link_cross_page(at, target);
        } else {
            let here = self.out.here();
            self.out.patch(at, here);
            self.leave_by_jump_cache(target);
        }
    }

    /// A jump that does not lead anywhere yet, and can be patched while it is executed: its displacement.
    pub(super) fn jump_somewhere(&mut self) -> HostCode {
        self.out.align_displacement(1);
        let here = self.out.here();
        self.out.jump(here)
    }

    /// Make the jump whose displacement is at `at` a link.
    fn link(&mut self, at: HostCode, target: Linear) {
        self.in_exit_stubs(|builder| {
            let mut places = builder.write_conversion();
            builder.patch(at, places.convert);
            if builder.hands_over() {
                builder.unchains(at, places.convert);
                places.warm = at;
            }
            let number = builder.slot(target, places);
            builder.way_out_converted(number);
        });
    }

    /// Convert the scratch registers, and the jump after that, which leads to what follows it.
    pub(super) fn write_conversion(&mut self) -> SlotPlaces {
        let convert = self.out.here();
        match self.scratch {
            Some(scratch) if self.hands_over() => {
                super::scratch::convert(self.out, scratch, CANONICAL);
            }
            _ => self.reload(),
        }
        let cold = self.jump_somewhere();
        let out = self.out.here();
        self.patch(cold, out);
        self.unchains(cold, out);
        SlotPlaces { warm: HostCode::default(), cold, convert, out, loaded: !self.is_spilled() }
    }

    /// Whether scratch registers are spilled after [`Self::write_conversion`].
    fn is_spilled(&self) -> bool {
        self.scratch.is_some() && self.hands_over()
    }

    /// Go out to Rust after a conversion, through a slot that is not linked.
    pub(super) fn way_out_converted(&mut self, slot: u32) {
        let thunks = if self.is_spilled() { self.canonical } else { self.bare };
        self.way_out(thunks.unlinked.plain, slot);
    }

    /// Have the jump whose displacement is at `at` lead to a host address.
    pub(super) fn patch(&mut self, at: HostCode, target: HostCode) {
        let pieces = [&mut *self.out, &mut *self.exit_stubs];
        let piece = pieces.into_iter().find(|piece| piece.contains(at));
        piece.expect("what is patched is in a piece of the block").patch(at, target);
    }

    /// When the block is unchained, the jump whose displacement is at `at` leads to a host address.
    pub(super) fn unchains(&mut self, at: HostCode, target: HostCode) {
        let displacement = super::emit::displacement(at, target);
        self.unchainings.push(Unchaining::Jump { at, displacement });
    }

    /// Have something written into the part of the code cache for what is seldom executed. Nothing there
    /// may be interrupted by a fault of the guest's: marks are for the block's body.
    pub(super) fn in_exit_stubs<T>(&mut self, write: impl FnOnce(&mut Self) -> T) -> T {
        std::mem::swap(&mut self.out, &mut self.exit_stubs);
        let written = write(self);
        std::mem::swap(&mut self.out, &mut self.exit_stubs);
        written
    }

    /// The same, for where the jump whose displacement is at `at` leads.
    pub(super) fn exit_stub(&mut self, at: HostCode, write: impl FnOnce(&mut Self)) {
        let here = self.exit_stubs.here();
        self.patch(at, here);
        self.in_exit_stubs(write);
    }

    /// Leave for the plain block that starts with the instruction at a mark, with the guest's RCX in
    /// s2. The plain block does all of the instruction.
    pub(super) fn leave_to_plain(&mut self, mark: u32) {
        let [_, _, s2] = self.s();
        let delta = self.marks[(mark - self.first_mark) as usize].guest;
        let target = self.key.linear.plus(u64::from(delta));
        self.out.copy(Register::RCX, s2);
        self.reload();
        let cold = self.jump_somewhere();
        let out = self.out.here();
        self.patch(cold, out);
        self.unchains(cold, out);
        let number =
            self.slot(target, SlotPlaces { cold, out, loaded: true, ..SlotPlaces::default() });
        self.slots.last_mut().expect("just added").plain = true;
        self.way_out(self.bare.unlinked.plain, number);
    }

    /// Make the jump whose displacement is at `at` a link from a place where the canonical scratch
    /// registers are spilled, whatever the block's own are.
    pub(super) fn link_canonical(&mut self, at: HostCode, target: Linear) {
        self.in_exit_stubs(|builder| {
            let out = builder.out.here();
            builder.patch(at, out);
            builder.unchains(at, out);
            let number =
                builder.slot(target, SlotPlaces { cold: at, out, ..SlotPlaces::default() });
            builder.way_out(builder.canonical.unlinked.plain, number);
        });
    }

    /// Add a slot; its number.
    pub(super) fn slot(&mut self, target: Linear, places: SlotPlaces) -> u32 {
        let (block, user_open) = (self.block, self.user_open);
        let SlotPlaces { warm, cold, convert, out, loaded } = places;
        let [warm, cold, convert, out] = [warm, cold, convert, out].map(|place| self.offset(place));
        self.slots.push(JumpSlot {
            block,
            target,
            warm,
            cold,
            convert,
            out,
            loaded,
            plain: false,
            user_open,
            cross_page: None,
            to: NONE,
            next: NONE,
        });
        self.first_slot + self.slots.len() as u32 - 1
    }

    /// The offset in the code cache of a place that is not its start; 0 for none.
    pub(super) fn offset(&self, place: HostCode) -> u32 {
        if place.is_place() { (place - self.cache_start) as u32 } else { 0 }
    }

    /// A five-byte `nop` that the signal handler can turn into a jump; the index of its [`Unchaining`],
    /// to be completed by [`Self::finish_nop_slot`].
    pub(super) fn nop_slot(&mut self) -> NopSlot {
        self.out.align_five();
        let at = self.out.here();
        self.out.raw(&NOP);
        self.unchainings.push(Unchaining::Nop { at, displacement: 0 });
        (at, self.unchainings.len() - 1)
    }

    /// The slot leads here when it is unchained.
    pub(super) fn finish_nop_slot(&mut self, slot: NopSlot) {
        self.finish_nop_slot_at(slot, self.out.here());
    }

    pub(super) fn finish_nop_slot_at(&mut self, (at, index): NopSlot, target: HostCode) {
        let displacement = super::emit::displacement(at + 1, target);
        self.unchainings[index] = Unchaining::Nop { at, displacement };
    }

    pub(super) fn leave_by_jump_cache(&mut self, target: Linear) {
        let [s0, s1, s2] = self.s();
        if self.key.is_relocatable() {
            self.address(s0, target);
            return self.leave_indirect();
        }
        let target = self.key.jump_address(target);
        if !target.is_canonical() {
            // The next instruction, behind the last address that there is.
            self.out.set_field32(context_offset!(detail), NOT_COMPUTED);
        }
        let line =
            std::mem::offset_of!(Entries, jumps) + jump_index_of(target.0) * size_of::<JumpEntry>();
        let entry = set_offset(line);
        let slot = self.nop_slot();
        self.out.copy(s2, Register::RCX);
        let tag = self.in_line(Register::RCX, entry);
        self.out.load(Register::RCX, tag);
        if i64::from(target.0 as i32) == target.0 as i64 {
            self.out.lea(Register::RCX, at(Register::RCX, Register::None, target.0 as i32));
        } else {
            self.out.constant(s0, target.0);
            self.out.lea(Register::RCX, at(Register::RCX, s0, 0));
        }
        let miss = self.out.jump_unless_rcx_zero();
        if !self.kernel {
            let page = self.in_line(s1, entry + std::mem::offset_of!(JumpEntry, page) as i32);
            self.note_page(page);
        }
        self.out.copy(Register::RCX, s2);
        let canonical = std::mem::offset_of!(JumpEntry, canonical) as i32;
        let place = self.in_line(s1, entry + canonical);
        make_canonical(self.out, [s0, s1, s2], s1, place);
        self.exit_stub(miss, |builder| {
            builder.out.constant(s0, target.0);
            builder.out.jump(builder.thunks().second);
            builder.finish_nop_slot(slot);
            builder.out.constant(s0, target.0);
            builder.out.store(field(register_offset!(rip)), s0);
            builder.out.jump(builder.thunks().lookup.plain);
        });
    }

    /// Leave the block for the address in s0.
    pub(super) fn leave_indirect(&mut self) {
        self.leave_indirect_after(|_| {});
    }

    /// The same; `arrive` writes what is to be done when the first line of the jump cache has the
    /// target, and may use no register.
    pub(super) fn leave_indirect_after(&mut self, arrive: impl FnOnce(&mut Self)) {
        let (miss, slot) = self.jump_by_cache(arrive);
        self.out.patch(miss, self.thunks().second);
        self.finish_nop_slot_at(slot, self.thunks().lookup.plain);
    }

    /// Leave the block for the address in s0, which the guest has computed at `mark`. It may turn
    /// out not to be canonical where the jump cache does not have it (run.rs).
    pub(super) fn leave_computed(&mut self, mark: u32) {
        let (at, slot) = self.jump_by_cache(|_| {});
        self.postpone(Later::Computed { at, slot, mark });
    }

    /// Jump to the address in s0 if the first line of the jump cache has it; the displacement of the
    /// way on if not, and the slot.
    fn jump_by_cache(&mut self, arrive: impl FnOnce(&mut Self)) -> (HostCode, NopSlot) {
        let [s0, s1, s2] = self.s();
        self.make_jump_address(s0, s1);
        self.out.store(field(register_offset!(rip)), s0);
        let slot = self.nop_slot();
        self.out.copy(s2, Register::RCX);
        let kernel = self.kernel;
        let miss = look_at_first_line(self.out, [s0, s1, s2], kernel);
        if !kernel {
            self.note_page(of_line(s1, kernel, std::mem::offset_of!(JumpEntry, page)));
        }
        self.out.copy(Register::RCX, s2);
        arrive(self);
        let canonical = of_line(s1, kernel, std::mem::offset_of!(JumpEntry, canonical));
        make_canonical(self.out, [s0, s1, s2], s1, canonical);
        (miss, slot)
    }

    /// User code goes on in the page that a line of the jump cache names; RCX is lost.
    fn note_page(&mut self, page: MemoryOperand) {
        self.out.load(Register::RCX, page);
        self.out.store(field(context_offset!(code_page)), Register::RCX);
    }

    /// A field of a known line of the jump cache; `pointer` is lost.
    pub(super) fn in_line(&mut self, pointer: Register, offset: i32) -> MemoryOperand {
        if !self.kernel {
            return in_tlb(Register::None, Register::None, offset);
        }
        self.out.load(pointer, field(context_offset!(tlb)));
        at(pointer, Register::None, offset)
    }
}

/// A field of the line of the jump cache that `register` leads to.
pub(super) fn of_line(register: Register, kernel: bool, part: usize) -> MemoryOperand {
    let offset = set_offset(std::mem::offset_of!(Entries, jumps) + part);
    if kernel {
        at(register, Register::None, offset)
    } else {
        in_tlb(register, Register::None, offset)
    }
}

/// Have s1 lead to the first line of the jump cache for the address in s0, and see whether it is that
/// address's: the displacement of the jump if not. RCX is lost.
pub(super) fn look_at_first_line(out: &mut Emitter, scratch: Scratch, kernel: bool) -> HostCode {
    let [s0, s1, _] = scratch;
    out.rotate(s1, s0, 12);
    out.lea(s1, at(s1, s0, 0));
    look_at_line(out, scratch, kernel)
}

/// The same for the second line.
pub(super) fn look_at_second_line(out: &mut Emitter, scratch: Scratch, kernel: bool) -> HostCode {
    let [s0, s1, _] = scratch;
    out.rotate(s1, s0, 7);
    out.lea(s1, scaled(s1, s0, 2, 0));
    look_at_line(out, scratch, kernel)
}

/// The same for the line whose number is the low bits of s1.
fn look_at_line(out: &mut Emitter, [s0, s1, _]: Scratch, kernel: bool) -> HostCode {
    out.extract(s1, s1, context_offset!(jump_index_mask));
    out.deposit(s1, s1, context_offset!(jump_line_mask));
    if kernel {
        out.load(Register::RCX, field(context_offset!(tlb)));
        out.lea(s1, at(s1, Register::RCX, 0));
    }
    out.load(Register::RCX, of_line(s1, kernel, std::mem::offset_of!(JumpEntry, negative_tag)));
    out.lea(Register::RCX, at(Register::RCX, s0, 0));
    out.jump_unless_rcx_zero()
}
