//! A disk with layers of an image, each in a partition of its own: the GUID partition table in front of them, and its
//! copy behind them (UEFI Specification 2.10, chapter 5).
//!
//! One disk has all layers, because each disk costs the guest a probe and the host some threads, and a machine has few
//! slots for them.

use erofs::Identity;

/// The unit of the table.
const SECTOR_BYTES: u64 = 512;

/// What is in front of the first partition, and behind the last, in sectors: whole blocks of 4096 bytes.
const HEAD_SECTORS: u64 = 40;
const TAIL_SECTORS: u64 = 40;

/// A table has so many entries, each of so many bytes.
const ENTRIES: usize = 128;
const ENTRY_BYTES: usize = 128;

/// What they take.
const ENTRIES_SECTORS: u64 = (ENTRIES * ENTRY_BYTES) as u64 / SECTOR_BYTES;

/// A header's bytes.
const HEADER_BYTES: usize = 92;

/// The type of partitions with file systems of Linux (0FC63DAF-8483-4772-8E79-3D69D8477DE4), as it is written.
const LINUX: [u8; 16] = [
    0xaf, 0x3d, 0xc6, 0x0f, 0x83, 0x84, 0x72, 0x47, 0x8e, 0x79, 0x3d, 0x69, 0xd8, 0x47, 0x7d, 0xe4,
];

/// A partition: its file system, and its length in bytes, which is a multiple of 4096.
#[derive(Debug, Clone, Copy)]
pub struct Partition {
    /// Which file system it is.
    pub identity: Identity,
    /// How long it is.
    pub bytes: u64,
}

/// What is in front of the partitions, and what is behind them; the disk has this identity.
#[derive(Debug)]
pub struct Table {
    /// In front.
    pub head: Vec<u8>,
    /// Behind.
    pub tail: Vec<u8>,
}

impl Table {
    /// That of these partitions, of which a table has at most [`ENTRIES`]; those behind them are not in it.
    #[must_use]
    pub fn new(partitions: &[Partition], identity: Identity) -> Self {
        let mut entries = vec![0; ENTRIES * ENTRY_BYTES];
        let mut next = HEAD_SECTORS;
        for (partition, entry) in partitions.iter().zip(entries.chunks_mut(ENTRY_BYTES)) {
            let first = next;
            next += partition.bytes / SECTOR_BYTES;
            entry[..16].copy_from_slice(&LINUX);
            entry[16..32].copy_from_slice(&partition.identity.0);
            entry[32..40].copy_from_slice(&first.to_le_bytes());
            entry[40..48].copy_from_slice(&(next - 1).to_le_bytes());
        }
        let last = next + TAIL_SECTORS - 1;
        let sum = crc32fast::hash(&entries);
        let header = |own: u64, other: u64, entries: u64| {
            let mut header = [0; HEADER_BYTES];
            header[..8].copy_from_slice(b"EFI PART");
            header[8..12].copy_from_slice(&0x0001_0000_u32.to_le_bytes());
            header[12..16].copy_from_slice(&(HEADER_BYTES as u32).to_le_bytes());
            let places = [own, other, HEAD_SECTORS, next - 1];
            for (place, field) in places.into_iter().zip(header[24..56].chunks_mut(8)) {
                field.copy_from_slice(&place.to_le_bytes());
            }
            header[56..72].copy_from_slice(&identity.0);
            header[72..80].copy_from_slice(&entries.to_le_bytes());
            let sizes = [ENTRIES as u32, ENTRY_BYTES as u32, sum];
            for (size, field) in sizes.into_iter().zip(header[80..92].chunks_mut(4)) {
                field.copy_from_slice(&size.to_le_bytes());
            }
            let own = crc32fast::hash(&header);
            header[16..20].copy_from_slice(&own.to_le_bytes());
            header
        };
        let mut head = vec![0; (HEAD_SECTORS * SECTOR_BYTES) as usize];
        protect(&mut head, last);
        head[512..][..HEADER_BYTES].copy_from_slice(&header(1, last, 2));
        head[1024..][..entries.len()].copy_from_slice(&entries);
        let mut tail = vec![0; (TAIL_SECTORS * SECTOR_BYTES) as usize];
        let copy = TAIL_SECTORS - 1 - ENTRIES_SECTORS;
        tail[(copy * SECTOR_BYTES) as usize..][..entries.len()].copy_from_slice(&entries);
        let at = ((TAIL_SECTORS - 1) * SECTOR_BYTES) as usize;
        tail[at..][..HEADER_BYTES].copy_from_slice(&header(last, 1, next + copy));
        Self { head, tail }
    }
}

/// The table of older systems, by which they see that the disk is in use (5.2.3).
fn protect(head: &mut [u8], last: u64) {
    let record = &mut head[446..512];
    record[2..5].copy_from_slice(&[2, 0, 0xee]);
    record[5..8].copy_from_slice(&[0xff; 3]);
    record[8..12].copy_from_slice(&1_u32.to_le_bytes());
    record[12..16].copy_from_slice(&u32::try_from(last).unwrap_or(u32::MAX).to_le_bytes());
    record[64..].copy_from_slice(&[0x55, 0xaa]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(bytes: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
    }

    #[test]
    fn both_tables_say_where_partitions_are() {
        let partition =
            |n: u8, blocks: u64| Partition { identity: Identity([n; 16]), bytes: blocks * 4096 };
        let table = Table::new(&[partition(1, 3), partition(2, 1)], Identity([9; 16]));
        let disk = [table.head.clone(), vec![7; 4 * 4096], table.tail.clone()].concat();
        assert_eq!(&disk[510..512], [0x55, 0xaa]);
        let last = (disk.len() / 512 - 1) as u64;
        for (own, other) in [(1, last), (last, 1)] {
            let header = &disk[own as usize * 512..][..512];
            assert_eq!(&header[..8], b"EFI PART");
            let mut sum = header[..92].to_vec();
            sum[16..20].fill(0);
            assert_eq!(crc32fast::hash(&sum).to_le_bytes(), header[16..20]);
            assert_eq!((number(header, 24), number(header, 32)), (own, other));
            let entries = &disk[number(header, 72) as usize * 512..][..ENTRIES * ENTRY_BYTES];
            assert_eq!(crc32fast::hash(entries).to_le_bytes(), header[88..92]);
            assert_eq!((number(entries, 32), number(entries, 40)), (40, 40 + 3 * 8 - 1));
            assert_eq!((number(entries, 160), number(entries, 168)), (64, 71));
            assert!(entries[256..].iter().all(|byte| *byte == 0));
        }
        assert_eq!(disk[40 * 512], 7);
    }
}
