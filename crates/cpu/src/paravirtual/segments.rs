//! The flat segments that a paravirtual kernel is entered with.

use crate::state::Segment;
use crate::system::flat;

/// The flat segment of 64-bit code, with this selector.
pub(super) fn flat_code(selector: u16) -> Segment {
    flat(selector, 0xa09b)
}

/// The flat segment of data, with this selector.
pub(super) fn flat_data(selector: u16) -> Segment {
    flat(selector, 0xc093)
}
