//! The entries of a paravirtual kernel and its returns, inside translated code: a user's `syscall`, and the kernel's,
//! which is a hypercall (paravirtual/mod.rs).
//!
//! The hot pair is a system call and the hypercall `iret` behind it; each exception and each event ends with the
//! latter, too. Both are carried out by the block, by what a [`Gateway`] has; every other hypercall leaves by a reason
//! of its own ([`Reason::Call`](crate::context::Reason)), with the registers as the architecture says, so that Rust
//! has nothing to find out. What keeps this exact:
//!
//! 1. *All checks come first.* Until the last of them nothing that the guest can see has changed, but for nothing; what
//!    a check refuses is the interpreter's, which starts from the instruction's beginning
//!    (paravirtual/trap.rs, paravirtual/iret.rs), and says among other things why a domain has ended.
//! 2. *The kernel's stack is memory like any other.* It is looked up in the TLB of the kernel's view, in which the
//!    interpreter enters what is missing when it carries out the instruction. So permission, dirty bits, and pages with
//!    translations are seen to as everywhere, and nothing has to be flushed besides.
//! 3. *What is checked is what is used.* The words of a frame that are checked are copied first: another vCPU may
//!    write them meanwhile. The others (RSP, RAX, RCX, R11) can be anything.
//! 4. *Events are taken at once when they are unmasked.* An `iret` with an event pending is the interpreter's; one that
//!    becomes pending after the check kicks the vCPU, which comes to the run loop at the end of this block.
//! 5. *The mask is a byte of the guest's memory*, which is written by its host address. Where its page has
//!    translations, which such a write would have to drop, the interpreter writes it (`Architectural::open_gateway`
//!    looks each time that translated code is entered; what another vCPU translates from there meanwhile is as if it
//!    had been written before).
//! 6. *A user thread that may run directly* comes to the run loop, as with `sysretq` and `iretq`.
//!
//! Flags, selectors and targets that are not the usual ones are left to the interpreter, as `iretq`'s are
//! (interrupt.rs). An `iret` for the kernel takes the selectors that its own frames have.
//!
//! `iretq` itself is here as well: in ring 3, where the kernel believes to be, it leads to ring 3, which is the kernel.
//! Linux executes it to have nothing in the pipeline that was fetched before a change of its code, 140,000 times while
//! it boots.

use iced_x86::{Instruction, MemoryOperand, Register};

use super::builder::{Builder, Later, stack};
use super::emit::{at, field};
use super::interrupt::{CS, FLAGS, RIP, RSP, SS, item, kernel_set_by, popped};
use super::reach::segment_base;
use super::syscall::{FlatSegment, KERNEL_CODE, KERNEL_DATA, USER_CODE, USER_DATA};
use crate::context::{context_offset, register_offset};
use crate::memory::Linear;
use crate::paravirtual::gateway::{FRAME_BYTES, info};
use crate::state::{FLAGS_OFFSET, rflags};
use xen_abi::hypercall::number;
use xen_abi::segment::selector;

/// The selectors that user programs have, in the guest's own GDT.
const OWN_CODE: u64 = 0x33;
const OWN_DATA: u64 = 0x2b;

/// The kernel's CS in a frame of its own.
const KERNELS_OWN: u64 = selector::CODE64 as u64 & !3;

/// Attributes of Xen's flat segments, in ring 3 as the guest sees it.
const XEN_CODE: u64 = KERNEL_CODE | 3 << 5;
const XEN_DATA: u64 = KERNEL_DATA | 3 << 5;

/// What CS and SS have in the kernel.
const KERNEL: [FlatSegment; 2] =
    [(selector::CODE64 as u64, XEN_CODE), (selector::STACK64 as u64, XEN_DATA)];

/// A kind of return: the selectors in the frame, and what CS and SS have then.
struct Return {
    to_user: bool,
    frame: [u64; 2],
    loaded: [FlatSegment; 2],
}

/// The returns that are translated, the most frequent first.
const RETURNS: [Return; 3] = [
    Return {
        to_user: true,
        frame: [OWN_CODE, OWN_DATA],
        loaded: [(OWN_CODE, USER_CODE), (OWN_DATA, USER_DATA)],
    },
    Return { to_user: false, frame: [KERNELS_OWN, selector::STACK64 as u64], loaded: KERNEL },
    Return {
        to_user: true,
        frame: [selector::CODE64 as u64, selector::STACK64 as u64],
        loaded: KERNEL,
    },
];

/// The word `number` of a frame that a register leads to.
fn word(frame: Register, number: i32) -> MemoryOperand {
    at(frame, Register::None, 8 * number)
}

/// Words of the frame of a system call, from the lowest on.
mod pushed {
    pub const RCX: i32 = 0;
    pub const R11: i32 = 1;
    pub const RIP: i32 = 2;
    pub const CS: i32 = 3;
    pub const FLAGS: i32 = 4;
    pub const RSP: i32 = 5;
    pub const SS: i32 = 6;
    pub const WORDS: u64 = 7;
}

const _: () = assert!(FRAME_BYTES == 8 * pushed::WORDS);

/// Words of the frame of an `iret` (public/arch-x86/xen-x86_64.h, `struct iret_context`).
mod returned {
    pub const RAX: i32 = 0;
    pub const R11: i32 = 1;
    pub const RCX: i32 = 2;
    pub const KIND: i32 = 3;
    pub const RIP: i32 = 4;
    pub const CS: i32 = 5;
    pub const FLAGS: i32 = 6;
    pub const RSP: i32 = 7;
    pub const SS: i32 = 8;
    pub const WORDS: usize = 9;
}

/// Where the copy of what says which kind of return it is lies (of frames, [`popped`] has the rest).
const KIND: usize = 3;

/// A byte of the `vcpu_info` that a register leads to.
fn info_byte(register: Register, offset: u64) -> MemoryOperand {
    at(register, Register::None, offset as i32)
}

impl Builder<'_> {
    /// `syscall` by a user program, in 64-bit code.
    pub(super) fn system_call_of_guest(&mut self, instruction: &Instruction, mark: u32) {
        let [s0, s1, s2] = self.s();
        let back = Linear(instruction.next_ip());
        self.left.push((mark, *instruction));
        // Events that are masked in user mode would show in the frame.
        self.out.load(s1, field(context_offset!(gateway.info)));
        self.out.load_byte(s0, info_byte(s1, info::MASK));
        self.add_byte(context_offset!(gateway.call_obstacle));
        self.require_zero(s0, mark);
        self.use_tlb(true, context_offset!(kernel_tlb));
        self.out.load(s0, field(context_offset!(gateway.frame)));
        self.find_frame(pushed::WORDS as usize, true, mark);
        // From here on nothing can go wrong.
        self.out.copy(s2, s0);
        self.out.store(word(s2, pushed::RSP), Register::RSP);
        self.compose_flags();
        self.out.store(word(s2, pushed::FLAGS), s0);
        self.out.copy(Register::R11, s0);
        self.out.store(word(s2, pushed::R11), Register::R11);
        self.address(Register::RCX, back);
        self.out.store(word(s2, pushed::RCX), Register::RCX);
        self.out.store(word(s2, pushed::RIP), Register::RCX);
        let [(code, _), (stack, _)] = KERNEL;
        self.store_constant(word(s2, pushed::CS), code);
        self.store_constant(word(s2, pushed::SS), stack);
        self.out.load(s1, field(context_offset!(regs) + FLAGS_OFFSET));
        self.masked(s1, context_offset!(gateway.kept_flags));
        self.out.store(field(context_offset!(regs) + FLAGS_OFFSET), s1);
        self.out.set_field8(register_offset!(alignment_flag), 0);
        self.count(context_offset!(system_calls), s1);
        self.toggle(context_offset!(gateway.kernel_root));
        self.set_privilege(0, KERNEL[0], KERNEL[1]);
        self.out.load_byte(s0, field(context_offset!(gateway.system_call_masks)));
        self.store_mask();
        self.out.load(Register::RSP, field(context_offset!(gateway.frame)));
        self.out.load(s0, field(context_offset!(gateway.system_call)));
        self.leave_indirect();
    }

    /// `syscall` by the kernel.
    pub(super) fn hypercall(&mut self, instruction: &Instruction, mark: u32) {
        let [s0, _, s2] = self.s();
        self.left.push((mark, *instruction));
        self.out.copy(s2, Register::RCX);
        self.out.lea(
            Register::RCX,
            at(Register::RAX, Register::None, -i32::try_from(number::IRET).unwrap_or(0)),
        );
        let other = self.out.jump_unless_rcx_zero();
        self.out.copy(Register::RCX, s2);
        self.return_of_guest(mark);
        let here = self.out.here();
        self.out.patch(other, here);
        self.compose_flags();
        self.out.copy(Register::R11, s0);
        self.address(Register::RCX, Linear(instruction.next_ip()));
        self.out.store(field(register_offset!(rip)), Register::RCX);
        self.out.jump(self.thunks().call.plain);
    }

    /// The hypercall `iret`.
    fn return_of_guest(&mut self, mark: u32) {
        let [s0, s1, s2] = self.s();
        let kernel = self.kernel;
        self.out.copy(s0, Register::RSP);
        self.find_frame(returned::WORDS, false, mark);
        self.out.store(field(context_offset!(gateway.place)), s0);
        for (number, copy) in [
            (returned::KIND, KIND),
            (returned::RIP, RIP),
            (returned::CS, CS),
            (returned::FLAGS, FLAGS),
            (returned::SS, SS),
        ] {
            self.out.load(s2, word(s0, number));
            self.out.store(field(popped(copy)), s2);
        }
        self.require_easy_return(mark);
        self.out.load(s0, field(popped(KIND)));
        self.require_zero(s0, mark);
        self.out.load(s1, field(context_offset!(gateway.info)));
        self.out.load_byte(s0, info_byte(s1, info::PENDING));
        self.require_zero(s0, mark);
        self.selectors_into_s1();
        for to in &RETURNS {
            let [code, stack] = to.frame;
            self.out.copy(s2, Register::RCX);
            self.out.constant(Register::RCX, (code | stack << 16).wrapping_neg());
            self.out.lea(Register::RCX, at(Register::RCX, s1, 0));
            let other = self.out.jump_unless_rcx_zero();
            self.out.copy(Register::RCX, s2);
            self.return_of_guest_as(to, mark);
            self.kernel = kernel;
            let here = self.out.here();
            self.out.patch(other, here);
            self.out.copy(Register::RCX, s2);
        }
        self.interpret(mark);
    }

    fn return_of_guest_as(&mut self, to: &Return, mark: u32) {
        let [s0, s1, s2] = self.s();
        self.require_target(to, mark);
        // From here on nothing can go wrong.
        self.out.load(s1, field(popped(FLAGS)));
        self.out.extract(s0, s1, context_offset!(resume_mask));
        self.out.store_byte(field(context_offset!(resume_pending)), s0);
        self.out.set_field64(context_offset!(regs) + FLAGS_OFFSET, rflags::FIXED);
        // Events are masked where IF is clear.
        self.out.extract(s0, s1, context_offset!(interrupt_mask));
        self.out.complement(s0);
        self.out.lea(s0, at(s0, Register::None, 2));
        self.store_mask();
        if to.to_user {
            self.toggle(context_offset!(gateway.user_root));
            self.set_privilege(3, to.loaded[0], to.loaded[1]);
            self.use_tlb(false, context_offset!(user_tlb));
        } else {
            self.set_privilege(0, to.loaded[0], to.loaded[1]);
            self.out.load(s0, field(popped(FLAGS)));
            self.out.extract(s0, s0, context_offset!(alignment_mask));
            self.out.store_byte(field(register_offset!(alignment_flag)), s0);
            self.use_set_at(true, kernel_set_by(s0));
        }
        self.out.load(s2, field(context_offset!(gateway.place)));
        self.out.load(Register::RSP, word(s2, returned::RSP));
        self.out.load(Register::RAX, word(s2, returned::RAX));
        self.out.load(Register::R11, word(s2, returned::R11));
        self.out.load(Register::RCX, word(s2, returned::RCX));
        self.out.load(s0, field(popped(FLAGS)));
        self.load_native_flags(s0);
        self.out.load(s0, field(popped(RIP)));
        if to.to_user {
            self.come_to_run_loop_if_direct();
        }
        self.leave_indirect_after(|builder| {
            builder.out.set_field8(context_offset!(resume_pending), 0);
        });
    }

    /// `iretq` by the kernel, to itself (paravirtual/instructions.rs): RIP, RSP and flags are loaded, segments and IF
    /// stay. A frame with RF or AC is the interpreter's, beside those that [`Self::require_easy_return`] sees to.
    pub(super) fn return_in_kernel(&mut self, mark: u32) {
        let [s0, s1, s2] = self.s();
        let frame = self.reach(stack(0), 40, false, mark);
        for number in [RIP, CS, FLAGS, RSP] {
            self.out.load(s2, item(frame, number));
            self.out.store(field(popped(number)), s2);
        }
        self.require_easy_return(mark);
        self.out.load(s1, field(popped(FLAGS)));
        self.out.extract(s0, s1, context_offset!(alignment_mask));
        self.out.extract(s1, s1, context_offset!(resume_mask));
        self.out.lea(s0, at(s0, s1, 0));
        self.require_zero(s0, mark);
        self.out.load_word(s0, field(popped(CS)));
        self.out.lea(s0, at(s0, Register::None, -i32::from(selector::CODE64)));
        self.require_zero(s0, mark);
        self.out.load(s0, field(popped(RIP)));
        self.out.complement(s0);
        self.out.extract(s0, s0, context_offset!(upper_mask));
        self.require_zero(s0, mark);
        // From here on nothing can go wrong.
        self.out.load(Register::RSP, field(popped(RSP)));
        self.out.load(s0, field(popped(FLAGS)));
        self.load_native_flags(s0);
        self.out.load(s0, field(popped(RIP)));
        self.leave_indirect();
    }

    /// Leave the instruction to the interpreter unless the target is in the usual half of the address space, and there
    /// may be a return to users, if it is one.
    fn require_target(&mut self, to: &Return, mark: u32) {
        let [s0, s1, _] = self.s();
        self.out.load(s0, field(popped(RIP)));
        if !to.to_user {
            self.out.complement(s0);
        }
        self.out.extract(s0, s0, context_offset!(upper_mask));
        if to.to_user {
            self.out.load(s1, field(popped(FLAGS)));
            self.out.extract(s1, s1, context_offset!(alignment_mask));
            self.out.lea(s0, at(s0, s1, 0));
            self.add_byte(context_offset!(gateway.user_obstacle));
        }
        if to.frame[0] == OWN_CODE {
            self.add_byte(context_offset!(gateway.selector_obstacle));
        }
        self.require_zero(s0, mark);
    }

    /// Add a byte of the context to s0; s1 is lost.
    fn add_byte(&mut self, offset: i32) {
        let [s0, s1, _] = self.s();
        self.out.load_byte(s1, field(offset));
        self.out.lea(s0, at(s0, s1, 0));
    }

    /// The host address of so many words of the kernel's at the address in s0 into s0, if they can be accessed: else
    /// the interpreter does that.
    fn find_frame(&mut self, words: usize, write: bool, mark: u32) {
        let [s0, s1, _] = self.s();
        let miss = self.look_up_entry(8 * words, write);
        self.postpone(Later::Delicate { at: miss, mark });
        self.load_host();
        self.out.lea(s0, at(s0, s1, 0));
    }

    /// Mask events, or do not, by the low byte of s0; s1 is lost.
    fn store_mask(&mut self) {
        let [s0, s1, _] = self.s();
        self.out.load(s1, field(context_offset!(gateway.info)));
        self.out.store_byte(info_byte(s1, info::MASK), s0);
    }

    /// From the kernel to its users or back: the other base of GS, and the root at a field; s0 and s1 are lost.
    fn toggle(&mut self, root: i32) {
        let [s0, s1, _] = self.s();
        self.out.load(s0, field(root));
        self.out.store(field(register_offset!(cr3)), s0);
        let base = segment_base(Register::GS);
        self.out.load(s0, field(base));
        self.out.load(s1, field(register_offset!(kernel_gs_base)));
        self.out.store(field(base), s1);
        self.out.store(field(register_offset!(kernel_gs_base)), s0);
    }
}
