//! Disagreements that are known and allowed, each for a reason.

use iced_x86::{Code, Mnemonic};

use super::case::Outcome;

const GENERAL_PROTECTION: u32 = 13;
const PAGE_FAULT: u32 = 14;

/// What is not part of the comparison of this outcome.
#[derive(Default)]
pub struct Leniency {
    /// Only vector, RIP and general-purpose registers matter.
    pub partial: bool,
    /// Of CR2, only the page.
    pub page_only: bool,
    /// Flags that the manual leaves undefined.
    pub flags: u64,
    /// The case is not compared any further.
    pub everything: bool,
}

/// Forms that are not executed at all, and why.
pub fn exempt(code: Code, bits: u32) -> Option<&'static str> {
    use Mnemonic as M;
    Some(match code.mnemonic() {
        M::Rdtsc | M::Rdtscp | M::Rdrand | M::Rdseed => "differs each time it is executed",
        M::Cpuid | M::Rdpid | M::Xgetbv => "tells what the machine is",
        M::Rdpmc | M::Rdpru => "counts",
        M::Syscall | M::Sysenter | M::Sysexit | M::Sysret | M::Sysexitq | M::Sysretq => {
            "calls the host's kernel"
        }
        M::Int if code == Code::Int_imm8 => "calls the host's kernel",
        M::Sgdt | M::Sidt | M::Sldt | M::Smsw | M::Str => "Linux emulates it for programs",
        M::Lar | M::Lsl | M::Verr | M::Verw => "reads the host's descriptor table",
        M::Xsave | M::Xsave64 | M::Xsaveopt | M::Xsaveopt64 | M::Xsavec | M::Xsavec64 => {
            "tells which components are in use"
        }
        M::Monitorx | M::Mwaitx | M::Umonitor | M::Umwait | M::Tpause => "waits",
        M::Vmcall | M::Vmmcall | M::Vmgexit => "calls the host's hypervisor",
        M::Vmload | M::Vmrun | M::Vmsave | M::Clgi | M::Stgi | M::Skinit | M::Invlpga => {
            "the engine does not announce SVM"
        }
        M::Clzero
        | M::Movdiri
        | M::Movdir64b
        | M::Pvalidate
        | M::Xsaves
        | M::Xsaves64
        | M::Xrstors
        | M::Xrstors64 => "the engine does not announce it",
        M::Int1 => "the host's hypervisor reports another RIP than hardware",
        M::Prefetch | M::Reservednop if format!("{code:?}").ends_with("0F0D") => {
            "#UD with AMD, a no-operation with Intel"
        }
        M::Call | M::Jmp | M::Lfs | M::Lgs | M::Lss if format!("{code:?}").ends_with("m1664") => {
            "AMD ignores REX.W: 16:32"
        }
        M::Vzeroall | M::Vzeroupper | M::Xrstor if bits == 32 => {
            "outside 64-bit mode it leaves the registers that only 64-bit mode can name"
        }
        _ if code == Code::INVALID => "not an instruction",
        _ => return None,
    })
}

/// What is allowed to differ in this outcome.
pub fn leniency(code: Code, native: &Outcome, engine: &Outcome) -> Leniency {
    use Mnemonic as M;
    let name = format!("{code:?}").to_lowercase();
    let faulted = matches!(native.vector, 12..=PAGE_FAULT);
    let mut allowed = Leniency::default();
    match code.mnemonic() {
        // Hardware may have moved some elements before one faults (SDM 1 15.6.4).
        _ if faulted && (name.contains("gather") || name.contains("scatter")) => {
            allowed.partial = true;
            allowed.everything = native.vector != engine.vector;
        }
        M::Maskmovdqu | M::Vmaskmovdqu if native.vector != engine.vector => {
            allowed.everything = true;
        }
        // A selector of the host's own, a write that is not needed, and two faults at once.
        M::Pop | M::Arpl | M::Call if native.vector != engine.vector => {
            allowed.everything = matches!(engine.vector, 12..=14);
        }
        M::Maskmovq | M::Maskmovdqu | M::Vmaskmovdqu if faulted => allowed.partial = true,
        // The host's microcode loads some registers before it faults.
        M::Popa | M::Popad if faulted => allowed.everything = true,
        // Which of several accesses is made, and checked, first.
        M::Retf if faulted => allowed.everything = engine.vector >= 12 && engine.vector <= 14,
        M::Call if code.is_call_far() => allowed.page_only = true,
        M::Fnsave
        | M::Fxsave
        | M::Fxsave64
        | M::Fxrstor
        | M::Fxrstor64
        | M::Iret
        | M::Iretd
        | M::Iretq
        | M::Pusha
        | M::Pushad
        | M::Fnstenv
        | M::Fldenv
        | M::Frstor
        | M::Xrstor
        | M::Xrstor64
        | M::Enter => allowed.page_only = true,
        // Translated jumps find out at their target.
        M::Call | M::Jmp | M::Ret if native.vector == GENERAL_PROTECTION => {
            allowed.everything = engine.vector == GENERAL_PROTECTION;
        }
        M::Aaa | M::Aas => allowed.flags = 0x8c4,
        M::Aad | M::Aam => allowed.flags = 0x811,
        M::Daa | M::Das => allowed.flags = 0x800,
        _ => {}
    }
    if code.op_code().can_use_op_mask_register() {
        // Whether an element that the mask leaves out suppresses the fault of an operand that is
        // no vector of such elements varies among processors; the result does not.
        allowed.page_only = true;
        allowed.everything |= native.vector == PAGE_FAULT
            && (engine.vector == 3 || engine.vector == PAGE_FAULT && native.cr2 != engine.cr2);
        allowed.everything |= engine.vector == PAGE_FAULT && native.vector == 3;
    }
    // Misaligned and absent at the same time: the engine looks for the page first.
    allowed.everything |= native.vector == GENERAL_PROTECTION
        && engine.vector == PAGE_FAULT
        && native.rip == engine.rip;
    allowed
}
