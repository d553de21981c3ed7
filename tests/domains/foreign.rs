//! Snapshots that somebody else has made or changed: they grant nothing of the host, and say what they want.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};
use whole_machine::text;
use whole_machine::waiting::wait_for;

use super::COUNTING;
use super::place::Place;

/// Where a header has its numbers: chunks, memory, table, state, note, label, file (docs/snapshots.md).
const NUMBERS: usize = 16;
/// Where it has the checksum of what follows the memory, before its own.
const CHECKSUM: usize = 72;
/// Bytes of a signature, with which a label begins.
const SIGNATURE: usize = 64;

/// A snapshot taken apart: what can be changed, and made a good file again but for the signature.
struct Parts {
    memory: Vec<u8>,
    table: Vec<u8>,
    state: Vec<u8>,
    note: Vec<u8>,
    label: Vec<u8>,
}

impl Parts {
    fn of(file: &Path) -> Parts {
        let mut rest = fs::read(file).expect("it can be read");
        let number = |which: usize| {
            let at = NUMBERS + 8 * which;
            u64::from_le_bytes(rest[at..at + 8].try_into().expect("eight bytes")) as usize
        };
        let [table, state, note, label] = [2, 3, 4, 5].map(number);
        let length = rest.len();
        let label = rest.split_off(length - label);
        let note = rest.split_off(rest.len() - note);
        let state = rest.split_off(rest.len() - state);
        let table = rest.split_off(table);
        Parts { memory: rest, table, state, note, label }
    }

    /// With the checksums that whoever changes a file can compute.
    fn write(&self, file: &Path) {
        let rest = [&self.table[..], &self.state, &self.note, &self.label].concat();
        let mut all = [&self.memory[..], &rest].concat();
        let length = all.len();
        let numbers =
            [(3, self.state.len()), (4, self.note.len()), (5, self.label.len()), (6, length)];
        for (which, number) in numbers {
            let at = NUMBERS + 8 * which;
            all[at..at + 8].copy_from_slice(&(number as u64).to_le_bytes());
        }
        all[CHECKSUM..CHECKSUM + 4].copy_from_slice(&crc32fast::hash(&rest).to_le_bytes());
        let own = crc32fast::hash(&all[..CHECKSUM + 4]);
        all[CHECKSUM + 4..CHECKSUM + 8].copy_from_slice(&own.to_le_bytes());
        fs::write(file, all).expect("a file");
    }

    /// The text of the label.
    fn origin(&self) -> Value {
        serde_json::from_slice(&self.label[SIGNATURE..]).expect("it is JSON")
    }

    /// Has the label say this of the machine besides.
    fn describe(&mut self, part: &str, what: Value) {
        let mut origin = self.origin();
        origin["spec"][part] = what;
        self.label.truncate(SIGNATURE);
        self.label.extend(origin.to_string().into_bytes());
    }
}

impl Place {
    /// Takes a snapshot of a new domain that counts, which ends then.
    fn snapshot_of_one(&self, options: &[&str]) -> PathBuf {
        let domain = ["run", "-d", "--name", "one", "--mem", "128M"];
        self.says(&[&domain[..], options, &["--", "sh", "-c", COUNTING]].concat());
        let file = self.path.join("one.snapshot");
        self.says(&["snapshot", "one", file.to_str().expect("it is UTF-8")]);
        self.says(&["rm", "-f", "one"]);
        file
    }

    /// What comes of a restore with these options, as this user or, with another key, another one.
    fn restored(&self, file: &Path, options: &[&str], other_key: bool) -> Output {
        let path = file.to_str().expect("it is UTF-8");
        let mut biv =
            self.command(&[&["restore", "-d", "--name", "two"], options, &[path]].concat());
        if other_key {
            biv.env("XDG_STATE_HOME", self.path.join("other"));
        }
        biv.output().expect("biv can be started")
    }

    /// It is refused with one line that has this in it, and leaves nothing.
    #[track_caller]
    fn refuses(&self, output: &Output, expected: &str) {
        let complaint = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{complaint}");
        assert!(complaint.contains(expected) && complaint.lines().count() == 1, "{complaint}");
        assert_eq!(self.says(&["ps", "-a", "--format", "json"]).trim(), "[]");
    }
}

#[test]
fn an_edited_snapshot_gets_nothing_of_the_host() {
    let place = Place::new();
    let good = place.snapshot_of_one(&["--busybox", "--net", "none"]);
    let canary = place.path.join("canary");
    fs::write(&canary, "mine").expect("a file");
    let edited = place.path.join("edited");
    let check = |change: &dyn Fn(&mut Parts), expected: &str| {
        let mut parts = Parts::of(&good);
        change(&mut parts);
        parts.write(&edited);
        place.refuses(&place.restored(&edited, &[], false), expected);
        assert_eq!(fs::read_to_string(&canary).expect("it is there"), "mine");
    };
    let home = place.path.to_str().expect("it is UTF-8");
    let volume = format!("--volume={home}:/mnt");
    let describe = |part: &str, what: Value, expected: &str| {
        check(&|parts| parts.describe(part, what.clone()), expected);
    };
    describe("mounts", json!([{"host": home, "guest": "/mnt"}]), &volume);
    let publish = json!([{"kind": "user", "publish": [{"host": 8080, "guest": 80}]}]);
    describe("networks", publish, "--publish=127.0.0.1:8080:80");
    let root = json!({"directory": {"path": "/\u{1b}[2J"}});
    describe("root", root, "'--root=/\\u{1b}[2J'");
    describe("devices", json!([{"kind": "disk", "path": canary}]), "--disk=");
    // Nothing but what a machine has of the host can be said there at all.
    let strange = "this version of biv does not support it";
    describe("watch", json!({"console": canary}), strange);
    describe("watch", json!({"trace_blocks": {"path": canary}}), strange);
    describe("boot", json!({"kernel": canary}), strange);
    describe("engine", json!({"no_seccomp": true}), strange);
    describe("devices", json!([{"kind": "teapot"}]), strange);
    describe("version", json!(2), strange);
    // What the domain itself writes says nothing of the host, whatever it tries.
    let with_origin = |parts: &mut Parts| {
        let mut note: Value = serde_json::from_slice(&parts.note).expect("it is JSON");
        note["origin"] = json!({ "arguments": ["run", "--no-seccomp"], "directory": "/" });
        parts.note = note.to_string().into_bytes();
    };
    check(&with_origin, "its record of the machine is invalid");
    let strange = |parts: &mut Parts| {
        let mut note: Value = serde_json::from_slice(&parts.note).expect("it is JSON");
        note["conversation"]["commands"][0]["session"] = json!(65_000);
        parts.note = note.to_string().into_bytes();
    };
    check(&strange, "its record of the machine is invalid");
}

#[test]
fn what_is_vouched_for_is_one_snapshot_with_what_it_had() {
    let place = Place::new();
    let shared = place.path.join("shared");
    fs::create_dir(&shared).expect("a directory");
    let volume = format!("{}:/shared", shared.display());
    let good = place.snapshot_of_one(&["--busybox", "--net", "none", "--volume", &volume]);
    let wanted = format!(
        "taken elsewhere or modified since, so it gets only the host resources that options of biv \
         restore name; it needs --volume={volume} "
    );
    let edited = place.path.join("edited");
    let check = |change: &dyn Fn(&mut Parts)| {
        let mut parts = Parts::of(&good);
        change(&mut parts);
        parts.write(&edited);
        // Without a look at the memory, too.
        place.refuses(&place.restored(&edited, &["--no-verify"], false), &wanted);
    };
    check(&|parts| parts.label[3] ^= 1);
    check(&|parts| parts.label[..SIGNATURE].fill(0));
    // A guest's memory under what another guest was given: a digest of a chunk in the table.
    check(&|parts| {
        let place = parts.table.chunks(32).position(|entry| entry[..8] != [0; 8]);
        parts.table[place.expect("there is memory") * 32 + 16] ^= 1;
    });
    let conversation = |parts: &mut Parts| {
        let mut note: Value = serde_json::from_slice(&parts.note).expect("it is JSON");
        let next = note["conversation"]["to_guest"].as_u64().expect("a number");
        note["conversation"]["to_guest"] = json!((next + 1) % 256);
        parts.note = note.to_string().into_bytes();
    };
    check(&conversation);
    // One without a label, as the domain writes it, has what is named.
    let mut bare = Parts::of(&good);
    bare.label.clear();
    bare.write(&edited);
    place.refuses(&place.restored(&edited, &[], false), "it has a device virtio-fs");
    let output = place.restored(&edited, &["--volume", &volume], false);
    assert!(output.status.success(), "{output:?}");
    place.says(&["rm", "-f", "two"]);
    // As it was, it goes on as ever; where it lies is no matter.
    Parts::of(&good).write(&edited);
    let output = place.restored(&edited, &[], false);
    assert!(output.status.success(), "{output:?}");
    let log = || text(&place.output(&["logs", "two"]).stdout);
    wait_for("it goes on", || log().lines().count() > 3);
    assert!(place.exec("two", "touch /shared/here").status.success());
    assert!(shared.join("here").exists());
}

#[test]
fn a_snapshot_of_another_user_has_what_is_named() {
    let place = Place::new();
    let shared = place.path.join("shared");
    fs::create_dir(&shared).expect("a directory");
    let volume = format!("{}:/shared:ro", shared.display());
    let options = ["--net", "user", "--publish", "127.0.0.1:48123:80", "--volume", &volume];
    let file = place.snapshot_of_one(&[&["--busybox"], &options[..]].concat());
    let all = format!("it needs --volume={volume} --net=user --publish=127.0.0.1:48123:80 ");
    place.refuses(&place.restored(&file, &[], true), &all);
    let some = ["--volume", &volume, "--no-publish"];
    place.refuses(&place.restored(&file, &some, true), "it needs --net=user ");
    // The directories are those that are named, and must be what the guest remembers.
    let named = [&some[..], &["--net", "user"]].concat();
    let output = place.restored(&file, &named, true);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(place.exec("two", "test -d /shared && echo yes").stdout, b"yes\n");
    assert!(!place.exec("two", "touch /shared/x").status.success());
    place.says(&["rm", "-f", "two"]);
    // What is said takes the place of what was recorded, for whoever has the key as well.
    let output = place.restored(&file, &["--publish", "127.0.0.1:48124:80"], false);
    assert!(output.status.success(), "{output:?}");
    let socket = std::net::TcpStream::connect("127.0.0.1:48124");
    assert!(socket.is_ok(), "{socket:?}");
    assert!(std::net::TcpStream::connect("127.0.0.1:48123").is_err());
}

#[test]
fn a_warm_start_of_another_user_is_not_used() {
    let place = Place::new();
    let kind = format!("biv.test=foreign-{}", std::process::id());
    let run = |other_key: bool| {
        let arguments = ["run", "--mem", "152M", "--append", &kind, "--", "echo", "42"];
        let mut biv = place.command(&arguments);
        if other_key {
            biv.env("XDG_STATE_HOME", place.path.join("other"));
        }
        let output = biv.env("RUST_LOG", "debug").output().expect("it can be started");
        assert_eq!((&output.stdout[..], output.status.code()), (&b"42\n"[..], Some(0)));
        text(&output.stderr)
    };
    assert!(run(false).contains("the next start is warm"));
    assert!(run(false).contains("going on from a snapshot"));
    let other = run(true);
    assert!(!other.contains("going on from a snapshot"), "{other}");
    assert!(other.contains("the next start is warm"), "{other}");
    assert!(run(true).contains("going on from a snapshot"));
}
