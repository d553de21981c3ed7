//! A registry of domains for one test of whole systems, and what a user does with them.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use whole_machine::user::User;
use whole_machine::waiting::wait_for;
use whole_machine::{root, text};

/// See above; it goes away with this, and all domains in it.
pub struct Place {
    pub path: PathBuf,
    user: User,
}

impl Place {
    pub fn new() -> Place {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("biv-systems-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Place { user: User::new(&[], &path), path }
    }

    /// A disk of this test's own with systemd on it.
    pub fn system_disk(&self) -> String {
        let image = self.path.join("disk");
        self.make_file_system(&root::system(), &image, &[], "512M");
        image.to_str().expect("text").to_owned()
    }

    /// A file system with what is in a directory.
    pub fn make_file_system(&self, tree: &Path, image: &Path, options: &[&str], size: &str) {
        let mut make = Command::new("mke2fs");
        make.args(["-q", "-t", "ext4", "-E", "root_owner=0:0"]).args(options).arg("-d");
        let output = make.args([tree, image]).arg(size).output();
        let output = output.expect("`mke2fs` is installed");
        assert!(output.status.success(), "mke2fs: {}", text(&output.stderr));
    }

    /// Starts a detached machine.
    #[track_caller]
    pub fn detach(&self, name: &str, options: &[&str]) {
        let said = self.says(&[&["run", "-d", "--name", name, "--mem", "512M"], options].concat());
        assert_eq!(said, format!("{name}\n"));
    }

    /// Waits until systemd has started everything.
    #[track_caller]
    pub fn wait_until_up(&self, name: &str) {
        let output = self.output(&["exec", name, "systemctl", "is-system-running", "--wait"]);
        let failed = self.says(&["exec", name, "systemctl", "--failed", "--plain", "--no-legend"]);
        assert_eq!((&*text(&output.stdout), &*failed), ("running\n", ""));
    }

    /// What has been on the console.
    pub fn console(&self, name: &str) -> String {
        text(&self.output(&["logs", name]).stdout)
    }

    /// Stops one, which switches itself off.
    #[track_caller]
    pub fn stops(&self, name: &str) {
        let output = self.output(&["stop", "--time", "60", name]);
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        wait_for("it has ended", || self.state(name).as_deref() == Some("ended (0)"));
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
