//! What a system's processes compute, all of them, also those that have ended and whom nobody waited for: as the
//! host's kernel accounts for a group of processes (cgroup v2, `cpu.stat`, which needs no controller).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What groups are called, before the number of the process that made them.
const PREFIX: &str = "bivouac-bench-";

/// A group of ours; removed when dropped.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
}

impl Group {
    /// A new group below the one that we are in, if we may make one.
    pub fn new() -> Option<Group> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let name = format!("{PREFIX}{}", std::process::id());
        let place = place(&mounts, &own)?;
        remove_abandoned(&place);
        let path = place.join(name);
        fs::create_dir(&path).ok()?;
        let group = Group { path };
        group.seconds().map(|_| group)
    }

    /// Seconds of a core so far.
    pub fn seconds(&self) -> Option<f64> {
        let text = fs::read_to_string(self.path.join("cpu.stat")).ok()?;
        let usage = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
        usage.trim().parse::<f64>().ok().map(|microseconds| microseconds / 1e6)
    }

    /// How to start a program in it, as the process that is started. Where it cannot be entered, it runs all the same.
    pub fn start(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ >\"$0\"; exec \"$@\""]);
        command.arg(self.path.join("cgroup.procs")).arg(program);
        command
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Processes that were ended may still be on their way.
        for _ in 0..50 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// Remove the groups of processes that were ended before they could do so.
fn remove_abandoned(place: &Path) {
    let Ok(entries) = fs::read_dir(place) else { return };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let maker = name.strip_prefix(PREFIX).map(|process| Path::new("/proc").join(process));
        if maker.is_some_and(|maker| !maker.exists()) {
            // One with processes in it stays.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Our group's directory, by /proc/self/mounts and /proc/self/cgroup (cgroups(7)).
fn place(mounts: &str, own: &str) -> Option<PathBuf> {
    let fields = |line: &str| {
        let mut words = line.split(' ');
        let (directory, kind) = (words.nth(1)?.to_owned(), words.next()?);
        (kind == "cgroup2").then_some(directory)
    };
    let mounted = mounts.lines().find_map(fields)?;
    let group = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(Path::new(&mounted).join(group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_below_our_own() {
        let mounts =
            "proc /proc proc rw 0 0\ncgroup /c/cpu cgroup rw,cpu 0 0\nnone /c/all cgroup2 rw 0 0\n";
        let expected = Some(PathBuf::from("/c/all/user/7"));
        assert_eq!(place(mounts, "1:cpu:/x\n0::/user/7\n"), expected);
        assert_eq!(place("proc /proc proc rw 0 0\n", "0::/\n"), None);
    }

    #[test]
    fn what_children_computed_counts_after_their_end() {
        // Who may make no groups, has nothing to count with.
        let Some(group) = Group::new() else { return };
        let mut shell = group.start(Path::new("sh"));
        let busy = "sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done'";
        crate::run(shell.args(["-c", busy])).unwrap();
        assert!(group.seconds().unwrap() > 0.001);
        let path = group.path.clone();
        let abandoned = path.with_file_name(format!("{PREFIX}4194305"));
        fs::create_dir(&abandoned).unwrap();
        remove_abandoned(path.parent().unwrap());
        assert!(path.exists() && !abandoned.exists());
        drop(group);
        assert!(!path.exists());
    }
}
