//! Alignment of explicit memory operands: what #GP(0) and #AC(0) are raised for, before anything is
//! known of the pages (SDM 1 4.1.1, 3A table 6-7; 2A 2.4, exception types 1 and 2).

use iced_x86::{EncodingKind, Instruction, Mnemonic};

use super::operand::gp0;
use crate::architectural::Architectural;
use crate::exception::Trap;
use crate::memory::{Access, Linear};

/// MXCSR.MM: SSE instructions that are not moves take misaligned operands (APM 1 4.2.2).
const MISALIGNED_MODE: u32 = 1 << 17;

/// Moves whose operand must be aligned, in any encoding.
fn is_aligned_move(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    let legacy = matches!(
        mnemonic,
        M::Movaps | M::Movapd | M::Movdqa | M::Movntps | M::Movntpd | M::Movntdq | M::Movntdqa
    );
    let vector = matches!(
        mnemonic,
        M::Vmovaps
            | M::Vmovapd
            | M::Vmovdqa
            | M::Vmovdqa32
            | M::Vmovdqa64
            | M::Vmovntps
            | M::Vmovntpd
            | M::Vmovntdq
            | M::Vmovntdqa
    );
    legacy || vector
}

/// SSE instructions with an operand of 16 bytes that need not be aligned.
fn takes_misaligned(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    let moves = matches!(mnemonic, M::Movups | M::Movupd | M::Movdqu | M::Lddqu);
    let strings = matches!(
        mnemonic,
        M::Pcmpestri | M::Pcmpestrm | M::Pcmpistri | M::Pcmpistrm | M::Pcmpestri64 | M::Pcmpestrm64
    );
    moves || strings
}

/// The SHA extensions, whose operands need not be aligned with AMD (the others' exception type 4
/// applies with Intel: SDM 2B "SHA256RNDS2").
fn hashes(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Sha1msg1
            | M::Sha1msg2
            | M::Sha1nexte
            | M::Sha1rnds4
            | M::Sha256msg1
            | M::Sha256msg2
            | M::Sha256rnds2
    )
}

impl Architectural {
    /// What #GP(0) is raised for when the operand is not aligned to it; 1 for anything else.
    fn wanted_alignment(&self, instruction: &Instruction, size: usize) -> u64 {
        let mnemonic = instruction.mnemonic();
        let wanted = match instruction.encoding() {
            _ if is_aligned_move(mnemonic) => true,
            EncodingKind::Legacy if size == 16 => match mnemonic {
                Mnemonic::Cmpxchg16b => true,
                _ if takes_misaligned(mnemonic) => false,
                _ if hashes(mnemonic) && self.system.is_amd() => false,
                _ => {
                    let vector = (0..instruction.op_count())
                        .map(|operand| instruction.op_register(operand))
                        .any(|register| register.is_xmm() || register.is_mm());
                    vector && self.mxcsr() & MISALIGNED_MODE == 0
                }
            },
            _ => false,
        };
        if wanted { size as u64 } else { 1 }
    }

    /// The faults of a misaligned operand of `size` bytes.
    ///
    /// # Errors
    ///
    /// #GP(0), or #AC(0) where alignment is checked (CPL 3, EFLAGS.AC, CR0.AM). Vector operands
    /// without rules of their own are not checked.
    pub(super) fn check_alignment(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let Some(operand) = crate::instruction::memory_use(&mut self.info_factory, instruction)
        else {
            return Ok(());
        };
        let wanted = self.wanted_alignment(instruction, operand.size);
        let checked = self.alignment_is_checked();
        if wanted == 1 && !checked {
            return Ok(());
        }
        let at = self.operand_linear(instruction, operand.size as u32, Access::Read)?;
        self.require_natural(at, wanted)?;
        if !checked {
            return Ok(());
        }
        let wanted = match operand.size {
            2 => 2,
            4 => 4,
            8 | 10 => 8,
            14 => 2,
            28 | 94 | 108 => 4,
            _ => return Ok(()),
        };
        self.require_alignment(at, wanted)
    }

    fn require_natural(&self, at: Linear, wanted: u64) -> Result<(), Trap> {
        if at.0.is_multiple_of(wanted) { Ok(()) } else { Err(gp0()) }
    }
}
