//! One file of a stream: its header, and what the blocks before it say of it.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use tar::{EntryType, Header, PaxExtensions};

use crate::Error;

/// Headers are of this size, and contents are filled up to a multiple of it.
const BLOCK_BYTES: usize = 512;

/// The most that is said of one file beside its header: two paths of Linux's, and more than anybody adds.
const EXTENSION_MAX_BYTES: u64 = 64 << 10;

/// What a header says.
#[derive(Debug)]
pub struct Entry {
    pub path: Vec<u8>,
    /// What a link leads to.
    pub link: Vec<u8>,
    pub kind: EntryType,
    pub mode: u32,
    pub user: u32,
    pub group: u32,
    /// Seconds since 1970.
    pub modified: i64,
    pub device: (u32, u32),
    /// Bytes of contents.
    pub size: u64,
}

impl Entry {
    /// Its path, for messages.
    pub fn shown(&self) -> PathBuf {
        PathBuf::from(OsString::from_vec(self.path.clone()))
    }
}

/// What others have said of the file whose header comes next.
#[derive(Debug, Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    user: Option<u32>,
    group: Option<u32>,
    modified: Option<i64>,
}

/// A stream that is being read.
pub struct Reader<R> {
    stream: R,
    /// Bytes of the current file's contents, and those that fill them up.
    left: u64,
    filling: u64,
}

impl<R: Read> Reader<R> {
    pub fn new(stream: R) -> Self {
        Self { stream, left: 0, filling: 0 }
    }

    /// The next file; none at the end. What is left of the current one is passed over.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, Error> {
        let mut extensions = Extensions::default();
        loop {
            self.skip()?;
            let Some(header) = self.header()? else { return Ok(None) };
            self.left = header.entry_size().map_err(|_| Error::Malformed("a size is no number"))?;
            self.filling = self.left.wrapping_neg() % BLOCK_BYTES as u64;
            match header.entry_type() {
                EntryType::GNULongName => extensions.path = Some(self.long_name()?),
                EntryType::GNULongLink => extensions.link = Some(self.long_name()?),
                EntryType::XHeader => extensions.add_all(&self.extension()?)?,
                EntryType::XGlobalHeader => {}
                _ => return self.entry(&header, extensions).map(Some),
            }
        }
    }

    fn entry(&self, header: &Header, extensions: Extensions) -> Result<Entry, Error> {
        let number = |number: io::Result<u64>| {
            number.map_err(|_| Error::Malformed("what should be a number is none"))
        };
        let id = |id| u32::try_from(id).map_err(|_| Error::Malformed("an owner is no number"));
        let device = || Some((header.device_major().ok()??, header.device_minor().ok()??));
        let modified = i64::try_from(number(header.mtime())?).unwrap_or(i64::MAX);
        let link = || header.link_name_bytes().map(|link| link.into_owned()).unwrap_or_default();
        Ok(Entry {
            path: extensions.path.unwrap_or_else(|| header.path_bytes().into_owned()),
            link: extensions.link.unwrap_or_else(link),
            kind: header.entry_type(),
            mode: number(header.mode().map(u64::from))? as u32 & 0o7777,
            user: extensions.user.map_or_else(|| id(number(header.uid())?), Ok)?,
            group: extensions.group.map_or_else(|| id(number(header.gid())?), Ok)?,
            modified: extensions.modified.unwrap_or(modified),
            device: device().unwrap_or_default(),
            size: self.left,
        })
    }

    /// The next header; none at the end, whether that is marked or the stream just ends between files.
    fn header(&mut self) -> Result<Option<Header>, Error> {
        let mut header = Header::new_old();
        let block = header.as_mut_bytes();
        let mut filled = 0;
        while filled < BLOCK_BYTES {
            match self.stream.read(&mut block[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(Error::Short),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::Stream(error)),
            }
        }
        if block.iter().all(|&byte| byte == 0) {
            // Whoever sends it is not stopped before all is said that fills it up.
            io::copy(&mut self.stream, &mut io::sink()).map_err(Error::Stream)?;
            return Ok(None);
        }
        let said = header.cksum().map_err(|_| Error::Malformed("a header has no checksum"))?;
        header.set_cksum();
        let is_right = header.cksum().is_ok_and(|checksum| checksum == said);
        if is_right { Ok(Some(header)) } else { Err(Error::Malformed("a checksum is wrong")) }
    }

    fn skip(&mut self) -> Result<(), Error> {
        let bytes = self.left.checked_add(self.filling);
        let bytes = bytes.ok_or(Error::Malformed("a size is too large"))?;
        let passed = io::copy(&mut self.stream.by_ref().take(bytes), &mut io::sink());
        (self.left, self.filling) = (0, 0);
        if passed.map_err(Error::Stream)? == bytes { Ok(()) } else { Err(Error::Short) }
    }

    /// Contents that say something of the next file.
    fn extension(&mut self) -> Result<Vec<u8>, Error> {
        if self.left > EXTENSION_MAX_BYTES {
            return Err(Error::Malformed("a name or what belongs to it is too long"));
        }
        let mut bytes = vec![0; self.left as usize];
        let mut filled = 0;
        while filled < bytes.len() {
            match self.read(&mut bytes[filled..])? {
                0 => return Err(Error::Short),
                count => filled += count,
            }
        }
        Ok(bytes)
    }

    fn long_name(&mut self) -> Result<Vec<u8>, Error> {
        let mut name = self.extension()?;
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        name.truncate(end);
        Ok(name)
    }

    /// Bytes of the current file's contents; none at their end.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        loop {
            match self.stream.read(&mut buffer[..most]) {
                Ok(0) if most > 0 => return Err(Error::Short),
                Ok(count) => {
                    self.left -= count as u64;
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::Stream(error)),
            }
        }
    }
}

impl Extensions {
    /// What POSIX's headers say (pax(1), "pax Extended Header").
    fn add_all(&mut self, bytes: &[u8]) -> Result<(), Error> {
        for extension in PaxExtensions::new(bytes) {
            let extension = extension.map_err(|_| Error::Malformed("an extended header"))?;
            let value = extension.value_bytes();
            let text = || extension.value().unwrap_or_default();
            let id = || text().parse().map_err(|_| Error::Malformed("an owner is no number"));
            match extension.key_bytes() {
                b"path" => self.path = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"uid" => self.user = Some(id()?),
                b"gid" => self.group = Some(id()?),
                b"mtime" => {
                    let seconds = text().split('.').next().unwrap_or_default().parse();
                    self.modified = Some(seconds.map_err(|_| Error::Malformed("a time"))?);
                }
                b"size" => return Err(Error::Malformed("a file is too large for its header")),
                key if key.starts_with(b"GNU.sparse.") => {
                    return Err(Error::Malformed("sparse files are not supported"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// A stream that is being written.
pub struct Writer<W> {
    stream: W,
}

impl<W: Write> Writer<W> {
    pub fn new(stream: W) -> Self {
        Self { stream }
    }

    /// A file's header; its contents are to come next, and then [`Writer::fill`].
    pub fn header(&mut self, entry: &Entry) -> Result<(), Error> {
        let mut header = Header::new_gnu();
        let (path_room, link_room) = {
            let old = header.as_old();
            (old.name.len(), old.linkname.len())
        };
        if entry.link.len() > link_room {
            self.long_name(EntryType::GNULongLink, &entry.link)?;
        }
        if entry.path.len() > path_room {
            self.long_name(EntryType::GNULongName, &entry.path)?;
        }
        header.set_entry_type(entry.kind);
        header.set_mode(entry.mode);
        header.set_uid(entry.user.into());
        header.set_gid(entry.group.into());
        // What is older than the format has its first second.
        header.set_mtime(u64::try_from(entry.modified).unwrap_or(0));
        header.set_size(entry.size);
        if matches!(entry.kind, EntryType::Char | EntryType::Block) {
            let numbers = header.set_device_major(entry.device.0);
            numbers
                .and_then(|()| header.set_device_minor(entry.device.1))
                .map_err(Error::Stream)?;
        }
        self.put(header, &entry.path, &entry.link)
    }

    /// Contents.
    pub fn data(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.stream.write_all(bytes).map_err(Error::Stream)
    }

    /// What fills up contents of so many bytes.
    pub fn fill(&mut self, size: u64) -> Result<(), Error> {
        let filling = size.wrapping_neg() % BLOCK_BYTES as u64;
        self.data(&[0; BLOCK_BYTES][..filling as usize])
    }

    /// That this was all.
    pub fn finish(mut self) -> Result<(), Error> {
        self.data(&[0; 2 * BLOCK_BYTES])?;
        self.stream.flush().map_err(Error::Stream)
    }

    fn long_name(&mut self, kind: EntryType, name: &[u8]) -> Result<(), Error> {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        let size = name.len() as u64 + 1;
        header.set_size(size);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        self.put(header, b"././@LongLink", b"")?;
        self.data(name)?;
        self.data(&[0])?;
        self.fill(size)
    }

    /// A header with as much of the names as it has room for.
    fn put(&mut self, mut header: Header, path: &[u8], link: &[u8]) -> Result<(), Error> {
        let old = header.as_old_mut();
        for (field, value) in [(&mut old.name, path), (&mut old.linkname, link)] {
            let count = value.len().min(field.len());
            field[..count].copy_from_slice(&value[..count]);
        }
        header.set_cksum();
        self.data(header.as_bytes())
    }
}
