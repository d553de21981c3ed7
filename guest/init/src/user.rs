//! Users by name, as the guest's `/etc/passwd` and `/etc/group` have them.

use std::fs;

/// Whom a command runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Its number.
    pub uid: u32,
    /// Its group's.
    pub gid: u32,
    /// Where it is at home.
    pub home: Vec<u8>,
}

/// The user that `name` means: nobody else than we are if it is empty, `USER` or `USER:GROUP` by name or
/// number.
pub fn find(name: &[u8]) -> Result<Option<User>, String> {
    if name.is_empty() {
        return Ok(None);
    }
    let name = String::from_utf8_lossy(name);
    let read = |path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    look_up(&name, &read("/etc/passwd"), &read("/etc/group")).map(Some)
}

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
        is_it.then_some(User { uid, gid, home })
    };
    let mut user = match (users.lines().find_map(of_line), number) {
        (Some(user), _) => user,
        (None, Some(uid)) => User { uid, gid: uid, home: b"/".to_vec() },
        (None, None) => return Err(format!("no user {name}")),
    };
    if let Some(group) = group {
        user.gid = find_group(group, groups).ok_or_else(|| format!("no group {group}"))?;
    }
    Ok(user)
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
        let groups = "root:x:0:\nstaff:x:50:ann\n";
        let check = |name, expected: Result<(u32, u32, &str), &str>| {
            let found = look_up(name, users, groups);
            let expected = expected
                .map(|(uid, gid, home)| User { uid, gid, home: home.as_bytes().to_vec() })
                .map_err(str::to_owned);
            assert_eq!(found, expected, "{name}");
        };
        check("root", Ok((0, 0, "/root")));
        check("ann", Ok((1000, 1001, "/home/ann")));
        check("1000", Ok((1000, 1001, "/home/ann")));
        check("ann:staff", Ok((1000, 50, "/home/ann")));
        check("4711", Ok((4711, 4711, "/")));
        check("4711:12", Ok((4711, 12, "/")));
        check("bob", Err("no user bob"));
        check("ann:bobs", Err("no group bobs"));
    }
}
