//! The same races in our own tools: names are taken by checkpoint, restart, terminals and the registry while others
//! take and leave the same ones, and processes begin and end.

use std::thread;

use whole_machine::text;
use whole_machine::waiting::wait_for;

use crate::place::{Place, end_of, start};
use crate::storms::rounds_of_tools;

/// Starts programs all the time, and checks their numbers and statuses.
const STARTS: &str = "
storm() {
    while :; do
        sh -c 'exit 3' & wait $!
        [ $? = 3 ] || echo wrong status
        own=$(sh -c 'echo $PPID')
        [ \"$own\" = \"$(exec sh -c 'echo $PPID')\" ] || echo wrong parent
        echo more
    done
}
storm & storm & (storm) & wait";

/// Initialization and deletion of processes: a pod whose processes begin and end all the time is frozen, written, and
/// made again, and none of them is lost, or has another number.
#[test]
fn checkpoints_race_with_processes_that_begin_and_end() {
    let Some(place) = Place::new() else { return };
    let image = place.path.join("image.pod").display().to_string();
    place.detach("web", STARTS);
    for round in 0..rounds_of_tools() {
        match round % 4 {
            0 => drop(place.says(&["freeze", "web"]) + &place.says(&["thaw", "web"])),
            1 | 2 => drop(place.says(&["checkpoint", "--force", "-o", &image, "web"])),
            _ => {
                place.says(&["checkpoint", "--force", "--stop", "-o", &image, "web"]);
                place.says(&["wait", "web"]);
                place.says(&["rm", "web"]);
                place.says(&["restart", "-d", "--name", "web", &image]);
            }
        }
        goes_on(&place, "web");
    }
}

/// It says more, and nothing that is wrong.
#[track_caller]
fn goes_on(place: &Place, name: &str) {
    let said = || text(&place.output(&["logs", name]).stdout);
    let lines = |said: &str| said.lines().filter(|line| *line == "more").count();
    let before = lines(&said());
    wait_for("it goes on", || {
        let now = said();
        assert!(!now.contains("wrong"), "{now}");
        lines(&now) > before
    });
}

/// Reuse of IPC numbers and keys, and of all other names: what is restarted has its own ones again, beside others who
/// have the same, and who take and leave them all the time.
#[test]
fn names_come_again_beside_who_takes_the_same() {
    let Some(place) = Place::new() else { return };
    let image = place.path.join("image.pod").display().to_string();
    let wait = "until [ -e /tmp/go ]; do sleep 0.02; done";
    let holds = |name: &str| {
        let until = "(until [ -e /tmp/over ]; do sleep 0.02; done)";
        let script = format!("{wait}; {until} | /tmp/pod-probe hold {name}");
        place.detach(name, &script);
    };
    holds("one");
    holds("two");
    let storm = "until [ -e /tmp/over ]; do /tmp/pod-probe storm three ipc 500 || exit 1; done";
    place.detach("three", &format!("{wait}; {storm}"));
    for name in ["one", "two", "three"] {
        place.give_probe(name);
        place.exec(name, "touch /tmp/go");
    }
    let has_said = |name: &str, what: &str| {
        text(&place.output(&["logs", name]).stdout).lines().any(|line| line == what)
    };
    wait_for("both have their names", || ["one", "two"].iter().all(|it| has_said(it, "ready")));
    for _ in 0..rounds_of_tools() {
        place.says(&["checkpoint", "--force", "--stop", "-o", &image, "one"]);
        place.says(&["wait", "one"]);
        place.says(&["rm", "one"]);
        place.says(&["restart", "-d", "--name", "one", &image]);
    }
    for name in ["one", "two", "three"] {
        // The pod may end before this command does.
        place.output(&["exec", name, "touch", "/tmp/over"]);
        assert_eq!(place.says(&["wait", name]), "0\n", "{:?}", place.output(&["logs", name]));
    }
    assert!(["one", "two"].iter().all(|name| has_said(name, "intact")));
}

/// Initialization of terminals, by the console of `exec`: each command has one that is there, and is its own.
#[test]
fn terminals_of_commands_race() {
    let Some(place) = Place::new() else { return };
    let names = ["one", "two"];
    names.iter().for_each(|name| place.detach(name, "sleep 1000"));
    names.iter().for_each(|name| place.give_probe(name));
    let storm = "until [ -e /tmp/over ]; do /tmp/pod-probe storm own terminals 200 || exit 1; done";
    let storms = names.map(|name| start(place.command(&["exec", name, "sh", "-c", storm])));
    thread::scope(|scope| {
        for (index, name) in names.iter().chain(&names).enumerate() {
            let place = &place;
            scope.spawn(move || {
                for round in 0..rounds_of_tools() / 2 {
                    let word = format!("here-{index}-{round}");
                    let script = format!(
                        "[ -c \"$(tty)\" ] && [ -t 0 ] && echo {word} >$(tty) && read key && \
                         [ \"$key\" = {word} ] && exec hostname"
                    );
                    let mut user = place.at_terminal(&["exec", "-it", name, "sh", "-c", &script]);
                    user.expect(&word);
                    user.press(&format!("{word}\r"));
                    user.expect(&format!("{name}\r\n"));
                    user.check_end(0);
                }
            });
        }
    });
    names.iter().for_each(|name| drop(place.exec(name, "touch /tmp/over")));
    storms.into_iter().for_each(|storm| {
        let output = end_of(storm);
        assert!(output.status.success(), "{output:?}");
    });
}
