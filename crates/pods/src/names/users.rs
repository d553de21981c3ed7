//! Which users of the host those of a pod are (user_namespaces(7)).
//!
//! | who keeps the pod | the pod's user 0 | its other users |
//! | --- | --- | --- |
//! | an ordinary user | that user | none |
//! | the same, with ranges in /etc/subuid and /etc/subgid, and newuidmap(1) | that user | those of the first range |
//! | root | a user of the host that nobody is | the next ones |
//!
//! Root's pods are not root's: many files of `/proc` may be written by who has the host's user 0, whatever its
//! capabilities are, and one of them names a program that the kernel runs (core(5)).

use std::fmt;
use std::fs;
use std::io;

use host::subordinate::{COUNT, SubordinateIds, Superuser};
use rustix::process::{getegid, geteuid};

/// The first of the users that root's pods have: in the range in which others put containers without an entry in
/// /etc/subuid (systemd-nspawn(1), uid 524288 to 1878982656), the last part.
const FIRST_OF_ROOT: u32 = 1_878_982_656;

/// Which users of the host those of a pod are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Users {
    /// One of them, who keeps the pod.
    One,
    /// The same, and those of these ranges, of users and of groups.
    Ranges(SubordinateIds),
    /// Users of nobody's.
    OfRoot,
}

impl fmt::Display for Users {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Users::One => "with one user: you",
            Users::Ranges(_) => "with you and the users of your ranges in /etc/subuid",
            Users::OfRoot => "with users that are nobody on the host",
        })
    }
}

impl Users {
    /// Those that whoever runs us can have.
    #[must_use]
    pub fn of_process() -> Users {
        if geteuid().is_root() {
            let maps = ["/proc/self/uid_map", "/proc/self/gid_map"];
            let has_all =
                |path: &&str| has_users_of_root(&fs::read_to_string(path).unwrap_or_default());
            // The superuser of a user namespace that has not so many users is one user of the host.
            return if maps.iter().all(has_all) { Users::OfRoot } else { Users::One };
        }
        SubordinateIds::of_process().map_or(Users::One, Users::Ranges)
    }

    /// Whether there is more than one group.
    #[must_use]
    pub fn has_groups(&self) -> bool {
        *self != Users::One
    }

    /// Whether the pod's superuser is who keeps it.
    #[must_use]
    pub fn are_ours(&self) -> bool {
        *self != Users::OfRoot
    }

    /// Maps them, in the user namespace that a child of ours has entered.
    pub(super) fn map(&self, process: u32) -> io::Result<()> {
        let write = |name: &str, text: &str| fs::write(format!("/proc/{process}/{name}"), text);
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        match self {
            Users::One => {
                // Who could leave a group would have what is denied to that group.
                write("setgroups", "deny")?;
                write("uid_map", &format!("0 {uid} 1"))?;
                write("gid_map", &format!("0 {gid} 1"))
            }
            Users::OfRoot => {
                let map = format!("0 {FIRST_OF_ROOT} {COUNT}");
                write("uid_map", &map)?;
                write("gid_map", &map)
            }
            Users::Ranges(ids) => ids.map(process, Superuser::Caller),
        }
    }
}

/// Whether who is in a namespace with such a map has the users that root's pods get.
fn has_users_of_root(map: &str) -> bool {
    map.lines().any(|line| {
        let numbers: Vec<u64> = line.split_whitespace().filter_map(|it| it.parse().ok()).collect();
        let (first, count) = (u64::from(FIRST_OF_ROOT), u64::from(COUNT));
        matches!(numbers[..], [inside, _, length]
            if inside <= first && inside + length >= first + count)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_roots_pods_are_those_of_the_host() {
        assert!(has_users_of_root("         0          0 4294967295\n"));
        assert!(!has_users_of_root("         0       1000          1\n"));
        assert!(!has_users_of_root("0 100000 65536\n65536 0 1\n"));
        assert!(!has_users_of_root(""));
    }
}
