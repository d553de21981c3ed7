//! A part of a disk, as the libraries for partition tables and file systems want to read it.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::rc::Rc;

use ext4_view::Ext4Read;

use crate::storage::Storage;

/// A part of a disk, which is read and never written.
#[derive(Clone)]
pub struct Window {
    storage: Rc<dyn Storage>,
    start: u64,
    bytes: u64,
    at: u64,
}

impl Window {
    /// The whole disk.
    pub fn whole(storage: Rc<dyn Storage>) -> Self {
        let bytes = storage.bytes();
        Self { storage, start: 0, bytes, at: 0 }
    }

    /// A part of this one, as far as it is inside.
    pub fn part(&self, start: u64, bytes: u64) -> Self {
        let start = start.min(self.bytes);
        let bytes = bytes.min(self.bytes - start);
        Self { storage: Rc::clone(&self.storage), start: self.start + start, bytes, at: 0 }
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether these bytes are at that place.
    pub fn has(&self, at: u64, bytes: &[u8]) -> bool {
        let mut found = vec![0; bytes.len()];
        self.read_at(at, &mut found).is_ok() && found == bytes
    }

    /// Fills `into` with what is from `at` on.
    pub fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let end = at.checked_add(into.len() as u64).filter(|end| *end <= self.bytes);
        end.ok_or(io::ErrorKind::UnexpectedEof)?;
        self.storage.read_at(self.start + at, into)
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Window({}, {})", self.start, self.bytes)
    }
}

impl Read for Window {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.bytes.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let count = into.len().min(left);
        self.read_at(self.at.min(self.bytes), &mut into[..count])?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for Window {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.bytes.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

impl Write for Window {
    fn write(&mut self, _from: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Ext4Read for Window {
    fn read(
        &mut self,
        start: u64,
        into: &mut [u8],
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync + 'static>> {
        Ok(self.read_at(start, into)?)
    }
}
