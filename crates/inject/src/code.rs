//! The code of the area: a loop that makes one call after the other, and the traps that end it.

use std::sync::LazyLock;

use iced_x86::code_asm::{CodeAssembler, CodeLabel, r8, r9, r10, r14, r15, rax, rdi, rdx, rsi};
use iced_x86::{BlockEncoderOptions, IcedError};

use crate::layout::STEP_BYTES;

/// An instruction that ends a script, by the signal that it raises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trap {
    /// `int3`.
    Trap,
    /// `ud2`.
    Illegal,
    /// `hlt`, which only the kernel may.
    Segment,
}

impl Trap {
    const ALL: [Self; 3] = [Self::Trap, Self::Illegal, Self::Segment];

    /// One whose signal is not among `unavailable` (bit 0 for signal 1): those that the process ignores, and those
    /// that wait for it.
    #[must_use]
    pub fn choose(unavailable: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|trap| unavailable & trap.bit() == 0)
    }

    /// Its signal.
    pub(crate) fn signal(self) -> u32 {
        let signal = match self {
            Self::Trap => libc::SIGTRAP,
            Self::Illegal => libc::SIGILL,
            Self::Segment => libc::SIGSEGV,
        };
        signal.cast_unsigned()
    }

    /// Its signal's bit in a mask.
    pub(crate) fn bit(self) -> u64 {
        1 << (self.signal() - 1)
    }
}

/// The code, and where it is entered.
#[derive(Debug)]
pub(crate) struct Code {
    pub bytes: Vec<u8>,
    /// Offset of the loop; it has the first step in R15 and the number of steps in R14.
    pub start: u64,
    /// Offsets of the traps, in the order of [`Trap::ALL`], and of what is behind each.
    traps: [(u64, u64); 3],
}

impl Code {
    /// The code of every area.
    pub fn get() -> &'static Self {
        static CODE: LazyLock<Code> =
            LazyLock::new(|| assemble().expect("the same code is assembled each time"));
        &CODE
    }

    /// Whether a task that has stopped at `offset` has come to the end.
    pub fn has_ended(&self, offset: u64, trap: Trap) -> bool {
        let (at, behind) = self.traps[trap as usize];
        offset == at || offset == behind
    }

    /// Where a script with that trap is entered.
    pub fn entry(trap: Trap) -> u64 {
        Self::get().start + trap as u64 * ENTRY_BYTES
    }
}

/// Bytes from one entry to the next: there is a copy of the loop for each trap.
const ENTRY_BYTES: u64 = 64;

fn assemble() -> Result<Code, IcedError> {
    let (mut bytes, mut traps) = (Vec::new(), [(0, 0); 3]);
    for (index, trap) in Trap::ALL.into_iter().enumerate() {
        let start = index as u64 * ENTRY_BYTES;
        bytes.resize(start as usize, 0xcc);
        let (body, trap_at) = assemble_loop(trap)?;
        traps[index] = (start + trap_at, start + body.len() as u64);
        bytes.extend(body);
    }
    assert!(bytes.len() as u64 <= 3 * ENTRY_BYTES, "an entry has room for the loop");
    Ok(Code { bytes, start: 0, traps })
}

/// The loop that ends with `trap`, and the trap's offset.
fn assemble_loop(trap: Trap) -> Result<(Vec<u8>, u64), IcedError> {
    let mut code = CodeAssembler::new(64)?;
    let mut again: CodeLabel = code.create_label();
    let mut end = code.create_label();
    code.set_label(&mut again)?;
    code.test(r14, r14)?;
    code.je(end)?;
    code.mov(rax, iced_x86::code_asm::qword_ptr(r15))?;
    for (number, register) in [rdi, rsi, rdx, r10, r8, r9].into_iter().enumerate() {
        code.mov(register, iced_x86::code_asm::qword_ptr(r15 + 8 * (number as i32 + 1)))?;
    }
    code.syscall()?;
    code.mov(iced_x86::code_asm::qword_ptr(r15 + 56), rax)?;
    code.add(r15, STEP_BYTES as i32)?;
    code.dec(r14)?;
    code.jmp(again)?;
    code.set_label(&mut end)?;
    match trap {
        Trap::Trap => code.int3()?,
        Trap::Illegal => code.ud2()?,
        Trap::Segment => code.hlt()?,
    }
    let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
    let result = code.assemble_options(0, options)?;
    let trap_at = result.inner.new_instruction_offsets.last().copied().unwrap_or(0);
    Ok((result.inner.code_buffer, trap_at.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trap_is_taken_whose_signal_is_free() {
        let trap = 1_u64 << (libc::SIGTRAP - 1);
        let illegal = 1_u64 << (libc::SIGILL - 1);
        let segment = 1_u64 << (libc::SIGSEGV - 1);
        assert_eq!(Trap::choose(0), Some(Trap::Trap));
        assert_eq!(Trap::choose(trap), Some(Trap::Illegal));
        assert_eq!(Trap::choose(trap | illegal), Some(Trap::Segment));
        assert_eq!(Trap::choose(trap | illegal | segment), None);
    }

    #[test]
    fn each_loop_has_its_place() {
        let code = Code::get();
        for trap in Trap::ALL {
            let entry = Code::entry(trap);
            assert!(code.traps[trap as usize].0 > entry);
            assert!(code.traps[trap as usize].1 <= entry + ENTRY_BYTES);
        }
    }
}
