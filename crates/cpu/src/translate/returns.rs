//! Predicted returns.
//!
//! A return leads to the instruction after the call that it belongs to. Looking that up is as dear as
//! any indirect jump, and worse for the caches: there are as many places to return to as there are
//! calls. So a call notes, in a ring of its privilege level that is a part of the [`Context`], where it
//! will come back to: the guest's address, negated, and the host address of a *landing*, which is a
//! link like that of a jump. A return whose address is the one on top goes there; any other is looked
//! up as before. Both take the top away: a call whose return address is replaced, as a retpoline's is,
//! must not be in the way of those before it.
//!
//! ```text
//! call: push ...                          ret:  s0 = pop ...
//!       s0 = top + 1; top = s0                  s1 = top
//!       ring[s0] = (-address, landing)          jump-cache look-up unless s0 + ring[s1].0 == 0
//!       ...                                     top = s1 - 1
//! landing: jmp block after the call             jmp ring[s1].1
//! ```
//!
//! An entry says that this linear address is in that physical page and may be executed, which is what a
//! line of the jump cache says; so it is forgotten when those are ([`Context::forget_returns`]): at
//! every flush, change of the address space, and change of what blocks mean. Dropping the block that a
//! landing leads to unlinks it, as any jump. Code at CPL 0 and code at CPL 3 have rings of their own,
//! so that a user's return can never be taken for the kernel's; and so has the kernel's code that may
//! access its users' memory, which is translated otherwise ([`super::Mode::user_open`]).

use iced_x86::{MemoryOperand, Register};

use super::emit::{at, field};
use super::generate::{Builder, Later, is_linkable};
use crate::context::{Context, Landing, Ring, context_offset, register_offset};
use crate::techniques::Technique;

/// Where the number of a ring's latest entry is.
fn top_of(ring: usize) -> i32 {
    context_offset!(ring_tops) + ring as i32
}

/// The negated address (0) or the landing (8) of the entry that a register has the number of.
fn entry(ring: usize, number: Register, part: usize) -> MemoryOperand {
    let ring = context_offset!(rings) + (ring * size_of::<Ring>()) as i32;
    let place = i64::from(ring + part as i32);
    // A number counts quarters of an entry, so that it wraps where its byte does.
    MemoryOperand::new(Register::None, number, 4, place, 4, false, Register::FS)
}

const ADDRESS: usize = std::mem::offset_of!(Landing, negative_address);
const TARGET: usize = std::mem::offset_of!(Landing, target);

/// Entries' numbers are this far apart.
const STEP: i32 = (size_of::<Landing>() / 4) as i32;

impl Builder<'_> {
    /// Which of the rings is for the code at hand.
    fn ring(&self) -> usize {
        if self.key.mode.cpl == 3 { 2 } else { usize::from(self.user_open) }
    }

    /// A call has pushed `back`. Uses s0 and s1.
    pub(super) fn note_return(&mut self, back: u64) {
        let wanted = self.techniques.has(Technique::Returns);
        if !wanted || !is_linkable(self.key, back, self.techniques) {
            return;
        }
        let [s0, s1, _] = self.s();
        let ring = self.ring();
        self.out.load_byte(s0, field(top_of(ring)));
        self.out.lea(s0, at(s0, Register::None, STEP));
        self.out.store_byte(field(top_of(ring)), s0);
        self.out.zero_extend_byte(s0, s0);
        if self.key.is_relocatable() {
            self.address(s1, back);
            self.out.complement(s1);
            self.out.lea(s1, at(s1, Register::None, 1));
        } else {
            self.out.constant(s1, back.wrapping_neg());
        }
        self.out.store(entry(ring, s0, ADDRESS), s1);
        let landing = self.out.address_of_code(s1);
        self.out.store(entry(ring, s0, TARGET), s1);
        self.postpone(Later::Landing { at: landing, back });
    }

    /// The ring's latest entry, whose number is in `number`, is no longer that. Uses `register`.
    pub(super) fn take_top(&mut self, register: Register, number: Register) {
        self.out.lea(register, at(number, Register::None, -STEP));
        self.out.store_byte(field(top_of(self.ring())), register);
    }

    /// Leave the block for the address in s0, which a return at `mark` has popped.
    pub(super) fn leave_returned(&mut self, mark: u32) {
        if !self.techniques.has(Technique::Returns) {
            return self.leave_computed(mark);
        }
        let [s0, s1, s2] = self.s();
        let ring = self.ring();
        self.out.store(field(register_offset!(rip)), s0);
        let gate = self.open_gate();
        self.out.load_byte(s1, field(top_of(ring)));
        self.out.copy(s2, Register::RCX);
        self.out.load(Register::RCX, entry(ring, s1, ADDRESS));
        self.out.lea(Register::RCX, at(Register::RCX, s0, 0));
        let other = self.out.jump_unless_rcx_zero();
        self.out.copy(Register::RCX, s2);
        if !self.kernel {
            let page = context_offset!(page_number_mask);
            self.out.extract(s0, s0, page);
            self.out.deposit(s0, s0, page);
            self.out.store(field(context_offset!(code_page)), s0);
        }
        self.take_top(s0, s1);
        self.out.load(s1, entry(ring, s1, TARGET));
        self.out.store(field(context_offset!(jump_target)), s1);
        self.reload();
        self.out.jump_field(context_offset!(jump_target));
        self.postpone(Later::Returned { at: other, gate, mark });
    }
}

impl Context {
    /// Forget where returns lead.
    pub(crate) fn forget_returns(&mut self) {
        // Matches a return to address 0, which is looked up.
        let nowhere = Landing { negative_address: 0, target: self.leave_unknown };
        for ring in &mut self.rings {
            ring.fill(nowhere);
        }
    }
}
