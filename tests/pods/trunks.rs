//! A network on two hosts, which are two registries here: `biv pod network join`.

use std::fs;
use std::process::Child;

use rustix::process::Signal;
use whole_machine::text;
use whole_machine::waiting::wait_for;

use crate::moves::receive;
use crate::neighbours::{address, client, place_with, server, sleeper};
use crate::place::{Place, end_of, signal, start};

/// Both sides of one.
struct Trunk {
    sides: Option<[Child; 2]>,
}

impl Trunk {
    fn new(here: &Place, there: &Place) -> Trunk {
        let socket = here.path.join("trunk").display().to_string();
        let join = |place: &Place, to: &str| {
            start(place.command(&["network", "join", "one", &format!("{to}:{socket}")]))
        };
        let one = join(here, "listen");
        wait_for("somebody listens", || fs::metadata(&socket).is_ok());
        let other = join(there, "unix");
        Trunk { sides: Some([one, other]) }
    }

    /// Ends one side; what the other says of it.
    fn end(mut self) -> String {
        let [one, other] = self.sides.take().expect("it is not ended twice");
        signal(&one, Signal::TERM);
        assert!(end_of(one).status.success());
        let output = end_of(other);
        assert!(!output.status.success(), "{output:?}");
        text(&output.stderr)
    }

    /// What both say that end by themselves, because they cannot be joined.
    fn outcomes(mut self) -> [String; 2] {
        let sides = self.sides.take().expect("it is not ended twice");
        sides.map(|side| {
            let output = end_of(side);
            assert!(!output.status.success(), "{output:?}");
            text(&output.stderr)
        })
    }
}

impl Drop for Trunk {
    fn drop(&mut self) {
        for mut side in self.sides.take().into_iter().flatten() {
            // It may have ended.
            signal(&side, Signal::TERM);
            let _ = side.wait();
        }
    }
}

fn resolves(place: &Place, pod: &str, name: &str) -> bool {
    place.output(&["exec", pod, "getent", "hosts", name]).status.success()
}

#[test]
fn connections_outlive_a_move_to_another_host() {
    let (Some(here), Some(there)) = (place_with("one"), place_with("one")) else { return };
    server(&here, "web", &["--network", "one", "--ip", "10.89.1.10"]);
    sleeper(&there, "near", &["--network", "one", "--ip", "10.89.1.20"]);
    let trunk = Trunk::new(&here, &there);
    wait_for("names are known there", || resolves(&there, "near", "web"));
    let client = client(&there, "near", "web:80");
    let taken = ["run", "--network", "one", "--ip", "10.89.1.10", "--", "true"];
    let complaint = there.complains(&taken);
    assert!(complaint.contains("is that of the pod web on the other host"), "{complaint}");
    let socket = here.path.join("door").display().to_string();
    for (from, to) in [(&here, &there), (&there, &here), (&here, &there)] {
        let receiver = receive(to, &socket, &[]);
        from.says(&["migrate", "web", &format!("unix:{socket}")]);
        let output = end_of(receiver);
        assert_eq!(text(&output.stdout), "web\n", "{output:?}");
        wait_for("it has ended", || from.state("web").as_deref() == Some("ended (137)"));
        from.says(&["rm", "web"]);
        assert_eq!(address(to, "web"), "10.89.1.10");
    }
    client.check();
    let said = trunk.end();
    assert!(said.contains("the other host has gone"), "{said}");
}

#[test]
fn networks_that_do_not_fit_are_not_joined() {
    let (Some(here), Some(there)) = (place_with("one"), Place::new()) else { return };
    there.says(&["network", "create", "--subnet", "10.90.0.0/24", "one"]);
    let [one, other] = Trunk::new(&here, &there).outcomes();
    assert!(one.contains("10.89.1.0/24 here and 10.90.0.0/24 there"), "{one}");
    assert!(other.contains("10.90.0.0/24 here and 10.89.1.0/24 there"), "{other}");
    there.says(&["network", "rm", "one"]);
    there.says(&["network", "create", "one"]);
    // One address cannot be that of two.
    sleeper(&here, "a", &["--network", "one", "--ip", "10.89.1.10"]);
    sleeper(&there, "b", &["--network", "one", "--ip", "10.89.1.10"]);
    let said = Trunk::new(&here, &there).outcomes().concat();
    assert!(said.contains("10.89.1.10 is the address of the pod"), "{said}");
    let complaint = here.complains(&["network", "join", "one", "elsewhere"]);
    assert!(complaint.contains("is no place: ssh:HOST"), "{complaint}");
    let complaint = here.complains(&["network", "join", "two", "-"]);
    assert!(complaint.contains("no network two"), "{complaint}");
}
