//! The network of pods in machines: what they reach, how they are reached, and that they keep it when they move.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Output, Stdio};
use std::time::Duration;

use whole_machine::waiting::wait_for;
use whole_machine::{kernels, text};

use crate::machines::Machine;
use crate::network::{echo, free_port};
use crate::place::{COUNTS, Place, end_of, probe, start};

/// How long a socket of the host's waits before a test gives up.
const PATIENCE: Duration = Duration::from_secs(300);

/// Puts the program that checks names into a pod of the machine's.
fn give_probe(machine: &Machine, name: &str) {
    let put = "cat >/tmp/pod-probe && chmod 755 /tmp/pod-probe";
    let words = ["pod", "exec", "--in", "m", "-i", name, "sh", "-c", put];
    let mut command = machine.user.command(&words);
    let program = std::fs::File::open(probe()).expect("it is built");
    let status = command.stdin(program).status().expect("biv can be started");
    assert!(status.success(), "cannot copy the probe");
}

/// What the probe in a pod of the machine's hears from there, to which it sends a word.
fn ask(machine: &Machine, name: &str, address: &str) -> Output {
    let probe = ["/tmp/pod-probe", "ask", "tcp", address];
    let words = [&["pod", "exec", "--in", "m", "-i", name], &probe[..]].concat();
    let mut command = machine.user.command(&words);
    command.stdin(Stdio::piped());
    let mut child = start(command);
    let _ = child.stdin.take().expect("piped").write_all(b"a word");
    end_of(child)
}

#[track_caller]
fn hears(machine: &Machine, name: &str, address: &str) {
    let output = ask(machine, name, address);
    assert_eq!(text(&output.stdout), "a word", "{name} asks {address}: {output:?}");
}

/// Starts a pod of the machine's in a network that it shares, which serves port 80.
fn serve(machine: &Machine, options: &[&str]) {
    let run = ["run", "-d", "--name", "web", "--network", "backend"];
    let script = "until [ -x /tmp/pod-probe ]; do sleep 0.05; done; exec /tmp/pod-probe serve 80";
    machine.pod(&[&run[..], options, &["--", "sh", "-c", script]].concat());
    give_probe(machine, "web");
}

#[test]
fn pods_of_a_machine_have_the_network_that_pods_have() {
    let Some(place) = Place::new() else { return };
    let (outside, _) = echo();
    let port = free_port();
    let published = format!("{port}:8080");
    let machine = Machine::with(place, &["--net", "user,host", "--publish", &published]);
    let script = "cat /etc/resolv.conf; grep -c eth0 /proc/net/route";
    let said = machine.pod(&["run", "--", "sh", "-c", script]);
    assert_eq!(said, "nameserver 10.0.2.3\n2\n");
    machine.pod(&["network", "create", "backend"]);
    serve(&machine, &["--publish", "0.0.0.0:8080:80"]);
    machine.pod(&["run", "-d", "--name", "other", "--network", "backend", "--", "sleep", "1000"]);
    give_probe(&machine, "other");
    // The neighbour, by its name; a server on the host, behind the machine's own gateway.
    hears(&machine, "other", "web:80");
    hears(&machine, "other", &format!("10.0.2.2:{outside}"));
    // And from the host, through both.
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    stream.write_all(b"hello").expect("somebody hears it");
    stream.shutdown(Shutdown::Write).expect("it is open");
    let mut heard = String::new();
    stream.read_to_string(&mut heard).expect("an answer");
    assert_eq!(heard, "hello");
    // Who is alone has no neighbours, and does not see the machine unless it is to.
    let in_machine = "busybox nc -ll -p 7000 -e cat >/dev/null 2>&1 & echo begun";
    assert_eq!(machine.user.says(&["exec", "m", "sh", "-c", in_machine]), "begun\n");
    for (name, net) in [("alone", "user"), ("guest", "user,host")] {
        machine.pod(&["run", "-d", "--name", name, "--net", net, "--", "sleep", "1000"]);
        give_probe(&machine, name);
    }
    wait_for("the machine's server", || {
        text(&ask(&machine, "guest", "10.0.2.2:7000").stdout) == "a word"
    });
    let refused = ask(&machine, "alone", "10.0.2.2:7000");
    assert!(!refused.status.success() && refused.stdout.is_empty(), "{refused:?}");
}

/// A connection to a server outside ends, and a new one can be made on the other side.
#[test]
fn a_pod_has_a_network_wherever_it_moves() {
    let Some(place) = Place::new() else { return };
    let machine = Machine::with(place, &["--net", "user"]);
    machine.says(&["run", "-d", "--name", "web", "--", "sh", "-c", COUNTS]);
    let routes = ["grep", "-c", "eth0", "/proc/net/route"];
    assert_eq!(machine.says(&[&["exec", "web"], &routes[..]].concat()), "2\n");
    machine.says(&["migrate", "web", "machine:m"]);
    machine.says(&["rm", "--force", "web"]);
    wait_for("it counts in the machine", || {
        text(&machine.user.output(&["pod", "logs", "--in", "m", "web"]).stdout).lines().count() > 2
    });
    assert_eq!(machine.pod(&[&["exec", "web"], &routes[..]].concat()), "2\n");
    machine.pod(&["migrate", "web", "here"]);
    assert_eq!(machine.says(&[&["exec", "web"], &routes[..]].concat()), "2\n");
    machine.says(&["rm", "--force", "web"]);
    machine.pod(&["rm", "--force", "web"]);
    // Who wants none there says so.
    machine.says(&["run", "-d", "--name", "web", "--", "sh", "-c", COUNTS]);
    machine.says(&["migrate", "--net", "none", "web", "machine:m"]);
    let routes = machine.user.output(&[
        "pod",
        "exec",
        "--in",
        "m",
        "web",
        "grep",
        "eth0",
        "/proc/net/route",
    ]);
    assert_eq!(text(&routes.stdout), "", "{routes:?}");
    let complaint = machine.complains(&["migrate", "--net", "none", "web", "unix:/nowhere"]);
    assert!(complaint.contains("machine:DOMAIN"), "{complaint}");
}

/// A directory in which something is mounted is laid entry by entry, with all links that the host has there.
#[test]
fn a_pod_moves_out_of_a_machine_that_has_something_mounted_among_its_libraries() {
    let Some(place) = Place::new() else { return };
    let volume = format!("{}:/usr/lib/biv-test", place.path.display());
    let machine = Machine::with(place, &["--net", "none", "--volume", &volume]);
    machine.says(&["run", "-d", "--net", "none", "--name", "web", "--", "sh", "-c", COUNTS]);
    machine.says(&["migrate", "--net", "none", "web", "machine:m"]);
    machine.says(&["rm", "--force", "web"]);
    let mounted = ["exec", "web", "grep", "-c", "/usr/lib/", "/proc/self/mountinfo"];
    assert_ne!(machine.pod(&mounted), "0\n");
    machine.pod(&["migrate", "web", "here"]);
    let counts = || text(&machine.user.output(&["pod", "logs", "web"]).stdout).lines().count();
    wait_for("it counts on the host", || counts() > 2);
}

/// From the host to a machine with an older kernel, from there to one with a newer kernel, and back.
#[test]
fn a_pod_moves_between_kernels_that_are_not_alike() {
    let Some(place) = Place::new() else { return };
    let older = match kernels::pulled("bookworm", "6.1") {
        Ok(older) => older,
        Err(why) => return println!("skipped: no Linux 6.1: {why}"),
    };
    let machine = Machine::with(place, &["--kernel", &older, "--mem", "512M"]);
    let newer = ["run", "-d", "--name", "n", "--mem", "512M", "--", "sleep", "100000"];
    machine.user.says(&newer);
    let script = "n=0; while :; do n=$((n+1)); echo $n $(uname -r); sleep 0.05; done";
    machine.says(&["run", "-d", "--name", "web", "--", "sh", "-c", script]);
    let release = |words: &[&str]| machine.user.says(words).trim().to_owned();
    let host = release(&["pod", "run", "--", "uname", "-r"]);
    let [first, second] = ["m", "n"].map(|name| release(&["exec", name, "uname", "-r"]));
    println!("{host}, {first}, {second}, {host}");
    assert!(first.starts_with("6.1.") && first != second, "{first} {second}");
    let (here, in_older, in_newer): (&[&str], &[&str], &[&str]) =
        (&["pod"], &["pod", "--in", "m"], &["pod", "--in", "n"]);
    let ways: [(&[&str], &[&str], &str); 3] =
        [(here, in_older, &first), (in_older, in_newer, &second), (in_newer, here, &host)];
    let mut last = 0;
    for (from, to, kernel) in ways {
        move_through_streams(&machine, from, to);
        machine.user.says(&[from, &["rm", "--force", "web"]].concat());
        let log = || text(&machine.user.output(&[to, &["logs", "web"]].concat()).stdout);
        wait_for("it counts", || log().lines().count() > 4);
        // What was being written when it moved belongs to the place before.
        for line in log().lines().skip(1) {
            let (number, of) = line.split_once(' ').expect("two words");
            let number: u64 = number.parse().expect("a number");
            assert!(number > last && of == kernel, "{line} after {last}, on {kernel}");
            last = number;
        }
    }
    machine.user.says(&["rm", "--force", "n"]);
}

/// Moves a pod from one place to another, over standard streams that are connected.
fn move_through_streams(machine: &Machine, from: &[&str], to: &[&str]) {
    let (one, other) = UnixStream::pair().expect("a pair");
    let begin = |words: &[&str], line: UnixStream| {
        let mut command = machine.user.command(words);
        let input = line.try_clone().expect("a copy");
        command.stdin(OwnedFd::from(input)).stdout(OwnedFd::from(line)).stderr(Stdio::piped());
        command.spawn().expect("biv can be started")
    };
    let receiver = begin(&[to, &["receive", "-"]].concat(), other);
    let sender = begin(&[from, &["migrate", "web", "-"]].concat(), one);
    for child in [sender, receiver] {
        let output = end_of(child);
        assert!(output.status.success(), "{from:?} {to:?}: {output:?}");
    }
}
