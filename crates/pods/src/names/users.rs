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
use std::process::{Command, Stdio};

use rustix::process::{getegid, geteuid};

/// The first of the users that root's pods have: in the range in which others put containers without an entry in
/// /etc/subuid (systemd-nspawn(1), uid 524288 to 1878982656), the last part.
const FIRST_OF_ROOT: u32 = 1_878_982_656;

/// How many users and groups a pod has, if not one.
const COUNT: u32 = 65_536;

/// Users and groups that a user may map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    first: u32,
    count: u32,
}

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

/// Ranges of users and of groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubordinateIds {
    users: Range,
    groups: Range,
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
        let uid = geteuid().as_raw();
        let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let name = name_of(uid, &accounts);
        let range = |path: &str| range_of(uid, name, &fs::read_to_string(path).ok()?);
        let has_tools = ["newuidmap", "newgidmap"].iter().all(|tool| is_there(tool));
        match (range("/etc/subuid"), range("/etc/subgid")) {
            (Some(users), Some(groups)) if has_tools => {
                Users::Ranges(SubordinateIds { users, groups })
            }
            _ => Users::One,
        }
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
            Users::Ranges(ids) => {
                run("newuidmap", process, uid, ids.users)?;
                run("newgidmap", process, gid, ids.groups)
            }
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

/// Has a tool map 0 to who we are and those after it to a range.
fn run(tool: &str, process: u32, own: u32, range: Range) -> io::Result<()> {
    let numbers = [process, 0, own, 1, 1, range.first, range.count];
    let output = Command::new(tool)
        .args(numbers.map(|number| number.to_string()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(io::Error::other(format!("{tool}: {}", said.trim_end())))
        }
    }
}

fn is_there(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(tool).is_file())
}

/// The name of a user, by the lines of /etc/passwd.
fn name_of(uid: u32, accounts: &str) -> Option<&str> {
    accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    })
}

/// The first range of a user's that is large enough for one, by the lines of /etc/subuid: `USER:FIRST:COUNT`, by name
/// or number.
fn range_of(uid: u32, name: Option<&str>, lines: &str) -> Option<Range> {
    lines.lines().find_map(|line| {
        let mut fields = line.split(':');
        let whose = fields.next()?;
        let (first, count) = (fields.next()?.parse().ok()?, fields.next()?.trim().parse().ok()?);
        let is_ours = Some(whose) == name || whose.parse() == Ok(uid);
        let count = u32::min(count, COUNT - 1);
        (is_ours && count > 0 && u32::checked_add(first, count).is_some())
            .then_some(Range { first, count })
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

    #[test]
    fn ranges_are_a_users_own() {
        let accounts = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\nbad\n";
        assert_eq!(name_of(1000, accounts), Some("ann"));
        assert_eq!(name_of(7, accounts), None);
        let lines = "bob:100000:65536\nnonsense\nann:0:0\nann:165536:65536\n1001:5:10\n\
            1002:4294967295:65536\n";
        let check = |uid, name, expected: Option<(u32, u32)>| {
            let expected = expected.map(|(first, count)| Range { first, count });
            assert_eq!(range_of(uid, name, lines), expected, "{uid}");
        };
        check(1000, Some("ann"), Some((165_536, 65_535)));
        check(1001, None, Some((5, 10)));
        check(1002, None, None);
        check(1003, Some("eve"), None);
    }
}
