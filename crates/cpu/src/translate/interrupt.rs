//! `iretq` inside translated code (SDM 2A "IRET").
//!
//! Interrupts and page faults end with an `iretq` to where they came from: to user code, to kernel
//! code, or to kernel code whose SS is null because an interrupt has loaded it so (SDM 3A 6.14.2).
//! For these three the selectors are those of `syscall` and `sysretq`, and the descriptors, which
//! are read like any memory, are those of flat segments. Whatever is not exactly so is left to the
//! interpreter, before anything has changed:
//!
//! - flags whose change needs a closer look, now or in the frame, except RF, and AC of kernel code (a
//!   page fault of `copy_to_user` returns to where AC is set);
//! - a target that is not in the half of the address space that belongs to the privilege level;
//! - another selector, or a descriptor that is not accessed, flat and of the right kind;
//! - what [`Architectural::note_return_obstacles`] has seen, which only Rust changes.
//!
//! RF of the frame has no effect, because translated code runs only while no breakpoint is set; but
//! an interrupt that is taken before the next instruction must save it (SDM 3B 18.3.1.1). So it is
//! noted until the jump to the next block has been found, for Rust to see if it has not.

use iced_x86::{MemoryOperand, Register};

use super::builder::{Builder, stack};
use super::emit::{at, field};
use super::syscall::{
    FlatSegment, KERNEL_CODE, KERNEL_DATA, USER_CODE, USER_DATA, kernel_selector, user_selector,
};
use crate::architectural::Architectural;
use crate::context::{context_offset, register_offset};
use crate::memory::{Access, Linear};
use crate::mode::GuestMode;
use crate::state::{Attributes, FLAGS_OFFSET, SegmentRegister, rflags};

/// Attributes of SS with a null selector at CPL 0.
const NULL_DATA: u64 = 0x93;

/// A kind of return.
struct Return {
    guest: GuestMode,
    /// Selector and attributes.
    code: FlatSegment,
    stack: FlatSegment,
}

/// The descriptor of a flat segment with these attributes (SDM 3A 3.4.5): limit 0xfffff.
fn descriptor(attributes: u64) -> u64 {
    attributes << 40 | 0xf << 48 | 0xffff
}

/// The 64-bit word `number` from a place on.
pub(super) fn item(place: MemoryOperand, number: usize) -> MemoryOperand {
    MemoryOperand { displacement: 8 * number as i64, displ_size: u32::from(number != 0), ..place }
}

/// Where the popped item `number` is.
pub(super) fn popped(number: usize) -> i32 {
    context_offset!(frame) + 8 * number as i32
}

/// Where the TLB for CPL 0 is, with the AC that a register has.
pub(super) fn kernel_set_by(alignment: Register) -> MemoryOperand {
    const { assert!(context_offset!(access_tlb) == context_offset!(kernel_tlb) + 8) };
    let place = i64::from(context_offset!(kernel_tlb));
    MemoryOperand::new(Register::None, alignment, 8, place, 8, false, Register::FS)
}

pub(super) const RIP: usize = 0;
pub(super) const CS: usize = 1;
pub(super) const FLAGS: usize = 2;
pub(super) const RSP: usize = 3;
pub(super) const SS: usize = 4;

/// The returns that are translated.
fn returns(star: u64) -> impl Iterator<Item = Return> {
    let (kernel, user) = (kernel_selector(star), user_selector(star));
    let to_kernel =
        |stack| Return { guest: GuestMode::of_64_bit_code(0), code: (kernel, KERNEL_CODE), stack };
    let data = ((kernel + 8) & 0xffff, KERNEL_DATA);
    let to_user = Return {
        guest: GuestMode::of_64_bit_code(3),
        code: (user, USER_CODE),
        stack: ((user - 8) & 0xffff, USER_DATA),
    };
    let all = [to_user, to_kernel(data), to_kernel((0, NULL_DATA))];
    // In the GDT, and not the null selector.
    let usable = |code: u64| code & 4 == 0 && (16..0xff00).contains(&(code + 8));
    all.into_iter()
        .filter(move |to| usable(to.code.0) && (to.guest.is_kernel() || usable(to.stack.0)))
}

/// The part of the GDT that returns look at: first and last byte.
fn descriptors(star: u64) -> (u64, u64) {
    let (kernel, user) = (kernel_selector(star) & !7, user_selector(star) & !7);
    (kernel.min(user.wrapping_sub(8)), (kernel + 8).max(user) | 7)
}

impl Builder<'_> {
    /// `iretq` from CPL 0.
    pub(super) fn interrupt_return(&mut self, mark: u32) {
        let [_, s1, s2] = self.s();
        let frame = self.reach(stack(0), 40, false, mark);
        for number in [RIP, CS, FLAGS, RSP, SS] {
            self.out.load(s2, item(frame, number));
            self.out.store(field(popped(number)), s2);
        }
        self.require_easy_return(mark);
        self.selectors_into_s1();
        let kernel = self.kernel;
        for to in returns(self.star) {
            let selectors = to.code.0 | to.stack.0 << 16;
            self.out.copy(s2, Register::RCX);
            self.out.constant(Register::RCX, selectors.wrapping_neg());
            self.out.lea(Register::RCX, at(Register::RCX, s1, 0));
            let other = self.out.jump_unless_rcx_zero();
            self.out.copy(Register::RCX, s2);
            self.return_as(&to, mark);
            self.kernel = kernel;
            let here = self.out.here();
            self.out.patch(other, here);
            self.out.copy(Register::RCX, s2);
        }
        self.interpret(mark);
    }

    /// Both selectors in one number.
    pub(super) fn selectors_into_s1(&mut self) {
        let [s0, s1, _] = self.s();
        self.out.load_word(s1, field(popped(CS)));
        self.out.load_word(s0, field(popped(SS)));
        self.out.rotate(s0, s0, 48);
        self.out.lea(s1, at(s1, s0, 0));
    }

    /// Leave the instruction to the interpreter if flags or Rust ask for it.
    pub(super) fn require_easy_return(&mut self, mark: u32) {
        let [s0, s1, _] = self.s();
        self.out.load(s0, field(popped(FLAGS)));
        self.out.extract(s0, s0, context_offset!(return_mask));
        self.out.load(s1, field(context_offset!(regs) + FLAGS_OFFSET));
        self.out.extract(s1, s1, context_offset!(delicate_mask));
        self.out.lea(s0, at(s0, s1, 0));
        for byte in [
            register_offset!(alignment_flag),
            context_offset!(window_wanted),
            context_offset!(return_obstacle),
        ] {
            self.out.load_byte(s1, field(byte));
            self.out.lea(s0, at(s0, s1, 0));
        }
        self.require_zero(s0, mark);
    }

    /// Leave the instruction to the interpreter unless `register`, a scratch register other than
    /// s2, is zero.
    pub(super) fn require_zero(&mut self, register: Register, mark: u32) {
        let [_, _, s2] = self.s();
        self.out.copy(s2, Register::RCX);
        self.out.copy(Register::RCX, register);
        self.interpret_unless_rcx_zero(mark);
        self.out.copy(Register::RCX, s2);
    }

    fn return_as(&mut self, to: &Return, mark: u32) {
        let [s0, s1, _] = self.s();
        self.out.load(s0, field(popped(RIP)));
        if to.guest.is_kernel() {
            self.out.complement(s0);
        }
        self.out.extract(s0, s0, context_offset!(upper_mask));
        self.require_zero(s0, mark);
        if to.guest.is_user() {
            self.out.load(s0, field(popped(FLAGS)));
            self.out.extract(s0, s0, context_offset!(alignment_mask));
            self.require_zero(s0, mark);
        }
        self.require_descriptors(to, mark);
        // From here on nothing can go wrong.
        self.out.load(s1, field(popped(FLAGS)));
        self.out.extract(s0, s1, context_offset!(interrupt_mask));
        self.out.store_byte(field(register_offset!(interrupt_flag)), s0);
        self.out.extract(s0, s1, context_offset!(resume_mask));
        self.out.store_byte(field(context_offset!(resume_pending)), s0);
        self.out.set_field64(context_offset!(regs) + FLAGS_OFFSET, rflags::FIXED);
        if to.guest.is_kernel() {
            self.out.extract(s0, s1, context_offset!(alignment_mask));
            self.out.store_byte(field(register_offset!(alignment_flag)), s0);
        }
        self.set_privilege(to.guest.cpl(), to.code, to.stack);
        if to.guest.is_kernel() {
            self.out.load(s0, field(popped(FLAGS)));
            self.out.extract(s0, s0, context_offset!(alignment_mask));
            self.use_set_at(true, kernel_set_by(s0));
        } else {
            self.use_tlb(false, context_offset!(user_tlb));
        }
        self.out.load(Register::RSP, field(popped(RSP)));
        self.out.load(s0, field(popped(FLAGS)));
        self.load_native_flags(s0);
        self.out.load(s0, field(popped(RIP)));
        if to.guest.is_user() {
            self.come_to_run_loop_if_direct();
        }
        self.leave_indirect_after(|builder| {
            builder.out.set_field8(context_offset!(resume_pending), 0);
        });
    }

    /// Leave the instruction to the interpreter unless the GDT has what [`Self::set_privilege`] is
    /// about to load.
    fn require_descriptors(&mut self, to: &Return, mark: u32) {
        let [s0, s1, s2] = self.s();
        let mut wanted = vec![to.code];
        if to.stack.0 != 0 {
            wanted.push(to.stack);
        }
        wanted.sort_unstable();
        let first = wanted[0].0 & !7;
        self.out.load(s0, field(register_offset!(gdtr.base)));
        self.out.lea(s0, at(s0, Register::None, first as i32));
        let table = self.reach_in_s0(8 * wanted.len(), false, mark);
        for number in 0..wanted.len() {
            self.out.load(s2, item(table, number));
            self.out.store(field(popped(SS + 1 + number)), s2);
        }
        for (number, (_, attributes)) in wanted.into_iter().enumerate() {
            self.out.load(s0, field(popped(SS + 1 + number)));
            self.out.constant(s1, descriptor(attributes).wrapping_neg());
            self.out.lea(s0, at(s0, s1, 0));
            self.require_zero(s0, mark);
        }
    }
}

impl Architectural {
    /// Whether something that only Rust changes asks for the interpreter at the next `iretq`:
    /// segment registers that CPL 3 may not keep (SDM 3A 5.8.6), NMIs that it lets through again,
    /// or a GDT that is too short. (A paravirtual kernel returns by a hypercall; its `iretq` leads to itself.)
    pub(crate) fn note_return_obstacles(&mut self) {
        use SegmentRegister::{Ds, Es, Fs, Gs};
        if self.paravirtual.is_some() {
            return self.open_gateway();
        }
        let regs = &self.context.regs;
        let inner = [Es, Ds, Fs, Gs].into_iter().any(|which| {
            let segment = regs.segment(which);
            let is_null = segment.attributes.contains(Attributes::UNUSABLE);
            if is_null { segment.selector != 0 } else { segment.dpl() < 3 }
        });
        let short = descriptors(regs.star).1 > u64::from(regs.gdtr.limit);
        self.context.return_obstacle = u8::from(inner || short || regs.nmi_blocked != 0);
    }

    /// What the translation of `iretq` reads: the frame, and descriptors. A paravirtual kernel's loads no segment.
    pub(super) fn return_accesses(&self) -> [Option<(Linear, usize, Access)>; 2] {
        let regs = &self.context.regs;
        let frame = (Linear(regs.gpr[4]), 40, Access::Read);
        if self.paravirtual.is_some() {
            return [Some(frame), None];
        }
        let (first, last) = descriptors(regs.star);
        let table = Linear(regs.gdtr.base.wrapping_add(first));
        let length = last.wrapping_sub(first) as usize + 1;
        [Some(frame), Some((table, length, Access::Read))]
    }
}
