//! Domains that are started again: by their user, or by their supervisor.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::place::{Place, signal};
use whole_machine::processes::{descendants_of, stat, survivors};
use whole_machine::text;
use whole_machine::waiting::wait_for;

/// Starts a detached domain with options.
#[track_caller]
fn detach(place: &Place, name: &str, options: &[&str], script: &str) {
    let start = [&["run", "-d", "--name", name, "--busybox", "--mem", "128M"], options].concat();
    assert_eq!(
        place.says(&[&start[..], &["--", "sh", "-c", script]].concat()),
        format!("{name}\n")
    );
}

fn directory(place: &Place, name: &str) -> PathBuf {
    place.path.join("bivouac").join(name)
}

/// How often the script has begun, by its log.
fn runs(place: &Place, name: &str) -> usize {
    text(&place.output(&["logs", name]).stdout).matches("run\n").count()
}

#[test]
fn a_domain_that_has_ended_is_started_again() {
    let place = Place::new();
    let options = ["--label", "tier=web", "--label", "mine", "--hostname", "first"];
    detach(&place, "web", &options, "echo run; hostname; cat /mark; touch /mark; exit 3");
    assert_eq!(place.says(&["wait", "web"]), "3\n");
    assert_eq!(place.says(&["ps", "-aq", "--filter", "label=tier=web"]), "web\n");
    assert_eq!(place.says(&["ps", "-aq", "--filter", "label=mine"]), "web\n");
    assert_eq!(place.says(&["ps", "-aq", "--filter", "label=tier=db"]), "");
    assert_eq!(place.row("web").expect("it is kept")["labels"]["tier"], "web");
    let before = text(&place.output(&["logs", "-t", "web"]).stdout);

    assert_eq!(place.says(&["start", "web"]), "web\n");
    assert_eq!(place.says(&["wait", "web"]), "3\n");
    // Its memory is new, and its log goes on.
    let log = place.output(&["logs", "web"]);
    assert_eq!(text(&log.stdout), "run\nfirst\nrun\nfirst\n");
    assert_eq!(text(&log.stderr).matches("can't open '/mark'").count(), 2, "{log:?}");
    let stamped = text(&place.output(&["logs", "-t", "web"]).stdout);
    assert!(stamped.starts_with(&before), "{stamped}");
    let second = stamped.lines().nth(2).and_then(|line| line.split_once(' ')).expect("a time").0;
    assert_eq!(text(&place.output(&["logs", "--since", second, "web"]).stdout), "run\nfirst\n");
    assert_eq!(text(&place.output(&["logs", "--until", second, "web"]).stdout), "run\nfirst\n");
    assert_eq!(text(&place.output(&["logs", "--since", "1d", "web"]).stdout).lines().count(), 4);

    assert!(place.complains(&["start", "web", "none"]).contains("no domain none"));
    place.says(&["wait", "web"]);
    place.says(&["rm", "web"]);
    assert!(place.complains(&["start", "web"]).contains("no domain web"));
}

#[test]
fn a_domain_that_runs_is_left_alone_by_start_and_not_by_restart() {
    let place = Place::new();
    place.detach("web", "echo run; sleep 1000");
    let pid = place.pid("web");
    assert_eq!(place.says(&["start", "web"]), "web\n");
    assert_eq!(place.pid("web"), pid);
    assert_eq!(place.says(&["restart", "web"]), "web\n");
    assert_ne!(place.pid("web"), pid);
    assert_eq!(place.state("web").as_deref(), Some("running"));
    let top = place.says(&["top", "web"]);
    assert!(top.contains("sleep 1000"), "{top}");
    let options = place.says(&["top", "web", "-o", "pid,args"]);
    assert!(options.contains("sleep 1000") && !options.contains("USER"), "{options}");

    place.says(&["rename", "web", "site"]);
    assert_eq!(place.state("site").as_deref(), Some("running"));
    assert!(place.complains(&["exec", "web", "true"]).contains("no domain web"));
    let inspected: Value = serde_json::from_str(&place.says(&["inspect", "site"])).expect("JSON");
    assert_eq!(inspected[0]["record"]["name"], "site");
    place.detach("other", "sleep 1000");
    assert!(place.complains(&["rename", "site", "other"]).contains("already exists"));
    assert!(place.complains(&["rename", "site", "../x"]).contains("invalid domain name"));
    place.says(&["stop", "site"]);
    assert_eq!(place.state("site").as_deref(), Some("ended (143)"));
    assert_eq!(place.says(&["start", "site"]), "site\n");
    assert_eq!(place.state("site").as_deref(), Some("running"));
}

/// The record's file is open in the domain's process, which may be its guest's.
#[test]
fn what_a_domain_writes_of_itself_is_not_what_it_is_started_from() {
    let place = Place::new();
    place.detach("web", "echo run; ls /stolen");
    place.says(&["wait", "web"]);
    let path = directory(&place, "web").join("record.json");
    let mut record: Value =
        serde_json::from_slice(&fs::read(&path).expect("a record")).expect("JSON");
    record["spec"]["mounts"] = serde_json::json!([{"host": "/", "guest": "/stolen"}]);
    record["spec"]["process"]["args"] = serde_json::json!(["reboot"]);
    fs::write(&path, record.to_string()).expect("it is ours");
    assert_eq!(place.says(&["start", "web"]), "web\n");
    assert_eq!(place.says(&["wait", "web"]), "1\n");
    let log = place.output(&["logs", "web"]);
    assert_eq!(text(&log.stdout), "run\nrun\n");
    assert_eq!(text(&log.stderr).matches("/stolen: No such file").count(), 2, "{log:?}");
}

#[test]
fn a_domain_that_cannot_be_started_stays_what_it_was() {
    let place = Place::new();
    let volume = place.path.join("volume");
    fs::create_dir(&volume).expect("a directory");
    let mount = format!("{}:/mnt", volume.display());
    detach(&place, "web", &["--volume", &mount], "echo run");
    place.says(&["wait", "web"]);
    fs::remove_dir(&volume).expect("it is empty");
    let complaint = place.complains(&["start", "web"]);
    assert!(complaint.contains("volume") && complaint.contains("did not start"), "{complaint}");
    assert_eq!(text(&place.output(&["logs", "web"]).stdout), "run\n");
    fs::create_dir(&volume).expect("a directory");
    assert_eq!(place.says(&["start", "web"]), "web\n");
    place.says(&["wait", "web"]);
    assert_eq!(text(&place.output(&["logs", "web"]).stdout), "run\nrun\n");
}

#[test]
fn a_supervisor_starts_its_domain_until_somebody_stops_it() {
    let place = Place::new();
    detach(&place, "web", &["--restart", "always"], "echo run; sleep 0.3");
    wait_for("it has run three times", || runs(&place, "web") >= 3);
    place.says(&["stop", "web"]);
    let stopped = runs(&place, "web");
    let state = place.state("web").expect("it is kept");
    assert!(state.starts_with("ended"), "{state}");
    // It would have started meanwhile: the longest pause so far is shorter.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(runs(&place, "web"), stopped);
    assert_eq!(place.says(&["start", "web"]), "web\n");
    wait_for("it has run twice more", || runs(&place, "web") >= stopped + 2);
    let pid = place.pid("web");
    let supervisor = stat(pid).expect("it runs").fields[1].parse().expect("a number");
    let family = descendants_of(supervisor);
    assert!(family.contains(&pid), "{family:?}");
    place.says(&["rm", "--force", "web"]);
    assert_eq!(place.says(&["ps", "-aq"]), "");
    assert_eq!(survivors(&family, Duration::from_secs(10)), Vec::<u32>::new());
}

#[test]
fn a_domain_whose_process_is_killed_is_started_again_and_one_that_is_killed_is_not() {
    let place = Place::new();
    detach(&place, "web", &["--restart", "on-failure"], "echo run; sleep 1000");
    wait_for("it has run once", || runs(&place, "web") == 1);
    let first = place.pid("web");
    signal(first, "KILL");
    wait_for("it runs again", || runs(&place, "web") == 2);
    wait_for("it says so", || place.state("web").as_deref() == Some("running"));
    assert_ne!(place.pid("web"), first);
    assert!(place.complains(&["rename", "web", "site"]).contains("--restart"));
    place.says(&["restart", "-t", "1", "web"]);
    wait_for("it has run a third time", || runs(&place, "web") == 3);
    place.says(&["kill", "web"]);
    assert_eq!(place.state("web").as_deref(), Some("ended (137)"));
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(place.state("web").as_deref(), Some("ended (137)"));
    place.says(&["rm", "web"]);
}

#[test]
fn failures_are_counted_and_a_good_end_is_one() {
    let place = Place::new();
    detach(&place, "bad", &["--restart", "on-failure:2"], "echo run; exit 3");
    detach(&place, "good", &["--restart", "on-failure:2"], "echo run");
    let is_over = |name: &str| place.state(name).is_some_and(|state| state.starts_with("ended"));
    wait_for("both are over", || is_over("bad") && is_over("good"));
    assert_eq!((runs(&place, "bad"), runs(&place, "good")), (3, 1));
    for options in [&["--restart", "always"][..], &["-d", "--rm", "--restart", "always"]] {
        let line = [&["run"], options, &["--busybox", "true"]].concat();
        assert!(place.complains(&line).contains("started again"), "{options:?}");
    }
}

/// The longest pause is a minute: it is not waited for.
#[test]
fn a_domain_that_pauses_is_stopped_at_once() {
    let place = Place::new();
    detach(&place, "web", &["--restart", "always"], "echo run; exit 3");
    wait_for("it pauses", || place.state("web").as_deref() == Some("restarting"));
    place.says(&["stop", "web"]);
    assert_eq!(place.state("web").as_deref(), Some("ended (3)"));
    place.says(&["rm", "web"]);
    detach(&place, "web", &["--restart", "always"], "echo run; exit 3");
    wait_for("it pauses", || place.state("web").as_deref() == Some("restarting"));
    place.says(&["rm", "--force", "web"]);
    assert_eq!(place.says(&["ps", "-aq"]), "");
}
