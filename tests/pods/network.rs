//! The network of a pod: what it reaches, how it is reached, and what happens when the other end goes. Everything
//! happens on the host's loopback interface.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use whole_machine::processes::{descendants_of, stat, unconfined};
use whole_machine::text;
use whole_machine::waiting::wait_for;

use crate::names::{make_root, open_to_all};
use crate::place::{Place, end_of, start};

/// How long a socket of the host's waits before a test gives up.
const PATIENCE: Duration = Duration::from_secs(300);

/// How long a datagram is waited for, and how often one is sent.
const DATAGRAM_PATIENCE: Duration = Duration::from_secs(1);
const DATAGRAMS: u32 = 60;

/// A pod that sleeps, with the program that checks names.
fn sleeper(place: &Place, name: &str, options: &[&str]) {
    let run = [&["run", "-d", "--name", name], options, &["--", "sleep", "1000"]].concat();
    assert_eq!(place.says(&run), format!("{name}\n"));
    place.give_probe(name);
}

/// Bytes that are not all alike.
fn bytes(count: u32) -> Vec<u8> {
    (0..count).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

/// Servers on the loopback interface that repeat what they hear, of TCP and of UDP: their ports.
pub fn echo() -> (u16, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let ports =
        (listener.local_addr().expect("bound").port(), socket.local_addr().expect("bound").port());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut ear = stream.try_clone()?;
                std::io::copy(&mut ear, &mut stream)?;
                stream.shutdown(Shutdown::Write)
            });
        }
    });
    thread::spawn(move || {
        let mut buffer = [0; 1 << 16];
        while let Ok((count, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..count], from);
        }
    });
    ports
}

/// A port of TCP on the loopback interface that is free now.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("bound").port()
}

/// What the probe in a pod says, which sends `input`.
#[track_caller]
fn asked(place: &Place, name: &str, address: &str, input: &[u8]) -> Vec<u8> {
    let mut command = place.command(&["exec", "-i", name, "/tmp/pod-probe", "ask", "tcp", address]);
    command.stdin(Stdio::piped());
    let mut child = start(command);
    let mut stdin = child.stdin.take().expect("piped");
    let input = input.to_vec();
    let writer = thread::spawn(move || stdin.write_all(&input));
    let output = end_of(child);
    let _ = writer.join().expect("it ends");
    assert!(output.status.success(), "{}", text(&output.stderr));
    output.stdout
}

/// Whether somebody is at the other end of a pod's interface.
fn has_carrier(place: &Place, name: &str) -> bool {
    place.says(&["exec", name, "/tmp/pod-probe", "carrier"]) == "yes\n"
}

/// The network's process of a pod.
fn process(place: &Place, name: &str) -> Option<Pid> {
    let all = descendants_of(place.pid(name));
    let is_one = |it: &u32| stat(*it).is_some_and(|it| it.name == "biv network");
    let number = all.into_iter().find(is_one)?;
    assert_eq!(unconfined(&[number]), Vec::<String>::new());
    Pid::from_raw(number.cast_signed())
}

#[test]
fn a_pod_has_the_network_that_a_machine_has() {
    let Some(place) = Place::new() else { return };
    let says = |options: &[&str], script: &str| {
        place.says(&[&["run"], options, &["--", "sh", "-c", script]].concat())
    };
    assert_eq!(says(&[], "cat /etc/resolv.conf"), "nameserver 10.0.2.3\n");
    let routes = says(&[], "cat /proc/net/route");
    // The default route, of which addresses have their last byte first.
    let default = |line: &str| line.split_whitespace().take(3).eq(["eth0", "00000000", "0202000A"]);
    assert!(routes.lines().any(default), "{routes}");
    assert_eq!(says(&[], "cat /proc/net/if_inet6 2>/dev/null | grep -c eth0 || :"), "0\n");
    let devices = says(&["--net", "none"], "cat /proc/net/dev");
    assert!(devices.contains("lo:") && !devices.contains("eth0"), "{devices}");
    for wrong in ["tap:x", "vif,ip=10.77.0.2", "user,host,backend=passt", "host"] {
        let complaint = place.complains(&["run", "--net", wrong, "--", "true"]);
        assert!(complaint.contains("none, user or user,host"), "{complaint}");
    }
    let complaint = place.complains(&["run", "--net", "none", "-p", "8080:80", "--", "true"]);
    assert!(complaint.contains("--publish requires --net user"), "{complaint}");
}

#[test]
fn a_root_keeps_its_own_file_of_name_servers() {
    let Some(place) = Place::new() else { return };
    let root = place.path.join("root");
    make_root(&root);
    open_to_all(&place.path);
    let path = root.to_str().expect("text");
    let run = |options: &[&str]| {
        let command = ["--", "/bin/cat", "/etc/resolv.conf"];
        place.output(&[&["run", "--root", path], options, &command].concat())
    };
    let file = root.join("etc/resolv.conf");
    assert_eq!(text(&run(&[]).stdout), "nameserver 10.0.2.3\n", "there is none in the root");
    assert!(!file.exists());
    std::fs::write(&file, "nameserver 192.0.2.1\n").expect("a file");
    for options in [&[][..], &["--rw"]] {
        if options.contains(&"--rw") && rustix::process::geteuid().is_root() {
            println!("without --rw: root's pods own nothing of the host");
            continue;
        }
        assert_eq!(text(&run(options).stdout), "nameserver 10.0.2.3\n", "{options:?}");
        let kept = std::fs::read_to_string(&file).expect("it is there");
        assert_eq!(kept, "nameserver 192.0.2.1\n", "{options:?}");
    }
    let alone = run(&["--net", "none"]);
    assert_eq!(text(&alone.stdout), "nameserver 192.0.2.1\n");
}

#[test]
fn the_host_is_reached_by_who_may() {
    let Some(place) = Place::new() else { return };
    let (tcp, udp) = echo();
    sleeper(&place, "open", &["--net", "user,host"]);
    sleeper(&place, "closed", &[]);
    let sent = bytes(1 << 19);
    assert!(asked(&place, "open", &format!("10.0.2.2:{tcp}"), &sent) == sent, "2 MiB each way");
    for number in 0..20 {
        let line = format!("{number}\n");
        let heard = asked(&place, "open", &format!("10.0.2.2:{tcp}"), line.as_bytes());
        assert_eq!(text(&heard), line);
    }
    let ask = |name, address: &str, word: &str| {
        place.output(&["exec", name, "/tmp/pod-probe", "ask", "udp", address, word])
    };
    let large = "x".repeat(40_000);
    for word in ["datagram", &large] {
        let output = ask("open", &format!("10.0.2.2:{udp}"), word);
        assert_eq!(text(&output.stdout), word, "{output:?}");
    }
    for address in [format!("10.0.2.2:{tcp}"), format!("127.0.0.1:{tcp}")] {
        let output = place.output(&["exec", "closed", "/tmp/pod-probe", "ask", "tcp", &address]);
        assert!(text(&output.stderr).contains("refused"), "{address}: {output:?}");
    }
    let output = ask("closed", &format!("10.0.2.2:{udp}"), "datagram");
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
}

#[test]
fn published_ports_lead_to_the_pod() {
    let Some(place) = Place::new() else { return };
    let (tcp, udp) = (free_port(), free_port());
    let published = [format!("127.0.0.1:{tcp}:80"), format!("{udp}:80/udp")];
    let publish = ["-p", &published[0], "-p", &published[1]];
    sleeper(&place, "web", &publish);
    let server = start(place.command(&["exec", "web", "/tmp/pod-probe", "serve", "80"]));
    let sent = bytes(1 << 18);
    let heard = || {
        let mut stream = TcpStream::connect(("127.0.0.1", tcp)).expect("it is published");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        let mut heard = Vec::new();
        // Until it serves, who connects is sent away.
        stream.write_all(&sent).ok()?;
        stream.shutdown(Shutdown::Write).ok()?;
        stream.read_to_end(&mut heard).ok().filter(|count| *count > 0).map(|_| heard)
    };
    wait_for("it serves", || heard().is_some());
    assert!(heard().is_some_and(|heard| heard == sent), "1 MiB each way");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.set_read_timeout(Some(DATAGRAM_PATIENCE)).expect("a limit");
    let mut buffer = [0; 64];
    let is_answered = (0..DATAGRAMS).any(|_| {
        socket.send_to(b"datagram", ("127.0.0.1", udp)).expect("it is sent");
        matches!(socket.recv(&mut buffer), Ok(8))
    });
    assert!(is_answered && buffer.starts_with(b"datagram"));

    let complaint = place.complains(&["run", publish[0], publish[1], "--", "true"]);
    assert!(complaint.contains(&format!("cannot publish port {}", published[0])), "{complaint}");
    let inspected: Value = serde_json::from_str(&place.says(&["inspect", "web"])).expect("JSON");
    let network = &inspected[0]["record"]["network"];
    assert_eq!(network["publish"][0]["host"], tcp);
    assert_eq!(network["publish"][1]["udp"], true);
    let listed = place.says(&["ps"]);
    assert!(listed.contains(&format!("127.0.0.1:{tcp}:80")), "{listed}");
    place.says(&["rm", "--force", "web"]);
    drop(end_of(server));
    // Nobody has them any more.
    TcpListener::bind(("127.0.0.1", tcp)).expect("it is free");
}

#[test]
fn a_pod_goes_on_without_its_network() {
    let Some(place) = Place::new() else { return };
    let (tcp, _) = echo();
    sleeper(&place, "web", &["--net", "user,host"]);
    wait_for("somebody is at the other end", || has_carrier(&place, "web"));
    assert_eq!(asked(&place, "web", &format!("10.0.2.2:{tcp}"), b"hello"), b"hello");
    let network = process(&place, "web").expect("the network's process");
    kill_process(network, Signal::KILL).expect("it lives");
    wait_for("nobody is at the other end", || !has_carrier(&place, "web"));
    assert_eq!(place.state("web").as_deref(), Some("running"));
    place.says(&["stop", "web"]);
    assert_eq!(place.state("web").as_deref(), Some("ended (143)"));
}
