//! Pages with instructions that must not run natively.
//!
//! Most instructions whose result the guest decides fault in a helper. These do not, and would say
//! something about the host: CPUID (where the host cannot make it fault), RDPID and RDTSCP, which
//! give the number of the host's processor, and LSL of a register, by which Linux's vdso learns the
//! same. A page that has the bytes of one anywhere is never executable in a helper; a thread that
//! comes to it is translated for a while.
//!
//! Most places where such bytes are found are in the middle of something else, an address or a
//! constant, and with all of them a twentieth of a compiler's pages would be left out. So what
//! surrounds the bytes is decoded, from several places before them: decoding falls into step with the
//! code after a few instructions. A page is taken as harmless where most attempts step over the bytes.
//!
//! Who jumps into the middle of an instruction, has one of these cross the end of a page, or writes
//! it into a page that is executable at the same time, learns the truth about the host's processor,
//! and nothing more.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};

/// Bytes before a suspicious place from which on it is decoded, and places where that begins.
const LEAD_BYTES: usize = 64;
const ATTEMPTS: usize = 15;

/// What to look for beside what every host lets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Forbidden {
    /// CPUID does not fault in a helper.
    pub(crate) cpuid: bool,
}

impl Forbidden {
    /// Whether these bytes, a page, seem to have an instruction that must not run natively.
    pub(crate) fn is_in(self, page: &[u8]) -> bool {
        let escapes = memchr::memchr_iter(0x0f, page);
        escapes.filter(|&at| self.may_be(&page[at + 1..])).any(|at| self.is_at(page, at))
    }

    /// Whether what follows the byte 0x0f may be the rest of a forbidden opcode.
    fn may_be(self, rest: &[u8]) -> bool {
        match *rest {
            [0xa2, ..] => self.cpuid,
            [0x01, 0xf9, ..] => true,
            [0x03, form, ..] => form >= 0xc0,
            [0xc7, form, ..] => form >= 0xf8,
            _ => false,
        }
    }

    /// Whether most attempts at decoding find a forbidden instruction with its opcode at `at`.
    fn is_at(self, page: &[u8], at: usize) -> bool {
        let first = at.saturating_sub(LEAD_BYTES + ATTEMPTS);
        let starts = first..(first + ATTEMPTS).min(at + 1);
        let attempts = starts.len();
        let found = starts.filter(|&start| self.is_found_from(page, start, at)).count();
        // At the beginning of a page there is not enough to fall into step with.
        if at < LEAD_BYTES { found > 0 } else { 2 * found >= attempts }
    }

    fn is_found_from(self, page: &[u8], start: usize, at: usize) -> bool {
        let mut decoder = Decoder::with_ip(64, &page[start..], 0, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            if start + decoder.position() > at {
                return self.is(instruction.mnemonic());
            }
        }
        false
    }

    fn is(self, mnemonic: Mnemonic) -> bool {
        match mnemonic {
            Mnemonic::Cpuid => self.cpuid,
            mnemonic => {
                matches!(mnemonic, Mnemonic::Rdpid | Mnemonic::Rdtscp | Mnemonic::Lsl)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERYTHING: Forbidden = Forbidden { cpuid: true };

    #[test]
    fn forbidden_instructions_are_found_anywhere() {
        let cpuid = [0x0f, 0xa2];
        let rdtscp = [0x0f, 0x01, 0xf9];
        let rdpid = [0xf3, 0x0f, 0xc7, 0xf8];
        let long_rdpid = [0xf3, 0x41, 0x0f, 0xc7, 0xff];
        let lsl = [0x0f, 0x03, 0xc0];
        let all: [&[u8]; 5] = [&cpuid, &rdtscp, &rdpid, &long_rdpid, &lsl];
        for bytes in all {
            for at in [0, 77, 4096 - bytes.len()] {
                let mut page = [0x90; 4096];
                page[at..at + bytes.len()].copy_from_slice(bytes);
                assert!(EVERYTHING.is_in(&page), "{bytes:x?} at {at}");
            }
        }
    }

    #[test]
    fn bytes_within_other_instructions_do_not_count() {
        // mov eax, 0xa20f0fa2; mov [rip + 0xfa20f], eax
        let code = [0xb8, 0xa2, 0x0f, 0x0f, 0xa2, 0x89, 0x05, 0x0f, 0xa2, 0x0f, 0x00];
        for at in [0, 500, 4000] {
            let mut page = [0x90; 4096];
            page[at..at + code.len()].copy_from_slice(&code);
            assert!(at == 0 || !EVERYTHING.is_in(&page), "at {at}");
        }
    }

    #[test]
    fn other_instructions_do_not() {
        // jz, rdtsc, rdrand, lsl from memory, cmpxchg8b.
        let code =
            [0x0f, 0x84, 0, 0x0f, 0x31, 0x0f, 0xc7, 0xf0, 0x0f, 0x03, 0x00, 0x0f, 0xc7, 0x08];
        let mut page = [0x90; 4096];
        page[..code.len()].copy_from_slice(&code);
        assert!(!EVERYTHING.is_in(&page));
        page[200..202].copy_from_slice(&[0x0f, 0xa2]);
        assert!(!Forbidden { cpuid: false }.is_in(&page));
    }
}
