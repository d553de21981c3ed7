//! What goes on in a domain, for who comes later: at its console, and at its command's streams.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tiny_kernels::Kernel;

use super::place::{Place, end_of, signal, start};
use whole_machine::text;
use whole_machine::waiting::wait_for;

/// The key that leaves.
const LEAVE: &str = "\x1d";

#[test]
fn all_who_sit_at_the_console_have_its_shell() {
    let place = Place::new();
    place.detach("web", "sleep 1000");
    let mut one = place.at_terminal(&["console", "web"]);
    one.expect("connected to the console of web; press Ctrl-] to disconnect");
    one.expect("bivouac:");
    assert!(one.is_raw());
    one.press("tty; stty size; echo $((6 * 7))-one\r");
    one.expect("/dev/hvc0");
    one.expect("24 80");
    one.expect("42-one");
    // Who comes later sees what was, and what is.
    let mut other = place.at_terminal(&["console", "web"]);
    other.expect("42-one");
    other.press("echo $((6 * 7))-other\r");
    one.expect("42-other");
    other.expect("42-other");
    other.resize(50, 132);
    one.press("until stty size | grep '50 132'; do sleep 0.1; done\r");
    one.expect("\n50 132");
    other.press(LEAVE);
    other.check_end(0);
    // Who is hung up on has left as well, and who ends the shell has another.
    one.press("x=kept; echo $((6 * 7))-set\r");
    one.expect("42-set");
    one.signal(Signal::HUP);
    one.check_end(129);
    let mut again = place.at_terminal(&["console", "web"]);
    again.expect("42-set");
    again.press("echo $x-is-$((6 * 7))\r");
    again.expect("kept-is-42");
    again.press("exit\r");
    again.wait_for("another shell", || again.shown().matches("Enter 'help'").count() == 2);
    again.press("echo ${x-new}-is-$((6 * 7))\r");
    again.expect("new-is-42");
    // Interrupts are keys.
    again.press("sleep 1000; echo $((6*7))-slept\r");
    // While the shell reads its line, they are not.
    std::thread::sleep(Duration::from_millis(500));
    again.press("\x03");
    again.press("echo $((6 * 7))-awake\r");
    again.expect("42-awake");
    assert!(!again.shown().contains("42-slept"), "{}", again.shown());
    again.press(LEAVE);
    again.check_end(0);
    let log = place.output(&["logs", "--console", "web"]);
    assert!(text(&log.stdout).contains("kept-is-42"), "{log:?}");
    assert_eq!(place.says(&["logs", "web"]), "");
}

#[test]
fn the_console_ends_with_the_domain() {
    let place = Place::new();
    place.detach("web", "sleep 1000");
    let at = place.at_terminal(&["console", "web"]);
    at.expect("bivouac:");
    place.says(&["stop", "web"]);
    at.expect("domain web has ended");
    at.check_end(0);
    assert!(place.complains(&["console", "web"]).contains("is not running"));
}

#[test]
fn the_console_of_a_plain_machine_is_its_serial_port() {
    let place = Place::new();
    let kernel = Kernel::new("console", tiny_kernels::ECHO);
    let path = kernel.0.to_string_lossy();
    place.says(&["run", "-d", "--name", "plain", "--kernel", &path, "--debug-exit"]);
    let mut at = place.at_terminal(&["console", "plain"]);
    // It has said that it is there before anybody was.
    at.expect("R");
    at.press("echo");
    at.expect("Recho");
    at.press("q");
    at.expect("domain plain has ended");
    at.check_end(0);
    assert!(place.says(&["logs", "plain"]).starts_with("Recho"));
}

#[test]
fn a_kernel_that_is_told_so_has_its_console_on_virtio() {
    let place = Place::new();
    let initrd = initrd(&place);
    let kernel = cache().join("kernel/vmlinuz").to_string_lossy().into_owned();
    place.says(&[
        "run",
        "-d",
        "--name",
        "hvc",
        "--kernel",
        &kernel,
        "--initrd",
        &initrd,
        "--append",
        "quiet console=hvc0",
    ]);
    let mut at = place.at_terminal(&["console", "hvc"]);
    at.expect("on the console");
    at.press("tty <&1; stty size <&1\r");
    at.expect("24 80");
    at.press("poweroff -f\r");
    at.expect("domain hvc has ended");
    at.check_end(0);
}

/// Where the default guest is, which other tests have had fetched.
fn cache() -> PathBuf {
    provision::cache_directory().expect("there is a place for it")
}

/// An initial RAM disk with a shell on its kernel's console, once that has the driver for it.
fn initrd(place: &Place) -> String {
    let tree = place.path.join("tree");
    fs::create_dir_all(tree.join("bin")).expect("a directory");
    let busybox = cache().join("busybox/busybox");
    fs::copy(busybox, tree.join("bin/busybox")).expect("the default guest has been fetched");
    let script = "#!/bin/busybox sh\n\
        /bin/busybox mkdir -p /proc /dev\n\
        /bin/busybox mount -t devtmpfs none /dev\n\
        /bin/busybox --install /bin\n\
        for driver in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci \
            virtio_console; do insmod /drivers/$driver.ko; done\n\
        until [ -e /dev/hvc0 ]; do sleep 0.1; done\n\
        exec setsid sh -c 'exec sh </dev/hvc0 >/dev/hvc0 2>&1 -c \"echo on the console; exec sh \
        -i\"'\n";
    fs::write(tree.join("init"), script).expect("there is room");
    let path = place.path.join("initrd").to_string_lossy().into_owned();
    let pack = "cd \"$1\" && chmod +x init bin/busybox && cp -r \"$2\" drivers && \
        find . | cpio -o -H newc --quiet > \"$3\"";
    let status = Command::new("sh")
        .args(["-c", pack, "sh"])
        .args([&tree, &cache().join("kernel/drivers")])
        .arg(&path)
        .status();
    assert!(status.is_ok_and(|status| status.success()), "`cpio` is installed");
    path
}

#[test]
fn who_watches_a_command_types_what_it_reads_and_sees_how_it_ends() {
    let place = Place::new();
    let script = "n=0; trap 'n=$((n + 1)); echo caught $n' INT; echo up; \
        while :; do read line && echo \"got $line\" && echo oops >&2; [ \"$line\" = end ] && exit \
        7; done";
    let said = place.says(&[
        "run",
        "-d",
        "-i",
        "--name",
        "web",
        "--busybox",
        "--mem",
        "128M",
        "--",
        "sh",
        "-c",
        script,
    ]);
    assert_eq!(said, "web\n");
    wait_for("it listens", || place.output(&["logs", "web"]).stdout == b"up\n");
    let watch = |arguments: &[&str]| {
        let mut child = start(place.command(&[&["attach"], arguments, &["web"]].concat()));
        (
            child.stdin.take().expect("piped"),
            BufReader::new(child.stdout.take().expect("piped")),
            child,
        )
    };
    let line = |from: &mut dyn BufRead| {
        let mut line = String::new();
        from.read_line(&mut line).expect("it is readable");
        line
    };
    let (mut keys, mut screen, one) = watch(&[]);
    keys.write_all(b"hello\n").expect("it takes that");
    assert_eq!(line(&mut screen), "got hello\n");
    let (mut mute, mut other_screen, other) = watch(&["--no-stdin", "--sig-proxy=false"]);
    wait_for("two watch", || inspected(&place)["watchers"] == 2);
    // Nobody takes it; there is room in the pipe.
    mute.write_all(b"end\n").expect("there is room");
    keys.write_all(b"both\n").expect("it takes that");
    assert_eq!(
        (line(&mut screen), line(&mut other_screen)),
        ("got both\n".into(), "got both\n".into())
    );
    // A signal is the command's, or ours.
    signal(one.id(), "INT");
    assert_eq!(line(&mut screen), "caught 1\n");
    signal(other.id(), "TERM");
    assert_eq!(end_of(other).status.code(), Some(143));
    // The end of what one types is not that of the command's input.
    drop(keys);
    let (mut keys, mut screen, last) = watch(&[]);
    wait_for("another watches", || inspected(&place)["watchers"] == 2);
    keys.write_all(b"end\n").expect("it takes that");
    assert_eq!(line(&mut screen), "got end\n");
    assert_eq!(end_of(last).status.code(), Some(7));
    let ended = end_of(one);
    assert_eq!(ended.status.code(), Some(7));
    assert_eq!(ended.stderr, b"oops\noops\noops\n");
    assert_eq!(place.says(&["wait", "web"]), "7\n");
    assert_eq!(
        place.output(&["logs", "web"]).stdout,
        b"up\ngot hello\ngot both\ncaught 1\ngot end\n"
    );
}

/// What the domain says of itself.
fn inspected(place: &Place) -> Value {
    let all: Value = serde_json::from_str(&place.says(&["inspect", "web"])).expect("JSON");
    all[0].clone()
}

#[test]
fn a_commands_terminal_can_be_sat_at() {
    let place = Place::new();
    place.says(&[
        "run",
        "-d",
        "-t",
        "--name",
        "web",
        "--busybox",
        "--mem",
        "128M",
        "--",
        "sh",
        "-l",
    ]);
    let mut at = place.at_terminal(&["attach", "web"]);
    at.expect("attached to the command of web; press Ctrl-] to detach");
    at.press("until stty size | grep '24 80'; do sleep 0.1; done; tty; echo $((6 * 7))-there\r");
    at.expect("42-there");
    at.expect("/dev/pts/");
    at.press(LEAVE);
    at.check_end(0);
    let mut at = place.at_terminal(&["attach", "web"]);
    at.press("exit 5\r");
    at.check_end(5);
    wait_for("it has ended", || place.state("web").as_deref() == Some("ended (5)"));
    assert!(place.complains(&["attach", "web"]).contains("is not running"));
}
