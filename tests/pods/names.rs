//! The names of a pod: each row of the table of resources (Laadan and Nieh, table 1) in two pods with equal names at
//! once, beside a process of the host; and what a pod sees of the host, which is nothing.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command};

use whole_machine::text;

use crate::place::{Place, end_of, probe, start};

/// A probe that holds names, and what it got.
struct Holder {
    child: Child,
    names: Vec<String>,
}

impl Holder {
    fn start(command: Command) -> Holder {
        let mut child = start(command);
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut names = Vec::new();
        loop {
            let mut line = String::new();
            if output.read_line(&mut line).expect("text") == 0 {
                panic!("a probe has ended: {:?}", end_of(child));
            }
            if line == "ready\n" {
                break;
            }
            names.push(line.trim_end().to_owned());
        }
        child.stdout = Some(output.into_inner());
        Holder { child, names }
    }

    /// Everything that it holds is still its own.
    #[track_caller]
    fn check_intact(mut self) {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        let output = self.child.stdout.as_mut().expect("a pipe").read_to_string(&mut rest);
        output.expect("text");
        let output = end_of(self.child);
        assert!(output.status.success() && rest == "intact\n", "{rest:?} {output:?}");
    }
}

#[test]
fn two_pods_and_the_host_have_equal_names() {
    let Some(place) = Place::new() else { return };
    for name in ["one", "two"] {
        let arguments = ["run", "-d", "--hostname", "same", "--name", name, "--", "sleep", "1000"];
        place.says(&arguments);
        place.give_probe(name);
    }
    // The one on the host takes the same names first.
    let mut host = Command::new(probe());
    host.args(["hold", "host"]);
    let host = Holder::start(host);
    let holders = ["one", "two"].map(|name| {
        Holder::start(place.command(&["exec", "-i", name, "/tmp/pod-probe", "hold", name]))
    });
    let [one, two] = &holders;
    assert_eq!(one.names, two.names, "the same numbers and names in both");
    let first = ["shared-memory 0", "message-queue 0", "semaphores 0", "terminal /dev/pts/0"];
    for expected in first.iter().chain(&["session 1", "host-name same"]) {
        assert!(one.names.iter().any(|name| name == expected), "{expected}: {:?}", one.names);
    }
    holders.into_iter().for_each(Holder::check_intact);
    host.check_intact();
}

#[test]
fn a_pod_sees_its_own_processes_only() {
    let Some(place) = Place::new() else { return };
    let script = "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline | cut -c1-12; echo; done";
    let said = place.script(script);
    let mut seen: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    seen.retain(|line| !line.starts_with("tr ") && !line.starts_with("cut "));
    assert_eq!(seen[0], "biv-pod-init");
    assert!(seen[1..].iter().all(|line| line.starts_with("sh -c for p")), "{said}");
    assert_eq!(place.script("kill -0 1 && echo there"), "there\n");
    // A process of the host's cannot be named.
    let own = std::process::id();
    let output = place.output(&["run", "--", "sh", "-c", &format!("kill -0 {own}")]);
    assert!(own < 100 || !output.status.success(), "{output:?}");
}

#[test]
fn a_pod_has_a_fixed_list_of_devices() {
    let Some(place) = Place::new() else { return };
    let said = place.script("ls -1 /dev");
    let expected = [
        "core", "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin",
        "stdout", "tty", "urandom", "zero",
    ];
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
    let writes =
        "echo x >/dev/null && head -c 3 /dev/zero | wc -c && head -c 3 /dev/urandom | wc -c";
    assert_eq!(place.script(writes), "3\n3\n");
    // Nobody makes another.
    let output = place.output(&["run", "--", "mknod", "/tmp/sda", "b", "8", "0"]);
    assert!(!output.status.success(), "{output:?}");
}

#[test]
fn a_pod_sees_no_mounts_and_paths_of_the_host() {
    let Some(place) = Place::new() else { return };
    let root = place.path.join("root-of-a-pod");
    make_root(&root);
    let root = root.to_str().expect("text");
    let table = place.says(&["run", "--root", root, "--", "/bin/cat", "/proc/self/mountinfo"]);
    let points: BTreeSet<&str> = table.lines().filter_map(|line| line.split(' ').nth(4)).collect();
    let expected = [
        "/",
        "/dev",
        "/dev/full",
        "/dev/mqueue",
        "/dev/null",
        "/dev/pts",
        "/dev/random",
        "/dev/shm",
        "/dev/tty",
        "/dev/urandom",
        "/dev/zero",
        "/proc",
        "/run",
        "/tmp",
    ];
    assert_eq!(points, expected.into_iter().collect());
    assert!(!table.contains("root-of-a-pod"), "{table}");
    for own in ["/tmp", "/run", "/dev/shm", "/dev/mqueue", "/sys"] {
        assert_eq!(place.script(&format!("ls -A {own}")), "", "{own}");
    }
    // Process 1 has a pair without a name; what has a name has eight words.
    let sockets = place.script("cat /proc/net/unix");
    let named = |line: &&str| line.split_ascii_whitespace().count() > 7;
    assert_eq!(sockets.lines().skip(1).find(named), None, "{sockets}");
    // Some kernels make interfaces for tunnels in each namespace; a card is the host's.
    let script = "ls /proc/sys/net/ipv4/conf";
    let interfaces = place.says(&["run", "--net", "none", "--", "sh", "-c", script]);
    let seen: BTreeSet<&str> = interfaces.lines().collect();
    assert!(seen.contains("lo"), "{interfaces}");
    for card in fs::read_dir("/sys/class/net").into_iter().flatten().flatten() {
        let is_card = card.path().join("device").exists();
        assert!(!is_card || !seen.contains(&*card.file_name().to_string_lossy()), "{interfaces}");
    }
}

/// A directory with a busybox, or with the files of the host that `cat` and `sh` take.
pub fn make_root(root: &std::path::Path) {
    for directory in ["bin", "etc", "keep"] {
        fs::create_dir_all(root.join(directory)).expect("a directory");
    }
    for program in ["/bin/cat", "/bin/sh"] {
        fs::copy(program, root.join(program.trim_start_matches('/'))).expect("the host has it");
        let list = Command::new("ldd").arg(program).output().expect("the host has ldd");
        for word in text(&list.stdout).split_ascii_whitespace().filter(|word| word.starts_with('/'))
        {
            let to = root.join(word.trim_start_matches('/'));
            fs::create_dir_all(to.parent().expect("a file is in a directory"))
                .expect("a directory");
            fs::copy(word, to).expect("the host has it");
        }
    }
}

#[test]
fn what_a_pod_writes_stays_in_its_layer() {
    let Some(place) = Place::new() else { return };
    let root = place.path.join("root");
    make_root(&root);
    fs::write(root.join("keep/file"), "the host's").expect("a file");
    open_to_all(&place.path);
    let path = root.to_str().expect("text");
    let run = |script: &str| place.says(&["run", "--root", path, "--", "/bin/sh", "-c", script]);
    let said =
        run("echo new >/made; echo >/keep2; read a </keep/file; echo $a; read b </made; echo $b");
    assert_eq!(said, "the host's\nnew\n");
    assert!(!root.join("made").exists() && !root.join("keep2").exists());
    // Another pod has another layer, and the same host below.
    assert_eq!(run("[ -e /made ] || echo nothing"), "nothing\n");
    let writable = ["run", "--root", path, "--rw", "--", "/bin/sh", "-c", "echo new >/keep/made"];
    if rustix::process::geteuid().is_root() {
        // Root's pods are nobody on the host, and may write what everybody may.
        assert!(!place.output(&writable).status.success());
    } else {
        place.says(&writable);
        assert_eq!(fs::read_to_string(root.join("keep/made")).expect("a file"), "new\n");
    }
}

/// Has everybody enter a directory, though it is a test's.
pub fn open_to_all(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
}

#[test]
fn a_pod_shares_the_current_directory_and_sees_no_secrets() {
    let Some(place) = Place::new() else { return };
    if rustix::process::geteuid().is_root() {
        println!("skipped: root's pods share nothing");
        return;
    }
    // Not in /tmp, which each pod has for itself.
    let home = std::path::Path::new("/var/tmp").join(format!("biv-pods-{}", std::process::id()));
    let here = home.join("project");
    fs::create_dir_all(&here).expect("a directory");
    fs::create_dir_all(home.join(".ssh")).expect("a directory");
    fs::write(home.join(".ssh/id"), "secret").expect("a file");
    fs::write(home.join(".netrc"), "secret").expect("a file");
    fs::write(home.join("letter"), "no secret").expect("a file");
    let script = "pwd; echo here >made; cd ..; echo new >letter2; ls -A";
    let mut command = place.command(&["run", "--", "sh", "-c", script]);
    let output =
        command.current_dir(&here).env("HOME", &home).output().expect("biv can be started");
    let made = fs::read_to_string(here.join("made"));
    let written = home.join("letter2").exists();
    fs::remove_dir_all(&home).expect("it is ours");
    let expected = format!("{}\nletter\nletter2\nproject\n", here.display());
    assert_eq!(text(&output.stdout), expected, "{output:?}");
    assert_eq!(made.expect("a file"), "here\n");
    assert!(!written, "only the current directory is written to");
}

#[test]
fn a_pod_has_its_own_users_and_rights() {
    let Some(place) = Place::new() else { return };
    assert_eq!(place.script("id -u; id -g"), "0\n0\n");
    // Its superuser has all rights in it,
    let script = "hostname other && hostname && mount -t tmpfs none /mnt && ls -A /mnt";
    assert_eq!(place.script(script), "other\n");
    // and none on the host, whoever keeps it.
    for file in ["/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger"]
    {
        let output = place.output(&["run", "--", "sh", "-c", &format!("echo 0 >{file}")]);
        assert!(!output.status.success(), "{file}: {output:?}");
    }
    let said =
        place.says(&["run", "--env", "A=b", "--workdir", "/usr", "--", "sh", "-c", "echo $A; pwd"]);
    assert_eq!(said, "b\n/usr\n");
    // As containers have it: programs that give rights work in it.
    assert_eq!(place.script("grep NoNewPrivs /proc/self/status"), "NoNewPrivs:\t0\n");
}
