//! The life of domains, as somebody at a shell has it: what goes on by itself, commands run in it, its
//! end in whatever way, and what is left of it.

#![forbid(unsafe_code)]

mod again;
mod balloon;
mod completions;
mod console;
mod copying;
mod disks;
mod foreign;
mod hostile;
mod many;
mod paravirtual;
mod paravirtual_life;
mod paravirtual_load;
mod place;
mod reasons;
mod scheduling;
mod snapshots;
mod time;

use std::io::Write;
use std::process::Command;
use std::time::Duration;

use place::{Place, end_of, signal, start};
use serde_json::Value;
use whole_machine::processes::{stat, survivors};
use whole_machine::pseudo_terminal::AtTerminal;
use whole_machine::waiting::wait_for;
use whole_machine::{bivouac, text};

/// Says a number again and again, ten times a second.
const COUNTING: &str = "n=0; while :; do n=$((n + 1)); echo $n; sleep 0.1; done";

#[test]
fn a_domain_goes_on_by_itself_until_it_is_stopped() {
    let place = Place::new();
    place.detach("web", "echo ready; echo oops >&2; printf '\\377\\n'; sleep 1000; echo not me");
    assert_eq!(place.state("web").as_deref(), Some("running"));
    wait_for("all is in the log", || {
        let log = place.output(&["logs", "web"]);
        log.stdout == b"ready\n\xff\n" && log.stderr == b"oops\n"
    });
    // Which of the two streams came last is nobody's promise.
    let last = place.output(&["logs", "-n", "1", "web"]);
    assert!(last.stdout == b"\xff\n" || last.stderr == b"oops\n", "{last:?}");
    let stamped = text(&place.output(&["logs", "-t", "web"]).stdout);
    assert!(stamped.starts_with("20") && stamped.contains("Z ready\n"), "{stamped}");
    let inspected: Value = serde_json::from_str(&place.says(&["inspect", "web"])).expect("JSON");
    assert_eq!(inspected[0]["state"], "running");
    assert_eq!(inspected[0]["record"]["memory"], 128 << 20);
    let complaint = place.complains(&["run", "--name", "web", "--", "true"]);
    assert!(complaint.contains("choose another name"), "{complaint}");
    assert!(place.complains(&["rm", "web"]).contains("is running"));

    let follower = start(place.command(&["logs", "--follow", "web"]));
    place.says(&["stop", "web"]);
    // It was asked by SIGTERM, and has not been killed.
    assert_eq!(place.state("web").as_deref(), Some("ended (143)"));
    assert_eq!(end_of(follower).stdout, b"ready\n\xff\n");
    assert_eq!(place.says(&["wait", "web"]), "143\n");
    assert!(place.complains(&["stop", "web"]).contains("is not running"));
    assert!(place.complains(&["exec", "web", "true"]).contains("is not running"));
    assert!(place.complains(&["stats", "--once", "web"]).contains("is not running"));
    let complaint = place.complains(&["run", "-d", "--name", "web", "--", "true"]);
    assert!(complaint.contains("biv rm web"), "{complaint}");
    assert_eq!(place.output(&["logs", "web"]).stdout, b"ready\n\xff\n");
    place.says(&["rm", "web"]);
    assert!(place.complains(&["logs", "web"]).contains("no domain web"));
}

#[test]
fn what_cannot_start_is_said_where_it_was_started() {
    let place = Place::new();
    let output =
        place.output(&["run", "-d", "--busybox", "--mem", "128M", "--", "no-such-command"]);
    assert_eq!(output.status.code(), Some(127));
    assert!(text(&output.stderr).contains("command not found"), "{output:?}");
    let output = place.output(&["run", "-d", "--kernel", "/no/such/kernel"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("/no/such/kernel"), "{output:?}");
    assert_eq!(place.says(&["ps", "-a", "--format", "json"]).trim(), "[]");
}

#[test]
fn commands_run_beside_each_other() {
    let place = Place::new();
    place.detach("web", "trap 'echo caught; exit 3' USR1; echo up; while :; do sleep 0.1; done");
    let output = place.exec("web", "echo out; echo err >&2; exit 7");
    assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(place.exec("web", "kill -9 $$").status.code(), Some(137));
    assert_eq!(place.output(&["exec", "web", "no-such"]).status.code(), Some(127));
    let asked = ["exec", "-u", "nobody", "-w", "/tmp", "-e", "A=b c", "web", "sh", "-c"];
    let said = place.says(&[&asked[..], &["id -u; id -g; pwd; echo $A $HOME"]].concat());
    assert_eq!(said, "65534\n65534\n/tmp\nb c /nonexistent\n");
    assert!(place.complains(&["exec", "-u", "who", "web", "true"]).contains("no user who"));
    // Without --interactive there is no input.
    assert_eq!(place.says(&["exec", "web", "cat"]), "");

    // Much goes both ways at once, and nobody waits for one that does not read.
    let stuck = start(place.command(&["exec", "-i", "web", "sleep", "1000"]));
    let mut stuck_input = stuck.stdin.as_ref().expect("piped");
    stuck_input.write_all(&[0; 40_000]).expect("it is taken as far as it goes");
    let mut through = start(place.command(&["exec", "-i", "web", "tr", "a", "b"]));
    through.stdin.take().expect("piped").write_all(&[b'a'; 60_000]).expect("there is room");
    assert!(place.exec("web", "true").status.success());
    assert_eq!(end_of(through).stdout, vec![b'b'; 60_000]);

    // One whose client goes is hung up on.
    signal(stuck.id(), "TERM");
    end_of(stuck);
    let sleepers = || text(&place.exec("web", "ps | grep -c '[s]leep 1000'").stdout);
    wait_for("the command is gone", || sleepers() == "0\n");

    place.says(&["kill", "--signal", "USR1", "web"]);
    assert_eq!(place.says(&["wait", "web"]), "3\n");
    assert_eq!(place.says(&["logs", "web"]), "up\ncaught\n");
}

#[test]
fn later_commands_are_in_the_groups_of_the_first() {
    let place = Place::new();
    let is_root = rustix::process::getuid().is_root();
    let prefix: &[&str] = if is_root { &["setpriv", "--groups", "4,1234567"] } else { &["env"] };
    let words = |words: &[&str]| {
        let mut command = Command::new(prefix[0]);
        command.args(&prefix[1..]).args(words).env("XDG_RUNTIME_DIR", &place.path);
        let output = command.output().expect("it can be started");
        assert!(output.status.success(), "{words:?}: {output:?}");
        text(&output.stdout)
    };
    let (biv, here) = (bivouac().display().to_string(), words(&["id", "-G"]));
    words(&[&biv, "run", "-d", "--name", "web", "--mem", "256M", "--", "sleep", "1000"]);
    let own = rustix::process::getuid().as_raw().to_string();
    assert_eq!(place.says(&["exec", "-u", &own, "web", "id", "-G"]), here);
    // Who names a group has no other.
    assert_eq!(place.says(&["exec", "-u", "4711:12", "web", "id", "-G"]), "12\n");
    if is_root {
        assert_eq!(place.says(&["exec", "web", "id", "-G"]), here);
    }
}

#[test]
fn a_command_can_have_a_terminal() {
    let place = Place::new();
    place.detach("web", "sleep 1000");
    let mut command = Command::new(bivouac());
    command.args(["exec", "-it", "web", "sh"]).env("XDG_RUNTIME_DIR", &place.path);
    let mut terminal = AtTerminal::start(&mut command);
    terminal.wait_for("a prompt", || terminal.shown().contains('#'));
    terminal.press("stty size; tty\n");
    terminal.expect("24 80");
    terminal.expect("/dev/pts/");
    terminal.resize(30, 100);
    // What is typed may overtake it.
    for _ in 0..100 {
        terminal.press("stty size\n");
        std::thread::sleep(Duration::from_millis(200));
        if terminal.shown().contains("30 100") {
            return;
        }
    }
    panic!("the new size is not seen: {}", terminal.shown());
}

#[test]
fn one_that_does_not_listen_is_ended() {
    let place = Place::new();
    place.detach("deaf", "trap '' TERM; echo deaf; while :; do sleep 1; done");
    wait_for("it is deaf", || place.output(&["logs", "deaf"]).stdout == b"deaf\n");
    place.says(&["stop", "--time", "1", "deaf"]);
    assert_eq!(place.state("deaf").as_deref(), Some("ended (137)"));
    // Not even its process does anything.
    place.detach("stuck", "sleep 1000");
    place.detach("quick", "sleep 1000");
    let (process, quick) = (place.pid("stuck"), place.pid("quick"));
    signal(process, "STOP");
    let killer = start(place.command(&["kill", "stuck", "quick"]));
    // It is asked for ten seconds, and who is named after it is not kept waiting for that.
    assert!(survivors(&[quick], Duration::from_secs(8)).is_empty());
    assert_eq!(survivors(&[process], Duration::ZERO), [process]);
    assert!(end_of(killer).status.success());
    assert!(survivors(&[process], Duration::ZERO).is_empty());
    assert_eq!(place.state("stuck").as_deref(), Some("killed"));
    assert_eq!(place.state("quick").as_deref(), Some("ended (137)"));
}

#[test]
fn the_end_of_one_is_nothing_to_others() {
    let place = Place::new();
    place.detach("one", "sleep 1000");
    place.detach("other", "sleep 1000");
    let process = place.pid("one");
    let waiting = start(place.command(&["wait", "one"]));
    signal(process, "KILL");
    assert_eq!(end_of(waiting).stdout, b"137\n");
    assert_eq!(place.state("one").as_deref(), Some("killed"));
    assert_eq!(place.state("other").as_deref(), Some("running"));
    assert!(place.exec("other", "true").status.success());
    place.says(&["rm", "one"]);
    place.detach("one", "sleep 1000");
    place.says(&["rm", "--force", "one", "other"]);
    assert_eq!(place.says(&["ps", "-a", "--format", "json"]).trim(), "[]");
}

#[test]
fn what_is_not_detached_is_listed_and_leaves_nothing() {
    let place = Place::new();
    let mut run =
        start(place.command(&["run", "--name", "here", "--busybox", "--mem", "128M", "--", "cat"]));
    wait_for("it runs", || place.state("here").as_deref() == Some("running"));
    assert!(place.complains(&["logs", "here"]).contains("has no log"));
    assert_eq!(place.says(&["exec", "here", "echo", "hello"]), "hello\n");
    run.stdin.take().expect("piped").write_all(b"input").expect("it reads");
    let output = end_of(run);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"input"[..]));
    assert_eq!(place.row("here"), None);
    let left = std::fs::read_dir(place.path.join("bivouac")).expect("a directory");
    let names = left.flatten().map(|entry| entry.file_name()).collect::<Vec<_>>();
    assert_eq!(names, [".lock"], "somebody has looked, and swept");
    // Nor does one that is not to be kept.
    place.says(&[
        "run",
        "-d",
        "--rm",
        "--name",
        "brief",
        "--busybox",
        "--mem",
        "128M",
        "--",
        "true",
    ]);
    wait_for("it is gone", || place.row("brief").is_none());
}

#[test]
fn a_registry_that_cannot_be_had_is_missed_by_those_only_who_need_it() {
    let place = Place::new();
    let nowhere = place.path.join("no/such/place");
    let run = |arguments: &[&str]| {
        place.command(arguments).env("XDG_RUNTIME_DIR", &nowhere).output().expect("biv")
    };
    let output = run(&["run", "--busybox", "--mem", "128M", "--", "echo", "fine"]);
    assert_eq!(output.stdout, b"fine\n");
    for needs in [&["run", "-d", "--", "true"][..], &["run", "--name", "x", "--", "true"]] {
        let output = run(needs);
        assert_eq!(output.status.code(), Some(125), "{needs:?}");
        assert!(text(&output.stderr).contains("XDG_RUNTIME_DIR"), "{output:?}");
    }
}

#[test]
fn a_domain_stands_still_and_goes_on() {
    let place = Place::new();
    place.detach("web", COUNTING);
    let count = || text(&place.output(&["logs", "web"]).stdout).lines().count();
    wait_for("it counts", || count() > 3);
    place.says(&["pause", "web"]);
    assert_eq!(place.state("web").as_deref(), Some("paused"));
    std::thread::sleep(Duration::from_millis(300));
    let before = (count(), exits(&place));
    std::thread::sleep(Duration::from_millis(1000));
    assert_eq!((count(), exits(&place)), before, "it does something");
    // Who wants something of it hears at once that it cannot answer, and how it could.
    let file = place.path.join("snapshot");
    let file = file.to_str().expect("it is text");
    for verb in [
        &["exec", "web", "true"][..],
        &["cp", "web:/etc/hosts", "-"],
        &["attach", "web"],
        &["console", "web"],
        &["snapshot", "web", file],
        &["kill", "--signal", "TERM", "web"],
    ] {
        let complaint = place.complains(verb);
        assert!(complaint.contains("it is paused; `biv resume web`"), "{verb:?}: {complaint}");
    }
    place.says(&["resume", "web"]);
    wait_for("it counts again", || count() > before.0 + 3);
    assert_eq!(place.state("web").as_deref(), Some("running"));
    // One that stands still can be ended.
    place.says(&["pause", "web"]);
    place.says(&["stop", "web"]);
    assert_eq!(place.state("web").as_deref(), Some("ended (143)"));
}

fn exits(place: &Place) -> u64 {
    let stats: Value =
        serde_json::from_str(&place.says(&["stats", "--format", "json"])).expect("JSON");
    assert!(stats[0]["memory_host"].as_u64() > Some(1 << 20), "{stats}");
    assert!(stats[0]["memory_used"].as_u64() > Some(1 << 20), "{stats}");
    stats[0]["statistics"]["processors"][0]["exits"].as_u64().expect("a number")
}

#[test]
fn many_live_side_by_side() {
    check_many(5, &["--mem", "128M"]);
}

#[test]
fn so_do_paravirtual_ones() {
    check_many(12, &["--mem", "96M", "--xen"]);
}

/// Domains with these options start one after the other, answer, sleep, end by one command, and leave nothing.
fn check_many(count: usize, options: &[&str]) {
    // `BIVOUAC_DOMAINS=20` and more are for those who have the time: a second each.
    let asked = std::env::var("BIVOUAC_DOMAINS").ok().and_then(|count| count.parse().ok());
    let count: usize = asked.unwrap_or(count);
    let place = Place::new();
    let names: Vec<String> = (0..count).map(|number| format!("domain-{number}")).collect();
    for name in &names {
        let machine = ["run", "-d", "--busybox", "--name", name];
        place.says(&[&machine, options, &["--", "sleep", "100000"]].concat());
    }
    for name in &names {
        assert_eq!(place.says(&["exec", name, "echo", name]), format!("{name}\n"));
    }
    // What they have begun settles.
    std::thread::sleep(Duration::from_secs(5));
    let processes: Vec<u32> = names.iter().map(|name| place.pid(name)).collect();
    let (before, span) = (computed(&processes), Duration::from_secs(5));
    std::thread::sleep(span);
    let percent = (computed(&processes) - before) as f64 / span.as_secs_f64();
    println!("{count} idle domains use {percent:.2}% of a core");
    assert!(percent < 1.0 * count as f64, "idle domains use {percent}% of a core");
    // Some are asked, and the others are not.
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let (asked, others) = all.split_at(count / 2);
    place.says(&[&["stop", "--time", "60"], asked].concat());
    let statuses = place.says(&[&["wait"], asked].concat());
    assert!(statuses.lines().all(|status| status == "143"), "{statuses}");
    place.says(&[&["rm", "--force"], others].concat());
    assert!(survivors(&processes, Duration::from_secs(5)).is_empty());
    place.says(&[&["rm"], asked].concat());
    assert_eq!(place.says(&["ps", "-a", "--format", "json"]).trim(), "[]");
    wait_for("nothing is left of the keeper", || !place.path.join("bivouac/.keeper").exists());
    let left = std::fs::read_dir(place.path.join("bivouac")).expect("a directory").flatten();
    assert_eq!(left.map(|entry| entry.file_name()).collect::<Vec<_>>(), [".lock"]);
}

/// Hundredths of a second that processes and their threads have computed (proc(5), `stat`).
fn computed(processes: &[u32]) -> u64 {
    processes.iter().map(|process| stat(*process).expect("it lives").computed()).sum()
}
