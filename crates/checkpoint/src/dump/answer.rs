//! What a process answers.

use std::os::unix::fs::FileExt;

use inject::Area;

use crate::error::Error;

/// The result of a call that must not fail.
pub(super) fn expect(pid: u32, what: &str, result: i64) -> Result<u64, Error> {
    u64::try_from(result).map_err(|_| Error::Call {
        pid,
        what: what.to_owned(),
        source: std::io::Error::from_raw_os_error(i32::try_from(-result).unwrap_or(libc::EINVAL)),
    })
}

/// A word of the memory of a process.
pub(super) fn word(area: &Area, address: u64) -> Result<u64, Error> {
    let mut bytes = [0; 8];
    let read = area.memory().read_exact_at(&mut bytes, address);
    read.map_err(Error::io("read an answer"))?;
    Ok(u64::from_le_bytes(bytes))
}
