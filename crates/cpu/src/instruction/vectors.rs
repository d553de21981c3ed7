//! Which instructions touch x87 or vector state.

use iced_x86::{CpuidFeature, Instruction, Mnemonic};

/// Whether an instruction works on general-purpose registers only, so that no control bit can
/// make it fault.
pub(crate) fn is_integer(instruction: &Instruction) -> bool {
    // `fwait` is as old as the processor, but obeys CR0.MP and CR0.TS.
    instruction.mnemonic() != Mnemonic::Wait
        && instruction.cpuid_features().iter().all(|feature| {
            matches!(
                feature,
                CpuidFeature::INTEL8086
                    | CpuidFeature::INTEL8086_ONLY
                    | CpuidFeature::INTEL186
                    | CpuidFeature::INTEL286
                    | CpuidFeature::INTEL386
                    | CpuidFeature::INTEL486
                    | CpuidFeature::X64
                    | CpuidFeature::CMOV
                    | CpuidFeature::CX8
                    | CpuidFeature::CMPXCHG16B
                    | CpuidFeature::MULTIBYTENOP
                    | CpuidFeature::PAUSE
                    | CpuidFeature::POPCNT
                    | CpuidFeature::LZCNT
                    | CpuidFeature::BMI1
                    | CpuidFeature::BMI2
                    | CpuidFeature::ADX
                    | CpuidFeature::MOVBE
                    | CpuidFeature::RDRAND
                    | CpuidFeature::RDSEED
                    | CpuidFeature::CLFSH
                    | CpuidFeature::CLFLUSHOPT
                    | CpuidFeature::CLWB
                    | CpuidFeature::CET_IBT
                    | CpuidFeature::CET_SS
            )
        })
}

/// Whether an instruction that is copied reads or changes x87 or vector state.
pub(crate) fn touches_vectors(instruction: &Instruction) -> bool {
    let only_memory = matches!(
        instruction.mnemonic(),
        Mnemonic::Lfence | Mnemonic::Sfence | Mnemonic::Mfence | Mnemonic::Movnti | Mnemonic::Crc32
    );
    !only_memory && !is_integer(instruction)
}
