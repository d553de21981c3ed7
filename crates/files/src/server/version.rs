//! Versions of files: whether a file is still as the guest has read it, so that the guest may keep
//! its cached contents.
//!
//! A guest's kernel drops what it has cached of a file when it opens the file again, unless the
//! server answers that nothing has changed since it was last opened. The server compares times and
//! size, as NFS does. It would miss a change within the same tick of the host's clock as the one
//! before. So a file that has just changed is not settled, and the next time that the guest opens
//! it, the guest drops its cache.

use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use locks::Unpoisoned;
use rustix::fs::Statx;

/// More than a tick of any host's clock (10 ms at 100 Hz).
const TICK: Duration = Duration::from_millis(25);

/// What changes with a file's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    size: u64,
    modified: (i64, u32),
    changed: (i64, u32),
}

impl Version {
    fn of(status: &Statx) -> Self {
        Self {
            size: status.stx_size,
            modified: (status.stx_mtime.tv_sec, status.stx_mtime.tv_nsec),
            changed: (status.stx_ctime.tv_sec, status.stx_ctime.tv_nsec),
        }
    }

    /// Whether whatever changes from `now` on is seen.
    fn is_settled(&self, now: SystemTime) -> bool {
        let Ok(seconds) = u64::try_from(self.changed.0) else { return false };
        let changed = UNIX_EPOCH + Duration::new(seconds, self.changed.1);
        // A time that is still to come says nothing.
        now.duration_since(changed).is_ok_and(|since| since > TICK)
    }
}

/// What the guest has of a file: all of this version, or nothing that could be kept.
#[derive(Debug, Default)]
pub struct Seen(Mutex<Option<Version>>);

impl Seen {
    /// The guest opens the file, which is like this now; whether it may keep what it has.
    pub fn opens(&self, status: &Statx) -> bool {
        self.opens_at(status, SystemTime::now())
    }

    fn opens_at(&self, status: &Statx, now: SystemTime) -> bool {
        let version = Version::of(status);
        let settled = Some(version).filter(|version| version.is_settled(now));
        let mut seen = self.0.lock().unpoisoned();
        std::mem::replace(&mut *seen, settled) == Some(version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(milliseconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(1_000_000 + milliseconds)
    }

    /// A file of that size that was changed so many milliseconds after the same moment.
    fn status(size: u64, milliseconds: i64) -> Statx {
        let mut status = super::super::inodes::attributes(std::io::stdin()).unwrap();
        status.stx_size = size;
        for time in [&mut status.stx_mtime, &mut status.stx_ctime] {
            time.tv_sec = 1000 + milliseconds.div_euclid(1000);
            time.tv_nsec = milliseconds.rem_euclid(1000) as u32 * 1_000_000;
        }
        status
    }

    #[test]
    fn what_has_not_changed_is_kept() {
        let seen = Seen::default();
        assert!(!seen.opens_at(&status(7, 0), now(100)), "nothing is known of it");
        assert!(seen.opens_at(&status(7, 0), now(200)));
        assert!(!seen.opens_at(&status(8, 0), now(300)));
        assert!(seen.opens_at(&status(8, 0), now(400)));
        assert!(!seen.opens_at(&status(8, 410), now(500)));
        assert!(seen.opens_at(&status(8, 410), now(600)));
    }

    #[test]
    fn what_has_just_changed_is_not_settled() {
        let seen = Seen::default();
        assert!(!seen.opens_at(&status(7, 0), now(10)));
        assert!(!seen.opens_at(&status(7, 0), now(20)));
        // From here on another change would have another time.
        assert!(!seen.opens_at(&status(7, 0), now(30)));
        assert!(seen.opens_at(&status(7, 0), now(40)));
        // What comes from the future is never settled.
        assert!(!seen.opens_at(&status(7, 5000), now(50)));
        assert!(!seen.opens_at(&status(7, 5000), now(60)));
        assert!(!seen.opens_at(&status(7, -2_000_000), now(70)));
        assert!(!seen.opens_at(&status(7, -2_000_000), now(80)));
    }
}
