//! Disagreements that are known and allowed, each for a reason.

use iced_x86::{Code, CpuidFeature, Mnemonic, OpCodeOperandKind};

use super::case::Outcome;
use super::engine::Setting;
use super::form::host_is_amd;

/// How a case ends that runs through: at an `int3`.
const BREAKPOINT: u32 = 3;
pub const INVALID_OPCODE: u32 = 6;
const GENERAL_PROTECTION: u32 = 13;
const PAGE_FAULT: u32 = 14;

/// What is not part of the comparison of this outcome.
#[derive(Default)]
pub struct Leniency {
    /// Only vector, RIP and general-purpose registers matter.
    pub partial: bool,
    /// Of CR2, only the page.
    pub page_only: bool,
    /// The eight bytes below the stack pointer do not matter.
    pub pushed: bool,
    /// Flags that the manual leaves undefined.
    pub flags: u64,
    /// Bits of the general-purpose registers that the manual leaves undefined.
    pub register_bits: u64,
    /// What memory holds does not matter.
    pub memory: bool,
    /// Of a page fault, neither the address nor the error code matters.
    pub address: bool,
    /// MXCSR does not matter.
    pub mxcsr: bool,
    /// The case is not compared any further.
    pub everything: bool,
}

/// Forms that are not executed at all, and why.
pub fn exempt(code: Code, setting: Setting) -> Option<&'static str> {
    use Mnemonic as M;
    if matches!(setting, Setting::Kernel | Setting::KernelOnUser) && depends_on_privilege(code) {
        return Some("means something else at CPL 0");
    }
    Some(match code.mnemonic() {
        M::Rdtsc | M::Rdtscp | M::Rdrand | M::Rdseed => "differs each time it is executed",
        M::Cpuid | M::Rdpid | M::Xgetbv => "tells what the machine is",
        M::Rdpmc | M::Rdpru => "counts",
        M::Syscall | M::Sysenter | M::Sysexit | M::Sysret | M::Sysexitq | M::Sysretq => {
            "calls the host's kernel"
        }
        M::Int if code == Code::Int_imm8 => "calls the host's kernel",
        M::Sgdt | M::Sidt | M::Sldt | M::Smsw | M::Str => "Linux emulates it for programs",
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
        _ if code == Code::INVALID => "not an instruction",
        _ => return None,
    })
}

/// Whether the engine never announces what the form needs, so that it is invalid to a guest even
/// where the host executes it.
pub fn is_never_announced(code: Code) -> bool {
    code.cpuid_features().iter().any(|feature| {
        use CpuidFeature as F;
        matches!(
            *feature,
            F::PKU
                | F::AMX_TILE
                | F::AMX_INT8
                | F::AMX_BF16
                | F::RTM
                | F::HLE_or_RTM
                | F::TSXLDTRK
                | F::SERIALIZE
                | F::ENQCMD
                | F::PTWRITE
                | F::TDX
                | F::HRESET
                | F::SGX1
        )
    })
}

/// Forms that CPL 0 executes and CPL 3 does not, or that show the level.
fn depends_on_privilege(code: Code) -> bool {
    use Mnemonic as M;
    let info = code.op_code();
    let segment = (0..info.op_count()).any(|operand| is_segment(info.op_kind(operand)));
    let mnemonic = matches!(
        code.mnemonic(),
        M::Popf
            | M::Popfd
            | M::Popfq
            | M::Pushf
            | M::Pushfd
            | M::Pushfq
            | M::Iret
            | M::Iretd
            | M::Iretq
            | M::Retf
            | M::Cli
            | M::Sti
            | M::Stac
            | M::Clac
            | M::Lss
            | M::Lfs
            | M::Lgs
            | M::Lar
            | M::Lsl
            | M::Verr
            | M::Verw
    );
    let far = code.is_jmp_far_indirect() || code.is_call_far_indirect();
    segment || mnemonic || far || info.is_privileged() || info.is_input_output()
}

/// What is allowed to differ in this outcome.
pub fn leniency(code: Code, native: &Outcome, engine: &Outcome) -> Leniency {
    use Mnemonic as M;
    let name = format!("{code:?}").to_lowercase();
    let faulted = matches!(native.vector, 12..=PAGE_FAULT);
    let alike = native.vector == engine.vector && native.rip == engine.rip;
    let mut allowed = Leniency::default();
    match code.mnemonic() {
        // Hardware may have moved some elements before one faults, and the rest of the destination
        // is what it likes (SDM 1 15.6.4, 2C "VPGATHERDD").
        _ if faulted && (name.contains("gather") || name.contains("scatter")) => {
            allowed.partial = alike;
        }
        // With nothing to store, a fault of the operand is the processor's choice (SDM 2B
        // "MASKMOVDQU"); one that has happened may have left the x87 stack as `maskmovq` wants it.
        M::Maskmovdqu | M::Vmaskmovdqu | M::Maskmovq if native.vector != engine.vector => {
            allowed.everything = native.vector == PAGE_FAULT || engine.vector == PAGE_FAULT;
        }
        M::Maskmovq if faulted => allowed.partial = alike,
        // The host's microcode loads some registers before it faults.
        M::Popa | M::Popad if faulted => allowed.everything = alike,
        // Several accesses, or one that is made in parts: any address of the operand may be the
        // one that is reported.
        M::Retf
        | M::Fnsave
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
        M::Call if code.is_call_far() => allowed.page_only = true,
        // Translated calls find out that their target is not canonical when they have pushed.
        M::Call => allowed.pushed = native.vector == GENERAL_PROTECTION,
        M::Aaa | M::Aas => allowed.flags = 0x8c4,
        M::Aad | M::Aam => allowed.flags = 0x811,
        M::Daa | M::Das => allowed.flags = 0x800,
        _ => {}
    }
    if !host_is_amd() {
        choices(code, native, engine, &mut allowed);
    }
    allowed
}

/// What the manuals leave to the processor, and the engine does as AMD's do: the order of two
/// faults at once, which byte of an operand is reported, whether an element that the mask leaves
/// out suppresses the fault of an operand that is no vector of such elements, and what a store has
/// done to the rest of the state when it faults.
fn choices(code: Code, native: &Outcome, engine: &Outcome, allowed: &mut Leniency) {
    use Mnemonic as M;
    allowed.page_only = true;
    let (host, ours) = (native.vector, engine.vector);
    let faulted = host == ours && matches!(host, 12..=PAGE_FAULT);
    let info = code.op_code();
    if faulted && code.is_string_instruction() {
        // Which operand faults first; and whether the upper halves of registers that are counted
        // in 32 bits survive.
        allowed.address = true;
        allowed.register_bits = !0xffff_ffff;
    }
    match code.mnemonic() {
        M::Pop | M::Arpl | M::Call | M::Retf | M::Leave | M::Enter | M::Bound | M::Vcvtps2ph
            if host != ours =>
        {
            allowed.everything |= matches!(ours, 12..=PAGE_FAULT);
        }
        // Intel's restore the flags of before the first round (SDM 2B "REP").
        M::Cmpsb | M::Cmpsw | M::Cmpsd | M::Cmpsq | M::Scasb | M::Scasw | M::Scasd | M::Scasq
            if faulted =>
        {
            allowed.flags |= 0x8d5;
        }
        // The exceptions of the conversion are flagged before the store faults.
        M::Vcvtps2ph if faulted => allowed.mxcsr = true,
        // The x87 stack is as MMX wants it before the store faults.
        M::Movd | M::Movq | M::Movntq
            if faulted && info.op_kind(1) == OpCodeOperandKind::mm_reg =>
        {
            allowed.partial = true;
        }
        M::Maskmovdqu | M::Vmaskmovdqu | M::Fxsave | M::Fxsave64 if faulted => {
            allowed.address = true;
        }
        // Which components are in their initial state, and not stored, is for the processor to say
        // (SDM 1 13.6); the parts are stored in any order.
        M::Xsave | M::Xsave64 | M::Xsavec | M::Xsavec64 | M::Xsaveopt | M::Xsaveopt64 => {
            allowed.memory = true;
            allowed.address = faulted;
            allowed.everything |= host != ours && matches!(ours, BREAKPOINT | PAGE_FAULT);
        }
        // With an unmasked exception pending there is nothing to store, and nothing to fault.
        M::Fist | M::Fistp | M::Fisttp | M::Fst | M::Fstp | M::Fbstp
            if matches!(ours, 12..=PAGE_FAULT) && native.rip != engine.rip =>
        {
            allowed.everything = true;
        }
        // A store in two parts, one of which is done when the other faults.
        M::Fstp | M::Fbstp if faulted => allowed.memory = true,
        // Bits 19 to 16 (SDM 2A "LAR").
        M::Lar => allowed.register_bits = 0xf_0000,
        // A selector may be stored alone, and the rest of its place kept (SDM 2B "PUSH").
        M::Push if info.op_count() == 1 && is_segment(info.op_kind(0)) => allowed.memory = true,
        _ => {}
    }
    if info.can_use_op_mask_register() {
        let suppressed = (host == PAGE_FAULT) != (ours == PAGE_FAULT)
            && (host == BREAKPOINT || ours == BREAKPOINT);
        allowed.everything |= suppressed;
    }
    let both = (host == GENERAL_PROTECTION && ours == PAGE_FAULT)
        || (host == PAGE_FAULT && ours == GENERAL_PROTECTION);
    allowed.everything |= both && native.rip == engine.rip;
}

fn is_segment(kind: OpCodeOperandKind) -> bool {
    use OpCodeOperandKind as K;
    matches!(kind, K::seg_reg | K::es | K::cs | K::ss | K::ds | K::fs | K::gs)
}
