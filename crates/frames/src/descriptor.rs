//! Segment descriptors that a paravirtual guest may have in its GDT and LDTs (SDM volume 3A, 3.4.5 and 5.8.3).

use crate::limits::MAX_GDT_ENTRIES;

const PRESENT: u64 = 1 << 47;
const CODE_OR_DATA: u64 = 1 << 44;
const TYPE_SHIFT: u32 = 40;
const LEVEL_SHIFT: u32 = 45;
const LEVEL: u64 = 3 << LEVEL_SHIFT;

/// The system type of a 64-bit call gate.
const CALL_GATE: u64 = 0xc;

/// Bits of a 64-bit call gate that must be zero.
const RESERVED_IN_GATE: u64 = 0xff << 32;

/// A call gate's selector.
const SELECTOR: u64 = 0xffff << 16;
const SELECTOR_SHIFT: u32 = 16;
const SELECTOR_OF_LDT: u64 = 4;

/// The hypervisor's own flat code segment.
const FLAT_KERNEL_CS: u64 = 0xe033;

/// The descriptor as a guest may have it, or `None` if it may not.
///
/// Code and data segments get privilege level 3, which the guest's kernel runs at. A call gate cannot be used: it gets
/// level 0, so that its use is a fault that names it, and its selector keeps the level. Not present descriptors, and
/// those of system type 0 (the second half of a gate), are harmless. Others are refused.
pub fn check_descriptor(descriptor: u64) -> Option<u64> {
    if descriptor & PRESENT == 0 {
        return Some(descriptor);
    }
    if descriptor & CODE_OR_DATA != 0 {
        return Some(descriptor | LEVEL);
    }
    match descriptor >> TYPE_SHIFT & 0xf {
        0 => Some(descriptor),
        CALL_GATE => check_gate(descriptor),
        _ => None,
    }
}

fn check_gate(gate: u64) -> Option<u64> {
    let selector = (gate & SELECTOR) >> SELECTOR_SHIFT;
    let is_guests = (selector >> 3) < MAX_GDT_ENTRIES as u64 || selector & SELECTOR_OF_LDT != 0;
    let is_allowed = is_guests || selector == FLAT_KERNEL_CS;
    (is_allowed && gate & RESERVED_IN_GATE == 0).then_some(gate & !LEVEL | 3 << SELECTOR_SHIFT)
}
