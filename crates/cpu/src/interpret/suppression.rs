//! Which instructions suppress faults of elements that the mask leaves out. Most do; those whose
//! exception type ends in NF do not (SDM 2A 2.8, tables 2-46 to 2-62).

use iced_x86::{Instruction, Mnemonic, OpKind};

/// Whether faults of elements that the mask leaves out are suppressed.
pub(super) fn suppresses_faults(instruction: &Instruction) -> bool {
    !rearranges(instruction.mnemonic()) && !has_shift_count(instruction)
}

/// A part of a register, put in or taken out.
fn is_part(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Vinsertf32x4
            | M::Vinsertf32x8
            | M::Vinsertf64x2
            | M::Vinsertf64x4
            | M::Vinserti32x4
            | M::Vinserti32x8
            | M::Vinserti64x2
            | M::Vinserti64x4
            | M::Vextractf32x4
            | M::Vextractf32x8
            | M::Vextractf64x2
            | M::Vextractf64x4
            | M::Vextracti32x4
            | M::Vextracti32x8
            | M::Vextracti64x2
            | M::Vextracti64x4
            | M::Vcvtne2ps2bf16
    )
}

/// Instructions that put one memory operand into several places of a register.
pub(super) fn is_spread(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Vbroadcastss
            | M::Vbroadcastsd
            | M::Vpbroadcastb
            | M::Vpbroadcastw
            | M::Vpbroadcastd
            | M::Vpbroadcastq
            | M::Vbroadcastf32x2
            | M::Vbroadcastf32x4
            | M::Vbroadcastf32x8
            | M::Vbroadcastf64x2
            | M::Vbroadcastf64x4
            | M::Vbroadcasti32x2
            | M::Vbroadcasti32x4
            | M::Vbroadcasti32x8
            | M::Vbroadcasti64x2
            | M::Vbroadcasti64x4
    )
}

/// Instructions whose result elements come from other elements of the memory operand. Faults of
/// their operand are not suppressed (SDM 2A table 2-49 and on, exception types "NF").
fn rearranges(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    let permutes = matches!(
        mnemonic,
        M::Vpermb
            | M::Vpermw
            | M::Vpermd
            | M::Vpermq
            | M::Vpermps
            | M::Vpermpd
            | M::Vpermi2b
            | M::Vpermi2w
            | M::Vpermi2d
            | M::Vpermi2q
            | M::Vpermi2ps
            | M::Vpermi2pd
            | M::Vpermt2b
            | M::Vpermt2w
            | M::Vpermt2d
            | M::Vpermt2q
            | M::Vpermt2ps
            | M::Vpermt2pd
            | M::Vpermilps
            | M::Vpermilpd
            | M::Valignd
            | M::Valignq
            | M::Vpalignr
    );
    let shuffles = matches!(
        mnemonic,
        M::Vpshufb
            | M::Vpshufd
            | M::Vpshufhw
            | M::Vpshuflw
            | M::Vshufps
            | M::Vshufpd
            | M::Vshuff32x4
            | M::Vshuff64x2
            | M::Vshufi32x4
            | M::Vshufi64x2
            | M::Vmovddup
            | M::Vmovshdup
            | M::Vmovsldup
            | M::Vpmultishiftqb
            | M::Vdbpsadbw
            | M::Vpconflictd
            | M::Vpconflictq
            | M::Vpmaddwd
            | M::Vpmaddubsw
            | M::Vgf2p8affineqb
            | M::Vgf2p8affineinvqb
    );
    let packs = matches!(
        mnemonic,
        M::Vpacksswb
            | M::Vpackssdw
            | M::Vpackuswb
            | M::Vpackusdw
            | M::Vpunpcklbw
            | M::Vpunpcklwd
            | M::Vpunpckldq
            | M::Vpunpcklqdq
            | M::Vpunpckhbw
            | M::Vpunpckhwd
            | M::Vpunpckhdq
            | M::Vpunpckhqdq
            | M::Vunpcklps
            | M::Vunpcklpd
            | M::Vunpckhps
            | M::Vunpckhpd
    );
    permutes || shuffles || packs || is_part(mnemonic)
}

/// A shift of all elements by one count in memory, whose faults are not suppressed either.
fn has_shift_count(instruction: &Instruction) -> bool {
    use Mnemonic as M;
    let shifts = matches!(
        instruction.mnemonic(),
        M::Vpsllw
            | M::Vpslld
            | M::Vpsllq
            | M::Vpsrlw
            | M::Vpsrld
            | M::Vpsrlq
            | M::Vpsraw
            | M::Vpsrad
            | M::Vpsraq
    );
    shifts && instruction.op2_kind() == OpKind::Memory
}
