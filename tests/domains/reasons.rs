//! Why a domain ended, and what it was: in `ps`, `inspect` and `logs`, when nobody was there.

use serde_json::Value;

use super::place::Place;
use whole_machine::text;
use whole_machine::waiting::wait_for;

/// Starts a domain that comes to a bad end, and waits for that; its reason, as `biv inspect` has it.
#[track_caller]
fn reason_of(place: &Place, name: &str, options: &[&str], script: &str, status: u8) -> String {
    let start = [&["run", "-d", "--name", name, "--busybox", "--mem", "128M"], options].concat();
    place.says(&[&start[..], &["--", "sh", "-c", script]].concat());
    assert_eq!(place.says(&["wait", name]), format!("{status}\n"));
    let inspected: Value = serde_json::from_str(&place.says(&["inspect", name])).expect("JSON");
    let reason = inspected[0]["reason"].as_str().unwrap_or_default().to_owned();
    assert_eq!(place.row(name).expect("it is kept")["reason"], reason.as_str());
    let listed = place.says(&["ps", "-a"]);
    let head: String = reason.chars().take(20).collect();
    assert!(listed.contains(&format!("ended ({status}): {head}")), "{listed}");
    let logs = place.output(&["logs", name]);
    assert_eq!(text(&logs.stdout), "begun\n");
    assert_eq!(text(&logs.stderr), format!("biv: {name}: {reason}\n"));
    reason
}

#[test]
fn why_a_domain_ended_is_said_afterwards() {
    let place = Place::new();
    let panic = "echo begun; sleep 1; echo c >/proc/sysrq-trigger; sleep 100";
    let reason = reason_of(&place, "panics", &[], panic, 122);
    assert!(reason.contains("panicked") && reason.contains("sysrq"), "{reason}");
    let reason = reason_of(&place, "late", &["--timeout", "15"], "echo begun; sleep 100", 124);
    assert!(reason.contains("--timeout"), "{reason}");
}

#[test]
fn who_ends_as_wanted_has_no_reason() {
    let place = Place::new();
    place.detach("web", "exit 3");
    assert_eq!(place.says(&["wait", "web"]), "3\n");
    assert_eq!(place.row("web").expect("it is kept")["reason"], Value::Null);
    assert_eq!(place.state("web").as_deref(), Some("ended (3)"));
    assert_eq!(place.output(&["logs", "web"]).stderr, b"");
}

#[test]
fn the_log_is_printed_in_the_order_in_which_it_came() {
    let place = Place::new();
    place
        .detach("web", "for n in 1 2 3; do echo out$n; sleep 0.2; echo err$n >&2; sleep 0.2; done");
    place.says(&["wait", "web"]);
    let at = place.at_terminal(&["logs", "web"]);
    at.expect("out1\r\nerr1\r\nout2\r\nerr2\r\nout3\r\nerr3\r\n");
    let apart = place.output(&["logs", "web"]);
    assert_eq!(text(&apart.stdout), "out1\nout2\nout3\n");
    assert_eq!(text(&apart.stderr), "err1\nerr2\nerr3\n");
}

#[test]
fn domains_are_known_by_the_guests_command_and_processes_by_our_name() {
    let place = Place::new();
    let long = format!("sleep 1000; : {}", "x".repeat(100));
    place.detach("web", &long);
    let row = place.row("web").expect("it is listed");
    assert_eq!(row["command"], serde_json::json!(["sh", "-c", long]));
    assert!(place.says(&["ps"]).contains(&format!("sh -c {long}\n")), "a pipe has no width");
    let at = place.at_terminal(&["ps"]);
    at.expect("...");
    let at = place.at_terminal(&["ps", "--no-trunc"]);
    at.expect(&"x".repeat(60));

    let name = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let pid = place.pid("web").to_string();
    assert_eq!(name(&pid), "biv\n");
    let children =
        std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let names: Vec<String> = children.split_whitespace().map(name).collect();
    assert!(names.iter().all(|name| name != "exe\n"), "{names:?}");
}

/// Without a terminal of the domain's, lines are edited and Ctrl-C is the command's; the key leaves all the
/// same, and so does whoever ends `biv attach`.
#[test]
fn attach_is_left_without_ending_the_command() {
    let place = Place::new();
    place.detach("web", "trap 'echo interrupted' INT; while :; do echo tick; sleep 0.2; done");
    let mut at = place.at_terminal(&["attach", "web"]);
    at.expect("press Ctrl-] to detach");
    at.expect("tick");
    at.press("\x1d");
    at.expect("left web");
    at.check_end(0);
    for (signal, status) in
        [(rustix::process::Signal::TERM, 143), (rustix::process::Signal::HUP, 129)]
    {
        let at = place.at_terminal(&["attach", "web"]);
        at.expect("tick");
        at.signal(signal);
        at.check_end(status);
    }
    let mut at = place.at_terminal(&["attach", "web"]);
    at.expect("tick");
    // The end of one's own input is nothing to the command, and the key still leaves.
    at.press("\x04");
    at.signal(rustix::process::Signal::INT);
    at.expect("interrupted");
    at.press("\x1d");
    at.expect("left web");
    at.check_end(0);
    wait_for("it runs", || place.state("web").as_deref() == Some("running"));
}
