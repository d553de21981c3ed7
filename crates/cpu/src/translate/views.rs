//! Host code, mapped twice: where it is executed, and where it is written.
//!
//! An attacker that can write where code is executed owns the process. So a code cache is a file in memory
//! that is mapped at two addresses, each a random distance from everything else: one view is executable and not
//! writable, the other is writable and not executable. (Where the processor has protection keys, Linux makes the first
//! execute-only, because it asks for PROT_EXEC alone.) The rules:
//!
//! 1. Whatever computes with code (targets of jumps, marks, bounds, RIP in a signal's frame) means the
//!    executable view; [`Views::writable`] is the only way to the other, and only writers use it.
//! 2. No mapping is ever writable and executable, not for a moment. After confinement no memory is made
//!    executable at all (`host::confine`).
//! 3. A processor notices that code is changed under the address that it is executed at. Under another
//!    address it need not (SDM 3A 9.1.3): a vCPU thread that enters translated code serializes first if any code was
//!    written since ([`Changes`]). Code that runs meanwhile finds either the old jump or the new one, both of which
//!    are right (group.rs).
//! 4. Files in memory get large pages as the host has it set for these, which is never by default. So each
//!    large page is asked for by name when code reaches it (MADV_COLLAPSE, Linux 6.1).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::host_code::HostCode;
use crate::config::Error;

/// A large page.
pub(super) const LARGE_BYTES: usize = 2 << 20;

/// A view lies at most so far from what the host would have put beside it.
const SPREAD_BYTES: u64 = 16 << 30;

/// The two addresses of the same code.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Views {
    execute: HostCode,
    write: u64,
}

impl Views {
    /// Map a new file of `bytes` bytes, a multiple of the page size, twice.
    ///
    /// # Errors
    ///
    /// [`Error::Host`] when the kernel does not allow files in memory to be executed.
    pub(super) fn map(bytes: usize) -> Result<Self, Error> {
        let failed = |source| Error::Host { action: "map memory for translated code", source };
        let file = code_file(bytes).map_err(failed)?;
        let execute = map_view(&file, bytes, libc::PROT_EXEC).map_err(failed)?;
        let write = map_view(&file, bytes, libc::PROT_READ | libc::PROT_WRITE);
        let write = write.inspect_err(|_| unmap(execute, bytes)).map_err(failed)?;
        Ok(Self { execute: HostCode(execute), write })
    }

    /// Unmap both.
    pub(super) fn unmap(self, bytes: usize) {
        unmap(self.execute.0, bytes);
        unmap(self.write, bytes);
    }

    /// Where code is executed from.
    pub(super) fn start(self) -> HostCode {
        self.execute
    }

    /// Where what is executed at `at` is written.
    pub(super) fn writable(self, at: HostCode) -> *mut u8 {
        (at - self.execute + self.write) as *mut u8
    }

    /// Make the large page at an offset one, if the host does that; nothing is there yet.
    pub(super) fn make_large(self, offset: usize) {
        // SAFETY: the first byte of a page of the file in which nothing is yet; the advice changes which
        // pages the host uses, and not what is in them.
        unsafe {
            ((self.write as usize + offset) as *mut u8).write_volatile(0xcc);
            let page = (self.execute.0 as usize + offset) as *mut libc::c_void;
            libc::madvise(page, LARGE_BYTES, libc::MADV_COLLAPSE);
        }
    }

    /// Overwrite what a processor may be executing. It lies in one aligned word of eight bytes, so that every processor
    /// fetches either the old bytes or the new ones.
    ///
    /// Async-signal-safe.
    ///
    /// # Safety
    ///
    /// At `at` in this code there must be what the patch replaces, which does not cross a multiple of eight.
    pub(super) unsafe fn patch(self, at: HostCode, patch: Patch) {
        let (value, bytes) = patch.encoded();
        let offset = (at.0 % 8) as u32;
        debug_assert!(offset + bytes <= 8, "{bytes} bytes of {at:x?} cross a word");
        let mask = (u64::MAX >> (64 - 8 * bytes)) << (8 * offset);
        let new = value << (8 * offset) & mask;
        // SAFETY: the caller vouches for the place; both views begin at a page, so that words are aligned in both.
        let word = unsafe { &*(self.writable(HostCode(at.0 & !7)).cast::<AtomicU64>()) };
        let mut old = word.load(Ordering::SeqCst);
        while let Err(now) =
            word.compare_exchange(old, old & !mask | new, Ordering::SeqCst, Ordering::SeqCst)
        {
            old = now;
        }
    }
}

/// The five-byte `nop` (SDM 2B "NOP").
pub(super) const NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

/// What may be written over code that is executed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Patch {
    /// The displacement of a jump, over another.
    Displacement(i32),
    /// A `jmp` with this displacement (SDM 2A "JMP"), over a five-byte instruction.
    Jump(i32),
    /// [`NOP`], over a five-byte instruction.
    Nop,
}

impl Patch {
    /// Its bytes, the first one lowest, and how many they are.
    fn encoded(self) -> (u64, u32) {
        const NOP_VALUE: u64 = {
            let [a, b, c, d, e] = NOP;
            u64::from_le_bytes([a, b, c, d, e, 0, 0, 0])
        };
        match self {
            Self::Displacement(displacement) => (u64::from(displacement as u32), 4),
            Self::Jump(displacement) => (u64::from(displacement as u32) << 8 | 0xe9, 5),
            Self::Nop => (NOP_VALUE, 5),
        }
    }
}

/// How often code has been written.
#[derive(Debug, Clone, Default)]
pub(crate) struct Changes(Arc<AtomicU64>);

impl Changes {
    pub(super) fn note(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// Serialize the calling thread if code has been written since it did so last; `seen` is the count of writes
    /// then.
    pub(crate) fn catch_up(&self, seen: &mut u64) {
        let now = self.0.load(Ordering::SeqCst);
        if now != *seen {
            *seen = now;
            serialize();
        }
    }
}

/// Fetch no instruction after this that was fetched before it: `iretq` is what user mode has for that on
/// every processor and no hypervisor intercepts (SDM 3A 9.3).
pub(crate) fn serialize() {
    // SAFETY: returns to the next instruction with the same segments, flags and stack pointer. Without
    // `nostack`, nothing of the caller's lies below RSP.
    unsafe {
        std::arch::asm!(
            "mov {stack}, rsp",
            "mov {word:e}, ss",
            "push {word}",
            "push {stack}",
            "pushfq",
            "mov {word:e}, cs",
            "push {word}",
            "lea {word}, [rip + 2f]",
            "push {word}",
            "iretq",
            "2:",
            stack = out(reg) _,
            word = out(reg) _,
        );
    }
}

/// A file in memory, of which no other process has a descriptor.
fn code_file(bytes: usize) -> io::Result<OwnedFd> {
    // SAFETY: creates a descriptor, which is then ours.
    let file = unsafe {
        let fd = libc::memfd_create(c"bivouac-code".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    // SAFETY: the descriptor is open.
    if unsafe { libc::ftruncate(file.as_raw_fd(), bytes as i64) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}

/// Map all of a file at a random multiple of [`LARGE_BYTES`]; not in processes that are forked.
fn map_view(file: &OwnedFd, bytes: usize, protection: i32) -> io::Result<u64> {
    let spread = random() % SPREAD_BYTES;
    // A limit on address space may not let us be far away.
    let start = reserve(bytes, spread as usize).or_else(|_| reserve(bytes, 0))?;
    let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // SAFETY: takes the place of the reservation, which no code uses. A host without large pages refuses the
    // advice about them, which does no harm.
    unsafe {
        let view = libc::mmap(start as *mut _, bytes, protection, flags, file.as_raw_fd(), 0);
        if view == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            unmap(start, bytes);
            return Err(error);
        }
        libc::madvise(view, bytes, libc::MADV_DONTFORK);
        libc::madvise(view, bytes, libc::MADV_HUGEPAGE);
    }
    Ok(start)
}

/// Reserve addresses, `spread` bytes below where the host would have put them.
fn reserve(bytes: usize, spread: usize) -> io::Result<u64> {
    let length = bytes + LARGE_BYTES + spread;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh mapping.
    let whole = unsafe { libc::mmap(std::ptr::null_mut(), length, libc::PROT_NONE, flags, -1, 0) };
    if whole == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let whole = whole as u64;
    let start = whole.next_multiple_of(LARGE_BYTES as u64);
    let (before, end) = ((start - whole) as usize, start + bytes as u64);
    if before != 0 {
        unmap(whole, before);
    }
    unmap(end, length - before - bytes);
    Ok(start)
}

/// Unmap a view that no thread uses any more.
fn unmap(start: u64, bytes: usize) {
    // SAFETY: the callers' own mapping, of which nothing is in use any more.
    unsafe { libc::munmap(start as *mut _, bytes) };
}

/// A random number; zero if the host has none.
fn random() -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: fills the buffer, or leaves it alone.
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_view_is_writable_and_executable() {
        let views = Views::map(LARGE_BYTES).expect("files in memory can be executed");
        let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc is mounted");
        let rights = |at: u64| {
            let start = format!("{at:x}-");
            let line = maps.lines().find(|line| line.starts_with(&start)).expect("it is mapped");
            line.split(' ').nth(1).expect("rights").to_owned()
        };
        let execute = rights(views.start().0);
        assert!(!execute.contains('w') && execute.contains('x'), "{execute}");
        assert_eq!(rights(views.writable(views.start()) as u64), "rw-s");
        views.unmap(LARGE_BYTES);
    }

    #[test]
    fn what_is_written_is_executed() {
        let views = Views::map(LARGE_BYTES).expect("files in memory can be executed");
        views.make_large(0);
        // SAFETY: `mov eax, imm32; ret`, which is called after it was written.
        let call = |value: i32| unsafe {
            let place = views.writable(views.start()).cast::<[u8; 6]>();
            let [a, b, c, d] = value.to_le_bytes();
            place.write_volatile([0xb8, a, b, c, d, 0xc3]);
            serialize();
            let function: extern "C" fn() -> i32 = std::mem::transmute(views.start().0);
            function()
        };
        assert_eq!([1, 2, -3].map(call), [1, 2, -3]);
        views.unmap(LARGE_BYTES);
    }
}
