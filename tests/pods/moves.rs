//! Pods that move from one place to another.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use whole_machine::processes::{descendants_of, stat};
use whole_machine::waiting::wait_for;
use whole_machine::{bivouac, text};

use crate::place::{COUNTS, LARGE, Place, end_of, signal, start};

/// Somebody who listens.
pub fn receive(place: &Place, socket: &str, arguments: &[&str]) -> Child {
    let from = format!("unix:{socket}");
    let child = start(place.command(&[&["receive"], arguments, &[&from]].concat()));
    wait_for("somebody listens", || listens(socket));
    child
}

/// Whether somebody can connect to a socket: it has its name when it listens.
pub fn listens(socket: &str) -> bool {
    fs::metadata(socket).is_ok()
}

#[test]
fn a_pod_moves_and_is_in_one_place() {
    let (Some(here), Some(there)) = (Place::new(), Place::new()) else { return };
    let socket = there.path.join("socket").display().to_string();
    here.detach("web", &format!("echo kept >/tmp/kept; {COUNTS}"));
    wait_for("it counts", || here.counts("web").len() > 2);
    for compress in [&[][..], &["--compress"]] {
        let (from, to) = if compress.is_empty() { (&here, &there) } else { (&there, &here) };
        let receiver = receive(to, &socket, &[]);
        let destination = format!("unix:{socket}");
        from.says(&[&["migrate"], compress, &["web", &destination]].concat());
        let received = end_of(receiver);
        assert_eq!(text(&received.stdout), "web\n", "{received:?}");
        assert!(fs::metadata(&socket).is_err(), "the socket is left");
        wait_for("it has ended", || from.state("web").as_deref() == Some("ended (137)"));
        let last = *from.counts("web").last().expect("it has counted");
        from.says(&["rm", "web"]);
        to.wait_for_more("web");
        let counts = to.counts("web");
        assert!(counts[0] <= last + 1 && counts[0] > 1, "{} after {last}", counts[0]);
        assert!(counts.windows(2).all(|two| two[1] == two[0] + 1), "{counts:?}");
        assert_eq!(to.exec("web", "cat /tmp/kept; hostname"), "kept\nweb\n");
    }
}

#[test]
fn a_pod_that_cannot_move_goes_on() {
    let (Some(here), Some(there)) = (Place::new(), Place::new()) else { return };
    let socket = there.path.join("socket").display().to_string();
    let destination = format!("unix:{socket}");
    here.detach("web", COUNTS);
    there.detach("web", "sleep 1000");
    wait_for("it counts", || here.counts("web").len() > 2);
    let complaint = here.complains(&["migrate", "web", &destination]);
    assert!(complaint.contains("cannot connect to unix:"), "{complaint}");
    let complaint = here.complains(&["migrate", "web", "elsewhere"]);
    assert!(complaint.contains("no destination: unix:PATH, ssh:HOST, "), "{complaint}");
    let receiver = receive(&there, &socket, &[]);
    let complaint = here.complains(&["migrate", "web", &destination]);
    assert!(complaint.contains("pod web already exists"), "{complaint}");
    assert!(!end_of(receiver).status.success());
    here.wait_for_more("web");
    // Somebody who is no `biv pod migrate`.
    let receiver = receive(&there, &socket, &["--name", "other"]);
    let mut stranger = std::os::unix::net::UnixStream::connect(&socket).expect("it listens");
    std::io::Write::write_all(&mut stranger, b"GET / HTTP/1.1\r\n\r\n").expect("it reads");
    drop(stranger);
    let output = end_of(receiver);
    assert!(text(&output.stderr).contains("the other side has gone"), "{output:?}");
    // Nobody comes.
    let receiver = receive(&there, &socket, &["--name", "other"]);
    assert!(signal(&receiver, Signal::TERM), "it waits");
    assert!(end_of(receiver).status.success());
    assert!(fs::metadata(&socket).is_err(), "the socket is left");
    assert_eq!(there.left(), ["web"]);
}

#[test]
fn there_is_one_pod_whoever_is_killed() {
    check_kills(COUNTS, &[0, 2, 5, 8, 12, 16, 20, 25, 30, 40, 60, 100]);
}

/// Most of it is sent while it runs.
#[test]
fn there_is_one_large_pod_whoever_is_killed() {
    check_kills(&format!("{LARGE}; {COUNTS}"), &[10, 30, 60, 100, 150, 200, 300, 400, 600, 1000]);
}

/// Kills the receiver or the sender after so many milliseconds each, while a pod that runs a script moves.
fn check_kills(script: &str, moments: &[u64]) {
    let (Some(here), Some(there)) = (Place::new(), Place::new()) else { return };
    let socket = there.path.join("socket").display().to_string();
    let destination = format!("unix:{socket}");
    here.detach("web", script);
    wait_for("it counts", || here.counts("web").len() > 2);
    for (round, moment) in moments.iter().enumerate() {
        let receiver = receive(&there, &socket, &[]);
        let sender = start(here.command(&["migrate", "--compress", "web", &destination]));
        std::thread::sleep(Duration::from_millis(*moment));
        let victim = if round % 2 == 0 { &receiver } else { &sender };
        // It may have ended.
        signal(victim, Signal::KILL);
        settle(&here, &there, &socket, [sender, receiver], &format!("after {moment} ms"));
    }
}

/// Sees to it, when the sender or the receiver of a pod has been killed, that there is one pod, and has it come back.
pub fn settle(here: &Place, there: &Place, socket: &str, sides: [Child; 2], when: &str) {
    let [sender, receiver] = sides;
    dismiss(&receiver, socket);
    let (sent, received) = (end_of(sender), end_of(receiver));
    let _ = fs::remove_file(socket);
    let when = format!("{when}: {sent:?} {received:?}");
    wait_for("what is going on is over", || {
        let states = (is_there(here), is_there(there));
        // In between there may be a frozen one on either side.
        states.0.is_some() != states.1.is_some()
            || states == (Some("frozen".into()), Some("running".into()))
    });
    match (is_there(here), is_there(there)) {
        (Some(_), None) => here.says(&["thaw", "web"]),
        (None, Some(state)) => {
            assert_eq!(state, "running", "{when}");
            end_move(there, here, socket)
        }
        // The sender was killed, or its line lost, when it had given the pod away.
        (Some(_), Some(_)) => here.says(&["rm", "-f", "web"]) + &end_move(there, here, socket),
        (None, None) => panic!("there is none {when}"),
    };
    for place in [here, there] {
        if place.state("web").is_some_and(|state| state.starts_with("ended")) {
            place.says(&["rm", "web"]);
        }
    }
    here.wait_for_more("web");
    assert_eq!(there.left(), Vec::<String>::new(), "{when}");
}

/// Has a receiver end if nobody has come to it, and nobody will.
pub fn dismiss(receiver: &Child, socket: &str) {
    std::thread::sleep(Duration::from_millis(300));
    if fs::metadata(socket).is_ok() {
        descendants_of(receiver.id()).into_iter().filter_map(named_biv).for_each(|process| {
            let _ = kill_process(process, Signal::TERM);
        });
    }
}

/// The state of the pod, if it is one that lives.
pub fn is_there(place: &Place) -> Option<String> {
    place.state("web").filter(|state| state == "running" || state == "frozen")
}

/// A process, if it is `biv`.
fn named_biv(process: u32) -> Option<Pid> {
    let is_biv = stat(process).is_some_and(|stat| stat.name == "biv");
    Pid::from_raw(process.cast_signed()).filter(|_| is_biv)
}

/// Moves it back.
fn end_move(from: &Place, to: &Place, socket: &str) -> String {
    if to.state("web").is_some() {
        to.says(&["rm", "web"]);
    }
    let receiver = receive(to, socket, &[]);
    from.says(&["migrate", "web", &format!("unix:{socket}")]);
    assert!(end_of(receiver).status.success());
    from.says(&["wait", "web"]);
    from.says(&["rm", "web"])
}

#[test]
fn another_host_is_reached_by_ssh() {
    let (Some(here), Some(there)) = (Place::new(), Place::new()) else { return };
    // What ssh(1) does, as far as it matters: it runs a command elsewhere.
    let ssh = here.path.join("ssh");
    let (program, runtime) = (bivouac(), there.path.display().to_string());
    let script = format!(
        "#!/bin/sh\n[ \"$1 $2 $3 $4\" = '-T -- user@host biv pod receive -' ] || exit 9\n\
         export XDG_RUNTIME_DIR={runtime}\ncd /\nexec {} pod receive --name moved -\n",
        program.display()
    );
    fs::write(&ssh, script).expect("there is room");
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).expect("ours");
    here.detach("web", COUNTS);
    wait_for("it counts", || here.counts("web").len() > 2);
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command: Command = here.command(&["migrate", "web", "ssh:user@host"]);
    command.env("PATH", format!("{}:{path}", here.path.display()));
    let output = end_of(start(command));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text(&output.stdout), "");
    there.wait_for_more("moved");
    wait_for("it has ended", || here.state("web").as_deref() == Some("ended (137)"));
}
