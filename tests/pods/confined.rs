//! What the keepers of pods may ask of the host's kernel. Which calls these are is tried in `crates/host/tests`.

use std::fs;

use crate::place::{COUNTS, Place};

/// What a process says of itself (proc_pid_status(5)).
fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.expect("the kernel says it").trim()
}

/// Checks that all threads of a pod's keeper have a filter, and that nothing was refused by it.
#[track_caller]
fn check_keeper(place: &Place, name: &str) {
    let threads = fs::read_dir(format!("/proc/{}/task", place.pid(name))).expect("it lives");
    let mut count = 0;
    for thread in threads {
        let path = thread.expect("it lives").path().join("status");
        // Who copies memory may have ended.
        let Ok(status) = fs::read_to_string(path) else { continue };
        assert_eq!(field(&status, "Seccomp"), "2", "{status}");
        assert_eq!(field(&status, "NoNewPrivs"), "1", "{status}");
        count += 1;
    }
    // The session, who serves requests, and who traces.
    assert!(count >= 3, "{count} threads");
    let said = place.says(&["inspect", name]);
    assert!(!said.contains("tried system call"), "{said}");
}

#[test]
fn keepers_are_confined_and_pods_are_not() {
    let Some(place) = Place::new() else { return };
    let image = place.path.join("image.pod").display().to_string();
    place.says(&["network", "create", "one"]);
    let run = ["run", "-d", "--network", "one", "--name"];
    place.says(&[&run[..], &["web", "--", "sh", "-c", COUNTS]].concat());
    check_keeper(&place, "web");
    // Its processes have what whoever started it has.
    let status = fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    for name in ["Seccomp", "NoNewPrivs"] {
        let inside = place.exec("web", &format!("grep {name}: /proc/self/status"));
        assert_eq!(field(&inside, name), field(&status, name));
    }
    place.wait_for_more("web");
    place.says(&["checkpoint", "-o", &image, "web"]);
    check_keeper(&place, "web");
    place.says(&["rm", "--force", "web"]);
    place.says(&["restart", "-d", "--name", "again", &image]);
    place.wait_for_more("again");
    check_keeper(&place, "again");
    place.says(&["rm", "--force", "again"]);
    place.says(&["network", "rm", "one"]);
}
