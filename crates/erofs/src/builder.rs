//! Builds a file system entry by entry, from what is no directory of the host: an archive.
//!
//! 1. *Contents go to the file as they come*; names and attributes stay in memory until the end. So an entry may be
//!    replaced or removed by a later one. The blocks of what was replaced stay, and nothing refers to them.
//! 2. *What cannot be reached from the root in the end is not there*, and how many names a file has is counted then.
//! 3. *No caller can make what Linux would find broken*: names are names, a directory has one, and only files have
//!    further ones.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

use crate::format::{self, BLOCK_BYTES};
use crate::limits::{BUFFER_BYTES, MAX_INLINE_BYTES, MAX_LINK_BYTES, MAX_NAME_BYTES};
use crate::output::Output;
use crate::tree::{Data, Inode, Tree};
use crate::{Attributes, Error, Identity, place};

/// The kinds of a mode (`S_IFMT`).
const DIRECTORY: u32 = 0o04 << 12;
const REGULAR: u32 = 0o10 << 12;
const SYMLINK: u32 = 0o12 << 12;
const CHARACTER_DEVICE: u32 = 0o02 << 12;
const BLOCK_DEVICE: u32 = 0o06 << 12;
const FIFO: u32 = 0o01 << 12;

/// The bits of a mode that chmod(2) sets.
const PERMISSIONS: u32 = 0o7777;

/// A file of a [`Builder`], with or without a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node(u32);

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind<'a> {
    /// A directory.
    Directory,
    /// A symbolic link, with what it says.
    Symlink(&'a [u8]),
    /// Anything else.
    Other,
}

/// A file that has no contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// A character device, by major and minor number.
    Character(u32, u32),
    /// A block device, likewise.
    Block(u32, u32),
    /// A named pipe.
    Fifo,
}

/// What a file has.
#[derive(Debug)]
enum Contents {
    Directory(BTreeMap<Vec<u8>, Node>),
    Symlink(Vec<u8>),
    Other(Data, u64),
}

/// See above.
pub struct Builder<'a> {
    output: Output<'a>,
    nodes: Vec<(Attributes, Contents)>,
}

impl<'a> Builder<'a> {
    /// Begins a file system in `file`, which is empty; its root has these attributes.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn new(file: &'a File, root: Attributes) -> Result<Self, Error> {
        let mut output = Output::new(file);
        output.skip_block()?;
        let mut builder = Self { output, nodes: Vec::new() };
        builder.push(DIRECTORY, root, Contents::Directory(BTreeMap::new()))?;
        Ok(builder)
    }

    /// The root.
    #[must_use]
    pub fn root(&self) -> Node {
        Node(0)
    }

    /// What has that name in a directory.
    #[must_use]
    pub fn child(&self, directory: Node, name: &[u8]) -> Option<Node> {
        self.children(directory)?.get(name).copied()
    }

    /// The names in a directory.
    pub fn names(&self, directory: Node) -> impl Iterator<Item = &[u8]> {
        self.children(directory).into_iter().flatten().map(|(name, _)| name.as_slice())
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self, node: Node) -> Kind<'_> {
        match &self.nodes[node.0 as usize].1 {
            Contents::Directory(_) => Kind::Directory,
            Contents::Symlink(target) => Kind::Symlink(target),
            Contents::Other(..) => Kind::Other,
        }
    }

    /// Its attributes.
    #[must_use]
    pub fn attributes(&self, node: Node) -> &Attributes {
        &self.nodes[node.0 as usize].0
    }

    /// Gives it others. It stays of its kind, whatever their mode says.
    pub fn set_attributes(&mut self, node: Node, attributes: Attributes) {
        let own = &mut self.nodes[node.0 as usize].0;
        let mode = attributes.mode & PERMISSIONS | own.mode & !PERMISSIONS;
        *own = Attributes { mode, ..attributes };
    }

    /// Makes an empty directory, in the place of whatever has that name.
    ///
    /// # Errors
    ///
    /// [`Error::Name`]: it is no name, or not in a directory. [`Error::TooLarge`].
    pub fn add_directory(
        &mut self,
        above: Node,
        name: &[u8],
        attributes: Attributes,
    ) -> Result<Node, Error> {
        self.add(above, name, DIRECTORY, attributes, Contents::Directory(BTreeMap::new()))
    }

    /// Makes a symbolic link, likewise.
    ///
    /// # Errors
    ///
    /// The same; what it says has a length that Linux allows.
    pub fn add_symlink(
        &mut self,
        above: Node,
        name: &[u8],
        attributes: Attributes,
        target: &[u8],
    ) -> Result<Node, Error> {
        if target.is_empty() || target.len() > MAX_LINK_BYTES || target.contains(&0) {
            return Err(Error::Name(String::from_utf8_lossy(name).into_owned()));
        }
        self.add(above, name, SYMLINK, attributes, Contents::Symlink(target.to_vec()))
    }

    /// Makes a device or a pipe, likewise.
    ///
    /// # Errors
    ///
    /// The same.
    pub fn add_special(
        &mut self,
        above: Node,
        name: &[u8],
        attributes: Attributes,
        special: Special,
    ) -> Result<Node, Error> {
        let (kind, data) = match special {
            Special::Character(major, minor) => {
                (CHARACTER_DEVICE, Data::Device(format::device(major, minor)))
            }
            Special::Block(major, minor) => {
                (BLOCK_DEVICE, Data::Device(format::device(major, minor)))
            }
            Special::Fifo => (FIFO, Data::Nothing),
        };
        self.add(above, name, kind, attributes, Contents::Other(data, 0))
    }

    /// Makes a regular file with so many bytes of `contents`, likewise.
    ///
    /// # Errors
    ///
    /// The same; [`Error::Contents`]: they cannot be read, or are too short.
    pub fn add_file(
        &mut self,
        above: Node,
        name: &[u8],
        attributes: Attributes,
        contents: &mut dyn Read,
        bytes: u64,
    ) -> Result<Node, Error> {
        let data = self.copy(contents, bytes)?;
        self.add(above, name, REGULAR, attributes, Contents::Other(data, bytes))
    }

    /// Gives a file that is no directory a further name, in the place of whatever has it.
    ///
    /// # Errors
    ///
    /// [`Error::Name`].
    pub fn link(&mut self, above: Node, name: &[u8], file: Node) -> Result<(), Error> {
        let refused = || Error::Name(String::from_utf8_lossy(name).into_owned());
        let is_directory = self.kind(file) == Kind::Directory;
        let is_name = is_name(name);
        match &mut self.nodes[above.0 as usize].1 {
            Contents::Directory(children) if is_name && !is_directory => {
                children.insert(name.to_vec(), file);
                Ok(())
            }
            _ => Err(refused()),
        }
    }

    /// Removes a name.
    pub fn unlink(&mut self, directory: Node, name: &[u8]) {
        if let Contents::Directory(children) = &mut self.nodes[directory.0 as usize].1 {
            children.remove(name);
        }
    }

    /// Writes all that can be reached, and has the disk have it.
    ///
    /// # Errors
    ///
    /// [`Error::Attribute`]: one that cannot be kept. [`Error::TooLarge`], and the host's. What is in the file then is
    /// no file system.
    pub fn finish(mut self) -> Result<Identity, Error> {
        let tree = self.reachable()?;
        place::write(&tree, &mut self.output)?;
        self.output.finish()
    }

    fn children(&self, directory: Node) -> Option<&BTreeMap<Vec<u8>, Node>> {
        match &self.nodes[directory.0 as usize].1 {
            Contents::Directory(children) => Some(children),
            _ => None,
        }
    }

    fn push(
        &mut self,
        kind: u32,
        mut attributes: Attributes,
        contents: Contents,
    ) -> Result<Node, Error> {
        attributes.mode = attributes.mode & PERMISSIONS | kind;
        let number = u32::try_from(self.nodes.len()).map_err(|_| Error::TooLarge)?;
        self.nodes.push((attributes, contents));
        Ok(Node(number))
    }

    fn add(
        &mut self,
        above: Node,
        name: &[u8],
        kind: u32,
        attributes: Attributes,
        contents: Contents,
    ) -> Result<Node, Error> {
        if !is_name(name) || self.kind(above) != Kind::Directory {
            return Err(Error::Name(String::from_utf8_lossy(name).into_owned()));
        }
        let node = self.push(kind, attributes, contents)?;
        if let Contents::Directory(children) = &mut self.nodes[above.0 as usize].1 {
            children.insert(name.to_vec(), node);
        }
        Ok(node)
    }

    /// Copies contents to the output, unless they are short.
    fn copy(&mut self, contents: &mut dyn Read, bytes: u64) -> Result<Data, Error> {
        if bytes == 0 {
            return Ok(Data::Nothing);
        }
        if bytes <= MAX_INLINE_BYTES as u64 {
            let mut short = vec![0; bytes as usize];
            contents.read_exact(&mut short).map_err(Error::Contents)?;
            return Ok(Data::Short(short));
        }
        let first = self.output.block()?;
        let mut buffer =
            vec![0; BUFFER_BYTES.min(bytes.next_multiple_of(BLOCK_BYTES as u64) as usize)];
        let mut left = bytes;
        while left > 0 {
            let now = left.min(buffer.len() as u64) as usize;
            contents.read_exact(&mut buffer[..now]).map_err(Error::Contents)?;
            self.output.add(&buffer[..now])?;
            left -= now as u64;
        }
        Ok(Data::Blocks(first))
    }

    /// What can be reached from the root, numbered anew in the order of its names.
    fn reachable(&mut self) -> Result<Tree, Error> {
        const NONE: u32 = u32::MAX;
        let mut numbers = vec![NONE; self.nodes.len()];
        let (mut order, mut links, mut next) = (vec![Node(0)], vec![1], vec![Node(0)]);
        numbers[0] = 0;
        while let Some(directory) = next.pop() {
            for &node in self.children(directory).into_iter().flat_map(BTreeMap::values) {
                let number = &mut numbers[node.0 as usize];
                if *number != NONE {
                    links[*number as usize] += 1;
                    continue;
                }
                *number = order.len() as u32;
                order.push(node);
                links.push(1);
                next.extend((self.kind(node) == Kind::Directory).then_some(node));
            }
        }
        let mut tree = Tree::default();
        for (node, links) in order.into_iter().zip(links) {
            let (attributes, contents) = &mut self.nodes[node.0 as usize];
            tree.inodes.push(inode(attributes, contents, links, &numbers)?);
        }
        Ok(tree)
    }
}

/// What is written of a file; `numbers` are those of all.
fn inode(
    attributes: &mut Attributes,
    contents: &mut Contents,
    links: u32,
    numbers: &[u32],
) -> Result<Inode, Error> {
    attributes.extended.sort_unstable();
    attributes.extended.dedup_by(|one, other| one.0 == other.0);
    let encoded = format::attributes(&attributes.extended).map_err(|name| Error::Attribute {
        path: "/".into(),
        name: String::from_utf8_lossy(&name).into_owned(),
    })?;
    let (data, bytes) = match contents {
        Contents::Directory(children) => {
            let numbered = |(name, node): (_, Node)| (name, numbers[node.0 as usize]);
            let children = std::mem::take(children).into_iter().map(numbered).collect();
            (Data::Directory(children), 0)
        }
        Contents::Symlink(target) => {
            let bytes = target.len() as u64;
            (Data::Short(std::mem::take(target)), bytes)
        }
        Contents::Other(data, bytes) => (std::mem::replace(data, Data::Nothing), *bytes),
    };
    Ok(Inode { attributes: attributes.clone(), encoded, links, bytes, data })
}

/// Whether a directory can have an entry of that name.
fn is_name(name: &[u8]) -> bool {
    let is_dots = name == b"." || name == b"..";
    let is_long = name.is_empty() || name.len() > MAX_NAME_BYTES;
    !is_dots && !is_long && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
}
