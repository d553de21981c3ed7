//! What an area consists of.

/// Bytes of an area: a page of code, the steps, the data.
pub const AREA_BYTES: u64 = 128 << 10;
/// Bytes of a step: number, six arguments, result.
pub(crate) const STEP_BYTES: u64 = 64;
/// Bytes of the page of code.
pub(crate) const CODE_BYTES: u64 = 4096;
/// Steps of a script.
pub(crate) const MAX_STEPS: usize = 512;
/// Offset of the data.
pub(crate) const DATA: u64 = CODE_BYTES + MAX_STEPS as u64 * STEP_BYTES;
