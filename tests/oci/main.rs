//! Images of containers as the roots of machines: what they say runs, on layers that lie over each other as they
//! should.
//!
//! `paravirtual.rs` has them as the roots of paravirtual domains; `registry.rs` has them come from a registry, and be
//! read by the tools of others.

#![forbid(unsafe_code)]

mod made;
mod paravirtual;
#[expect(dead_code, reason = "the tests of images look at more of it")]
#[path = "../images/place.rs"]
mod place;
mod registry;
mod valve;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use whole_machine::text;
use whole_machine::waiting::wait_for;

use self::made::{Layer, base, middle, says, top};
use self::place::{IMAGE, Place};

/// A place with an image of three layers.
fn place() -> (Place, PathBuf) {
    let place = Place::new();
    let archive = place.path.join("thing.tar");
    let busybox = place.root().join("bin/busybox");
    let layers = [base(&busybox), middle(), top()];
    made::write(&archive, &["example.com/thing:1"], &layers, &says());
    (place, archive)
}

/// The same, in the store, as `example.com/thing:1`.
fn loaded() -> Place {
    let (place, archive) = place();
    let said = place.says(&["image", "load", "-i", archive.to_str().expect("text")]);
    assert_eq!(said, "example.com/thing:1\n");
    place
}

const THING: &str = "example.com/thing:1";

#[test]
fn an_image_runs_as_it_says() {
    let place = loaded();
    let run = |options: &[&str], command: &[&str]| {
        place.says(&[&["run", "--image", THING], options, command].concat())
    };
    // The first boots, the second goes on from what that has left.
    for _ in 0..2 {
        assert_eq!(run(&[], &[]), "/entry default 1000:1001:1001 77 /srv hello /srv\n");
    }
    assert_eq!(
        run(&[], &["other", "--words"]),
        "/entry other --words 1000:1001:1001 77 /srv hello /srv\n"
    );
    let options = ["--user", "root", "--workdir", "/", "-e", "GREETING=bye", "-e", "HOME=/x"];
    assert_eq!(run(&options, &[]), "/entry default 0:0:0 / bye /x\n");
    assert_eq!(run(&["--entrypoint", "/bin/echo"], &[]), "\n");
    assert_eq!(run(&["--entrypoint", "/bin/echo"], &["a", "b"]), "a b\n");
    assert_eq!(run(&["--entrypoint", r#"["/bin/echo", "-n", "x"]"#], &["y"]), "x y");
    assert_eq!(run(&["--entrypoint", ""], &["/bin/echo", "z"]), "z\n");
    assert_eq!(run(&["--cpus", "4"], &[]), "/entry default 1000:1001:1001 77 /srv hello /srv\n");
}

#[test]
fn layers_lie_over_each_other() {
    let place = loaded();
    let shell = |script: &str| {
        let words = ["run", "--image", THING, "--user", "root", "--entrypoint", "/bin/sh", "--"];
        place.says(&[&words[..], &["-c", script]].concat())
    };
    let script = "cd /; ls etc/gone 2>/dev/null; ls hidden
        stat -c %u:%g:%a hidden srv/own etc; cat srv/own";
    for _ in 0..2 {
        assert_eq!(shell(script), "new\n3:4:711\n1000:1001:640\n0:0:755\nmine");
    }
    // What is written is gone with the machine.
    assert_eq!(
        shell("echo changed >/srv/own; touch /etc/gone /hidden/below; cat /srv/own"),
        "changed\n"
    );
    assert_eq!(shell(script), "new\n3:4:711\n1000:1001:640\n0:0:755\nmine");
    let seen =
        shell("cat /sys/block/vda/serial; ls -d /sys/block/vda/vda*; echo x >/dev/vda1; echo $?");
    assert!(
        seen.starts_with("image/") && seen.contains("vda3") && !seen.contains("vda4"),
        "{seen}"
    );
    assert!(seen.ends_with("1\n"), "nobody writes to the disk");
}

/// An image with as many layers as there may be, which are returned, from an archive at this path.
fn load_many(place: &Place, archive: &Path) -> Vec<Vec<u8>> {
    let mut layers = vec![base(&place.root().join("bin/busybox"))];
    layers.extend((1..127_u8).map(|number| {
        let layer = Layer::new().file("last", 0o644, &[b'0' + number % 10]);
        layer.file(&format!("files/{number}"), 0o644, b"").finish()
    }));
    made::write(archive, &["many"], &layers, &json!({}));
    place.says(&["image", "load", "-i", archive.to_str().expect("text")]);
    layers
}

/// What runs in it, and prints 6126.
const MANY: &[&str] = &["many", "--", "/bin/sh", "-c", "cat /last; ls /files | /bin/busybox wc -l"];

/// Starts a machine of [`THING`] that does nothing.
fn start_asleep(place: &Place, name: &str, options: &[&str]) {
    let sleeps = ["--image", THING, "--entrypoint", "/bin/sleep", "1000"];
    place.says(&[&["run", "-d", "--name", name], options, &sleeps].concat());
}

#[test]
fn as_many_layers_as_an_image_may_have() {
    let place = Place::new();
    let archive = place.path.join("many.tar");
    let mut layers = load_many(&place, &archive);
    assert_eq!(place.says(&[&["run", "--image"], MANY].concat()), "6126\n");
    layers.push(middle());
    made::write(&archive, &["more"], &layers, &json!({}));
    let complaint = place.complains(&["image", "load", "-i", archive.to_str().expect("text")]);
    assert!(complaint.contains("127 is the most"), "{complaint}");
}

#[test]
fn an_image_in_a_file_runs() {
    let (place, archive) = place();
    let (archive, saved) = (archive.display(), place.path.join("saved.tar"));
    let expected = "/entry a 1000:1001:1001 77 /srv hello /srv\n";
    let run = |image: &str| place.says(&["run", "--image", image, "a"]);
    assert_eq!(run(&format!("docker-archive:{archive}")), expected);
    let saved = saved.to_str().expect("text");
    place.says(&["image", "save", "-o", saved, THING]);
    assert_eq!(run(&format!("oci-archive:{saved}")), expected);
    assert_eq!(run(&format!("oci-archive:{saved}:{THING}")), expected);
    let complaint = place.complains(&["run", "--image", &format!("oci-archive:{saved}:other")]);
    assert!(complaint.contains(THING), "{complaint}");
    // A layout that is a directory, which the store itself is.
    let store = place.cache().join("oci");
    assert_eq!(run(&format!("oci:{}:{THING}", store.display())), expected);
    let missing = place.complains(&["run", "--image", "oci:/nowhere"]);
    assert!(missing.contains("/nowhere"), "{missing}");
}

#[test]
fn the_verbs_about_images_do_what_they_say() {
    let place = loaded();
    let list = || -> Vec<Value> {
        serde_json::from_str(&place.says(&["image", "ls", "--format", "json"])).expect("JSON")
    };
    let names = || {
        list().iter().map(|it| it["name"].as_str().unwrap_or("-").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(), [IMAGE, THING]);
    let inspected: Value =
        serde_json::from_str(&place.says(&["image", "inspect", THING])).expect("JSON");
    assert_eq!(inspected["configuration"]["config"]["User"], "web");
    assert_eq!(inspected["manifest"]["layers"].as_array().map(Vec::len), Some(3));
    let digest = inspected["digest"].as_str().expect("a digest").to_owned();
    place.says(&["image", "tag", THING, "localhost/mine"]);
    assert_eq!(names(), [IMAGE, THING, "localhost/mine:latest"]);
    assert!(place.says(&["run", "--image", "mine"]).starts_with("/entry"));
    assert!(place.says(&["run", "--image", &digest]).starts_with("/entry"));
    assert!(place.says(&["image", "ls"]).contains(&digest[7..19]));
    // What is built comes first.
    place.says(&["image", "tag", THING, &format!("localhost/{IMAGE}")]);
    assert_eq!(
        place.says(&["run", "--image", IMAGE, "--", "/bin/sh", "-c", "echo $0"]),
        "/bin/sh\n"
    );
    place.says(&["image", "rm", "mine", THING]);
    assert_eq!(names(), [IMAGE, &format!("localhost/{IMAGE}:latest")]);
    place.says(&["image", "rm", &digest]);
    assert_eq!(names(), [IMAGE]);
    assert_eq!(place.says(&["image", "prune"]), "0 images removed\n");
    for words in
        [&["image", "rm", THING][..], &["image", "inspect", THING], &["image", "tag", THING, "x"]]
    {
        assert!(place.complains(words).contains("no image"), "{words:?}");
    }
    let nowhere = place.complains(&["run", "--image", THING, "--pull", "never"]);
    assert!(nowhere.contains("biv image pull example.com/thing:1"), "{nowhere}");
    let refused = place.output(&["run", "--image", "No Name"]);
    assert_eq!(refused.status.code(), Some(125), "{}", text(&refused.stderr));
}

#[test]
fn a_command_is_stopped_by_the_signal_that_its_image_names() {
    let place = Place::new();
    let archive = place.path.join("stopped.tar");
    let script =
        b"#!/bin/sh\nfor name in QUIT TERM INT; do trap \"echo got $name; exit\" $name; done\n\
                   echo ready\nwhile :; do sleep 1 & wait; done\n";
    let layers = [
        base(&place.root().join("bin/busybox")),
        Layer::new().file("entry", 0o755, script).finish(),
    ];
    let check = |name: &str, says: Value, options: &[&str], expected: &str| {
        made::write(&archive, &[name], &layers, &says);
        place.says(&["image", "load", "-i", archive.to_str().expect("text")]);
        place.says(&[&["run", "-d", "--name", name, "--image", name], options].concat());
        wait_for("the command listens", || place.says(&["logs", name]).contains("ready"));
        place.says(&["stop", "--time", "60", name]);
        assert_eq!(place.says(&["logs", name]), format!("ready\ngot {expected}\n"), "{name}");
        place.says(&["rm", name]);
    };
    let image = |signal: &str| json!({ "Entrypoint": ["/entry"], "StopSignal": signal });
    check("named", image("SIGQUIT"), &[], "QUIT");
    check("number", image("2"), &[], "INT");
    check("said", image("SIGQUIT"), &["--stop-signal", "int"], "INT");
    check("nobodys", image("SIGRTMIN+3"), &[], "TERM");
    check("none", json!({ "Entrypoint": ["/entry"] }), &[], "TERM");
}

#[test]
fn exposed_ports_are_published() {
    let place = loaded();
    start_asleep(&place, "ports", &["-P", "-p", "15353:5353/udp"]);
    let inspected: Value = serde_json::from_str(&place.says(&["inspect", "ports"])).expect("JSON");
    let shown = inspected.to_string();
    place.says(&["stop", "ports"]);
    assert!(shown.contains(r#""guest":8080"#) && shown.contains(r#""host":15353"#), "{shown}");
    let refused = place.output(&["run", "-P", "--net", "none", "--image", THING]);
    assert!(text(&refused.stderr).contains("--publish-all"), "{refused:?}");
}

#[test]
fn later_commands_run_as_the_image_says() {
    const SCRIPT: &str = "echo $GREETING $EXTRA $PATH; pwd; id -un; echo $HOME";
    let place = loaded();
    start_asleep(&place, "one", &["-e", "EXTRA=more"]);
    let says = |options: &[&str]| {
        place.says(&[&["exec"], options, &["one", "/bin/sh", "-c", SCRIPT]].concat())
    };
    assert_eq!(says(&[]), "hello more /opt:/bin\n/srv\nweb\n/srv\n");
    let own = ["-u", "root", "-w", "/bin", "-e", "GREETING=bye"];
    assert_eq!(says(&own), "bye more /opt:/bin\n/bin\nroot\n/root\n");
    place.says(&["stop", "one"]);
}

#[test]
fn a_machine_keeps_its_image_whatever_the_name_means() {
    let place = loaded();
    let file = place.path.join("snapshot");
    let file = file.to_str().expect("text");
    start_asleep(&place, "one", &[]);
    place.says(&["exec", "one", "/bin/touch", "/tmp/new"]);
    place.says(&["snapshot", "one", file]);
    place.says(&["stop", "one"]);
    // The name comes to mean another image.
    let other = place.path.join("other.tar");
    let layers = [base(&place.root().join("bin/busybox"))];
    made::write(&other, &[THING], &layers, &json!({}));
    place.says(&["image", "load", "-i", other.to_str().expect("text")]);
    place.says(&["restore", "-d", "--name", "two", file]);
    assert_eq!(
        place.says(&["exec", "two", "/bin/ls", "/tmp/new", "/hidden/new"]),
        "/hidden/new\n/tmp/new\n"
    );
    // Its layers are open, and go nowhere.
    place.says(&["image", "prune"]);
    assert_eq!(place.says(&["exec", "two", "/bin/cat", "/hidden/new"]), "y");
    place.says(&["stop", "two"]);
    let complaint = place.complains(&["restore", "-d", "--name", "three", file]);
    assert!(complaint.contains("no image"), "{complaint}");
}

/// A kernel of the user's own mounts layers with its modules.
#[test]
fn an_own_kernel_runs_an_image() {
    let place = loaded();
    place.says(&["run", "--image", THING]);
    let cache = provision::cache_directory().expect("there is a cache").join("kernel");
    let path = |name: &str| cache.join(name).display().to_string();
    let (kernel, modules) = (path("vmlinuz"), path("modules"));
    let words = ["run", "--image", THING, "--kernel", &kernel];
    let said = place.says(&[&words[..], &["--modules", &modules]].concat());
    assert_eq!(said, "/entry default 1000:1001:1001 77 /srv hello /srv\n");
    let complaint = place.complains(&words);
    assert!(complaint.contains("CONFIG_OVERLAY_FS"), "{complaint}");
}

#[test]
fn where_layers_cannot_be_mounted_it_is_said() {
    let place = loaded();
    let complaint = place.complains(&["run", "--image", THING, "--kernel", "/nowhere"]);
    assert!(complaint.contains("/nowhere"), "{complaint}");
    std::fs::remove_file(place.cache().join("kernel/drivers/erofs.ko")).expect("the kernel has it");
    for options in [&[][..], &["--xen"]] {
        let complaint = place.complains(&[&["run", "--image", THING], options].concat());
        assert!(complaint.contains("layers") && complaint.contains("erofs"), "{complaint}");
    }
}
