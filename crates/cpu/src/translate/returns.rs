//! Predicted returns.
//!
//! A return leads to the instruction after the call that it belongs to. Looking its block up costs as much
//! as for any indirect jump, and is worse for the host's caches: there are as many places to return to as there are
//! calls. So a call notes, in a ring of its privilege level that is a part of the [`Context`], where it
//! will come back to: the guest's address and the host address of a *landing*, which is a link like
//! that of a jump. A return whose address is the one on top goes there; any other is looked up as
//! before. Both take the top away: a call whose return address is replaced, as a retpoline's is, must
//! not be in the way of those before it.
//!
//! ```text
//! call: push ...                          ret:      s0 = pop ...
//!       s0 = top                                    s1 = mark
//!       ring[s0] = (address, landing)               jmp returned
//!       top = s0 + 1                      returned: s1 = top - 1; top = s1
//!       ...                                         jump-cache look-up unless s0 == ring[s1].0
//! landing: jmp block after the call                 jmp ring[s1].1
//! ```
//!
//! Calls and returns with all that belongs to them would be a third of a kernel's translated code, and
//! that is more than fits the host's caches: so what returns do is written once, as a thunk. A landing
//! is entered with the canonical scratch registers spilled, as most blocks have them.
//!
//! An entry says that this linear address is in that physical page and may be executed, which is what a
//! line of the jump cache says; so it is forgotten when those are ([`Context::forget_returns`]): at
//! every flush, change of the address space, and change of what blocks mean. Dropping the block that a
//! landing leads to unlinks it, as any jump. Code at CPL 0 and code at CPL 3 have rings of their own,
//! so that no return of a user's is predicted by a call of the kernel's; and so has the kernel's code that may
//! access its users' memory, which is translated otherwise ([`super::Mode::user_open`]).

use iced_x86::{MemoryOperand, Register};

use super::Translator;
use super::builder::{Builder, Later, is_linkable};
use super::cache::Part;
use super::emit::{Emitter, at, field};
use super::host_code::HostCode;
use super::scratch::make_canonical;
use super::way_out::ThunkKey;
use crate::context::{Context, Landing, Ring, context_offset, register_offset};
use crate::memory::Linear;
use crate::techniques::Technique;

/// The ring of users' code; the kernel's are before it.
const USERS_RING: usize = 2;

/// Where the number of a ring's next entry is.
fn top_of(ring: usize) -> i32 {
    context_offset!(ring_tops) + ring as i32
}

/// The address (0) or the landing (8) of the entry that a register has the number of.
fn entry(ring: usize, number: Register, part: usize) -> MemoryOperand {
    let ring = context_offset!(rings) + (ring * size_of::<Ring>()) as i32;
    let place = i64::from(ring + part as i32);
    // A number counts quarters of an entry, so that it wraps where its byte does.
    MemoryOperand::new(Register::None, number, 4, place, 4, false, Register::FS)
}

const ADDRESS: usize = std::mem::offset_of!(Landing, address);
const TARGET: usize = std::mem::offset_of!(Landing, target);

/// Entries' numbers are this far apart.
const STEP: i32 = (size_of::<Landing>() / 4) as i32;

impl Builder<'_> {
    /// Which of the rings is for the code at hand.
    fn ring(&self) -> usize {
        if self.key.mode.guest.is_user() { USERS_RING } else { usize::from(self.user_open) }
    }

    /// A call has pushed `back`. Uses the scratch registers.
    pub(super) fn note_return(&mut self, back: Linear) {
        let wanted = self.techniques.has(Technique::Returns);
        if !wanted || !is_linkable(self.key, back, self.techniques) {
            return;
        }
        let mode = self.key.mode;
        if mode.paravirtual && mode.guest.is_kernel() && back.0 >> 63 == 0 {
            // See `forget_returns_of_users`.
            return;
        }
        let [s0, s1, s2] = self.s();
        let ring = self.ring();
        self.out.load_byte(s0, field(top_of(ring)));
        if self.key.is_64_bit() {
            self.store_address(entry(ring, s0, ADDRESS), back);
        } else {
            self.address(s2, back);
            self.make_jump_address(s2, s1);
            self.out.store(entry(ring, s0, ADDRESS), s2);
        }
        let landing = self.out.address_of_code(s1);
        self.out.store(entry(ring, s0, TARGET), s1);
        self.out.lea(s0, at(s0, Register::None, STEP));
        self.out.store_byte(field(top_of(ring)), s0);
        self.postpone(Later::Landing { at: landing, back });
    }

    /// Leave the block for the address in s0, which a return at `mark` has popped.
    pub(super) fn leave_returned(&mut self, mark: u32) {
        if !self.techniques.has(Technique::Returns) {
            return self.leave_computed(mark);
        }
        let [s0, s1, _] = self.s();
        self.make_jump_address(s0, s1);
        let slot = self.nop_slot();
        self.out.constant(s1, u64::from(mark));
        self.out.jump(self.thunks().returned[self.ring()]);
        self.in_exit_stubs(|builder| {
            let [s0, ..] = builder.s();
            builder.finish_nop_slot(slot);
            builder.out.store(field(register_offset!(rip)), s0);
            builder.way_out(builder.thunks().lookup.plain, mark);
        });
    }
}

impl Translator {
    /// Go on where the address in s0 leads that a return has popped, whose mark is in s1; at `first` by the
    /// jump cache.
    pub(super) fn returned(
        &mut self,
        ThunkKey { scratch, kernel }: ThunkKey,
        ring: usize,
        first: HostCode,
    ) -> HostCode {
        let Some([s0, s1, s2]) = scratch else {
            return HostCode::default();
        };
        let mut out = Emitter::new(self.cache.next(Part::Bodies));
        let start = out.here();
        out.store(field(register_offset!(rip)), s0);
        out.store_sized(field(context_offset!(detail)), s1, 4);
        out.load_byte(s1, field(top_of(ring)));
        out.lea(s1, at(s1, Register::None, -STEP));
        out.store_byte(field(top_of(ring)), s1);
        out.zero_extend_byte(s1, s1);
        out.copy(s2, Register::RCX);
        out.load(Register::RCX, entry(ring, s1, ADDRESS));
        out.complement(Register::RCX);
        out.lea(Register::RCX, at(Register::RCX, s0, 1));
        let other = out.jump_unless_rcx_zero();
        out.patch(other, first);
        out.copy(Register::RCX, s2);
        if !kernel {
            let page = context_offset!(page_number_mask);
            out.extract(s0, s0, page);
            out.deposit(s0, s0, page);
            out.store(field(context_offset!(code_page)), s0);
        }
        make_canonical(&mut out, [s0, s1, s2], s1, entry(ring, s1, TARGET));
        self.append_own("returned", out.bytes());
        start
    }
}

impl Context {
    /// Forget where returns lead.
    pub(crate) fn forget_returns(&mut self) {
        let nowhere = self.nowhere();
        for ring in &mut self.rings {
            ring.fill(nowhere);
        }
    }

    /// Forget where returns of a paravirtual guest lead that are not common to its address spaces: those of users. Of
    /// its kernel's, only those in the upper half are noted, which is (paravirtual/exact.rs).
    pub(crate) fn forget_returns_of_users(&mut self) {
        let nowhere = self.nowhere();
        self.rings[USERS_RING].fill(nowhere);
    }

    /// Matches a return to address 0, which is looked up.
    fn nowhere(&self) -> Landing {
        Landing { address: 0, target: self.leave_unknown }
    }
}
