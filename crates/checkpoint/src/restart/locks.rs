//! Locks on files: those of descriptions the seed takes, those of processes they take themselves.

use inject::{Area, Seat};

use super::opened::Opened;
use super::plan::Plan;
use crate::error::Error;
use crate::state::{Lock, LockOwner, LockedBytes, Process};

/// `F_OFD_SETLK`.
const OF_DESCRIPTION: u64 = 37;

/// Take those of descriptions, in the seed.
pub(super) fn take(seat: &Seat, area: &Area, opened: Opened, locks: &[Lock]) -> Result<(), Error> {
    let mut plan = Plan::new(0, seat, area);
    for lock in locks {
        let number = opened.description(lock.description);
        match lock.owner {
            LockOwner::Whole => {
                let how = if lock.exclusive { libc::LOCK_EX } else { libc::LOCK_SH };
                let how = (how | libc::LOCK_NB).cast_unsigned().into();
                plan.must("lock a file", libc::SYS_flock, [number, how]);
            }
            LockOwner::Description { bytes } => {
                set(&mut plan, number, OF_DESCRIPTION, lock.exclusive, bytes);
            }
            LockOwner::Process { .. } => {}
        }
        plan.flush_if_full()?;
    }
    plan.run().map(drop)
}

/// Take those of a process. It has its descriptors, and no others: whoever closes any descriptor of a file loses them.
pub(super) fn take_own(
    plan: &mut Plan<'_>,
    process: &Process,
    locks: &[Lock],
) -> Result<(), Error> {
    for lock in locks {
        let LockOwner::Process { pid, bytes } = lock.owner else { continue };
        let held = process.descriptors.iter().find(|one| one.description == lock.description);
        let Some(descriptor) = held.filter(|_| pid == process.pid) else { continue };
        let command = libc::F_SETLK.cast_unsigned().into();
        set(plan, descriptor.number.into(), command, lock.exclusive, bytes);
        plan.flush_if_full()?;
    }
    Ok(())
}

fn set(plan: &mut Plan<'_>, number: u64, command: u64, exclusive: bool, bytes: LockedBytes) {
    let kind = if exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
    // Until the end is said by 0.
    let length = bytes.last.map_or(0, |last| last - bytes.start + 1);
    // `struct flock`: the kind and from where as 16 bits each, start, length, and whose, which is nobody's business.
    let lock = plan.words(&[u64::from(kind.cast_unsigned()), bytes.start, length, 0]);
    plan.must("lock bytes of a file", libc::SYS_fcntl, [number, command, lock]);
}
