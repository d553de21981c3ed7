//! Running code on the host's CPU with the guest's registers: the trampoline, the signals that arrive
//! meanwhile, and the interpreter's call-outs, each of which executes one instruction.

pub(crate) mod call_out;
mod execute;
mod locked;
pub(crate) mod signals;
mod trampoline;

use crate::config::Error;
use crate::context::{CARRIED_COMPONENTS, Context, Reason};
use crate::state::rflags;
use crate::translate::host_code::HostCode;

/// Address of the trampoline's way out, for translated code to jump to.
pub(crate) fn leave_address() -> HostCode {
    HostCode(trampoline::bivouac_leave as *const () as u64)
}

/// The same for when RIP is right and no block is known for it ([`Reason::Lookup`]).
pub(crate) fn leave_unknown_address() -> HostCode {
    HostCode(trampoline::bivouac_leave_unknown as *const () as u64)
}

/// Remember what belongs to the calling thread and is changed while the processor runs.
pub(crate) fn note_host(context: &mut Context) {
    // SAFETY: reading the bases and MXCSR has no effect; FSGSBASE has been checked for.
    unsafe {
        std::arch::asm!(
            "rdfsbase {0}",
            "mov [{3}], {0}",
            "rdgsbase {0}",
            "mov [{2}], {0}",
            "stmxcsr [{1}]",
            out(reg) _,
            in(reg) &raw mut context.host_mxcsr,
            in(reg) &raw mut context.host_gs,
            in(reg) &raw mut context.host_fs,
            options(nostack, preserves_flags),
        );
    }
}

/// Put the host's GS base back.
pub(crate) fn restore_host(context: &Context) {
    // SAFETY: this is the base that the thread had in `note_host`.
    unsafe {
        let base = context.host_gs;
        std::arch::asm!("wrgsbase {}", in(reg) base, options(nostack, preserves_flags));
    }
}

/// Run translated code at host address `target` until it comes back; with the guest's x87 and
/// vector state in the host's registers from the start, if `vectors` says so.
///
/// # Safety
///
/// `target` must be the start of a call-out, the entry of a block, or a place in a block at which a
/// guest instruction starts, in the code cache of this context; in a call-out, or in the middle of a
/// block, that touches extended state `vectors` must be set. The calling thread must have been
/// prepared with [`signals::prepare_thread`] for this context, and noted with [`note_host`].
pub(crate) unsafe fn enter(context: &mut Context, target: HostCode, vectors: bool) -> Reason {
    context.vectors_wanted = u8::from(vectors);
    let native = context.regs.rflags() & rflags::NATIVE;
    context.native_flags = native | rflags::FIXED;
    // SAFETY: the caller vouches for the target; the trampoline preserves what the ABI asks for.
    unsafe { trampoline::bivouac_enter(context, target.0) };
    let flags = context.regs.rflags() & !rflags::NATIVE | context.native_flags & rflags::NATIVE;
    context.regs.set_rflags(flags);
    reason(context.reason)
}

fn reason(value: u32) -> Reason {
    const ALL: [Reason; 9] = [
        Reason::Done,
        Reason::Fault,
        Reason::Miss,
        Reason::Unlinked,
        Reason::Lookup,
        Reason::Interpret,
        Reason::Kicked,
        Reason::Assist,
        Reason::Call,
    ];
    ALL[value as usize]
}

/// Check that the host can run translated code; the components of extended state that the guest
/// can have.
///
/// # Errors
///
/// [`Error::MissingFeature`] names what is missing.
pub(crate) fn check_host() -> Result<u64, Error> {
    for (present, name) in [
        (std::is_x86_feature_detected!("bmi2"), "BMI2 (Haswell, Excavator or newer)"),
        (std::is_x86_feature_detected!("avx"), "AVX"),
        (std::is_x86_feature_detected!("xsaveopt"), "XSAVEOPT"),
        (has_fsgsbase(), "FSGSBASE for user mode (Linux 5.9 or newer)"),
    ] {
        if !present {
            return Err(Error::MissingFeature(name));
        }
    }
    Ok(enabled_components() & CARRIED_COMPONENTS)
}

/// The components of extended state that the host has switched on: its XCR0. Only after
/// [`check_host`].
pub(crate) fn enabled_components() -> u64 {
    // SAFETY: XSAVE is present, because AVX is, so XGETBV may be executed.
    unsafe { std::arch::x86_64::_xgetbv(0) }
}

/// Whether the kernel allows `wrfsbase` in user mode: bit 1 of AT_HWCAP2.
fn has_fsgsbase() -> bool {
    // SAFETY: getauxval has no preconditions.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & 2 != 0 }
}
