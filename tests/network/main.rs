//! Guests on networks: what they reach, how they are reached, and what happens when the other end goes.
//! Everything happens on the host's loopback interface.

#![forbid(unsafe_code)]

mod programs;
mod servers;
mod tap;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use whole_machine::complaints::complaint;
use whole_machine::modes::Mode;
use whole_machine::processes::descendants;
use whole_machine::{biv, bivouac, in_mode, text};

/// How long a socket waits before a test gives up.
const PATIENCE: Duration = Duration::from_secs(300);

/// Who can make a network of the user's own on this host.
fn backends() -> Vec<&'static str> {
    let has_passt = Command::new("passt").arg("--version").output().is_ok();
    if !has_passt {
        println!("without passt, which is not installed");
    }
    let passt = has_passt.then_some("user,host,backend=passt");
    passt.into_iter().chain(["user,host,backend=builtin"]).collect()
}

/// What a program says that reads `input`.
fn through(program: &[&str], input: Vec<u8>) -> String {
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it can be started");
    let mut stdin = child.stdin.take().expect("piped");
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("it is written").expect("it is read");
    text(&output.stdout).trim().to_owned()
}

const MANY: usize = 20_000_000;

/// Gets the program for datagrams.
fn fetch() -> String {
    let program = std::fs::read(concat!(env!("NETWORK_ROOT"), "/datagram")).expect("it was built");
    let port = servers::source(program);
    format!("host=10.0.2.2; wget -qO /tmp/datagram http://$host:{port}/; chmod +x /tmp/datagram;")
}

fn a_guest_reaches_servers(mode: Mode) {
    for backend in backends() {
        reach_servers(mode, "--busybox", backend);
    }
}

fn a_paravirtual_guest_reaches_servers(mode: Mode) {
    reach_servers(mode, "--xen", "user,host,backend=builtin");
}

/// A machine of a kind gets bytes and datagrams from servers.
fn reach_servers(mode: Mode, kind: &str, backend: &str) {
    let (source, datagrams) = (servers::source(servers::bytes(MANY)), servers::datagram_echo());
    let script = format!(
        "{} cat /sys/class/net/eth0/carrier /etc/resolv.conf
            wget -qO- http://$host:{source}/ | sha256sum
            /tmp/datagram ask $host {datagrams} datagram
            dmesg",
        fetch()
    );
    let said = mode.shell(&[kind, "--net", backend], &script);
    let lines: Vec<&str> = said.lines().collect();
    let digest = through(&["sha256sum"], servers::bytes(MANY));
    let expected = ["1", "nameserver 10.0.2.3", &digest, "datagram"];
    assert_eq!(lines[..4], expected, "{backend}: {said}");
    assert_eq!(complaint(&said), None, "{backend}: {said}");
}

/// What Debian 12's passt does not tell a guest: that the other side has said all when the guest had
/// before; that nobody listens.
fn each_side_ends_by_itself(mode: Mode) {
    let (sink, heard) = servers::sink();
    let (echo, source) = (servers::echo(), servers::source(servers::bytes(MANY)));
    let nobody = servers::nobody();
    let script = format!(
        "host=10.0.2.2; echo hello | nc $host {echo}
        nc $host {source} </dev/null | sha256sum
        seq 2000000 | nc $host {sink}
        n=0; while [ $n -lt 40 ]; do n=$((n+1)); echo $n | nc $host {echo}; done | sort | uniq | \
        wc -l
        n=0; while [ $n -lt 20 ]; do n=$((n+1)); echo $n | nc $host {echo} & done | sort | uniq | \
        wc -l
        nc $host {nobody} </dev/null 2>/dev/null || echo refused"
    );
    let said = mode.shell(&["--busybox", "--net", "user,host,backend=builtin"], &script);
    let lines: Vec<&str> = said.lines().collect();
    let digest = through(&["sha256sum"], servers::bytes(MANY));
    let expected: Vec<u8> = (1..=2_000_000).flat_map(|n| format!("{n}\n").into_bytes()).collect();
    let count = expected.len().to_string();
    assert_eq!(lines, ["hello", &digest, &count, "40", "20", "refused"], "{said}");
    let heard = heard.recv_timeout(PATIENCE).expect("the sink has heard something");
    assert!(heard == expected, "what arrived is not what was sent");
}

/// A port that is free now, of TCP and of UDP.
fn free_port() -> String {
    servers::nobody().to_string()
}

fn a_guest_is_reached_through_published_ports(mode: Mode) {
    for backend in backends() {
        let (tcp, udp) = (free_port(), free_port());
        let published = [format!("127.0.0.1:{tcp}:80"), format!("{udp}:7777/udp")];
        let script = fetch()
            + "mkdir /tmp/w; echo page >/tmp/w/page; seq 300000 >/tmp/w/long
            httpd -p 80 -h /tmp/w; /tmp/datagram echo 7777 & echo up; read line";
        let options =
            ["--busybox", "--net", backend, "--publish", &published[0], "--publish", &published[1]];
        let mut command = mode.run(&[&options[..], &["--", "sh", "-c", &script]].concat());
        let (mut child, _stdout) = start_until_up(&mut command, backend);
        let get = |path: &str| {
            let mut stream = TcpStream::connect(format!("127.0.0.1:{tcp}")).expect("it listens");
            stream.set_read_timeout(Some(PATIENCE)).expect("it can be set");
            write!(stream, "GET /{path} HTTP/1.0\r\n\r\n").expect("it can be written");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).map(|_| answer)
        };
        let pages: Vec<_> = (0..5).map(|_| get("page")).collect();
        let long = get("long");
        let answer = ask(&format!("127.0.0.1:{udp}"));
        drop(child.stdin.take());
        let _ = child.wait();
        for page in pages {
            let page = page.expect("it can be read");
            assert!(page.ends_with("\r\n\r\npage\n"), "{backend}: {page}");
        }
        let expected: String = (1..=300_000).map(|n| format!("{n}\n")).collect();
        let long = long.expect("it can be read");
        assert!(long.ends_with(&expected), "{backend}: {} bytes", long.len());
        assert_eq!(answer.as_deref(), Some("knock knock"), "{backend}");
    }
}

/// Starts a machine whose script says "up" when it can be reached; with its output, which it may go on to write to.
fn start_until_up(command: &mut Command, backend: &str) -> (Child, BufReader<ChildStdout>) {
    let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = started.expect("biv can be started");
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    stdout.read_line(&mut line).expect("it can be read");
    assert_eq!(line, "up\n", "{backend}: the machine does not start");
    (child, stdout)
}

/// The guest has IPv4 only, and who comes by IPv6 is led to that.
#[test]
fn a_guest_is_reached_at_an_address_of_ipv6() {
    if UdpSocket::bind("[::1]:0").is_err() {
        eprintln!("left out: this host's loopback interface has no address of IPv6");
        return;
    }
    let (tcp, udp) = (free_port(), free_port());
    let published =
        [format!("[::1]:{tcp}:80"), format!("127.0.0.1:{tcp}:81"), format!("[::]:{udp}:7777/udp")];
    let [one, other, datagrams] = &published;
    let script = fetch()
        + "mkdir /tmp/w /tmp/v; echo six >/tmp/w/page; echo four >/tmp/v/page
        httpd -p 80 -h /tmp/w; httpd -p 81 -h /tmp/v; /tmp/datagram echo 7777 & echo up; read line";
    let ports = ["-p", one, "-p", other, "-p", datagrams];
    let mut command = Command::new(bivouac());
    command.args(["run", "--busybox", "--net", "user,host"]).args(ports);
    let (mut child, _stdout) =
        start_until_up(command.args(["--", "sh", "-c", &script]), "built in");
    let get = |address: &str| {
        let mut stream = TcpStream::connect(format!("{address}:{tcp}")).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.write_all(b"GET /page HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.lines().last().map(str::to_owned)
    };
    let pages = [get("[::1]"), get("127.0.0.1")];
    let answers = [ask(&format!("[::1]:{udp}")), ask(&format!("127.0.0.1:{udp}"))];
    drop(child.stdin.take());
    let _ = child.wait();
    assert_eq!(pages.map(|page| page.unwrap_or_default()), ["six", "four"]);
    // All addresses of IPv6 are no address of IPv4.
    assert_eq!(answers, [Some("knock knock".to_owned()), None]);
}

/// What comes back from a port of UDP. Datagrams may be lost: it is asked again, unless nobody is there.
fn ask(at: &str) -> Option<String> {
    let ours = if at.starts_with('[') { "[::1]:0" } else { "127.0.0.1:0" };
    let socket = UdpSocket::bind(ours).expect("a port of the loopback interface");
    socket.connect(at).expect("it is a port of this host");
    socket.set_read_timeout(Some(Duration::from_secs(1))).expect("it can be set");
    let mut buffer = [0; 64];
    (0..30).find_map(|_| {
        socket.send(b"knock knock").ok()?;
        let count = socket.recv(&mut buffer).ok()?;
        Some(text(&buffer[..count]))
    })
}

in_mode!(
    auto_on_1,
    Auto,
    1,
    a_guest_reaches_servers,
    a_paravirtual_guest_reaches_servers,
    a_guest_is_reached_through_published_ports,
    each_side_ends_by_itself
);
in_mode!(
    direct_on_4,
    Direct,
    4,
    a_guest_reaches_servers,
    a_paravirtual_guest_reaches_servers,
    each_side_ends_by_itself
);

/// A machine of a kind whose network's process is killed when it has said a line; the script's output, and what is
/// said to the user.
fn without_network(kind: &str, script: &str) -> (String, String) {
    let mode = Mode { execution: whole_machine::modes::UserExecution::Auto, processors: 1 };
    let mut child = mode
        .run(&[kind, "--net", "user,backend=builtin", "--", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("biv can be started");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("it can be read");
    let is_network = |process: &&u32| {
        let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let parent = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let is_ours = parent.contains(&format!(" {} ", child.id()));
        is_ours && line.split(|byte| *byte == 0).nth(1) == Some(b"--bivouac-process=network")
    };
    let all = descendants();
    let network = all.iter().find(is_network).expect("it has a process");
    let killed = Command::new("kill").args(["-KILL", &network.to_string()]).status();
    assert!(killed.is_ok_and(|status| status.success()));
    drop(child.stdin.take());
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).expect("it can be read");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0));
    (line + &rest, text(&output.stderr))
}

#[test]
fn the_machine_goes_on_when_its_network_ends() {
    let script = "cat /sys/class/net/eth0/carrier; read line; n=0
        while [ $(cat /sys/class/net/eth0/carrier) = 1 ] && [ $n -lt 500 ]; do
            n=$((n+1)); sleep 0.02; done; cat /sys/class/net/eth0/carrier; echo goes on";
    let (output, said) = without_network("--busybox", script);
    assert_eq!(output, "1\n0\ngoes on\n");
    assert!(said.contains("the guest's network is down"), "{said}");
}

/// Xen's protocol has no word for a link that is down: packets are lost.
#[test]
fn a_paravirtual_machine_goes_on_when_its_network_ends() {
    let script = "gateway=10.0.2.2; ping -c 1 $gateway >&2 && echo there; read line
        ping -c 2 -W 1 $gateway >&2 || echo lost; echo goes on";
    let (output, said) = without_network("--xen", script);
    assert_eq!(output, "there\nlost\ngoes on\n", "{said}");
    assert_eq!(said.matches("the guest's network is down").count(), 1, "{said}");
}

#[test]
fn what_cannot_be_is_refused_with_a_reason() {
    let check = |options: &[&str], expected: &[&str]| {
        let line = [&["run"], options, &["--", "true"]].concat();
        let output = biv(&line).output().expect("biv can be started");
        let said = text(&output.stderr);
        assert_ne!(output.status.code(), Some(0), "{options:?}");
        assert!(expected.iter().all(|word| said.contains(word)), "{options:?}: {said}");
        // A usage error is followed by how it is used.
        let lines = if output.status.code() == Some(2) { 5 } else { 1 };
        assert_eq!(said.lines().count(), lines, "{said}");
    };
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("it is bound").port();
    let published = format!("127.0.0.1:{port}:80");
    check(&["--publish", &published], &[&published, "in use", "choose another"]);
    check(&["--net", "none", "--publish", "8080:80"], &["--publish", "--net user"]);
    check(&["--net", "tap:no/such"], &["no/such", "name"]);
}

/// By default, a guest neither reaches this host nor hangs when it tries; names are answered all the same.
#[test]
fn the_host_is_out_of_reach() {
    let mode = Mode { execution: whole_machine::modes::UserExecution::Auto, processors: 1 };
    let port = servers::echo_for_all();
    // What the guest calls its own loopback interface is its own.
    let script = format!(
        "for host in 10.0.2.2 {} 169.254.169.254; do
            echo secret | timeout 20 nc $host {port}; echo $host $?; done
        cat /etc/resolv.conf",
        servers::own_addresses().join(" ")
    );
    let said = mode.shell(&["--busybox"], &format!("exec 2>&1; {script}"));
    assert!(!said.contains("secret"), "{said}");
    // 143 would be timeout's.
    assert!(!said.contains(" 143") && !said.contains(" 0"), "{said}");
    assert!(said.contains("10.0.2.2 1") && said.contains("169.254.169.254 1"), "{said}");
    assert!(said.ends_with("nameserver 10.0.2.3\n"), "{said}");
    let said = mode
        .shell(&["--busybox", "--net", "user,host"], &format!("echo secret | nc 10.0.2.2 {port}"));
    assert_eq!(said, "secret\n");
}

/// A port that is published without an address can be reached by this host's programs only.
#[test]
fn a_published_port_is_this_hosts_unless_an_address_is_given() {
    let mode = Mode { execution: whole_machine::modes::UserExecution::Auto, processors: 1 };
    for backend in backends() {
        let (ours, all) = (free_port(), free_port());
        let published = [format!("{ours}:80"), format!("0.0.0.0:{all}:80")];
        let [one, other] = &published;
        let options = ["--busybox", "--net", backend, "--publish", one, "--publish", other];
        let mut child = mode
            .run(&[&options[..], &["--", "sh", "-c", "echo up; read line"]].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("biv can be started");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        stdout.read_line(&mut String::new()).expect("it can be read");
        let is_taken =
            |address: &str, port: &str| TcpListener::bind(format!("{address}:{port}")).is_err();
        // Another address of the loopback interface is as good as one of another interface.
        let found =
            [&ours, &all].map(|port| [is_taken("127.0.0.1", port), is_taken("127.0.0.2", port)]);
        drop(child.stdin.take());
        let _ = child.wait();
        assert_eq!(found, [[true, false], [true, true]], "{backend}");
    }
}
