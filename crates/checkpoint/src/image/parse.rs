//! Parsing an image: nothing in it is believed.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::fs::fstat;

use super::description::Description;
use super::inherited::{ImageName, Inherited, Parents};
use super::layout::{HEADER_BYTES, MAGIC, MAJOR, OLDEST_MAJOR};
use super::pieces::{Pieces, damaged};
use super::table::Table;
use super::{Content, Extent};
use crate::check;
use crate::error::Error;
use crate::functions::functions;
use crate::limits::{MAX_PARENTS, MAX_STATE_BYTES, MAX_STATE_DEPTH};

/// Parse an image whose parents somebody has, and check it.
pub(super) fn parse(file: File, parents: &mut dyn Parents) -> Result<(Description, Pieces), Error> {
    let (mut content, _) = description(&file)?;
    check::check(&content.state)?;
    content.pod.as_ref().map_or(Ok(()), |pod| check::pod::check(pod, &content.state))?;
    let files = resolve(file, &mut content, parents, 0)?;
    let runs: Vec<_> = content.extents.iter().map(Extent::run).collect();
    check::pages::check_places(&content.state, &runs)?;
    let Content { state, extents, pod, .. } = content;
    // Who needs them says if there are none.
    let functions = functions(&state.vdso_code).unwrap_or_default();
    let pieces = Pieces::new(files, extents);
    let places = pieces.places();
    Ok((Description { state, pod, functions, runs, places }, pieces))
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
    let length = fstat(file).map_err(Error::io("look at the image"))?.st_size.cast_unsigned();
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
