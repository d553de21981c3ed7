//! Frozen, written into a file, and gone on with.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use whole_machine::processes::descendants_of;
use whole_machine::text;
use whole_machine::waiting::wait_for;

use crate::place::{COUNTS, Place, end_of, signal, start};

fn path(place: &Place, name: &str) -> String {
    place.path.join(name).display().to_string()
}

#[test]
fn a_frozen_pod_does_nothing_until_it_thaws() {
    let Some(place) = Place::new() else { return };
    place.detach("web", COUNTS);
    place.wait_for_more("web");
    place.says(&["freeze", "web"]);
    assert_eq!(place.state("web").as_deref(), Some("frozen"));
    // What it had written may be on its way yet.
    let mut before = place.counts("web");
    wait_for("the rest is in the log", || {
        std::thread::sleep(Duration::from_millis(200));
        std::mem::replace(&mut before, place.counts("web")) == before
    });
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(place.counts("web"), before);
    place.says(&["freeze", "web"]);
    let complaint = place.complains(&["exec", "web", "true"]);
    assert!(
        complaint.contains("it is frozen") && complaint.contains("biv pod thaw"),
        "{complaint}"
    );
    place.says(&["thaw", "web"]);
    assert_eq!(place.state("web").as_deref(), Some("running"));
    place.wait_for_more("web");
    place.says(&["thaw", "web"]);
    assert_eq!(place.exec("web", "echo here"), "here\n");
    // A frozen one can be ended, by whatever verb.
    place.says(&["freeze", "web"]);
    place.says(&["rm", "--force", "web"]);
    assert_eq!(place.left(), Vec::<String>::new());
    assert!(place.complains(&["freeze", "web"]).contains("no pod web"));
}

#[test]
fn a_pod_goes_on_from_its_image() {
    let Some(place) = Place::new() else { return };
    let image = path(&place, "web.pod");
    let script = format!(
        "echo kept >/tmp/kept; ln /tmp/kept /tmp/other; mkdir -p /etc/biv-new;\n\
         chmod 711 /etc/biv-new; rm -f /etc/hostname; ln -s kept /tmp/link; {COUNTS}"
    );
    place.detach("web", &script);
    place.wait_for_more("web");
    let facts = "cat /tmp/kept; stat -c %h /tmp/other; readlink /tmp/link; \
                 stat -c %a /etc/biv-new; ls /etc/hostname 2>/dev/null; hostname; \
                 cut -d' ' -f1,2,4,5,6 /proc/3/stat";
    let before = place.exec("web", facts);
    assert!(before.ends_with("3 (sh) 1 3 1\n"), "{before}");
    let report = place.says(&["checkpoint", "-o", &image, "--format", "json", "web"]);
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert!(
        report["processes"].as_u64() >= Some(1) && report["file"].as_u64() > Some(4096),
        "{report}"
    );
    place.wait_for_more("web");
    let counted = *place.counts("web").last().expect("it counts");
    place.says(&["rm", "--force", "web"]);

    // Two of them beside each other, with the same names inside.
    for name in ["web", "twin"] {
        assert_eq!(place.says(&["restart", "-d", "--name", name, &image]), format!("{name}\n"));
    }
    for name in ["web", "twin"] {
        place.wait_for_more(name);
        let counts = place.counts(name);
        let first = counts[0];
        assert!(first > 1 && first <= counted + 1, "{first} after {counted}");
        assert!(counts.windows(2).all(|two| two[1] == two[0] + 1), "{counts:?}");
        let after = place.exec(name, facts);
        assert_eq!(after, before, "{name}");
        let inspected: Value = serde_json::from_str(&place.says(&["inspect", name])).expect("JSON");
        assert_eq!(inspected[0]["record"]["hostname"], "web");
    }
    // Again, from one that was restarted; and it ends as it would have.
    let again = path(&place, "again.pod");
    place.says(&["checkpoint", "--stop", "--compress", "-o", &again, "twin"]);
    wait_for("it has ended", || place.state("twin").as_deref() == Some("ended (137)"));
    place.says(&["rm", "twin"]);
    place.says(&["restart", "-d", "--name", "twin", "--hostname", "other", &again]);
    place.wait_for_more("twin");
    assert_eq!(place.exec("twin", "hostname; cat /tmp/kept"), "other\nkept\n");
    place.says(&["stop", "twin"]);
    assert_eq!(place.state("twin").as_deref(), Some("ended (143)"));
}

/// What a command has written before its pod ends is read, and it goes on with the next.
#[test]
fn what_was_written_before_is_read() {
    let Some(place) = Place::new() else { return };
    let image = place.path.join("image.pod").display().to_string();
    // Some thousands in each round, which the log keeps.
    let counts = "n=0; while :; do n=$((n + 1)); echo $n; [ $((n % 20)) = 0 ] && sleep 0.005; done";
    place.detach("web", counts);
    let mut expected = 1;
    for _ in 0..6 {
        place.wait_for_more("web");
        place.says(&["checkpoint", "--force", "--stop", "-o", &image, "web"]);
        place.says(&["wait", "web"]);
        let counts = place.counts("web");
        assert_eq!(counts.first(), Some(&expected), "up to {:?}", counts.last());
        expected += counts.len() as u64;
        place.says(&["rm", "web"]);
        place.says(&["restart", "-d", "--name", "web", &image]);
    }
}

#[test]
fn streams_lead_to_whoever_restarts() {
    let Some(place) = Place::new() else { return };
    let image = path(&place, "cat.pod");
    let script = "read a; echo one $a; read b; echo two $b >&2; cat; exit 7";
    let mut child = start(place.command(&["run", "--name", "cat", "-i", "--", "sh", "-c", script]));
    let (mut input, mut output) =
        (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
    input.write_all(b"first\n").expect("it reads");
    let mut said = [0; 10];
    output.read_exact(&mut said).expect("it answers");
    assert_eq!(&said, b"one first\n");
    place.says(&["checkpoint", "--stop", "-o", &image, "cat"]);
    drop((input, output));
    assert_eq!(end_of(child).status.code(), Some(137));
    for _ in 0..2 {
        let mut child = start(place.command(&["restart", "-i", &image]));
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(b"second\nthird\n").expect("it reads");
        drop(input);
        let output = end_of(child);
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        assert_eq!(
            (text(&output.stdout), text(&output.stderr)),
            ("third\n".into(), "two second\n".into())
        );
    }
    assert_eq!(place.left(), Vec::<String>::new());
}

#[test]
fn clocks_of_a_pod_go_on() {
    let Some(place) = Place::new() else { return };
    let image = path(&place, "clock.pod");
    place.detach("clock", "while :; do cut -d' ' -f1 /proc/uptime; sleep 0.05; done");
    let last = |name: &str| {
        let log = text(&place.output(&["logs", name]).stdout);
        log.lines().next_back().and_then(|line| line.parse::<f64>().ok())
    };
    wait_for("it says something", || last("clock").is_some());
    place.says(&["checkpoint", "--stop", "-o", &image, "clock"]);
    let before = last("clock").expect("it has said something");
    std::thread::sleep(Duration::from_secs(2));
    let began = Instant::now();
    place.says(&["restart", "-d", "--name", "later", &image]);
    wait_for("it says something", || last("later").is_some());
    let log = text(&place.output(&["logs", "later"]).stdout);
    let first: f64 = log.lines().next().and_then(|line| line.parse().ok()).expect("a number");
    // It was not there for two seconds, and does not know.
    let passed = first - before;
    assert!(passed >= 0.0 && passed < 1.0 + began.elapsed().as_secs_f64(), "{passed}");
}

#[test]
fn what_cannot_be_written_down_is_named_and_goes_on() {
    let Some(place) = Place::new() else { return };
    let image = path(&place, "web.pod");
    place.detach("web", COUNTS);
    place.wait_for_more("web");
    let mut command = start(place.command(&["exec", "-i", "web", "cat"]));
    let (mut input, mut output) =
        (command.stdin.take().expect("a pipe"), command.stdout.take().expect("a pipe"));
    input.write_all(b"x").expect("it reads");
    output.read_exact(&mut [0]).expect("it runs");
    let complaint = place.complains(&["checkpoint", "-o", &image, "web"]);
    assert!(complaint.contains("commands of `biv pod exec` run in it"), "{complaint}");
    drop((input, output));
    assert!(end_of(command).status.success());
    wait_for("its command has ended", || {
        let output = place.output(&["checkpoint", "--force", "-o", &image, "web"]);
        let said = text(&output.stderr);
        assert!(said.is_empty() || said.contains("commands of `biv pod exec`"), "{said}");
        output.status.success()
    });
    place.wait_for_more("web");
    // What is there is not lost.
    let complaint = place.complains(&["checkpoint", "-o", &image, "web"]);
    assert!(complaint.contains("--force"), "{complaint}");
    let complaint = place.complains(&["checkpoint", "-o", "/no/such/place", "web"]);
    assert!(complaint.contains("cannot write /no/such/place"), "{complaint}");
    // With a file of a system call that nobody can write down.
    place.detach("odd", "exec 9</proc/self/ns/uts; echo open; while :; do sleep 1; done");
    wait_for("it has it open", || place.output(&["logs", "odd"]).stdout == b"open\n");
    let odd = path(&place, "odd.pod");
    let complaint = place.complains(&["checkpoint", "-o", &odd, "odd"]);
    assert!(complaint.contains("(sh) has uts:"), "{complaint}");
    assert_eq!(place.state("odd").as_deref(), Some("running"));
    assert!(!Path::new(&odd).exists());
    let left: Vec<_> = fs::read_dir(&place.path).expect("it is there").flatten().collect();
    assert!(
        left.iter().all(|entry| !entry.file_name().to_string_lossy().starts_with('.')),
        "{left:?}"
    );
}

/// Who asks for an image is killed while the keeper, which has been stopped, cannot write it.
#[test]
fn who_is_killed_before_the_image_is_whole_leaves_nothing() {
    let Some(place) = Place::new() else { return };
    let directory = place.path.join("images");
    fs::create_dir(&directory).expect("there is room");
    if rustix::fs::open(&directory, OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR).is_err() {
        println!("skipped: here are no files without a name");
        return;
    }
    let image = path(&place, "images/web.pod");
    place.detach("web", COUNTS);
    place.wait_for_more("web");
    let keeper = Pid::from_raw(place.pid("web").cast_signed()).expect("a process");
    kill_process(keeper, Signal::STOP).expect("it lives");
    let asker = start(place.command(&["checkpoint", "-o", &image, "web"]));
    wait_for("it has begun a file", || {
        let biv = descendants_of(asker.id()).first().copied().unwrap_or_default();
        let open = fs::read_dir(format!("/proc/{biv}/fd")).into_iter().flatten().flatten();
        open.flat_map(|it| fs::read_link(it.path())).any(|file| file.starts_with(&directory))
    });
    assert!(signal(&asker, Signal::KILL), "it waits");
    assert!(!end_of(asker).status.success());
    kill_process(keeper, Signal::CONT).expect("it lives");
    let left: Vec<_> = fs::read_dir(&directory).expect("it is there").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    place.wait_for_more("web");
    wait_for("the image that nobody wants is written", || {
        let output = place.output(&["checkpoint", "-o", &image, "web"]);
        let said = text(&output.stderr);
        assert!(said.is_empty() || said.contains("it is being frozen"), "{said}");
        output.status.success()
    });
    place.says(&["checkpoint", "--force", "-o", &image, "web"]);
    assert_eq!(fs::read_dir(&directory).expect("it is there").count(), 1);
}

#[test]
fn a_file_that_is_no_image_makes_no_pod() {
    let Some(place) = Place::new() else { return };
    let image = path(&place, "web.pod");
    place.detach("web", COUNTS);
    place.wait_for_more("web");
    place.says(&["checkpoint", "-o", &image, "web"]);
    place.says(&["rm", "-f", "web"]);
    let whole = fs::read(&image).expect("it is there");
    let bad = path(&place, "bad.pod");
    let check = |bytes: &[u8], why: &str| {
        fs::write(&bad, bytes).expect("there is room");
        for detach in [&[][..], &["-d"]] {
            let complaint = place.complains(&[&["restart"], detach, &[&bad]].concat());
            assert!(complaint.contains(why), "{why}: {complaint}");
        }
        assert_eq!(place.left(), Vec::<String>::new(), "{why}");
    };
    check(b"", "it is too short");
    check(&[b'x'; 8192], "it is no image of a pod");
    check(&whole[..whole.len() / 2], "its description is not in it");
    let mut other = whole.clone();
    other[7] = 9;
    check(&other, "its version is 9");
    let mut damaged = whole.clone();
    // The first page of all.
    damaged[4096] ^= 1;
    check(&damaged, "are damaged");
    let complaint = place.complains(&["restart", "/no/such.pod"]);
    assert!(complaint.contains("cannot restart /no/such.pod"), "{complaint}");
    // It can be read by its owner only.
    assert_eq!(fs::metadata(&image).expect("it is there").mode() & 0o777, 0o600);
}

/// Makes a small root; false where there is nothing to make it of, which is said.
fn make_root(root: &Path) -> bool {
    let Ok(busybox) = fs::read("/bin/busybox") else {
        println!("skipped: there is no /bin/busybox");
        return false;
    };
    for directory in ["bin", "dev", "proc", "tmp", "run", "sys"] {
        fs::create_dir_all(root.join(directory)).expect("there is room");
    }
    fs::write(root.join("bin/busybox"), busybox).expect("there is room");
    fs::set_permissions(root.join("bin/busybox"), fs::Permissions::from_mode(0o755)).expect("ours");
    true
}

#[test]
fn an_image_of_the_cache_is_a_root() {
    let Some(place) = Place::new() else { return };
    let cache = place.path.join("cache");
    let image = cache.join("bivouac/images/small");
    if !make_root(&image.join("root")) {
        return;
    }
    fs::write(image.join("recipe"), "by hand").expect("there is room");
    let run = |image: &str| {
        let words = ["run", "--image", image, "--", "/bin/busybox", "sh", "-c"];
        let mut command =
            place.command(&[&words[..], &["echo new >/new; /bin/busybox ls /"]].concat());
        command.env("XDG_CACHE_HOME", &cache).output().expect("biv can be started")
    };
    let output = run("small");
    assert!(text(&output.stdout).contains("\nnew\n"), "{output:?}");
    assert!(!image.join("root/new").exists(), "the image was written to");
    let output = run("large");
    assert!(text(&output.stderr).contains("no image large; `biv image ls`"), "{output:?}");
    let complaint = place.complains(&["run", "--image", "small", "--root", "/", "--", "true"]);
    assert!(complaint.contains("cannot be used with"), "{complaint}");
}

/// Its users are nobody on the host if root keeps it, and may not enter the directory by its path.
#[test]
fn a_root_that_is_closed_to_others_is_a_root() {
    let Some(place) = Place::new() else { return };
    let closed = place.path.join("closed");
    let root = closed.join("root");
    if !make_root(&root) {
        return;
    }
    let key = root.join("bin/key");
    fs::write(&key, "key\n").expect("there is room");
    for (path, mode) in [(&key, 0o600), (&closed, 0o700)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
    }
    let before = fs::metadata(&key).expect("it is there");
    let script = "b=/bin/busybox; $b cat /bin/key; echo more >>/bin/key; $b cat /bin/key; \
                  $b stat -c '%u %a' /bin/key /bin; $b mknod /bin/null c 1 3 2>&- || echo none";
    let words = ["--root", &root.display().to_string(), "--", "/bin/busybox", "sh", "-c", script];
    let said = place.says(&[&["run"], &words[..]].concat());
    assert_eq!(said, "key\nkey\nmore\n0 600\n0 755\nnone\n");
    let after = fs::metadata(&key).expect("it is there");
    assert_eq!(fs::read_to_string(&key).expect("ours"), "key\n");
    assert_eq!((after.uid(), after.mode()), (before.uid(), before.mode()));
}

#[test]
fn the_root_is_what_the_command_line_says() {
    let Some(place) = Place::new() else { return };
    let root = place.path.join("root");
    if !make_root(&root) {
        return;
    }
    fs::write(root.join("old"), "old").expect("there is room");
    let root = root.display().to_string();
    let image = path(&place, "small.pod");
    let script = format!(
        "b=/bin/busybox; $b rm -f /old; echo new >/new; {}",
        COUNTS.replace("sleep", "$b sleep")
    );
    let said = place.says(&[
        "run",
        "-d",
        "--name",
        "small",
        "--root",
        &root,
        "--",
        "/bin/busybox",
        "sh",
        "-c",
        &script,
    ]);
    assert_eq!(said, "small\n");
    place.wait_for_more("small");
    place.says(&["checkpoint", "--stop", "-o", &image, "small"]);
    let complaint = place.complains(&["restart", &image]);
    assert!(
        complaint.contains(&format!("its root was {root}; say with --root DIR")),
        "{complaint}"
    );
    place.says(&["restart", "-d", "--name", "again", "--root", &root, &image]);
    place.wait_for_more("again");
    let shell = |script: &str| place.says(&["exec", "again", "/bin/busybox", "sh", "-c", script]);
    assert_eq!(
        shell("/bin/busybox cat /new; /bin/busybox ls / | /bin/busybox grep -e old -e new"),
        "new\nnew\n"
    );
    assert_eq!(fs::read_to_string(Path::new(&root).join("old")).expect("it is there"), "old");
}
