//! A layer: an archive with changes of a root (image-spec, `layer.md`), converted to a read-only file system.
//!
//! *The idea.* What an image is made of are differences. Linux can lay them over each other itself (overlayfs), if each
//! is a file system of its own, and then they need not be merged: two images that begin with the same layers share
//! their files, and the host's page cache of them. So a layer is converted once, whatever is below and above it.
//!
//! 1. *What a layer removes it says in the way of overlayfs.* An archive has a file `.wh.NAME` for a NAME that is gone:
//!    the file system has a character device 0:0 of that name. An archive has `.wh..wh..opq` in a directory that shows
//!    nothing from below: that has the attribute `trusted.overlay.opaque`. What is removed and made again in the same
//!    layer is not below (a directory is opaque then).
//! 2. *Nothing else may look so.* Devices 0:0 of the archive are left out, and of attributes only those are kept that
//!    mean something to users (`user.*`, capabilities): no layer says to overlayfs where else to look
//!    (`trusted.overlay.redirect`).
//! 3. *Every path stays in the layer*: the tree is in memory, and a path is followed there, through the symbolic links
//!    that the layer has itself, which is where the tools that unpack a layer into an empty directory put it. A path
//!    with `..` is refused.
//! 4. *Owners and modes are those of the archive*, because nothing is unpacked on the host.
//! 5. *It has limits* ([`crate::limits`]): an archive of some KiB can say that it has all the files and bytes of the
//!    world.
//!
//! Directories that an archive does not name, and has files in, get the usual owner and mode: what they are below is
//! not known here.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};

use erofs::builder::{Kind, Node, Special};
use erofs::{Attributes, Builder, Identity};
use tar::EntryType;

use crate::entries::{self, Entries, Entry};
use crate::limits::{ENTRY_BYTES, MAX_ENTRIES, MAX_LAYER_BYTES, MAX_LINKS, MAX_METADATA_BYTES};

/// What the name of a file begins with that says what is gone.
const WHITEOUT: &[u8] = b".wh.";

/// The whole name of one that says that nothing is shown from below, and how others begin that mean nothing any more.
const OPAQUE: &[u8] = b".wh..wh..opq";
const OTHER: &[u8] = b".wh..wh.";

/// How overlayfs is told the same (Linux, `Documentation/filesystems/overlayfs.rst`).
const OVERLAY_OPAQUE: (&[u8], &[u8]) = (b"trusted.overlay.opaque", b"y");

/// Attributes that are kept.
const CAPABILITY: &[u8] = b"security.capability";
const OF_USERS: &[u8] = b"user.";

/// Directories with another mode than the usual one, where an archive does not say theirs.
const UNUSUAL: [(&[u8], u32); 3] = [(b"tmp", 0o1777), (b"var/tmp", 0o1777), (b"root", 0o700)];

/// Why a layer is refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The archive.
    #[error("{0}")]
    Archive(#[from] entries::Error),
    /// A path.
    #[error("{path:?}: {why}")]
    Path {
        /// As it is in the archive.
        path: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// There is too much of it.
    #[error("it has more than {0}")]
    Large(String),
    /// The file system.
    #[error("{0}")]
    FileSystem(#[from] erofs::Error),
}

/// Writes a layer, read from `archive`, to the empty `file`. The archive is read to its end.
///
/// # Errors
///
/// [`Error`]; what is in the file then is no file system.
pub fn convert(archive: impl Read, file: &File) -> Result<Identity, Error> {
    let (limited, root) = (Limited { inner: archive, left: MAX_LAYER_BYTES }, implied(b""));
    let mut entries = Entries::new(limited);
    let mut layer = Layer {
        builder: Builder::new(file, root)?,
        gone: BTreeSet::new(),
        opaque: BTreeSet::new(),
        entries: 0,
        metadata_bytes: 0,
    };
    while let Some(entry) = entries.next_entry()? {
        layer.add(entry, &mut entries)?;
    }
    layer.remove_what_is_gone()?;
    // Writers fill archives up, and what is behind the end counts for the digest.
    let rest = io::copy(&mut entries.into_inner(), &mut io::sink());
    rest.map_err(entries::Error::Read)?;
    Ok(layer.builder.finish()?)
}

/// See above.
struct Layer<'a> {
    builder: Builder<'a>,
    /// Names in directories that are gone.
    gone: BTreeSet<(Node, Vec<u8>)>,
    /// Directories that show nothing from below.
    opaque: BTreeSet<Node>,
    entries: usize,
    metadata_bytes: usize,
}

/// Fails when there is more than a limit.
struct Limited<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        match self.left.checked_sub(read as u64) {
            Some(left) => self.left = left,
            None => {
                let text = format!("it has more than {} GiB, unpacked", MAX_LAYER_BYTES >> 30);
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
            }
        }
        Ok(read)
    }
}

/// What a directory is that no entry describes.
fn implied(path: &[u8]) -> Attributes {
    let unusual = UNUSUAL.iter().find(|(name, _)| *name == path);
    Attributes {
        mode: unusual.map_or(0o755, |(_, mode)| *mode),
        user: 0,
        group: 0,
        seconds: 0,
        nanoseconds: 0,
        extended: Vec::new(),
    }
}

fn refused(path: &[u8], why: &'static str) -> Error {
    Error::Path { path: String::from_utf8_lossy(path).into_owned(), why }
}

/// The names in a path, without those that mean nothing.
fn names(path: &[u8]) -> Result<Vec<&[u8]>, Error> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
    let names: Vec<_> = names.collect();
    match names.contains(&&b".."[..]) {
        true => Err(refused(path, "it leads out of the layer (..)")),
        false => Ok(names),
    }
}

impl Layer<'_> {
    fn add(&mut self, entry: Entry, contents: &mut dyn Read) -> Result<(), Error> {
        self.count(&entry)?;
        let path = entry.path.as_slice();
        let names = names(path)?;
        let Some((name, above)) = names.split_last() else {
            // The root itself.
            if entry.kind == EntryType::Directory {
                let attributes = attributes(&entry);
                self.builder.set_attributes(self.builder.root(), attributes);
            }
            return Ok(());
        };
        let directory = self.directory(above, path)?;
        match name.strip_prefix(WHITEOUT) {
            Some(_) if *name == OPAQUE => drop(self.opaque.insert(directory)),
            Some(_) if name.starts_with(OTHER) => {}
            Some(gone) => {
                if matches!(gone, b"" | b"." | b"..") {
                    return Err(refused(path, "it removes no file"));
                }
                self.gone.insert((directory, gone.to_vec()));
            }
            None => self.make(directory, name, &entry, contents)?,
        }
        Ok(())
    }

    /// Takes account of an entry.
    fn count(&mut self, entry: &Entry) -> Result<(), Error> {
        let attributes = entry.attributes.iter().map(|(name, value)| name.len() + value.len());
        // What is as short as this stays in memory.
        let short = if entry.bytes <= 4096 { entry.bytes as usize } else { 0 };
        let said = entry.path.len() + entry.link.len() + attributes.sum::<usize>() + short;
        self.entries += 1;
        self.metadata_bytes = self.metadata_bytes.saturating_add(said + ENTRY_BYTES);
        if self.entries > MAX_ENTRIES {
            return Err(Error::Large(format!("{MAX_ENTRIES} entries")));
        }
        if self.metadata_bytes > MAX_METADATA_BYTES {
            let limit = MAX_METADATA_BYTES >> 20;
            return Err(Error::Large(format!("{limit} MiB of names and attributes")));
        }
        if entry.bytes > MAX_LAYER_BYTES {
            return Err(Error::Large(format!("{} GiB, unpacked", MAX_LAYER_BYTES >> 30)));
        }
        Ok(())
    }

    fn make(
        &mut self,
        directory: Node,
        name: &[u8],
        entry: &Entry,
        contents: &mut dyn Read,
    ) -> Result<(), Error> {
        let (attributes, builder) = (attributes(entry), &mut self.builder);
        let (major, minor) = entry.device;
        match entry.kind {
            EntryType::Directory => match builder.child(directory, name) {
                Some(known) if builder.kind(known) == Kind::Directory => {
                    builder.set_attributes(known, attributes);
                }
                _ => drop(builder.add_directory(directory, name, attributes)?),
            },
            EntryType::Regular | EntryType::Continuous => {
                builder.add_file(directory, name, attributes, contents, entry.bytes)?;
            }
            EntryType::Symlink => {
                builder.add_symlink(directory, name, attributes, &entry.link)?;
            }
            EntryType::Link => self.link(directory, name, entry)?,
            EntryType::Fifo => {
                builder.add_special(directory, name, attributes, Special::Fifo)?;
            }
            // It would say that something is gone.
            EntryType::Char if (major, minor) == (0, 0) => {}
            EntryType::Char => {
                let special = Special::Character(major, minor);
                builder.add_special(directory, name, attributes, special)?;
            }
            EntryType::Block => {
                let special = Special::Block(major, minor);
                builder.add_special(directory, name, attributes, special)?;
            }
            _ => return Err(refused(&entry.path, "it is of an unknown kind")),
        }
        Ok(())
    }

    /// A further name of a file, which comes before it.
    fn link(&mut self, directory: Node, name: &[u8], entry: &Entry) -> Result<(), Error> {
        let missing = || refused(&entry.path, "it is a hard link to what is not in its layer");
        let names = names(&entry.link)?;
        let (last, above) = names.split_last().ok_or_else(missing)?;
        let above = self.find(above, &entry.path)?.ok_or_else(missing)?;
        let file = self.builder.child(above, last).ok_or_else(missing)?;
        if self.builder.kind(file) == Kind::Directory {
            return Err(refused(&entry.path, "it is a hard link to a directory"));
        }
        Ok(self.builder.link(directory, name, file)?)
    }

    /// The directory of that path, which is made where there is none.
    fn directory(&mut self, names: &[&[u8]], path: &[u8]) -> Result<Node, Error> {
        self.walk(names, path, true)?.ok_or_else(|| refused(path, "it is in no directory"))
    }

    /// The one that is there.
    fn find(&mut self, names: &[&[u8]], path: &[u8]) -> Result<Option<Node>, Error> {
        self.walk(names, path, false)
    }

    /// Follows a path of directories, and of symbolic links, from the root. `path` is for errors.
    fn walk(&mut self, names: &[&[u8]], path: &[u8], makes: bool) -> Result<Option<Node>, Error> {
        // What is still to be followed, the next name last; and the way to where we are.
        let mut left: Vec<Vec<u8>> = names.iter().rev().map(|name| name.to_vec()).collect();
        let mut way: Vec<(Vec<u8>, Node)> = Vec::new();
        let mut links = 0;
        while let Some(name) = left.pop() {
            let here = way.last().map_or(self.builder.root(), |(_, node)| *node);
            match name.as_slice() {
                b"" | b"." => continue,
                b".." => {
                    way.pop();
                    continue;
                }
                _ => {}
            }
            let found = self.builder.child(here, &name);
            let next = match found.map(|node| (node, self.builder.kind(node))) {
                Some((node, Kind::Directory)) => node,
                Some((_, Kind::Symlink(target))) => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(refused(path, "too many symbolic links are on its way"));
                    }
                    if target.starts_with(b"/") {
                        way.clear();
                    }
                    left.extend(target.split(|byte| *byte == b'/').rev().map(<[u8]>::to_vec));
                    continue;
                }
                Some((_, Kind::Other)) => {
                    return Err(refused(path, "a file is where it needs a directory"));
                }
                None if !makes => return Ok(None),
                None if name.starts_with(WHITEOUT) => {
                    return Err(refused(path, "a directory cannot be called so"));
                }
                None => {
                    let above = way.iter().map(|(name, _)| name.as_slice());
                    let whole = above.chain([name.as_slice()]).collect::<Vec<_>>().join(&b'/');
                    self.metadata_bytes = self.metadata_bytes.saturating_add(ENTRY_BYTES);
                    self.builder.add_directory(here, &name, implied(&whole))?
                }
            };
            way.push((name, next));
        }
        Ok(Some(way.last().map_or(self.builder.root(), |(_, node)| *node)))
    }

    /// Says what is gone, in the end: what the layer has itself is not.
    fn remove_what_is_gone(&mut self) -> Result<(), Error> {
        let gone = std::mem::take(&mut self.gone);
        let own = gone.iter().filter_map(|(directory, name)| self.builder.child(*directory, name));
        let own_directories = own.filter(|own| self.builder.kind(*own) == Kind::Directory);
        self.opaque.extend(own_directories);
        for (directory, name) in gone {
            // In what is opaque, nothing is below that could be gone besides.
            let is_own = self.builder.child(directory, &name).is_some();
            if !is_own && !self.opaque.contains(&directory) {
                let special = Special::Character(0, 0);
                self.builder.add_special(directory, &name, implied(b""), special)?;
            }
        }
        for directory in std::mem::take(&mut self.opaque) {
            let mut attributes = self.builder.attributes(directory).clone();
            let (name, value) = OVERLAY_OPAQUE;
            attributes.extended.push((name.to_vec(), value.to_vec()));
            self.builder.set_attributes(directory, attributes);
        }
        Ok(())
    }
}

/// What an entry says of its file.
fn attributes(entry: &Entry) -> Attributes {
    let is_kept = |name: &[u8]| name == CAPABILITY || name.starts_with(OF_USERS);
    let kept = entry.attributes.iter().filter(|(name, _)| is_kept(name));
    let (seconds, nanoseconds) = entry.modified;
    Attributes {
        mode: entry.mode,
        user: entry.user,
        group: entry.group,
        seconds,
        nanoseconds,
        extended: kept.cloned().collect(),
    }
}
