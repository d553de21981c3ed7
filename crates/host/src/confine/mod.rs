//! Confines a running machine's process to what it still needs.
//!
//! A guest kernel that breaks out of the translator owns this process. From then on it must find
//! nothing in it: no way to open a file, to start a process, to reach the network, or to signal or
//! read another process; and nothing worth having: the variables of the environment are overwritten
//! ([`crate::environment`]), and no other process of the user can read this one's memory, nor does the kernel
//! write it into a file when it dies (`PR_SET_DUMPABLE`, `RLIMIT_CORE`). A seccomp filter (seccomp(2)) sees to the
//! rest:
//!
//! 1. It holds for all threads, those that run already and those to come, and cannot be taken off.
//! 2. What is not in the lists of its kind of process ([`process`] for each; [`table`], [`files`], [`keeper`],
//!    [`network`], [`reader`], [`disk_reader`], [`router`], [`sockets`], [`unpack`]) is not executed. The attempt is a
//!    SIGSYS, whose handler says what was tried and ends the process (of a pod's keeper, the call fails); where the
//!    signal is blocked or its handler gone, the kernel ends it.
//! 3. It gives no speculative-execution mitigation of its own (`SECCOMP_FILTER_FLAG_SPEC_ALLOW`):
//!    kernels before 5.16 would otherwise switch off store bypassing for guest code, which shares
//!    this process with nobody.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::c_long;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Length, SeccompCmpOp as Compare,
    SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

mod disk_reader;
mod files;
mod keeper;
mod network;
mod process;
mod reader;
mod router;
mod sockets;
mod table;
mod unpack;

use table::{ABSENT, ALLOWED, Condition};

/// The status of a process that tried something else: that of one ended by SIGSYS, as shells say.
const REFUSED_STATUS: i32 = 128 + libc::SIGSYS;

/// Why the process could not be confined.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The table is no filter: our fault.
    #[error("cannot make the system-call filter: {0}")]
    Filter(#[from] seccompiler::BackendError),
    /// The host does not let us.
    #[error(
        "cannot confine the process with seccomp: {0}; with --no-seccomp a machine's runs \
         unconfined"
    )]
    Install(#[source] io::Error),
    /// A process that others of the user may read.
    #[error("cannot keep the machine's memory from other processes: {0}")]
    Hide(#[source] rustix::io::Errno),
    /// A thread has a filter that is not ours (seccomp(2), `SECCOMP_FILTER_FLAG_TSYNC`).
    #[error("cannot confine thread {0}, which has a filter of its own")]
    Thread(i64),
}

/// Whether a refused call fails, and is not the end.
static GOES_ON: AtomicBool = AtomicBool::new(false);

/// Whether the process has been confined.
static CONFINED: AtomicBool = AtomicBool::new(false);

/// Confine this process, with all of its threads, for the rest of its life.
///
/// To be called when everything is open. Calling it again does nothing.
///
/// # Errors
///
/// [`Error`] when the host refuses; then some of it may be in force.
pub fn confine() -> Result<(), Error> {
    confine_with(MACHINE)
}

/// Confine this process, which serves files, likewise.
///
/// # Errors
///
/// As [`confine`].
pub fn confine_file_server() -> Result<(), Error> {
    confine_with(FILE_SERVER)
}

/// Confine this process, which is a guest's network: it may have sockets, and neither files nor processes.
///
/// # Errors
///
/// As [`confine`].
pub fn confine_network() -> Result<(), Error> {
    confine_with(NETWORK)
}

/// Confine this process, which is the router of a network between domains: it makes no sockets.
///
/// # Errors
///
/// As [`confine`].
pub fn confine_router() -> Result<(), Error> {
    confine_with(ROUTER)
}

/// Confine this process, which is the other end of a guest's sockets: it may have Unix sockets, and neither
/// files nor processes.
///
/// # Errors
///
/// As [`confine`].
pub fn confine_sockets() -> Result<(), Error> {
    confine_with(SOCKETS)
}

/// Confine this process, which decompresses what it reads from its standard input and writes it to its standard
/// output: it may do nothing else.
///
/// # Errors
///
/// As [`confine`].
pub fn confine_unpacker() -> Result<(), Error> {
    confine_with(UNPACKER)
}

/// Confine this process, which reads files that it is sent over its standard input, and says on its standard output
/// what is in them: it may do nothing else.
///
/// # Errors
///
/// As [`confine`].
pub fn confine_reader() -> Result<(), Error> {
    confine_with(READER)
}

/// Confine this process, which reads a disk that it has open, and says on its standard output what that boots: it may
/// do nothing else.
///
/// # Errors
///
/// As [`confine`].
pub fn confine_disk_reader() -> Result<(), Error> {
    confine_with(DISK_READER)
}

/// Confine this process, which keeps a pod: it traces, opens files and starts processes, and gets at nothing of the
/// kernel's besides. A call that it may not make fails, and is reported on standard error: if it ended the keeper, it
/// would end the pod. What it starts has the same list, and is ended by such a call.
///
/// Its memory may be read and its environment stays, unlike with other kinds: they have nothing that whoever it is
/// could not have of its user in other ways.
///
/// # Errors
///
/// As [`confine`].
pub fn confine_keeper() -> Result<(), Error> {
    GOES_ON.store(true, Ordering::SeqCst);
    filter(KEEPER)
}

/// A list of calls.
type Calls = [(c_long, Condition)];

/// The lists of each kind of process, in which no call comes twice.
const MACHINE: &[&Calls] = &[process::ALLOWED, process::ALONE, ALLOWED];
const FILE_SERVER: &[&Calls] = &[process::ALLOWED, process::ALONE, ALLOWED, files::ALLOWED];
const NETWORK: &[&Calls] = &[process::ALLOWED, process::ALONE, network::ALLOWED];
const ROUTER: &[&Calls] = &[process::ALLOWED, process::ALONE, router::ALLOWED];
const SOCKETS: &[&Calls] = &[process::ALLOWED, process::ALONE, sockets::ALLOWED];
const READER: &[&Calls] = &[process::ALLOWED, process::ALONE, reader::ALLOWED];
const DISK_READER: &[&Calls] = &[process::ALLOWED, process::ALONE, disk_reader::ALLOWED];
const KEEPER: &[&Calls] = &[process::ALLOWED, keeper::ALLOWED];
const UNPACKER: &[&Calls] = &[process::ALLOWED, process::ALONE, unpack::ALLOWED];

/// Confine this process to what is in these.
fn confine_with(lists: &[&Calls]) -> Result<(), Error> {
    if CONFINED.swap(true, Ordering::SeqCst) {
        return Ok(());
    }
    crate::environment::forget();
    hide()?;
    filter(lists)
}

/// Have no other calls made than these.
fn filter(lists: &[&Calls]) -> Result<(), Error> {
    let (absent, refused) = programs(lists)?;
    report_refusals()?;
    // SAFETY: a number and flags; nothing is given up that this process uses.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(Error::Install(io::Error::last_os_error()));
    }
    install(&absent)?;
    install(&refused)
}

/// Keep this process's memory from other processes without privilege, and out of files; and that of the
/// processes that are forked from it. To be confined implies it.
///
/// # Errors
///
/// [`Error::Hide`].
pub fn hide() -> Result<(), Error> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none).map_err(Error::Hide)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(Error::Hide)
}

/// Whether this kernel, and what confines us already, offer such filters.
///
/// # Errors
///
/// The kernel's answer.
pub fn probe() -> io::Result<()> {
    let action = libc::SECCOMP_RET_TRAP;
    // SAFETY: the call reads the action and changes nothing.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The two filters: what is said to be absent, and what is refused. The kernel runs both and takes
/// the stricter answer.
fn programs(lists: &[&Calls]) -> Result<(BpfProgram, BpfProgram), Error> {
    let calls = || lists.iter().copied().flatten();
    let is_allowed = |call| calls().any(|&(allowed, _)| allowed == call);
    let absent = ABSENT.iter().filter(|&&call| !is_allowed(call));
    let absent = absent.map(|&call| (call, Vec::new())).collect();
    let absent = SeccompFilter::new(
        absent,
        SeccompAction::Allow,
        SeccompAction::Errno(libc::ENOSYS as u32),
        TargetArch::x86_64,
    )?;
    let mut allowed = std::collections::BTreeMap::new();
    allowed.extend(ABSENT.iter().map(|&call| (call, Vec::new())));
    for &(call, condition) in calls() {
        allowed.insert(call, rules(condition)?);
    }
    let (otherwise, here) = (SeccompAction::Trap, SeccompAction::Allow);
    let refused = SeccompFilter::new(allowed, otherwise, here, TargetArch::x86_64)?;
    Ok((absent.try_into()?, refused.try_into()?))
}

/// The alternatives of a condition; none for a call that is always allowed.
fn rules(condition: Condition) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let test = |argument, length, operator, value| {
        SeccompCondition::new(argument, length, operator, value)
    };
    let equal = |argument, value| test(argument, Length::Dword, Compare::Eq, value);
    match condition {
        Condition::Any => Ok(Vec::new()),
        Condition::OwnProcess(argument) => {
            let own = u64::from(std::process::id());
            Ok(vec![SeccompRule::new(vec![equal(argument, own)?])?])
        }
        Condition::OneOf(argument, values) => values
            .iter()
            .map(|&value| SeccompRule::new(vec![equal(argument, u64::from(value))?]))
            .collect(),
        Condition::NoneOf(argument, values) => {
            let tests = values
                .iter()
                .map(|&value| test(argument, Length::Dword, Compare::Ne, u64::from(value)))
                .collect::<Result<_, _>>()?;
            Ok(vec![SeccompRule::new(tests)?])
        }
        Condition::Bits(argument, set, clear) => {
            let compare = Compare::MaskedEq(set | clear);
            Ok(vec![SeccompRule::new(vec![test(argument, Length::Qword, compare, set)?])?])
        }
        Condition::Zero(argument) => {
            Ok(vec![SeccompRule::new(vec![test(argument, Length::Qword, Compare::Eq, 0)?])?])
        }
    }
}

/// Put one filter on all threads.
fn install(program: &BpfProgram) -> Result<(), Error> {
    let description = libc::sock_fprog {
        len: program.len() as u16,
        // The kernel's `struct sock_filter` has the layout of seccompiler's.
        filter: program.as_ptr().cast_mut().cast(),
    };
    let flags = libc::SECCOMP_FILTER_FLAG_TSYNC | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: the description and the program that it names are read during the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const description,
        )
    };
    match result {
        0 => Ok(()),
        -1 => Err(Error::Install(io::Error::last_os_error())),
        thread => Err(Error::Thread(thread)),
    }
}

/// Have [`on_refusal`] called for refused calls.
fn report_refusals() -> Result<(), Error> {
    // SAFETY: the handler has the signature that SA_SIGINFO asks for; zero is a valid mask.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_refusal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        if libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut()) != 0 {
            return Err(Error::Install(io::Error::last_os_error()));
        }
    }
    Ok(())
}

/// Says which call was refused, and ends the process, or has the call fail.
///
/// FS may be the guest's, and whoever made the call may own this process: no thread-local storage
/// (errno is), no lock, no allocation.
extern "C" fn on_refusal(_: i32, information: *const libc::siginfo_t, context: *mut libc::c_void) {
    // The number of the call (sigaction(2), `si_syscall`): after three words of header, an address.
    const NUMBER_OFFSET: usize = 24;
    // SAFETY: the kernel passes a siginfo_t, which has 128 bytes.
    let number = unsafe { information.cast::<u8>().add(NUMBER_OFFSET).cast::<i32>().read() };
    let mut line = [0; 192];
    let goes_on = GOES_ON.load(Ordering::SeqCst);
    let length = describe(number, goes_on, &mut line);
    // SAFETY: writes a local buffer, which changes no memory.
    unsafe { bare_call(libc::SYS_write, 2, line.as_ptr() as u64, length as u64) };
    if goes_on {
        // SAFETY: the kernel passes a ucontext_t, from which the thread goes on behind the call.
        let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
        context.uc_mcontext.gregs[libc::REG_RAX as usize] = i64::from(-libc::EPERM);
        return;
    }
    // SAFETY: ends the process.
    unsafe { bare_call(libc::SYS_exit_group, REFUSED_STATUS as u64, 0, 0) };
}

/// The message, in `line`; returns its length.
fn describe(number: i32, goes_on: bool, line: &mut [u8; 192]) -> usize {
    const OF_MACHINES: [&[u8]; 2] = [
        b"biv: the machine's process tried system call ",
        b", which no machine needs, and was ended (--no-seccomp lets it)\n",
    ];
    const OF_KEEPERS: [&[u8]; 2] =
        [b"biv: the pod's keeper tried system call ", b", which no keeper needs: it failed\n"];
    let [before, after] = if goes_on { OF_KEEPERS } else { OF_MACHINES };
    let mut digits = [b'0'; 10];
    let (mut left, mut first) = (number.unsigned_abs(), digits.len());
    while left > 0 || first == digits.len() {
        first -= 1;
        digits[first] += (left % 10) as u8;
        left /= 10;
    }
    let mut length = 0;
    for piece in [before, &digits[first..], after] {
        line[length..length + piece.len()].copy_from_slice(piece);
        length += piece.len();
    }
    length
}

/// A system call that touches no errno.
///
/// # Safety
///
/// As for the system call.
unsafe fn bare_call(number: i64, first: u64, second: u64, third: u64) {
    // SAFETY: the caller vouches for the call; the kernel changes RAX, RCX and R11 only.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => _,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_names_the_call() {
        let check = |number, expected: &str| {
            for goes_on in [false, true] {
                let mut line = [0; 192];
                let length = describe(number, goes_on, &mut line);
                let said = std::str::from_utf8(&line[..length]).unwrap();
                let has_number = said.contains(&format!("call {expected},"));
                assert!(has_number && said.ends_with('\n'), "{said}");
            }
        };
        check(0, "0");
        check(59, "59");
        check(i32::MAX, "2147483647");
    }

    #[test]
    fn no_call_is_in_the_table_twice() {
        let numbers = |lists: &[&Calls]| -> Vec<_> {
            lists.iter().copied().flatten().map(|&(call, _)| call).collect()
        };
        let with_absent = |lists| [&numbers(lists), ABSENT].concat();
        let lists = [
            with_absent(MACHINE),
            with_absent(NETWORK),
            with_absent(ROUTER),
            with_absent(SOCKETS),
            with_absent(UNPACKER),
            with_absent(READER),
            with_absent(DISK_READER),
            numbers(FILE_SERVER),
            numbers(KEEPER),
        ];
        for mut calls in lists {
            let count = calls.len();
            calls.sort_unstable();
            calls.dedup();
            assert_eq!(calls.len(), count);
        }
    }

    const ALL: [&[&Calls]; 9] =
        [MACHINE, FILE_SERVER, KEEPER, NETWORK, ROUTER, SOCKETS, UNPACKER, READER, DISK_READER];

    #[test]
    fn the_filters_are_within_the_kernels_limit() {
        for lists in ALL {
            let (absent, refused) = programs(lists).unwrap();
            // BPF_MAXINSNS (linux/bpf_common.h).
            assert!(absent.len() < 4096 && refused.len() < 4096, "{}", refused.len());
        }
    }
}
