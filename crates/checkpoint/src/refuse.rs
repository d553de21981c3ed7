//! What is refused, by name, before a process is touched.

use std::fs;

use crate::error::Error;
use crate::proc::descriptor::{self, Kind};
use crate::proc::stat::Stat;
use crate::proc::status::Status;
use crate::proc::{self, maps, socket};

/// Namespaces that all processes of a tree must have in common.
const NAMESPACES: [&str; 8] = ["user", "pid", "mnt", "net", "ipc", "uts", "cgroup", "time"];
/// Flags of mappings (proc_pid_smaps(5)) that cannot be made again, and what they say.
const MAPPINGS: [(&str, &str); 8] = [
    ("um", "memory that userfaultfd watches"),
    ("uw", "memory that userfaultfd watches"),
    ("ui", "memory that userfaultfd watches"),
    ("io", "a device's memory"),
    ("pf", "a device's memory"),
    ("ht", "huge pages of hugetlbfs"),
    ("ss", "a shadow stack"),
    ("sl", "sealed memory (mseal(2))"),
];

/// What memory has whose pages are protected, be it by us.
const WATCHED: &str = "uw";

/// Files that are no files and can be made again.
const ANONYMOUS: [&str; 6] = [
    "anon_inode:[eventfd]",
    "anon_inode:[timerfd]",
    "anon_inode:[signalfd]",
    "anon_inode:[eventpoll]",
    "anon_inode:inotify",
    "anon_inode:[pidfd]",
];

/// Look at a process that is to be frozen; `root` is the first of them. If it `is_watched`, it may have memory whose
/// pages we protect.
pub(crate) fn check(pid: u32, root: u32, is_watched: bool) -> Result<(), Error> {
    let refused = |what: String| Err(Error::Unsupported { pid, what });
    if Stat::read(pid, "stat")?.has_ended() {
        let threads = proc::numbers(pid, "task")?.len();
        return match threads {
            0 | 1 => Ok(()),
            _ => refused("has threads, but its first thread has ended".to_owned()),
        };
    }
    let status = Status::read(pid, "status")?;
    let tracer = status.words("TracerPid").first().copied().unwrap_or("0").to_owned();
    if tracer != "0" {
        return refused(format!("is traced already, by process {tracer}"));
    }
    if status.words("Seccomp").first().is_some_and(|mode| *mode != "0") {
        return refused("has a seccomp filter, which cannot be read back".to_owned());
    }
    for name in NAMESPACES {
        let (own, first) =
            (proc::link(pid, &format!("ns/{name}")), proc::link(root, &format!("ns/{name}")));
        if own? != first? {
            return refused(format!("has a {name} namespace of its own"));
        }
    }
    let directory = proc::link(pid, "root")?;
    if directory != "/" {
        return refused(format!("has another root directory, {directory}"));
    }
    for line in maps::read(pid)? {
        let is_refused = |flag: &str| !is_watched || flag != WATCHED;
        let has = |flag: &str| line.flags.iter().any(|found| found == flag);
        let found = MAPPINGS.iter().find(|(flag, _)| has(flag) && is_refused(flag));
        if let Some((_, what)) = found.filter(|_| !line.name.starts_with("[v")) {
            return refused(format!("maps {what} at {:#x}", line.start));
        }
    }
    descriptors(pid)
}

fn descriptors(pid: u32) -> Result<(), Error> {
    for number in proc::numbers(pid, "fd")? {
        let line = match descriptor::read_one(pid, number) {
            // It was closed meanwhile: the process goes on while it is looked at.
            Err(Error::Gone(_)) => continue,
            line => line?,
        };
        let what = match line.kind {
            // A name, whatever it leads to.
            _ if line.flags & libc::O_PATH.cast_unsigned() != 0 => continue,
            Kind::Regular | Kind::Directory | Kind::Pipe | Kind::Fifo => continue,
            Kind::Device(1, 3 | 5 | 7 | 8 | 9) => continue,
            // Terminals: see the dump, which knows who has their masters.
            Kind::Device(5, 0 | 2) | Kind::Device(136, _) => continue,
            Kind::Socket if socket::is_kept(pid, line.number) => continue,
            Kind::Socket => format!("a socket ({})", socket::protocol(pid, line.number)),
            Kind::Anonymous if ANONYMOUS.contains(&line.link.as_str()) => continue,
            Kind::Anonymous => line.link.trim_start_matches("anon_inode:").to_owned(),
            Kind::Device(major, minor) => format!("{} (device {major}:{minor})", line.link),
            Kind::Other => line.link.clone(),
        };
        return Err(Error::unsupported(
            pid,
            format!("has {what} open as descriptor {}", line.number),
        ));
    }
    Ok(())
}

/// Whether `path` of a process still names the file with that inode.
pub(crate) fn names(pid: u32, path: &str, inode: u64) -> bool {
    use std::os::unix::fs::MetadataExt;
    let metadata = fs::symlink_metadata(format!("/proc/{pid}/root{path}"));
    metadata.is_ok_and(|metadata| metadata.ino() == inode)
}

/// Whether a link of a process (`cwd`, `exe`) leads to what `path` still names.
pub(crate) fn names_itself(pid: u32, link: &str, path: &str) -> bool {
    use std::os::unix::fs::MetadataExt;
    let metadata = fs::metadata(format!("/proc/{pid}/{link}"));
    metadata.is_ok_and(|metadata| names(pid, path, metadata.ino()))
}
