//! Why a front-end is not served any more.

use crate::grant::GrantError;
use crate::memory::NoMemory;

/// The front-end has broken the protocol, or its memory is gone: its back-end stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// More is said to be in the ring than it can hold.
    #[error("the front-end's index is {index}, where at most {most} is possible")]
    Index {
        /// What it says.
        index: u32,
        /// The last index that the ring has room for.
        most: u32,
    },
    /// No ring is made of so many pages.
    #[error("a ring has 1, 2, 4, 8 or 16 pages, not {0}")]
    Pages(usize),
    /// A page of the ring is not granted.
    #[error("a page of the ring is not granted: {0}")]
    Ring(#[from] GrantError),
    /// The frames of the ring are no memory.
    #[error("the ring is not in the domain's memory")]
    Memory(#[from] NoMemory),
    /// A packet has more slots than packets have, or fewer than it says.
    #[error("a packet's slots do not end where the packet does")]
    Packet,
    /// More responses than requests: a back-end's own mistake.
    #[error("there are more responses than requests")]
    Responses,
}
