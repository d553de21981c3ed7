//! Pods in machines: every verb with `--in`.

use std::ops::Deref;

use serde_json::Value;
use whole_machine::text;
use whole_machine::user::User;
use whole_machine::waiting::wait_for;

use crate::place::{COUNTS, LARGE, Place};

/// A machine for pods, which ends with this, and the host's pods.
pub struct Machine {
    pub user: User,
    place: Place,
}

impl Machine {
    fn new(place: Place) -> Machine {
        Self::with(place, &["--net", "none"])
    }

    pub fn with(place: Place, options: &[&str]) -> Machine {
        let user = User::new(&[], &place.path).at("/");
        let words = ["run", "-d", "--name", "m"];
        let command = ["--", "sleep", "100000"];
        assert_eq!(user.says(&[&words[..], options, &command].concat()), "m\n");
        Machine { user, place }
    }

    /// What a verb of `biv pod` says that is done in the machine.
    #[track_caller]
    pub fn pod(&self, verb: &[&str]) -> String {
        self.user.says(&[&["pod", "--in", "m"], verb].concat())
    }

    /// What a pod in the machine that counts has said so far.
    fn counts(&self, name: &str) -> Vec<u64> {
        let log = text(&self.user.output(&["pod", "logs", "--in", "m", name]).stdout);
        log.lines().map(|line| line.parse().expect("it counts")).collect()
    }
}

impl Deref for Machine {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.place
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.user.output(&["rm", "--force", "m"]);
    }
}

#[test]
fn a_machine_has_pods_of_its_own() {
    let Some(place) = Place::new() else { return };
    let machine = Machine::new(place);
    let run = ["pod", "--in", "m", "run", "--net", "none", "--hostname", "inner", "--"];
    let script = "hostname; uname -r; echo $$; exit 3";
    let output = machine.user.output(&[&run[..], &["sh", "-c", script]].concat());
    let release = machine.user.says(&["exec", "m", "uname", "-r"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(text(&output.stdout), format!("inner\n{release}3\n"));
    // The host has none of them.
    machine.pod(&["run", "-d", "--net", "none", "--name", "web", "--", "sh", "-c", COUNTS]);
    wait_for("it counts", || machine.counts("web").len() > 2);
    assert!(machine.pod(&["ps"]).contains("\nweb "));
    assert!(!machine.says(&["ps", "--all"]).contains("web"));
    // The first word that is `--in` is the option, and no other.
    assert_eq!(machine.pod(&["exec", "web", "echo", "--in", "x"]), "--in x\n");
    let complaint = machine.user.complains(&["pod", "run", "--in", "nowhere", "--", "true"]);
    assert!(complaint.contains("nowhere"), "{complaint}");
}

/// The machine's kernel is another one than the host's, as a rule.
#[test]
fn a_pod_moves_into_a_machine_and_out_of_it() {
    let Some(place) = Place::new() else { return };
    let machine = Machine::new(place);
    // Each line says the time, which programs ask the kernel's vDSO for.
    let script = "n=0; while :; do n=$((n+1)); echo $n $(date +%s) $(uname -r); sleep 0.05; done";
    machine.says(&["run", "-d", "--net", "none", "--name", "web", "--", "sh", "-c", script]);
    let log = |is_inside: bool| {
        let place: &[&str] = if is_inside { &["pod", "--in", "m"] } else { &["pod"] };
        text(&machine.user.output(&[place, &["logs", "web"]].concat()).stdout)
    };
    let [host, guest] = [&["pod", "run", "--", "uname", "-r"][..], &["exec", "m", "uname", "-r"]]
        .map(|words| machine.user.says(words).trim().to_owned());
    let (mut last, mut time) = (0, 0);
    for is_inside in [false, true, false, true] {
        if is_inside {
            machine.says(&["migrate", "web", "machine:m"]);
            machine.says(&["wait", "web"]);
            machine.says(&["rm", "web"]);
        } else if last > 0 {
            machine.pod(&["migrate", "web", "here"]);
            machine.pod(&["wait", "web"]);
            machine.pod(&["rm", "web"]);
        }
        wait_for("it counts", || log(is_inside).lines().count() > 4);
        // What was being written when it moved belongs to the place before.
        for line in log(is_inside).lines().skip(1) {
            let words: Vec<&str> = line.split(' ').collect();
            let [number, now] = [0, 1].map(|index| words[index].parse::<u64>().expect("a number"));
            assert!(number > last && now >= time, "{line} after {last} {time}");
            let kernel = if is_inside { &guest } else { &host };
            assert_eq!((words.len(), words[2]), (3, kernel.as_str()), "{line}");
            (last, time) = (number, now);
        }
    }
    machine.pod(&["rm", "-f", "web"]);
}

#[test]
fn a_pod_of_a_machine_goes_on_from_its_image() {
    let Some(place) = Place::new() else { return };
    let machine = Machine::new(place);
    machine.pod(&["run", "-d", "--net", "none", "--name", "web", "--", "sh", "-c", COUNTS]);
    wait_for("it counts", || machine.counts("web").len() > 2);
    machine.pod(&["checkpoint", "--stop", "-o", "/run/web.pod", "web"]);
    machine.pod(&["wait", "web"]);
    let last = *machine.counts("web").last().expect("it has counted");
    machine.pod(&["rm", "-f", "web"]);
    machine.pod(&["restart", "-d", "--net", "none", "--name", "web", "/run/web.pod"]);
    wait_for("it goes on", || machine.counts("web").len() > 2);
    let counts = machine.counts("web");
    assert!(counts[0] <= last + 1 && counts[0] > 1, "{} after {last}", counts[0]);
    machine.pod(&["rm", "-f", "web"]);
}

/// The kernel has no other way to tell what is written than its soft-dirty bits.
#[test]
fn memory_is_copied_while_a_pod_runs_on_an_older_kernel() {
    let Some(place) = Place::new() else { return };
    let fetched = User::new(&[], &place.path).at("/").says(&["kernel", "ls"]);
    if !fetched.lines().any(|line| line.starts_with("6.1.")) {
        println!("skipped: Linux 6.1 was not fetched (biv kernel fetch): {fetched}");
        return;
    }
    let machine = Machine::with(place, &["--kernel", "6.1", "--mem", "1G", "--net", "none"]);
    println!("the machine has Linux {}", machine.user.says(&["exec", "m", "uname", "-r"]));
    let run = ["run", "-d", "--net", "none", "--name", "large", "--", "sh", "-c"];
    machine.pod(&[&run[..], &[&format!("{LARGE}; {COUNTS}")]].concat());
    wait_for("it counts", || machine.counts("large").len() > 2);
    let checkpoint = ["checkpoint", "--format", "json", "large", "-o"];
    let said = machine.pod(&[&checkpoint[..], &["/run/1.pod", "--track"]].concat());
    let first: Value = serde_json::from_str(&said).expect("JSON");
    let said = machine.pod(&[&checkpoint[..], &["/run/2.pod", "--incremental"]].concat());
    let second: Value = serde_json::from_str(&said).expect("JSON");
    assert!(first["rounds"][0]["copied"].as_u64() > Some(50_000_000), "{first}");
    // What was copied is in the image once, and not in the increment.
    assert!(first["file"].as_u64() < Some(100_000_000), "{first}");
    assert!(second["file"].as_u64() < Some(30_000_000), "{second}");
    machine.pod(&["rm", "-f", "large"]);
    let restart = ["restart", "-d", "--net", "none", "--name", "large", "/run/2.pod"];
    machine.pod(&restart);
    machine.pod(&["kill", "--signal", "USR1", "large"]);
    let digests = ["pod", "exec", "--in", "m", "large", "sh", "-c", "cat /tmp/first /tmp/last"];
    let both = || text(&machine.user.output(&digests).stdout);
    wait_for("it says what it has", || both().lines().count() == 2);
    let both = both();
    let lines: Vec<_> = both.lines().collect();
    assert_eq!(lines[0], lines[1]);
    machine.pod(&["rm", "-f", "large"]);
}
