//! A user who types commands, and reads what they say.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::processes::descendants_of;
use crate::pseudo_terminal::AtTerminal;
use crate::waiting::wait_for;
use crate::{biv, bivouac, text};

/// See above.
pub struct User {
    /// What each command begins with.
    words: &'static [&'static str],
    variables: Vec<(&'static str, OsString)>,
    directory: Option<&'static str>,
}

impl User {
    /// One whose commands all begin with these words after `biv`, and whose registry is below this directory.
    pub fn new(words: &'static [&'static str], runtime: &Path) -> User {
        User { words, variables: Vec::new(), directory: None }.with("XDG_RUNTIME_DIR", runtime)
    }

    /// With a variable in the environment.
    pub fn with(mut self, name: &'static str, value: &Path) -> User {
        self.variables.push((name, value.into()));
        self
    }

    /// In this directory.
    pub fn at(self, directory: &'static str) -> User {
        User { directory: Some(directory), ..self }
    }

    fn prepare<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = self.directory {
            command.current_dir(directory);
        }
        command
    }

    /// A command with these arguments.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = biv(&[self.words, arguments].concat());
        self.prepare(&mut command);
        command
    }

    /// The same, to its end.
    pub fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("biv can be started")
    }

    /// What it prints; it must succeed.
    #[track_caller]
    pub fn says(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(output.status.success(), "biv {:?} {arguments:?}: {output:?}", self.words);
        text(&output.stdout)
    }

    /// What it complains about; it must fail.
    #[track_caller]
    pub fn complains(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(!output.status.success(), "biv {:?} {arguments:?}: {output:?}", self.words);
        text(&output.stderr)
    }

    /// A command with these arguments, at a terminal.
    pub fn at_terminal(&self, arguments: &[&str]) -> AtTerminal {
        // Signals that whoever runs the tests ignores (nohup) would be ignored here.
        let mut command = Command::new("env");
        command.arg("--default-signal").arg(bivouac()).args(self.words).args(arguments);
        AtTerminal::start(self.prepare(&mut command))
    }

    /// The state of what has this name, as `ps` has it.
    pub fn state(&self, name: &str) -> Option<String> {
        self.row(name)?["state"].as_str().map(str::to_owned)
    }

    /// What `ps` says of it.
    pub fn row(&self, name: &str) -> Option<Value> {
        let rows: Value =
            serde_json::from_str(&self.says(&["ps", "-a", "--format", "json"])).expect("JSON");
        rows.as_array().expect("a list").iter().find(|row| row["name"] == name).cloned()
    }

    /// Removes all domains whose directories are in this one, at a test's end.
    pub fn remove_domains(&self, registry: &Path) {
        for entry in std::fs::read_dir(registry).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let _ = self.output(&["rm", "--force", &name]);
        }
    }

    /// The number of its process, which lives.
    #[track_caller]
    pub fn pid(&self, name: &str) -> u32 {
        let row = self.row(name).expect("it is listed");
        row["pid"].as_u64().expect("it lives") as u32
    }
}

/// Waits for the end of a child, however it comes, and takes what it writes until then.
#[track_caller]
pub fn end_of(child: Child) -> Output {
    let reader = std::thread::spawn(move || child.wait_with_output());
    wait_for("a command ends", || reader.is_finished());
    reader.join().expect("it does not panic").expect("it has ended")
}

/// Starts it with its streams in our hands.
pub fn start(mut command: Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("biv can be started")
}

/// Signals `biv`, which is the child of whoever ends it when it takes too long; whether it was still there.
pub fn signal(child: &Child, signal: Signal) -> bool {
    let process = descendants_of(child.id()).first().copied().unwrap_or(child.id());
    let process = Pid::from_raw(process.cast_signed());
    process.is_some_and(|process| kill_process(process, signal).is_ok())
}
