//! Files of an ordinary user's that belong to many users in the guest.

use super::users::place_of_nobody;
use super::*;

/// Nobody's subordinate users and groups, while there are some.
const FIRST: u32 = 1_500_000_000;

/// Makes files as several users, and says whose they are.
const MAKE: &str = "cd /v; touch mine program; mkdir theirs common; chown 33:44 program theirs; \
    chmod 4711 program; chmod 700 theirs; chmod 3777 common; \
    su ann -c 'touch common/file; mkdir common/below; mkdir theirs/no 2>/dev/null || \
    echo refused'; \
    ln -s mine link; chown -h 33:44 link";
const TELL: &str = "cd /v; stat -c '%n %u:%g %a' mine program theirs common common/*";

/// What a script says in nobody's machine with the volume at /v, which must succeed; with subordinate users, if he is
/// to have some. Another directory is as ever behind it.
#[track_caller]
fn says(place: &Place, has_subordinates: bool, volume: &str, script: &str) -> String {
    let ids = place.0.join("ids");
    fs::write(&ids, format!("nobody:{FIRST}:65536\n")).expect("there is room");
    let volume = format!("{}:/v{volume}", place.share().display());
    let plain = format!("{}:/w:ro", place.0.display());
    let mut command = Command::new("timeout");
    command.arg("120");
    if has_subordinates {
        // In a namespace of mounts, so that nobody has them elsewhere.
        let prepare =
            "mount --bind \"$0\" /etc/subuid; mount --bind \"$0\" /etc/subgid; exec \"$@\"";
        command.args(["unshare", "--mount", "--propagation=private", "sh", "-ec", prepare]);
        command.arg(&ids);
    }
    command.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.arg(place.0.join("biv")).args(["run", "--busybox", "--net=none"]);
    command.args(["--volume", &volume, "--volume", &plain]);
    let prepare = "test -f /w/biv; test ! -e /v/biv; echo root:x:0:0::/:/bin/sh >/etc/passwd; \
        echo ann:x:7:8::/:/bin/sh >>/etc/passwd; ";
    command.args(["--", "sh", "-ec", &[prepare, script].concat()]);
    command.env("HOME", &place.0).env("XDG_CACHE_HOME", place.0.join("cache"));
    let output = command.current_dir("/").output().expect("`timeout` can be started");
    assert!(output.status.success(), "{output:?}");
    text(&output.stdout).to_owned()
}

/// A file's owner on the host, and its permissions.
fn on_host(place: &Place, name: &str) -> (u32, u32, u32) {
    let status = fs::symlink_metadata(place.share().join(name)).expect("it is there");
    (status.uid(), status.gid(), status.mode() & 0o7777)
}

#[test]
fn owners_are_recorded_where_a_user_is_alone() {
    let Some(place) = place_of_nobody() else { return };
    assert_eq!(says(&place, false, ":owners", MAKE), "refused\n");
    let made = "mine 0:0 644\nprogram 33:44 4711\ntheirs 33:44 700\ncommon 0:0 3777\n\
        common/below 7:0 2755\ncommon/file 7:0 644\n";
    assert_eq!(says(&place, false, ":owners", TELL), made);
    assert_eq!(says(&place, false, ":ro,owners", TELL), made);
    // On the host they are all his, and nothing runs as him.
    for (name, mode) in [("mine", 0o644), ("program", 0o711), ("theirs", 0o700), ("common", 0o777)]
    {
        assert_eq!(on_host(&place, name), (65_534, 65_534, mode), "{name}");
    }
    // Elsewhere they mean nothing.
    let plain = says(&place, false, "", TELL);
    assert!(plain.contains("program 0:0 711\n"), "{plain}");
}

#[test]
fn owners_are_subordinate_users_where_a_user_has_some() {
    let Some(place) = place_of_nobody() else { return };
    let has_tools = Command::new("newuidmap").output().is_ok();
    if !has_tools || !Path::new("/etc/subuid").exists() || !Path::new("/etc/subgid").exists() {
        return println!("left out: this host has no subordinate users (newuidmap, /etc/subuid)");
    }
    assert_eq!(says(&place, true, ":owners", MAKE), "refused\n");
    let made = "mine 0:0 644\nprogram 33:44 711\ntheirs 33:44 700\ncommon 0:0 3777\n\
        common/below 7:0 2755\ncommon/file 7:0 644\n";
    assert_eq!(says(&place, true, ":owners", TELL), made);
    // The first user of the range is 1 in the guest.
    let (user, group) = (FIRST + 32, FIRST + 43);
    assert_eq!(on_host(&place, "mine"), (65_534, 65_534, 0o644));
    assert_eq!(on_host(&place, "program"), (user, group, 0o711));
    assert_eq!(on_host(&place, "theirs"), (user, group, 0o700));
    assert_eq!(on_host(&place, "link").0, user);
    assert_eq!(on_host(&place, "common/file"), (FIRST + 6, 65_534, 0o644));
    // A directory of the first user's is of one who is the superuser, as mmdebstrap makes them; and what is not his is
    // out of reach.
    rustix::fs::chown(place.share(), Some(rustix::fs::Uid::from_raw(FIRST)), None)
        .expect("we are root");
    fs::write(place.share().join("roots"), "secret\n").expect("there is room");
    let closed = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(place.share().join("roots"), closed).expect("it is ours");
    let script = "cd /v; stat -c '%u' . program mine roots; cat roots 2>/dev/null || echo refused; \
        touch /v/new; chown 5 /v/new";
    let said = says(&place, true, ":owners", script);
    assert_eq!(said, "0\n32\n65535\n65534\nrefused\n");
    assert_eq!(on_host(&place, "new").0, FIRST + 5);
}
