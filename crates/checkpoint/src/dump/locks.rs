//! Locks on files, as fdinfo has them.
//!
//! A lock of a description stands at each descriptor that refers to it; a lock of a process at that process's
//! descriptors of the description that the lock was taken by.

use super::found::Found;
use crate::error::Error;
use crate::limits::MAX_LOCKS;
use crate::state::{Lock, LockOwner, LockedBytes};

/// Add the locks that were taken by a description, which `group` refers to.
pub(super) fn find(
    group: &[Found],
    description: usize,
    locks: &mut Vec<Lock>,
) -> Result<(), Error> {
    let mut last = None;
    for found in group {
        // Another descriptor of the same process says the same again, and another process what is the description's.
        let (is_first, is_next) = (last.is_none(), last != Some(found.pid));
        last = Some(found.pid);
        let lines = found.line.rest.iter().filter(|(name, _)| is_next && name == "lock");
        for (_, value) in lines {
            let (owner, exclusive) = parse(value, found.own).ok_or_else(|| {
                let kind = value.split_whitespace().nth(1).unwrap_or("").to_lowercase();
                let what = format!("has a lock ({kind}) on {}", found.line.link);
                Error::unsupported(found.pid, what)
            })?;
            if is_first || matches!(owner, LockOwner::Process { .. }) {
                locks.push(Lock { description, owner, exclusive });
            }
            if locks.len() > MAX_LOCKS {
                return Err(Error::Host(format!("more than {MAX_LOCKS} locks are held")));
            }
        }
    }
    Ok(())
}

/// `1: POSIX  ADVISORY  WRITE 359 00:13:11691 0 EOF`; of a process that calls itself `own`.
fn parse(value: &str, own: u32) -> Option<(LockOwner, bool)> {
    let words: Vec<&str> = value.split_whitespace().collect();
    let &[_, kind, "ADVISORY", right, _, _, start, last] = words.as_slice() else { return None };
    let exclusive = match right {
        "READ" => false,
        "WRITE" => true,
        _ => return None,
    };
    let last = if last == "EOF" { None } else { Some(last.parse().ok()?) };
    let bytes = LockedBytes { start: start.parse().ok()?, last };
    let owner = match kind {
        "FLOCK" => LockOwner::Whole,
        "OFDLCK" => LockOwner::Description { bytes },
        "POSIX" => LockOwner::Process { pid: own, bytes },
        _ => return None,
    };
    Some((owner, exclusive))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_parsed() {
        let bytes = LockedBytes { start: 5, last: Some(14) };
        let all = LockedBytes { start: 0, last: None };
        let check = |value: &str, expected| assert_eq!(parse(value, 7), expected, "{value}");
        check("1: FLOCK  ADVISORY  READ 99 fe:00:12 0 EOF", Some((LockOwner::Whole, false)));
        let owner = LockOwner::Process { pid: 7, bytes };
        check("2: POSIX  ADVISORY  WRITE 99 fe:00:12 5 14", Some((owner, true)));
        let owner = LockOwner::Description { bytes: all };
        check("1: OFDLCK ADVISORY  WRITE -1 fe:00:12 0 EOF", Some((owner, true)));
        check("1: LEASE  ACTIVE    READ 99 fe:00:12 0 EOF", None);
        check("1: POSIX  ADVISORY  WRITE 99 fe:00:12 x 14", None);
        check("", None);
    }
}
