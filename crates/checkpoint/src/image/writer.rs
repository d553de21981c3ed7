//! Writing an image.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::inherited::{ImageName, Inherited};
use super::layout::{HEADER_BYTES, MAGIC, MAJOR, MINOR, PIECES_OFFSET};
use super::table::Table;
use super::{Content, Extent};
use crate::dump::Pages;
use crate::limits::{MAX_HELD_BYTES, PAGE_BYTES, PIECE_BYTES};
use crate::pod::Pod;
use crate::ranges::Ranges;
use crate::state::{Owner, State};

/// Whether pages are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// As they are: as fast as the disk.
    None,
    /// zstd at its fastest.
    Fast,
}

/// Where an image goes.
#[derive(Debug)]
enum Sink {
    /// To a file.
    File(File),
    /// To a pipe or socket, in the order of a stream.
    Stream(File),
}

/// An image that is being written.
#[derive(Debug)]
pub struct Writer {
    sink: Sink,
    position: u64,
    compression: Compression,
    table: Table,
    /// Pages that are not written yet, if they are held back.
    held: Option<Vec<(Owner, u64, Vec<u8>)>>,
    held_bytes: usize,
    /// The parent, and which of its pages are still there.
    parent: Option<(ImageName, BTreeMap<Owner, Ranges>)>,
}

/// An image that is written.
#[derive(Debug)]
pub struct Finished {
    /// Where it went.
    pub file: File,
    /// Its bytes.
    pub bytes: u64,
    /// What it is known by.
    pub name: ImageName,
}

impl Writer {
    /// Begin an image in an empty file.
    #[must_use]
    pub fn new(file: File, compression: Compression) -> Self {
        Self::of(Sink::File(file), compression)
    }

    /// Begin an image that goes to a pipe or socket ([`from_stream`](super::from_stream)).
    #[must_use]
    pub fn stream(to: File, compression: Compression) -> Self {
        Self::of(Sink::Stream(to), compression)
    }

    fn of(sink: Sink, compression: Compression) -> Self {
        Self {
            sink,
            position: PIECES_OFFSET,
            compression,
            table: Table::default(),
            held: None,
            held_bytes: 0,
            parent: None,
        }
    }

    /// Pages of processes that are not put are those of an image that was written before ([`Pages::inherit`]).
    #[must_use]
    pub fn with_parent(self, parent: ImageName) -> Self {
        Self { parent: Some((parent, BTreeMap::new())), ..self }
    }

    /// From now on, keep what is put in memory, as long as it is not too much, and write it at the end: neither a
    /// slow disk nor compression is waited for then.
    pub fn hold_back(&mut self) {
        self.held.get_or_insert_default();
    }

    /// End the image: it is complete, and on the disk.
    ///
    /// # Errors
    ///
    /// Where the file cannot be written.
    pub fn finish(self, state: State) -> io::Result<File> {
        Ok(self.end(state, None)?.file)
    }

    /// The same, for an image of a whole pod.
    ///
    /// # Errors
    ///
    /// As [`finish`](Self::finish).
    pub fn finish_pod(self, state: State, pod: Pod) -> io::Result<Finished> {
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

    /// Write what is held back.
    fn let_go(&mut self) -> io::Result<()> {
        for (owner, address, bytes) in self.held.take().unwrap_or_default() {
            self.write_pages(owner, address, &bytes)?;
        }
        self.held_bytes = 0;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.sink {
            Sink::File(file) => file.write_all_at(bytes, self.position)?,
            Sink::Stream(to) => to.write_all(bytes)?,
        }
        self.position += bytes.len() as u64;
        Ok(())
    }

    fn write_pages(&mut self, owner: Owner, address: u64, bytes: &[u8]) -> io::Result<()> {
        let mut address = address;
        for piece in bytes.chunks(PIECE_BYTES) {
            let packed = match self.compression {
                Compression::None => None,
                Compression::Fast => Some(zstd::bulk::compress(piece, 1)?)
                    .filter(|packed| packed.len() < piece.len()),
            };
            let stored = packed.as_deref().unwrap_or(piece);
            let (count, offset) = (piece.len() as u32, self.position);
            let crc = crc32fast::hash(stored);
            self.write(stored)?;
            self.table.put(Extent::new(owner, address, count, offset, stored.len() as u32, crc));
            address += piece.len() as u64;
        }
        Ok(())
    }

    fn end(mut self, state: State, pod: Option<Pod>) -> io::Result<Finished> {
        self.let_go()?;
        let inherited = self.parent.take().map(|(parent, kept)| {
            let of = |(owner, ranges): (&Owner, &Ranges)| {
                let owner = *owner;
                ranges.iter().map(move |range| (owner, range.start, range.end)).collect::<Vec<_>>()
            };
            Inherited { parent, kept: kept.iter().flat_map(of).collect() }
        });
        let extents = std::mem::take(&mut self.table).into_extents();
        let content = Content { state, extents, pod, inherited };
        let mut description = Vec::new();
        ciborium::into_writer(&content, &mut description).map_err(io::Error::other)?;
        let header = header(self.position, &description);
        self.write(&description)?;
        let (mut bytes, name) = (self.position, ImageName::of_header(&header));
        let file = match self.sink {
            Sink::File(file) => {
                file.sync_all()?;
                file.write_all_at(&header, 0)?;
                file.sync_all()?;
                file
            }
            Sink::Stream(mut to) => {
                to.write_all(&header)?;
                bytes += header.len() as u64;
                to
            }
        };
        Ok(Finished { file, bytes, name })
    }
}

fn header(position: u64, description: &[u8]) -> Vec<u8> {
    let mut numbers = Vec::with_capacity(HEADER_BYTES);
    numbers.extend(position.to_le_bytes());
    numbers.extend((description.len() as u64).to_le_bytes());
    numbers.extend(crc32fast::hash(description).to_le_bytes());
    numbers.extend(&blake3::hash(description).as_bytes()[..12]);
    let mut header = MAGIC.to_vec();
    header.push(MAJOR);
    header.extend(MINOR.to_le_bytes());
    header.extend(crc32fast::hash(&numbers).to_le_bytes());
    header.extend(numbers);
    header
}

impl Pages for Writer {
    fn put(&mut self, owner: Owner, address: u64, bytes: &[u8]) -> io::Result<()> {
        if let Some((_, kept)) = &mut self.parent
            && let Some(kept) = kept.get_mut(&owner)
        {
            kept.remove(address..address + bytes.len() as u64);
        }
        if let Some(held) = &mut self.held {
            if self.held_bytes + bytes.len() <= MAX_HELD_BYTES {
                self.held_bytes += bytes.len();
                held.push((owner, address, bytes.to_vec()));
                return Ok(());
            }
            self.let_go()?;
        }
        self.write_pages(owner, address, bytes)
    }

    fn forget(&mut self, owner: Owner, range: Range<u64>) -> io::Result<()> {
        if self.held.as_ref().is_some_and(|held| held.iter().any(|(found, ..)| *found == owner)) {
            self.let_go()?;
        }
        if let Some((_, kept)) = &mut self.parent
            && let Some(kept) = kept.get_mut(&owner)
        {
            kept.remove(range.clone());
        }
        self.table.forget(owner, range);
        Ok(())
    }

    fn inherit(&mut self, owner: Owner, range: Range<u64>) {
        if let Some((_, kept)) = &mut self.parent {
            kept.entry(owner).or_default().insert(range);
        }
    }
}
