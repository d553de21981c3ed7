//! The register frame: how user registers go into a helper and how they come out.
//!
//! What comes out was written by the kernel, or forged by the guest. It is read once, while the
//! runner is held in the kernel, and every field is brought to a value that a program at CPL 3
//! could have had.

use crate::layout::{EXTENDED_MAX_BYTES, Report};

/// Bytes of the caller's image of extended state.
pub const EXTENDED_BYTES: usize = 4096;

/// Flags that user code can have: CF, PF, AF, ZF, SF, TF, DF, OF, NT, RF, AC, ID.
const USER_FLAGS: u64 = 0x0025_4dd5;
/// Flags that user code always has: the fixed one, and IF.
const FIXED_FLAGS: u64 = 0x202;

/// CS and SS of 64-bit user code under Linux, host and guest alike.
pub(crate) const USER_CODE: u16 = 0x33;
pub(crate) const USER_DATA: u16 = 0x2b;
/// CS of 32-bit user code.
pub(crate) const USER_CODE_32: u16 = 0x23;

/// User-visible registers but the extended state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Registers {
    /// RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8 to R15.
    pub general: [u64; 16],
    /// RIP.
    pub rip: u64,
    /// RFLAGS.
    pub rflags: u64,
    /// FS base.
    pub fs_base: u64,
    /// GS base.
    pub gs_base: u64,
    /// CS: 0x33, or 0x23 when the program has jumped to 32-bit code.
    pub cs: u16,
    /// SS.
    pub ss: u16,
    /// DS, ES, FS and GS selectors.
    pub selectors: [u16; 4],
}

impl Registers {
    /// Zero everywhere but in CS, SS and RFLAGS, at `rip`.
    pub fn at(rip: u64) -> Self {
        let (cs, ss, rflags) = (USER_CODE, USER_DATA, FIXED_FLAGS);
        Self { rip, cs, ss, rflags, ..Self::default() }
    }

    /// Whether a runner can have these registers at all.
    pub(crate) fn can_run(&self) -> bool {
        let flags = self.rflags & !USER_FLAGS == FIXED_FLAGS;
        let segments = self.cs == USER_CODE && self.ss == USER_DATA;
        let canonical = [self.fs_base, self.gs_base].iter().all(|&base| is_canonical(base));
        let selectors = self.selectors.iter().all(|&selector| is_plain(selector));
        flags && segments && canonical && selectors && self.rip < 1 << 47
    }
}

/// A selector that means the same under every Linux: null, or flat data, or code.
fn is_plain(selector: u16) -> bool {
    selector < 4 || matches!(selector | 3, USER_DATA | USER_CODE | USER_CODE_32)
}

/// SDM 1 3.3.7.1, for 48-bit linear addresses.
fn is_canonical(address: u64) -> bool {
    (address.cast_signed() << 16 >> 16).cast_unsigned() == address
}

/// What `resume` in the stub loads (`stub.rs` knows the offsets).
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    general: [u64; 16],
    rip: u64,
    cs: u64,
    rflags: u64,
    rsp: u64,
    ss: u64,
    fs_base: u64,
    gs_base: u64,
    components: u64,
    selectors: [u64; 4],
}

impl Entry {
    pub(crate) fn new(registers: &Registers, components: u64) -> Self {
        Self {
            general: registers.general,
            rip: registers.rip,
            cs: registers.cs.into(),
            rflags: registers.rflags,
            rsp: registers.general[4],
            ss: registers.ss.into(),
            fs_base: registers.fs_base,
            gs_base: registers.gs_base,
            components,
            selectors: registers.selectors.map(u64::from),
        }
    }
}

/// The kernel's `struct ucontext` and `struct siginfo` as they lie on the signal stack
/// (arch/x86/include/uapi/asm/sigcontext.h), without the extended state.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct SignalFrame {
    flags_link_stack: [u64; 5],
    /// R8 to R15, RDI, RSI, RBP, RBX, RDX, RAX, RCX, RSP.
    general: [u64; 16],
    rip: u64,
    rflags: u64,
    segments: [u16; 4],
    error: u64,
    trap: u64,
    old_mask: u64,
    fault_address: u64,
    /// Where the extended state is.
    pub extended: u64,
    reserved: [u64; 8],
    mask: u64,
    information: [u32; 32],
}

const _: () = assert!(size_of::<SignalFrame>() == 304 + 128);

/// For each register in hardware order, its place in [`SignalFrame::general`].
const GENERAL_ORDER: [usize; 16] = [13, 14, 12, 11, 15, 10, 9, 8, 0, 1, 2, 3, 4, 5, 6, 7];

impl SignalFrame {
    /// RIP, made canonical.
    pub(crate) fn rip(&self) -> u64 {
        (self.rip.cast_signed() << 16 >> 16).cast_unsigned()
    }

    /// Trap number, error code and CR2 of the last exception.
    pub(crate) fn exception(&self) -> (u64, u64, u64) {
        (self.trap, self.error, self.fault_address)
    }

    /// `si_code`.
    pub(crate) fn code(&self) -> i32 {
        self.information[2].cast_signed()
    }

    /// For SIGSYS: the address of the call, and the architecture.
    pub(crate) fn call(&self) -> (u64, u32) {
        let address = u64::from(self.information[5]) << 32 | u64::from(self.information[4]);
        (address, self.information[7])
    }

    /// The registers, made plausible.
    pub(crate) fn registers(&self, report: &Report) -> Registers {
        let canonical = |base| if is_canonical(base) { base } else { 0 };
        let plain = |selector| if is_plain(selector) { selector } else { 0 };
        let cs = if self.segments[0] == USER_CODE_32 { USER_CODE_32 } else { USER_CODE };
        let ss = if cs == USER_CODE { USER_DATA } else { plain(self.segments[3]) };
        Registers {
            general: GENERAL_ORDER.map(|place| self.general[place]),
            rip: self.rip(),
            rflags: self.rflags & USER_FLAGS | FIXED_FLAGS,
            fs_base: canonical(report.fs_base),
            gs_base: canonical(report.gs_base),
            cs,
            ss,
            selectors: report.selectors.map(|selector| plain(selector as u16)),
        }
    }
}

/// The XSAVE components that a guest's program may have here, and where they lie in the standard
/// format (SDM 1 13.4).
#[derive(Debug, Clone)]
pub(crate) struct Components {
    /// Those of the guest's XCR0.
    pub mask: u64,
    places: Vec<(u64, usize, usize)>,
    mxcsr_mask: u32,
}

/// x87, SSE, AVX, opmask, ZMM_Hi256, Hi16_ZMM.
const CARRIED: u64 = 0xe7;
/// The legacy region and the header.
const HEADER_END: usize = 576;
const HEADER: usize = 512;
const MXCSR: usize = 24;
const MXCSR_MASK: usize = 28;

impl Components {
    /// As the host has them.
    pub(crate) fn of_the_host() -> Self {
        use std::arch::x86_64::{__cpuid_count, _fxsave64, _xgetbv};
        #[target_feature(enable = "xsave")]
        fn enabled() -> u64 {
            // SAFETY: register 0 exists wherever XSAVE does, which the caller has checked.
            unsafe { _xgetbv(0) }
        }
        #[repr(C, align(16))]
        struct Legacy([u8; 512]);
        let mut legacy = Legacy([0; 512]);
        // SAFETY: the area is 512 bytes and aligned to 16.
        unsafe { _fxsave64(legacy.0.as_mut_ptr()) };
        // SAFETY: `Helpers::start` has found XSAVE enabled.
        let mask = unsafe { enabled() } & CARRIED;
        let places = (2..8).filter(|bit| mask & 1 << bit != 0).map(|bit| {
            let leaf = __cpuid_count(0xd, bit);
            (1 << bit, leaf.ebx as usize, leaf.eax as usize)
        });
        let places = places.filter(|(_, start, size)| start + size <= EXTENDED_MAX_BYTES).collect();
        let stated = u32_at(&legacy.0, MXCSR_MASK);
        Self { mask, places, mxcsr_mask: if stated == 0 { 0xffbf } else { stated } }
    }

    /// The bytes of a frame's extended state that [`Self::copy`] may look at.
    pub(crate) fn bytes(&self) -> usize {
        let ends = self.places.iter().map(|(_, start, size)| start + size);
        ends.max().unwrap_or(HEADER_END).max(HEADER_END)
    }

    /// Copy an image of which nothing is trusted, so that XRSTOR will take the copy whatever was in
    /// the original. Components in their initial state are not copied.
    pub(crate) fn copy(&self, from: &[u8], to: &mut [u8]) {
        to[..HEADER].copy_from_slice(&from[..HEADER]);
        let mxcsr = u32_at(from, MXCSR) & self.mxcsr_mask;
        to[MXCSR..MXCSR_MASK].copy_from_slice(&mxcsr.to_le_bytes());
        let in_use = u64::from(u32_at(from, HEADER)) & self.mask;
        to[HEADER..HEADER_END].fill(0);
        to[HEADER..HEADER + 8].copy_from_slice(&in_use.to_le_bytes());
        for &(bit, start, size) in &self.places {
            if in_use & bit != 0 {
                to[start..start + size].copy_from_slice(&from[start..start + size]);
            }
        }
    }
}

/// Bytes of an XSAVE image in the standard format with the enabled ones of these components.
pub(crate) fn extended_state_bytes(components: u64) -> usize {
    use std::arch::x86_64::__cpuid_count;
    let leaf = __cpuid_count(0xd, 0);
    let enabled = (u64::from(leaf.edx) << 32 | u64::from(leaf.eax)) & components;
    let ends = (2..63).filter(|bit| enabled & 1 << bit != 0).map(|bit| {
        let leaf = __cpuid_count(0xd, bit);
        (leaf.ebx + leaf.eax) as usize
    });
    ends.max().unwrap_or(HEADER_END).max(HEADER_END)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn the_stub_and_rust_agree_on_the_entry() {
        assert_eq!(offset_of!(Entry, rip), 0x80);
        assert_eq!(offset_of!(Entry, ss), 0xa0);
        assert_eq!(offset_of!(Entry, fs_base), 0xa8);
        assert_eq!(offset_of!(Entry, components), 0xb8);
        assert_eq!(offset_of!(Entry, selectors), 0xc0);
    }

    #[test]
    fn the_kernel_and_rust_agree_on_the_frame() {
        let libc_offset = offset_of!(libc::ucontext_t, uc_mcontext);
        assert_eq!(offset_of!(SignalFrame, general), libc_offset);
        let rip = libc_offset + 8 * libc::REG_RIP as usize;
        assert_eq!(offset_of!(SignalFrame, rip), rip);
        assert_eq!(offset_of!(SignalFrame, fault_address), libc_offset + 8 * 22);
        for (register, number) in
            [(0, libc::REG_RAX), (4, libc::REG_RSP), (7, libc::REG_RDI), (15, libc::REG_R15)]
        {
            assert_eq!(GENERAL_ORDER[register], number as usize);
        }
    }

    #[test]
    fn forged_extended_state_is_made_loadable() {
        let components = Components::of_the_host();
        let forged = vec![0xff; EXTENDED_BYTES];
        let mut copy = vec![0; EXTENDED_BYTES];
        components.copy(&forged, &mut copy);
        assert_eq!(u32_at(&copy, HEADER), components.mask as u32);
        assert!(copy[HEADER + 8..HEADER_END].iter().all(|&byte| byte == 0));
        assert_eq!(u32_at(&copy, MXCSR) & !components.mxcsr_mask, 0);
    }

    #[test]
    fn forged_registers_are_those_of_a_program() {
        // SAFETY: the frame consists of integers.
        let frame: SignalFrame = unsafe { std::mem::transmute([0xee_u8; 432]) };
        let report = Report {
            selectors: [0xeeee; 4],
            fs_base: 1 << 50,
            gs_base: 1 << 47,
            ..Report::default()
        };
        let registers = frame.registers(&report);
        assert_eq!((registers.cs, registers.ss, registers.selectors), (0x33, 0x2b, [0; 4]));
        assert_eq!(registers.rflags & 0x3f_3202, 0x202 | 0x0024_0000);
        assert_eq!((registers.fs_base, registers.gs_base), (0, 0));
    }
}
