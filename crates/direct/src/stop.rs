//! Why a run ended, and how to learn it from what a stopped runner has left behind.
//!
//! Everything read here may be forged. A forged stop is one that the program could have had by
//! honest means: the exceptions that it can raise, with error codes that they can have.

use crate::area::Area;
use crate::layout::{REFUSED, REPORT, Report, SIGNAL_STACK, USER_END, is_reserved};
use crate::linux::ARCH_X86_64;
use crate::registers::{Components, Registers, SignalFrame};

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// A `syscall` instruction; RIP is behind it, RCX and R11 as the instruction leaves them.
    SystemCall,
    /// `int 0x80`, RIP behind it; the upper half of RAX may be lost. Also the 32-bit fast calls of
    /// a program that has jumped to 32-bit code: then the two bytes before RIP are not `int 0x80`,
    /// and RIP means nothing, as on a processor.
    LegacyCall,
    /// An exception. RIP is where the manual says. For a page fault the caller walks the guest's
    /// tables: the host knows only what is mapped in the space, not what the guest allows. The host
    /// does not say what DR6 is: for a debug exception see `single_step`.
    Exception {
        /// Its vector.
        vector: u8,
        /// Its error code, zero for those without.
        error: u16,
        /// For a page fault, the linear address.
        address: u64,
        /// For a debug exception: because of RFLAGS.TF, and not `int1`.
        single_step: bool,
    },
    /// A kick, or a signal that another process sent to the helper.
    Kicked,
    /// The registers cannot be had natively: 32-bit or other segments, RIP in the kernel's half.
    /// Nothing was run.
    Unsupported,
    /// Linux could not give the page that a mapping refers to: no memory.
    NoMemory,
    /// An order failed, and nothing was run. What is mapped is not known: unmap everything.
    Refused,
    /// The helper has died, or has been killed for what it did. The registers are those of the last
    /// entry; the program must not be continued from there.
    Died,
}

/// SDM 3 6.15.
const DEBUG: u64 = 1;
const INVALID_OPCODE: u8 = 6;
const GENERAL_PROTECTION: u64 = 13;
const PAGE_FAULT: u64 = 14;
/// The exceptions that user code can raise: #DE, #DB, #BP, #OF, #BR, #UD, #NP, #SS, #GP, #PF, #MF,
/// #AC, #XM.
const USER_VECTORS: u32 = 0x000b_787b;
/// Those with a selector, or a vector, as error code.
const SELECTOR_ERRORS: u32 = 0x0000_3800;
/// A fetch by user code from a page that is not there.
const FETCH: u16 = 0x14;
/// P, W, I, PK and SS of a page fault's error code; U is always set.
const PAGE_FAULT_ERRORS: u64 = 0x73;
/// The vsyscall page (arch/x86/include/uapi/asm/vsyscall.h).
const VSYSCALL: std::ops::Range<u64> = 0xffff_ffff_ff60_0000..0xffff_ffff_ff60_1000;
/// `si_code` of a single step.
const TRAP_TRACE: i32 = 2;

impl Stop {
    pub(crate) fn fetch_fault(address: u64) -> Self {
        let (vector, error) = (PAGE_FAULT as u8, FETCH);
        Self::Exception { vector, error, address, single_step: false }
    }
}

/// A stopped runner.
pub(crate) struct Stopped<'a> {
    pub area: &'a Area,
    pub slot: usize,
    pub components: &'a Components,
}

impl Stopped<'_> {
    /// Whether it says that it was kicked.
    pub(crate) fn is_by_kick(&self) -> bool {
        let report: Report = self.area.read(self.slot, REPORT);
        report.signal == libc::SIGUSR1 as u64
    }

    /// Find out why it stopped, and read its state if there is a new one. `None` if the report is
    /// implausible: then the program has forged it.
    pub(crate) fn read(&self, registers: &mut Registers, extended: &mut [u8]) -> Option<Stop> {
        let report: Report = self.area.read(self.slot, REPORT);
        if report.signal == REFUSED {
            return Some(Stop::Refused);
        }
        let last = SIGNAL_STACK.end - size_of::<SignalFrame>() as u64;
        if !(SIGNAL_STACK.start..=last).contains(&report.context) {
            return None;
        }
        let frame: SignalFrame = self.area.read(self.slot, report.context);
        let signal = i32::try_from(report.signal).ok()?;
        let sent = frame.code() <= 0;
        if is_reserved(frame.rip()) && (signal == libc::SIGUSR1 || sent) {
            // It was on its way into the guest: nothing has happened since.
            return Some(Stop::Kicked);
        }
        let bytes = self.components.bytes();
        let last = SIGNAL_STACK.end - bytes as u64;
        if !(SIGNAL_STACK.start..=last).contains(&frame.extended) {
            return None;
        }
        let image = self.area.bytes(self.slot, frame.extended, bytes);
        self.components.copy(image, extended);
        *registers = frame.registers(&report);
        if sent {
            return Some(Stop::Kicked);
        }
        Some(match signal {
            libc::SIGUSR1 => Stop::Kicked,
            libc::SIGSYS => system_call(&frame, registers),
            libc::SIGBUS if is_missing_memory(&frame) => Stop::NoMemory,
            // Not every SIGILL is #UD on the host (use of AMX is #NM), but there it would be; and
            // those that are not leave the number of an earlier exception behind.
            libc::SIGILL => plain_exception(&frame, INVALID_OPCODE),
            _ => exception(&frame)?,
        })
    }
}

/// Whether a SIGBUS is about a mapped page that the host cannot provide, and not about alignment or
/// the stack segment.
fn is_missing_memory(frame: &SignalFrame) -> bool {
    frame.exception().0 == PAGE_FAULT
}

fn system_call(frame: &SignalFrame, registers: &mut Registers) -> Stop {
    let (address, arch) = frame.call();
    if VSYSCALL.contains(&address) {
        // The host has emulated the return from the page that it will not execute: take it back.
        registers.rip = address;
        registers.general[4] = registers.general[4].wrapping_sub(8);
        return Stop::fetch_fault(address);
    }
    match arch {
        _ if is_reserved(frame.rip()) || frame.rip() >= USER_END => Stop::fetch_fault(frame.rip()),
        ARCH_X86_64 => Stop::SystemCall,
        _ => Stop::LegacyCall,
    }
}

fn plain_exception(frame: &SignalFrame, vector: u8) -> Stop {
    if is_reserved(frame.rip()) {
        return Stop::fetch_fault(frame.rip());
    }
    Stop::Exception { vector, error: 0, address: 0, single_step: false }
}

fn exception(frame: &SignalFrame) -> Option<Stop> {
    // The vsyscall page: whatever Linux holds against the call that it was about to emulate.
    if is_reserved(frame.rip()) || VSYSCALL.contains(&frame.rip()) {
        return Some(Stop::fetch_fault(frame.rip()));
    }
    let (trap, error, address) = frame.exception();
    if trap >= 32 || USER_VECTORS & 1 << trap == 0 {
        return None;
    }
    let error = match trap {
        PAGE_FAULT => error & PAGE_FAULT_ERRORS | 4,
        _ if SELECTOR_ERRORS & 1 << trap != 0 => error & 0xfffe,
        _ => 0,
    };
    Some(Stop::Exception {
        vector: trap as u8,
        error: error as u16,
        address: if trap == PAGE_FAULT { address } else { 0 },
        single_step: trap == DEBUG && frame.code() == TRAP_TRACE,
    })
}

const _: () = assert!(USER_VECTORS & 1 << GENERAL_PROTECTION != 0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_program_can_raise_is_an_exception() {
        let allowed: Vec<u32> = (0..32).filter(|vector| USER_VECTORS & 1 << vector != 0).collect();
        assert_eq!(allowed, [0, 1, 3, 4, 5, 6, 11, 12, 13, 14, 16, 17, 19]);
        let with_selector: Vec<u32> =
            (0..32).filter(|vector| SELECTOR_ERRORS & 1 << vector != 0).collect();
        assert_eq!(with_selector, [11, 12, 13]);
    }
}
