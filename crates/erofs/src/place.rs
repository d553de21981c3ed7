//! Gives each inode its place, and writes directories and inodes there.

use std::ops::Range;

use crate::Error;
use crate::format::{self, BLOCK_BYTES, Entry, INODE_BYTES, Layout, SLOT_BYTES, Super};
use crate::output::Output;
use crate::tree::{Data, Inode, Tree};

/// Where an inode is, and its data.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    /// In bytes from the beginning of the metadata; none yet, if it is 0.
    at: u64,
    /// How many bytes of data stand behind it.
    inline: usize,
}

/// The two entries that are in every directory, the directory itself and the one above, among the others.
fn with_dots(entries: &[(Vec<u8>, u32)], own: u32, above: u32) -> Vec<(&[u8], u32)> {
    let mut all: Vec<_> = [(&b"."[..], own), (b"..", above)].to_vec();
    all.extend(entries.iter().map(|(name, inode)| (name.as_slice(), *inode)));
    // Some names come before: they are all in the order of their bytes.
    all.sort_unstable();
    all
}

/// How the entries of a directory come into blocks, and its size.
fn split(entries: &[(Vec<u8>, u32)]) -> (Vec<Range<usize>>, usize) {
    let all = with_dots(entries, 0, 0);
    let (ranges, used) = format::split(all.iter().map(|(name, _)| *name));
    let bytes = (ranges.len() - 1) * BLOCK_BYTES + used;
    (ranges, bytes)
}

/// Where everything is.
struct Plan<'a> {
    tree: &'a Tree,
    places: Vec<Place>,
    /// The inodes, in the order of their places.
    order: Vec<u32>,
    /// Directories, in the same order, each with the one above.
    directories: Vec<(u32, u32)>,
    /// Where the next inode comes.
    end: u64,
}

impl<'a> Plan<'a> {
    fn of(tree: &'a Tree) -> Self {
        let places = vec![Place::default(); tree.inodes.len()];
        let (order, directories) = (Vec::with_capacity(tree.inodes.len()), Vec::new());
        // No inode has the number 0, which stands for none.
        let mut plan = Self { tree, places, order, directories, end: SLOT_BYTES as u64 };
        plan.place(0);
        let mut next = vec![(0, 0)];
        while let Some((directory, above)) = next.pop() {
            plan.directories.push((directory, above));
            let Data::Directory(entries) = &tree.inodes[directory as usize].data else { continue };
            for (_, inode) in entries {
                plan.place(*inode);
            }
            let is_directory =
                |inode: u32| matches!(tree.inodes[inode as usize].data, Data::Directory(_));
            let below = entries.iter().rev().filter(|(_, inode)| is_directory(*inode));
            next.extend(below.map(|(_, inode)| (*inode, directory)));
        }
        plan
    }

    /// Gives an inode the next place, unless it has one: under another name.
    fn place(&mut self, number: u32) {
        if self.places[number as usize].at != 0 {
            return;
        }
        let inode = &self.tree.inodes[number as usize];
        let tail = match &inode.data {
            Data::Short(contents) => contents.len(),
            Data::Directory(entries) => split(entries).1 % BLOCK_BYTES,
            Data::Blocks(_) | Data::Device(_) | Data::Nothing => 0,
        };
        // An inode and what stands behind it are in one block. Attributes may be longer than one.
        let (bare, whole) = (INODE_BYTES, INODE_BYTES + inode.encoded.len() + tail);
        let inline = if whole <= BLOCK_BYTES { tail } else { 0 };
        let together = if whole <= BLOCK_BYTES { whole } else { bare };
        let used = (self.end % BLOCK_BYTES as u64) as usize;
        if used + together > BLOCK_BYTES {
            self.end = self.end.next_multiple_of(BLOCK_BYTES as u64);
        }
        self.places[number as usize] = Place { at: self.end, inline };
        self.order.push(number);
        let bytes = INODE_BYTES + inode.encoded.len() + inline;
        self.end += bytes.next_multiple_of(SLOT_BYTES) as u64;
    }

    fn number(&self, inode: u32) -> u64 {
        self.places[inode as usize].at / SLOT_BYTES as u64
    }

    /// The bytes of a directory, block by block, the last one as long as it is used.
    fn blocks(&self, directory: u32, above: u32) -> Vec<Vec<u8>> {
        let Data::Directory(entries) = &self.tree.inodes[directory as usize].data else {
            return Vec::new();
        };
        let all = with_dots(entries, directory, above);
        let entry = |&(name, inode): &(_, u32)| {
            let mode = self.tree.inodes[inode as usize].attributes.mode;
            Entry { name, inode: self.number(inode), mode }
        };
        let ranges = split(entries).0.into_iter();
        let block = |range: Range<usize>| {
            format::entries(&all[range].iter().map(entry).collect::<Vec<_>>())
        };
        ranges.map(block).collect()
    }

    /// How many names lead to it.
    fn links(&self, inode: &Inode) -> u32 {
        let Data::Directory(entries) = &inode.data else { return inode.links };
        let is_directory =
            |number: u32| matches!(self.tree.inodes[number as usize].data, Data::Directory(_));
        // Its name, its own entry, and one of each directory below.
        2 + entries.iter().filter(|(_, inode)| is_directory(*inode)).count() as u32
    }

    fn encode(&self, number: u32, first_block: u32, bytes: u64) -> [u8; INODE_BYTES] {
        let inode = &self.tree.inodes[number as usize];
        let is_inline = self.places[number as usize].inline > 0;
        let attributes = &inode.attributes;
        format::Inode {
            layout: if is_inline { Layout::Inline } else { Layout::Plain },
            // Kind and permissions have 16 bits.
            mode: attributes.mode as u16,
            bytes,
            union: match inode.data {
                Data::Device(device) => device,
                _ => first_block,
            },
            number: number + 1,
            user: attributes.user,
            group: attributes.group,
            seconds: attributes.seconds,
            nanoseconds: attributes.nanoseconds,
            links: self.links(inode),
            attributes_bytes: inode.encoded.len(),
        }
        .encode()
    }
}

/// Writes all inodes, and what directories and long links have, behind the contents that are there.
///
/// # Errors
///
/// [`Error::TooLarge`], and the host's.
pub fn write(tree: &Tree, output: &mut Output<'_>) -> Result<(), Error> {
    let plan = Plan::of(tree);
    // For each inode its first block, its size, and what stands behind it.
    let mut data = vec![(0, 0, Vec::new()); tree.inodes.len()];
    for &(directory, above) in &plan.directories {
        let first = output.block()?;
        let mut blocks = plan.blocks(directory, above);
        let used = blocks.last().map_or(0, Vec::len);
        let bytes = (blocks.len() * BLOCK_BYTES - BLOCK_BYTES + used) as u64;
        let inline = match plan.places[directory as usize].inline {
            0 => Vec::new(),
            _ => blocks.pop().unwrap_or_default(),
        };
        for block in blocks {
            output.add(&block)?;
        }
        data[directory as usize] = (first, bytes, inline);
    }
    for (number, inode) in tree.inodes.iter().enumerate() {
        data[number] = match &inode.data {
            Data::Directory(_) => continue,
            Data::Blocks(first) => (*first, inode.bytes, Vec::new()),
            Data::Short(contents) if plan.places[number].inline > 0 => {
                (0, inode.bytes, contents.clone())
            }
            Data::Short(contents) => {
                let first = output.block()?;
                output.add(contents)?;
                (first, inode.bytes, Vec::new())
            }
            Data::Device(_) | Data::Nothing => (0, 0, Vec::new()),
        };
    }
    write_inodes(&plan, &data, output)
}

fn write_inodes(
    plan: &Plan<'_>,
    data: &[(u32, u64, Vec<u8>)],
    output: &mut Output<'_>,
) -> Result<(), Error> {
    let metadata = output.block()?;
    let mut pending = Vec::new();
    // Where the pending bytes begin.
    let mut begin = 0;
    for &number in &plan.order {
        let at = (plan.places[number as usize].at - begin) as usize;
        pending.resize(at, 0);
        let (first, bytes, inline) = &data[number as usize];
        pending.extend(plan.encode(number, *first, *bytes));
        pending.extend(&plan.tree.inodes[number as usize].encoded);
        pending.extend(inline);
        let whole = pending.len() - pending.len() % BLOCK_BYTES;
        output.add(&pending[..whole])?;
        pending.drain(..whole);
        begin += whole as u64;
    }
    output.add(&pending)?;
    let root = u16::try_from(plan.number(0)).map_err(|_| Error::TooLarge)?;
    let inodes = plan.tree.inodes.len() as u64;
    output.set_super_block(Super { root, inodes, blocks: 0, metadata, uuid: [0; 16] });
    Ok(())
}
