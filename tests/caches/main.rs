//! Caches: what one machine writes there is there in the next, for whoever runs it, and nothing else is.
//!
//! What `biv` does on the host with what a guest has left is tested where that code is (`crates/provision`). An
//! ordinary user's caches are tested in `../directories/users.rs`.

#![forbid(unsafe_code)]

#[expect(dead_code, reason = "the tests of images look at more of it")]
#[path = "../images/place.rs"]
mod place;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde_json::Value;
use whole_machine::text;

use self::place::{IMAGE, Place};

/// Where a cache is on the host.
fn directory(place: &Place, name: &str) -> PathBuf {
    place.cache().join("caches").join(name)
}

/// What `biv cache ls` says.
fn list(place: &Place) -> Vec<Value> {
    serde_json::from_str(&place.says(&["cache", "ls", "--format", "json"])).expect("JSON")
}

fn names(place: &Place) -> Vec<String> {
    let name = |cache: &Value| cache["name"].as_str().expect("a name").to_owned();
    list(place).iter().map(name).collect()
}

#[test]
fn what_a_machine_writes_is_there_in_the_next() {
    let place = Place::new();
    assert_eq!(names(&place), Vec::<String>::new());
    let cache = ["--cache", "mine:/var/kept"];
    let us = rustix::process::geteuid().as_raw();
    // In an image it is root who writes, and in a machine like the host whoever has started that.
    assert_eq!(place.shell(&cache, "echo first >/var/kept/value; ls -A /var/kept"), "value\n");
    let value = directory(&place, "mine").join("value");
    assert_eq!(fs::read_to_string(&value).expect("it is kept"), "first\n");
    assert_eq!(fs::metadata(&value).expect("it is kept").uid(), us);
    assert_eq!(fs::metadata(directory(&place, "mine")).expect("a directory").mode() & 0o777, 0o700);
    let script = "cat ~/some/where/value; stat -c %u ~/some ~/some/where; id -u; \
                  echo second >~/some/where/value";
    let said = place.says(&["run", "--cache", "mine:~/some/where", "--", "sh", "-c", script]);
    assert_eq!(said, format!("first\n{us}\n{us}\n{us}\n"));
    assert_eq!(place.shell(&cache, "cat /var/kept/value"), "second\n");
    // A user of the image who is not root has it, too.
    let options = ["--user", "12:34", "--cache", "mine:/var/kept"];
    let script = "cat /var/kept/value; echo third >/var/kept/value; echo x >/var/kept/new";
    assert_eq!(place.shell(&options, script), "second\n");
    assert_eq!(fs::metadata(directory(&place, "mine").join("new")).expect("made").uid(), us);
    assert_eq!(place.shell(&cache, "cat /var/kept/value; rm /var/kept/new"), "third\n");
    // Another cache is another directory, and a machine that names none has none.
    assert_eq!(place.shell(&["--cache", "other:/var/kept"], "ls -A /var/kept"), "");
    assert_eq!(place.shell(&[], "ls -d /var/kept 2>/dev/null; echo"), "\n");
    assert_eq!(names(&place), ["mine", "other"]);
    let told = place.says(&["cache", "ls"]);
    assert!(told.contains("mine") && told.contains(" s ago"), "{told}");
    let described = place.says(&["run", "--print-spec", "--cache", "mine:/var/kept:ro"]);
    let described: Value = serde_json::from_str(&described).expect("JSON");
    let expected = serde_json::json!([{ "name": "mine", "guest": "/var/kept", "read_only": true }]);
    assert_eq!(described["caches"], expected);
}

#[test]
fn the_cache_of_a_tool_is_where_the_tool_looks() {
    let place = Place::new();
    let mounted = "while read -r what where rest; do \
                   case $where in */.cargo/*|*/go*) echo $where;; esac; \
                   done </proc/mounts; echo $HOME";
    let said = place.shell(&["--cache", "cargo"], mounted);
    assert_eq!(said, "/root/.cargo/registry\n/root/.cargo/git\n/root\n");
    let options = ["--cache", "go", "--env", "GOPATH=/go", "--env", "HOME=/home/me"];
    let said = place.shell(&options, mounted);
    assert_eq!(said, "/go/pkg/mod\n/home/me/.cache/go-build\n/home/me\n");
    assert_eq!(names(&place), ["cargo", "cargo-git", "go", "go-build"]);
}

#[test]
fn a_cache_in_use_stays_and_is_shared() {
    let place = Place::new();
    let words = ["run", "-d", "--name", "one", "--image", IMAGE, "--cache", "mine:/var/kept"];
    place.says(&[&words[..], &["--", "/bin/sleep", "1000"]].concat());
    let in_one = |script: &str| place.says(&["exec", "one", "--", "/bin/sh", "-c", script]);
    in_one("echo one >/var/kept/value");
    place.shell(&["--cache", "mine:/x"], "cat /x/value >/x/copy; echo more >>/x/copy");
    assert_eq!(in_one("cat /var/kept/copy"), "one\nmore\n");
    assert_eq!(list(&place)[0]["in_use"], true);
    place.shell(&["--cache", "idle:/x"], "echo x >/x/x");
    for words in [&["cache", "rm", "mine", "idle"][..], &["cache", "rm", "--all"]] {
        let complaint = place.complains(words);
        assert!(complaint.contains("mine is in use"), "{complaint}");
        assert!(!complaint.contains("idle"), "{complaint}");
        assert_eq!(names(&place), ["mine"]);
    }
    // A machine that goes on from a snapshot has it, too.
    let file = place.path.join("snapshot");
    let file = file.to_str().expect("text");
    place.says(&["snapshot", "one", file]);
    place.says(&["stop", "--time", "1", "one"]);
    place.says(&["restore", "-d", "--name", "two", file]);
    assert_eq!(place.says(&["exec", "two", "--", "/bin/cat", "/var/kept/value"]), "one\n");
    assert!(place.complains(&["cache", "rm", "mine"]).contains("in use"));
    place.says(&["kill", "two"]);
    place.says(&["cache", "rm", "mine"]);
    assert_eq!(names(&place), Vec::<String>::new());
    assert!(!directory(&place, "mine").exists());
    // One that starts again has it anew.
    place.says(&["start", "one"]);
    assert_eq!(in_one("ls -A /var/kept"), "");
    assert_eq!(names(&place), ["mine"]);
    place.says(&["rm", "--force", "one", "two"]);
}

#[test]
fn a_sandbox_reads_what_is_named() {
    let place = Place::new();
    place.shell(
        &["--cache", "mine:/x", "--cache", "other:/y"],
        "echo 1 >/x/value; echo 2 >/y/value",
    );
    let script = "cat /x/value; echo bad >/x/value || echo refused; cat /y/value || echo none";
    let sandboxed = |cache: &str| place.shell(&["--sandbox", "--cache", cache], script);
    assert_eq!(sandboxed("mine:/x"), "1\nrefused\nnone\n");
    assert_eq!(sandboxed("mine:/x:rw"), "1\nnone\n");
    assert_eq!(sandboxed("mine:/x"), "bad\nrefused\nnone\n");
}

#[test]
fn what_a_guest_leaves_leads_nowhere() {
    let place = Place::new();
    let outside = place.path.join("outside");
    fs::create_dir(&outside).expect("room");
    fs::write(outside.join("kept"), vec![1; 4 << 20]).expect("room");
    let script = format!(
        "cd /x; ln -s {} out; ln -s ../.. up; ln -s / root; mkdir -p read/only/deep; \
         echo x >read/only/deep/file; chmod 0 read/only; chmod 500 read; \
         i=0; while [ $i -lt 300 ]; do mkdir d; cd d || exit 1; i=$((i+1)); done",
        outside.display()
    );
    place.shell(&["--cache", "mine:/x"], &script);
    let bytes = list(&place)[0]["bytes"].as_u64().expect("a number");
    assert!(bytes < 4 << 20, "{bytes}");
    place.says(&["cache", "rm", "mine"]);
    let left: Vec<_> = fs::read_dir(directory(&place, ""))
        .expect("the directory of caches")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(left, [".lock"]);
    assert_eq!(fs::metadata(outside.join("kept")).expect("it is kept").len(), 4 << 20);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let place = Place::new();
    let check = |options: &[&str], why: &str| {
        let output = place.output(&[&["run"], options, &["--", "true"]].concat());
        let complaint = text(&output.stderr);
        assert!(!output.status.success() && complaint.contains(why), "{options:?}: {complaint}");
    };
    for name in ["../mine", "..", ".lock", "a/b", "", "-x"] {
        check(&[&format!("--cache={name}:/x")], "invalid cache name");
        let refused = place.complains(&["cache", "rm", "--", name]);
        assert!(refused.contains("invalid cache name"), "{name}: {refused}");
    }
    check(&["--cache", "mine"], "mine:PATH");
    check(&["--cache", "mine:x"], "absolute path");
    check(&["--xen", "--cache", "mine:/x"], "--cache");
    check(&["--image", IMAGE, "--user", "nobody", "--cache", "npm"], "npm:PATH");
    assert!(place.complains(&["cache", "rm", "mine"]).contains("no cache mine"));
    assert!(!place.cache().join("caches").exists(), "nothing was made");
    place.says(&["cache", "rm", "--all"]);
    // A file in the place of the directory, or somebody's link.
    fs::create_dir_all(directory(&place, "")).expect("room");
    std::os::unix::fs::symlink("/etc", directory(&place, "mine")).expect("room");
    check(&["--image", IMAGE, "--cache", "mine:/x"], "caches/mine");
}
