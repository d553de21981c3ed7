//! Archives (tar) entry by entry, from a stream, as the tools that make images write them: POSIX's format with its
//! extended headers (pax(1)), and GNU's for long names.
//!
//! Crate `tar` knows the headers; the way from one to the next is here. That crate takes as much memory for an
//! extended header as the header says, and a stream that was compressed well can say a lot.

use std::io::{self, Read};

use tar::{EntryType, Header, PaxExtensions};

use crate::limits::{MAX_EXTENSION_BYTES, MAX_PATH_BYTES};

/// Headers are of this size, and contents are filled up to a multiple of it.
const BLOCK_BYTES: u64 = 512;

/// Attributes as GNU tar, bsdtar and Go's tools write them.
const ATTRIBUTE: &[u8] = b"SCHILY.xattr.";

/// Why an archive is refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The stream.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// It is not what it should be.
    #[error("it is no tar archive, or damaged: {0}")]
    Damaged(&'static str),
    /// It is more than is taken.
    #[error("{0} of an entry have too many bytes")]
    Large(&'static str),
    /// A kind of entry that no tool makes for images.
    #[error("it has {0}, which no image has")]
    Unknown(&'static str),
}

/// An entry, without its contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its path as it is written.
    pub path: Vec<u8>,
    /// What a link leads to.
    pub link: Vec<u8>,
    /// What it is.
    pub kind: EntryType,
    /// Permissions.
    pub mode: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// When it was modified last: seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
    /// A device's major and minor number.
    pub device: (u32, u32),
    /// Bytes of contents.
    pub bytes: u64,
    /// Attributes, by name and value.
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What extended headers have said of the entry that comes next.
#[derive(Debug, Default, Clone)]
struct Extensions {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    user: Option<u64>,
    group: Option<u64>,
    modified: Option<(i64, u32)>,
    bytes: Option<u64>,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// An archive that is being read. To read it is to read the current entry's contents.
pub struct Entries<R> {
    stream: R,
    /// Bytes of the current entry's contents that are left, and those behind them that fill them up.
    left: u64,
    filling: u64,
    /// Where the stream is.
    at: u64,
}

impl<R: Read> Entries<R> {
    /// Before the first entry.
    pub fn new(stream: R) -> Self {
        Self { stream, left: 0, filling: 0, at: 0 }
    }

    /// The stream, wherever it is.
    pub fn into_inner(self) -> R {
        self.stream
    }

    /// Where in the stream the current entry's contents go on.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// The next entry, if there is one.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub fn next_entry(&mut self) -> Result<Option<Entry>, Error> {
        let mut said = Extensions::default();
        loop {
            self.skip_contents()?;
            let Some(header) = self.header()? else { return Ok(None) };
            let kind = header.entry_type();
            let bytes = number(&header.as_old().size, header.entry_size(), "a size")?;
            let bytes = match kind {
                _ if is_header_only(kind) => 0,
                EntryType::GNULongName
                | EntryType::GNULongLink
                | EntryType::XHeader
                | EntryType::XGlobalHeader => bytes,
                _ => said.bytes.unwrap_or(bytes),
            };
            self.left = bytes;
            self.filling = bytes.wrapping_neg() % BLOCK_BYTES;
            match kind {
                EntryType::GNULongName => said.path = Some(self.name()?),
                EntryType::GNULongLink => said.link = Some(self.name()?),
                EntryType::XHeader => self.extensions(&mut said)?,
                // What holds for all entries is a comment, in archives of git's.
                EntryType::XGlobalHeader => {}
                EntryType::GNUSparse => return Err(Error::Unknown("a sparse file of GNU's kind")),
                _ => return Ok(Some(entry(&header, kind, bytes, said)?)),
            }
        }
    }

    /// Goes to the end of the current entry.
    fn skip_contents(&mut self) -> Result<(), Error> {
        let bytes = self.left.checked_add(self.filling).ok_or(Error::Damaged("a size"))?;
        let skipped = io::copy(&mut (&mut self.stream).take(bytes), &mut io::sink())?;
        self.at += skipped;
        (self.left, self.filling) = (0, 0);
        match skipped == bytes {
            true => Ok(()),
            false => Err(Error::Damaged("it ends early")),
        }
    }

    /// The next header; none at the end, which is a block of zeroes, or nothing at all.
    fn header(&mut self) -> Result<Option<Header>, Error> {
        let mut block = [0; BLOCK_BYTES as usize];
        let mut filled = 0;
        while filled < block.len() {
            match self.stream.read(&mut block[filled..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(Error::Damaged("it ends early")),
                Ok(read) => filled += read,
            }
        }
        self.at += BLOCK_BYTES;
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let header = Header::from_byte_slice(&block);
        let sum = |(place, byte): (usize, &u8)| match place {
            148..156 => u32::from(b' '),
            _ => u32::from(*byte),
        };
        let sum: u32 = block.iter().enumerate().map(sum).sum();
        match header.cksum() {
            Ok(said) if said == sum => Ok(Some(header.clone())),
            _ => Err(Error::Damaged("a header")),
        }
    }

    /// All of the current entry's contents, which say something of the next.
    fn said(&mut self) -> Result<Vec<u8>, Error> {
        if self.left > MAX_EXTENSION_BYTES {
            return Err(Error::Large("extended headers"));
        }
        let mut bytes = vec![0; self.left as usize];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn name(&mut self) -> Result<Vec<u8>, Error> {
        let mut name = self.said()?;
        name.truncate(name.iter().position(|byte| *byte == 0).unwrap_or(name.len()));
        Ok(name)
    }

    fn extensions(&mut self, said: &mut Extensions) -> Result<(), Error> {
        let bytes = self.said()?;
        for extension in PaxExtensions::new(&bytes) {
            let extension = extension.map_err(|_| Error::Damaged("an extended header"))?;
            let (key, value) = (extension.key_bytes(), extension.value_bytes());
            let decimal = || -> Result<u64, Error> {
                let text = std::str::from_utf8(value).ok();
                text.and_then(|text| text.parse().ok()).ok_or(Error::Damaged("a number"))
            };
            match key {
                b"path" => said.path = Some(value.to_vec()),
                b"linkpath" => said.link = Some(value.to_vec()),
                b"uid" => said.user = Some(decimal()?),
                b"gid" => said.group = Some(decimal()?),
                b"size" => said.bytes = Some(decimal()?),
                b"mtime" => said.modified = Some(time(value)?),
                _ if key.starts_with(b"GNU.sparse.") => {
                    return Err(Error::Unknown("a sparse file of GNU's kind"));
                }
                _ => {
                    if let Some(name) = key.strip_prefix(ATTRIBUTE) {
                        said.attributes.push((name.to_vec(), value.to_vec()));
                    }
                }
            }
        }
        Ok(())
    }
}

impl<R: Read> Read for Entries<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = (buffer.len() as u64).min(self.left) as usize;
        let read = self.stream.read(&mut buffer[..most])?;
        self.left -= read as u64;
        self.at += read as u64;
        Ok(read)
    }
}

/// Whether no bytes follow, whatever the size: a hard link may have that of what it leads to (Go's `archive/tar` has
/// the same list).
fn is_header_only(kind: EntryType) -> bool {
    matches!(
        kind,
        EntryType::Link
            | EntryType::Symlink
            | EntryType::Char
            | EntryType::Block
            | EntryType::Directory
            | EntryType::Fifo
    )
}

/// A number of a header; a field with nothing in it is 0, as others have it.
fn number(field: &[u8], read: io::Result<u64>, what: &'static str) -> Result<u64, Error> {
    match field.iter().all(|byte| matches!(byte, 0 | b' ')) {
        true => Ok(0),
        false => read.map_err(|_| Error::Damaged(what)),
    }
}

/// Seconds since 1970, with a fraction (pax(1)).
fn time(value: &[u8]) -> Result<(i64, u32), Error> {
    let refused = Error::Damaged("a time");
    let Ok(text) = std::str::from_utf8(value) else { return Err(refused) };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let Ok(seconds) = whole.parse::<i64>() else { return Err(refused) };
    if !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(refused);
    }
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanoseconds: u32 = digits.parse().unwrap_or(0);
    Ok(match whole.starts_with('-') && nanoseconds > 0 {
        true => (seconds.saturating_sub(1), 1_000_000_000 - nanoseconds),
        false => (seconds, nanoseconds),
    })
}

fn entry(header: &Header, kind: EntryType, bytes: u64, said: Extensions) -> Result<Entry, Error> {
    let old = header.as_old();
    let id = |said: Option<u64>, field: &[u8], read: io::Result<u64>| -> Result<u32, Error> {
        let number = said.map_or_else(|| number(field, read, "an owner"), Ok)?;
        u32::try_from(number).map_err(|_| Error::Damaged("an owner"))
    };
    let modified = match said.modified {
        Some(modified) => modified,
        None => (number(&old.mtime, header.mtime(), "a time")?.cast_signed(), 0),
    };
    let path = said.path.unwrap_or_else(|| header.path_bytes().into_owned());
    let own_link = || header.link_name_bytes().map(|link| link.into_owned()).unwrap_or_default();
    let link = said.link.unwrap_or_else(own_link);
    if path.len() > MAX_PATH_BYTES || link.len() > MAX_PATH_BYTES {
        return Err(Error::Large("paths"));
    }
    let device = |number: io::Result<Option<u32>>| number.ok().flatten().unwrap_or(0);
    // Archives of the seventh edition have no other way to say it.
    let is_directory = kind == EntryType::Regular && path.ends_with(b"/");
    Ok(Entry {
        kind: if is_directory { EntryType::Directory } else { kind },
        path,
        link,
        mode: number(&old.mode, header.mode().map(u64::from), "a mode")? as u32,
        user: id(said.user, &old.uid, header.uid())?,
        group: id(said.group, &old.gid, header.gid())?,
        modified,
        device: (device(header.device_major()), device(header.device_minor())),
        bytes,
        attributes: said.attributes,
    })
}
