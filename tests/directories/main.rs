//! Directories of the host's in the guest: its root, the current directory, volumes; and what is
//! kept from a guest that wants more.

#![forbid(unsafe_code)]

mod defaults;
mod engines;
mod exclusive;
mod missing;
mod owners;
mod posix;
mod programs;
mod users;

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use whole_machine::processes::descendants_of;
use whole_machine::waiting::wait_for;
use whole_machine::{PATIENCE_SECONDS, biv, bivouac, text};

/// A directory of this test's, with a `share` in it and something beside that.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("biv-directories-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("share")).expect("there is room for tests");
        fs::write(path.join("secret"), "secret\n").expect("there is room for tests");
        Self(path)
    }

    fn share(&self) -> PathBuf {
        self.0.join("share")
    }

    fn volume(&self, options: &str) -> String {
        format!("{}:/mnt/share{options}", self.share().display())
    }

    /// Waits until the guest has made a file of this name.
    #[track_caller]
    fn wait_for(&self, name: &str) {
        wait_for(name, || self.share().join(name).exists());
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.share().join(name))
            .unwrap_or_else(|error| format!("{name}: {error}"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a script says in a machine with these options, started in a directory. It must succeed.
#[track_caller]
fn says(directory: &Path, options: &[&str], script: &str) -> String {
    let output = run(directory, options, script);
    let (said, complaint) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}: {said}{complaint}", output.status);
    said
}

fn run(directory: &Path, options: &[&str], script: &str) -> Output {
    let arguments = [&["run"], options, &["--", "sh", "-c", script]].concat();
    let mut command = biv(&arguments);
    command.current_dir(directory).output().expect("`timeout` can be started")
}

#[test]
fn a_command_runs_here_as_on_the_host() {
    let place = Place::new();
    fs::write(place.share().join("program.c"), "int main(void) { return 42; }\n").unwrap();
    // The compiler is the host's; what it makes stays.
    let script = "pwd; id -u; id -g; cc -o program program.c && ./program; echo $?; uname -n; \
                  touch /etc/made && ls /etc/made";
    let said = says(&place.share(), &[], script);
    let lines: Vec<_> = said.lines().collect();
    let here = place.share();
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    let (user, group) = (user.as_raw().to_string(), group.as_raw().to_string());
    assert_eq!(lines[0], here.to_str().unwrap(), "{said}");
    assert_eq!(lines[1..4], [&user, &group, "42"], "{said}");
    if user == "0" {
        assert_eq!(lines.last(), Some(&"/etc/made"), "{said}");
    }
    assert!(!Path::new("/etc/made").exists());
    let made = Command::new(here.join("program")).status().expect("it was built");
    assert_eq!(made.code(), Some(42));
    assert_eq!(fs::metadata(here.join("program")).unwrap().uid().to_string(), user);
}

#[test]
fn a_command_is_in_the_groups_of_who_runs_it() {
    let place = Place::new();
    let check = |prefix: &[&str]| {
        let on_host =
            Command::new("sh").args(["-c", &[prefix, &["id -G"]].concat().join(" ")]).output();
        let here = text(&on_host.expect("there is a shell").stdout);
        assert!(!here.is_empty(), "{prefix:?} can be done");
        let run = format!("{} {} run -- id -G", prefix.join(" "), bivouac().display());
        let run = Command::new("sh").args(["-c", &run]).current_dir(&place.0).output();
        assert_eq!(text(&run.expect("there is a shell").stdout), here);
    };
    check(&[]);
    if rustix::process::getuid().is_root() {
        check(&["setpriv", "--groups", "4,1234567"]);
        check(&["setpriv", "--clear-groups"]);
    }
}

#[test]
fn what_is_written_to_a_root_stays_in_memory_unless_that_is_asked_for() {
    let place = Place::new();
    let root = place.share();
    fs::create_dir(root.join("bin")).unwrap();
    fs::copy("/bin/busybox", root.join("bin/busybox")).expect("busybox-static is installed");
    symlink("busybox", root.join("bin/sh")).unwrap();
    let script = "PATH=/bin; busybox echo made > /made; busybox rm -f /kept; busybox cat /made; \
                  busybox stat -c %u /bin/busybox";
    fs::write(root.join("kept"), "kept").unwrap();
    let name = root.to_str().unwrap();
    let said = says(&place.0, &["--root", name], script);
    assert_eq!(said, "made\n0\n", "who runs biv is the superuser in such a guest");
    assert!(!root.join("made").exists() && root.join("kept").exists());
    says(&place.0, &["--root", name, "--root-rw"], script);
    assert_eq!(place.read("made"), "made\n");
    assert!(!root.join("kept").exists());
}

#[test]
fn volumes_can_be_written_or_not() {
    let place = Place::new();
    fs::write(place.share().join("there"), "there\n").unwrap();
    let script = "cat /mnt/share/there && echo made > /mnt/share/made";
    let volume = place.volume(":ro");
    let output = run(&place.0, &["--busybox", "--volume", &volume], script);
    assert_eq!(text(&output.stdout), "there\n");
    assert!(text(&output.stderr).contains("Read-only file system"), "{}", text(&output.stderr));
    assert!(!place.share().join("made").exists());
    says(&place.0, &["--busybox", "--volume", &place.volume("")], script);
    assert_eq!(place.read("made"), "made\n");
    // As podman has it.
    fs::remove_file(place.share().join("made")).unwrap();
    says(&place.0, &["-v", &place.volume(""), "-m", "256M", "--busybox"], script);
    assert_eq!(place.read("made"), "made\n");
}

#[test]
fn files_are_as_files_are() {
    check_files("");
}

/// What a program does with files in a volume with these options.
#[track_caller]
fn check_files(options: &str) {
    let place = Place::new();
    let odd = "name with \\377 and \\n";
    let script = format!(
        "set -e; cd /mnt/share
         f=$(printf '{odd}x'); echo odd > \"$f\"; cat \"$f\"
         ln -s nowhere/at/all s; readlink s
         echo linked > a; ln a b; echo more >> a; cat b; stat -c %h b
         chmod 4751 a; stat -c %a a; touch -d @1234567890 a; stat -c %Y a
         truncate -s 1000000000 sparse; echo end >> sparse; stat -c '%s %b' sparse
         mkdir -p d/e/f; mv d g; test -d g/e/f; rmdir g/e/f; rm -r g; ! test -e g
         exec 9> lock; flock -n 9; ! flock -n lock true; exec 9>&-; flock -n lock echo unlocked
         for n in $(seq 300); do echo $n > many$n; done; ls | grep -c many; rm many*; ls | grep \
         -c many || true
         exec 8<> open; echo still > open; rm open; cat <&8
         mkfifo p; (echo through > p &); cat p
         dd if=/dev/urandom of=big bs=1M count=30 2>/dev/null; sha256sum < big > sum; cp big \
         copy; sha256sum -c - < sum > /dev/null < copy || true
         cmp big copy; sync; echo done"
    );
    let said = says(&place.0, &["--mem", "512M", "--volume", &place.volume(options)], &script);
    let expected = "odd\nnowhere/at/all\nlinked\nmore\n2\n751\n1234567890\n1000000004 8\nunlocked\n\
                    300\n0\nstill\nthrough\ndone\n";
    assert_eq!(said, expected);
    let sparse = fs::metadata(place.share().join("sparse")).unwrap();
    assert!(sparse.blocks() < 100, "{} blocks", sparse.blocks());
}

#[test]
fn both_sides_see_what_the_other_one_changes() {
    let place = Place::new();
    fs::write(place.share().join("count"), "1\n").unwrap();
    let script = "cat /mnt/share/count; echo ready > /mnt/share/ready; n=0
                  while ! test -e /mnt/share/go && test $n -lt 300; do sleep 0.1; n=$((n+1)); done
                  sleep 1.2; cat /mnt/share/count";
    let mut command = biv(&["run", "--busybox", "--volume", &place.volume(""), "--"]);
    command.args(["sh", "-c", script]).stdout(Stdio::piped());
    let child = command.spawn().expect("`timeout` can be started");
    place.wait_for("ready");
    fs::write(place.share().join("count"), "22\n").unwrap();
    fs::write(place.share().join("go"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout), "1\n22\n");
}

#[test]
fn a_guest_does_not_get_out_of_a_share() {
    let place = Place::new();
    symlink("../secret", place.share().join("up")).unwrap();
    symlink(place.0.join("secret"), place.share().join("away")).unwrap();
    symlink("/", place.share().join("root")).unwrap();
    let secret = place.0.join("secret");
    // Links lead somewhere in the guest, which has no such files; the share's parent is the guest's.
    let script = format!(
        "cd /mnt/share; cat up away root{0} ../secret {0} 2>&1 | grep -c 'No such file'; \
         echo changed > up; echo changed > away; ls /mnt; mkdir x; \
         i=0; while [ $i -lt 200 ]; do ln -sfn .. x/link; ln -sfn . x/link; i=$((i+1)); done & \
         i=0; while [ $i -lt 200 ]; do cat x/link/secret x/link/../secret; i=$((i+1)); done \
         2>/dev/null \
         | sort -u; wait",
        secret.display()
    );
    let output = run(&place.0, &["--busybox", "--volume", &place.volume("")], &script);
    let said = text(&output.stdout);
    assert!(said.starts_with("5\n"), "{said}{}", text(&output.stderr));
    assert!(!said.contains("secret\nsecret") && fs::read_to_string(&secret).unwrap() == "secret\n");
}

#[test]
fn a_guest_sees_nothing_of_the_hosts_kernel() {
    let script = "mkdir /tmp/below; mount -t virtiofs biv0 /tmp/below && ls -A /tmp/below/proc \
                  /tmp/below/sys; cat /tmp/below/proc/self/environ";
    let output = run(Path::new("/"), &[], script);
    let said = text(&output.stdout);
    // The same device cannot be mounted twice, or it can, and there is nothing.
    assert!(!said.contains("self") && !said.contains("PATH="), "{said}");
}

#[test]
fn without_its_file_server_a_machine_has_errors_and_an_end() {
    let place = Place::new();
    let script = "cd /mnt/share; n=0; echo ready > ready
                  while ls >/dev/null 2>&1 && test $n -lt 600; do sleep 0.1; n=$((n+1)); done
                  ls 2>&1; echo through";
    let mut command = Command::new("timeout");
    command.arg(PATIENCE_SECONDS).arg(bivouac()).args(["run", "--busybox", "--volume"]);
    command.arg(place.volume("")).args(["--", "sh", "-c", script]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("`timeout` can be started");
    place.wait_for("ready");
    let servers = of_machine(child.id());
    assert_eq!(servers.len(), 1, "{servers:?}");
    let server = rustix::process::Pid::from_raw(servers[0] as i32).expect("it is no zero");
    rustix::process::kill_process(server, rustix::process::Signal::KILL).unwrap();
    let output = child.wait_with_output().unwrap();
    let (said, complaint) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}{complaint}");
    assert!(said.contains("Input/output error") && said.ends_with("through\n"), "{said}");
    assert!(complaint.contains("file server"), "biv says why: {complaint:?}");
}

/// The file servers of the machine that descends from a process.
fn of_machine(process: u32) -> Vec<u32> {
    let is_server = |process: &u32| {
        let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        text(&line).contains("serve-files")
    };
    descendants_of(process).into_iter().filter(is_server).collect()
}

#[test]
fn a_directory_that_is_removed_leaves_a_machine_that_ends() {
    let place = Place::new();
    let script = "cd /mnt/share; echo ready > ready; n=0
                  while echo $n > file 2>/dev/null && test $n -lt 600; do sleep 0.1; n=$((n+1)); \
                  done
                  cat file; mkdir more; echo through";
    let mut command = biv(&["run", "--busybox", "--volume", &place.volume(""), "--"]);
    command.args(["sh", "-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("`timeout` can be started");
    place.wait_for("ready");
    // The guest may make a file at any moment.
    let start = Instant::now();
    while fs::remove_dir_all(place.share()).is_err() && start.elapsed() < Duration::from_secs(20) {}
    let output = child.wait_with_output().unwrap();
    assert!(text(&output.stdout).ends_with("through\n"), "{}", text(&output.stdout));
}

#[test]
fn what_cannot_be_shared_is_refused_in_one_line() {
    let place = Place::new();
    let file = format!("{}:/mnt/x", place.0.join("secret").display());
    for (options, word) in [
        (&["--root", "/nowhere"][..], "/nowhere"),
        (&["--root", "/etc/passwd"], "/etc/passwd"),
        (&["--volume", "/nowhere:/mnt/x"], "/nowhere"),
        (&["--volume", &file], "secret"),
        (&["--volume", "/tmp"], "HOST:GUEST"),
        (&["--volume", "/tmp:relative"], "absolute"),
        (&["--root-rw"], "--root"),
        (&["--busybox", "--root-rw"], "--root-rw"),
        (&["--busybox", "--root-owners"], "--root-owners"),
        (&["--busybox", "--root", "/"], "--busybox"),
    ] {
        let output = run(&place.0, options, "true");
        let complaint = text(&output.stderr);
        assert!(matches!(output.status.code(), Some(125 | 2)), "{options:?}: {complaint}");
        assert!(complaint.contains(word), "{options:?}: {complaint}");
    }
}
