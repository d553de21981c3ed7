//! Whether an instruction exists on the announced processor, and whether the mode allows it.
//!
//! Default deny: an instruction executes only if CPUID announces everything it needs. iced's tables
//! say what that is; [`crate::system::cpuid`] says what is announced.

use iced_x86::{CpuidFeature, EncodingKind, Instruction, Mnemonic, OpKind, Register};

use crate::architectural::Architectural;
use crate::exception::{Exception, Vector};
use crate::instruction::announces;
use crate::state::{cr0, cr4};

/// Extended state that AVX needs: SSE and AVX (SDM 1 14.3).
const AVX_STATE: u64 = 0x6;

/// Extended state that AVX-512 needs: opmask, ZMM_Hi256 and Hi16_ZMM besides (SDM 1 15.2).
const AVX512_STATE: u64 = 0xe6;

/// What may make an instruction unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// General-purpose registers only.
    Integer,
    /// General-purpose registers, VEX encoded.
    VexInteger,
    X87,
    Wait,
    Mmx,
    Sse,
    Avx,
    Avx512,
}

fn unit(instruction: &Instruction) -> Unit {
    let uses = |test: fn(Register) -> bool| {
        (0..instruction.op_count()).any(|operand| {
            instruction.op_kind(operand) == OpKind::Register
                && test(instruction.op_register(operand))
        })
    };
    match instruction.encoding() {
        EncodingKind::Legacy | EncodingKind::D3NOW => {}
        EncodingKind::EVEX => return Unit::Avx512,
        _ if uses(Register::is_k) => return Unit::Avx512,
        _ if is_vex_integer(instruction) => return Unit::VexInteger,
        _ => return Unit::Avx,
    }
    if matches!(instruction.mnemonic(), Mnemonic::Wait) {
        Unit::Wait
    } else if uses(Register::is_xmm)
        || matches!(instruction.mnemonic(), Mnemonic::Ldmxcsr | Mnemonic::Stmxcsr)
    {
        Unit::Sse
    } else if uses(Register::is_mm) || instruction.mnemonic() == Mnemonic::Emms {
        Unit::Mmx
    } else if instruction.cpuid_features().iter().any(|feature| {
        use CpuidFeature::{FPU, FPU287, FPU387};
        matches!(*feature, FPU | FPU287 | FPU387)
    }) || matches!(instruction.mnemonic(), Mnemonic::Fisttp)
    {
        Unit::X87
    } else {
        Unit::Integer
    }
}

/// VEX-encoded instructions on general-purpose registers (SDM 2A 2.6.2, exception type 13).
fn is_vex_integer(instruction: &Instruction) -> bool {
    instruction
        .cpuid_features()
        .iter()
        .any(|feature| matches!(feature, CpuidFeature::BMI1 | CpuidFeature::BMI2))
}

impl Architectural {
    /// Whether the processor has an instruction and the mode allows it.
    ///
    /// # Errors
    ///
    /// #UD or #NM (SDM 2A 2.4 and 2.7, 3A tables 9-2 and 13-1).
    pub(crate) fn check_available(&self, instruction: &Instruction) -> Result<(), Exception> {
        if !announces(instruction) {
            return Err(Exception::invalid_opcode());
        }
        let unit = unit(instruction);
        if unit == Unit::Integer {
            return Ok(());
        }
        let regs = &self.context.regs;
        let emulated = regs.cr0 & cr0::EM != 0;
        let switched = regs.cr0 & cr0::TS != 0;
        let enabled = |state| regs.cr4 & cr4::OSXSAVE != 0 && regs.xcr0 & state == state;
        let exists = match unit {
            Unit::Integer | Unit::X87 | Unit::Wait => true,
            Unit::VexInteger => !regs.real_or_v86(),
            Unit::Mmx => !emulated,
            Unit::Sse => !emulated && regs.cr4 & cr4::OSFXSR != 0,
            Unit::Avx => !regs.real_or_v86() && enabled(AVX_STATE),
            Unit::Avx512 => !regs.real_or_v86() && enabled(AVX512_STATE),
        };
        if !exists {
            return Err(Exception::invalid_opcode());
        }
        let trapped = match unit {
            Unit::VexInteger => false,
            Unit::X87 => emulated || switched,
            Unit::Wait => switched && regs.cr0 & cr0::MP != 0,
            _ => switched,
        };
        if trapped {
            return Err(Exception::plain(Vector::DeviceNotAvailable));
        }
        Ok(())
    }
}
