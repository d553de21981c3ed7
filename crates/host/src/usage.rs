//! The I/O of this process, by the host's account.

/// The unit of `ru_inblock` and `ru_oublock` (getrusage(2), linux/sched.h).
const BLOCK_BYTES: u64 = 512;

/// Bytes that this process has read from disks, and written to them. It can ask this when it is confined and
/// `/proc/self/io` cannot be opened.
#[must_use]
pub fn moved_bytes() -> (u64, u64) {
    // SAFETY: all zero is a valid `rusage`, and the call writes to that one only.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let bytes = |blocks: i64| blocks.max(0).cast_unsigned() * BLOCK_BYTES;
    (bytes(usage.ru_inblock), bytes(usage.ru_oublock))
}
