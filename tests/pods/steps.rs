//! The end at each step: front ends, keepers and receivers are killed as they enter or leave a system call, for many
//! calls that are spread evenly over all that they make.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use whole_machine::PATIENCE_SECONDS;
use whole_machine::processes::{adopt_orphans, descendants};
use whole_machine::text;
use whole_machine::waiting::wait_for;

use crate::ends::{SCRIPT, check_image, check_nothing_is_left, in_a_process_of_its_own};
use crate::moves::{dismiss, is_there, listens, receive, settle};
use crate::place::{COUNTS, Place, end_of, probe, start};

/// At so many steps each is killed,
const KILLS: u64 = 24;

/// and each of two sides of a move, which takes longer.
const KILLS_OF_MOVES: u64 = 16;

/// A command, which is killed at a step of the process that it starts; never at step 0.
fn at_step(step: u64, command: &Command) -> Command {
    let mut traced = Command::new("timeout");
    traced.arg(PATIENCE_SECONDS).arg(probe()).args(["kill-at", &step.to_string()]);
    // What is traced is `biv`, and not who ends it when it takes too long.
    traced.args(command.get_args().skip(1));
    traced.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    traced.current_dir("/");
    traced
}

/// How many steps a command has taken, or what a tracer has seen.
#[track_caller]
fn steps(said: &[u8]) -> u64 {
    let said = text(said);
    let count = said.lines().find_map(|line| line.strip_prefix("steps ")?.parse().ok());
    count.unwrap_or_else(|| panic!("no number of steps: {said}"))
}

/// Has somebody take all of his steps, and then, again and again, be killed at one of so many.
fn at_each_step(what: &str, kills: u64, mut round: impl FnMut(u64) -> u64) {
    let all = round(0);
    println!("{what}: {all} steps");
    assert!(all > kills, "{what} takes {all} steps");
    for kill in 1..=kills {
        round(all * kill / (kills + 1));
    }
}

/// A process that is killed at a step, or not at all.
fn trace(process: u32, step: u64) -> Child {
    let mut command = Command::new("timeout");
    command.arg(PATIENCE_SECONDS).arg(probe());
    command.args(["kill-at-of", &step.to_string(), &process.to_string()]);
    let mut child = start(command);
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    output.read_line(&mut line).expect("text");
    assert_eq!(line, "traced\n", "{:?}", end_of(child));
    child
}

#[test]
fn whoever_is_killed_at_a_step_leaves_nothing() {
    in_a_process_of_its_own("steps::whoever_is_killed_at_a_step_leaves_nothing", || {
        adopt_orphans();
        let place = Place::new().expect("there was one");
        pods_that_start(&place);
        images_that_are_written(&place);
    });
}

/// Pods whose keeper is traced from its start, and who waits for a detached one.
fn pods_that_start(place: &Place) {
    let image = place.path.join("image.pod").display().to_string();
    let script = "sleep 1000 & setsid sleep 1000 & \
                  until [ \"$(hostname)\" = over ]; do sleep 0.01; done";
    place.detach("seed", script);
    place.says(&["checkpoint", "--stop", "-o", &image, "seed"]);
    wait_for("it has ended", || place.state("seed").as_deref() == Some("ended (137)"));
    place.says(&["rm", "seed"]);
    let verbs: [&[&str]; 4] = [
        &["run", "--hostname", "over", "--", "sh", "-c", script],
        &["restart", "--hostname", "over", &image],
        &["run", "-d", "--name", "web", "--", "sh", "-c", SCRIPT],
        &["restart", "-d", "--name", "web", &image],
    ];
    for verb in verbs {
        at_each_step(&verb.join(" "), KILLS, |step| {
            let mut command = at_step(step, &place.command(verb));
            let output = command.output().expect("the probe can be started");
            // Its keeper may not have its name yet.
            wait_for("nobody is there", || {
                if place.state("web").is_some_and(|state| state != "starting") {
                    place.says(&["rm", "--force", "web"]);
                }
                descendants().is_empty() && place.state("web").is_none()
            });
            check_nothing_is_left(place, &format!("{verb:?} at step {step}: {output:?}"));
            steps(&output.stderr)
        });
    }
}

/// Pods whose keeper, or who asks it, is killed while an image is written.
fn images_that_are_written(place: &Place) {
    let unfinished = place.path.join("unfinished.pod").display().to_string();
    let checkpoint = ["checkpoint", "--force", "-o", &unfinished, "web"];
    at_each_step("the keeper of checkpoint", KILLS, |step| {
        place.detach("web", SCRIPT);
        let tracer = trace(place.pid("web"), step);
        let output = place.output(&checkpoint);
        place.says(&["rm", "--force", "web"]);
        let when = format!("at step {step} of the keeper: {output:?}");
        check_image(place, "unfinished.pod", &when);
        let output = end_of(tracer);
        check_nothing_is_left(place, &when);
        steps(&output.stderr)
    });
    place.detach("web", COUNTS);
    at_each_step("checkpoint", KILLS, |step| {
        let mut command = at_step(step, &place.command(&checkpoint));
        let output = command.output().expect("the probe can be started");
        // The keeper may be at it yet.
        wait_for("it goes on", || place.state("web").as_deref() == Some("running"));
        place.wait_for_more("web");
        // It is whole, or not there, and has no other name.
        let _ = fs::remove_file(place.path.join("unfinished.pod"));
        let names = fs::read_dir(&place.path).expect("ours").flatten();
        let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let left: Vec<_> = names.filter(|name| name.contains("unfinished")).collect();
        assert_eq!(left, Vec::<String>::new(), "at step {step}");
        steps(&output.stderr)
    });
    place.says(&["rm", "--force", "web"]);
    check_nothing_is_left(place, "in the end");
}

/// Who is killed at a step.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Sender,
    Receiver,
}

#[test]
fn there_is_one_pod_at_each_step() {
    let (Some(here), Some(there)) = (Place::new(), Place::new()) else { return };
    let socket = there.path.join("socket").display().to_string();
    let destination = format!("unix:{socket}");
    here.detach("web", COUNTS);
    wait_for("it counts", || here.counts("web").len() > 2);
    for (side, name) in [(Side::Sender, "migrate"), (Side::Receiver, "receive")] {
        at_each_step(name, KILLS_OF_MOVES, |step| {
            let sent = here.command(&["migrate", "web", &destination]);
            let received = there.command(&["receive", &destination]);
            let log = there.path.join("steps").display().to_string();
            let (sender, receiver) = match side {
                Side::Sender => {
                    let receiver = receive(&there, &socket, &[]);
                    (start_logged(at_step(step, &sent), &log), receiver)
                }
                Side::Receiver => {
                    let mut receiver = start_logged(at_step(step, &received), &log);
                    wait_for("somebody listens, or has ended", || {
                        let ended = receiver.try_wait().expect("a child").is_some();
                        ended || listens(&socket)
                    });
                    (start(sent), receiver)
                }
            };
            settle(&here, &there, &socket, [sender, receiver], &format!("{name} at step {step}"));
            let said = fs::read(&log).expect("it is written");
            steps(&said)
        });
    }
}

/// Starts a command that says what it has to say besides its answer in a file.
fn start_logged(mut command: Command, path: &str) -> Child {
    let file = File::create(path).expect("there is room");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file);
    command.spawn().expect("the probe can be started")
}

/// A pod whose keeper is killed is on the other side, or nowhere.
#[test]
fn a_pod_is_whole_or_gone_at_each_step_of_its_keeper() {
    let (Some(here), Some(there)) = (Place::new(), Place::new()) else { return };
    let socket = there.path.join("socket").display().to_string();
    let destination = format!("unix:{socket}");
    at_each_step("the keeper of migrate", KILLS_OF_MOVES, |step| {
        here.detach("web", COUNTS);
        wait_for("it counts", || !here.counts("web").is_empty());
        let receiver = receive(&there, &socket, &[]);
        let tracer = trace(here.pid("web"), step);
        let sent = here.output(&["migrate", "web", &destination]);
        dismiss(&receiver, &socket);
        let received = end_of(receiver);
        let when = format!("at step {step}: {sent:?} {received:?}");
        // The last word may have been lost.
        assert!(received.status.success() || !sent.status.success(), "{when}");
        wait_for("it is not here", || is_there(&here).is_none());
        if received.status.success() {
            there.wait_for_more("web");
            there.says(&["rm", "--force", "web"]);
        }
        assert_eq!(there.left(), Vec::<String>::new(), "{when}");
        here.says(&["rm", "--force", "web"]);
        steps(&end_of(tracer).stderr)
    });
}
