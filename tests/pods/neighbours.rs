//! Networks that pods share: who reaches whom, by which names, and connections between pods that outlive a checkpoint,
//! a restart and a move.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use whole_machine::processes::{descendants_of, stat, unconfined};
use whole_machine::text;
use whole_machine::waiting::wait_for;

use crate::moves::receive;
use crate::place::{Place, end_of};

/// A place with a network.
pub fn place_with(network: &str) -> Option<Place> {
    let place = Place::new()?;
    assert_eq!(place.says(&["network", "create", network]), format!("{network}\n"));
    Some(place)
}

/// A pod of the network that sleeps, with the probe.
pub fn sleeper(place: &Place, name: &str, options: &[&str]) {
    let run = [&["run", "-d", "--name", name], options, &["--", "sleep", "1000"]].concat();
    assert_eq!(place.says(&run), format!("{name}\n"));
    place.give_probe(name);
}

/// A pod whose command answers requests at port 80.
pub fn server(place: &Place, name: &str, options: &[&str]) {
    server_that(place, name, "double", options);
}

/// One that does what this word of the probe says.
fn server_that(place: &Place, name: &str, word: &str, options: &[&str]) {
    let script =
        format!("until [ -e /tmp/go ]; do sleep 0.02; done; exec /tmp/pod-probe {word} 80");
    let run = [&["run", "-d", "--name", name], options, &["--", "sh", "-c", &script]].concat();
    assert_eq!(place.says(&run), format!("{name}\n"));
    place.give_probe(name);
    place.exec(name, "touch /tmp/go");
    wait_for("it serves", || text(&place.output(&["logs", name]).stdout).contains("serving"));
}

/// What `inspect` says of a pod's place in its network.
fn member(place: &Place, name: &str) -> Value {
    let inspected: Value = serde_json::from_str(&place.says(&["inspect", name])).expect("JSON");
    inspected[0]["record"]["network"]["member"].clone()
}

pub fn address(place: &Place, name: &str) -> String {
    member(place, name)["address"].as_str().expect("it is in a network").to_owned()
}

/// A client in the pod `from`, which is at work.
pub fn client(place: &Place, from: &str, to: &str) -> Client {
    client_that(place, from, &["request", to])
}

/// One that does what these arguments of the probe say.
pub fn client_that(place: &Place, from: &str, arguments: &[&str]) -> Client {
    let ask = ["exec", "-i", from, "/tmp/pod-probe"];
    let mut command = place.command(&[&ask[..], arguments].concat());
    let mut child = start_piped(&mut command);
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let first = lines.next().expect("it says something").expect("text");
    assert_eq!(first, "connected");
    Client { child, lines }
}

/// A client of a server.
pub struct Client {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Client {
    /// That all was answered, up to now; how many.
    #[track_caller]
    pub fn check(mut self) -> u64 {
        drop(self.child.stdin.take());
        let last = self.lines.next().map(|line| line.expect("text"));
        let output = end_of(self.child);
        assert!(output.status.success(), "{last:?} {output:?}");
        let last = last.expect("it says how many were answered");
        println!("{last} ms");
        let answered = last.strip_prefix("answered ").and_then(|rest| rest.split(' ').next());
        answered.and_then(|number| number.parse().ok()).expect("a number")
    }
}

fn start_piped(command: &mut Command) -> Child {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("biv can be started")
}

/// The switch of the place's network: the one among the descendants of the keepers of these pods, or of whoever has
/// taken it since.
fn switch(place: &Place) -> Option<Pid> {
    let path = place.path.display().to_string();
    let all = std::fs::read_dir("/proc").expect("/proc is mounted").flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_one = |number: &u32| {
        stat(*number).is_some_and(|it| it.name == "biv switch")
            && std::fs::read_link(format!("/proc/{number}/fd/2"))
                .is_ok_and(|to| to.to_string_lossy().contains(&path))
    };
    let number = numbers.filter(is_one).collect::<Vec<_>>();
    assert!(number.len() < 2, "{number:?}");
    number.first().and_then(|number| Pid::from_raw(number.cast_signed()))
}

#[test]
fn networks_are_made_listed_and_removed() {
    let Some(place) = place_with("one") else { return };
    assert!(place.complains(&["network", "create", "one"]).contains("already exists"));
    place.says(&["network", "create", "two", "--subnet", "10.90.0.0/29"]);
    let listed: Value =
        serde_json::from_str(&place.says(&["network", "ls", "--format", "json"])).expect("JSON");
    assert_eq!(listed[0]["name"], "one");
    assert_eq!(listed[0]["subnet"], "10.89.1.0/24");
    assert_eq!(listed[1]["gateway"], "10.90.0.1");
    let run = |options: &[&str]| place.complains(&[&["run"], options, &["--", "true"]].concat());
    assert!(run(&["--network", "three"]).contains("no network three; make it with"));
    assert!(run(&["--network", "one", "--ip", "10.90.0.2"]).contains("is no address for a pod"));
    assert!(run(&["--network", "one", "--ip", "10.89.1.1"]).contains("is no address for a pod"));
    assert!(run(&["--ip", "10.89.1.2"]).contains("--ip requires --network"));
    assert!(run(&["--network", "one", "--net", "none"]).contains("require --net user"));
    // Five pods have an address, and a sixth has none.
    let names = ["a", "b", "c", "d", "e"];
    for name in names {
        place.says(&["run", "-d", "--name", name, "--network", "two", "--", "sleep", "1000"]);
    }
    let mut all: Vec<String> = names.iter().map(|name| address(&place, name)).collect();
    all.sort();
    assert_eq!(all, (2..7).map(|last| format!("10.90.0.{last}")).collect::<Vec<_>>());
    assert!(run(&["--network", "two"]).contains("network two has no free address"));
    let taken = run(&["--network", "two", "--ip", "10.90.0.3"]);
    assert!(taken.contains("10.90.0.3 in network two is the address of pod "), "{taken}");
    assert!(place.complains(&["network", "rm", "two"]).contains("is used by a, b, c, d, e"));
    place.says(&[&["rm", "--force"], &names[..]].concat());
    // Who comes again has the address that it had.
    let before = all.clone();
    for name in names {
        place.says(&["run", "-d", "--name", name, "--network", "two", "--", "sleep", "1000"]);
    }
    let mut again: Vec<String> = names.iter().map(|name| address(&place, name)).collect();
    again.sort();
    assert_eq!(again, before);
    place.says(&[&["rm", "--force"], &names[..]].concat());
    place.says(&["network", "rm", "two", "one"]);
    assert_eq!(place.says(&["network", "ls", "--format", "json"]), "[]\n");
    wait_for("the switch has ended", || switch(&place).is_none());
}

#[test]
fn pods_of_a_network_reach_each_other_by_name() {
    let Some(place) = place_with("one") else { return };
    place.says(&["network", "create", "--subnet", "10.89.1.0/24", "two"]);
    server(&place, "web", &["--network", "one"]);
    sleeper(&place, "near", &["--network", "one"]);
    sleeper(&place, "far", &["--network", "two", "--ip", "10.89.1.2"]);
    let web = address(&place, "web");
    let ask = |from, to: &str| place.output(&["exec", from, "/tmp/pod-probe", "request", to]);
    for to in ["web:80", "WEB:80", &format!("{web}:80")] {
        let output = ask("near", to);
        assert!(text(&output.stdout).contains("answered "), "{to}: {output:?}");
    }
    assert_eq!(place.exec("near", "cat /etc/resolv.conf"), "nameserver 10.89.1.1\n");
    let number = switch_of(&place, "web");
    assert_eq!(unconfined(&[number.as_raw_pid().unsigned_abs()]), Vec::<String>::new());
    // Others do not, though their network has the same addresses.
    let output = ask("far", &format!("{web}:80"));
    assert!(!output.status.success(), "{output:?}");
}

/// The switch of a pod's network.
fn switch_of(place: &Place, pod: &str) -> Pid {
    let all = descendants_of(place.pid(pod));
    let number = all.into_iter().find(|it| stat(*it).is_some_and(|it| it.name == "biv switch"));
    Pid::from_raw(number.expect("it has started the switch").cast_signed()).expect("a process")
}

#[test]
fn connections_outlive_checkpoint_and_restart() {
    let Some(place) = place_with("one") else { return };
    server(&place, "web", &["--network", "one"]);
    sleeper(&place, "near", &["--network", "one"]);
    let image = place.path.join("web.pod").display().to_string();
    let before = member(&place, "web");
    let client = client(&place, "near", "web:80");
    place.says(&["checkpoint", "-o", &image, "web"]);
    let complaint = place.complains(&["restart", "--name", "twin", &image]);
    assert!(complaint.contains("is the address of pod web"), "{complaint}");
    for _ in 0..2 {
        place.says(&["checkpoint", "--force", "--stop", "-o", &image, "web"]);
        wait_for("it has ended", || place.state("web").as_deref() == Some("ended (137)"));
        place.says(&["rm", "web"]);
        // What is sent to it now is answered by nobody.
        std::thread::sleep(Duration::from_millis(50));
        place.says(&["restart", "-d", "--name", "web", &image]);
        assert_eq!(member(&place, "web"), before);
    }
    client.check();
}

#[test]
fn connections_outlive_moves() {
    let Some(place) = place_with("one") else { return };
    server(&place, "web0", &["--network", "one"]);
    sleeper(&place, "near", &["--network", "one"]);
    let before = member(&place, "web0");
    let client = client(&place, "near", "web0:80");
    for number in 0..3 {
        assert_eq!(member(&place, &move_on(&place, number)), before);
    }
    client.check();
}

/// Has the pod `webN` move to be `webN+1`, whose name it returns.
fn move_on(place: &Place, number: u32) -> String {
    let (old, new) = (format!("web{number}"), format!("web{}", number + 1));
    let socket = place.path.join("socket").display().to_string();
    let receiver = receive(place, &socket, &["--name", &new]);
    place.says(&["migrate", &old, &format!("unix:{socket}")]);
    let output = end_of(receiver);
    assert_eq!(text(&output.stdout), format!("{new}\n"), "{output:?}");
    wait_for("it has ended", || place.state(&old).as_deref() == Some("ended (137)"));
    place.says(&["rm", &old]);
    new
}

#[test]
fn clients_that_wait_to_be_accepted_outlive_moves() {
    let Some(place) = place_with("one") else { return };
    server_that(&place, "web0", "double-slowly", &["--network", "one"]);
    sleeper(&place, "near", &["--network", "one"]);
    let server = format!("{}:80", address(&place, "web0"));
    // Two of them wait in most moments.
    let client = client_that(&place, "near", &["request-anew", &server, "3"]);
    let image = place.path.join("web.pod").display().to_string();
    for number in 0..3 {
        let name = format!("web{number}");
        for _ in 0..3 {
            place.says(&["checkpoint", "--force", "-o", &image, &name]);
        }
        move_on(&place, number);
    }
    client.check();
}

#[test]
fn pods_go_on_with_another_switch() {
    let Some(place) = place_with("one") else { return };
    if !rustix::process::geteuid().is_root() {
        // It is confined: what it has open is not shown to others.
        println!("skipped: only root sees which switch is whose");
        return;
    }
    server(&place, "web", &["--network", "one"]);
    sleeper(&place, "near", &["--network", "one"]);
    let client = client(&place, "near", "web:80");
    let mut killed = None;
    for _ in 0..5 {
        let mut next = None;
        wait_for("there is a switch", || {
            next = switch(&place);
            next.is_some() && next != killed
        });
        killed = next;
        kill_process(killed.expect("there is one"), Signal::KILL).expect("it lives");
    }
    client.check();
    // It does not end with whoever has started it.
    place.says(&["rm", "--force", "web"]);
    server(&place, "web", &["--network", "one"]);
    let output = place.output(&["exec", "near", "/tmp/pod-probe", "request", "web:80"]);
    assert!(text(&output.stdout).contains("answered "), "{output:?}");
}
