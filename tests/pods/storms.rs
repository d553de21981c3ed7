//! The races of names, in two pods and on the host at once, and in the tools: nobody meets another's name.
//!
//! `BIVOUAC_STORM_ROUNDS=1000000 cargo test --release -p whole-machine --test pods storms` makes it a million rounds.

use std::process::Command;

use whole_machine::text;
use whole_machine::waiting::wait_for;

use crate::place::{Place, end_of, probe, start};

/// Rounds, unless somebody wants more.
const ROUNDS: u64 = 2000;

/// So many rounds are one of a command.
const ROUNDS_PER_COMMAND: u64 = 100;

/// Commands that each of some threads runs in a pod while it ends.
const COMMANDS: u32 = 12;

fn rounds() -> u64 {
    let wanted = std::env::var("BIVOUAC_STORM_ROUNDS").ok();
    wanted.and_then(|rounds| rounds.parse().ok()).unwrap_or(ROUNDS)
}

/// Rounds of what starts commands of ours, each of which does a thousand times as much.
pub fn rounds_of_tools() -> u64 {
    rounds().div_ceil(ROUNDS_PER_COMMAND)
}

#[test]
fn names_are_ones_own_in_a_storm() {
    let Some(place) = Place::new() else { return };
    for name in ["one", "two"] {
        place.says(&["run", "-d", "--name", name, "--", "sleep", "100000"]);
        place.give_probe(name);
    }
    let part = rounds().min(ROUNDS).to_string();
    for kind in ["ipc", "terminals", "processes"] {
        // However many there are, each part takes seconds.
        for _ in 0..rounds().div_ceil(ROUNDS) {
            let in_pod = |name: &str| {
                start(place.command(&["exec", name, "/tmp/pod-probe", "storm", name, kind, &part]))
            };
            let mut host = Command::new(probe());
            host.args(["storm", "host", kind, &part]);
            let all = [in_pod("one"), in_pod("two"), start(host)];
            for output in all.map(end_of) {
                assert!(output.status.success(), "{kind}: {output:?}");
                assert_eq!(text(&output.stdout), format!("calm {part}\n"), "{kind}");
            }
        }
    }
}

/// What is run in a pod that ends meanwhile runs in it, or is told that it does not; never anywhere else.
#[test]
fn commands_race_with_the_end_of_their_pod() {
    let Some(place) = Place::new() else { return };
    for round in 0..4 {
        let name = format!("web{round}");
        place.says(&["run", "-d", "--name", &name, "--hostname", &name, "--", "sleep", "1000"]);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (place, name) = (&place, &name);
                scope.spawn(move || {
                    for _ in 0..COMMANDS {
                        let output = place.output(&["exec", name, "hostname"]);
                        let said = text(&output.stdout);
                        let is_there = output.status.success() && said == format!("{name}\n");
                        let is_told = !output.status.success() && !output.stderr.is_empty();
                        let was_ended = output.status.code() == Some(143);
                        assert!(is_there || is_told || was_ended, "{thread}: {output:?}");
                    }
                });
            }
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(40 * round));
                place.says(&["stop", &name]);
            });
        });
        wait_for("it has ended", || {
            place.state(&name).is_some_and(|state| state.starts_with("ended"))
        });
        place.says(&["rm", &name]);
    }
    assert_eq!(place.left(), Vec::<String>::new());
}

/// Many start at once, with one name among them: one has it.
#[test]
fn one_name_is_had_by_one() {
    let Some(place) = Place::new() else { return };
    for _ in 0..rounds_of_tools().div_ceil(4) {
        let run = ["run", "-d", "--name", "web", "--", "sleep", "1000"];
        let children: Vec<_> = (0..8).map(|_| start(place.command(&run))).collect();
        let outputs: Vec<_> = children.into_iter().map(end_of).collect();
        let started = outputs.iter().filter(|output| output.status.success()).count();
        assert_eq!(started, 1, "{outputs:?}");
        assert_eq!(place.state("web").as_deref(), Some("running"));
        place.says(&["rm", "-f", "web"]);
    }
    assert_eq!(place.left(), Vec::<String>::new());
}
