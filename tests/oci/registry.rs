//! Images from and to a registry of Debian's (`docker-registry`) on the loopback interface, and between `biv` and the
//! tools of others (`skopeo`, `umoci`, `buildah`). What is not installed is left out, and said.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use whole_machine::processes::{descendants_of, survivors};
use whole_machine::text;
use whole_machine::waiting::wait_for;

use super::{THING, loaded};
use crate::place::Place;
use crate::valve::Valve;

/// A user of the registry, `user` with `secret` (htpasswd with bcrypt, which the registry takes).
const USERS: &str = "user:$2b$05$sKM9XsXlKp2cmjLLzd/R/uIOnSPtb0rZjM/ScUiDcU90YX.D47Abi\n";

/// The same as clients keep it, in base64.
const CREDENTIALS: &str = "dXNlcjpzZWNyZXQ=";

/// Where a store has blobs.
const BLOBS: &str = "blobs/sha256";

const SAYS: &str = "/entry default 1000:1001:1001 77 /srv hello /srv\n";

/// A registry that ends with this.
struct Registry {
    child: Child,
    address: String,
}

impl Registry {
    /// One with its files in `directory`; none where it is not installed.
    fn start(directory: &Path, has_users: bool) -> Option<Registry> {
        // A port that nobody has now.
        let port = TcpListener::bind(("127.0.0.1", 0)).and_then(|it| it.local_addr());
        let address = port.expect("there are ports").to_string();
        fs::create_dir_all(directory).expect("room");
        let users = directory.join("users");
        fs::write(&users, USERS).expect("room");
        let auth = match has_users {
            true => format!("auth: {{htpasswd: {{realm: test, path: {}}}}}\n", users.display()),
            false => String::new(),
        };
        let text = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\n\
             http: {{addr: \"{address}\"}}\n{auth}",
            directory.join("files").display()
        );
        let file = directory.join("config.yml");
        fs::write(&file, text).expect("room");
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(child) = command.spawn() else {
            println!("left out: there is no docker-registry (Debian's package of that name)");
            return None;
        };
        let registry = Registry { child, address };
        wait_for("the registry listens", || {
            std::net::TcpStream::connect(&registry.address).is_ok()
        });
        Some(registry)
    }

    fn name(&self, rest: &str) -> String {
        format!("{}/{rest}", self.address)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a tool prints; `None` where it is not installed.
#[track_caller]
fn tool(words: &[&str]) -> Option<String> {
    let output = match Command::new(words[0]).args(&words[1..]).output() {
        Ok(output) => output,
        Err(_) => {
            println!("left out: there is no {}", words[0]);
            return None;
        }
    };
    assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    Some(text(&output.stdout))
}

fn digest(place: &Place, name: &str) -> String {
    let inspected = place.says(&["image", "inspect", name]);
    let inspected: Value = serde_json::from_str(&inspected).expect("JSON");
    inspected["digest"].as_str().expect("a digest").to_owned()
}

#[test]
fn an_image_goes_to_a_registry_and_comes_from_it() {
    let place = loaded();
    let Some(registry) = Registry::start(&place.path.join("registry"), false) else { return };
    let (name, before) = (registry.name("some/thing:1"), digest(&place, THING));
    assert_eq!(place.says(&["image", "push", THING, &name]).trim_end(), before);
    place.says(&["image", "rm", THING]);
    assert!(!place.says(&["image", "ls"]).contains("example.com"));
    // It is pulled when it is missing, and only then.
    assert_eq!(place.says(&["run", "--image", &name]), SAYS);
    assert_eq!(digest(&place, &name), before);
    assert!(
        place
            .complains(&["run", "--image", &registry.name("none"), "--pull", "never"])
            .contains("no image")
    );
    assert!(place.complains(&["run", "--image", &registry.name("none")]).contains("no image"));
    // By its digest, too.
    let pinned = format!("{}@{before}", registry.name("some/thing"));
    assert_eq!(place.says(&["image", "pull", &pinned]).trim_end(), before);
    // Again, it is the same, and nothing is left besides.
    assert_eq!(place.says(&["image", "pull", &name]).trim_end(), before);
    assert_eq!(
        place.says(&["run", "--pull", "always", "--image", &name, "x"]),
        SAYS.replace("default", "x")
    );
    assert!(!place.cache().join("oci/work").exists());
    let list = ["inspect", "--tls-verify=false", &format!("docker://{name}")];
    if let Some(seen) = tool(&[&["skopeo"], &list[..]].concat()) {
        let seen: Value = serde_json::from_str(&seen).expect("JSON");
        assert_eq!(seen["Digest"], before.as_str());
    }
    // Linux connects to this host by that address, which is none of the loopback interface's.
    let port = registry.address.rsplit(':').next().expect("it has a port");
    let far = format!("0.0.0.0:{port}/some/thing:1");
    let complaint = place.complains(&["run", "--image", &far]);
    assert!(complaint.contains("0.0.0.0"), "{complaint}");
    assert_eq!(place.says(&["run", "--insecure", "--image", &far]), SAYS);
    // Nobody answers any more.
    drop(registry);
    assert_eq!(place.says(&["run", "--image", &name]), SAYS);
    assert!(place.complains(&["image", "pull", &name]).contains("127.0.0.1"));
}

/// Files below a directory of the store, in order.
fn stored(place: &Place, directory: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(place.cache().join("oci").join(directory)).into_iter().flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.expect("it is there").path()).collect();
    files.sort();
    files
}

#[test]
fn a_pull_that_is_ended_in_the_middle_leaves_nothing_and_can_be_repeated() {
    let place = loaded();
    let Some(registry) = Registry::start(&place.path.join("registry"), false) else { return };
    let valve = Valve::before(&registry.address);
    let name = format!("{}/some/thing:1", valve.address);
    place.says(&["image", "push", THING, &registry.name("some/thing:1")]);
    place.says(&["image", "rm", THING]);
    for signal in [Signal::KILL, Signal::TERM, Signal::INT] {
        let held = valve.held();
        valve.set_shut(true);
        let mut command = place.command(&["image", "pull", &name]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut child = child.expect("biv can be started");
        wait_for("it is in the middle of a blob", || valve.held() > held);
        // The child itself is there to end it in time.
        let processes = descendants_of(child.id());
        let biv = Pid::from_raw(processes[0] as i32).expect("it is one");
        kill_process(biv, signal).expect("it runs");
        let status = child.wait().expect("it ends");
        assert!(!status.success(), "{signal:?}: {status}");
        let left = survivors(&processes, Duration::from_secs(20));
        assert!(left.is_empty(), "{signal:?}: {left:?} are still there");
        valve.set_shut(false);
        assert!(!place.says(&["image", "ls"]).contains("some/thing"));
        // Blobs that were whole by then are kept for the next one. No other has a name.
        for blob in stored(&place, BLOBS) {
            let blob = blob.to_str().expect("text");
            let sum = tool(&["sha256sum", blob]).expect("everybody has it");
            let (digest, _) = sum.split_once(' ').expect("it says a digest");
            assert!(blob.ends_with(digest), "{signal:?}: {blob} is {digest}");
        }
        let unfinished = stored(&place, "work");
        assert!(unfinished.is_empty(), "{signal:?}: {unfinished:?}");
    }
    assert_eq!(place.says(&["run", "--image", &name]), SAYS);
    place.says(&["image", "rm", &name]);
    let left = [BLOBS, "layers", "work"].map(|directory| stored(&place, directory));
    assert!(left.iter().all(Vec::is_empty), "{left:?}");
}

#[test]
fn a_registry_is_shown_credentials() {
    let place = loaded();
    let Some(registry) = Registry::start(&place.path.join("registry"), true) else { return };
    let name = registry.name("private/thing");
    assert!(place.complains(&["image", "push", THING, &name]).contains("without credentials"));
    let home = place.path.join("home");
    fs::create_dir_all(home.join(".docker")).expect("room");
    let file = home.join(".docker/config.json");
    let with = |credentials: &str| {
        let text =
            format!(r#"{{"auths": {{"{}": {{"auth": "{credentials}"}}}}}}"#, registry.address);
        fs::write(&file, text).expect("room");
    };
    let says = |words: &[&str]| {
        let output = place.command(words).env("HOME", &home).output().expect("biv can be started");
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    with(CREDENTIALS);
    let (done, pushed, why) = says(&["image", "push", THING, &name]);
    assert!(done, "{why}");
    let (done, pulled, why) = says(&["image", "pull", &name]);
    assert!(done && pulled == pushed, "{why}");
    with("dXNlcjp3cm9uZw==");
    let (done, _, why) = says(&["image", "pull", &name]);
    assert!(!done && why.contains("with your credentials"), "{why}");
}

#[test]
fn tools_of_others_read_and_write_the_same_images() {
    let place = loaded();
    let at = |name: &str| place.path.join(name).display().to_string();
    let saved = at("saved.tar");
    place.says(&["image", "save", "-o", &saved, THING]);
    let (layout, archive) = (format!("oci:{}:x", at("layout")), format!("oci-archive:{saved}"));
    if tool(&["skopeo", "copy", "--insecure-policy", &archive, &layout]).is_some() {
        assert_eq!(place.says(&["run", "--image", &layout]), SAYS);
        // As Docker's archive, which skopeo takes for one as well.
        let docker = format!("docker-archive:{saved}");
        let again = format!("docker-archive:{}:some/name:2", at("docker.tar"));
        tool(&["skopeo", "copy", "--insecure-policy", &docker, &again]);
        assert_eq!(
            place.says(&["run", "--image", &format!("docker-archive:{}", at("docker.tar"))]),
            SAYS
        );
        place.says(&["image", "load", "-i", &at("docker.tar")]);
        assert_eq!(place.says(&["run", "--image", "some/name:2"]), SAYS);
        // Compressed by Zstandard.
        let packed = format!("oci:{}:z", at("zstd"));
        let words =
            ["copy", "--insecure-policy", "--dest-compress-format", "zstd", &layout, &packed];
        tool(&[&["skopeo", "--debug"][..1], &words[..]].concat());
        assert_eq!(place.says(&["run", "--image", &packed]), SAYS);
        let bundle = at("bundle");
        let image = format!("{}:x", at("layout"));
        if tool(&["umoci", "unpack", "--rootless", "--image", &image, &bundle]).is_some() {
            assert!(Path::new(&bundle).join("rootfs/hidden/new").exists());
            assert!(!Path::new(&bundle).join("rootfs/etc/gone").exists());
            fs::write(Path::new(&bundle).join("rootfs/srv/added"), "by umoci").expect("room");
            fs::remove_file(Path::new(&bundle).join("rootfs/srv/own")).expect("it is there");
            let image = format!("{}:y", at("layout"));
            tool(&["umoci", "repack", "--image", &image, &bundle]);
            let image = format!("oci:{}:y", at("layout"));
            let words = ["run", "--image", &image, "--entrypoint", "/bin/sh", "--", "-c"];
            let said = place.says(&[&words[..], &["cat /srv/added; ls /srv"]].concat());
            assert_eq!(said, "by umociadded\n");
        }
    }
}

#[test]
fn what_buildah_builds_runs_and_what_is_saved_it_builds_on() {
    let place = loaded();
    let at = |name: &str| place.path.join(name).display().to_string();
    // For another user it takes subordinate ids, which not every host has.
    if !rustix::process::geteuid().is_root() {
        return println!("left out: buildah is asked as root only");
    }
    let policy = at("policy.json");
    fs::write(&policy, r#"{"default": [{"type": "insecureAcceptAnything"}]}"#).expect("room");
    let (root, run) = (at("buildah"), at("buildah-run"));
    let buildah = |verb: &str, words: &[&str]| {
        let own = ["buildah", "--root", &root, "--runroot", &run, "--storage-driver", "vfs"];
        tool(&[&own[..], &[verb], words].concat()).map(|said| said.trim_end().to_owned())
    };
    let Some(made) = buildah("from", &["--signature-policy", &policy, "scratch"]) else { return };
    let busybox = place.root().join("bin/busybox").display().to_string();
    buildah("copy", &[&made, &busybox, "/bin/busybox"]);
    fs::write(at("file"), "by buildah\n").expect("room");
    buildah("copy", &["--chown", "7:8", &made, &at("file"), "/made/file"]);
    let entry = r#"["/bin/busybox","cat"]"#;
    let what = ["--entrypoint", entry, "--cmd", "file", "--workingdir", "/made", "--user", "7:8"];
    buildah("config", &[&what[..], &[&made]].concat());
    let layout = format!("oci:{}:x", at("built"));
    buildah("commit", &["--signature-policy", &policy, &made, &layout]);
    assert_eq!(place.says(&["run", "--image", &layout]), "by buildah\n");
    let archive = format!("docker-archive:{}:some/built:1", at("built.tar"));
    buildah("commit", &["--signature-policy", &policy, "--format", "docker", &made, &archive]);
    place.says(&["image", "load", "-i", &at("built.tar")]);
    assert_eq!(place.says(&["run", "--image", "some/built:1"]), "by buildah\n");
    let id = ["run", "--image", "some/built:1", "--entrypoint", "/bin/busybox", "--", "id", "-u"];
    assert_eq!(place.says(&id), "7\n");
    // The other way.
    let saved = at("saved.tar");
    place.says(&["image", "save", "-o", &saved, THING]);
    let archive = format!("oci-archive:{saved}");
    let Some(made) = buildah("from", &["--signature-policy", &policy, &archive]) else { return };
    buildah("config", &["--env", "GREETING=changed", &made]);
    let layout = format!("oci:{}:x", at("changed"));
    buildah("commit", &["--signature-policy", &policy, &made, &layout]);
    assert_eq!(place.says(&["run", "--image", &layout]), SAYS.replace("hello", "changed"));
}
