//! A registry of pods for one test, and the commands of a user who works with it.

use std::fs::{self, File};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use whole_machine::user::User;
pub use whole_machine::user::{end_of, signal, start};
use whole_machine::waiting::wait_for;
use whole_machine::{program, text};

/// A shell script that counts, and says so.
pub const COUNTS: &str = "n=0; while :; do n=$((n+1)); echo $n; sleep 0.02; done";

/// A shell script that has the shell keep 60 MB of bytes that do not repeat, and their digest in a file; it puts the
/// digest of what it has then into another one at SIGUSR1.
pub const LARGE: &str = "x=$(head -c 45000000 /dev/urandom | base64 -w 0); \
                         printf %s \"$x\" | md5sum >/tmp/first; \
                         trap 'printf %s \"$x\" | md5sum >/tmp/now; mv /tmp/now /tmp/last' USR1";

/// A registry that disappears, with all pods that are in it.
pub struct Place {
    pub path: PathBuf,
    user: User,
}

impl Place {
    /// None where the host has no pods, which is said.
    pub fn new() -> Option<Place> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("biv-pods-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        let place = Place { user: User::new(&["pod"], &path).at("/"), path };
        match why_none(&place) {
            None => Some(place),
            Some(reason) => {
                println!("skipped: this host has no pods: {reason}");
                None
            }
        }
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

    /// The numbers that a pod which counts ([`COUNTS`]) has said so far.
    pub fn counts(&self, name: &str) -> Vec<u64> {
        let log = text(&self.output(&["logs", name]).stdout);
        log.lines().map(|line| line.parse().expect("it counts")).collect()
    }

    /// Waits until a pod that counts has come on.
    pub fn wait_for_more(&self, name: &str) {
        let before = self.counts(name).len();
        wait_for("it goes on", || self.counts(name).len() > before);
    }

    /// What a shell script prints in a pod that runs; it must succeed.
    #[track_caller]
    pub fn exec(&self, name: &str, script: &str) -> String {
        self.says(&["exec", name, "sh", "-c", script])
    }

    /// Waits until a pod that is large ([`LARGE`]) has said that it still has all of it.
    #[track_caller]
    pub fn check_large(&self, name: &str) {
        self.exec(name, "rm -f /tmp/last");
        self.says(&["kill", "--signal", "USR1", name]);
        let has_said = || text(&self.output(&["exec", name, "cat", "/tmp/last"]).stdout);
        wait_for("it says what it has", || !has_said().is_empty());
        assert_eq!(has_said(), self.exec(name, "cat /tmp/first"));
    }

    /// Puts the program that checks names into a pod.
    pub fn give_probe(&self, name: &str) {
        let put = "cat >/tmp/pod-probe && chmod 755 /tmp/pod-probe";
        let mut command = self.command(&["exec", "-i", name, "sh", "-c", put]);
        let status = command.stdin(File::open(probe()).expect("it is built")).status();
        assert!(status.expect("biv can be started").success(), "cannot copy the probe");
    }

    /// What is in the registry's directory.
    pub fn left(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path.join("bivouac/.pods")).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        // The lock, and the networks, which are there until they are removed.
        names.filter(|name| !name.starts_with('.')).collect()
    }
}

impl Deref for Place {
    type Target = User;

    fn deref(&self) -> &User {
        &self.user
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut refused = Vec::new();
        for name in self.left() {
            let messages = self.path.join("bivouac/.pods").join(&name).join("messages");
            let messages = fs::read_to_string(messages).unwrap_or_default();
            refused.extend(messages.contains("tried system call").then_some(messages));
            let _ = self.output(&["rm", "--force", &name]);
        }
        let _ = fs::remove_dir_all(&self.path);
        assert!(refused.is_empty() || std::thread::panicking(), "{refused:?}");
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
    BUILT.get_or_init(|| program("pod-probe")).clone()
}
