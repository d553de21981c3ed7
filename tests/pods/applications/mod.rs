//! Real programs that go on: they move, and are restarted from images, while they are at work. Each test says so, and
//! is skipped, where the program is not installed.

mod build;
mod databases;
mod editor;
mod servers;

use std::io::Write;
use std::process::Stdio;

use whole_machine::text;
use whole_machine::waiting::wait_for;

use crate::moves::receive;
use crate::neighbours::{place_with, sleeper};
use crate::place::{Place, end_of};

/// Where programs are.
const PATH: &str = "export PATH=$PATH:/usr/sbin:/sbin:/usr/local/go/bin; cd /tmp";

/// Whether pods have this program; if not, it is said.
fn has(place: &Place, program: &str) -> bool {
    let look = format!("{PATH}; command -v {program}");
    let is_there =
        place.output(&["run", "--net", "none", "--", "sh", "-c", &look]).status.success();
    if !is_there {
        println!("skipped: {program} is not installed");
    }
    is_there
}

/// A place with a network, in which a pod `near` has the probe; none where there are no pods, or none with this
/// program.
fn neighbourhood(program: &str) -> Option<Place> {
    let place = place_with("one")?;
    if !has(&place, program) {
        return None;
    }
    sleeper(&place, "near", &["--network", "one"]);
    Some(place)
}

/// A program in a pod, which goes on in other pods.
struct Application<'a> {
    place: &'a Place,
    /// How many pods it was in before.
    before: u32,
}

impl Application<'_> {
    /// One that is started by a script, once it has its files, in the directory `/tmp`, and the probe.
    fn start<'a>(place: &'a Place, script: &str, files: &[(&str, &[u8])]) -> Application<'a> {
        let script = format!("{PATH}; until [ -e go ]; do sleep 0.02; done; {script}");
        let name = ["run", "-d", "--name", "web0", "--network", "one", "-w", "/tmp"];
        place.says(&[&name[..], &["--", "sh", "-c", &script]].concat());
        let application = Application { place, before: 0 };
        files.iter().for_each(|(file, bytes)| application.give(file, bytes));
        place.give_probe("web0");
        place.exec("web0", "touch /tmp/go");
        application
    }

    fn give(&self, file: &str, bytes: &[u8]) {
        let put = format!("cat >/tmp/{file}");
        let mut command = self.place.command(&["exec", "-i", &self.name(), "sh", "-c", &put]);
        let mut child = command.stdin(Stdio::piped()).spawn().expect("biv can be started");
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(bytes).expect("all is taken");
        drop(input);
        assert!(end_of(child).status.success(), "cannot copy {file}");
    }

    /// The pod that it is in.
    fn name(&self) -> String {
        format!("web{}", self.before)
    }

    /// What a script says beside it.
    #[track_caller]
    fn exec(&self, script: &str) -> String {
        self.place.exec(&self.name(), &format!("{PATH}; {script}"))
    }

    /// Waits until a script beside it succeeds.
    #[track_caller]
    fn wait_until(&self, script: &str) {
        let script = format!("{PATH}; {script}");
        let exec = ["exec", &self.name(), "sh", "-c", &script];
        wait_for(&script, || self.place.output(&exec).status.success());
    }

    /// Has it move to a new pod.
    #[track_caller]
    fn move_on(&mut self) {
        let socket = self.place.path.join("socket").display().to_string();
        let old = self.name();
        self.before += 1;
        let receiver = receive(self.place, &socket, &["--name", &self.name()]);
        self.place.says(&["migrate", &old, &format!("unix:{socket}")]);
        let output = end_of(receiver);
        assert!(output.status.success(), "{output:?}");
        self.remove(&old);
    }

    /// Has it end, and go on from an image in a new pod.
    #[track_caller]
    fn restart(&mut self) {
        let image = self.place.path.join("image.pod").display().to_string();
        let old = self.name();
        self.place.says(&["checkpoint", "--force", "--stop", "-o", &image, &old]);
        self.remove(&old);
        self.before += 1;
        self.place.says(&["restart", "-d", "--name", &self.name(), &image]);
    }

    #[track_caller]
    fn remove(&self, pod: &str) {
        assert_eq!(self.place.says(&["wait", pod]), "137\n");
        self.place.says(&["rm", pod]);
    }

    /// Waits until it has said, in this pod, something of each of these kinds, and nothing that is wrong.
    #[track_caller]
    fn wait_for_each(&self, kinds: &[&str]) {
        for kind in kinds {
            wait_for(kind, || {
                let said = text(&self.place.output(&["logs", &self.name()]).stdout);
                assert!(!said.contains("wrong"), "{said}");
                // The first line may be from before.
                said.lines().filter(|line| line.starts_with(kind)).count() > 1
            });
        }
    }
}
