//! CPUID: what the guest is told about its processor (SDM 2A "CPUID", APM 3 appendix E).
//!
//! The host's answers, taken once (they trap on cloud hosts), pass through an allow-list of what
//! works here: instructions that run natively, and system features that this crate implements
//! whether the host has them or not. Topology is one socket of single-threaded cores.
//!
//! Vulnerabilities. A guest's kernel and its processes run in one host process as the host schedules
//! it, and nothing that a guest could do with IBRS, IBPB or VERW reaches the hardware. So the
//! processor is announced as not needing them, which keeps guests from spending time on it.

use std::arch::x86_64::__cpuid_count;
use std::collections::HashMap;
use std::sync::OnceLock;

use iced_x86::{CpuidFeature, DecoderOptions};

use crate::board::Board;
use crate::config::Config;
use crate::memory::paging::PHYSICAL_BITS;
use crate::state::{Registers, cr4};

/// The four registers of an answer.
type Leaf = [u32; 4];

const EAX: usize = 0;
const EBX: usize = 1;
const ECX: usize = 2;
const EDX: usize = 3;

/// Highest basic leaf: processor frequency.
const MAX_BASIC: u32 = 0x16;
/// Highest extended leaf on Intel's and on AMD's processors.
const MAX_EXTENDED_INTEL: u32 = 0x8000_0008;
const MAX_EXTENDED_AMD: u32 = 0x8000_0021;
/// The hypervisor's leaves ([`crate::board::Hypervisor`]), up to 0x4000_00ff.
const HYPERVISOR_BASE: u32 = 0x4000_0000;

const fn bits(numbers: &[u32]) -> u32 {
    let mut mask = 0;
    let mut next = 0;
    while next < numbers.len() {
        mask |= 1 << numbers[next];
        next += 1;
    }
    mask
}

/// Leaf 1 ECX from the host: SSE3, PCLMULQDQ, SSSE3, FMA, SSE4.1, SSE4.2, MOVBE, POPCNT, AES, XSAVE,
/// AVX, F16C, RDRAND.
const ALLOWED_1_ECX: u32 = bits(&[0, 1, 9, 12, 13, 19, 20, 22, 23, 25, 26, 28, 29, 30]);
/// Implemented here: PCID, x2APIC, TSC-deadline, and the hypervisor bit.
const FORCED_1_ECX: u32 = bits(&[17, 21, 24, 31]);
/// FPU, TSC, CX8, SEP, CMOV, CLFSH, MMX, FXSR, SSE, SSE2.
const ALLOWED_1_EDX: u32 = bits(&[0, 4, 8, 11, 15, 19, 23, 24, 25, 26]);
/// DE, PSE, MSR, PAE, MCE, APIC, MTRR, PGE, MCA, PAT.
const FORCED_1_EDX: u32 = bits(&[2, 3, 5, 6, 7, 9, 12, 13, 14, 16]);
/// Of these, what a board without local APICs, or without a hypervisor, takes away.
const APIC_1_ECX: u32 = bits(&[21, 24]);
const HYPERVISOR_1_ECX: u32 = bits(&[31]);
const HTT: u32 = 1 << 28;
const OSXSAVE: u32 = 1 << 27;
/// Leaf 1 EDX, and AMD's leaf 0x80000001 EDX: a local APIC that is enabled (SDM 3A 11.4.3).
const APIC: u32 = 1 << 9;

/// Leaf 7 EBX from the host: BMI1, AVX2, FDP_EXCPTN_ONLY, BMI2, ERMS, no FCS/FDS, AVX512F, DQ,
/// RDSEED, ADX, IFMA, CLFLUSHOPT, CLWB, CD, SHA, BW, VL.
const ALLOWED_7_EBX: u32 = bits(&[3, 5, 6, 8, 9, 13, 16, 17, 18, 19, 21, 23, 24, 28, 29, 30, 31]);
/// FSGSBASE, TSC_ADJUST, SMEP, INVPCID, SMAP.
const FORCED_7_EBX: u32 = bits(&[0, 1, 7, 10, 20]);
/// VBMI, VBMI2, GFNI, VAES, VPCLMULQDQ, VNNI, BITALG, VPOPCNTDQ, MOVDIRI.
const ALLOWED_7_ECX: u32 = bits(&[1, 6, 8, 9, 10, 11, 12, 14, 27]);
/// UMIP, RDPID.
const FORCED_7_ECX: u32 = bits(&[2, 22]);
/// FSRM, VP2INTERSECT, FP16.
const ALLOWED_7_EDX: u32 = bits(&[4, 8, 23]);
/// Intel: IBRS and IBPB, ARCH_CAPABILITIES.
const FORCED_7_EDX_INTEL: u32 = bits(&[26, 29]);
/// SHA512, SM3, SM4, AVX-VNNI, BF16, fast short rep, AVX-IFMA.
const ALLOWED_7_1_EAX: u32 = bits(&[0, 1, 2, 4, 5, 10, 11, 12, 23]);
/// AVX-VNNI-INT8, AVX-NE-CONVERT, AVX-VNNI-INT16.
const ALLOWED_7_1_EDX: u32 = bits(&[4, 5, 10]);

/// XSAVEOPT, XSAVEC, XGETBV with ECX = 1.
const FORCED_D_1_EAX: u32 = bits(&[0, 1, 2]);

/// LAHF, ABM, SSE4A, misaligned SSE, PREFETCHW.
const ALLOWED_EXTENDED_ECX: u32 = bits(&[0, 5, 6, 7, 8]);
/// CmpLegacy: what leaf 1 calls logical processors are cores.
const CORES_NOT_THREADS: u32 = 1 << 1;
/// AMD: `lock mov cr0` is `mov cr8`, topology extensions.
const FORCED_EXTENDED_ECX_AMD: u32 = bits(&[4, 22]);
/// SYSCALL, NX, 1 GiB pages, long mode. Not RDTSCP, though it is there: on the host it tells of the host's
/// processor, so that a thread that runs directly stops at it, and Linux reads the clock with it in its vDSO
/// where it is announced. Without, that is LFENCE and RDTSC, which run directly.
const FORCED_EXTENDED_EDX: u32 = bits(&[11, 20, 26, 29]);
/// AMD repeats leaf 1 EDX here, and has the MMX extensions.
const MIRRORED_EXTENDED_EDX: u32 = 0x0181_f3ff;
const MMX_EXTENSIONS: u32 = 1 << 22;

/// AMD leaf 0x80000008 EBX, from the host: error pointers are always saved and restored.
const AMD_ALLOWED: u32 = bits(&[2]);
/// The same leaf: SSB_NO, BTC_NO.
const AMD_NOT_VULNERABLE: u32 = bits(&[26, 29]);
/// AMD leaf 0x80000021 EAX: no nested data breakpoints, LFENCE serializes, null selectors clear the
/// base, automatic IBRS, SRSO_NO, SRSO_USER_KERNEL_NO.
const AMD_EXTENDED_2: u32 = bits(&[0, 2, 6, 8, 29, 30]);
/// AMD leaf 0x80000021 ECX: TSA_SQ_NO, TSA_L1_NO.
const AMD_TRANSIENT: u32 = bits(&[1, 2]);

/// The host's answers.
struct Host {
    leaves: HashMap<(u32, u32), Leaf>,
    amd: bool,
}

/// Leaves that are asked of the host, and how many subleaves they have.
const ASKED: [(u32, u32); 21] = [
    (0, 1),
    (1, 1),
    (2, 1),
    (4, 5),
    (7, 2),
    (0xd, 10),
    (0x8000_0000, 1),
    (0x8000_0001, 1),
    (0x8000_0002, 1),
    (0x8000_0003, 1),
    (0x8000_0004, 1),
    (0x8000_0005, 1),
    (0x8000_0006, 1),
    (0x8000_0007, 1),
    (0x8000_0008, 1),
    (0x8000_0019, 1),
    (0x8000_001a, 1),
    (0x8000_001d, 5),
    (0x8000_001e, 1),
    (0x8000_0020, 1),
    (0x8000_0021, 1),
];

impl Host {
    fn ask() -> Self {
        let question = |leaf, subleaf| {
            let answer = __cpuid_count(leaf, subleaf);
            [answer.eax, answer.ebx, answer.ecx, answer.edx]
        };
        let (basic, extended) = (question(0, 0), question(0x8000_0000, 0));
        let mut leaves = HashMap::new();
        for (leaf, count) in ASKED {
            let highest = if leaf < HYPERVISOR_BASE { basic[EAX] } else { extended[EAX] };
            if leaf > highest {
                continue;
            }
            for subleaf in 0..count {
                leaves.insert((leaf, subleaf), question(leaf, subleaf));
            }
        }
        // "Auth" and "Hygo".
        let amd = matches!(basic[EBX], 0x6874_7541 | 0x6f67_7948);
        Self { leaves, amd }
    }

    fn leaf(&self, leaf: u32, subleaf: u32) -> Leaf {
        self.leaves.get(&(leaf, subleaf)).copied().unwrap_or([0; 4])
    }
}

fn host() -> &'static Host {
    static HOST: OnceLock<Host> = OnceLock::new();
    HOST.get_or_init(Host::ask)
}

/// Feature bits that do not depend on the processor's number or mode.
fn filtered(leaf: u32, subleaf: u32) -> Leaf {
    let host = host();
    let [eax, ebx, ecx, edx] = host.leaf(leaf, subleaf);
    match (leaf, subleaf) {
        (1, _) => [
            eax,
            ebx & 0xff00,
            ecx & ALLOWED_1_ECX | FORCED_1_ECX,
            edx & ALLOWED_1_EDX | FORCED_1_EDX,
        ],
        (7, 0) => {
            let intel = if host.amd { 0 } else { FORCED_7_EDX_INTEL };
            [
                1,
                ebx & ALLOWED_7_EBX | FORCED_7_EBX,
                ecx & ALLOWED_7_ECX | FORCED_7_ECX,
                edx & ALLOWED_7_EDX | intel,
            ]
        }
        (7, 1) => [eax & ALLOWED_7_1_EAX, 0, 0, edx & ALLOWED_7_1_EDX],
        (0x8000_0001, _) => {
            let mut features = edx & FORCED_EXTENDED_EDX | FORCED_EXTENDED_EDX;
            let mut more = ecx & ALLOWED_EXTENDED_ECX;
            if host.amd {
                features |= filtered(1, 0)[EDX] & MIRRORED_EXTENDED_EDX | edx & MMX_EXTENSIONS;
                more |= FORCED_EXTENDED_ECX_AMD;
            }
            [eax, ebx, more, features]
        }
        _ => [eax, ebx, ecx, edx],
    }
}

/// What tells this kind of processor from others, as far as software goes by it: vendor, model, features
/// and extended state.
pub(crate) fn identity() -> Vec<Leaf> {
    let [_, ebx, ecx, edx] = host().leaf(0, 0);
    let leaves = [(1, 0), (7, 0), (7, 1), (0xd, 0), (0xd, 1), (0x8000_0001, 0), (0x8000_0008, 0)];
    let state = extended_components(filtered(0xd, 0)[EAX].into()).map(|number| (0xd, number));
    let features = leaves.into_iter().chain(state).map(|(leaf, subleaf)| match (leaf, subleaf) {
        // The sizes are of what happens to be switched on in this process.
        (0xd, 0 | 1) => [filtered(leaf, subleaf)[EAX], 0, 0, 0],
        _ => filtered(leaf, subleaf),
    });
    [[0, ebx, ecx, edx]].into_iter().chain(features).collect()
}

/// How the announced vendor's processors decode what the vendors decode differently: AMD's take
/// operand-size prefixes on near branches, have no far pointers with 64-bit offsets, and reach CR8
/// by `lock mov cr0` (APM 3 "Near Branches in 64-Bit Mode", "LFS", "MOV CRn").
pub(crate) fn decoder_options() -> u32 {
    if announces_amd() { DecoderOptions::AMD } else { DecoderOptions::NONE }
}

/// Whether the announced vendor is AMD, or one that builds after its manuals.
pub(crate) fn announces_amd() -> bool {
    host().amd
}

/// Whether the announced processor has one of iced's features.
pub(crate) fn has(feature: CpuidFeature) -> bool {
    use CpuidFeature as F;
    let bit =
        |leaf, subleaf, register, number: u32| filtered(leaf, subleaf)[register] >> number & 1 != 0;
    match feature {
        F::INTEL8086 | F::INTEL186 | F::INTEL286 | F::INTEL386 | F::INTEL486 | F::X64 => true,
        F::CPUID | F::CX8 | F::FPU | F::FPU287 | F::FPU387 | F::MSR | F::TSC => true,
        // Hints: no-operations where they are not known.
        F::PAUSE | F::MULTIBYTENOP | F::CET_IBT | F::PREFETCHITI | F::PREFETCHWT1 => true,
        F::SEP | F::SYSCALL | F::SMAP | F::INVPCID | F::FSGSBASE | F::RDPID => true,
        // RDTSCP is not announced, but works.
        F::RDTSCP | F::RDPMC | F::WBNOINVD | F::PREFETCHW => true,
        F::XSAVEOPT | F::XSAVEC => bit(1, 0, ECX, 26),
        F::CMOV => bit(1, 0, EDX, 15),
        F::CLFSH => bit(1, 0, EDX, 19),
        F::MMX => bit(1, 0, EDX, 23),
        F::FXSR => bit(1, 0, EDX, 24),
        F::SSE => bit(1, 0, EDX, 25),
        F::SSE2 => bit(1, 0, EDX, 26),
        F::LZCNT => bit(0x8000_0001, 0, ECX, 5),
        F::SSE4A => bit(0x8000_0001, 0, ECX, 6),
        _ => has_leaf_1(feature) || has_leaf_7(feature),
    }
}

fn has_leaf_1(feature: CpuidFeature) -> bool {
    use CpuidFeature as F;
    let number = match feature {
        F::SSE3 => 0,
        F::PCLMULQDQ => 1,
        F::SSSE3 => 9,
        F::FMA => 12,
        F::CMPXCHG16B => 13,
        F::SSE4_1 => 19,
        F::SSE4_2 => 20,
        F::MOVBE => 22,
        F::POPCNT => 23,
        F::AES => 25,
        F::XSAVE => 26,
        F::AVX => 28,
        F::F16C => 29,
        F::RDRAND => 30,
        _ => return false,
    };
    filtered(1, 0)[ECX] >> number & 1 != 0
}

fn has_leaf_7(feature: CpuidFeature) -> bool {
    use CpuidFeature as F;
    let (subleaf, register, number) = match feature {
        F::BMI1 => (0, EBX, 3),
        F::AVX2 => (0, EBX, 5),
        F::BMI2 => (0, EBX, 8),
        F::AVX512F => (0, EBX, 16),
        F::AVX512DQ => (0, EBX, 17),
        F::RDSEED => (0, EBX, 18),
        F::ADX => (0, EBX, 19),
        F::AVX512_IFMA => (0, EBX, 21),
        F::CLFLUSHOPT => (0, EBX, 23),
        F::CLWB => (0, EBX, 24),
        F::AVX512CD => (0, EBX, 28),
        F::SHA => (0, EBX, 29),
        F::AVX512BW => (0, EBX, 30),
        F::AVX512VL => (0, EBX, 31),
        F::AVX512_VBMI => (0, ECX, 1),
        F::AVX512_VBMI2 => (0, ECX, 6),
        F::GFNI => (0, ECX, 8),
        F::VAES => (0, ECX, 9),
        F::VPCLMULQDQ => (0, ECX, 10),
        F::AVX512_VNNI => (0, ECX, 11),
        F::AVX512_BITALG => (0, ECX, 12),
        F::AVX512_VPOPCNTDQ => (0, ECX, 14),
        F::MOVDIRI => (0, ECX, 27),
        F::AVX512_VP2INTERSECT => (0, EDX, 8),
        F::AVX512_FP16 => (0, EDX, 23),
        F::SHA512 => (1, EAX, 0),
        F::SM3 => (1, EAX, 1),
        F::SM4 => (1, EAX, 2),
        F::AVX_VNNI => (1, EAX, 4),
        F::AVX512_BF16 => (1, EAX, 5),
        F::AVX_IFMA => (1, EAX, 23),
        F::AVX_VNNI_INT8 => (1, EDX, 4),
        F::AVX_NE_CONVERT => (1, EDX, 5),
        F::AVX_VNNI_INT16 => (1, EDX, 10),
        _ => return false,
    };
    filtered(7, subleaf)[register] >> number & 1 != 0
}

/// Size and offset of a component in the standard format of the XSAVE area (SDM 1 13.4.3), and
/// whether the compacted format aligns it to 64 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Component {
    pub(crate) offset: usize,
    pub(crate) size: usize,
    pub(crate) aligned: bool,
}

/// Where the legacy region and the header of an XSAVE area end.
pub(crate) const XSAVE_HEADER_END: usize = 576;

/// A component beyond x87 and SSE, by its number.
pub(crate) fn component(number: u32) -> Component {
    let [size, offset, flags, _] = host().leaf(0xd, number);
    Component { offset: offset as usize, size: size as usize, aligned: flags & 2 != 0 }
}

/// The numbers of the components beyond x87 and SSE in a mask.
pub(crate) fn extended_components(mask: u64) -> impl Iterator<Item = u32> {
    (2..10).filter(move |number| mask >> number & 1 != 0)
}

/// Bytes that an XSAVE area in the standard format needs for these components.
pub(crate) fn standard_size(mask: u64) -> usize {
    extended_components(mask)
        .map(component)
        .map(|component| component.offset + component.size)
        .fold(XSAVE_HEADER_END, usize::max)
}

/// Bytes that one in the compacted format needs.
pub(crate) fn compacted_size(mask: u64) -> usize {
    extended_components(mask).map(component).fold(XSAVE_HEADER_END, |at, component| {
        let start = if component.aligned { at.next_multiple_of(64) } else { at };
        start + component.size
    })
}

/// Whether what is answered for a leaf may depend on ECX.
pub(crate) fn has_subleaves(leaf: u32) -> bool {
    matches!(leaf, 4 | 7 | 0xb | 0xd | 0x8000_001d)
}

/// Which processor this is.
#[derive(Debug)]
pub(super) struct Identity {
    apic_id: u32,
    processors: u32,
    tsc_khz: u32,
    components: u64,
    board: Board,
}

impl Identity {
    pub(super) fn new(config: &Config, components: u64) -> Self {
        let processors = config.processors.max(1);
        let Config { apic_id, tsc_khz, board, .. } = *config;
        Self { apic_id, processors, tsc_khz, components, board }
    }

    pub(crate) fn is_amd(&self) -> bool {
        host().amd
    }

    pub(super) fn components(&self) -> u64 {
        self.components
    }

    /// Bits of the APIC id that number the cores.
    fn core_bits(&self) -> u32 {
        self.processors.next_power_of_two().trailing_zeros()
    }

    /// Leaf 1, but for OSXSAVE.
    fn features(&self) -> Leaf {
        let mut leaf = filtered(1, 0);
        if !self.board.has_apic() {
            leaf[ECX] &= !APIC_1_ECX;
        }
        if self.board.hypervisor.is_none() {
            leaf[ECX] &= !HYPERVISOR_1_ECX;
        }
        leaf[EBX] |= self.processors.min(255) << 16 | (self.apic_id & 0xff) << 24;
        if self.processors > 1 {
            leaf[EDX] |= HTT;
        }
        leaf
    }

    /// Leaf 4 and AMD's leaf 0x8000001d: caches, the last level shared by all.
    fn cache(&self, leaf: u32, subleaf: u32) -> Leaf {
        let mut answer = host().leaf(leaf, subleaf);
        if answer[EAX] & 0x1f == 0 {
            return [0; 4];
        }
        let shared = answer[EAX] >> 5 & 7 >= 3;
        let cores = (1 << self.core_bits()) - 1;
        answer[EAX] &= 0x3fff;
        if shared {
            answer[EAX] |= cores << 14;
        }
        if leaf == 4 {
            answer[EAX] |= cores.min(63) << 26;
        }
        answer
    }

    /// Leaf 0xb: one thread per core, and the cores.
    fn topology(&self, subleaf: u32) -> Leaf {
        match subleaf {
            0 => [0, 1, 1 << 8, self.apic_id],
            1 => [self.core_bits(), self.processors, 2 << 8 | 1, self.apic_id],
            _ => [0, 0, subleaf & 0xff, self.apic_id],
        }
    }

    /// Leaf 0xd: extended state.
    fn extended_state(&self, subleaf: u32, xcr0: u64) -> Leaf {
        match subleaf {
            0 => {
                let (now, most) = (standard_size(xcr0), standard_size(self.components));
                let supported = self.components;
                [supported as u32, now as u32, most as u32, (supported >> 32) as u32]
            }
            1 => [FORCED_D_1_EAX, compacted_size(xcr0) as u32, 0, 0],
            2..10 if self.components >> subleaf & 1 != 0 => {
                let Component { offset, size, aligned } = component(subleaf);
                [size as u32, offset as u32, u32::from(aligned) << 1, 0]
            }
            _ => [0; 4],
        }
    }

    /// The hypervisor's leaves.
    fn hypervisor(&self, leaf: u32) -> Leaf {
        let hypervisor = self.board.hypervisor.as_ref();
        hypervisor.map_or([0; 4], |hypervisor| hypervisor.leaf(leaf, self.tsc_khz))
    }

    fn extended(&self, leaf: u32, subleaf: u32) -> Leaf {
        let amd = self.is_amd();
        let highest = if amd { MAX_EXTENDED_AMD } else { MAX_EXTENDED_INTEL };
        let answer = host().leaf(leaf, 0);
        match leaf {
            0x8000_0000 => [highest, answer[EBX], answer[ECX], answer[EDX]],
            0x8000_0001 => {
                let mut features = filtered(leaf, 0);
                if amd && self.processors > 1 {
                    features[ECX] |= CORES_NOT_THREADS;
                }
                features
            }
            0x8000_0002..=0x8000_0006 => answer,
            // That the time-stamp counter never stops is not said, as KVM does not by default: Linux would take it
            // for its clock, and that has to go on where it was when a machine goes on from a snapshot, while
            // programs that run natively read the host's.
            0x8000_0007 => [0; 4],
            0x8000_0008 => {
                let size = PHYSICAL_BITS | 48 << 8;
                let cores = (self.processors - 1) | self.core_bits() << 12;
                let features = AMD_NOT_VULNERABLE | answer[EBX] & AMD_ALLOWED;
                if amd { [size, features, cores, 0] } else { [size, 0, 0, 0] }
            }
            0x8000_0019 | 0x8000_001a if amd => answer,
            0x8000_001d if amd => self.cache(leaf, subleaf),
            0x8000_001e if amd => [self.apic_id, self.apic_id & 0xff, 0, 0],
            0x8000_0021 if amd => [AMD_EXTENDED_2, 0, AMD_TRANSIENT, 0],
            _ => [0; 4],
        }
    }

    fn basic(&self, leaf: u32, subleaf: u32, xcr0: u64) -> Leaf {
        let answer = host().leaf(leaf, 0);
        match leaf {
            0 => [MAX_BASIC, answer[EBX], answer[ECX], answer[EDX]],
            1 => self.features(),
            2 if !self.is_amd() => answer,
            4 if !self.is_amd() => self.cache(leaf, subleaf),
            // The APIC timer never stops.
            6 => [1 << 2, 0, 0, 0],
            7 if subleaf < 2 => filtered(7, subleaf),
            0xb => self.topology(subleaf),
            0xd => self.extended_state(subleaf, xcr0),
            0x16 => [self.tsc_khz / 1000, self.tsc_khz / 1000, 100, 0],
            _ => [0; 4],
        }
    }
}

impl Identity {
    /// What CPUID answers in a processor with these registers, with or without a local APIC.
    pub(super) fn answer(&self, leaf: u32, subleaf: u32, regs: &Registers, has_apic: bool) -> Leaf {
        let mut answer = match leaf {
            HYPERVISOR_BASE..=0x4000_00ff => self.hypervisor(leaf),
            0x8000_0000..=MAX_EXTENDED_AMD => self.extended(leaf, subleaf),
            0..=MAX_BASIC => self.basic(leaf, subleaf, regs.xcr0),
            _ => [0; 4],
        };
        if leaf == 1 && regs.cr4 & cr4::OSXSAVE != 0 {
            answer[ECX] |= OSXSAVE;
        }
        if matches!(leaf, 1 | 0x8000_0001) && !(has_apic && self.board.has_apic()) {
            answer[EDX] &= !APIC;
        }
        answer
    }
}
