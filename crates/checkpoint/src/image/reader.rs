//! Reading an image: nothing in it is believed.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

use super::inherited::{ImageName, Inherited, Parents};
use super::layout::{HEADER_BYTES, MAGIC, MAJOR, OLDEST_MAJOR};
use super::table::Table;
use super::{Content, Extent};
use crate::check;
use crate::error::Error;
use crate::limits::{MAX_PARENTS, MAX_STATE_BYTES, MAX_STATE_DEPTH, PIECE_BYTES};
use crate::pod::Pod;
use crate::state::{Owner, State};

/// An image, read and checked.
#[derive(Debug)]
pub struct Image {
    /// Its own, then those of its parents.
    files: Vec<File>,
    content: Content,
}

fn damaged(what: &str) -> Error {
    Error::Image(what.to_owned())
}

/// The description of an image, and where it begins. Only its form has been checked.
fn description(file: &File) -> Result<(Content, u64), Error> {
    let mut header = [0; HEADER_BYTES];
    let read = file.read_exact_at(&mut header, 0);
    read.map_err(|_| damaged("it is too short"))?;
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|n| header[at + n]));
    let half = |at: usize| u32::from_le_bytes(std::array::from_fn(|n| header[at + n]));
    if header[..7] != MAGIC {
        return Err(damaged("it is no image of a pod, or was not finished"));
    }
    if !(OLDEST_MAJOR..=MAJOR).contains(&header[7]) {
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
    let digest = blake3::hash(&description);
    let is_digest = header[7] == OLDEST_MAJOR || header[36..] == digest.as_bytes()[..12];
    if half(32) != crc32fast::hash(&description) || !is_digest {
        return Err(damaged("its description is damaged"));
    }
    let content: Content =
        ciborium::de::from_reader_with_recursion_limit(description.as_slice(), MAX_STATE_DEPTH)
            .map_err(|error| Error::Image(format!("its description is wrong: {error}")))?;
    check::pages::check_pieces(&content.extents, offset)?;
    Ok((content, offset))
}

/// All pages of an image with parents, and the files that they are in, its own first. The generations before it are
/// `depth`.
fn resolve(
    file: File,
    content: &mut Content,
    parents: &mut dyn Parents,
    depth: usize,
) -> Result<Vec<File>, Error> {
    let mut files = vec![file];
    let Some(Inherited { parent, kept }) = content.inherited.take() else { return Ok(files) };
    check::pages::check_kept(&kept)?;
    if depth == MAX_PARENTS {
        return Err(damaged("it has too many parents"));
    }
    let missing = || Error::Image(format!("the image that it goes on from is missing: {parent}"));
    let found = parents.find(&parent).ok_or_else(missing)?;
    if ImageName::of(&found).ok().as_ref() != Some(&parent) {
        return Err(missing());
    }
    let (mut before, _) = description(&found)?;
    files.extend(resolve(found, &mut before, parents, depth + 1)?);
    let mut table = Table::default();
    for (owner, start, end) in kept {
        let first =
            before.extents.partition_point(|extent| (extent.owner, extent.end()) <= (owner, start));
        let behind = &before.extents[first..];
        let overlapping =
            behind.iter().take_while(|extent| (extent.owner, extent.address) < (owner, end));
        for part in overlapping.filter_map(|extent| extent.part(&(start..end))) {
            table.put(Extent { file: part.file + 1, ..part });
        }
    }
    std::mem::take(&mut content.extents).into_iter().for_each(|extent| table.put(extent));
    content.extents = table.into_extents();
    Ok(files)
}

impl Image {
    /// Read an image that has no parent.
    ///
    /// # Errors
    ///
    /// [`Error::Image`] for one that is none, is damaged, describes what no processes can be, or has a parent.
    pub fn open(file: File) -> Result<Self, Error> {
        Self::open_with(file, &mut ())
    }

    /// Read an image whose parents somebody has.
    ///
    /// # Errors
    ///
    /// [`Error::Image`] for one that is none, is damaged, or describes what no processes can be, and for one with a
    /// parent that is missing or another one now.
    pub fn open_with(file: File, parents: &mut dyn Parents) -> Result<Self, Error> {
        let (mut content, _) = description(&file)?;
        check::check(&content.state)?;
        content.pod.as_ref().map_or(Ok(()), |pod| check::pod::check(pod, &content.state))?;
        let files = resolve(file, &mut content, parents, 0)?;
        check::pages::check_places(&content.state, &content.extents)?;
        Ok(Self { files, content })
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
        let file = self.files.get(extent.file).ok_or_else(|| damaged("pages are in no file"))?;
        let mut stored = vec![0; (extent.stored as usize).min(PIECE_BYTES)];
        let read = file.read_exact_at(&mut stored, extent.offset);
        read.map_err(Error::io("read the image"))?;
        if crc32fast::hash(&stored) != extent.crc {
            return Err(damaged("pages in it are damaged"));
        }
        let whole = extent.piece() as usize;
        let mut bytes = match stored.len() == whole {
            true => stored,
            false => zstd::bulk::decompress(&stored, whole)
                .map_err(|_| damaged("pages in it cannot be decompressed"))?,
        };
        if bytes.len() != whole {
            return Err(damaged("pages in it are too few"));
        }
        bytes.drain(..extent.skip as usize);
        bytes.truncate(extent.bytes as usize);
        Ok(bytes)
    }
}
