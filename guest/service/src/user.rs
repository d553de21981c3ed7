//! Users by name, as the guest's `/etc/passwd` and `/etc/group` have them.

use std::fs;
use std::io;
use std::sync::OnceLock;

use rustix::fs::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// Whom a command runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Its number.
    pub uid: u32,
    /// Its group's.
    pub gid: u32,
    /// The groups that it is in besides.
    pub groups: Vec<u32>,
    /// Where it is at home.
    pub home: Vec<u8>,
}

impl User {
    /// Makes the calling thread, and it only, one of this user's.
    pub fn assume(&self) -> io::Result<()> {
        let groups: Vec<Gid> = self.groups.iter().copied().map(Gid::from_raw).collect();
        let (user, group) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        set_thread_groups(&groups)?;
        set_thread_res_gid(group, group, group)?;
        Ok(set_thread_res_uid(user, user, user)?)
    }
}

/// The user whose groups the host has said: they hold for later commands, too.
static KNOWN: OnceLock<User> = OnceLock::new();

/// To whom belongs what comes from the host, as `USER:GROUP` in numbers: to who runs the machine's command.
pub fn owner() -> String {
    let (user, group) = KNOWN.get().map_or((0, 0), |user| (user.uid, user.gid));
    format!("{user}:{group}")
}

/// The user that `name` means, who is in `groups` if the host knows that: nobody else than we are if it is
/// empty, `USER` or `USER:GROUP` by name or number.
pub fn find(name: &[u8], groups: Option<&[u32]>) -> Result<Option<User>, String> {
    let known = KNOWN.get().filter(|_| groups.is_none());
    let name = match (name, known) {
        (b"", Some(User { uid: 0, .. })) => "0".into(),
        (b"", _) => return Ok(None),
        (name, _) => String::from_utf8_lossy(name),
    };
    let read = |path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    let mut user = look_up(&name, &read("/etc/passwd"), &read("/etc/group"))?;
    if let Some(groups) = groups {
        user.groups = groups.to_vec();
        // The first one was told by who started the machine.
        let _ = KNOWN.set(user.clone());
    } else if let Some(known) = known
        && known.uid == user.uid
        && !name.contains(':')
    {
        (user.gid, user.groups) = (known.gid, known.groups.clone());
    }
    Ok(Some(user))
}

/// Who names a group besides is in no other, as with other programs that take users so.
fn look_up(name: &str, users: &str, groups: &str) -> Result<User, String> {
    let (name, group) = match name.split_once(':') {
        Some((name, group)) => (name, Some(group)),
        None => (name, None),
    };
    let number = name.parse::<u32>().ok();
    let of_line = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        let uid = fields.get(2)?.parse().ok()?;
        let is_it = fields[0] == name || number == Some(uid);
        let gid = fields.get(3)?.parse().ok()?;
        let home = fields.get(5).unwrap_or(&"/").as_bytes().to_vec();
        let groups = groups_of(fields[0], groups);
        is_it.then_some(User { uid, gid, groups, home })
    };
    let mut user = match (users.lines().find_map(of_line), number) {
        (Some(user), _) => user,
        (None, Some(uid)) => User { uid, gid: uid, groups: Vec::new(), home: b"/".to_vec() },
        (None, None) => return Err(format!("no user {name}")),
    };
    if let Some(group) = group {
        user.gid = find_group(group, groups).ok_or_else(|| format!("no group {group}"))?;
        user.groups.clear();
    }
    Ok(user)
}

/// The groups that list a user.
fn groups_of(name: &str, groups: &str) -> Vec<u32> {
    let of_line = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        let number = fields.get(2)?.parse().ok()?;
        fields.get(3)?.split(',').any(|member| member == name).then_some(number)
    };
    groups.lines().filter_map(of_line).collect()
}

fn find_group(name: &str, groups: &str) -> Option<u32> {
    let of_line = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        if fields[0] == name { fields.get(2)?.parse().ok() } else { None }
    };
    groups.lines().find_map(of_line).or_else(|| name.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_go_by_name_and_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1001:,,,:/home/ann:/bin/sh\nbad\n";
        let groups = "root:x:0:\nstaff:x:50:ann\nadm:x:4:bob,ann\nann2:x:9:annie\nbad:x\n";
        let check = |name, expected: Result<(u32, u32, &[u32], &str), &str>| {
            let found = look_up(name, users, groups);
            let user = |(uid, gid, groups, home): (_, _, &[u32], &str)| {
                let (groups, home) = (groups.to_vec(), home.as_bytes().to_vec());
                User { uid, gid, groups, home }
            };
            assert_eq!(found, expected.map(user).map_err(str::to_owned), "{name}");
        };
        check("root", Ok((0, 0, &[], "/root")));
        check("ann", Ok((1000, 1001, &[50, 4], "/home/ann")));
        check("1000", Ok((1000, 1001, &[50, 4], "/home/ann")));
        check("ann:staff", Ok((1000, 50, &[], "/home/ann")));
        check("4711", Ok((4711, 4711, &[], "/")));
        check("4711:12", Ok((4711, 12, &[], "/")));
        check("bob", Err("no user bob"));
        check("ann:bobs", Err("no group bobs"));
    }
}
