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
//! Where the translator knows how the program runs through such a page, a helper can have a copy of it
//! instead, in which these instructions fault ([`Forbidden::defused`], copies.rs).
//!
//! A program that jumps into the middle of an instruction, has one of these cross the end of a page, or writes
//! one into a page that is executable at the same time, reads the values of the host's processor,
//! and nothing more.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

use crate::memory::PAGE_SIZE;

const PAGE_BYTES: usize = PAGE_SIZE as usize;

/// Bytes before a suspicious place from which on it is decoded, and places where that begins.
const LEAD_BYTES: usize = 64;
const ATTEMPTS: usize = 15;

/// What takes the place of a forbidden instruction's opcode in a copy of its page, after prefixes
/// that mean nothing to it: HLT, which faults in user code.
const HLT: u8 = 0xf4;

/// What to look for beside what every host lets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Forbidden {
    /// CPUID does not fault in a helper.
    pub(crate) cpuid: bool,
}

/// Bytes in which an opcode is looked for at once.
const CHUNK_BYTES: usize = 16;

/// Whether the first two bytes of an opcode that may be forbidden start in any but the last of these bytes.
fn has_opcode(bytes: &[u8; CHUNK_BYTES + 1]) -> bool {
    use std::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_or_si128,
        _mm_set1_epi8,
    };
    let load = |from: usize| {
        let place = bytes[from..from + CHUNK_BYTES].as_ptr().cast::<__m128i>();
        // SAFETY: sixteen bytes of the slice; SSE2 is part of the architecture.
        unsafe { _mm_loadu_si128(place) }
    };
    let (first, second) = (load(0), load(1));
    // SAFETY: SSE2, likewise.
    unsafe {
        let is = |byte: u8| _mm_cmpeq_epi8(second, _mm_set1_epi8(byte.cast_signed()));
        let escape = _mm_cmpeq_epi8(first, _mm_set1_epi8(0x0f));
        let [cpuid, rdtscp, lsl, rdpid] = [0xa2, 0x01, 0x03, 0xc7].map(is);
        let any = _mm_or_si128(_mm_or_si128(cpuid, rdtscp), _mm_or_si128(lsl, rdpid));
        _mm_movemask_epi8(_mm_and_si128(escape, any)) != 0
    }
}

impl Forbidden {
    /// Whether these bytes, a page, seem to have an instruction that must not run natively.
    pub(crate) fn is_in(self, page: &[u8]) -> bool {
        // A page has a hundred of these bytes and next to none of the opcodes: pairs are looked for by 16.
        let mut at = 0;
        while let Some(chunk) = page.get(at..at + CHUNK_BYTES + 1) {
            if has_opcode(chunk.try_into().expect("it has this length")) && self.is_near(page, at) {
                return true;
            }
            at += CHUNK_BYTES;
        }
        self.is_near(page, at)
    }

    /// The same for opcodes that start within [`CHUNK_BYTES`] from `start` on.
    fn is_near(self, page: &[u8], start: usize) -> bool {
        let end = (start + CHUNK_BYTES).min(page.len());
        let escapes = memchr::memchr_iter(0x0f, &page[start..end]).map(|at| start + at);
        escapes.into_iter().any(|at| self.may_be(&page[at + 1..]) && self.is_at(page, at))
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

    /// A copy of a page in which every forbidden instruction faults, if it is certain where they are.
    /// `starts` are offsets at which instructions are known to start, because the program has come
    /// there; from these, direct control flow is followed through the page. There is no copy if
    /// anything in the page seems to be forbidden that is not reached so: what is taken for an
    /// instruction might be data.
    pub(crate) fn defused(
        self,
        page: &[u8; PAGE_BYTES],
        starts: impl IntoIterator<Item = usize>,
    ) -> Option<Box<[u8; PAGE_BYTES]>> {
        let reached = self.reached(page, starts);
        let mut copy = Box::new(*page);
        for at in memchr::memchr_iter(0x0f, page) {
            match reached[at] {
                // The opcode's first byte, or something behind it.
                Reached::Forbidden => copy[at] = HLT,
                Reached::Harmless => {}
                Reached::Not if self.may_be(&page[at + 1..]) && self.is_at(page, at) => {
                    return None;
                }
                Reached::Not => {}
            }
        }
        Some(copy)
    }

    /// Which bytes belong to instructions that are reached.
    fn reached(
        self,
        page: &[u8; PAGE_BYTES],
        starts: impl IntoIterator<Item = usize>,
    ) -> Box<[Reached; PAGE_BYTES]> {
        let mut reached = Box::new([Reached::Not; PAGE_BYTES]);
        let mut seen = Box::new([false; PAGE_BYTES]);
        let mut open: Vec<usize> = starts.into_iter().collect();
        let mut instruction = Instruction::default();
        while let Some(start) = open.pop() {
            if start >= PAGE_BYTES || std::mem::replace(&mut seen[start], true) {
                continue;
            }
            let mut decoder =
                Decoder::with_ip(64, &page[start..], start as u64, DecoderOptions::NONE);
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                continue;
            }
            let mnemonic = instruction.mnemonic();
            let kind = match self.is(mnemonic) || tells_of_tables(mnemonic) {
                true => Reached::Forbidden,
                false => Reached::Harmless,
            };
            let bytes = start..start + instruction.len();
            reached[bytes.clone()].fill(kind);
            use FlowControl::{
                Call, ConditionalBranch, IndirectBranch, Return, UnconditionalBranch,
            };
            let flow = instruction.flow_control();
            if matches!(flow, Call | ConditionalBranch | UnconditionalBranch) {
                open.push(usize::try_from(instruction.near_branch_target()).unwrap_or(PAGE_BYTES));
            }
            if !matches!(flow, UnconditionalBranch | IndirectBranch | Return) {
                open.push(bytes.end);
            }
        }
        reached
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

/// Instructions that say something of the host's descriptor tables, which the guest's are not. They
/// are too rare to be looked for, but where there is a copy, it is exact in this as well.
fn tells_of_tables(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{Lar, Sgdt, Sidt, Sldt, Smsw, Str, Verr, Verw};
    matches!(mnemonic, Lar | Sgdt | Sidt | Sldt | Smsw | Str | Verr | Verw)
}

/// What is known of a byte of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reached {
    Not,
    /// It belongs to an instruction that may run natively.
    Harmless,
    /// To one that must not.
    Forbidden,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Code at an offset of an otherwise empty page.
    fn page_of(code: &[u8], at: usize) -> [u8; PAGE_BYTES] {
        let mut page = [0x90; PAGE_BYTES];
        page[at..at + code.len()].copy_from_slice(code);
        page
    }

    #[test]
    fn what_is_reached_is_defused() {
        // xor eax, eax; cpuid; rdpid rcx; jmp +2; (2 bytes); rdtscp; lar eax, ecx; ret
        let code = [
            0x31, 0xc0, 0x0f, 0xa2, 0xf3, 0x0f, 0xc7, 0xf9, 0xeb, 0x02, 0x0f, 0x0b, 0x0f, 0x01,
            0xf9, 0x0f, 0x02, 0xc1, 0xc3,
        ];
        let page = page_of(&code, 0x100);
        let copy = EVERYTHING.defused(&page, [0x100]).expect("all of it is reached");
        let changed: Vec<usize> = (0..PAGE_BYTES).filter(|&at| copy[at] != page[at]).collect();
        assert_eq!(changed, [0x102, 0x105, 0x10c, 0x10f]);
        assert!(changed.iter().all(|&at| copy[at] == HLT));
    }

    #[test]
    fn what_is_not_reached_is_not_touched() {
        // ret; cpuid
        let page = page_of(&[0xc3, 0x0f, 0xa2], 0x100);
        assert!(EVERYTHING.defused(&page, [0x100]).is_none());
        assert!(EVERYTHING.defused(&page, []).is_none());
        assert!(EVERYTHING.defused(&page, [0x100, 0x101]).is_some());
        let none = Forbidden { cpuid: false };
        assert_eq!(*none.defused(&page, []).expect("nothing is forbidden"), page);
    }

    #[test]
    fn bytes_of_harmless_instructions_stay_as_they_are() {
        // mov eax, 0x90a20f90, at the beginning of a page, where decoding has nothing to go by
        let page = page_of(&[0xb8, 0x90, 0x0f, 0xa2, 0x90], 0);
        assert!(EVERYTHING.is_in(&page));
        assert_eq!(*EVERYTHING.defused(&page, [0]).expect("it is known"), page);
        assert!(EVERYTHING.defused(&page, []).is_none());
    }

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
    fn what_is_looked_for_by_chunks_is_what_would_be_found_byte_by_byte() {
        let byte_by_byte = |page: &[u8]| {
            let mut escapes = memchr::memchr_iter(0x0f, page);
            escapes.any(|at| EVERYTHING.may_be(&page[at + 1..]) && EVERYTHING.is_at(page, at))
        };
        let interesting = [0x0f, 0x0f, 0x90, 0xa2, 0x01, 0xf9, 0x03, 0xc7, 0xf8, 0xf3, 0xc0, 0x00];
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 33) as usize
        };
        let mut found = 0;
        for _ in 0..3000 {
            let mut page = [0x90; 4096];
            for _ in 0..next() % 4 {
                let at = next() % 4090;
                page[at..at + 6].fill_with(|| interesting[next() % interesting.len()]);
            }
            assert_eq!(EVERYTHING.is_in(&page), byte_by_byte(&page), "{page:x?}");
            found += u32::from(EVERYTHING.is_in(&page));
        }
        assert!((100..2900).contains(&found), "{found}");
        // At the very end, beyond the last whole chunk.
        for at in 4070..4095 {
            let page = page_of(&[0x0f, 0xa2], at);
            assert!(EVERYTHING.is_in(&page), "{at}");
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
