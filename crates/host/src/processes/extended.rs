//! The layout of the extended state of this processor: the standard (not compacted) format of XSAVE, which ptrace has.
//!
//! Intel SDM volume 1, section 13.4: 512 bytes of legacy state, a header of 64 bytes whose first word says which
//! components are not in their initial configuration, and components at the offsets that CPUID leaf 0DH names.

use std::arch::x86_64::__cpuid_count;

/// Bytes of the legacy region.
pub const LEGACY_BYTES: usize = 512;
/// Where the header's bit map of components is (`XSTATE_BV`).
pub const COMPONENTS_OFFSET: usize = 512;
/// Bytes of the legacy region and the header.
pub const HEADER_END: usize = 576;
/// The leaf that describes the state.
const LEAF: u32 = 0xd;

/// Offset and bytes of component `number` (2 and up) on this processor; none if it has no such component.
#[must_use]
pub fn component(number: u32) -> Option<(usize, usize)> {
    if !(2..63).contains(&number) {
        return None;
    }
    let leaf = __cpuid_count(LEAF, number);
    // Bit 0 of ECX: a supervisor component, which user mode never has.
    let is_there = leaf.eax != 0 && leaf.ecx & 1 == 0;
    is_there.then_some((leaf.ebx as usize, leaf.eax as usize))
}
