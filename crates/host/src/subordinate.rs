//! Users and groups of the host that a user may be besides himself (subuid(5)), and a process that is the superuser of
//! them in a user namespace (user_namespaces(7)).
//!
//! A process of ours enters such a namespace by itself ([`enter`]). Whoever has started it has the tools newuidmap(1)
//! and newgidmap(1) map its users ([`Namespace::admit`]), which have the rights for that. The two speak over a
//! socket, a byte in each direction.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::{getegid, geteuid};
use rustix::thread::{
    Gid, Uid, UnshareFlags, set_thread_res_gid, set_thread_res_uid, unshare_unsafe,
};

use crate::environment::is_in_search_path;
use crate::limits::ADMISSION_PATIENCE;
use crate::poll::{PollFlags, wait_for};

/// How many users and groups a namespace has.
pub const COUNT: u32 = 65_536;

/// What is said when a process is in its namespace, and when its users are mapped.
const ENTERED: u8 = b'e';
const MAPPED: u8 = b'm';

/// Users, or groups, that a user may map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    first: u32,
    count: u32,
}

/// The first range of users of a user's, and of groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubordinateIds {
    users: Range,
    groups: Range,
}

/// Who a namespace's user 0 is on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Superuser {
    /// Whoever runs us; the range's come after him, from 1 on. So it is in podman's containers.
    Caller,
    /// The first of the range; whoever runs us comes after them. So it is in the trees that mmdebstrap(1) makes.
    FirstOfRange,
}

/// A user namespace: its users, and who is its superuser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespace {
    /// The users besides whoever runs us.
    pub ids: SubordinateIds,
    /// Its user 0.
    pub superuser: Superuser,
}

impl SubordinateIds {
    /// Those of whoever runs us, where there are some and the tools that map them.
    #[must_use]
    pub fn of_process() -> Option<Self> {
        let uid = geteuid().as_raw();
        let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let name = name_of(uid, &accounts);
        let range = |path: &str| range_of(uid, name, &fs::read_to_string(path).ok()?);
        let (users, groups) = (range("/etc/subuid")?, range("/etc/subgid")?);
        let has_tools = ["newuidmap", "newgidmap"].into_iter().all(is_in_search_path);
        has_tools.then_some(Self { users, groups })
    }

    /// The first user of the range.
    #[must_use]
    pub fn first_user(&self) -> u32 {
        self.users.first
    }

    /// Maps them in the user namespace that a process of ours has entered.
    ///
    /// # Errors
    ///
    /// A tool cannot be started, or what it complains of.
    pub fn map(&self, process: u32, superuser: Superuser) -> io::Result<()> {
        run("newuidmap", process, self.users.map(geteuid().as_raw(), superuser))?;
        run("newgidmap", process, self.groups.map(getegid().as_raw(), superuser))
    }
}

impl Namespace {
    /// Waits until the process at the other end of `line` is in a namespace of its own, maps its users, and tells it
    /// so.
    ///
    /// # Errors
    ///
    /// It ends, or does not come, within some seconds; and those of [`SubordinateIds::map`].
    pub fn admit(&self, line: BorrowedFd<'_>, process: u32) -> io::Result<()> {
        let deadline = Instant::now() + ADMISSION_PATIENCE;
        if wait_for(line, PollFlags::IN, Some(deadline))?.is_empty() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        hear(line, ENTERED)?;
        self.ids.map(process, self.superuser)?;
        say(line, MAPPED)
    }
}

impl Range {
    /// What a tool is to map: triples of the first number inside, the first outside, and how many.
    fn map(self, own: u32, superuser: Superuser) -> [u32; 6] {
        let Self { first, count } = self;
        match superuser {
            Superuser::Caller => [0, own, 1, 1, first, count],
            Superuser::FirstOfRange => [0, first, count, count, own, 1],
        }
    }
}

/// Enters a user namespace and waits, at one end of `line`, for who is at the other to map its users; this process is
/// their superuser from then on. It must have one thread.
///
/// # Errors
///
/// The host has no such namespaces, or not for us; or the other end is closed.
pub fn enter(line: impl AsFd) -> io::Result<()> {
    let line = line.as_fd();
    // SAFETY: of what this can do, only that of `FILES` is unsound: descriptors stay what they are.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER)? };
    say(line, ENTERED)?;
    hear(line, MAPPED)?;
    set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT)?;
    Ok(set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?)
}

fn say(line: BorrowedFd<'_>, word: u8) -> io::Result<()> {
    send(line, &[word], SendFlags::NOSIGNAL)?;
    Ok(())
}

fn hear(line: BorrowedFd<'_>, word: u8) -> io::Result<()> {
    let mut heard = [0; 1];
    match rustix::io::retry_on_intr(|| recv(line, &mut heard[..], RecvFlags::empty())) {
        Ok((1, _)) if heard == [word] => Ok(()),
        Ok(_) | Err(Errno::CONNRESET) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(errno) => Err(errno.into()),
    }
}

/// Has a tool map triples of numbers in the namespace of a process.
fn run(tool: &str, process: u32, numbers: [u32; 6]) -> io::Result<()> {
    let output = Command::new(tool)
        .arg(process.to_string())
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

    #[test]
    fn either_the_caller_or_the_first_of_the_range_is_the_superuser() {
        let range = Range { first: 100_000, count: 10 };
        assert_eq!(range.map(1000, Superuser::Caller), [0, 1000, 1, 1, 100_000, 10]);
        assert_eq!(range.map(1000, Superuser::FirstOfRange), [0, 100_000, 10, 10, 1000, 1]);
    }

    #[test]
    fn who_is_not_admitted_learns_it() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        drop(theirs);
        assert!(hear(ours.as_fd(), MAPPED).is_err());
        assert!(say(ours.as_fd(), ENTERED).is_err());
    }
}
