//! A registry of domains for one test, and the commands of a user who works with it.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use whole_machine::pseudo_terminal::AtTerminal;
use whole_machine::waiting::wait_for;
use whole_machine::{biv, bivouac, text};

/// Memory of a domain, unless a test says otherwise.
const MEMORY: &str = "128M";

/// A registry that disappears, with all domains that are in it.
pub struct Place {
    pub path: PathBuf,
}

impl Place {
    pub fn new() -> Place {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("biv-domains-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Place { path }
    }

    /// `biv` with these arguments, in this registry.
    pub fn biv(&self, arguments: &[&str]) -> Command {
        let mut command = biv(arguments);
        command.env("XDG_RUNTIME_DIR", &self.path);
        command
    }

    /// The same, to its end.
    pub fn output(&self, arguments: &[&str]) -> Output {
        self.biv(arguments).output().expect("biv can be started")
    }

    /// What it prints; it must succeed.
    #[track_caller]
    pub fn says(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(output.status.success(), "biv {arguments:?}: {output:?}");
        text(&output.stdout)
    }

    /// What it complains about; it must fail.
    #[track_caller]
    pub fn complains(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(!output.status.success(), "biv {arguments:?}: {output:?}");
        text(&output.stderr)
    }

    /// Starts a detached domain that runs a shell script.
    #[track_caller]
    pub fn detach(&self, name: &str, script: &str) {
        let said = self.says(&[
            "run",
            "-d",
            "--name",
            name,
            "--busybox",
            "--mem",
            MEMORY,
            "--",
            "sh",
            "-c",
            script,
        ]);
        assert_eq!(said, format!("{name}\n"));
    }

    /// `biv` with these arguments, at a terminal.
    pub fn at_terminal(&self, arguments: &[&str]) -> AtTerminal {
        // Signals that whoever runs the tests ignores (nohup) would be ignored here.
        let mut command = Command::new("env");
        command.arg("--default-signal").arg(bivouac());
        AtTerminal::start(command.args(arguments).env("XDG_RUNTIME_DIR", &self.path))
    }

    /// Runs a shell script in a domain.
    pub fn exec(&self, name: &str, script: &str) -> Output {
        self.output(&["exec", name, "sh", "-c", script])
    }

    /// The state of a domain, as `biv ps` has it.
    pub fn state(&self, name: &str) -> Option<String> {
        self.row(name)?["state"].as_str().map(str::to_owned)
    }

    /// What `biv ps` says of a domain.
    pub fn row(&self, name: &str) -> Option<Value> {
        let rows: Value =
            serde_json::from_str(&self.says(&["ps", "-a", "--format", "json"])).expect("JSON");
        rows.as_array().expect("a list").iter().find(|row| row["name"] == name).cloned()
    }

    /// The number of a domain's process.
    #[track_caller]
    pub fn pid(&self, name: &str) -> u32 {
        let row = self.row(name).expect("it is listed");
        row["pid"].as_u64().expect("it lives") as u32
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for entry in fs::read_dir(self.path.join("bivouac")).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let _ = self.output(&["rm", "--force", &name]);
        }
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Sends a process a signal.
pub fn signal(process: u32, signal: &str) {
    let status = Command::new("kill").args(["-s", signal, &process.to_string()]).status();
    assert!(status.is_ok_and(|status| status.success()), "cannot send SIG{signal}");
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
