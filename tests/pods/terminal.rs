//! Commands on terminals of their own.

use std::time::Duration;

use whole_machine::pseudo_terminal::AtTerminal;

use crate::place::Place;

/// How long a shell may take to hand the terminal to what it starts.
const HANDING_OVER: Duration = Duration::from_millis(500);

/// What the shell says when asked.
#[track_caller]
fn ask(user: &mut AtTerminal, question: &str, answer: &str) {
    user.press(&format!("{question}\r"));
    user.expect(answer);
}

#[test]
fn a_command_on_a_terminal_has_a_session_and_jobs() {
    let Some(place) = Place::new() else { return };
    let mut user = place.at_terminal(&["run", "-it", "--env", "PS1=% ", "--", "sh", "-i"]);
    user.expect("% ");
    assert!(user.is_raw(), "the keys are the pod's");
    ask(&mut user, "tty", "/dev/pts/0");
    ask(&mut user, "stty size", "24 80");
    ask(&mut user, "echo session $(cut -d' ' -f6,7 /proc/$$/stat)", "session ");
    // Ctrl-C interrupts the job in the foreground, and not the shell.
    user.press("sleep 1000\r");
    std::thread::sleep(HANDING_OVER);
    user.press("\x03");
    ask(&mut user, "echo status=$?", "status=130");
    // Ctrl-Z stops it, and the shell goes on.
    user.press("sleep 1001\r");
    std::thread::sleep(HANDING_OVER);
    user.press("\x1a");
    ask(&mut user, "jobs", "Stopped");
    ask(&mut user, "kill -9 %1; wait; echo gone=$((40 + 2))", "gone=42");
    user.resize(33, 101);
    // The size comes with the next key at the latest.
    std::thread::sleep(HANDING_OVER);
    ask(&mut user, "stty size", "33 101");
    user.press("exit 6\r");
    user.check_end(6);
}

#[test]
fn who_detaches_leaves_the_command_alone() {
    let Some(place) = Place::new() else { return };
    place.says(&["run", "-dit", "--name", "web", "--env", "PS1=% ", "--", "sh", "-i"]);
    let mut user = place.at_terminal(&["attach", "web"]);
    user.expect("press Ctrl-] to detach");
    ask(&mut user, "echo here=$((40 + 2))", "here=42");
    user.press("\x1d");
    user.check_end(0);
    assert_eq!(place.state("web").as_deref(), Some("running"));
    let user = place.at_terminal(&["exec", "-it", "web", "sh", "-c", "tty; stty size; exit 4"]);
    user.expect("/dev/pts/1");
    user.expect("24 80");
    user.check_end(4);
}

#[test]
fn a_shell_goes_on_with_its_terminal_and_jobs() {
    let Some(place) = Place::new() else { return };
    let image = place.path.join("shell.pod").display().to_string();
    place.says(&["run", "-dit", "--name", "web", "--env", "PS1=% ", "--", "sh", "-i"]);
    let mut user = place.at_terminal(&["attach", "web"]);
    user.expect("press Ctrl-] to detach");
    ask(&mut user, "here=$((40 + 2)); sleep 1000 & stty -echo; echo ready=$here", "ready=42");
    user.press("sleep 1001\r");
    std::thread::sleep(HANDING_OVER);
    user.press("\x1a");
    ask(&mut user, "jobs", "Stopped");
    user.press("\x1d");
    user.check_end(0);
    place.says(&["checkpoint", "--stop", "-o", &image, "web"]);
    place.says(&["wait", "web"]);
    place.says(&["rm", "web"]);

    let mut user = place.at_terminal(&["restart", &image]);
    ask(&mut user, "echo again=$((here + 1))", "again=43");
    ask(&mut user, "tty", "/dev/pts/0");
    ask(&mut user, "stty -a", "-echo");
    ask(&mut user, "jobs -l", "Stopped");
    ask(&mut user, "kill -9 %1 %2; wait; echo gone=$((here + 2))", "gone=44");
    user.press("sleep 1000\r");
    std::thread::sleep(HANDING_OVER);
    user.press("\x03");
    ask(&mut user, "echo status=$?", "status=130");
    user.press("exit 6\r");
    user.check_end(6);
}
