//! Clients come and go, and are lost.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use whole_machine::waiting::wait_for;
use whole_machine::{biv, text};

use crate::{Machine, is_possible};

/// Rounds of the program: some seconds.
const ROUNDS: &str = "3000";

#[test]
fn a_machine_goes_on_when_gdb_is_killed() {
    if !is_possible() {
        return;
    }
    let machine = Machine::start(&[], &["/t/program", ROUNDS, "/t/attached"]);
    machine.wait_for("up");
    // Stopped at a breakpoint; running to one, again and again; with a watchpoint.
    let sessions: [&[&str]; 3] = [
        &[
            "break work",
            "continue",
            "echo ready\\n",
            "monitor processors",
            "python import time; time.sleep(100)",
        ],
        &["break work if 0", "echo ready\\n", "continue"],
        &["watch counter if 0", "echo ready\\n", "continue"],
    ];
    for commands in sessions {
        let mut gdb = machine.gdb(commands).stdout(Stdio::piped()).spawn().expect("there is gdb");
        let mut output = gdb.stdout.take().expect("a pipe");
        let (mut said, mut byte) = (Vec::new(), [0]);
        while !text(&said).contains("ready") && output.read(&mut byte).is_ok_and(|read| read > 0) {
            said.push(byte[0]);
        }
        assert!(text(&said).contains("ready"), "{}", text(&said));
        std::thread::sleep(Duration::from_millis(300));
        gdb.kill().expect("it was started");
        let _ = gdb.wait();
    }
    let end = machine.end();
    assert!(end.contains("counter 3000 traps 3000 own 20"), "{end}");
}

#[test]
fn what_is_no_gdb_is_disconnected_and_a_second_client_is_turned_away() {
    if !is_possible() {
        return;
    }
    let machine = Machine::start(&[], &["sh", "-c", "echo up; sleep 3; echo finished"]);
    machine.wait_for("up");
    let connect = || UnixStream::connect(machine.place.path("gdb")).expect("it listens");
    for nonsense in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"$vCont;s#b8", b"$m0,ffffffff#00\x03\x03$"] {
        connect().write_all(nonsense).expect("it listens");
    }
    let first = connect();
    // It is served: the answer to an acknowledged question.
    (&first).write_all(b"$qAttached#8f").expect("it listens");
    let mut answer = [0; 2];
    (&first).read_exact(&mut answer).expect("an answer");
    let mut second = connect();
    let (mut rest, _) = (Vec::new(), second.set_read_timeout(Some(Duration::from_secs(60))));
    assert_eq!(second.read_to_end(&mut rest).expect("it is closed"), 0);
    drop(first);
    assert!(machine.end().contains("finished"));
}

#[test]
fn the_domains_own_socket_is_the_users_alone() {
    if !is_possible() {
        return;
    }
    let name = format!("gdb-{}", std::process::id());
    let started = biv(&["run", "-d", "--rm", "--name", &name, "--busybox", "--gdb", "--"])
        .args(["sh", "-c", "while :; do :; done"])
        .output()
        .expect("`timeout` can be started");
    assert!(started.status.success(), "{}", text(&started.stderr));
    let said = text(&started.stderr);
    let place = said.lines().find_map(|line| line.split_once("target remote ")).map(|it| it.1);
    let place = place.unwrap_or_else(|| panic!("no socket is named: {said}")).to_owned();
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(&place).expect("it is there").permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    let target = format!("target remote {place}");
    let gdb = Command::new("gdb")
        .args(["-nx", "-batch", "-ex", &target, "-ex", "info threads", "-ex", "kill"])
        .stdin(Stdio::null())
        .output()
        .expect("there is gdb");
    let said = text(&gdb.stdout);
    assert!(said.contains("processor 0"), "{said}{}", text(&gdb.stderr));
    // `kill` is for the machine.
    wait_for("the domain's end", || {
        let listed = biv(&["ps", "-q"]).output().expect("`timeout` can be started");
        !text(&listed.stdout).lines().any(|line| line == name)
    });
}

#[test]
fn what_cannot_be_is_refused() {
    let check = |options: &[&str], words: &str| {
        let output = biv(&[&["run", "--busybox"], options, &["--", "true"]].concat()).output();
        let output = output.expect("`timeout` can be started");
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(words), "{options:?}: {said}");
    };
    check(&["--gdb", "udp:1"], "neither unix:PATH nor tcp:PORT");
    check(&["--gdb", "tcp:0"], "neither a port nor ADDRESS:PORT");
    check(&["--gdb", "unix:/nonexistent/socket"], "cannot wait for gdb");
    check(&["--freeze"], "--gdb");
    check(&["--xen", "--net", "none", "--gdb", "tcp:1"], "cannot be used with");
}
