//! Where the entries of a grant table are, by the version of the table.

use xen_abi::grant::{EntryV1, EntryV2};
use xen_abi::{PAGE_BYTES, Wire};
use xen_io::{GrantPlace, MachineAddress};

use crate::geometry::{GRANT_FRAMES, Geometry};

/// Marks of a status frame.
const MARKS_OF_FRAME: u64 = (PAGE_BYTES / size_of::<u16>()) as u64;

/// A layout of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Version {
    /// With marks in the entries.
    #[default]
    One,
    /// With long frame numbers, and marks in status frames.
    Two,
}

impl Version {
    pub(crate) fn of_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::One),
            2 => Some(Self::Two),
            _ => None,
        }
    }

    pub(crate) fn number(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }

    /// Bytes of an entry.
    pub(crate) fn entry_bytes(self) -> usize {
        match self {
            Self::One => EntryV1::BYTES,
            Self::Two => EntryV2::BYTES,
        }
    }

    /// Entries of a frame.
    pub(crate) fn entries_of_frame(self) -> u64 {
        (PAGE_BYTES / self.entry_bytes()) as u64
    }

    /// Where an entry is, in a table that has it.
    pub(crate) fn place(self, geometry: &Geometry, reference: u32) -> Option<GrantPlace> {
        let (reference, entries) = (u64::from(reference), self.entries_of_frame());
        let number = reference / entries;
        if number >= GRANT_FRAMES {
            return None;
        }
        let offset = reference % entries * self.entry_bytes() as u64;
        let entry = MachineAddress::in_frame(geometry.grant_frame(number), offset);
        let marks = (self == Self::Two).then(|| {
            let frame = geometry.status_frame(reference / MARKS_OF_FRAME);
            MachineAddress::in_frame(frame, reference % MARKS_OF_FRAME * 2)
        });
        Some(GrantPlace { entry, marks })
    }

    /// Frames with the marks of a table of so many frames.
    pub(crate) fn status_frames(self, frames: u64) -> u64 {
        match self {
            Self::One => 0,
            Self::Two => (frames * self.entries_of_frame()).div_ceil(MARKS_OF_FRAME),
        }
    }
}
