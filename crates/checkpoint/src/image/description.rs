//! What an image says, without where anything is in its files.

use serde::{Deserialize, Serialize};

use super::Run;
use crate::check;
use crate::error::Error;
use crate::functions::{Function, check_functions};
use crate::limits::PIECE_BYTES;
use crate::pod::Pod;
use crate::state::State;

/// All that restarting needs of an image besides the bytes of its pages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Description {
    /// The processes.
    pub state: State,
    /// The pod that they were.
    pub pod: Option<Pod>,
    /// The functions of their vDSO; none if that is none, or the image does not have it.
    pub functions: Vec<Function>,
    /// Where the pages are in memory, by owner and address.
    pub runs: Vec<Run>,
    /// Where the bytes of each run are.
    pub places: Vec<Place>,
}

/// Where the bytes of a run of pages are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Place {
    /// In a file, as they are.
    Plain(Plain),
    /// In a piece that has to be decompressed.
    Packed,
}

/// Bytes that are in a file as they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plain {
    /// The number of the file: the image is the first, its parents follow.
    pub file: u32,
    /// Where their piece begins.
    pub offset: u64,
    /// Bytes of the piece.
    pub whole: u32,
    /// Bytes of the piece that come before these.
    pub skip: u32,
    /// CRC-32 of the piece.
    pub crc: u32,
}

impl Description {
    /// Check all of it, as if nobody had before. The image and its parents are so many files.
    pub fn check(&self, files: usize) -> Result<(), Error> {
        check::check(&self.state)?;
        self.pod.as_ref().map_or(Ok(()), |pod| check::pod::check(pod, &self.state))?;
        check_functions(&self.functions)?;
        check::pages::check_runs(self.runs.iter().copied())?;
        check::pages::check_places(&self.state, &self.runs)?;
        check::require(self.places.len() == self.runs.len(), "pages are in no file")?;
        for (run, place) in self.runs.iter().zip(&self.places) {
            let Place::Plain(plain) = place else { continue };
            let end = plain.skip.checked_add(run.bytes);
            let is_fine = plain.whole as usize <= PIECE_BYTES
                && end.is_some_and(|end| end <= plain.whole)
                && (plain.file as usize) < files;
            check::require(is_fine, "pages are in no file")?;
        }
        Ok(())
    }
}
