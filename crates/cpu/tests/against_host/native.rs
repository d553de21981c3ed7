//! The reference: cases run on this host's CPU, in a forked child.
//!
//! There is no trampoline. A signal frame holds the whole user-visible state, so the child's one
//! signal handler reads the outcome of the last case out of its frame, writes the next case into
//! it, and returns: `rt_sigreturn` loads general-purpose, x87 and vector registers and the code
//! segment, so that even 32-bit code is entered this way. Only segment selectors and the bases of
//! FS and GS are not in the frame, nor NT and ID, which `rt_sigreturn` keeps as they are; `oracle_handler` takes care
//! of them, and of giving Rust the host's own. Every case ends with a signal, at the latest by the `int3` that
//! follows its code.

use std::arch::global_asm;
use std::ptr::{addr_of_mut, null_mut};

use super::case::{Case, NEVER_ENDED, Outcome, XSAVE, usable};
use super::layout::{self, CODE, CODE_PAGES, Kind, PAGE, PAGES, SLOT_BYTES};

/// What `oracle_handler` exchanges with Rust.
#[repr(C)]
struct Switch {
    /// The host's FS base.
    host_fs: u64,
    fs_base: u64,
    gs_base: u64,
    /// DS, ES, FS, GS.
    selectors: [u16; 4],
}

static mut SWITCH: Switch = Switch { host_fs: 0, fs_base: 0, gs_base: 0, selectors: [0; 4] };

global_asm!(
    ".globl oracle_handler",
    "oracle_handler:",
    // The kernel leaves AC as the case had it.
    "pushfq",
    "and dword ptr [rsp], ~0x40000",
    "popfq",
    "lea r8, [rip + {switch}]",
    "mov word ptr [r8 + 24], ds",
    "mov word ptr [r8 + 26], es",
    "mov word ptr [r8 + 28], fs",
    "mov word ptr [r8 + 30], gs",
    "rdfsbase rax",
    "mov [r8 + 8], rax",
    "rdgsbase rax",
    "mov [r8 + 16], rax",
    "xor eax, eax",
    "mov ds, eax",
    "mov es, eax",
    "mov fs, eax",
    "mov gs, eax",
    "wrgsbase rax",
    "mov rax, [r8]",
    "wrfsbase rax",
    "sub rsp, 8",
    "call {next}",
    "add rsp, 8",
    "lea r8, [rip + {switch}]",
    "push 0x202",
    "popfq",
    "mov ds, word ptr [r8 + 24]",
    "mov es, word ptr [r8 + 26]",
    "mov fs, word ptr [r8 + 28]",
    "mov gs, word ptr [r8 + 30]",
    "mov rax, [r8 + 16]",
    "wrgsbase rax",
    "mov rax, [r8 + 8]",
    "wrfsbase rax",
    "ret",
    switch = sym SWITCH,
    next = sym next,
);

unsafe extern "C" {
    fn oracle_handler();
}

/// What the child works on.
struct Child {
    cases: *const Case,
    outcomes: *mut Outcome,
    count: usize,
    /// The case that runs; `usize::MAX` before the first.
    current: usize,
    /// The case that ran when the timer last went off.
    timed: usize,
    data: *const u8,
    xsave_bytes: usize,
    components: u64,
}

static mut CHILD: Child = Child {
    cases: std::ptr::null(),
    outcomes: null_mut(),
    count: 0,
    current: usize::MAX,
    timed: usize::MAX,
    data: std::ptr::null(),
    xsave_bytes: 0,
    components: 0,
};

/// Order of the registers in a signal frame, by their encoding.
const FRAME_ORDER: [i32; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

/// The body of the signal handler: take down the outcome, set up the next case.
unsafe extern "C" fn next(signal: i32, _: *const libc::siginfo_t, context: *mut libc::ucontext_t) {
    // SAFETY: only the child's one thread comes here; the kernel vouches for the frame.
    let (child, frame) = unsafe { (&mut *addr_of_mut!(CHILD), &mut *context) };
    if signal == libc::SIGALRM && child.timed != child.current {
        child.timed = child.current;
        return;
    }
    if child.current != usize::MAX {
        // SAFETY: `current` is below `count`, for which the parent made room.
        let outcome = unsafe { &mut *child.outcomes.add(child.current) };
        // SAFETY: as above.
        unsafe { record(child, signal, frame, outcome) };
    }
    child.current = child.current.wrapping_add(1);
    if child.current == child.count {
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: as above.
    unsafe { load(child, frame) };
}

/// Take the outcome out of the signal frame and out of memory.
///
/// # Safety
///
/// Only in the child, on the frame that the kernel handed to the handler.
unsafe fn record(child: &Child, signal: i32, frame: &libc::ucontext_t, outcome: &mut Outcome) {
    let gregs = &frame.uc_mcontext.gregs;
    for (value, &place) in outcome.gpr.iter_mut().zip(&FRAME_ORDER) {
        *value = gregs[place as usize] as u64;
    }
    outcome.rip = gregs[libc::REG_RIP as usize] as u64;
    outcome.rflags = gregs[libc::REG_EFL as usize] as u64;
    outcome.vector = gregs[libc::REG_TRAPNO as usize] as u32;
    outcome.error = gregs[libc::REG_ERR as usize] as u32;
    outcome.cr2 = gregs[libc::REG_CR2 as usize] as u64;
    if signal == libc::SIGALRM {
        outcome.vector = NEVER_ENDED;
    }
    let packed = gregs[libc::REG_CSGSFS as usize] as u64;
    // SAFETY: written by the handler just now.
    let switch = unsafe { &*std::ptr::addr_of!(SWITCH) };
    let [ds, es, fs, gs] = switch.selectors;
    outcome.selectors = [es, packed as u16, (packed >> 48) as u16, ds, fs, gs];
    outcome.fs_base = switch.fs_base;
    outcome.gs_base = switch.gs_base;
    // SAFETY: the frame's XSAVE area is that long; the writable pages are mapped.
    unsafe {
        let image = frame.uc_mcontext.fpregs.cast::<u8>();
        std::ptr::copy_nonoverlapping(image, outcome.xsave.as_mut_ptr(), child.xsave_bytes);
        for (page, index) in outcome.memory.iter_mut().zip(layout::writable()) {
            let source = layout::page(index) as *const u8;
            std::ptr::copy_nonoverlapping(source, page.as_mut_ptr(), PAGE);
        }
    }
    outcome.done = 1;
}

/// Write the current case into the signal frame and into memory.
///
/// # Safety
///
/// Only in the child, on the frame that the kernel handed to the handler.
unsafe fn load(child: &Child, frame: &mut libc::ucontext_t) {
    // SAFETY: `current` is below `count`.
    let case = unsafe { &*child.cases.add(child.current) };
    // SAFETY: `data` holds the initial contents of the whole data area.
    unsafe {
        for index in layout::writable() {
            let source = child.data.add(index * PAGE);
            std::ptr::copy_nonoverlapping(source, layout::page(index) as *mut u8, PAGE);
        }
        if case.poke.address != 0 {
            let target = case.poke.address as *mut u8;
            std::ptr::copy_nonoverlapping(case.poke.bytes.as_ptr(), target, case.poke.bytes.len());
        }
    }
    let gregs = &mut frame.uc_mcontext.gregs;
    for (&value, &place) in case.gpr.iter().zip(&FRAME_ORDER) {
        gregs[place as usize] = value as i64;
    }
    gregs[libc::REG_RIP as usize] = layout::slot(child.current) as i64;
    gregs[libc::REG_EFL as usize] = case.rflags as i64;
    let (code, data) = if case.bits == 32 {
        (layout::USER_CODE_32, layout::USER_DATA)
    } else {
        (layout::USER_CODE_64, 0)
    };
    let packed = u64::from(code) | u64::from(layout::USER_DATA) << 48;
    gregs[libc::REG_CSGSFS as usize] = packed as i64;
    // SAFETY: the frame's XSAVE area is that long. Its bytes 464 to 511 are the kernel's.
    unsafe {
        let image = frame.uc_mcontext.fpregs.cast::<u8>();
        std::ptr::copy_nonoverlapping(case.xsave.as_ptr(), image, 464);
        let (source, target) = (case.xsave.as_ptr().add(512), image.add(512));
        std::ptr::copy_nonoverlapping(source, target, child.xsave_bytes - 512);
        image.add(512).cast::<u64>().write_unaligned(child.components);
        let switch = &mut *addr_of_mut!(SWITCH);
        switch.fs_base = case.fs_base;
        switch.gs_base = case.gs_base;
        switch.selectors = [data, data, 0, 0];
    }
}

/// Memory that the parent and its children share.
pub struct Native {
    cases: *mut Case,
    outcomes: *mut Outcome,
    data: Vec<u8>,
}

impl Native {
    /// A reference whose data area starts with these bytes.
    pub fn new(data: &[u8]) -> Self {
        let cases = shared(layout::BATCH * size_of::<Case>()).cast();
        let outcomes = shared(layout::BATCH * size_of::<Outcome>()).cast();
        Self { cases, outcomes, data: data.to_vec() }
    }

    /// Run these cases; what came of each.
    pub fn run(&mut self, cases: &[Case]) -> &[Outcome] {
        assert!(cases.len() <= layout::BATCH);
        // SAFETY: there is room for a batch; nobody else uses the memory between two children.
        unsafe {
            std::ptr::copy_nonoverlapping(cases.as_ptr(), self.cases, cases.len());
            for index in 0..cases.len() {
                (*self.outcomes.add(index)).done = 0;
            }
            let child = libc::fork();
            assert!(child >= 0, "cannot fork: {}", std::io::Error::last_os_error());
            if child == 0 {
                self.be_child(cases.len());
            }
            let mut status = 0;
            libc::waitpid(child, &raw mut status, 0);
            let outcomes = std::slice::from_raw_parts(self.outcomes, cases.len());
            let done = outcomes.iter().take_while(|outcome| outcome.done != 0).count();
            assert!(status == 0, "the reference died with status {status:#x} at case {done}");
            outcomes
        }
    }

    /// The child: never returns, allocates nothing.
    ///
    /// # Safety
    ///
    /// Only in a process that has just been forked, which has nothing to lose.
    unsafe fn be_child(&self, count: usize) -> ! {
        // SAFETY: nothing else is mapped at these addresses, or the child says so and ends.
        unsafe {
            map_code(std::slice::from_raw_parts(self.cases, count));
            map_data(&self.data);
            let child = &mut *addr_of_mut!(CHILD);
            child.cases = self.cases;
            child.outcomes = self.outcomes;
            child.count = count;
            child.data = self.data.as_ptr();
            child.components = usable();
            child.xsave_bytes = xsave_bytes();
            install_handler();
            libc::raise(libc::SIGUSR1);
            libc::_exit(3)
        }
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with these sizes.
        unsafe {
            libc::munmap(self.cases.cast(), layout::BATCH * size_of::<Case>());
            libc::munmap(self.outcomes.cast(), layout::BATCH * size_of::<Outcome>());
        }
    }
}

/// Bytes of the XSAVE image that both sides exchange.
pub fn xsave_bytes() -> usize {
    let end = super::case::components().map(|(_, offset, length)| offset + length).max();
    end.unwrap_or(576).min(XSAVE)
}

fn shared(bytes: usize) -> *mut u8 {
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping.
    let at = unsafe { libc::mmap(null_mut(), bytes, 3, flags, -1, 0) };
    assert!(at != libc::MAP_FAILED, "no memory for the cases");
    at.cast()
}

/// Map anonymous memory at a fixed address.
///
/// # Safety
///
/// Only in the child, whose own mappings there may be replaced.
unsafe fn map_at(address: u64, bytes: usize) -> *mut u8 {
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE | libc::MAP_POPULATE;
    // SAFETY: the kernel refuses an address that is taken.
    unsafe {
        let at = libc::mmap(address as *mut libc::c_void, bytes, 3, flags, -1, 0);
        if at as u64 != address {
            libc::_exit(4);
        }
        at.cast()
    }
}

/// Put the code of all cases where they expect it.
///
/// # Safety
///
/// As for [`map_at`].
unsafe fn map_code(cases: &[Case]) {
    // SAFETY: slots lie inside the mapping.
    unsafe {
        let code = map_at(CODE, CODE_PAGES * PAGE);
        code.write_bytes(0xcc, CODE_PAGES * PAGE);
        for (index, case) in cases.iter().enumerate() {
            let target = code.add(index * SLOT_BYTES);
            std::ptr::copy_nonoverlapping(case.code.as_ptr(), target, case.length as usize);
        }
        libc::mprotect(code.cast(), CODE_PAGES * PAGE, libc::PROT_READ | libc::PROT_EXEC);
    }
}

/// Put the data pages where the cases expect them.
///
/// # Safety
///
/// As for [`map_at`].
unsafe fn map_data(contents: &[u8]) {
    for (index, &kind) in PAGES.iter().enumerate() {
        if kind == Kind::Absent {
            continue;
        }
        // SAFETY: the page is new.
        unsafe {
            let page = map_at(layout::page(index), PAGE);
            std::ptr::copy_nonoverlapping(contents.as_ptr().add(index * PAGE), page, PAGE);
            let rights = match kind {
                Kind::ReadOnly => libc::PROT_READ,
                Kind::Closed => libc::PROT_NONE,
                _ => continue,
            };
            libc::mprotect(page.cast(), PAGE, rights);
        }
    }
}

/// Catch every signal that a case can raise.
///
/// # Safety
///
/// Only in the child: it takes over the signals of the process.
unsafe fn install_handler() {
    const STACK_BYTES: usize = 256 << 10;
    // SAFETY: plain system calls; the stack is never unmapped.
    unsafe {
        (*addr_of_mut!(SWITCH)).host_fs = fs_base();
        let stack =
            libc::stack_t { ss_sp: shared(STACK_BYTES).cast(), ss_flags: 0, ss_size: STACK_BYTES };
        libc::sigaltstack(&raw const stack, null_mut());
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = oracle_handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigfillset(&raw mut action.sa_mask);
        for signal in [
            libc::SIGUSR1,
            libc::SIGALRM,
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGILL,
            libc::SIGFPE,
            libc::SIGTRAP,
        ] {
            libc::sigaction(signal, &raw const action, null_mut());
        }
        // The thread that forked may hold signals back.
        libc::sigfillset(&raw mut action.sa_mask);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const action.sa_mask, null_mut());
        let second = libc::timeval { tv_sec: 1, tv_usec: 0 };
        let timer = libc::itimerval { it_interval: second, it_value: second };
        libc::setitimer(libc::ITIMER_REAL, &raw const timer, null_mut());
    }
}

fn fs_base() -> u64 {
    let base: u64;
    // SAFETY: reads a register; the engine, too, requires FSGSBASE.
    unsafe { std::arch::asm!("rdfsbase {}", out(reg) base, options(nomem, nostack)) };
    base
}
