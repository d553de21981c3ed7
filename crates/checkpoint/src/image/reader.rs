//! Reading an image: nothing in it is believed.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

use super::{Content, Extent, HEADER_BYTES, MAGIC, MAJOR};
use crate::check;
use crate::error::Error;
use crate::limits::{MAX_STATE_BYTES, MAX_STATE_DEPTH, PIECE_BYTES};
use crate::pod::Pod;
use crate::state::{Owner, State};

/// An image, read and checked.
#[derive(Debug)]
pub struct Image {
    file: File,
    content: Content,
}

fn damaged(what: &str) -> Error {
    Error::Image(what.to_owned())
}

impl Image {
    /// Read an image.
    ///
    /// # Errors
    ///
    /// [`Error::Image`] for one that is none, is damaged, or describes what no processes can be.
    pub fn open(file: File) -> Result<Self, Error> {
        let mut header = [0; HEADER_BYTES];
        let read = file.read_exact_at(&mut header, 0);
        read.map_err(|_| damaged("it is too short"))?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|n| header[at + n]));
        let half = |at: usize| u32::from_le_bytes(std::array::from_fn(|n| header[at + n]));
        if header[..7] != MAGIC {
            return Err(damaged("it is no image of a pod, or was not finished"));
        }
        if header[7] != MAJOR {
            return Err(Error::Image(format!("its version is {}, not {MAJOR}", header[7])));
        }
        if half(12) != crc32fast::hash(&header[16..]) {
            return Err(damaged("its header is damaged"));
        }
        let (offset, bytes) = (word(16), word(24));
        let length = file.metadata().map_err(Error::io("look at the image"))?.len();
        let end = offset.checked_add(bytes).filter(|end| *end <= length);
        if end.is_none() || bytes > MAX_STATE_BYTES as u64 {
            return Err(damaged("its description is not in it, or too long"));
        }
        let mut description = vec![0; bytes as usize];
        let read = file.read_exact_at(&mut description, offset);
        read.map_err(Error::io("read the image"))?;
        if half(32) != crc32fast::hash(&description) {
            return Err(damaged("its description is damaged"));
        }
        let content: Content =
            ciborium::de::from_reader_with_recursion_limit(description.as_slice(), MAX_STATE_DEPTH)
                .map_err(|error| Error::Image(format!("its description is wrong: {error}")))?;
        check::check(&content.state)?;
        content.pod.as_ref().map_or(Ok(()), |pod| check::pod::check(pod, &content.state))?;
        check::check_extents(&content.state, &content.extents, offset)?;
        Ok(Self { file, content })
    }

    /// The processes.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.content.state
    }

    /// The pod that they were, if this is the image of one.
    #[must_use]
    pub fn pod(&self) -> Option<&Pod> {
        self.content.pod.as_ref()
    }

    /// Write the archive of its files to somebody.
    ///
    /// # Errors
    ///
    /// Where it is damaged, or nobody takes it.
    pub fn copy_files(&self, mut to: impl Write) -> Result<(), Error> {
        for extent in self.extents_of(Owner::Files) {
            to.write_all(&self.read(extent)?).map_err(Error::io("hand the files over"))?;
        }
        Ok(())
    }

    /// Where all pages are, by process and address.
    #[must_use]
    pub fn extents(&self) -> &[Extent] {
        &self.content.extents
    }

    /// Those of one owner.
    #[must_use]
    pub fn extents_of(&self, owner: Owner) -> &[Extent] {
        let extents = self.extents();
        let first = extents.partition_point(|extent| extent.owner < owner);
        let end = extents.partition_point(|extent| extent.owner <= owner);
        &extents[first..end]
    }

    /// The bytes of some pages.
    ///
    /// # Errors
    ///
    /// Where they are damaged.
    pub fn read(&self, extent: &Extent) -> Result<Vec<u8>, Error> {
        let mut stored = vec![0; (extent.stored as usize).min(PIECE_BYTES)];
        let read = self.file.read_exact_at(&mut stored, extent.offset);
        read.map_err(Error::io("read the image"))?;
        if crc32fast::hash(&stored) != extent.crc {
            return Err(damaged("pages in it are damaged"));
        }
        if extent.stored == extent.bytes {
            return Ok(stored);
        }
        let bytes = zstd::bulk::decompress(&stored, extent.bytes as usize);
        let bytes = bytes.map_err(|_| damaged("pages in it cannot be decompressed"))?;
        match bytes.len() == extent.bytes as usize {
            true => Ok(bytes),
            false => Err(damaged("pages in it are too few")),
        }
    }
}
