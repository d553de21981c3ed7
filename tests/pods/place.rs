//! A registry of pods for one test, and the commands of a user who works with it.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use whole_machine::pseudo_terminal::AtTerminal;
use whole_machine::waiting::wait_for;
use whole_machine::{biv, bivouac, program, text};

/// A registry that disappears, with all pods that are in it.
pub struct Place {
    pub path: PathBuf,
}

impl Place {
    /// None where the host has no pods, which is said.
    pub fn new() -> Option<Place> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("biv-pods-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        let place = Place { path };
        match why_none(&place) {
            None => Some(place),
            Some(reason) => {
                println!("skipped: this host has no pods: {reason}");
                None
            }
        }
    }

    /// `biv pod` with these arguments, in this registry.
    pub fn pod(&self, arguments: &[&str]) -> Command {
        let mut command = biv(&[&["pod"], arguments].concat());
        command.env("XDG_RUNTIME_DIR", &self.path).current_dir("/");
        command
    }

    /// The same, to its end.
    pub fn output(&self, arguments: &[&str]) -> Output {
        self.pod(arguments).output().expect("biv can be started")
    }

    /// What it prints; it must succeed.
    #[track_caller]
    pub fn says(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(output.status.success(), "biv pod {arguments:?}: {output:?}");
        text(&output.stdout)
    }

    /// What it complains about; it must fail.
    #[track_caller]
    pub fn complains(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(!output.status.success(), "biv pod {arguments:?}: {output:?}");
        text(&output.stderr)
    }

    /// What a shell script prints in a new pod; it must succeed.
    #[track_caller]
    pub fn script(&self, script: &str) -> String {
        self.says(&["run", "--", "sh", "-c", script])
    }

    /// Starts a detached pod that runs a shell script.
    #[track_caller]
    pub fn detach(&self, name: &str, script: &str) {
        let said = self.says(&["run", "-d", "--name", name, "--", "sh", "-c", script]);
        assert_eq!(said, format!("{name}\n"));
    }

    /// What a shell script prints in a pod that runs; it must succeed.
    #[track_caller]
    pub fn exec(&self, name: &str, script: &str) -> String {
        self.says(&["exec", name, "sh", "-c", script])
    }

    /// `biv pod` with these arguments, at a terminal.
    pub fn at_terminal(&self, arguments: &[&str]) -> AtTerminal {
        // Signals that whoever runs the tests ignores (nohup) would be ignored here.
        let mut command = Command::new("env");
        command.arg("--default-signal").arg(bivouac()).arg("pod").args(arguments);
        AtTerminal::start(command.env("XDG_RUNTIME_DIR", &self.path).current_dir("/"))
    }

    /// The state of a pod, as `biv pod ps` has it.
    pub fn state(&self, name: &str) -> Option<String> {
        self.row(name)?["state"].as_str().map(str::to_owned)
    }

    /// What `biv pod ps` says of a pod.
    pub fn row(&self, name: &str) -> Option<Value> {
        let rows: Value =
            serde_json::from_str(&self.says(&["ps", "-a", "--format", "json"])).expect("JSON");
        rows.as_array().expect("a list").iter().find(|row| row["name"] == name).cloned()
    }

    /// The number of a pod's keeper.
    #[track_caller]
    pub fn keeper(&self, name: &str) -> u32 {
        let row = self.row(name).expect("it is listed");
        row["pid"].as_u64().expect("it lives") as u32
    }

    /// Puts the program that checks names into a pod.
    pub fn give_probe(&self, name: &str) {
        let put = "cat >/tmp/pod-probe && chmod 755 /tmp/pod-probe";
        let mut command = self.pod(&["exec", "-i", name, "sh", "-c", put]);
        let status = command.stdin(File::open(probe()).expect("it is built")).status();
        assert!(status.expect("biv can be started").success(), "cannot copy the probe");
    }

    /// What is in the registry's directory.
    pub fn left(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path.join("bivouac/.pods")).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name != ".lock").collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for name in self.left() {
            let _ = self.output(&["rm", "--force", &name]);
        }
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Why the host has no pods, if it has none.
fn why_none(place: &Place) -> Option<String> {
    static REASON: OnceLock<Option<String>> = OnceLock::new();
    let reason = REASON.get_or_init(|| {
        let output = place.output(&["run", "--", "true"]);
        let said = text(&output.stderr);
        let is_forbidden = said.contains("does not let an ordinary process have user namespaces");
        assert!(output.status.success() || is_forbidden, "{output:?}");
        (!output.status.success()).then_some(said)
    });
    reason.clone()
}

/// The program that checks names.
pub fn probe() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| program("pod-probe", "pod-probe")).clone()
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
