//! The pages of an image, where its files are at hand.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::description::{Place, Plain};
use super::{Extent, Run};
use crate::error::Error;
use crate::limits::PIECE_BYTES;

/// The files of an image, its own and then those of its parents.
#[derive(Debug)]
pub(super) struct Files(pub Vec<File>);

/// The same, and where all pages are in them.
#[derive(Debug)]
pub(super) struct Pieces {
    files: Files,
    extents: Vec<Extent>,
}

/// An image that is not as it was written.
pub(super) fn damaged(what: &str) -> Error {
    Error::Image(what.to_owned())
}

impl Files {
    /// A piece, as it is in a file.
    fn stored(&self, (file, offset): (usize, u64), bytes: u32, crc: u32) -> Result<Vec<u8>, Error> {
        let file = self.0.get(file).ok_or_else(|| damaged("pages are in no file"))?;
        let mut stored = vec![0; (bytes as usize).min(PIECE_BYTES)];
        let read = file.read_exact_at(&mut stored, offset);
        read.map_err(Error::io("read the image"))?;
        match crc32fast::hash(&stored) == crc {
            true => Ok(stored),
            false => Err(damaged("pages in it are damaged")),
        }
    }

    /// The bytes of a run of pages that are there as they are.
    pub fn read(&self, plain: &Plain, run: Run) -> Result<Vec<u8>, Error> {
        let place = (plain.file as usize, plain.offset);
        cut(self.stored(place, plain.whole, plain.crc)?, plain.skip, run.bytes)
    }
}

/// What counts of a piece.
fn cut(mut piece: Vec<u8>, skip: u32, bytes: u32) -> Result<Vec<u8>, Error> {
    let (skip, bytes) = (skip as usize, bytes as usize);
    if skip.checked_add(bytes).is_none_or(|end| end > piece.len()) {
        return Err(damaged("pages in it are too few"));
    }
    piece.drain(..skip);
    piece.truncate(bytes);
    Ok(piece)
}

impl Pieces {
    /// Extents that have been checked, of these files.
    pub fn new(files: Vec<File>, extents: Vec<Extent>) -> Self {
        Self { files: Files(files), extents }
    }

    /// Only the files.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// Where the bytes of each run of pages are.
    pub fn places(&self) -> Vec<Place> {
        let place = |extent: &Extent| match extent.stored == extent.piece() {
            true => Place::Plain(Plain {
                file: u32::try_from(extent.file).unwrap_or(u32::MAX),
                offset: extent.offset,
                whole: extent.stored,
                skip: extent.skip,
                crc: extent.crc,
            }),
            false => Place::Packed,
        };
        self.extents.iter().map(place).collect()
    }

    /// The bytes of the run of pages with this number, if they have to be decompressed.
    pub fn unpack(&self, number: usize) -> Result<Option<Vec<u8>>, Error> {
        let extent = self.extents.get(number).ok_or_else(|| damaged("pages are in no file"))?;
        let whole = extent.piece();
        if extent.stored == whole {
            return Ok(None);
        }
        let place = (extent.file, extent.offset);
        let stored = self.files.stored(place, extent.stored, extent.crc)?;
        let bytes = zstd::bulk::decompress(&stored, whole as usize)
            .map_err(|_| damaged("pages in it cannot be decompressed"))?;
        if bytes.len() != whole as usize {
            return Err(damaged("pages in it are too few"));
        }
        cut(bytes, extent.skip, extent.bytes).map(Some)
    }
}
