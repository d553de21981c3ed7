//! The layout on the disk: super block, inodes, attributes, and the blocks of directories (Linux,
//! `Documentation/filesystems/erofs.rst` and `fs/erofs/erofs_fs.h`). All numbers are little-endian.

use std::ops::Range;

/// A block; nothing smaller is read from the disk.
pub const BLOCK_BYTES: usize = 4096;

/// An inode's number counts these from the beginning of the metadata.
pub const SLOT_BYTES: usize = 32;

/// An inode in its long form, which has owners of 32 bits and a time of its own.
pub const INODE_BYTES: usize = 64;

/// Where the super block is.
pub const SUPER_OFFSET: usize = 1024;

/// The beginning of the super block.
pub const MAGIC: u32 = 0xe0f5_e1e2;

/// An entry of a directory, without its name.
const ENTRY_BYTES: usize = 12;

/// What comes before an inode's attributes, if it has any.
const ATTRIBUTES_HEADER_BYTES: usize = 12;

/// The unit in which attributes are counted.
const ATTRIBUTE_UNIT_BYTES: usize = 4;

/// The super block has a checksum; files have times of their own.
const COMPATIBLE_FEATURES: u32 = 1 | 2;

/// How file systems of ours are called.
const VOLUME_NAME: [u8; 16] = *b"bivouac\0\0\0\0\0\0\0\0\0";

/// Beginnings of attributes' names, and the numbers that stand for them. The first two are whole names.
const PREFIXES: [(&[u8], u8); 5] = [
    (b"system.posix_acl_access", 2),
    (b"system.posix_acl_default", 3),
    (b"user.", 1),
    (b"trusted.", 4),
    (b"security.", 6),
];

/// Bytes of a super block or an inode, which fields are put into.
struct Fields<const N: usize>([u8; N]);

impl<const N: usize> Fields<N> {
    fn put<const M: usize>(&mut self, at: usize, bytes: [u8; M]) -> &mut Self {
        self.0[at..at + M].copy_from_slice(&bytes);
        self
    }
}

/// What the super block says.
#[derive(Debug, Clone, Copy)]
pub struct Super {
    /// The root's number.
    pub root: u16,
    /// How many inodes there are.
    pub inodes: u64,
    /// How many blocks.
    pub blocks: u32,
    /// The first block of the metadata.
    pub metadata: u32,
    /// Which file system it is.
    pub uuid: [u8; 16],
}

impl Super {
    /// The first block.
    #[must_use]
    pub fn encode(&self) -> [u8; BLOCK_BYTES] {
        const AT: usize = SUPER_OFFSET;
        let mut block = Fields([0; BLOCK_BYTES]);
        block.put(AT, MAGIC.to_le_bytes()).put(AT + 8, COMPATIBLE_FEATURES.to_le_bytes());
        block.put(AT + 12, [BLOCK_BYTES.trailing_zeros() as u8]);
        block.put(AT + 14, self.root.to_le_bytes()).put(AT + 16, self.inodes.to_le_bytes());
        block.put(AT + 36, self.blocks.to_le_bytes()).put(AT + 40, self.metadata.to_le_bytes());
        block.put(AT + 48, self.uuid).put(AT + 64, VOLUME_NAME);
        let checksum = crc32c(&block.0[AT..]);
        block.put(AT + 4, checksum.to_le_bytes());
        block.0
    }
}

/// CRC-32C as Linux has it: begun with all bits set, and not inverted in the end.
fn crc32c(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let bit = |crc: u32| (crc >> 1) ^ (POLYNOMIAL & (crc & 1).wrapping_neg());
    bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| bit(crc)))
}

/// Where an inode's data are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// In blocks of their own.
    Plain = 0,
    /// What is in no whole block stands behind the inode.
    Inline = 2,
}

/// What an inode says.
#[derive(Debug, Clone, Copy)]
pub struct Inode {
    /// Where the data are.
    pub layout: Layout,
    /// Kind and permissions (`st_mode`).
    pub mode: u16,
    /// How many bytes of data there are.
    pub bytes: u64,
    /// The first block of the data, or a device's number ([`device`]).
    pub union: u32,
    /// A number of its own.
    pub number: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// When it was changed last, in seconds since 1970.
    pub seconds: i64,
    /// And nanoseconds.
    pub nanoseconds: u32,
    /// How many names it has.
    pub links: u32,
    /// How long its attributes are ([`attributes`]).
    pub attributes_bytes: usize,
}

impl Inode {
    /// The inode.
    #[must_use]
    pub fn encode(&self) -> [u8; INODE_BYTES] {
        const LONG: u16 = 1;
        let mut fields = Fields([0; INODE_BYTES]);
        fields.put(0, (LONG | (self.layout as u16) << 1).to_le_bytes());
        fields.put(2, attribute_units(self.attributes_bytes).to_le_bytes());
        fields.put(4, self.mode.to_le_bytes()).put(8, self.bytes.to_le_bytes());
        fields.put(16, self.union.to_le_bytes()).put(20, self.number.to_le_bytes());
        fields.put(24, self.user.to_le_bytes()).put(28, self.group.to_le_bytes());
        fields.put(32, self.seconds.to_le_bytes()).put(40, self.nanoseconds.to_le_bytes());
        fields.put(44, self.links.to_le_bytes());
        fields.0
    }
}

/// The number of a device as Linux has it on disks (`new_encode_dev`).
#[must_use]
pub fn device(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | major << 8 | (minor & !0xff) << 12
}

/// How long attributes are, as an inode says it.
fn attribute_units(bytes: usize) -> u16 {
    match bytes.checked_sub(ATTRIBUTES_HEADER_BYTES) {
        // `attributes` makes none that are longer.
        Some(rest) => u16::try_from(rest / ATTRIBUTE_UNIT_BYTES + 1).unwrap_or(u16::MAX),
        None => 0,
    }
}

/// Attributes, by name and value, as they stand behind an inode: empty if there are none. The name of the one
/// that cannot be there, otherwise: it is of an unknown kind, or too long.
///
/// # Errors
///
/// That name.
pub fn attributes(list: &[(Vec<u8>, Vec<u8>)]) -> Result<Vec<u8>, Vec<u8>> {
    if list.is_empty() {
        return Ok(Vec::new());
    }
    let mut bytes = vec![0; ATTRIBUTES_HEADER_BYTES];
    for (name, value) in list {
        let fails = || name.clone();
        let (prefix, index) =
            PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix)).ok_or_else(fails)?;
        let rest = &name[prefix.len()..];
        let is_whole_name = !prefix.ends_with(b".");
        let name_bytes = u8::try_from(rest.len()).map_err(|_| fails())?;
        let value_bytes = u16::try_from(value.len()).map_err(|_| fails())?;
        if is_whole_name != rest.is_empty() {
            return Err(fails());
        }
        bytes.extend([name_bytes, *index]);
        bytes.extend(value_bytes.to_le_bytes());
        bytes.extend(rest);
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(ATTRIBUTE_UNIT_BYTES), 0);
        if (bytes.len() - ATTRIBUTES_HEADER_BYTES) / ATTRIBUTE_UNIT_BYTES >= usize::from(u16::MAX) {
            return Err(fails());
        }
    }
    Ok(bytes)
}

/// An entry of a directory.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// The inode's number.
    pub inode: u64,
    /// Kind and permissions of the inode.
    pub mode: u32,
}

/// What an entry says of a mode's kind (`FT_*`, Linux, `include/linux/fs_types.h`).
fn kind(mode: u32) -> u8 {
    match mode >> 12 {
        0o10 => 1,
        0o04 => 2,
        0o02 => 3,
        0o06 => 4,
        0o01 => 5,
        0o14 => 6,
        0o12 => 7,
        _ => 0,
    }
}

/// How names, in their order, come into the blocks of a directory, and how many bytes of the last block are used.
#[must_use]
pub fn split<'a>(names: impl Iterator<Item = &'a [u8]>) -> (Vec<Range<usize>>, usize) {
    let (mut ranges, mut used, mut first, mut count) = (Vec::new(), 0, 0, 0);
    for name in names {
        let bytes = ENTRY_BYTES + name.len();
        if used + bytes > BLOCK_BYTES {
            ranges.push(first..count);
            (first, used) = (count, 0);
        }
        used += bytes;
        count += 1;
    }
    ranges.push(first..count);
    (ranges, used)
}

/// The entries of one block, without what is left of it.
#[must_use]
pub fn entries(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(BLOCK_BYTES);
    let mut name_at = entries.len() * ENTRY_BYTES;
    for entry in entries {
        bytes.extend(entry.inode.to_le_bytes());
        // It is in the block (`split`).
        bytes.extend((name_at as u16).to_le_bytes());
        bytes.extend([kind(entry.mode), 0]);
        name_at += entry.name.len();
    }
    entries.iter().for_each(|entry| bytes.extend(entry.name));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        // RFC 3720, B.4, not inverted.
        assert_eq!(!crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(!crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn attributes_that_cannot_be_kept_are_named() {
        let check = |name: &str, length: usize| attributes(&[(name.into(), vec![1; length])]);
        assert!(check("user.a", 65_535).is_ok());
        assert!(check("system.posix_acl_access", 28).is_ok());
        for (name, length) in [
            ("user.a", 65_536),
            ("system.posix_acl_accessory", 1),
            ("system.nfs4_acl", 1),
            ("x", 1),
        ] {
            assert_eq!(check(name, length), Err(name.into()), "{name}");
        }
        let many: Vec<_> =
            (0..5).map(|number| (format!("user.{number}").into(), vec![0; 60_000])).collect();
        assert_eq!(attributes(&many), Err(b"user.4".to_vec()));
        assert_eq!(attributes(&[]), Ok(Vec::new()));
    }

    #[test]
    fn a_directory_is_split_where_a_block_is_full() {
        let name = [b'a'; 244];
        let (ranges, used) = split(std::iter::repeat_n(&name[..], 33));
        assert_eq!(ranges, [0..16, 16..32, 32..33]);
        assert_eq!(used, 256);
        let (ranges, used) = split([&b"."[..], b".."].into_iter());
        assert!(ranges.iter().eq([&(0..2)]) && used == 27);
    }
}
