//! Instruction breakpoints around a load of SS, which Intel's processors and AMD's treat differently (SDM
//! 3B 18.3.1.1): natively in a child process, whose debug registers are set by `ptrace`.

use std::mem::offset_of;

use super::conditions;
use super::engine::{Engine, Setting};
use super::layout;
use super::random::{Random, seed};

/// `mov eax, ss; mov ss, eax; nop; nop; int3`.
const CODE: [u8; 7] = [0x8c, 0xd0, 0x8e, 0xd0, 0x90, 0x90, 0xcc];
/// Where its instructions start.
const STARTS: [usize; 5] = [0, 2, 4, 5, 6];
/// DR7: breakpoint 0 is on instructions, and on.
const ENABLED: u64 = 0x401;

/// The code, executable in this process and in its children.
struct Executable(*mut u8);

impl Executable {
    fn new() -> Self {
        // SAFETY: a new mapping, filled before it becomes executable.
        unsafe {
            let (read, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let at = libc::mmap(std::ptr::null_mut(), 4096, read | libc::PROT_WRITE, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            std::ptr::copy_nonoverlapping(CODE.as_ptr(), at.cast(), CODE.len());
            assert_eq!(libc::mprotect(at, 4096, read | libc::PROT_EXEC), 0);
            Self(at.cast())
        }
    }

    /// Where a child ends that runs the code with a breakpoint on the instruction at `start`; `None` if
    /// debug registers cannot be set here.
    fn run(&self, start: usize) -> Option<u64> {
        // SAFETY: between `fork` and its end the child makes system calls and runs CODE, no more.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            // SAFETY: the mapping holds CODE, which needs no stack and ends in `int3`.
            unsafe {
                libc::ptrace(libc::PTRACE_TRACEME);
                libc::raise(libc::SIGSTOP);
                std::mem::transmute::<*mut u8, extern "C" fn()>(self.0)();
                libc::_exit(1)
            }
        }
        let end = self.trace(child, start);
        // SAFETY: a child that has not been waited for to its end.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        end
    }

    fn trace(&self, child: libc::pid_t, start: usize) -> Option<u64> {
        let registers = offset_of!(libc::user, u_debugreg);
        let wait = |signal| {
            let mut status = 0;
            // SAFETY: the status is ours, and the child exists.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert!(libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == signal, "{status:x}");
        };
        let set = |number: usize, value: u64| {
            // SAFETY: the child is stopped; the kernel checks the rest.
            let done = unsafe {
                libc::ptrace(libc::PTRACE_POKEUSER, child, registers + 8 * number, value)
            };
            (done == 0).then_some(())
        };
        wait(libc::SIGSTOP);
        set(0, self.0 as u64 + start as u64)?;
        set(7, ENABLED)?;
        // SAFETY: the child is stopped; all of `user_regs_struct` is written, which is plain data.
        let rip = unsafe {
            libc::ptrace(libc::PTRACE_CONT, child, 0, 0);
            wait(libc::SIGTRAP);
            let mut registers: libc::user_regs_struct = std::mem::zeroed();
            libc::ptrace(libc::PTRACE_GETREGS, child, 0, &raw mut registers);
            registers.rip
        };
        Some(rip - self.0 as u64)
    }
}

/// The same in the engine: the vector, and where.
fn run_in_engine(setting: Setting, start: usize) -> (u32, u64) {
    let mut random = Random::new(seed(), "breakpoints", 0);
    let data = conditions::data(&mut random);
    let mut engine = Engine::new(&data, setting);
    let mut case = conditions::case(&mut random, 64);
    case.gpr[4] = layout::page(2) + 0x800;
    case.rflags = 0x202;
    case.code[..CODE.len()].copy_from_slice(&CODE);
    case.length = CODE.len() as u32;
    engine.set_breakpoint(layout::slot(0) + start as u64, ENABLED);
    let mut end = (0, 0);
    engine.run(&[case], |_, outcome| end = (outcome.vector, outcome.rip - layout::slot(0)));
    end
}

#[test]
fn breakpoints_around_a_load_of_ss() {
    let native = Executable::new();
    for start in STARTS {
        let Some(end) = native.run(start) else {
            println!("left out, because debug registers cannot be set here");
            return;
        };
        // What is no breakpoint is the `int3` at the end.
        let vector = if end == start as u64 { 1 } else { 3 };
        for setting in [Setting::User, Setting::UserInterpreted] {
            assert_eq!(run_in_engine(setting, start), (vector, end), "{setting:?}, at {start}");
        }
    }
}
