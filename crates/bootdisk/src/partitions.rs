//! The parts of a disk: those of its partition table, or all of it.

use gpt::GptConfig;
use gpt::disk::LogicalBlockSize;
use mbrman::MBR;

use crate::limits::PARTITIONS_MAX;
use crate::window::Window;

/// The unit of positions in an MBR, and in a GPT if that does not say otherwise.
const SECTOR_BYTES: u64 = 512;

/// The signature of an MBR, at its end.
const MBR_MAGIC: [u8; 2] = [0x55, 0xaa];

/// A partition, or the whole disk.
#[derive(Debug)]
pub struct Partition {
    /// Its number, unless it is the whole disk.
    pub number: Option<u32>,
    /// Where it is.
    pub window: Window,
}

/// The partitions of a disk, in the order of their numbers.
pub fn of(disk: &Window) -> Vec<Partition> {
    let mut found = by_gpt(disk).or_else(|| by_mbr(disk)).unwrap_or_default();
    found.retain(|partition| partition.window.bytes() > 0);
    if found.is_empty() {
        return vec![Partition { number: None, window: disk.clone() }];
    }
    found.sort_by_key(|partition| partition.number);
    found.truncate(PARTITIONS_MAX);
    found
}

fn by_gpt(disk: &Window) -> Option<Vec<Partition>> {
    let sizes = [LogicalBlockSize::Lb512, LogicalBlockSize::Lb4096];
    sizes.into_iter().find_map(|size| {
        let config = GptConfig::new().writable(false).logical_block_size(size);
        let table = config.open_from_device(disk.clone()).ok()?;
        let partition = |(number, found): (&u32, &gpt::partition::Partition)| {
            let start = found.bytes_start(size).ok()?;
            let window = disk.part(start, found.bytes_len(size).ok()?);
            found.is_used().then_some(Partition { number: Some(*number), window })
        };
        Some(table.partitions().iter().filter_map(partition).collect())
    })
}

fn by_mbr(disk: &Window) -> Option<Vec<Partition>> {
    // A file system on the whole disk may have these two bytes, too, and no sane table.
    if !disk.has(SECTOR_BYTES - 2, &MBR_MAGIC) {
        return None;
    }
    let table = MBR::read_from(&mut disk.clone(), SECTOR_BYTES as u32).ok()?;
    let is_used = |found: &mbrman::MBRPartitionEntry| found.is_used() && !found.is_extended();
    let partition = |(number, found): (usize, &mbrman::MBRPartitionEntry)| {
        let (start, sectors) = (u64::from(found.starting_lba), u64::from(found.sectors));
        let window = disk.part(start * SECTOR_BYTES, sectors * SECTOR_BYTES);
        Some(Partition { number: Some(u32::try_from(number).ok()?), window })
    };
    let used = table.iter().filter(|(_, found)| is_used(found));
    Some(used.filter_map(partition).collect())
}
