//! Writing an image.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use super::{Content, Extent, HEADER_BYTES, MAGIC, MAJOR, MINOR, PIECES_OFFSET};
use crate::dump::Pages;
use crate::limits::{PAGE_BYTES, PIECE_BYTES};
use crate::pod::Pod;
use crate::state::{Owner, State};

/// Whether pages are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// As they are: as fast as the disk.
    None,
    /// zstd at its fastest.
    Fast,
}

/// An image that is being written.
#[derive(Debug)]
pub struct Writer {
    file: File,
    position: u64,
    compression: Compression,
    extents: Vec<Extent>,
}

impl Writer {
    /// Begin an image in an empty file.
    #[must_use]
    pub fn new(file: File, compression: Compression) -> Self {
        Self { file, position: PIECES_OFFSET, compression, extents: Vec::new() }
    }

    /// End the image: it is complete, and on the disk.
    ///
    /// # Errors
    ///
    /// Where the file cannot be written.
    pub fn finish(self, state: State) -> io::Result<File> {
        self.end(state, None)
    }

    /// The same, for an image of a whole pod.
    ///
    /// # Errors
    ///
    /// As [`finish`](Self::finish).
    pub fn finish_pod(self, state: State, pod: Pod) -> io::Result<File> {
        self.end(state, Some(pod))
    }

    /// Write the archive of a pod's files, which ends with zeros, to its end; its bytes.
    ///
    /// # Errors
    ///
    /// Where it cannot be read, or the file cannot be written.
    pub fn put_files(&mut self, mut archive: impl Read) -> io::Result<u64> {
        let (mut address, mut piece) = (0, Vec::with_capacity(PIECE_BYTES));
        loop {
            piece.clear();
            let read = archive.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut piece)?;
            if read == 0 {
                return Ok(address);
            }
            piece.resize(read.next_multiple_of(PAGE_BYTES as usize), 0);
            self.put(Owner::Files, address, &piece)?;
            address += piece.len() as u64;
        }
    }

    fn end(mut self, state: State, pod: Option<Pod>) -> io::Result<File> {
        self.extents.sort_by_key(|extent| (extent.owner, extent.address));
        let content = Content { state, extents: self.extents, pod };
        let mut description = Vec::new();
        ciborium::into_writer(&content, &mut description).map_err(io::Error::other)?;
        self.file.write_all_at(&description, self.position)?;
        self.file.sync_all()?;
        let mut numbers = Vec::with_capacity(HEADER_BYTES);
        numbers.extend(self.position.to_le_bytes());
        numbers.extend((description.len() as u64).to_le_bytes());
        numbers.extend(crc32fast::hash(&description).to_le_bytes());
        numbers.resize(32, 0);
        let mut header = MAGIC.to_vec();
        header.push(MAJOR);
        header.extend(MINOR.to_le_bytes());
        header.extend(crc32fast::hash(&numbers).to_le_bytes());
        header.extend(numbers);
        self.file.write_all_at(&header, 0)?;
        self.file.sync_all()?;
        Ok(self.file)
    }
}

impl Pages for Writer {
    fn put(&mut self, owner: Owner, address: u64, bytes: &[u8]) -> io::Result<()> {
        let mut address = address;
        for piece in bytes.chunks(PIECE_BYTES) {
            let packed = match self.compression {
                Compression::None => None,
                Compression::Fast => Some(zstd::bulk::compress(piece, 1)?)
                    .filter(|packed| packed.len() < piece.len()),
            };
            let stored = packed.as_deref().unwrap_or(piece);
            self.file.write_all_at(stored, self.position)?;
            self.extents.push(Extent {
                owner,
                address,
                bytes: piece.len() as u32,
                offset: self.position,
                stored: stored.len() as u32,
                crc: crc32fast::hash(stored),
            });
            self.position += stored.len() as u64;
            address += piece.len() as u64;
        }
        Ok(())
    }
}
