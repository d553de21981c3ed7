//! Pages that an image has from its parent.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};

use super::layout::{HEADER_BYTES, MAGIC};
use crate::bytes::Bytes;
use crate::state::Owner;

/// What an image is known by: the BLAKE3 of its header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageName(Bytes);

impl ImageName {
    /// That of a file, whatever it is.
    ///
    /// # Errors
    ///
    /// It is too short, or cannot be read.
    pub fn of(file: &File) -> io::Result<Self> {
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0)?;
        Ok(Self::of_header(&header))
    }

    /// That which has this digest.
    pub(super) fn from_digest(digest: &[u8]) -> Self {
        Self(digest.into())
    }

    /// Its digest.
    pub(super) fn digest(&self) -> &[u8] {
        &self.0
    }

    /// Whether it is that of a file which begins as images do.
    pub(super) fn is_image(&self, file: &File) -> bool {
        let mut magic = [0; MAGIC.len()];
        let begins = file.read_exact_at(&mut magic, 0).is_ok_and(|()| magic == MAGIC);
        begins && Self::of(file).is_ok_and(|name| name == *self)
    }

    pub(super) fn of_header(header: &[u8]) -> Self {
        Self(blake3::hash(header).as_bytes().as_slice().into())
    }
}

impl std::fmt::Display for ImageName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().take(16).try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// Who has the parents of an image.
pub trait Parents {
    /// The file of that name; none if it is not known. Whether it is that file is looked at by who asks.
    fn find(&mut self, name: &ImageName) -> Option<File>;
}

/// Who has none.
impl Parents for () {
    fn find(&mut self, _: &ImageName) -> Option<File> {
        None
    }
}

/// What an image has from its parent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Inherited {
    /// The parent.
    pub parent: ImageName,
    /// Where its pages are still there, if it has some: owner, first address, first address behind. In order.
    pub kept: Vec<(Owner, u64, u64)>,
}
