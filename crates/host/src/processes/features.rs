//! What this processor has that programs choose their code by, and remember that they have.
//!
//! Named as /proc/cpuinfo does (SDM 2A "CPUID", APM 3 appendix E). Not among them: what only kernels use; what programs
//! ask the kernel for, as AMX is; and what hardly any program has a use for (TSX, WAITPKG, MOVDIR64B, ...).

use std::arch::x86_64::__cpuid_count;

/// Registers of an answer.
const EAX: usize = 0;
const EBX: usize = 1;
const ECX: usize = 2;
const EDX: usize = 3;

/// Leaf, subleaf, register, and the features by their bits there.
type Word = (u32, u32, usize, &'static [(u32, &'static str)]);

const WORDS: [Word; 9] = [
    (
        1,
        0,
        ECX,
        &[
            (0, "pni"),
            (1, "pclmulqdq"),
            (9, "ssse3"),
            (12, "fma"),
            (19, "sse4_1"),
            (20, "sse4_2"),
            (22, "movbe"),
            (23, "popcnt"),
            (25, "aes"),
            (26, "xsave"),
            (28, "avx"),
            (29, "f16c"),
            (30, "rdrand"),
        ],
    ),
    (
        7,
        0,
        EBX,
        &[
            (0, "fsgsbase"),
            (3, "bmi1"),
            (5, "avx2"),
            (8, "bmi2"),
            (16, "avx512f"),
            (17, "avx512dq"),
            (18, "rdseed"),
            (19, "adx"),
            (21, "avx512ifma"),
            (23, "clflushopt"),
            (24, "clwb"),
            (28, "avx512cd"),
            (29, "sha_ni"),
            (30, "avx512bw"),
            (31, "avx512vl"),
        ],
    ),
    (
        7,
        0,
        ECX,
        &[
            (1, "avx512vbmi"),
            (6, "avx512_vbmi2"),
            (8, "gfni"),
            (9, "vaes"),
            (10, "vpclmulqdq"),
            (11, "avx512_vnni"),
            (12, "avx512_bitalg"),
            (14, "avx512_vpopcntdq"),
            (27, "movdiri"),
        ],
    ),
    (7, 0, EDX, &[(8, "avx512_vp2intersect"), (23, "avx512_fp16")]),
    (
        7,
        1,
        EAX,
        &[
            (0, "sha512"),
            (1, "sm3"),
            (2, "sm4"),
            (4, "avx_vnni"),
            (5, "avx512_bf16"),
            (23, "avx_ifma"),
        ],
    ),
    (7, 1, EDX, &[(4, "avx_vnni_int8"), (5, "avx_ne_convert"), (10, "avx_vnni_int16")]),
    (0xd, 1, EAX, &[(0, "xsaveopt"), (1, "xsavec")]),
    (
        0x8000_0001,
        0,
        ECX,
        &[
            (0, "lahf_lm"),
            (5, "abm"),
            (6, "sse4a"),
            (7, "misalignsse"),
            (8, "3dnowprefetch"),
            (11, "xop"),
            (16, "fma4"),
            (21, "tbm"),
        ],
    ),
    (0x8000_0001, 0, EDX, &[(22, "mmxext"), (30, "3dnowext"), (31, "3dnow")]),
];

/// What this processor has.
#[must_use]
pub fn features() -> Vec<&'static str> {
    let mut found = Vec::new();
    for (leaf, subleaf, register, bits) in WORDS {
        let highest = __cpuid_count(leaf & 0x8000_0000, 0).eax;
        if leaf > highest {
            continue;
        }
        let answer = __cpuid_count(leaf, subleaf);
        let word = [answer.eax, answer.ebx, answer.ecx, answer.edx][register];
        found.extend(bits.iter().filter(|(bit, _)| word >> bit & 1 == 1).map(|(_, name)| *name));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_finds_the_same() {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let flags = text.lines().find(|line| line.starts_with("flags"));
        let Some(flags) = flags.map(|line| line.split_whitespace().collect::<Vec<_>>()) else {
            println!("skipped: /proc/cpuinfo has no flags");
            return;
        };
        let found = features();
        for name in ["pni", "ssse3", "sse4_2", "popcnt", "bmi2", "lahf_lm", "abm"] {
            assert_eq!(found.contains(&name), flags.contains(&name), "{name}");
        }
    }
}
