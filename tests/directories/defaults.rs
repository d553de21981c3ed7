//! What of the host's files a program finds that was given nothing by name.

use super::*;

/// A home directory with a key in it, and a directory to work in.
fn home() -> Place {
    let place = Place::new();
    for directory in [".ssh", ".config/gh", "work"] {
        fs::create_dir_all(place.share().join(directory)).expect("there is room for tests");
    }
    for file in [".ssh/id_rsa", ".netrc", ".config/gh/hosts.yml", "notes"] {
        fs::write(place.share().join(file), "private\n").expect("there is room for tests");
    }
    place
}

/// What a script says in that directory of such a home, and what `biv` says.
#[track_caller]
fn says_at(place: &Place, directory: &str, options: &[&str], script: &str) -> (String, String) {
    let arguments = [&["run"], options, &["--", "sh", "-c", script]].concat();
    let mut command = biv(&arguments);
    // The kernel that this user's other machines boot is in the cache.
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    command.env("HOME", place.share()).env("XDG_CACHE_HOME", cache.expect("there is a home"));
    let output = command.current_dir(place.share().join(directory)).output().expect("it starts");
    (text(&output.stdout), text(&output.stderr))
}

/// Everything that there is below the home directory.
const LOOK: &str =
    "cat ~/.ssh/* ~/.netrc ~/.config/gh/* 2>/dev/null; ls -A ~/.ssh ~/.config/gh; ls ~/.netrc";

#[test]
fn credentials_are_not_shown_but_for_who_names_the_root() {
    let place = home();
    let (said, _) = says_at(&place, "work", &[], &format!("{LOOK}; cat ~/notes; ls -A /run"));
    assert!(said.contains("private\n") && said.matches("private").count() == 1, "{said}");
    assert!(!said.contains("id_rsa") && !said.contains("hosts.yml"), "{said}");
    // A guest's root sees what the file server shows, whatever is mounted over it.
    if rustix::process::getuid().is_root() {
        let script = "mkdir /tmp/below; mount -t virtiofs biv0 /tmp/below; cd /tmp/below$HOME && \
            cat notes; cat .ssh/id_rsa .netrc; ls -A .ssh /tmp/below/run /tmp/below/dev";
        let (said, complaint) = says_at(&place, "work", &[], script);
        assert!(said.starts_with("private\n") && !said.contains("id_rsa"), "{said}");
        assert_eq!(said.matches("private").count(), 1, "{said}{complaint}");
        assert!(said.ends_with("/tmp/below/dev:\n\n/tmp/below/run:\n"), "{said}");
    }
    let (said, _) = says_at(&place, "work", &["--root", "/"], LOOK);
    assert_eq!(said.matches("private").count(), 3, "{said}");
    // Who works in such a directory has it.
    let (said, _) = says_at(&place, ".ssh", &[], "cat id_rsa; touch made");
    assert_eq!(said, "private\n");
    assert!(place.share().join(".ssh/made").exists());
}

#[test]
fn a_home_directory_is_not_written_to_unless_that_is_said() {
    let place = home();
    let write = "echo new >made && cat made; pwd; rm -r notes work";
    for directory in ["", ".."] {
        let (said, complaint) = says_at(&place, directory, &[], "echo new >made && cat made");
        assert_eq!(said, "new\n", "{complaint}");
        assert!(
            complaint.contains("home directory") && complaint.contains("--here"),
            "{complaint}"
        );
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
    }
    let (said, _) = says_at(&place, "", &[], write);
    assert_eq!(said, format!("new\n{}\n", place.share().display()));
    assert!(!place.share().join("made").exists() && !place.0.join("made").exists());
    assert_eq!(place.read("notes"), "private\n");
    let (_, complaint) = says_at(&place, "work", &[], "echo new >made");
    assert_eq!((place.read("work/made").as_str(), complaint.as_str()), ("new\n", ""));
    let script = "echo new >made; echo owned >.ssh/authorized_keys; echo owned >.netrc; mv .ssh x";
    let (_, complaint) = says_at(&place, "", &["--here"], script);
    assert_eq!(place.read("made"), "new\n", "{complaint}");
    assert_eq!(
        (place.read(".netrc").as_str(), place.read(".ssh/id_rsa").as_str()),
        ("private\n", "private\n")
    );
    assert!(!place.share().join(".ssh/authorized_keys").exists());
}

#[test]
fn a_sandbox_has_what_it_was_given() {
    let place = home();
    fs::write(place.share().join("work/suspicious"), "#!/bin/sh\necho ran\n").expect("room");
    let script =
        "sh ./suspicious; pwd; touch made; ls /sys/class/net; ls -A ..; id -u; env | wc -l";
    let (said, complaint) = says_at(&place, "work", &["--sandbox"], script);
    let here = place.share().join("work");
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines[..3], ["ran", here.to_str().expect("a name"), "lo"], "{said}");
    assert_eq!(lines[3..5], ["work", "0"], "{said}");
    assert!(complaint.contains("Read-only file system"), "{complaint}");
    assert!(!here.join("made").exists());
    let volume = format!("{}:{}", place.0.display(), here.join("volume").display());
    fs::create_dir(here.join("volume")).expect("there is room for tests");
    let (said, complaint) =
        says_at(&place, "work", &["--sandbox", "--volume", &volume], "cat volume/secret");
    assert_eq!(said, "secret\n", "{complaint}");
    // All of a user's files are not shown, not even to be read.
    let (said, complaint) = says_at(&place, "", &["--sandbox"], "pwd; ls -A ~ /tmp");
    assert_eq!(said, "/\n/root:\n\n/tmp:\n", "{complaint}");
    assert!(complaint.contains("does not see it"), "{complaint}");
    let (said, _) = says_at(&place, "work", &["--sandbox", "--net", "user"], "ls /sys/class/net");
    assert_eq!(said, "eth0\nlo\n");
    let (_, complaint) = says_at(&place, "work", &["--sandbox", "--timeout", "2"], "sleep 100");
    assert!(complaint.contains("--timeout"), "{complaint}");
}
