//! A shell with jobs, an editor among them, on a terminal that is another one afterwards.

use std::time::Duration;

use whole_machine::pseudo_terminal::AtTerminal;

use crate::place::Place;

use super::has;

/// How long the editor may take to see that a key was the escape key, and no beginning of another one.
const ESCAPE: Duration = Duration::from_millis(1500);

/// Presses keys; then the terminal shows these words anew.
#[track_caller]
fn press(user: &mut AtTerminal, keys: &str, shown: &str) {
    let before = user.shown().len();
    user.press(keys);
    user.wait_for(shown, || user.shown().get(before..).is_some_and(|new| new.contains(shown)));
}

/// Has the pod go on from an image, at another terminal.
fn restart(place: &Place, mut user: AtTerminal) -> AtTerminal {
    let image = place.path.join("editor.pod").display().to_string();
    user.press("\x1d");
    user.check_end(0);
    place.says(&["checkpoint", "--force", "--stop", "-o", &image, "web"]);
    place.says(&["wait", "web"]);
    place.says(&["rm", "web"]);
    place.says(&["restart", "-d", "--name", "web", &image]);
    attach(place)
}

fn attach(place: &Place) -> AtTerminal {
    let user = place.at_terminal(&["attach", "web"]);
    user.expect("press Ctrl-] to detach");
    user
}

#[test]
fn an_editor_and_a_shell_with_jobs_go_on() {
    let Some(place) = Place::new() else { return };
    let Some(editor) = ["vim.tiny", "vim.basic"].into_iter().find(|it| has(&place, it)) else {
        return;
    };
    if !has(&place, "bash") {
        return;
    }
    let shell = ["--", "bash", "--norc", "--noprofile", "-i"];
    let run = ["run", "-dit", "--name", "web", "--env", "PS1=% ", "--env", "TERM=xterm"];
    place.says(&[&run[..], &["-w", "/tmp"], &shell].concat());
    let mut user = attach(&place);
    press(&mut user, "echo here=$((40 + 2))\r", "here=42");
    press(&mut user, "sleep 1000 & sleep 1001 & jobs | wc -l\r", "\n2\r\n");
    press(&mut user, &format!("{editor} -u NONE -n text\r"), "\"text\"");
    press(&mut user, "ione two", "two");
    // It is in the middle of an insertion.
    let mut user = restart(&place, user);
    press(&mut user, " three", "three");
    user.press("\x1b");
    std::thread::sleep(ESCAPE);
    press(&mut user, "\x1a", "Stopped");
    // It stands still, beside jobs in the background.
    let mut user = restart(&place, user);
    press(&mut user, "jobs | grep -c Running; jobs\r", "Stopped");
    press(&mut user, "fg %3\r", "one two three");
    press(&mut user, "yyp:wq\r", "written");
    press(&mut user, "sort text | uniq -c\r", "2 one two three");
    press(&mut user, "kill %1 %2; wait; jobs; echo left=$((40 + 3))\r", "left=43");
    user.press("\x1d");
    user.check_end(0);
    place.says(&["rm", "--force", "web"]);
}
