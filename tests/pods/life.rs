//! From its start to its removal.

use std::fs::File;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use serde_json::Value;
use whole_machine::text;
use whole_machine::waiting::wait_for;

use crate::place::{Place, end_of, start};

#[test]
fn a_pod_goes_on_by_itself_until_it_is_stopped() {
    let Some(place) = Place::new() else { return };
    place.detach("web", "echo ready; echo oops >&2; printf '\\377\\n'; sleep 1000; echo not me");
    assert_eq!(place.state("web").as_deref(), Some("running"));
    wait_for("all is in the log", || {
        let log = place.output(&["logs", "web"]);
        log.stdout == b"ready\n\xff\n" && log.stderr == b"oops\n"
    });
    let stamped = text(&place.output(&["logs", "-t", "web"]).stdout);
    assert!(stamped.starts_with("20") && stamped.contains("Z ready\n"), "{stamped}");
    let inspected: Value = serde_json::from_str(&place.says(&["inspect", "web"])).expect("JSON");
    assert_eq!(inspected[0]["state"], "running");
    assert_eq!(inspected[0]["record"]["hostname"], "web");
    let complaint = place.complains(&["run", "--name", "web", "--", "true"]);
    assert!(complaint.contains("pod web already exists and is running"), "{complaint}");
    assert!(place.complains(&["rm", "web"]).contains("biv pod stop web"));

    let follower = start(place.command(&["logs", "--follow", "web"]));
    let waiting = start(place.command(&["wait", "web"]));
    place.says(&["stop", "web"]);
    // It was asked by SIGTERM, and has not been killed.
    assert_eq!(place.state("web").as_deref(), Some("ended (143)"));
    assert_eq!(end_of(follower).stdout, b"ready\n\xff\n");
    assert_eq!(text(&end_of(waiting).stdout), "143\n");
    let complaint = place.complains(&["run", "--name", "web", "--", "true"]);
    assert!(complaint.contains("biv pod rm web"), "{complaint}");
    for verb in [&["stop", "web"][..], &["exec", "web", "true"], &["attach", "web"]] {
        assert!(place.complains(verb).contains("pod web is not running"), "{verb:?}");
    }
    place.says(&["rm", "web"]);
    assert!(place.complains(&["logs", "web"]).contains("no pod web"));
    assert_eq!(place.left(), Vec::<String>::new());
}

#[test]
fn the_status_is_the_commands() {
    let Some(place) = Place::new() else { return };
    let check = |command: &[&str], expected: i32, complaint: &str| {
        let output = place.output(&[&["run", "--"], command].concat());
        assert_eq!(output.status.code(), Some(expected), "{command:?}: {output:?}");
        let said = text(&output.stderr);
        assert!(said.contains(complaint), "{command:?}: {said:?}");
    };
    check(&["true"], 0, "");
    check(&["sh", "-c", "exit 7"], 7, "");
    check(&["sh", "-c", "kill -9 $$"], 137, "");
    // Signals do what they do on the host, whatever those who started the pod block or ignore.
    for (signal, expected) in [("TERM", 143), ("HUP", 129), ("INT", 130), ("PIPE", 141)] {
        check(&["sh", "-c", &format!("kill -{signal} $$")], expected, "");
    }
    check(&["no-such-command"], 127, "no-such-command: command not found in the pod");
    check(&["/etc/passwd"], 126, "cannot execute in the pod");
    let output = place.output(&["run", "--workdir", "/no/such", "--", "true"]);
    assert_eq!(output.status.code(), Some(126), "{output:?}");
    let output = place.output(&["run", "--root", "/no/such", "--", "true"]);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(text(&output.stderr).contains("cannot use /no/such as the root"), "{output:?}");
    let started = Instant::now();
    let output = place.output(&["run", "--timeout", "0.3", "--", "sleep", "1000"]);
    assert_eq!(output.status.code(), Some(124), "{output:?}");
    assert!(started.elapsed() < Duration::from_secs(200), "{:?}", started.elapsed());
    assert_eq!(place.left(), Vec::<String>::new(), "what is in the foreground is not kept");
}

#[test]
fn streams_are_exact() {
    let Some(place) = Place::new() else { return };
    let mut bytes = vec![0; 3 << 20];
    File::open("/dev/urandom").expect("a device").read_exact(&mut bytes).expect("random bytes");
    let mut child =
        start(place.command(&["run", "--", "sh", "-c", "echo begin >&2; cat; echo end >&2"]));
    let (mut input, sent) = (child.stdin.take().expect("a pipe"), bytes.clone());
    let writer = std::thread::spawn(move || input.write_all(&sent));
    let output = end_of(child);
    writer.join().expect("it does not panic").expect("all is taken");
    assert!(output.stdout == bytes, "{} bytes of {}", output.stdout.len(), bytes.len());
    assert_eq!(text(&output.stderr).lines().collect::<Vec<_>>(), ["begin", "end"]);
    // A reader that has seen enough ends the command as it would on the host.
    let mut child = start(place.command(&["run", "--", "yes"]));
    let mut output = child.stdout.take().expect("a pipe");
    output.read_exact(&mut [0; 4096]).expect("it says something");
    drop(output);
    assert_eq!(end_of(child).status.code(), Some(128 + 13));
}

#[test]
fn commands_are_run_in_a_pod_that_runs() {
    let Some(place) = Place::new() else { return };
    place.detach("web", "echo main; sleep 1000");
    assert_eq!(place.exec("web", "hostname; cat /proc/sys/kernel/hostname"), "web\nweb\n");
    let output = place.output(&["exec", "web", "sh", "-c", "echo e >&2; exit 9"]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(9), "e\n"));
    assert_eq!(place.output(&["exec", "web", "no-such"]).status.code(), Some(127));
    let said = place.says(&[
        "exec",
        "--env",
        "A=b c",
        "--workdir",
        "/usr",
        "web",
        "sh",
        "-c",
        "echo $A; pwd",
    ]);
    assert_eq!(said, "b c\n/usr\n");
    let mut child = start(place.command(&["exec", "-i", "web", "wc", "-c"]));
    child.stdin.take().expect("a pipe").write_all(&[7; 200_000]).expect("all is taken");
    assert_eq!(text(&end_of(child).stdout), "200000\n");
    // Without --interactive there is no input.
    assert_eq!(place.exec("web", "wc -c"), "0\n");
    // All are children of process 1, and none has another parent in the pod.
    let parents = place.exec("web", "cut -d' ' -f4 /proc/$$/stat; cut -d' ' -f4 /proc/1/stat");
    assert_eq!(parents, "1\n0\n");
    // Several at once.
    let children: Vec<_> = (0..8)
        .map(|n| start(place.command(&["exec", "web", "sh", "-c", &format!("exit {n}")])))
        .collect();
    let statuses: Vec<_> = children.into_iter().map(|child| end_of(child).status.code()).collect();
    assert_eq!(statuses, (0..8).map(Some).collect::<Vec<_>>());
}

#[test]
fn whoever_attaches_has_the_commands_streams() {
    let Some(place) = Place::new() else { return };
    let script = "while read line; do echo got $line; [ $line = end ] && exit 5; done";
    place.says(&["run", "-d", "-i", "--name", "web", "--", "sh", "-c", script]);
    let mut child = start(place.command(&["attach", "web"]));
    child.stdin.take().expect("a pipe").write_all(b"one\nend\n").expect("all is taken");
    let output = end_of(child);
    assert_eq!(
        (output.status.code(), text(&output.stdout).as_str()),
        (Some(5), "got one\ngot end\n")
    );
    assert_eq!(text(&place.output(&["logs", "web"]).stdout), "got one\ngot end\n");
}

#[test]
fn signals_reach_the_command() {
    let Some(place) = Place::new() else { return };
    let script = "trap 'echo caught; exit 3' USR1; echo ready; while :; do sleep 0.05; done";
    place.detach("web", script);
    wait_for("it is ready", || place.output(&["logs", "web"]).stdout == b"ready\n");
    place.says(&["kill", "--signal", "USR1", "web"]);
    wait_for("it has ended", || place.state("web").as_deref() == Some("ended (3)"));
    assert_eq!(text(&place.output(&["logs", "web"]).stdout), "ready\ncaught\n");
    // One that does not listen is ended when its time is up, with all that it has started.
    place.detach("deaf", "trap '' TERM; sleep 1000 & while :; do sleep 0.05; done");
    place.says(&["stop", "--time", "1", "deaf"]);
    assert_eq!(place.state("deaf").as_deref(), Some("ended (137)"));
    place.detach("other", "sleep 1000");
    place.says(&["kill", "other"]);
    assert_eq!(place.state("other").as_deref(), Some("ended (137)"));
    place.says(&["rm", "web", "deaf", "other"]);
    place.detach("forced", "sleep 1000");
    place.says(&["rm", "--force", "forced"]);
    assert_eq!(place.left(), Vec::<String>::new());
}

#[test]
fn one_that_is_not_to_be_kept_is_not() {
    let Some(place) = Place::new() else { return };
    place.says(&["run", "-d", "--rm", "--name", "web", "--", "sleep", "1000"]);
    place.says(&["stop", "web"]);
    assert_eq!(place.row("web"), None);
    assert_eq!(place.left(), Vec::<String>::new());
    // One that does not even start is not kept either, and says why here.
    let complaint = place.complains(&["run", "-d", "--name", "web", "--", "no-such-command"]);
    assert!(complaint.contains("command not found in the pod"), "{complaint}");
    assert_eq!(place.row("web"), None);
}
