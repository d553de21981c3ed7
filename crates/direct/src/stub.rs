//! The stub: the only engine code in a helper. It is position-independent, hand-written and without a stack of its
//! own, in one page that no thread of the helper can write.
//!
//! - `sequence` carries out a script of system calls ([`Step`](crate::layout::Step)). The zygote,
//!   the set-up of a helper and the mapper are such scripts; what they may do is decided by their
//!   seccomp filters and by which process can write the script, not by this code.
//! - `handler` is where the kernel enters the runner with a signal. It reports and stops.
//! - `resume` loads every register from the read-only entry page and leaves by `iretq`, so that no
//!   `rt_sigreturn` (which could change the signal mask and stack) has to be allowed.
//! - `kick` is the handler of the kick. It goes on as `handler`; if it has interrupted that, with the
//!   registers that it was called with. It never returns to what it has interrupted: a program that
//!   loops in the stub would never stop. That there is never a second kick is for `kick.rs` to see to.
//!
//! Every byte of it may be executed by hostile code, from any place in it, with any registers: see
//! the argument at the head of the crate.

use std::arch::global_asm;

use crate::layout::{
    ANSWER_FAILED, BASE, ENTRY, FAILURE, PAGE_BYTES, REFUSED, REPORT, RUNNER_FD,
    SIGNAL_FRAME_MAX_BYTES, SIGNAL_STACK, SOCKET_FD, STEPS, STOP,
};

/// `SECCOMP_IOCTL_NOTIF_SEND`.
pub(crate) const NOTIFY_SEND: u64 = 0xc018_2101;

global_asm!(
    ".pushsection .text.direct_stub, \"ax\", @progbits",
    ".balign 64",
    ".globl direct_stub_start",
    "direct_stub_start:",
    // A script. RBX: the step.
    ".globl direct_stub_sequence",
    "direct_stub_sequence:",
    "mov rax, [rbx]",
    "mov rdi, [rbx + 8]",
    "mov rsi, [rbx + 16]",
    "mov rdx, [rbx + 24]",
    "mov r10, [rbx + 32]",
    "mov r8, [rbx + 40]",
    "mov r9, [rbx + 48]",
    "2:",
    "syscall",
    "cmp rax, [rbx + 56]",
    "jl 4f",
    "cmp rax, [rbx + 64]",
    "jg 4f",
    "test rax, rax",
    "jz 3f",
    "mov rbx, [rbx + 72]",
    "jmp direct_stub_sequence",
    "3:",
    "mov rbx, [rbx + 80]",
    "jmp direct_stub_sequence",
    "4:",
    "jmp [rbx + 88]",
    // An order failed. Wake the runner with the bad news, and wait for orders with the result and
    // the step as arguments, where nobody but the kernel can change them.
    ".globl direct_stub_order_failed",
    "direct_stub_order_failed:",
    "mov r12, rax",
    "mov r13, rbx",
    "mov eax, {ioctl}",
    "mov edi, {runner_fd}",
    "mov esi, {notify_send}",
    "movabs rdx, {answer_failed}",
    "syscall",
    "mov rdi, r12",
    "mov rsi, r13",
    "mov eax, {stop}",
    "movabs rbx, {steps}",
    "jmp 2b",
    // The zygote could not fork. Say so, and wait for the next request. RBX: the failing step.
    ".globl direct_stub_fork_failed",
    "direct_stub_fork_failed:",
    "call 5f",
    "movabs rbx, {steps}",
    "jmp direct_stub_sequence",
    // A step of the set-up failed. Say so and exit.
    ".globl direct_stub_setup_failed",
    "direct_stub_setup_failed:",
    "call 5f",
    ".globl direct_stub_exit",
    "direct_stub_exit:",
    "mov eax, {exit_group}",
    "mov edi, 1",
    "syscall",
    "ud2",
    "5:",
    "movabs rcx, {failure}",
    "mov [rcx], rbx",
    "mov [rcx + 8], rax",
    "mov eax, {write}",
    "mov edi, {socket_fd}",
    "mov rsi, rcx",
    "mov edx, 16",
    "syscall",
    "ret",
    // The kick. RDI: its number. RDX: the ucontext. If it has interrupted the handler below, what
    // that was called with is reported.
    ".globl direct_stub_kick",
    "direct_stub_kick:",
    "push 2",
    "popfq",
    "mov rax, [rdx + 168]",
    "lea rcx, [rip + direct_stub_handler]",
    "cmp rax, rcx",
    "jb direct_stub_record",
    "lea rcx, [rip + direct_stub_stopped]",
    "cmp rax, rcx",
    "jae direct_stub_record",
    "mov rdi, [rdx + 104]",
    "mov rdx, [rdx + 136]",
    "jmp direct_stub_record",
    // Every other signal. RDI: its number. RDX: the ucontext. NT and AC may be set.
    ".globl direct_stub_handler",
    "direct_stub_handler:",
    "push 2",
    "popfq",
    "direct_stub_record:",
    "movabs rbx, {report}",
    "mov [rbx], rdi",
    "mov [rbx + 8], rdx",
    "mov eax, ds",
    "mov [rbx + 16], rax",
    "mov eax, es",
    "mov [rbx + 24], rax",
    "mov eax, fs",
    "mov [rbx + 32], rax",
    "mov eax, gs",
    "mov [rbx + 40], rax",
    "rdfsbase rax",
    "mov [rbx + 48], rax",
    "rdgsbase rax",
    "mov [rbx + 56], rax",
    // The next frame goes where this one is not: a kick may come before the runner is back in the program,
    // run after run.
    "movabs rax, {stack_end}",
    "movabs rcx, {stack_second}",
    "cmp rdx, rcx",
    "cmovae rax, rcx",
    "mov rsp, rax",
    ".globl direct_stub_stop",
    "direct_stub_stop:",
    "mov eax, {stop}",
    "syscall",
    ".globl direct_stub_stopped",
    "direct_stub_stopped:",
    "test rax, rax",
    "jnz 8f",
    // Into the guest. A selector is loaded only if it differs, because that is slow; loading FS or
    // GS clears the base, so bases come after.
    "movabs rbx, {entry}",
    "mov eax, [rbx + 0xb8]",
    "mov edx, [rbx + 0xbc]",
    "xrstor64 [rbx + 0x200]",
    "mov eax, ds",
    "cmp ax, [rbx + 0xc0]",
    "je 7f",
    "mov ds, [rbx + 0xc0]",
    "7:",
    "mov eax, es",
    "cmp ax, [rbx + 0xc8]",
    "je 7f",
    "mov es, [rbx + 0xc8]",
    "7:",
    "mov eax, fs",
    "cmp ax, [rbx + 0xd0]",
    "je 7f",
    "mov fs, [rbx + 0xd0]",
    "7:",
    "mov eax, gs",
    "cmp ax, [rbx + 0xd8]",
    "je 7f",
    "mov gs, [rbx + 0xd8]",
    "7:",
    "mov rax, [rbx + 0xa8]",
    "wrfsbase rax",
    "mov rax, [rbx + 0xb0]",
    "wrgsbase rax",
    "mov rax, [rbx]",
    "mov rcx, [rbx + 0x08]",
    "mov rdx, [rbx + 0x10]",
    "mov rbp, [rbx + 0x28]",
    "mov rsi, [rbx + 0x30]",
    "mov rdi, [rbx + 0x38]",
    "mov r8, [rbx + 0x40]",
    "mov r9, [rbx + 0x48]",
    "mov r10, [rbx + 0x50]",
    "mov r11, [rbx + 0x58]",
    "mov r12, [rbx + 0x60]",
    "mov r13, [rbx + 0x68]",
    "mov r14, [rbx + 0x70]",
    "mov r15, [rbx + 0x78]",
    "lea rsp, [rbx + 0x80]",
    "mov rbx, [rbx + 0x18]",
    "iretq",
    // The mapper could not carry out an order: stop again, saying that. Nobody listens any more:
    // fault until the signal stack is full, which ends the process.
    "8:",
    "js 9f",
    "mov qword ptr [rbx], {refused}",
    "jmp direct_stub_stop",
    "9:",
    ".globl direct_stub_dead",
    "direct_stub_dead:",
    "ud2",
    ".globl direct_stub_end",
    "direct_stub_end:",
    ".popsection",
    ioctl = const libc::SYS_ioctl,
    runner_fd = const RUNNER_FD,
    notify_send = const NOTIFY_SEND,
    answer_failed = const ANSWER_FAILED,
    stop = const STOP,
    steps = const STEPS.start,
    exit_group = const libc::SYS_exit_group,
    failure = const FAILURE,
    write = const libc::SYS_write,
    socket_fd = const SOCKET_FD,
    report = const REPORT,
    entry = const ENTRY,
    refused = const REFUSED,
    stack_end = const SIGNAL_STACK.end,
    stack_second = const SIGNAL_STACK.end - SIGNAL_FRAME_MAX_BYTES,
);

unsafe extern "C" {
    static direct_stub_start: u8;
    static direct_stub_sequence: u8;
    static direct_stub_order_failed: u8;
    static direct_stub_fork_failed: u8;
    static direct_stub_setup_failed: u8;
    static direct_stub_exit: u8;
    static direct_stub_kick: u8;
    static direct_stub_handler: u8;
    static direct_stub_stop: u8;
    static direct_stub_stopped: u8;
    static direct_stub_dead: u8;
    static direct_stub_end: u8;
}

/// A place in the stub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Carry out a script.
    Sequence,
    /// The mapper's order failed.
    OrderFailed,
    /// The zygote cannot fork.
    ForkFailed,
    /// A step of the set-up failed.
    SetupFailed,
    /// Leave.
    Exit,
    /// Handler of the kick.
    Kick,
    /// Handler of every other signal.
    Handler,
    /// The runner's only permitted system call.
    Stop,
    /// Behind the runner's only permitted system call.
    Stopped,
    /// An instruction that faults.
    Dead,
}

/// The stub's code.
pub(crate) fn code() -> &'static [u8] {
    let start = &raw const direct_stub_start;
    let bytes = (&raw const direct_stub_end).addr() - start.addr();
    assert!(bytes <= PAGE_BYTES as usize, "the stub has outgrown its page");
    // SAFETY: both symbols delimit the code above, which is part of the program's text.
    unsafe { std::slice::from_raw_parts(start, bytes) }
}

/// The address of `place` in a helper.
pub(crate) fn address(place: Place) -> u64 {
    let symbol = match place {
        Place::Sequence => &raw const direct_stub_sequence,
        Place::OrderFailed => &raw const direct_stub_order_failed,
        Place::ForkFailed => &raw const direct_stub_fork_failed,
        Place::SetupFailed => &raw const direct_stub_setup_failed,
        Place::Exit => &raw const direct_stub_exit,
        Place::Kick => &raw const direct_stub_kick,
        Place::Handler => &raw const direct_stub_handler,
        Place::Stop => &raw const direct_stub_stop,
        Place::Stopped => &raw const direct_stub_stopped,
        Place::Dead => &raw const direct_stub_dead,
    };
    BASE + (symbol.addr() - (&raw const direct_stub_start).addr()) as u64
}
