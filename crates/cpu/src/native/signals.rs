//! Signals that arrive while the host CPU runs guest code.
//!
//! The constraints:
//!
//! 1. In translated code RSP, FS and GS are not the host's. Handlers run on an alternate stack, use
//!    no thread-local storage and call nothing but system calls.
//! 2. A fault (SIGSEGV, SIGBUS, SIGFPE, SIGILL) in translated code belongs to the guest: the handler
//!    notes it in the [`Context`] and sends control to the trampoline's way out, with the registers
//!    as they were. Ordinary Rust finds out later which guest instruction it was, and where the
//!    guest values of the scratch registers are.
//! 3. A kick sets a flag before it sends the signal. If the thread is in Rust, the flag is seen
//!    before translated code is entered. If it is in the trampoline's window, the entry is
//!    abandoned. If it is in translated code, the handler unchains the *slots* of the block that was
//!    interrupted: the places where control leaves it, each of which one store turns into a jump
//!    out. Control may be past a slot already, in the few instructions that jump to the
//!    next block; therefore a timer repeats the signal until the processor has come back.
//! 4. All other signals are blocked on a processor's thread: their handlers belong to other
//!    parts of the program and would run on the guest's stack.
//!
//! The handlers find the context through FS, and believe it only if a table of threads has it.

use std::io;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Once};

use super::trampoline;
use crate::config::Error;
use crate::context::{Context, Fault, Reason};
use crate::kick::{KickState, kick_signal};
use crate::translate::host_code::HostCode;
use crate::translate::unchain::Unchainer;

/// Processors that can run at once in one process.
const MAX_THREADS: usize = 64;

/// How long after a kick to try again, if the processor has not come back: 50 us.
const RETRY_NANOSECONDS: u64 = 50_000;

/// What the signal of a timer says: repeat the kick. So says the kick of another thread.
const RETRY: usize = 0;
/// The same: look at what user code does ([`Registration::look_after`]).
const LOOK: usize = 1;
/// The same: the time that the caller has set has come ([`Registration::alarm_after`]).
const ALARM: usize = 2;

/// Stack for the handlers, beyond what the kernel's frame needs.
const HANDLER_STACK_BYTES: usize = 64 << 10;

struct Thread {
    id: AtomicI32,
    context: AtomicPtr<Context>,
    kick: AtomicPtr<KickState>,
    /// The timer that repeats a kick.
    retry: AtomicU64,
}

static THREADS: [Thread; MAX_THREADS] = [const {
    Thread {
        id: AtomicI32::new(0),
        context: AtomicPtr::new(std::ptr::null_mut()),
        kick: AtomicPtr::new(std::ptr::null_mut()),
        retry: AtomicU64::new(0),
    }
}; MAX_THREADS];

/// Makes this thread the one that runs `context`; undone when dropped.
pub(crate) struct Registration {
    /// The thread that was prepared.
    owner: std::thread::ThreadId,
    slot: &'static Thread,
    retry: Timer,
    look: Timer,
    alarm: Timer,
    stack: Vec<u8>,
    old_stack: libc::stack_t,
    old_mask: libc::sigset_t,
    kick: Arc<KickState>,
}

fn host_error(action: &'static str) -> Error {
    Error::Host { action, source: io::Error::last_os_error() }
}

/// Prepare the calling thread for running `context`.
///
/// # Errors
///
/// [`Error::Host`] when the kernel refuses a handler, an alternate stack or a timer, or when more
/// than [`MAX_THREADS`] processors run.
pub(crate) fn prepare_thread(
    context: &mut Context,
    kick: &Arc<KickState>,
) -> Result<Registration, Error> {
    install_handlers()?;
    // SAFETY: gettid has no preconditions.
    let thread = unsafe { libc::gettid() };
    let timer = |purpose| Timer::new(thread, purpose);
    let (retry, look, alarm) = (timer(RETRY)?, timer(LOOK)?, timer(ALARM)?);
    let slot = THREADS
        .iter()
        .find(|slot| slot.id.compare_exchange(0, -1, Ordering::AcqRel, Ordering::Relaxed).is_ok())
        .ok_or(Error::Host {
            action: "run more than 64 processors in one process",
            source: io::ErrorKind::OutOfMemory.into(),
        })?;
    let mut registration = Registration {
        owner: std::thread::current().id(),
        slot,
        retry,
        look,
        alarm,
        stack: vec![0; HANDLER_STACK_BYTES + minimum_signal_stack()],
        // SAFETY: both are plain data for which zero is a valid value.
        old_stack: unsafe { std::mem::zeroed() },
        // SAFETY: as above.
        old_mask: unsafe { std::mem::zeroed() },
        kick: Arc::clone(kick),
    };
    registration.use_own_stack()?;
    registration.block_other_signals();
    slot.context.store(context, Ordering::Release);
    slot.kick.store(Arc::as_ptr(kick).cast_mut(), Ordering::Release);
    slot.retry.store(registration.retry.0 as u64, Ordering::Release);
    slot.id.store(thread, Ordering::Release);
    kick.thread.store(thread, Ordering::SeqCst);
    Ok(registration)
}

fn minimum_signal_stack() -> usize {
    // AT_MINSIGSTKSZ (51) is not in the libc crate for all targets.
    // SAFETY: getauxval has no preconditions.
    unsafe { libc::getauxval(51) as usize }
}

/// A timer of the host's that sends the kick signal to a thread.
struct Timer(libc::timer_t);

impl Timer {
    /// A timer that is not set, whose signal tells `purpose`.
    fn new(thread: i32, purpose: usize) -> Result<Self, Error> {
        // SAFETY: sigevent is plain data; timer_create fills in `timer`.
        unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = kick_signal();
            event.sigev_notify_thread_id = thread;
            event.sigev_value.sival_ptr = purpose as *mut libc::c_void;
            let mut timer: libc::timer_t = std::ptr::null_mut();
            if libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) != 0 {
                return Err(host_error("create the processor's timer"));
            }
            Ok(Self(timer))
        }
    }

    /// Have it go off once, in so many nanoseconds, and not when it would have; never, if zero. Whether
    /// the host has done that.
    fn set(&self, nanoseconds: u64) -> bool {
        let when = once(nanoseconds);
        // SAFETY: the timer is ours; the structure is only read.
        unsafe { libc::timer_settime(self.0, 0, &raw const when, std::ptr::null_mut()) == 0 }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: the timer is ours, and no other code uses it any more.
        unsafe { libc::timer_delete(self.0) };
    }
}

impl Registration {
    /// Whether the calling thread is the one that was prepared.
    pub(crate) fn is_this_thread(&self) -> bool {
        self.owner == std::thread::current().id()
    }

    /// Have the processor look at what its user code does, in so many nanoseconds. Whether it will.
    pub(crate) fn look_after(&self, nanoseconds: u64) -> bool {
        self.look.set(nanoseconds)
    }

    /// Have the processor return to its caller in so many nanoseconds; zero takes that back.
    pub(crate) fn alarm_after(&self, nanoseconds: u64) {
        // The host refuses only what is no time or no timer.
        self.alarm.set(nanoseconds);
    }

    fn use_own_stack(&mut self) -> Result<(), Error> {
        let stack = libc::stack_t {
            ss_sp: self.stack.as_mut_ptr().cast(),
            ss_flags: 0,
            ss_size: self.stack.len(),
        };
        // SAFETY: the stack lives until this registration is dropped, which disables it.
        if unsafe { libc::sigaltstack(&stack, &mut self.old_stack) } != 0 {
            return Err(host_error("set a signal stack"));
        }
        Ok(())
    }

    fn block_other_signals(&mut self) {
        // SAFETY: the sets are initialized by the calls; failure is impossible with valid numbers.
        unsafe {
            let mut mask: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut mask);
            // The handler of SIGSYS, which tells of a refused system call, is fit for any state.
            let open = [kick_signal(), libc::SIGTRAP, libc::SIGABRT, libc::SIGSYS];
            for signal in FAULTS.into_iter().chain(open) {
                libc::sigdelset(&mut mask, signal);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &mask, &mut self.old_mask);
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.kick.thread.store(0, Ordering::SeqCst);
        self.slot.context.store(std::ptr::null_mut(), Ordering::Release);
        self.slot.kick.store(std::ptr::null_mut(), Ordering::Release);
        // SAFETY: the old stack and mask are what the kernel handed out. When the drop runs on another
        // thread, its stack and mask are left alone.
        unsafe {
            if self.is_this_thread() {
                libc::sigaltstack(&self.old_stack, std::ptr::null_mut());
                libc::pthread_sigmask(libc::SIG_SETMASK, &self.old_mask, std::ptr::null_mut());
            } else {
                // Another thread's alternate stack may still be in use: keep its memory.
                std::mem::forget(std::mem::take(&mut self.stack));
            }
        }
        self.slot.id.store(0, Ordering::Release);
    }
}

const FAULTS: [i32; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];

/// Handlers that were there before ours, in the order of [`FAULTS`].
static PREVIOUS: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

fn install_handlers() -> Result<(), Error> {
    static ONCE: Once = Once::new();
    let mut result = Ok(());
    ONCE.call_once(|| {
        for (number, signal) in FAULTS.into_iter().enumerate() {
            match install(signal, on_fault as *const () as usize) {
                Ok(old) => PREVIOUS[number].store(old as u64, Ordering::Relaxed),
                Err(error) => result = Err(error),
            }
        }
        if let Err(error) = install(kick_signal(), on_kick as *const () as usize) {
            result = Err(error);
        }
    });
    result
}

fn install(signal: i32, handler: usize) -> Result<usize, Error> {
    // SAFETY: the handler has the signature that SA_SIGINFO asks for.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigfillset(&mut action.sa_mask);
        let mut old: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal, &action, &mut old) != 0 {
            return Err(host_error("install a signal handler"));
        }
        Ok(old.sa_sigaction)
    }
}

/// The calling thread.
fn thread_id() -> i32 {
    // SAFETY: a raw system call; libc's wrapper would do, but errno is thread-local.
    unsafe { raw_syscall(libc::SYS_gettid, 0, 0, 0, 0) as i32 }
}

/// The table's entry for the calling thread that runs the context at `context`.
fn find(context: *const Context) -> Option<&'static Thread> {
    let id = thread_id();
    THREADS.iter().find(|slot| {
        slot.id.load(Ordering::Acquire) == id
            && slot.context.load(Ordering::Acquire).cast_const() == context
    })
}

/// The FS base of the code that was interrupted: in translated code, its context.
fn interrupted_fs() -> *mut Context {
    let base: u64;
    // SAFETY: `check_host` has seen that FSGSBASE is enabled; the kernel leaves FS alone when it
    // calls a handler.
    unsafe { std::arch::asm!("rdfsbase {}", out(reg) base, options(nomem, nostack)) };
    base as *mut Context
}

/// A system call that does not touch errno.
///
/// # Safety
///
/// As for the system call.
unsafe fn raw_syscall(number: i64, a: u64, b: u64, c: u64, d: u64) -> i64 {
    let result: i64;
    // SAFETY: the caller vouches for the arguments; the kernel clobbers RCX and R11 only.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, frame: *mut libc::ucontext_t) {
    // SAFETY: the kernel passes a valid frame.
    let registers = unsafe { &mut (*frame).uc_mcontext.gregs };
    let rip = registers[libc::REG_RIP as usize] as u64;
    let context = interrupted_fs();
    if find(context).is_some() {
        // SAFETY: the context lives while it is registered; its owner is this very thread, which
        // is not in Rust code when RIP is in the code cache.
        let context = unsafe { &mut *context };
        // A jump to an address that is not mapped cannot come from translated code: targets
        // are taken from the jump cache.
        if context.runs_guest_at(HostCode(rip)) {
            context.fault = Fault {
                rip,
                trap: registers[libc::REG_TRAPNO as usize] as u64,
                error: registers[libc::REG_ERR as usize] as u64,
                // SAFETY: the kernel passes a valid siginfo.
                address: unsafe { (*info).si_addr() } as u64,
            };
            context.reason = Reason::Fault as u32;
            registers[libc::REG_RIP as usize] = super::leave_address().0 as i64;
            return;
        }
    }
    give_back(signal);
}

/// A fault that is not ours: let the previous handler (as a rule, the default action) have it when
/// the instruction is executed again.
fn give_back(signal: i32) {
    let number = FAULTS.iter().position(|&fault| fault == signal).unwrap_or(0);
    // SAFETY: plain data; a fault handler may be replaced from inside itself.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = PREVIOUS[number].load(Ordering::Relaxed) as usize;
        if action.sa_sigaction > 1 {
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        }
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}

extern "C" fn on_kick(_signal: i32, info: *mut libc::siginfo_t, frame: *mut libc::ucontext_t) {
    // SAFETY: the kernel passes a valid siginfo.
    match unsafe { purpose(info) } {
        LOOK => note(KickState::consider),
        ALARM => note(KickState::alarm),
        _ => {}
    }
    // SAFETY: the kernel passes a valid frame.
    let registers = unsafe { &mut (*frame).uc_mcontext.gregs };
    let rip = registers[libc::REG_RIP as usize] as u64;
    let window = trampoline::bivouac_window_start as *const () as u64
        ..trampoline::bivouac_window_end as *const () as u64;
    if window.contains(&rip) {
        // FS may be the host's still; until it is the context, RDI is.
        let in_register = registers[libc::REG_RDI as usize] as *mut Context;
        let context = [interrupted_fs(), in_register].into_iter().find(|&it| find(it).is_some());
        if let Some(context) = context
            // SAFETY: the context lives while it is registered.
            && unsafe { is_requested(context) }
        {
            registers[libc::REG_RDI as usize] = context as i64;
            registers[libc::REG_RIP as usize] = trampoline::bivouac_abort as *const () as i64;
        }
        return;
    }
    let context = interrupted_fs();
    let Some(thread) = find(context) else { return };
    // SAFETY: the context lives while it is registered. Control was in code that runs with FS at
    // the context; if that is the code cache, no Rust code of this thread holds a reference to the
    // context or the unchainer, which lives as long as the processor.
    unsafe {
        if (*context).runs_guest_at(HostCode(rip)) && is_requested(context) {
            if let Some(unchainer) = (*context).unchainer.cast::<Unchainer>().as_ref() {
                unchainer.unchain(HostCode(rip), &mut *context);
            }
            try_again(thread.retry.load(Ordering::Acquire));
        }
    }
    // Elsewhere (the trampoline's last instructions before Rust) the flag is enough.
}

/// What a kick signal says.
///
/// # Safety
///
/// `info` must be what the kernel has passed to a handler.
unsafe fn purpose(info: *const libc::siginfo_t) -> usize {
    // SAFETY: the caller vouches for it; a timer's signal has a value.
    unsafe {
        let is_timer = (*info).si_code == libc::SI_TIMER;
        if is_timer { (*info).si_value().sival_ptr as usize } else { RETRY }
    }
}

/// Tell the processor of this thread something. A signal that was on its way when the thread ceased to be one
/// finds no thread.
fn note(what: impl FnOnce(&KickState)) {
    let id = thread_id();
    let slot = THREADS.iter().find(|slot| slot.id.load(Ordering::Acquire) == id);
    let kick = slot.map(|slot| slot.kick.load(Ordering::Acquire));
    // SAFETY: it lives while the thread is registered, which is while this handler runs on it. (Where the
    // context says that the flags are is not always true: native/call_out.rs.)
    if let Some(kick) = kick.and_then(|kick| unsafe { kick.as_ref() }) {
        what(kick);
    }
}

/// Whether the vCPU has been kicked.
///
/// # Safety
///
/// `context` must be a registered context of this thread.
unsafe fn is_requested(context: *const Context) -> bool {
    // SAFETY: the caller vouches for the context, whose kick flag lives as long as it does.
    unsafe { (*(*context).kick).load(Ordering::SeqCst) != 0 }
}

/// A timer's setting: to go off once.
fn once(nanoseconds: u64) -> libc::itimerspec {
    let (seconds, rest) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
    libc::itimerspec {
        it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: libc::timespec { tv_sec: seconds as i64, tv_nsec: rest as i64 },
    }
}

/// Send the kick signal again in a while.
fn try_again(timer: u64) {
    let when = once(RETRY_NANOSECONDS);
    // SAFETY: the kernel's timer ids are small integers, which is what glibc's timer_t holds for
    // timers with SIGEV_THREAD_ID; a wrong id is refused.
    unsafe {
        raw_syscall(libc::SYS_timer_settime, timer, 0, std::ptr::from_ref(&when) as u64, 0);
    }
}
