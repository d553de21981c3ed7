//! One experiment: the state before, and the state after as either side reports it. Plain data,
//! because it passes between processes in shared memory.

use super::layout::{PAGE, SLOT_BYTES, WRITABLE};

/// Bytes of the XSAVE image with AVX-512, rounded up.
pub const XSAVE: usize = 2752;
/// Components that cases set: x87, SSE, AVX, opmask, ZMM_Hi256, Hi16_ZMM.
pub const COMPONENTS: u64 = 0xe7;
/// Bytes that the case puts into memory at one place.
pub const POKE_BYTES: usize = 40;
/// `Outcome::vector` when the case did not end.
pub const NEVER_ENDED: u32 = 255;

/// Bytes to be put into a writable page before the run; nothing when `address` is 0.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Poke {
    pub address: u64,
    pub bytes: [u8; POKE_BYTES],
}

/// State before.
#[derive(Clone)]
#[repr(C, align(64))]
pub struct Case {
    pub xsave: [u8; XSAVE],
    pub gpr: [u64; 16],
    pub rflags: u64,
    pub fs_base: u64,
    pub gs_base: u64,
    /// 32 or 64.
    pub bits: u32,
    pub length: u32,
    pub code: [u8; SLOT_BYTES],
    pub poke: Poke,
}

/// State after: how the case ended, and everything that it could change.
#[derive(Clone)]
#[repr(C, align(64))]
pub struct Outcome {
    pub xsave: [u8; XSAVE],
    pub gpr: [u64; 16],
    pub rip: u64,
    pub rflags: u64,
    pub fs_base: u64,
    pub gs_base: u64,
    /// Only for vector 14.
    pub cr2: u64,
    pub vector: u32,
    pub error: u32,
    /// ES, CS, SS, DS, FS, GS.
    pub selectors: [u16; 6],
    /// Nonzero when this was filled in.
    pub done: u32,
    /// The writable pages.
    pub memory: [[u8; PAGE]; WRITABLE],
}

impl Case {
    /// A case in which everything is zero.
    pub fn zeroed() -> Self {
        // SAFETY: plain integers.
        unsafe { std::mem::zeroed() }
    }
}

impl Outcome {
    /// An outcome that was not filled in.
    pub fn boxed() -> Box<Self> {
        // SAFETY: plain integers.
        unsafe { Box::new(std::mem::zeroed()) }
    }
}

/// Where each component lies in the standard-format XSAVE image, and how long it is (SDM 1 13.4.3).
pub fn components() -> impl Iterator<Item = (u32, usize, usize)> {
    [2u32, 5, 6, 7].into_iter().filter_map(|component| {
        let leaf = std::arch::x86_64::__cpuid_count(0xd, component);
        (leaf.eax != 0).then_some((component, leaf.ebx as usize, leaf.eax as usize))
    })
}

/// Components of [`COMPONENTS`] that the host's kernel lets programs use.
pub fn usable() -> u64 {
    enabled() & COMPONENTS
}

/// Other components that the host's kernel lets programs use: protection keys, tiles.
pub fn further() -> u64 {
    enabled() & !COMPONENTS
}

fn enabled() -> u64 {
    // SAFETY: the engine, too, requires XSAVE.
    unsafe { xgetbv() }
}

/// XCR0.
///
/// # Safety
///
/// The processor and the kernel must have XSAVE enabled.
#[target_feature(enable = "xsave")]
unsafe fn xgetbv() -> u64 {
    // SAFETY: the caller has XSAVE.
    unsafe { std::arch::x86_64::_xgetbv(0) }
}
