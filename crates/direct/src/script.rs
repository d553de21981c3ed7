//! The scripts of system calls that make the zygote, and a helper out of it.
//!
//! The order matters: a thread's strict filter is installed by its own last step, and until a
//! helper's two threads have both stopped for the first time no guest code is entered.

use crate::area::Area;
use crate::filter;
use crate::layout::{
    AREA_FD, BASE, CONTROL, MAX_STEPS, MEMORY_FD, PAGE_BYTES, RESERVED, RUNNER_FD, SCRATCH,
    SETUP_DATA, SETUP_SCRATCH, SIGNAL_STACK, SLOT_BYTES, SOCKET_FD, STEPS, STOP, Step, USER_END,
    step_address,
};
use crate::linux::{ARCH_SET_CPUID, FORK_HELPER, FORK_RUNNER, USER_DISPATCH};
use crate::rights::TimeStamp;
use crate::stub::{self, Place};

/// The zygote's endless loop starts at the first step, and its set-up here.
const ZYGOTE_SETUP: usize = 8;
/// The first step of a helper in the zygote's slot, the only one that is not in its own.
const HELPER_START: usize = 128;
/// Every result is accepted.
const ANY: (i64, i64) = (i64::MIN, i64::MAX);
/// Every result that is not an error is accepted.
const GOOD: (i64, i64) = (0, i64::MAX);
/// The signals that a runner handles.
const FAULTS: [i32; 6] =
    [libc::SIGSYS, libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP];
/// `PR_SYS_DISPATCH_ON`.
const USER_DISPATCH_ON: u64 = 1;
/// `PR_TSC_SIGSEGV`.
const TIME_STAMP_FAULTS: u64 = 2;
/// `SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV`.
const LISTEN: u64 = 1 << 3 | 1 << 5;
const SET_FILTER: u64 = libc::SECCOMP_SET_MODE_FILTER as u64;
const KERNEL_SIGSET_BYTES: u64 = 8;

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Action {
    handler: u64,
    flags: u64,
    restorer: u64,
    mask: u64,
}

/// The kernel's `struct msghdr` with one byte of data and room for three descriptors.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Message {
    name: u64,
    name_bytes: u64,
    vector: u64,
    vectors: u64,
    control: u64,
    control_bytes: u64,
    flags: u64,
    data: [u64; 2],
    control_header: [u64; 2],
    descriptors: [u32; 4],
}

/// The kernel's `struct sock_fprog`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Program {
    length: u64,
    instructions: u64,
}

/// Writes the scripts of one slot.
#[derive(Debug)]
pub(crate) struct Script<'a> {
    area: &'a Area,
    slot: usize,
    index: usize,
    data: u64,
}

impl<'a> Script<'a> {
    fn new(area: &'a Area, slot: usize) -> Self {
        Self { area, slot, index: 0, data: SETUP_DATA.start }
    }

    /// Put `value` where the helper can read it; returns its address there.
    fn data<T: Copy>(&mut self, value: T) -> u64 {
        let address = self.data;
        self.data += (size_of::<T>() as u64).next_multiple_of(8);
        assert!(self.data <= SETUP_DATA.end, "the set-up's data do not fit");
        self.area.write(self.slot, address, value);
        address
    }

    /// Add a step that goes on to the one behind it.
    fn step<const N: usize>(&mut self, number: i64, arguments: [u64; N], good: (i64, i64)) {
        let mut all = [0; 6];
        all[..N].copy_from_slice(&arguments);
        let next = step_address(self.index + 1);
        let failed = stub::address(Place::SetupFailed);
        let step = Step {
            number: number as u64,
            arguments: all,
            low: good.0,
            high: good.1,
            next,
            zero: next,
            failed,
        };
        assert!(self.index < MAX_STEPS, "the script is too long");
        self.area.write(self.slot, step_address(self.index), step);
        self.index += 1;
    }

    /// Change the step that was added last.
    fn amend(&mut self, change: impl FnOnce(&mut Step)) {
        let address = step_address(self.index - 1);
        let mut step = self.area.read(self.slot, address);
        change(&mut step);
        self.area.write(self.slot, address, step);
    }

    fn filter(&mut self, program: &[libc::sock_filter], flags: u64, good: (i64, i64)) {
        let instructions = self.data;
        for &instruction in program {
            self.data(instruction);
        }
        let length = program.len() as u64;
        let program = self.data(Program { length, instructions });
        self.step(libc::SYS_seccomp, [SET_FILTER, flags, program], good);
    }

    /// A message that carries descriptors, or room for as many.
    fn message(address: u64, descriptors: &[u32]) -> Message {
        let control_header = [
            16 + 4 * descriptors.len() as u64,
            (libc::SCM_RIGHTS as u64) << 32 | libc::SOL_SOCKET as u64,
        ];
        let mut all = [0; 4];
        all[..descriptors.len()].copy_from_slice(descriptors);
        let data = address + std::mem::offset_of!(Message, data) as u64;
        Message {
            name: 0,
            name_bytes: 0,
            vector: data,
            vectors: 1,
            control: address + std::mem::offset_of!(Message, control_header) as u64,
            control_bytes: control_header[0].next_multiple_of(8),
            flags: 0,
            // One byte: the first of the message itself.
            data: [address, 1],
            control_header,
            descriptors: all,
        }
    }

    fn send(&mut self, socket: u64, descriptors: &[u32]) {
        let message = Self::message(self.data, descriptors);
        let address = self.data(message);
        self.step(libc::SYS_sendmsg, [socket, address, libc::MSG_NOSIGNAL as u64], (1, 1));
    }
}

/// Write the zygote's script; returns the address of its first step.
pub(crate) fn zygote(area: &Area) -> u64 {
    let mut script = Script::new(area, 0);
    // For ever: wait for a byte, fork. The end of the file means that the domain is gone.
    script.step(libc::SYS_read, [SOCKET_FD, SETUP_SCRATCH, 1], (1, 1));
    script.amend(|step| step.failed = stub::address(Place::Exit));
    script.step(libc::SYS_clone, [FORK_HELPER, 0, 0, 0, 0], GOOD);
    script.amend(|step| {
        step.next = step_address(0);
        step.zero = step_address(HELPER_START);
        step.failed = stub::address(Place::ForkFailed);
    });

    script.index = ZYGOTE_SETUP;
    script.step(libc::SYS_munmap, [0, BASE], GOOD);
    script.step(libc::SYS_munmap, [RESERVED.end, USER_END - RESERVED.end], GOOD);
    script.step(libc::SYS_close_range, [MEMORY_FD + 1, u32::MAX.into(), 0], GOOD);
    let all = script.data(u64::MAX);
    let set_mask = libc::SIG_SETMASK as u64;
    script.step(libc::SYS_rt_sigprocmask, [set_mask, all, 0, KERNEL_SIGSET_BYTES], GOOD);
    let (default, ignore) = (action(libc::SIG_DFL as u64), action(libc::SIG_IGN as u64));
    let (default, ignore) = (script.data(default), script.data(ignore));
    for signal in (1..=64).filter(|signal| ![libc::SIGKILL, libc::SIGSTOP].contains(signal)) {
        let action = if signal == libc::SIGCHLD { ignore } else { default };
        let signal = signal as u64;
        script.step(libc::SYS_rt_sigaction, [signal, action, 0, KERNEL_SIGSET_BYTES], GOOD);
    }
    let no_new_privileges = libc::PR_SET_NO_NEW_PRIVS as u64;
    script.step(libc::SYS_prctl, [no_new_privileges, 1, 0, 0, 0], GOOD);
    confine(&mut script);
    script.step(libc::SYS_prctl, [libc::PR_SET_DUMPABLE as u64, 0, 0, 0, 0], GOOD);
    script.filter(&filter::zygote(), 0, (0, 0));
    script.amend(|step| (step.next, step.zero) = (step_address(0), step_address(0)));
    assert!(script.index <= HELPER_START, "the zygote's script runs into the helper's");
    step_address(ZYGOTE_SETUP)
}

fn action(handler: u64) -> Action {
    Action { handler, flags: 0, restorer: 0, mask: 0 }
}

/// The rights that a helper gives up beside its system calls, as far as the host allows it.
fn confine(script: &mut Script) {
    script.step(libc::SYS_setsid, [], ANY);
    let spaces = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    script.step(libc::SYS_unshare, [spaces as u64], ANY);
    // Landlock: all the rights of its first version, and no rule that grants one.
    let rights = script.data((1_u64 << 13) - 1);
    script.step(libc::SYS_landlock_create_ruleset, [rights, 8, 0], ANY);
    let ruleset = MEMORY_FD + 1;
    script.step(libc::SYS_landlock_restrict_self, [ruleset, 0], ANY);
    script.step(libc::SYS_close, [ruleset], ANY);
    let header = script.data(0x2008_0522_u64);
    let capabilities = script.data([0_u64; 3]);
    script.step(libc::SYS_capset, [header, capabilities], ANY);
    let limit = script.data([0_u64; 2]);
    let core = u64::from(libc::RLIMIT_CORE);
    script.step(libc::SYS_prlimit64, [0, core, limit, 0], ANY);
}

/// Write the scripts of the helper in `slot`.
pub(crate) fn helper(area: &Area, slot: usize, zygote: u32, time_stamp: TimeStamp) {
    let mut first = Script::new(area, 0);
    first.index = HELPER_START;
    map_own(&mut first, slot, CONTROL.start, CONTROL.end, libc::PROT_READ);

    let mut script = Script::new(area, slot);
    idle(&mut script);
    // Once more here: by the time that its result is looked at, the pages have been exchanged.
    script.index = HELPER_START;
    map_own(&mut script, slot, CONTROL.start, CONTROL.end, libc::PROT_READ);
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    map_own(&mut script, slot, SCRATCH.start, SCRATCH.end, writable);
    die_with_zygote(&mut script, zygote);
    let unix = libc::AF_UNIX as u64;
    let packets = libc::SOCK_SEQPACKET as u64;
    script.step(libc::SYS_socketpair, [unix, packets, 0, SETUP_SCRATCH], GOOD);
    script.step(libc::SYS_clone, [FORK_RUNNER, 0, SETUP_SCRATCH + 16, 0, 0], GOOD);
    let fork = script.index;
    mapper(&mut script);
    let runner_start = step_address(script.index);
    area.write(
        slot,
        step_address(fork - 1) + std::mem::offset_of!(Step, zero) as u64,
        runner_start,
    );
    runner(&mut script, time_stamp);
}

/// How the mapper waits for orders: the first step for the rest of its life.
fn idle(script: &mut Script) {
    script.step(STOP as i64, [], (0, 0));
    script.amend(|step| step.failed = stub::address(Place::Exit));
}

fn map_own(script: &mut Script, slot: usize, start: u64, end: u64, protection: i32) {
    let flags = (libc::MAP_SHARED | libc::MAP_FIXED) as u64;
    let offset = slot as u64 * SLOT_BYTES + (start - BASE);
    let arguments = [start, end - start, protection as u64, flags, AREA_FD, offset];
    script.step(libc::SYS_mmap, arguments, GOOD);
}

fn die_with_parent(script: &mut Script) {
    let death_signal = libc::PR_SET_PDEATHSIG as u64;
    script.step(libc::SYS_prctl, [death_signal, libc::SIGKILL as u64, 0, 0, 0], GOOD);
}

fn die_with_zygote(script: &mut Script, zygote: u32) {
    die_with_parent(script);
    script.step(libc::SYS_getppid, [], (zygote.into(), zygote.into()));
}

fn mapper(script: &mut Script) {
    // 3 and 4 are the socket pair, 5 is the runner's pidfd; the listener takes the place of 4.
    script.step(libc::SYS_close, [4], GOOD);
    let receive = SETUP_SCRATCH + 64;
    script.area.write(script.slot, receive, Script::message(receive, &[0]));
    script.step(libc::SYS_recvmsg, [3, receive, 0], (1, 1));
    script.step(libc::SYS_close, [3], GOOD);
    script.filter(&filter::mapper_notify(), LISTEN, (3, 3));
    script.send(SOCKET_FD, &[RUNNER_FD as u32, 3, 5]);
    for descriptor in [SOCKET_FD, AREA_FD, 3, 5] {
        script.step(libc::SYS_close, [descriptor], GOOD);
    }
    name(script, *b"biv mapper\0\0\0\0\0\0");
    script.filter(&filter::mapper_strict(), 0, (0, 0));
    script.amend(|step| (step.next, step.zero) = (step_address(0), step_address(0)));
}

fn name(script: &mut Script, name: [u8; 16]) {
    let name = script.data(name);
    script.step(libc::SYS_prctl, [libc::PR_SET_NAME as u64, name, 0, 0, 0], GOOD);
}

fn runner(script: &mut Script, time_stamp: TimeStamp) {
    // Its parent is the mapper. If that is dead already, nobody has the other end of the socket.
    die_with_parent(script);
    script.step(libc::SYS_close, [3], GOOD);
    let stack = [SIGNAL_STACK.start, 0, SIGNAL_STACK.end - SIGNAL_STACK.start];
    let stack = script.data(stack);
    script.step(libc::SYS_sigaltstack, [stack, 0], GOOD);
    let restorer = stub::address(Place::Dead);
    let flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER | 0x0400_0000;
    let flags = u64::from(flags.cast_unsigned());
    let handler = stub::address(Place::Handler);
    let fault = script.data(Action { handler, flags, restorer, mask: 0 });
    let (handler, flags) = (stub::address(Place::Kick), flags | libc::SA_RESTART as u64);
    let kick = script.data(Action { handler, flags, restorer, mask: 0 });
    for signal in FAULTS {
        let arguments = [signal as u64, fault, 0, KERNEL_SIGSET_BYTES];
        script.step(libc::SYS_rt_sigaction, arguments, GOOD);
    }
    let arguments = [libc::SIGUSR1 as u64, kick, 0, KERNEL_SIGSET_BYTES];
    script.step(libc::SYS_rt_sigaction, arguments, GOOD);
    script.step(libc::SYS_arch_prctl, [ARCH_SET_CPUID, 0], ANY);
    if time_stamp == TimeStamp::Faults {
        let option = libc::PR_SET_TSC as u64;
        script.step(libc::SYS_prctl, [option, TIME_STAMP_FAULTS, 0, 0, 0], GOOD);
    }
    // A short cut: the program's calls do not reach the filters, neither the helper's nor outer ones. Those of a
    // program that jumps into the stub to avoid it do.
    let dispatch = [USER_DISPATCH as u64, USER_DISPATCH_ON, BASE, PAGE_BYTES, 0];
    script.step(libc::SYS_prctl, dispatch, ANY);
    name(script, *b"biv user\0\0\0\0\0\0\0\0");
    script.filter(&filter::runner_notify(), LISTEN, (3, 3));
    script.send(4, &[3]);
    script.step(libc::SYS_close_range, [0, u32::MAX.into(), 0], GOOD);
    let none = script.data(0_u64);
    let set_mask = libc::SIG_SETMASK as u64;
    script.step(libc::SYS_rt_sigprocmask, [set_mask, none, 0, KERNEL_SIGSET_BYTES], GOOD);
    script.filter(&filter::runner_strict(), 0, (0, 0));
    // Trapped: the handler stops for the first time.
    script.step(libc::SYS_getpid, [], GOOD);
}

/// What the step at `address` of the helper in `slot` does, to say it when it fails.
pub(crate) fn purpose(area: &Area, slot: usize, address: u64) -> &'static str {
    let steps = STEPS.start..=step_address(MAX_STEPS - 1);
    if !steps.contains(&address) {
        return "set a helper up";
    }
    let shared = address <= step_address(HELPER_START);
    let step: Step = area.read(if shared { 0 } else { slot }, address);
    match step.number as i64 {
        libc::SYS_seccomp => {
            "install a seccomp filter with a listener (Linux 5.19, and no other listener around us)"
        }
        libc::SYS_clone => "fork a helper process (is there a limit on processes?)",
        libc::SYS_mmap => "map a helper's own pages (are executable memory files forbidden?)",
        libc::SYS_munmap => "unmap what a helper inherits (does the host seal its vDSO?)",
        libc::SYS_getppid => "start a helper before its parent died",
        libc::SYS_prctl | libc::SYS_close_range | libc::SYS_close => "confine a helper",
        libc::SYS_sigaltstack | libc::SYS_rt_sigaction | libc::SYS_rt_sigprocmask => {
            "handle a helper's signals"
        }
        libc::SYS_socketpair | libc::SYS_sendmsg | libc::SYS_recvmsg => {
            "hand a helper's descriptors over"
        }
        _ => "set a helper up",
    }
}
