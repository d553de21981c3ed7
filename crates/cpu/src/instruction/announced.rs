//! Whether an instruction exists on the announced processor.
//!
//! iced's tables say what an instruction needs; [`crate::system::cpuid`] says what is announced.

use std::sync::OnceLock;

use iced_x86::{CpuidFeature, Instruction, Mnemonic};

/// Room for every [`CpuidFeature`].
const FEATURE_COUNT: usize = 256;

/// The set of announced features, by [`CpuidFeature`].
struct Announced([bool; FEATURE_COUNT]);

/// Which of iced's features the announced processor has. The host decides, once.
fn announced() -> &'static Announced {
    static SET: OnceLock<Announced> = OnceLock::new();
    SET.get_or_init(|| {
        let mut set = Announced([false; FEATURE_COUNT]);
        for feature in CpuidFeature::values() {
            set.0[feature as usize] = crate::system::cpuid::has(feature);
        }
        set
    })
}

/// Instructions whose opcodes are no-operations where their feature is missing, so that programs
/// execute them without asking: shadow-stack reads, bounds checks, cache-line demotion (SDM 2B
/// "RDSSPD", 1 appendix E).
pub(crate) fn is_no_operation_without_feature(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    let bounds = matches!(
        mnemonic,
        M::Bndcl | M::Bndcn | M::Bndcu | M::Bndldx | M::Bndmk | M::Bndmov | M::Bndstx
    );
    bounds || matches!(mnemonic, M::Rdsspd | M::Rdsspq | M::Cldemote)
}

/// Whether everything that an instruction needs is announced.
pub(crate) fn announces(instruction: &Instruction) -> bool {
    let set = announced();
    // A hypervisor is announced, and with it calls to it.
    let hypercall = matches!(instruction.mnemonic(), Mnemonic::Vmcall | Mnemonic::Vmmcall);
    if hypercall || is_no_operation_without_feature(instruction.mnemonic()) {
        return true;
    }
    instruction.cpuid_features().iter().all(|&feature| set.0[feature as usize])
}
