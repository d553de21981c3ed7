//! The file that holds processes.
//!
//! ```text
//! 0    "BIVPOD\n", then one byte of the major version
//! 8    u32 minor version          u32 CRC-32 of the 32 bytes that follow
//! 16   u64 offset, u64 bytes, u32 CRC-32 of the description; the first 12 bytes of its BLAKE3
//! 4096 pieces of pages: raw, or a frame of zstd, one behind the other
//!      the description, in CBOR with named fields: the state, and where each piece is
//! ```
//!
//! All numbers are little-endian. The header is written last, after the rest has reached the disk: a file without it
//! is no image. A reader refuses another major version; a newer minor version may have more fields, which are skipped.
//! Nothing of an image is believed: see [`check`](crate::check).
//!
//! *Pages that are put twice.* Pieces go to the file as they come, while the processes still run. Of a piece of which a
//! part was put again later, only the rest counts: an extent names the piece and what of it counts. So a file may have
//! bytes that nobody refers to.
//!
//! *As a stream*, the same comes in another order, because nothing can be written to the beginning afterwards: the
//! pieces, the description, the header ([`from_stream`]).
//!
//! *Increments.* An image may have a parent, and says where pages of processes are still those of the parent
//! ([`Inherited`]). The parent is named by the BLAKE3 of its header, which stands for the description by a digest and
//! thereby for all of its pieces by their checksums. Who opens an image gives its parents.
//!
//! *Who reads.* Whoever does not know where an image is from has it read by a process that can do nothing else
//! ([`reader`]), and never looks at the file.

mod description;
mod inherited;
mod layout;
mod opened;
mod parse;
mod pieces;
pub mod reader;
mod stream;
mod table;
mod writer;

pub use inherited::{ImageName, Parents};
pub use opened::{Image, Pages};
pub use stream::{STREAM_OFFSET, from_stream};
pub use writer::{Compression, Finished, Writer};

use std::ops::Range;

use self::inherited::Inherited;
use serde::{Deserialize, Serialize};

use crate::pod::Pod;
use crate::state::{Owner, State};

/// What is behind the pieces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Content {
    pub state: State,
    pub extents: Vec<Extent>,
    #[serde(default)]
    pub pod: Option<Pod>,
    #[serde(default)]
    pub inherited: Option<Inherited>,
}

/// Pages that an image has, one behind the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Whose they are.
    pub owner: Owner,
    /// The first address.
    pub address: u64,
    /// Their bytes, no more than [`PIECE_BYTES`](crate::limits::PIECE_BYTES).
    pub bytes: u32,
}

impl Run {
    /// The first address behind it.
    pub(crate) fn end(&self) -> u64 {
        self.address.saturating_add(self.bytes.into())
    }
}

/// A run of pages, and where they are in the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Extent {
    /// Whose pages they are.
    pub owner: Owner,
    /// The first address.
    pub address: u64,
    /// Bytes in memory.
    pub bytes: u32,
    /// Where in the file their piece is.
    pub offset: u64,
    /// Bytes of the piece in the file; fewer than in memory if it is a frame of zstd.
    pub stored: u32,
    /// CRC-32 of what is in the file.
    pub crc: u32,
    /// Bytes of the piece in memory that come before these.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skip: u32,
    /// Bytes of the piece in memory, if these are not all of it; 0 else.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub whole: u32,
    /// In which of the image's files the piece is: 0 for the image's own, others for those of its parents.
    #[serde(skip)]
    pub file: usize,
}

/// What serde asks for.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Extent {
    /// All of a piece.
    fn new(owner: Owner, address: u64, bytes: u32, offset: u64, stored: u32, crc: u32) -> Self {
        Self { owner, address, bytes, offset, stored, crc, skip: 0, whole: 0, file: 0 }
    }

    /// What it is in memory.
    pub(crate) fn run(&self) -> Run {
        Run { owner: self.owner, address: self.address, bytes: self.bytes }
    }

    /// The first address behind it.
    pub(crate) fn end(&self) -> u64 {
        self.run().end()
    }

    /// Bytes of its piece in memory.
    pub(crate) fn piece(&self) -> u32 {
        if self.whole == 0 { self.bytes } else { self.whole }
    }

    /// What of it is at these addresses.
    fn part(&self, range: &Range<u64>) -> Option<Self> {
        let (start, end) = (range.start.max(self.address), range.end.min(self.end()));
        (start < end).then(|| Self {
            address: start,
            bytes: (end - start) as u32,
            skip: self.skip + (start - self.address) as u32,
            whole: self.piece(),
            ..self.clone()
        })
    }
}
