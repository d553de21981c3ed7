//! The file that holds processes.
//!
//! ```text
//! 0    "BIVPOD\n", then one byte of the major version
//! 8    u32 minor version          u32 CRC-32 of the 32 bytes that follow
//! 16   u64 offset, u64 bytes, u32 CRC-32 of the description; 12 bytes of zeros
//! 4096 pieces of pages: raw, or a frame of zstd, one behind the other
//!      the description, in CBOR with named fields: the state, and where each piece is
//! ```
//!
//! All numbers are little-endian. The header is written last, after the rest has reached the disk: a file without it
//! is no image. A reader refuses another major version; a newer minor version may have more fields, which are skipped.
//! Nothing of an image is believed: see [`check`](crate::check).

mod reader;
mod writer;

pub use reader::Image;
pub use writer::{Compression, Writer};

use serde::{Deserialize, Serialize};

use crate::pod::Pod;
use crate::state::{Owner, State};

/// How a file begins.
const MAGIC: [u8; 7] = *b"BIVPOD\n";
const MAJOR: u8 = 1;
const MINOR: u32 = 0;
/// Where the pieces begin.
const PIECES_OFFSET: u64 = 4096;
/// Bytes of the header.
const HEADER_BYTES: usize = 48;

/// What is behind the pieces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Content {
    pub state: State,
    pub extents: Vec<Extent>,
    #[serde(default)]
    pub pod: Option<Pod>,
}

/// A run of pages, and where they are in the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Whose pages they are.
    pub owner: Owner,
    /// The first address.
    pub address: u64,
    /// Bytes in memory.
    pub bytes: u32,
    /// Where in the file.
    pub offset: u64,
    /// Bytes in the file; fewer than in memory if it is a frame of zstd.
    pub stored: u32,
    /// CRC-32 of what is in the file.
    pub crc: u32,
}
