//! The way from Rust into translated code and back, in assembly.
//!
//! On entry, the trampoline loads the guest's state into the host's registers: flags and all sixteen
//! general-purpose registers (RSP included), with FS at the context and GS at the TLB or the
//! mirror. On exit, it stores this state in the context again; translated code arrives at `leave` with the guest's
//! registers all in place.
//!
//! *Extended state is loaded late.* XRSTOR and XSAVEOPT cost more than everything else here
//! together, and kernels hardly ever touch x87 or vector registers. So these are loaded when they
//! are needed, and saved only if they were loaded:
//!
//! 1. In Rust, the image in the context is what the guest has, and `vectors_absent` is 1.
//! 2. In translated code, `vectors_absent` says where the guest's extended state is: 0, in the
//!    host's registers; 1, in the image, while the registers hold what Rust left there.
//! 3. A block with an instruction that touches extended state looks at `vectors_absent` at its
//!    entry, and loads the image if it is not loaded (translate/generate.rs, translate/thunk.rs). Jumps from
//!    such a block to another one skip the look.
//! 4. `enter` loads the image if `vectors_wanted` says so: for a call-out, and for a place in the middle
//!    of a block of 3, where the look has been passed.
//! 5. `leave` saves the registers if they were loaded.
//!
//! The host's FS base and MXCSR are put back on the way out; its GS base, which nothing in this
//! process uses, when [`Vcpu::run`](crate::vcpu::Vcpu::run) returns.
//!
//! A kick must not be lost between the last look at the request flag and the jump into the block:
//! the signal handler treats the instructions between `window_start` and `window_end` as a place
//! before which no guest code has run, and sends control to `abort`.

use std::mem::offset_of;

use crate::context::{Context, XsaveArea};
use crate::state::Registers;

const _: () = assert!(offset_of!(Context, regs) == 0 && offset_of!(Registers, gpr) == 0);
const _: () = assert!(offset_of!(Context, xsave) % 64 == 0 && size_of::<XsaveArea>() == 4096);

unsafe extern "C" {
    /// Run translated code at `target` until it leaves; the reason is in the context.
    pub(super) fn bivouac_enter(context: *mut Context, target: u64);
    /// Where translated code goes to come back. Not to be called.
    pub(super) fn bivouac_leave();
    /// Where it goes, with the canonical scratch registers spilled (translate/scratch.rs), to have Rust
    /// find the block for RIP. Not to be called.
    pub(super) fn bivouac_leave_unknown();
    /// Where the signal handler sends a thread that was in the window. Not to be called.
    pub(super) fn bivouac_abort();
    /// First instruction after the request flag was read.
    pub(super) fn bivouac_window_start();
    /// The end of the jump into translated code.
    pub(super) fn bivouac_window_end();
}

std::arch::global_asm!(
    ".pushsection .text.bivouac_trampoline,\"ax\",@progbits",
    ".global bivouac_enter",
    ".global bivouac_leave",
    ".global bivouac_leave_unknown",
    ".global bivouac_abort",
    ".global bivouac_window_start",
    ".global bivouac_window_end",
    ".p2align 6",
    "bivouac_enter:",
    "push rbp",
    "push rbx",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov [rdi + {host_rsp}], rsp",
    "mov [rdi + {jump_target}], rsi",
    "mov rax, [rdi + {kick}]",
    "cmp dword ptr [rax], 0",
    "bivouac_window_start:",
    "jne bivouac_abort",
    "wrfsbase rdi",
    "mov rax, [rdi + {gs_base}]",
    "wrgsbase rax",
    "cmp byte ptr [rdi + {vectors_wanted}], 0",
    "je 1f",
    "mov eax, [rdi + {xsave_mask}]",
    "mov edx, [rdi + {xsave_mask} + 4]",
    "xrstor64 [rdi + {xsave}]",
    "mov byte ptr [rdi + {vectors_absent}], 0",
    "1:",
    "push qword ptr [rdi + {native_flags}]",
    "popfq",
    "mov rax, fs:[0]",
    "mov rcx, fs:[8]",
    "mov rdx, fs:[16]",
    "mov rbx, fs:[24]",
    "mov rsp, fs:[32]",
    "mov rbp, fs:[40]",
    "mov rsi, fs:[48]",
    "mov rdi, fs:[56]",
    "mov r8, fs:[64]",
    "mov r9, fs:[72]",
    "mov r10, fs:[80]",
    "mov r11, fs:[88]",
    "mov r12, fs:[96]",
    "mov r13, fs:[104]",
    "mov r14, fs:[112]",
    "mov r15, fs:[120]",
    "jmp qword ptr fs:[{jump_target}]",
    "bivouac_window_end:",
    ".p2align 6",
    "bivouac_leave_unknown:",
    "mov r11, fs:[{spill}]",
    "mov r10, fs:[{spill} + 8]",
    "mov r9, fs:[{spill} + 16]",
    "mov dword ptr fs:[{reason}], {lookup}",
    "bivouac_leave:",
    "mov fs:[0], rax",
    "mov fs:[8], rcx",
    "mov fs:[16], rdx",
    "mov fs:[24], rbx",
    "mov fs:[32], rsp",
    "mov fs:[40], rbp",
    "mov fs:[48], rsi",
    "mov fs:[56], rdi",
    "mov fs:[64], r8",
    "mov fs:[72], r9",
    "mov fs:[80], r10",
    "mov fs:[88], r11",
    "mov fs:[96], r12",
    "mov fs:[104], r13",
    "mov fs:[112], r14",
    "mov fs:[120], r15",
    "mov rsp, fs:[{host_rsp}]",
    "pushfq",
    "pop rax",
    "mov fs:[{native_flags}], rax",
    "cld",
    "mov rdi, fs:[{itself}]",
    "cmp byte ptr [rdi + {vectors_absent}], 0",
    "jne 3f",
    "mov eax, [rdi + {xsave_mask}]",
    "mov edx, [rdi + {xsave_mask} + 4]",
    "xsaveopt64 [rdi + {xsave}]",
    "2:",
    "mov byte ptr [rdi + {vectors_absent}], 1",
    "vzeroupper",
    "ldmxcsr [rdi + {host_mxcsr}]",
    "3:",
    "mov rax, [rdi + {host_fs}]",
    "wrfsbase rax",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    "ret",
    "bivouac_abort:",
    "mov dword ptr [rdi + {reason}], {kicked}",
    "mov rsp, [rdi + {host_rsp}]",
    "jmp 2b",
    ".popsection",
    host_rsp = const offset_of!(Context, host_rsp),
    host_fs = const offset_of!(Context, host_fs),
    host_mxcsr = const offset_of!(Context, host_mxcsr),
    jump_target = const offset_of!(Context, jump_target),
    spill = const offset_of!(Context, spill),
    kick = const offset_of!(Context, kick),
    gs_base = const offset_of!(Context, gs_base),
    xsave_mask = const offset_of!(Context, xsave_mask),
    xsave = const offset_of!(Context, xsave),
    vectors_wanted = const offset_of!(Context, vectors_wanted),
    vectors_absent = const offset_of!(Context, vectors_absent),
    native_flags = const offset_of!(Context, native_flags),
    itself = const offset_of!(Context, itself),
    reason = const offset_of!(Context, reason),
    lookup = const crate::context::Reason::Lookup as u32,
    kicked = const crate::context::Reason::Kicked as u32,
);
