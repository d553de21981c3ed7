//! The end of a pod, however it comes: by SIGKILL of its keeper, of its first process, of who has started it, at any
//! moment. No process, no mount and no name is left.
//!
//! What is left is counted in a process of its own, this test's program started once more, so that nothing of other
//! tests is counted: all orphans become its children, and its pods are in a registry of its own.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use whole_machine::processes::{adopt_orphans, descendants, descendants_of, stat};
use whole_machine::waiting::wait_for;

use crate::place::{Place, start};

/// How the inner process knows that it is the inner one.
const INNER: &str = "BIVOUAC_PODS_INNER";

const NAME: &str = "ends::whoever_is_killed_leaves_nothing";

/// Moments, in microseconds after the start: a pod is up after some 20 milliseconds.
const MOMENTS: [u64; 12] =
    [0, 500, 1000, 2000, 4000, 7000, 10_000, 14_000, 19_000, 25_000, 40_000, 100_000];

/// How long processes that have been killed may take to be gone.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn whoever_is_killed_leaves_nothing() {
    in_a_process_of_its_own(NAME, kill_everybody);
}

/// Does what the test of this name is to do in this test's program, started once more.
pub fn in_a_process_of_its_own(name: &str, work: impl FnOnce()) {
    if std::env::var_os(INNER).is_some() {
        return work();
    }
    if Place::new().is_none() {
        return;
    }
    let mut inner = Command::new("timeout");
    inner.arg("400").arg(std::env::current_exe().expect("a test has a path"));
    inner.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(INNER, "1");
    assert!(inner.status().expect("`timeout` can be started").success());
}

/// Who is killed.
#[derive(Debug, Clone, Copy)]
enum Whom {
    /// Who has started it, in the foreground: its keeper.
    Front,
    /// Who waits until a detached one is up.
    Waiting,
    /// The keeper of a detached one.
    Keeper,
    /// Its first process, on the host's side.
    Outer,
    /// Process 1 of the pod.
    Init,
    /// The process of its network.
    Network,
    /// The switch of the network that it shares.
    Switch,
}

const EVERYBODY: [Whom; 6] =
    [Whom::Front, Whom::Waiting, Whom::Keeper, Whom::Outer, Whom::Init, Whom::Network];

/// Those who are killed of a pod that shares a network.
const NEIGHBOURS: [Whom; 4] = [Whom::Keeper, Whom::Outer, Whom::Network, Whom::Switch];

fn kill_everybody() {
    adopt_orphans();
    let place = Place::new().expect("there was one");
    let mounts = || fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
    let before = mounts();
    let image = place.path.join("image.pod").display().to_string();
    place.detach("seed", SCRIPT);
    place.says(&["checkpoint", "--stop", "-o", &image, "seed"]);
    wait_for("it has ended", || place.state("seed").as_deref() == Some("ended (137)"));
    place.says(&["rm", "seed"]);
    let run: [&[&str]; 2] = [&["run"], &["--", "sh", "-c", SCRIPT]];
    let restart: [&[&str]; 2] = [&["restart"], &[&image]];
    for (how, moment) in [run, restart].iter().flat_map(|how| MOMENTS.map(|moment| (how, moment))) {
        for whom in EVERYBODY {
            kill_one(&place, *how, whom, Duration::from_micros(moment));
            check_nothing_is_left(&place, &format!("{how:?} {whom:?} after {moment} us"));
        }
    }
    place.says(&["network", "create", "one"]);
    let run: [&[&str]; 2] = [&["run", "--network", "one"], &["--", "sh", "-c", SCRIPT]];
    for (moment, whom) in MOMENTS.iter().flat_map(|it| NEIGHBOURS.map(|whom| (*it, whom))) {
        kill_one(&place, run, whom, Duration::from_micros(moment));
        check_nothing_is_left(&place, &format!("with neighbours, {whom:?} after {moment} us"));
    }
    place.says(&["network", "rm", "one"]);
    for moment in MOMENTS {
        kill_while_it_is_written(&place, Duration::from_micros(moment));
        check_nothing_is_left(&place, &format!("written, after {moment} us"));
    }
    fs::remove_file(&image).expect("it was written");
    assert_eq!(mounts(), before);
}

/// Processes of several kinds.
pub const SCRIPT: &str =
    "sleep 1000 & setsid sleep 1000 & (trap '' TERM HUP; sleep 1000) & sleep 1000";

/// No process and no name is left.
pub fn check_nothing_is_left(place: &Place, when: &str) {
    assert_nobody_is_left(when);
    // The next command that looks removes what is not kept.
    place.says(&["ps"]);
    for name in place.left() {
        place.says(&["rm", &name]);
    }
    assert_eq!(place.left(), Vec::<String>::new(), "{when}");
}

/// Freezes a pod, has an image of it written, and kills its keeper meanwhile.
fn kill_while_it_is_written(place: &Place, moment: Duration) {
    place.detach("web", SCRIPT);
    place.says(&["freeze", "web"]);
    let keeper = Pid::from_raw(place.pid("web").cast_signed()).expect("a process");
    let unfinished = place.path.join("unfinished.pod").display().to_string();
    let mut command = place.command(&["checkpoint", "--force", "-o", &unfinished, "web"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let child = start(command);
    std::thread::sleep(moment);
    kill_process(keeper, Signal::KILL).expect("it lives");
    let _ = crate::place::end_of(child);
    check_image(place, "unfinished.pod", &format!("{moment:?}"));
}

/// An image is whole, or not there, and no part of it is; removes it.
pub fn check_image(place: &Place, name: &str, when: &str) {
    if fs::remove_file(place.path.join(name)).is_err() {
        let names = fs::read_dir(&place.path).expect("it is there").flatten();
        let mut names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        assert!(!names.any(|it| it.starts_with(".unfinished")), "{when}");
    }
}

/// Starts a pod, by a verb and what follows its options, and kills one of those that are there.
fn kill_one(place: &Place, [verb, rest]: [&[&str]; 2], whom: Whom, moment: Duration) {
    let detached: &[&str] = match whom {
        Whom::Front | Whom::Outer | Whom::Init | Whom::Network | Whom::Switch => &[],
        Whom::Waiting | Whom::Keeper => &["-d"],
    };
    let arguments = [verb, detached, rest].concat();
    let mut command = place.command(&arguments);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let child = start(command);
    let begun = Instant::now();
    while begun.elapsed() < moment {
        std::thread::sleep(Duration::from_micros(100));
    }
    // `timeout` runs biv.
    let all = descendants_of(child.id());
    let called = |process: &&u32, wanted| stat(**process).is_some_and(|it| it.name == wanted);
    let named = |process: &&u32, wanted: &str| {
        let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).next() == Some(wanted.as_bytes())
    };
    let keepers = || {
        descendants().into_iter().filter(|process| {
            let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains("--bivouac-process=pod")
        })
    };
    let victim = match whom {
        Whom::Front | Whom::Waiting => all.first().copied(),
        Whom::Keeper => keepers().next(),
        Whom::Outer => descendants().iter().find(|it| named(it, "biv-pod")).copied(),
        Whom::Init => descendants().iter().find(|it| named(it, "biv-pod-init")).copied(),
        Whom::Network => descendants().iter().find(|it| called(it, "biv network")).copied(),
        Whom::Switch => descendants().iter().find(|it| called(it, "biv switch")).copied(),
    };
    // Who is not there yet, or no more, cannot be killed.
    let victim = victim.and_then(|victim| Pid::from_raw(victim.cast_signed()));
    let was_killed = victim.is_some_and(|victim| kill_process(victim, Signal::KILL).is_ok());
    if matches!(whom, Whom::Waiting | Whom::Network | Whom::Switch) || !was_killed {
        // The pod may go on without it; it is ended with its keeper.
        std::thread::sleep(Duration::from_millis(60));
        let rest = descendants().into_iter().filter_map(|it| Pid::from_raw(it.cast_signed()));
        for process in rest.collect::<Vec<_>>() {
            let is_keeper = stat(process.as_raw_pid().unsigned_abs())
                .is_some_and(|stat| stat.name == "biv" || stat.name == "timeout");
            if is_keeper {
                let _ = kill_process(process, Signal::KILL);
            }
        }
    }
    drop(child);
}

/// All that there was of it is gone, and is reaped here.
fn assert_nobody_is_left(when: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        let left = descendants();
        if left.is_empty() {
            return;
        }
        let names: Vec<_> = left.iter().filter_map(|it| Some(stat(*it)?.name)).collect();
        assert!(Instant::now() < deadline, "{when}: {names:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn whoever_asks_of_one_that_was_killed_is_told() {
    let Some(place) = Place::new() else { return };
    place.says(&["run", "-d", "--name", "web", "--", "sleep", "1000"]);
    let keeper = Pid::from_raw(place.pid("web").cast_signed()).expect("a process");
    kill_process(keeper, Signal::KILL).expect("it lives");
    wait_for("it is known", || place.state("web").as_deref() == Some("killed"));
    assert!(place.complains(&["exec", "web", "true"]).contains("is not running"));
    place.says(&["rm", "web"]);
    assert_eq!(place.left(), Vec::<String>::new());
}
