//! The mappings of one vCPU's helpers that other vCPUs may have to revoke.
//!
//! A helper must lose write access to a page that is about to get translations, and a copy of a page (copies.rs) that
//! is about to be written. The vCPU that causes this is mostly not the one that owns the helper, and only the owner
//! changes the mappings of its helpers. So a revocation has two steps:
//!
//! 1. Any vCPU moves the page's mappings from the reverse map to a list ([`Revocable::revoke_write`],
//!    [`Revocable::revoke_copy`]).
//! 2. The owner takes the list ([`Revocable::take_revoked`]) and changes the mappings before it runs a helper again.
//!    Until the owner has left the helper that it runs, the other vCPU waits where it must (vcpu_group.rs).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use locks::Unpoisoned;

use crate::memory::reverse_map::ReverseMap;
use crate::memory::{PAGE_SIZE, Physical};

/// A page of a helper's address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mapping {
    /// The number of the address space.
    pub(super) space: usize,
    /// The linear page number.
    pub(super) page: u64,
}

/// What helpers of one vCPU have mapped that must go when a page gets translations, or loses them: pages that are
/// writable, and copies.
#[derive(Debug, Default)]
pub(crate) struct Revocable {
    maps: Mutex<Maps>,
    any_revoked: AtomicBool,
}

/// What [`Revocable`] has behind its lock.
#[derive(Debug, Default)]
pub(super) struct Maps {
    /// Pages that are mapped writable.
    pub(super) writable: ReverseMap<Mapping, PAGE_SIZE>,
    /// Copies, by the page that is copied.
    pub(super) copies: ReverseMap<Mapping, PAGE_SIZE>,
    /// Still writable, or copies that are still mapped, though they must not be.
    revoked: Vec<Mapping>,
}

impl Revocable {
    pub(super) fn maps(&self) -> MutexGuard<'_, Maps> {
        self.maps.lock().unpoisoned()
    }

    /// A page is about to have translations. Whether a helper had it writable.
    pub(crate) fn revoke_write(&self, page: Physical) -> bool {
        self.revoke(|maps| maps.writable.take(page))
    }

    /// A page is about to be written, or will no longer be watched. Whether a helper had its copy.
    pub(crate) fn revoke_copy(&self, page: Physical) -> bool {
        self.revoke(|maps| maps.copies.take(page))
    }

    /// No page is watched any longer. Whether a helper had any copy.
    pub(crate) fn revoke_copies(&self) -> bool {
        self.revoke(|maps| maps.copies.take_all())
    }

    fn revoke(&self, take: impl FnOnce(&mut Maps) -> Vec<Mapping>) -> bool {
        let mut maps = self.maps();
        let mappings = take(&mut maps);
        if mappings.is_empty() {
            return false;
        }
        maps.revoked.extend(mappings);
        self.any_revoked.store(true, Ordering::SeqCst);
        true
    }

    /// What was revoked since the last call.
    pub(super) fn take_revoked(&self) -> Vec<Mapping> {
        if !self.any_revoked.swap(false, Ordering::SeqCst) {
            return Vec::new();
        }
        std::mem::take(&mut self.maps().revoked)
    }

    /// An address space has no mappings any more.
    pub(super) fn forget_space(&self, number: usize) {
        let mut maps = self.maps();
        let is_other = |mapping: Mapping| mapping.space != number;
        maps.revoked.retain(|&mapping| is_other(mapping));
        maps.writable.retain(is_other);
        maps.copies.retain(is_other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: Physical = Physical(7 * PAGE_SIZE);

    fn mapping(space: usize, page: u64) -> Mapping {
        Mapping { space, page }
    }

    #[test]
    fn the_owner_learns_once_of_what_was_revoked() {
        let revocable = Revocable::default();
        assert!(!revocable.revoke_write(PAGE) && !revocable.revoke_copies());
        assert_eq!(revocable.take_revoked(), []);
        revocable.maps().writable.insert(PAGE, mapping(0, 1));
        revocable.maps().copies.insert(PAGE, mapping(1, 2));
        assert!(revocable.revoke_write(PAGE) && !revocable.revoke_write(PAGE));
        assert_eq!(revocable.take_revoked(), [mapping(0, 1)]);
        assert!(revocable.revoke_copy(PAGE) && !revocable.revoke_copies());
        assert_eq!(revocable.take_revoked(), [mapping(1, 2)]);
        assert_eq!(revocable.take_revoked(), []);
    }

    #[test]
    fn a_space_that_is_gone_is_in_no_list() {
        let revocable = Revocable::default();
        for space in [0, 1] {
            revocable.maps().writable.insert(PAGE, mapping(space, 1));
            revocable.maps().copies.insert(PAGE, mapping(space, 2));
        }
        assert!(revocable.revoke_copies());
        revocable.forget_space(0);
        assert!(revocable.revoke_write(PAGE));
        assert_eq!(revocable.take_revoked(), [mapping(1, 2), mapping(1, 1)]);
    }
}
