//! A registry of domains for one test, and the commands of a user who works with it.

use std::fs;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use whole_machine::user::User;
pub use whole_machine::user::{end_of, start};

/// Memory of a domain, unless a test says otherwise.
const MEMORY: &str = "128M";

/// A registry that disappears, with all domains that are in it.
pub struct Place {
    pub path: PathBuf,
    user: User,
}

impl Place {
    pub fn new() -> Place {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("biv-domains-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Place { user: User::new(&[], &path), path }
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

    /// Runs a shell script in a domain.
    pub fn exec(&self, name: &str, script: &str) -> Output {
        self.output(&["exec", name, "sh", "-c", script])
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
        self.remove_domains(&self.path.join("bivouac"));
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Sends a process a signal.
pub fn signal(process: u32, signal: &str) {
    let status = Command::new("kill").args(["-s", signal, &process.to_string()]).status();
    assert!(status.is_ok_and(|status| status.success()), "cannot send SIG{signal}");
}
