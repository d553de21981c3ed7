//! All of it as an ordinary user: where root runs these tests, this one runs this program once more, with the same
//! tests, as somebody who has no capability and owns nothing but a directory.
//!
//! He has no compiler: `biv` and the probe are copied to where these tests find them, and are not built.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use whole_machine::{bivouac, text};

use crate::place::{Place, probe};

/// How long all may take, in seconds.
const PATIENCE: &str = "600";

/// What is left out: what takes minutes, and machines, whose kernels root has fetched.
const LEFT_OUT: [&str; 8] = [
    "ends::whoever_is_killed_leaves_nothing",
    "large",
    "machines",
    "ordinary",
    "races",
    "steps::whoever_is_killed_at_a_step_leaves_nothing",
    "steps::there_is_one_pod_at_each_step",
    "storms",
];

/// Users without a name, of whom one is nobody yet.
const USERS: std::ops::Range<u32> = 12_345..12_445;

/// A user's directory. It disappears with all processes that are his.
struct Home {
    path: PathBuf,
    user: u32,
}

impl Home {
    fn new() -> Home {
        let user = USERS.into_iter().find(|user| processes_of(*user).is_empty());
        let path = std::env::temp_dir().join(format!("biv-user-{}", std::process::id()));
        let home = Home { path, user: user.expect("somebody has nothing") };
        fs::create_dir(&home.path).expect("there is room");
        fs::set_permissions(&home.path, Permissions::from_mode(0o755)).expect("ours");
        home
    }

    /// A directory of his.
    fn directory(&self, name: &str) -> PathBuf {
        let path = self.path.join(name);
        fs::create_dir(&path).expect("there is room");
        chown(&path, Some(self.user), Some(self.user)).expect("root gives things away");
        path
    }

    /// Copies a program to where he may start it.
    fn give(&self, program: &Path, to: &str) -> PathBuf {
        let to = self.path.join(to);
        fs::create_dir_all(to.parent().expect("a directory")).expect("there is room");
        fs::copy(program, &to).expect("there is room");
        fs::set_permissions(&to, Permissions::from_mode(0o755)).expect("ours");
        to
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        for process in processes_of(self.user) {
            let _ = kill_process(process, Signal::KILL);
        }
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn processes_of(user: u32) -> Vec<Pid> {
    let all = fs::read_dir("/proc").expect("/proc is mounted").flatten();
    let his = all.filter(|entry| entry.metadata().is_ok_and(|metadata| metadata.uid() == user));
    his.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)).collect()
}

#[test]
fn an_ordinary_user_has_the_same() {
    if !rustix::process::geteuid().is_root() {
        println!("this is an ordinary user");
        return;
    }
    if Place::new().is_none() {
        return;
    }
    let home = Home::new();
    // As cargo has them: the profile's directory, and tests in one below.
    home.give(&bivouac(), "built/biv");
    home.give(&probe(), "built/pod-probe");
    let own = std::env::current_exe().expect("a test has a path");
    let tests = home.give(&own, "built/deps/pods");
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={}", home.user), format!("--regid={}", home.user)]);
    command.args(["--clear-groups", "--inh-caps=-all", "--bounding-set=-all", "--"]);
    command.args(["timeout", PATIENCE]).arg(tests).args(["--test-threads=2"]);
    command.args(LEFT_OUT.iter().flat_map(|name| ["--skip", name]));
    command.env("HOME", home.directory("home")).env("TMPDIR", home.directory("t"));
    command.env("CARGO", "true").env_remove("XDG_RUNTIME_DIR").env_remove("XDG_CACHE_HOME");
    let output = command.current_dir("/").output().expect("util-linux has setpriv");
    let said = text(&output.stdout);
    let last = said.lines().rfind(|line| line.starts_with("test result"));
    println!("{}", last.unwrap_or("it does not come to an end"));
    assert!(output.status.success(), "{said}\n{}", text(&output.stderr));
}
