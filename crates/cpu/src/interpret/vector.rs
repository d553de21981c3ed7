//! Extended state as memory sees it: `fxsave`, `fxrstor`, the XSAVE family (SDM 1 10.5, chapter 13),
//! and access to single vector and mask registers.
//!
//! The guest's extended state is kept as the host's own XSAVE image in the standard format. Bits of
//! its XSTATE_BV say which components are in use; the bytes of the others mean nothing.

use std::sync::OnceLock;

use iced_x86::{Instruction, Mnemonic};

use super::operand::{gp0, ud};
use crate::architectural::Architectural;
use crate::context::{XSAVE_BYTES, XsaveArea};
use crate::exception::{Exception, Trap, Vector};
use crate::memory::{Access, Linear, Privilege};
use crate::state::{cr0, cr4};
use crate::system::cpuid::{XSAVE_HEADER_END, component, extended_components};

/// Components of XCR0.
const X87: u64 = 1 << 0;
const SSE: u64 = 1 << 1;
const AVX: u64 = 1 << 2;

/// Numbers of components.
const YMM_HIGH: u32 = 2;
const OPMASK: u32 = 5;
const ZMM_HIGH: u32 = 6;
const ZMM_16: u32 = 7;

/// Places in the legacy region.
const MXCSR: usize = 24;
const MXCSR_MASK: usize = 28;
const ST: usize = 32;
const XMM: usize = 160;
const XMM_END: usize = 416;
/// XMM8 to XMM15 exist in 64-bit mode only.
const XMM_8: usize = 288;
const LEGACY_END: usize = 512;
const XCOMP_BV: usize = 520;

/// XCOMP_BV: the area is in the compacted format.
const COMPACTED: u64 = 1 << 63;

const MXCSR_INITIAL: u32 = 0x1f80;

/// The bits of MXCSR that the host has.
fn mxcsr_mask() -> u32 {
    static MASK: OnceLock<u32> = OnceLock::new();
    *MASK.get_or_init(|| {
        let mut area = XsaveArea::initial();
        // SAFETY: the area is 64-byte aligned and larger than the 512 bytes that are written.
        unsafe { std::arch::x86_64::_fxsave64(area.0.as_mut_ptr()) };
        match u32_at(&area.0, MXCSR_MASK) {
            0 => 0xffbf,
            mask => mask,
        }
    })
}

/// Whether XRSTOR takes these bytes, as an area in the standard format (SDM 1 13.8.1), and MXCSR.
pub(crate) fn can_be_loaded(area: &[u8; XSAVE_BYTES], components: u64) -> bool {
    u32_at(area, MXCSR) & !mxcsr_mask() == 0
        && u64_at(area, LEGACY_END) & !components == 0
        && area[XCOMP_BV..XSAVE_HEADER_END].iter().all(|&byte| byte == 0)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Whether the 64-bit form of the x87 instruction and data pointers is meant.
fn has_wide_pointers(instruction: &Instruction) -> bool {
    use Mnemonic as M;
    matches!(
        instruction.mnemonic(),
        M::Fxsave64 | M::Fxrstor64 | M::Xsave64 | M::Xsaveopt64 | M::Xsavec64 | M::Xrstor64
    )
}

impl Architectural {
    /// XINUSE: the components that are not in their initial state.
    pub(crate) fn components_in_use(&self) -> u64 {
        u64_at(&self.context.xsave.0, LEGACY_END)
    }

    fn set_in_use(&mut self, components: u64) {
        self.context.xsave.0[LEGACY_END..LEGACY_END + 8].copy_from_slice(&components.to_le_bytes());
    }

    pub(super) fn mxcsr(&self) -> u32 {
        u32_at(&self.context.xsave.0, MXCSR)
    }

    fn set_mxcsr(&mut self, value: u32) {
        self.context.xsave.0[MXCSR..MXCSR + 4].copy_from_slice(&value.to_le_bytes());
    }

    /// Where a component lies in the image.
    fn region(number: u32) -> std::ops::Range<usize> {
        match number {
            0 => ST..XMM,
            1 => XMM..XMM_END,
            _ => {
                let place = component(number);
                place.offset..place.offset + place.size
            }
        }
    }

    /// Make a component's bytes valid, to be changed.
    fn use_component(&mut self, number: u32) {
        let in_use = self.components_in_use();
        if in_use >> number & 1 == 0 {
            self.reset_component(number);
            self.set_in_use(in_use | 1 << number);
        }
    }

    /// Give a component's bytes their initial values.
    fn reset_component(&mut self, number: u32) {
        let area = &mut self.context.xsave.0;
        area[Self::region(number)].fill(0);
        if number == 0 {
            area[..MXCSR].fill(0);
            area[..2].copy_from_slice(&0x37fu16.to_le_bytes());
        }
    }

    /// Make the bytes of these components valid without counting them as in use.
    fn settle(&mut self, components: u64) {
        let unused = components & !self.components_in_use();
        for number in (0..10).filter(|number| unused >> number & 1 != 0) {
            self.reset_component(number);
        }
    }

    /// The legacy region's first 32 bytes as an instruction stores them.
    fn legacy_header(&self, wide: bool) -> [u8; 32] {
        let mut header = [0; 32];
        header.copy_from_slice(&self.context.xsave.0[..32]);
        if !wide {
            // Offsets of 32 bits; the selectors are deprecated and read as zero.
            header[12..16].fill(0);
            header[20..24].fill(0);
        }
        header[MXCSR_MASK..].copy_from_slice(&mxcsr_mask().to_le_bytes());
        header
    }

    fn check_fxsr(&self) -> Result<(), Trap> {
        let regs = &self.context.regs;
        if regs.cr0 & cr0::EM != 0 {
            return Err(ud());
        }
        self.check_switched()
    }

    fn check_switched(&self) -> Result<(), Trap> {
        if self.context.regs.cr0 & cr0::TS != 0 {
            return Err(Exception::plain(Vector::DeviceNotAvailable).into());
        }
        Ok(())
    }

    /// The operand of a save or restore, which must be aligned.
    fn area_operand(
        &self,
        instruction: &Instruction,
        size: usize,
        alignment: u64,
        access: Access,
    ) -> Result<Linear, Trap> {
        let at = self.operand_linear(instruction, size as u32, access)?;
        if at.0 % alignment != 0 {
            return Err(gp0());
        }
        Ok(at)
    }

    /// Check that all of an area may be accessed. AMD's processors look at its first and its last
    /// byte.
    fn probe_area(&mut self, at: Linear, size: usize, access: Access) -> Result<(), Trap> {
        if self.system.is_amd() {
            self.probe_linear(at, 1, access, Privilege::Current)?;
            self.probe_linear(offset(at, size - 1), 1, access, Privilege::Current)?;
        }
        self.probe_linear(at, size, access, Privilege::Current)
    }

    /// The end of the XMM registers that the mode has.
    fn xmm_end(&self) -> usize {
        if self.in_64_bit_mode() { XMM_END } else { XMM_8 }
    }

    /// `fxsave`, `fxsave64`.
    pub(crate) fn fxsave(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        self.check_fxsr()?;
        let at = self.area_operand(instruction, LEGACY_END, 16, Access::Write)?;
        self.settle(X87 | SSE);
        let end = self.xmm_end();
        let mut bytes = [0; XMM_END];
        bytes[ST..end].copy_from_slice(&self.context.xsave.0[ST..end]);
        bytes[..ST].copy_from_slice(&self.legacy_header(has_wide_pointers(instruction)));
        self.probe_area(at, LEGACY_END, Access::Write)?;
        self.write_linear(at, &bytes[..end], Privilege::Current)
    }

    /// `fxrstor`, `fxrstor64`.
    pub(crate) fn fxrstor(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        self.check_fxsr()?;
        let at = self.area_operand(instruction, LEGACY_END, 16, Access::Read)?;
        let mut bytes = [0; LEGACY_END];
        self.probe_area(at, LEGACY_END, Access::Read)?;
        self.read_linear(at, &mut bytes, Privilege::Current)?;
        let mxcsr = checked_mxcsr(&bytes)?;
        self.use_component(0);
        self.use_component(1);
        self.load_x87(&bytes, has_wide_pointers(instruction));
        let end = self.xmm_end();
        self.context.xsave.0[XMM..end].copy_from_slice(&bytes[XMM..end]);
        self.set_mxcsr(mxcsr);
        Ok(())
    }

    fn load_x87(&mut self, legacy: &[u8], wide: bool) {
        let area = &mut self.context.xsave.0;
        area[..MXCSR].copy_from_slice(&legacy[..MXCSR]);
        if !wide {
            area[12..16].fill(0);
            area[20..24].fill(0);
        }
        area[ST..XMM].copy_from_slice(&legacy[ST..XMM]);
    }

    /// The requested-feature bitmap: EDX:EAX and XCR0 (SDM 1 13.6).
    fn requested_components(&self) -> u64 {
        let gpr = &self.context.regs.gpr;
        (gpr[0] & 0xffff_ffff | gpr[2] << 32) & self.context.regs.xcr0
    }

    fn check_xsave(&self) -> Result<(), Trap> {
        if self.context.regs.cr4 & cr4::OSXSAVE == 0 {
            return Err(ud());
        }
        self.check_switched()
    }

    /// `xsave`, `xsaveopt`, `xsavec` (SDM 1 13.7, 13.9, 13.10).
    pub(crate) fn xsave(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        use Mnemonic::{Xsave, Xsave64, Xsavec, Xsavec64};
        self.check_xsave()?;
        let requested = self.requested_components();
        let mnemonic = instruction.mnemonic();
        let compacting = matches!(mnemonic, Xsavec | Xsavec64);
        let mut in_use = self.components_in_use();
        if compacting && self.mxcsr() != MXCSR_INITIAL {
            in_use |= SSE;
        }
        let optimizing = !matches!(mnemonic, Xsave | Xsave64);
        let saved = if optimizing { requested & in_use } else { requested };
        let places = places(requested, compacting);
        let size = places.last().map_or(XSAVE_HEADER_END, |last| last.1 + last.2);
        let size = size.max(XSAVE_HEADER_END);
        let at = self.area_operand(instruction, size, 64, Access::Write)?;
        self.probe_area(at, size, Access::Write)?;
        let mut header = [0; 64];
        if compacting {
            header[..8].copy_from_slice(&(requested & in_use).to_le_bytes());
            header[8..16].copy_from_slice(&(requested | COMPACTED).to_le_bytes());
        } else {
            let old = self.read_u64(offset(at, LEGACY_END), Privilege::Current)?;
            header[..8].copy_from_slice(&(old & !requested | in_use & requested).to_le_bytes());
        }
        self.settle(saved);
        self.save_legacy(at, requested, saved, has_wide_pointers(instruction), compacting)?;
        for (number, place, length) in places {
            if saved >> number & 1 != 0 {
                let bytes = self.context.xsave.0[Self::region(number)].to_vec();
                let length = self.visible_bytes(number, length);
                self.write_linear(offset(at, place), &bytes[..length], Privilege::Current)?;
            }
        }
        let header_length = if compacting { 16 } else { 8 };
        let place = offset(at, LEGACY_END);
        self.write_linear(place, &header[..header_length], Privilege::Current)
    }

    /// The parts of the legacy region that a save writes.
    fn save_legacy(
        &mut self,
        at: Linear,
        requested: u64,
        saved: u64,
        wide: bool,
        compacting: bool,
    ) -> Result<(), Trap> {
        let by = Privilege::Current;
        let header = self.legacy_header(wide);
        if saved & X87 != 0 {
            self.write_linear(at, &header[..MXCSR], by)?;
            let registers: [u8; XMM - ST] =
                self.context.xsave.0[ST..XMM].try_into().expect("the same size");
            self.write_linear(offset(at, ST), &registers, by)?;
        }
        let with_mxcsr = if compacting { saved & SSE != 0 } else { requested & (SSE | AVX) != 0 };
        if with_mxcsr {
            self.write_linear(offset(at, MXCSR), &header[MXCSR..], by)?;
        }
        if saved & SSE != 0 {
            let end = self.xmm_end();
            let registers = self.context.xsave.0[XMM..end].to_vec();
            self.write_linear(offset(at, XMM), &registers, by)?;
        }
        Ok(())
    }

    /// `xrstor` (SDM 1 13.8).
    pub(crate) fn xrstor(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        self.check_xsave()?;
        let requested = self.requested_components();
        let at = self.area_operand(instruction, XSAVE_HEADER_END, 64, Access::Read)?;
        let mut legacy = [0; XSAVE_HEADER_END];
        self.read_linear(at, &mut legacy, Privilege::Current)?;
        let (state, format) = (u64_at(&legacy, LEGACY_END), u64_at(&legacy, XCOMP_BV));
        let compacted = format & COMPACTED != 0;
        self.check_header(&legacy, state, format)?;
        let loaded = requested & state;
        let with_mxcsr = if compacted { loaded & SSE != 0 } else { requested & (SSE | AVX) != 0 };
        let mxcsr = if with_mxcsr { checked_mxcsr(&legacy)? } else { MXCSR_INITIAL };
        let present = if compacted { format & !COMPACTED } else { state };
        let places = places(present, compacted);
        let mut parts = Vec::new();
        for (number, place, length) in places {
            if loaded >> number & 1 != 0 {
                let mut bytes = vec![0; self.visible_bytes(number, length)];
                self.operand_linear(instruction, (place + length) as u32, Access::Read)?;
                self.read_linear(offset(at, place), &mut bytes, Privilege::Current)?;
                parts.push((number, bytes));
            }
        }
        self.forget_components(requested, loaded);
        if loaded & X87 != 0 {
            self.load_x87(&legacy, has_wide_pointers(instruction));
        }
        if loaded & SSE != 0 {
            let end = self.xmm_end();
            self.context.xsave.0[XMM..end].copy_from_slice(&legacy[XMM..end]);
        }
        if with_mxcsr || compacted && requested & SSE != 0 {
            self.set_mxcsr(mxcsr);
        }
        for (number, bytes) in parts {
            let start = Self::region(number).start;
            self.context.xsave.0[start..start + bytes.len()].copy_from_slice(&bytes);
        }
        self.settle(requested);
        Ok(())
    }

    /// How much of a component the mode has: outside 64-bit mode only the registers 0 to 7
    /// (SDM 1 13.5).
    fn visible_bytes(&self, number: u32, length: usize) -> usize {
        match number {
            _ if self.in_64_bit_mode() => length,
            1 | YMM_HIGH | ZMM_HIGH => length / 2,
            ZMM_16 => 0,
            _ => length,
        }
    }

    /// Make XINUSE what it is after a restore of the `requested` components, of which only the
    /// `loaded` ones are in memory. What the mode cannot see stays.
    fn forget_components(&mut self, requested: u64, loaded: u64) {
        let before = self.components_in_use();
        self.settle(requested);
        let mut after = before & !requested | loaded;
        if !self.in_64_bit_mode() {
            let initialized = before & requested & !loaded;
            for number in [1, YMM_HIGH, ZMM_HIGH, ZMM_16] {
                if initialized >> number & 1 != 0 {
                    let region = Self::region(number);
                    let length = self.visible_bytes(number, region.len());
                    self.context.xsave.0[region][..length].fill(0);
                    after |= 1 << number;
                }
            }
        }
        self.set_in_use(after);
    }

    /// #GP(0) for a header that no save can have written.
    fn check_header(&self, legacy: &[u8], state: u64, format: u64) -> Result<(), Trap> {
        let xcr0 = self.context.regs.xcr0;
        let zero = |range: std::ops::Range<usize>| legacy[range].iter().all(|&byte| byte == 0);
        let good = if format & COMPACTED != 0 {
            let present = format & !COMPACTED;
            present & !xcr0 == 0 && state & !present == 0 && zero(528..576)
        } else {
            state & !xcr0 == 0 && format == 0 && zero(528..536)
        };
        if good { Ok(()) } else { Err(gp0()) }
    }

    /// `vzeroall`, `vzeroupper`: outside 64-bit mode only of the registers that the mode has.
    pub(crate) fn clear_vectors(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        if self.in_64_bit_mode() {
            return self.execute_native(instruction);
        }
        for number in 0..8 {
            let mut bytes = [0; 64];
            if instruction.mnemonic() == Mnemonic::Vzeroupper {
                bytes[..16].copy_from_slice(&self.vector_register(number)[..16]);
            }
            self.set_vector_register(number, &bytes);
        }
        Ok(())
    }

    /// The 64 bytes of a vector register.
    pub(super) fn vector_register(&mut self, number: usize) -> [u8; 64] {
        self.settle(self.system.components());
        let area = &self.context.xsave.0;
        let mut bytes = [0; 64];
        for (range, at) in register_parts(number, self.system.components()) {
            let length = range.len();
            bytes[range].copy_from_slice(&area[at..at + length]);
        }
        bytes
    }

    /// Set a whole vector register.
    pub(super) fn set_vector_register(&mut self, number: usize, bytes: &[u8; 64]) {
        let supported = self.system.components();
        let needed: &[u32] = if number < 16 { &[1, YMM_HIGH, ZMM_HIGH] } else { &[ZMM_16] };
        for &part in needed.iter().filter(|&&part| supported >> part & 1 != 0) {
            self.use_component(part);
        }
        for (range, at) in register_parts(number, supported) {
            let length = range.len();
            self.context.xsave.0[at..at + length].copy_from_slice(&bytes[range]);
        }
    }

    /// An MMX register.
    pub(super) fn mmx_register(&mut self, number: usize) -> u64 {
        self.settle(X87);
        // The image has the registers in stack order; MMX instructions have set TOP to 0.
        let top = usize::from(self.context.xsave.0[3] >> 3 & 7);
        let place = ST + 16 * ((number + 8 - top) % 8);
        u64_at(&self.context.xsave.0, place)
    }

    /// What executing any MMX instruction does to the x87 state: TOP is 0 and all tags are valid
    /// (SDM 1 9.5.2).
    pub(super) fn enter_mmx(&mut self) {
        self.use_component(0);
        let area = &mut self.context.xsave.0;
        let top = usize::from(area[3] >> 3 & 7);
        let mut registers = [0; XMM - ST];
        for number in 0..8 {
            let from = ST + 16 * ((number + 8 - top) % 8);
            registers[16 * number..16 * number + 16].copy_from_slice(&area[from..from + 16]);
        }
        area[ST..XMM].copy_from_slice(&registers);
        area[3] &= !0x38;
        area[4] = 0xff;
    }

    /// A mask register; k0 is no mask at all.
    pub(super) fn mask_register(&mut self, number: usize) -> u64 {
        self.settle(1 << OPMASK);
        u64_at(&self.context.xsave.0, component(OPMASK).offset + 8 * number)
    }

    /// Set a mask register.
    pub(super) fn set_mask_register(&mut self, number: usize, value: u64) {
        self.use_component(OPMASK);
        let at = component(OPMASK).offset + 8 * number;
        self.context.xsave.0[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
}

fn offset(at: Linear, bytes: usize) -> Linear {
    Linear(at.0.wrapping_add(bytes as u64))
}

/// #GP(0) when a reserved bit of MXCSR would be set.
fn checked_mxcsr(legacy: &[u8]) -> Result<u32, Trap> {
    let value = u32_at(legacy, MXCSR);
    if value & !mxcsr_mask() != 0 { Err(gp0()) } else { Ok(value) }
}

/// Number, offset and size of the extended components in an area's format.
fn places(components: u64, compacted: bool) -> Vec<(u32, usize, usize)> {
    let mut next = XSAVE_HEADER_END;
    extended_components(components)
        .map(|number| {
            let part = component(number);
            if !compacted {
                return (number, part.offset, part.size);
            }
            let start = if part.aligned { next.next_multiple_of(64) } else { next };
            next = start + part.size;
            (number, start, part.size)
        })
        .collect()
}

/// The pieces of a vector register: which of its bytes, and where they are in the image.
fn register_parts(
    number: usize,
    supported: u64,
) -> impl Iterator<Item = (std::ops::Range<usize>, usize)> {
    let place = |part: u32, index: usize, size: usize| component(part).offset + index * size;
    let has = move |part: u32| supported >> part & 1 != 0;
    let low = (number < 16).then(|| (0..16, XMM + 16 * number));
    let middle = (number < 16 && has(YMM_HIGH)).then(|| (16..32, place(YMM_HIGH, number, 16)));
    let high = (number < 16 && has(ZMM_HIGH)).then(|| (32..64, place(ZMM_HIGH, number, 32)));
    let whole = (number >= 16 && has(ZMM_16)).then(|| (0..64, place(ZMM_16, number - 16, 64)));
    [low, middle, high, whole].into_iter().flatten()
}
