//! Other users than the caller in the machine that looks like the host, its root above all.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use super::*;

/// A place of nobody's, with a program of ours, and things that are root's.
pub fn place_of_nobody() -> Option<Place> {
    if !rustix::process::getuid().is_root() {
        println!("left out: only root can become somebody else, and hide something from him");
        return None;
    }
    let place = Place::new();
    fs::copy(bivouac(), place.0.join("biv")).expect("the command can be copied");
    let status = Command::new("chown").args(["-R", "65534:65534"]).arg(&place.0).status();
    assert!(status.is_ok_and(|status| status.success()), "cannot give the directory away");
    let hidden = place.0.join("hidden");
    fs::create_dir(&hidden).expect("there is room");
    fs::write(hidden.join("secret"), "secret\n").expect("there is room");
    fs::write(place.0.join("unreadable"), "secret\n").expect("there is room");
    fs::set_permissions(&hidden, Permissions::from_mode(0o700)).expect("ours");
    fs::set_permissions(place.0.join("unreadable"), Permissions::from_mode(0o600)).expect("ours");
    Some(place)
}

/// What a script says in a machine of nobody's, which must succeed.
#[track_caller]
fn says_to_nobody(place: &Place, options: &[&str], script: &str) -> Output {
    let mut command = Command::new("timeout");
    command.args(["120", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.args(["--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]);
    command.arg(place.0.join("biv")).arg("run").args(options).args(["--", "sh", "-ec", script]);
    command.env("HOME", &place.0).env("XDG_CACHE_HOME", place.0.join("cache"));
    let output = command.current_dir(place.share()).output().expect("`timeout` can be started");
    assert!(output.status.success(), "{output:?}");
    output
}

#[test]
fn an_ordinary_users_machine_has_a_root() {
    let Some(place) = place_of_nobody() else { return };
    let script = format!(
        "cd {}; id -u; id -g; echo $HOME; ls -A hidden | wc -l; \
         echo new >hidden/new; cat hidden/new; \
         cat unreadable && exit 1; \
         wc -l </etc/passwd; wc -l </etc/shadow; stat -c %a:%U /etc/shadow; wc -l </etc/group; \
         wc -l </etc/gshadow; \
         /usr/sbin/useradd --uid 4321 newcomer; id -u newcomer; grep -c ^newcomer: /etc/shadow; \
         mount -t tmpfs none /mnt; echo here >share/made; stat -c %u share/made; touch /etc/made",
        place.0.display()
    );
    let lines = |path: &str| fs::read_to_string(path).expect("it is readable").lines().count();
    let (users, groups) = (lines("/etc/passwd"), lines("/etc/group"));
    let mode = fs::metadata("/etc/shadow").expect("it is there").mode() & 0o777;
    let expected = format!(
        "0\n0\n/root\n0\nnew\n{users}\n{users}\n{mode:o}:root\n{groups}\n{groups}\n4321\n1\n65534\n"
    );
    let output = says_to_nobody(&place, &["--root-user"], &script);
    assert_eq!(text(&output.stdout), expected, "{}", text(&output.stderr));
    let errors = text(&output.stderr);
    assert!(errors.contains("what you may not read is not shown"), "{errors}");
    assert!(errors.contains("Permission denied"), "{errors}");
    // What was written in the current directory is the caller's, and all else is in the machine.
    assert_eq!(place.read("made"), "here\n");
    assert_eq!(fs::metadata(place.share().join("made")).expect("it is there").uid(), 65534);
    assert!(!Path::new("/etc/made").exists() && !place.0.join("hidden/new").exists());
}

#[test]
fn a_command_is_somebodys() {
    let Some(place) = place_of_nobody() else { return };
    let options = ["--user", "games:mail", "--env", "A=b c", "--env", "HOME=/x", "-w", "/usr"];
    let output = says_to_nobody(&place, &options, "id -un; id -gn; echo \"$A\" $HOME; pwd; whoami");
    assert_eq!(text(&output.stdout), "games\nmail\nb c /x\n/usr\ngames\n");
    // Without an option it is the caller's own.
    let output = says_to_nobody(&place, &[], "id -u; pwd");
    let expected = format!("65534\n{}\n", place.share().display());
    assert_eq!(text(&output.stdout), expected);
}

#[test]
fn what_an_ordinary_user_caches_is_his() {
    let Some(place) = place_of_nobody() else { return };
    let script = "echo mine >~/made/for/it/value; touch ~/made/beside; stat -c %u ~/made; id -u";
    let cache = ["--cache", "mine:~/made/for/it"];
    let output = says_to_nobody(&place, &cache, script);
    assert_eq!(text(&output.stdout), "65534\n65534\n", "{}", text(&output.stderr));
    let directory = place.0.join("cache/bivouac/caches/mine");
    for path in [&directory, &directory.join("value")] {
        assert_eq!(fs::metadata(path).expect("it is kept").uid(), 65534);
    }
    // Root of the guest is nobody else on the host.
    let script = "cat /x/value; echo roots >/x/value; stat -c %u /x/value; id -u";
    let output = says_to_nobody(&place, &["--root-user", "--cache", "mine:/x"], script);
    assert_eq!(text(&output.stdout), "mine\n65534\n0\n", "{}", text(&output.stderr));
    assert_eq!(fs::metadata(directory.join("value")).expect("it is kept").uid(), 65534);
    let output = says_to_nobody(&place, &cache, "cat ~/made/for/it/value");
    assert_eq!(text(&output.stdout), "roots\n", "{}", text(&output.stderr));
}
