//! A reader of file systems, written after Linux's `Documentation/filesystems/erofs.rst` and nothing of ours, that
//! complains of all that the kernel would find broken.

use std::collections::BTreeMap;

const BLOCK: usize = 4096;

/// A file as it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its inode's number.
    pub number: u64,
    pub mode: u32,
    pub owner: (u32, u32),
    pub modified: (i64, u32),
    pub links: u32,
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    /// A regular file's bytes, or what a link says.
    pub contents: Vec<u8>,
    /// Major and minor number.
    pub device: Option<(u32, u32)>,
}

pub struct Reader<'a> {
    bytes: &'a [u8],
    metadata: usize,
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let mut whole = [0; 8];
    whole[..N].copy_from_slice(&bytes[at..at + N]);
    u64::from_le_bytes(whole)
}

/// All files by their paths from the root, which is empty.
pub fn read(bytes: &[u8]) -> BTreeMap<Vec<u8>, Node> {
    let start = &bytes[1024..];
    assert_eq!(number::<4>(start, 0), 0xe0f5_e1e2);
    assert_eq!(start[12], 12, "blocks of 4096 bytes");
    assert_eq!(number::<4>(start, 80), 0, "nothing that an old kernel does not know");
    assert_eq!(number::<4>(start, 36) as usize * BLOCK, bytes.len());
    let reader = Reader { bytes, metadata: number::<4>(start, 40) as usize * BLOCK };
    let root = number::<2>(start, 14);
    let mut found = BTreeMap::new();
    reader.read_all(Vec::new(), root, root, &mut found);
    let mut inodes: Vec<_> = found.values().map(|node| node.number).collect();
    inodes.sort_unstable();
    inodes.dedup();
    assert_eq!(number::<8>(start, 16), inodes.len() as u64);
    for inode in inodes {
        let names = found.values().filter(|node| node.number == inode);
        let (count, node) = (names.clone().count(), names.clone().next().unwrap());
        if node.mode >> 12 != 0o4 {
            assert_eq!(node.links as usize, count);
        }
    }
    found
}

impl Reader<'_> {
    fn read_all(&self, path: Vec<u8>, inode: u64, above: u64, found: &mut BTreeMap<Vec<u8>, Node>) {
        let node = self.node(inode);
        if node.mode >> 12 == 0o4 {
            let entries = self.entries(&node.contents);
            let mut below = 0;
            for (name, child, kind) in entries {
                let mode = self.node(child).mode;
                let kinds =
                    [(0o10, 1), (0o4, 2), (0o2, 3), (0o6, 4), (0o1, 5), (0o14, 6), (0o12, 7)];
                assert!(kinds.contains(&(mode >> 12, kind)), "{name:?}");
                match name.as_slice() {
                    b"." => assert_eq!(child, inode),
                    b".." => assert_eq!(child, above),
                    _ => {
                        below += u32::from(kind == 2);
                        let path = [&path[..], b"/", &name].concat();
                        self.read_all(path, child, inode, found);
                    }
                }
            }
            assert_eq!(node.links, 2 + below);
        }
        assert!(found.insert(path, node).is_none(), "a name twice");
    }

    fn node(&self, inode: u64) -> Node {
        assert_ne!(inode, 0);
        let at = self.metadata + inode as usize * 32;
        let fields = &self.bytes[at..at + 64];
        let format = number::<2>(fields, 0);
        assert_eq!(format & 1, 1, "the long form");
        let (mode, size) = (number::<2>(fields, 4) as u32, number::<8>(fields, 8) as usize);
        let units = number::<2>(fields, 2) as usize;
        let attributes_bytes = if units == 0 { 0 } else { 12 + 4 * (units - 1) };
        let union = number::<4>(fields, 16);
        let behind = at + 64 + attributes_bytes;
        let is_device = [0o2, 0o6].contains(&(mode >> 12));
        let contents = match format >> 1 {
            _ if is_device => Vec::new(),
            0 => self.bytes[union as usize * BLOCK..][..size].to_vec(),
            2 => {
                let tail = size % BLOCK;
                assert!(tail > 0 && behind % BLOCK + tail <= BLOCK, "a tail that crosses blocks");
                assert!(mode >> 12 != 0o12 || (at + 64) % BLOCK + attributes_bytes + tail <= BLOCK);
                let whole = &self.bytes[union as usize * BLOCK..][..size - tail];
                [whole, &self.bytes[behind..][..tail]].concat()
            }
            other => panic!("layout {other}"),
        };
        Node {
            number: inode,
            mode,
            owner: (number::<4>(fields, 24) as u32, number::<4>(fields, 28) as u32),
            modified: (number::<8>(fields, 32) as i64, number::<4>(fields, 40) as u32),
            links: number::<4>(fields, 44) as u32,
            attributes: attributes(&self.bytes[at + 64..behind]),
            contents,
            device: is_device.then(|| {
                let minor = union & 0xff | union >> 12 & 0x000f_ff00;
                ((union >> 8 & 0xfff) as u32, minor as u32)
            }),
        }
    }

    /// Name, inode and kind of each entry, in a list that the kernel can search by halves.
    fn entries(&self, contents: &[u8]) -> Vec<(Vec<u8>, u64, u8)> {
        let mut found: Vec<(Vec<u8>, u64, u8)> = Vec::new();
        for block in contents.chunks(BLOCK) {
            let count = number::<2>(block, 8) as usize / 12;
            for entry in 0..count {
                let at = entry * 12;
                let begin = number::<2>(block, at + 8) as usize;
                let end = match entry + 1 < count {
                    true => number::<2>(block, at + 20) as usize,
                    false => {
                        let zero = block[begin..].iter().position(|byte| *byte == 0);
                        zero.map_or(block.len(), |zero| begin + zero)
                    }
                };
                let name = block[begin..end].to_vec();
                assert!(!name.is_empty() && !name.contains(&0) && !name.contains(&b'/'));
                assert!(found.last().is_none_or(|(last, ..)| *last < name), "not in order");
                found.push((name, number::<8>(block, at), block[at + 10]));
            }
        }
        found
    }
}

fn attributes(bytes: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut at = 12;
    while at < bytes.len() {
        let (name_bytes, value_bytes) =
            (usize::from(bytes[at]), number::<2>(bytes, at + 2) as usize);
        let prefix: &[u8] = match bytes[at + 1] {
            1 => b"user.",
            2 => b"system.posix_acl_access",
            3 => b"system.posix_acl_default",
            4 => b"trusted.",
            6 => b"security.",
            other => panic!("attributes of kind {other}"),
        };
        let name = [prefix, &bytes[at + 4..][..name_bytes]].concat();
        let value = bytes[at + 4 + name_bytes..][..value_bytes].to_vec();
        found.insert(name, value);
        at = (at + 4 + name_bytes + value_bytes).next_multiple_of(4);
    }
    found
}
