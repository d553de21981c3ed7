//! What CPUID tells a paravirtual guest: the processor without what only the hypervisor could use (Xen,
//! xen/include/public/arch-x86/cpufeatureset.h, features that are not marked for paravirtual guests). Three are shown
//! that Xen hides: SMAP, since the kernel runs in a ring that it means something in, and IBRS on Intel's and automatic
//! IBRS on AMD's processors, since no indirect branch of a guest is the hardware's: a kernel without them has every
//! branch take a detour (retpolines).

/// Bits that are clear in EAX, EBX, ECX and EDX of a leaf and subleaf.
const HIDDEN: [(u32, Option<u32>, [u32; 4]); 6] = [
    // ECX: MONITOR, PCID, X2APIC, TSC_DEADLINE. EDX: VME, PSE, MTRR, PGE, PSE36.
    (
        1,
        None,
        [0, 0, 1 << 3 | 1 << 17 | 1 << 21 | 1 << 24, 1 << 1 | 1 << 3 | 1 << 12 | 1 << 13 | 1 << 17],
    ),
    // EBX: TSC_ADJUST, SMEP, INVPCID. ECX: UMIP, PKU, OSPKE, LA57. EDX: STIBP, L1D_FLUSH, SSBD.
    (
        7,
        Some(0),
        [
            0,
            1 << 1 | 1 << 7 | 1 << 10,
            1 << 2 | 1 << 3 | 1 << 4 | 1 << 16,
            1 << 27 | 1 << 28 | 1 << 31,
        ],
    ),
    // EAX: XSAVES.
    (0xd, Some(1), [1 << 3, 0, 0, 0]),
    // EDX: PSE, MTRR, PGE, PSE36, PAGE1GB.
    (0x8000_0001, None, [0, 0, 0, 1 << 3 | 1 << 12 | 1 << 13 | 1 << 17 | 1 << 26]),
    // EBX: IBPB, IBRS, STIBP and their relatives.
    (0x8000_0008, None, [0, 0x1f << 12 | 7 << 23, 0, 0]),
    // EAX: CPUID that faults.
    (0x8000_0021, None, [1 << 17, 0, 0, 0]),
];

/// EDX of leaf 1: there is a local APIC, which the kernel then replaces by Xen's events.
const APIC: u32 = 1 << 9;

/// What a paravirtual guest is answered, where the processor answers `answer`.
pub(crate) fn shown(leaf: u32, subleaf: u32, answer: [u32; 4]) -> [u32; 4] {
    let is_this = |at: u32, which: Option<u32>| leaf == at && which.is_none_or(|it| it == subleaf);
    let hidden = HIDDEN.iter().find(|(at, which, _)| is_this(*at, *which));
    let mut shown = answer;
    if let Some((_, _, hidden)) = hidden {
        shown.iter_mut().zip(hidden).for_each(|(register, hidden)| *register &= !hidden);
    }
    if leaf == 1 {
        shown[3] |= APIC;
    }
    shown
}
