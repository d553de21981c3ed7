//! ptrace(2), for tasks that were attached by `PTRACE_SEIZE`.

use std::io;
use std::ptr;

use crate::limits::EXTENDED_STATE_MAX_BYTES;

/// General registers with the bases of FS and GS, as ptrace has them.
pub type Registers = libc::user_regs_struct;

/// A signal as the kernel describes it (`siginfo_t`).
pub type SignalInfo = [u8; 128];

/// The note that names the general registers.
const NOTE_REGISTERS: usize = 1;
/// The note that names the extended state (`NT_X86_XSTATE`).
const NOTE_EXTENDED: usize = 0x202;
/// Signals that one call of `PTRACE_PEEKSIGINFO` reads.
const SIGNALS_AT_ONCE: usize = 32;

/// Attach to a task without stopping it. Its children and threads will be born traced and stopped; calls that
/// [`resume_to_call`] stops at are told from signals; all traced tasks die with the tracer.
///
/// # Errors
///
/// `EPERM` where we may not, or somebody else traces it; `ESRCH` if there is no such task.
pub fn seize(task: u32) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_EXITKILL;
    request(libc::PTRACE_SEIZE, task, 0, options as usize)
}

/// Let the task's death no longer depend on the tracer's (`exit_kill` false), or again.
///
/// # Errors
///
/// `ESRCH` if the task is not stopped, or gone.
pub fn set_exit_kill(task: u32, exit_kill: bool) -> io::Result<()> {
    let mut options = libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACESYSGOOD;
    if exit_kill {
        options |= libc::PTRACE_O_EXITKILL;
    }
    request(libc::PTRACE_SETOPTIONS, task, 0, options as usize)
}

/// Stop a task. It reports a [`Stop::Event`](super::wait::Stop) of `PTRACE_EVENT_STOP`, at the latest when it is about
/// to go on in user mode.
///
/// # Errors
///
/// `ESRCH` if the task is gone.
pub fn interrupt(task: u32) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, task, 0, 0)
}

/// Let a stopped task go on, with a signal (0: none).
///
/// # Errors
///
/// `ESRCH` if the task is not stopped, or gone.
pub fn resume(task: u32, signal: u32) -> io::Result<()> {
    request(libc::PTRACE_CONT, task, 0, signal as usize)
}

/// Let a stopped task that was told to stop, and has stopped for something else, go on with a signal (0: none) until it
/// stops as it was told. (Whatever a task stops for, the kernel forgets that it was told: `ptrace_stop` of Linux.)
///
/// # Errors
///
/// `ESRCH` if the task is not stopped, or gone.
pub fn resume_to_stop(task: u32, signal: u32) -> io::Result<()> {
    interrupt(task)?;
    resume(task, signal)
}

/// Let a stopped task carry out one instruction. It stops with SIGTRAP then.
///
/// # Errors
///
/// `ESRCH` if the task is not stopped, or gone.
pub fn step(task: u32) -> io::Result<()> {
    request(libc::PTRACE_SINGLESTEP, task, 0, 0)
}

/// Let a stopped task go on, with a signal (0: none), until it enters or leaves a system call.
///
/// # Errors
///
/// `ESRCH` if the task is not stopped, or gone.
pub fn resume_to_call(task: u32, signal: u32) -> io::Result<()> {
    request(libc::PTRACE_SYSCALL, task, 0, signal as usize)
}

/// Let go of a stopped task. It runs on, or is stopped by job control if it was before.
///
/// # Errors
///
/// `ESRCH` if the task is not stopped, or gone.
pub fn detach(task: u32) -> io::Result<()> {
    request(libc::PTRACE_DETACH, task, 0, 0)
}

/// The message of the event that the task has stopped for: the number of a child, here.
///
/// # Errors
///
/// `ESRCH` if the task is not stopped, or gone.
pub fn event_message(task: u32) -> io::Result<u64> {
    let mut message = 0_u64;
    request(libc::PTRACE_GETEVENTMSG, task, 0, (&raw mut message).addr())?;
    Ok(message)
}

/// General registers of a stopped task.
///
/// # Errors
///
/// `ESRCH` if the task is not stopped, or gone.
pub fn registers(task: u32) -> io::Result<Registers> {
    // SAFETY: all zeros are numbers.
    let mut registers: Registers = unsafe { std::mem::zeroed() };
    let (start, bytes) = ((&raw mut registers).addr(), size_of::<Registers>());
    let moved = registers_of(libc::PTRACE_GETREGSET, task, NOTE_REGISTERS, start, bytes)?;
    if moved == bytes { Ok(registers) } else { Err(io::ErrorKind::Unsupported.into()) }
}

/// Set the general registers of a stopped task.
///
/// # Errors
///
/// `ESRCH` if the task is not stopped, or gone; `EIO` for values that no user program may have.
pub fn set_registers(task: u32, registers: &Registers) -> io::Result<()> {
    let start = ptr::from_ref(registers).addr();
    let bytes = size_of::<Registers>();
    registers_of(libc::PTRACE_SETREGSET, task, NOTE_REGISTERS, start, bytes).map(drop)
}

/// The extended state of a stopped task, in the standard format of XSAVE.
///
/// # Errors
///
/// `ESRCH` if the task is not stopped, or gone.
pub fn extended(task: u32) -> io::Result<Vec<u8>> {
    let mut state = vec![0; EXTENDED_STATE_MAX_BYTES];
    let (start, bytes) = (state.as_mut_ptr().addr(), state.len());
    let moved = registers_of(libc::PTRACE_GETREGSET, task, NOTE_EXTENDED, start, bytes)?;
    state.truncate(moved);
    Ok(state)
}

/// Set the extended state of a stopped task.
///
/// # Errors
///
/// `ESRCH` if the task is not stopped, or gone; `EINVAL`, `EFAULT` for a state that this processor cannot have.
pub fn set_extended(task: u32, state: &[u8]) -> io::Result<()> {
    let (start, bytes) = (state.as_ptr().addr(), state.len());
    registers_of(libc::PTRACE_SETREGSET, task, NOTE_EXTENDED, start, bytes).map(drop)
}

/// The signals that a stopped task blocks, bit 0 for signal 1.
///
/// # Errors
///
/// `ESRCH` if the task is not stopped, or gone.
pub fn signal_mask(task: u32) -> io::Result<u64> {
    let mut mask = 0_u64;
    request(libc::PTRACE_GETSIGMASK, task, size_of::<u64>(), (&raw mut mask).addr())?;
    Ok(mask)
}

/// Set the signals that a stopped task blocks.
///
/// # Errors
///
/// `ESRCH` if the task is not stopped, or gone.
pub fn set_signal_mask(task: u32, mask: u64) -> io::Result<()> {
    request(libc::PTRACE_SETSIGMASK, task, size_of::<u64>(), (&raw const mask).addr())
}

/// Whose queue of signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// Signals for this thread.
    Thread,
    /// Signals for the process.
    Process,
}

/// The signals that wait for a stopped task, in order, `most` at the most.
///
/// # Errors
///
/// `ESRCH` if the task is not stopped, or gone; [`io::ErrorKind::QuotaExceeded`] if there are more.
pub fn pending(task: u32, queue: Queue, most: usize) -> io::Result<Vec<SignalInfo>> {
    let flags = if queue == Queue::Process { libc::PTRACE_PEEKSIGINFO_SHARED } else { 0 };
    let mut found: Vec<SignalInfo> = Vec::new();
    loop {
        let arguments = libc::ptrace_peeksiginfo_args {
            off: found.len() as u64,
            flags,
            nr: SIGNALS_AT_ONCE as i32,
        };
        let mut batch = [[0; 128]; SIGNALS_AT_ONCE];
        let count = answer(libc::PTRACE_PEEKSIGINFO, task, (&raw const arguments).addr(), {
            batch.as_mut_ptr().addr()
        })?;
        found.extend_from_slice(&batch[..usize::try_from(count).unwrap_or(0).min(batch.len())]);
        if found.len() > most {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        if count == 0 {
            return Ok(found);
        }
    }
}

/// Where a thread has registered restartable sequences (rseq(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sequences {
    /// Address of its `struct rseq`; 0 if there is none.
    pub address: u64,
    /// Bytes of that.
    pub bytes: u32,
    /// What stands before each abort handler.
    pub signature: u32,
}

/// Where a stopped task has registered restartable sequences.
///
/// # Errors
///
/// `ESRCH` if the task is not stopped, or gone; `EIO` where the kernel cannot tell.
pub fn sequences(task: u32) -> io::Result<Sequences> {
    // SAFETY: all zeros are numbers.
    let mut answer_: libc::ptrace_rseq_configuration = unsafe { std::mem::zeroed() };
    let bytes = size_of::<libc::ptrace_rseq_configuration>();
    let place = (&raw mut answer_).addr();
    answer(libc::PTRACE_GET_RSEQ_CONFIGURATION, task, bytes, place)?;
    let (address, bytes) = (answer_.rseq_abi_pointer, answer_.rseq_abi_size);
    Ok(Sequences { address, bytes, signature: answer_.signature })
}

/// Whether the kernel hands the system calls of a stopped task back to it (`PR_SET_SYSCALL_USER_DISPATCH`).
///
/// # Errors
///
/// `ESRCH` if the task is not stopped, or gone.
pub fn dispatches_calls(task: u32) -> io::Result<bool> {
    const GET_DISPATCH: libc::c_uint = 0x4211;
    let mut dispatch = [0_u64; 4];
    match answer(GET_DISPATCH, task, size_of_val(&dispatch), dispatch.as_mut_ptr().addr()) {
        Ok(_) => Ok(dispatch[0] != 0),
        // Linux before 6.4 cannot tell; what dispatches there is found by the first call.
        Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(false),
        Err(error) => Err(error),
    }
}

fn registers_of(
    which: libc::c_uint,
    task: u32,
    note: usize,
    start: usize,
    bytes: usize,
) -> io::Result<usize> {
    let mut vector = libc::iovec { iov_base: ptr::without_provenance_mut(start), iov_len: bytes };
    vector.iov_base = ptr::with_exposed_provenance_mut(start);
    request(which, task, note, (&raw mut vector).addr())?;
    Ok(vector.iov_len)
}

fn request(which: libc::c_uint, task: u32, address: usize, data: usize) -> io::Result<()> {
    answer(which, task, address, data).map(drop)
}

/// The raw call, so that no result is taken for an error.
fn answer(which: libc::c_uint, task: u32, address: usize, data: usize) -> io::Result<i64> {
    // SAFETY: what `data` (and for signals `address`) names is a local of the caller here, as large as it says, or
    // borrowed by it; the other memory that is touched is that of the other process.
    let result = unsafe { libc::syscall(libc::SYS_ptrace, which, task, address, data) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
