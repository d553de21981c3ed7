//! The table in a saved state. Handles that are free have no order any more.

use serde::{Deserialize, Serialize};
use xen_abi::Mfn;
use xen_abi::grant::map;

use super::handles::Handles;
use super::table::{GrantTable, Mapping};
use crate::geometry::GRANT_FRAMES;
use crate::grant_layout::Version;
use crate::memory::Owned;

/// See above.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct SavedGrants {
    version: u32,
    frames: u64,
    /// Handle, reference, flags, frame.
    mappings: Vec<(u32, u32, u32, u64)>,
}

/// No domain can have such a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nonsense;

impl SavedGrants {
    fn version(&self) -> Result<Version, Nonsense> {
        let is_long = (1..=GRANT_FRAMES).contains(&self.frames);
        Version::of_number(self.version).filter(|_| is_long).ok_or(Nonsense)
    }

    /// The frames of marks are the domain's, with what is in them.
    ///
    /// # Errors
    ///
    /// [`Nonsense`].
    pub(crate) fn assign_status(&self, owned: &Owned) -> Result<(), Nonsense> {
        let frames = self.version()?.status_frames(self.frames);
        (0..frames)
            .map(|index| owned.geometry.status_frame(index))
            .try_for_each(|frame| owned.frames().assign_special(frame, true).map_err(|_| Nonsense))
    }
}

impl GrantTable {
    /// What goes on in another process.
    pub(crate) fn save(&self, owned: &Owned) -> SavedGrants {
        let mappings = self
            .mappings
            .iter()
            .map(|(handle, mapping)| (*handle, mapping.reference, mapping.flags, mapping.frame.0));
        let version = owned.grant_version().number();
        SavedGrants { version, frames: self.frames, mappings: mappings.collect() }
    }

    /// Go on from there: the domain has its memory, and its page tables are validated.
    ///
    /// # Errors
    ///
    /// [`Nonsense`].
    pub(crate) fn restored(saved: &SavedGrants, owned: &Owned) -> Result<Self, Nonsense> {
        let mut table = Self::new();
        table.frames = saved.frames;
        owned.set_grant_version(saved.version()?);
        for &(handle, reference, flags, frame) in &saved.mappings {
            let mapping = Mapping { reference, flags, frame: Mfn(frame) };
            let is_sane = Handles::can_be(handle)
                && flags & (map::HOST | map::DEVICE) != 0
                && table.place(owned, reference).is_some()
                && table.resume(&mapping)
                && table.mappings.insert(handle, mapping).is_none();
            if !is_sane {
                return Err(Nonsense);
            }
            if flags & map::DEVICE != 0 {
                mapping.take(owned.frames()).map_err(|_| Nonsense)?;
            }
        }
        table.handles = Handles::with_used(table.mappings.keys().copied());
        Ok(table)
    }
}
