//! Files that are taken for snapshots: any bytes, and what is behind a header and checksums that are right.

#![no_main]

use std::fs::File;
use std::os::unix::fs::FileExt;

use libfuzzer_sys::fuzz_target;
use vmm::snapshot::Snapshot;

/// See docs/snapshots.md.
const HEADER_BYTES: usize = 4096;

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    let Some((numbers, body)) = bytes.split_at_checked(56) else { return };
    let mut header = b"BIVSNAP\n\x02\0\0\0\0\x80\0\0".to_vec();
    header.extend(numbers);
    // The table is where the header says, if that is in the file at all.
    let table = usize::try_from(u64::from_le_bytes(std::array::from_fn(|n| numbers[16 + n])));
    let table = table.unwrap_or(usize::MAX).saturating_sub(HEADER_BYTES).min(body.len());
    header.extend(crc32fast::hash(&body[table..]).to_le_bytes());
    header.extend(crc32fast::hash(&header).to_le_bytes());
    header.resize(HEADER_BYTES, 0);
    check(&[&header, body].concat());
});

fn check(bytes: &[u8]) {
    let file = rustix::fs::memfd_create("snapshot", rustix::fs::MemfdFlags::CLOEXEC);
    let file = File::from(file.expect("there is memory"));
    file.write_all_at(bytes, 0).expect("there is memory");
    if let Ok(snapshot) = Snapshot::open(file) {
        let _ = snapshot.verify();
        let _ = snapshot.check_host();
    }
}
