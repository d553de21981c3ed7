//! How the zygote comes into being.
//!
//! It is forked once from the domain process, through a child that shares the domain's memory: such a child
//! has no restartable sequence registered, which the zygote would otherwise inherit and the kernel
//! would write to. It unmaps all that it has of the domain's before it forks anything.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicI64, Ordering};

use crate::error::{Error, host};
use crate::layout::{AREA_FD, BASE, CONTROL, MEMORY_FD, SCRATCH, SIGNAL_STACK, SOCKET_FD};
use crate::stub::{self, Place};

/// Bytes of stack for the moment in which the zygote is made.
const FORK_STACK_BYTES: usize = 64 << 10;

/// All signals blocked for this thread, while it lives.
struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    fn new() -> Self {
        // SAFETY: all zero is an empty set; both sets are ours.
        unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Self(before)
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set is the one from before.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut())
        };
    }
}

/// The arguments of the zygote's start, and its result.
struct Birth {
    descriptors: [(i32, u64); 3],
    first: u64,
    sequence: u64,
    process: AtomicI64,
    error: AtomicI32,
}

/// Fork the zygote; returns its process number.
pub(crate) fn fork_zygote(
    socket: &OwnedFd,
    area: &File,
    memory: &File,
    first: u64,
) -> Result<u32, Error> {
    // Copies beyond the places that they will have, so that no `dup2` overwrites one.
    let descriptors = [(socket.as_raw_fd(), SOCKET_FD), (area.as_raw_fd(), AREA_FD)];
    let descriptors = [descriptors[0], descriptors[1], (memory.as_raw_fd(), MEMORY_FD)];
    let mut copies = Vec::new();
    let mut targets = [(0, 0); 3];
    for (target, (descriptor, place)) in targets.iter_mut().zip(descriptors) {
        // SAFETY: touches no memory.
        let copy = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 3) };
        if copy < 0 {
            return Err(host("copy a descriptor"));
        }
        *target = (copy, place);
        // SAFETY: the descriptor is new and nobody else's.
        copies.push(unsafe { OwnedFd::from_raw_fd(copy) });
    }
    let birth = Birth {
        descriptors: targets,
        first,
        sequence: stub::address(Place::Sequence),
        process: AtomicI64::new(0),
        error: AtomicI32::new(0),
    };
    let mut stack = vec![0_u8; FORK_STACK_BYTES];
    let top = stack.as_mut_ptr_range().end.map_addr(|address| address & !15);
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let argument = (&raw const birth).cast_mut().cast();
    let blocked = BlockedSignals::new();
    // SAFETY: the child has a stack of its own, and this thread waits here until it has exited; `between` makes
    // system calls only, and with all signals blocked nothing else happens in it.
    let between = unsafe { libc::clone(between, top.cast(), flags, argument) };
    drop(blocked);
    if between < 0 {
        return Err(host("fork"));
    }
    // SAFETY: no status is asked for. If somebody else reaps children, that is as good.
    unsafe { libc::waitpid(between, std::ptr::null_mut(), 0) };
    let process = birth.process.load(Ordering::SeqCst);
    u32::try_from(process).ok().filter(|&process| process != 0).ok_or_else(|| Error::Host {
        action: "fork the zygote",
        source: io::Error::from_raw_os_error(birth.error.load(Ordering::SeqCst)),
    })
}

/// Runs in a child that shares the domain's memory, while the domain waits.
extern "C" fn between(birth: *mut libc::c_void) -> i32 {
    // SAFETY: `fork_zygote` passes its own `Birth`, which outlives this child.
    let birth = unsafe { &*birth.cast::<Birth>() };
    // SAFETY: a plain fork; the new process goes on with a copy of this stack.
    let process = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    if process == 0 {
        become_zygote(birth);
    }
    birth.process.store(process.max(0), Ordering::SeqCst);
    if process < 0 {
        birth.error.store(io::Error::last_os_error().raw_os_error().unwrap_or(0), Ordering::SeqCst);
    }
    0
}

/// Runs in the zygote: arrange the descriptors, map slot 0, and jump into the stub.
fn become_zygote(birth: &Birth) -> ! {
    let area = birth.descriptors[1].0;
    let executable = libc::PROT_READ | libc::PROT_EXEC;
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    let parts = [
        (BASE, CONTROL.start, executable),
        (CONTROL.start, CONTROL.end, libc::PROT_READ),
        (SCRATCH.start, SCRATCH.end, writable),
    ];
    for (start, end, protection) in parts {
        let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE;
        let (bytes, offset) = (end - start, start - BASE);
        // SAFETY: maps over nothing. We use the raw call: this process has no C library to speak of.
        let mapped =
            unsafe { libc::syscall(libc::SYS_mmap, start, bytes, protection, flags, area, offset) };
        if mapped != start.cast_signed() {
            exit();
        }
    }
    for (descriptor, place) in birth.descriptors {
        // SAFETY: touches no memory.
        if unsafe { libc::syscall(libc::SYS_dup2, descriptor, place) } < 0 {
            exit();
        }
    }
    // SAFETY: the script lies in memory that is mapped now, and does not return.
    unsafe {
        std::arch::asm!(
            "mov rsp, {stack}",
            "mov rbx, {first}",
            "jmp {sequence}",
            stack = in(reg) SIGNAL_STACK.end,
            first = in(reg) birth.first,
            sequence = in(reg) birth.sequence,
            options(noreturn)
        )
    }
}

fn exit() -> ! {
    loop {
        // SAFETY: ends this process, which is the zygote's.
        unsafe { libc::syscall(libc::SYS_exit_group, 1) };
    }
}
