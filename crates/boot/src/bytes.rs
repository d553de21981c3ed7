//! Little-endian numbers in untrusted bytes: every access is checked, none panics.

/// `N` bytes at `offset`.
pub fn array_at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk().copied()
}

/// A 16-bit number at `offset`.
pub fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    array_at(bytes, offset).map(u16::from_le_bytes)
}

/// A 32-bit number at `offset`.
pub fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    array_at(bytes, offset).map(u32::from_le_bytes)
}

/// A 64-bit number at `offset`.
pub fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    array_at(bytes, offset).map(u64::from_le_bytes)
}

/// `size` bytes from `start` on; `None` where they leave the slice.
pub fn slice_at(bytes: &[u8], start: u64, size: u64) -> Option<&[u8]> {
    let end = usize::try_from(start.checked_add(size)?).ok()?;
    bytes.get(usize::try_from(start).ok()?..end)
}
