//! What a process has, as `/proc` tells (proc(5)).

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::time::Duration;

/// What makes the allocator give back what is freed, so that what is left can be seen (mallopt(3)).
pub const ALLOCATOR: [(&str, &str); 3] = [
    ("MALLOC_ARENA_MAX", "1"),
    ("MALLOC_MMAP_THRESHOLD_", "131072"),
    ("MALLOC_TRIM_THRESHOLD_", "131072"),
];

/// Mappings that may come beside what is counted: heaps that the allocator makes for threads.
const MAPPINGS_SLACK: usize = 2;

/// Counted at one moment.
#[derive(Debug, Clone)]
pub struct Census {
    /// What its descriptors are, by number.
    pub descriptors: BTreeSet<(u32, String)>,
    /// Its threads.
    pub threads: usize,
    /// Its children, those included that have ended and were not waited for.
    pub children: Vec<String>,
    /// Its mappings.
    pub mappings: usize,
    /// Its memory.
    pub resident_kib: u64,
    /// What is in `/dev/shm` of ours.
    pub shared: BTreeSet<String>,
}

impl Census {
    /// Count now.
    pub fn take() -> Census {
        let maps = fs::read_to_string("/proc/self/maps").expect("/proc is mounted");
        Census {
            descriptors: descriptors(),
            threads: fs::read_dir("/proc/self/task").expect("/proc is mounted").count(),
            children: children(),
            mappings: maps.lines().count(),
            resident_kib: resident_kib(),
            shared: names("/dev/shm").filter(|name| name.contains("biv")).collect(),
        }
    }

    /// Whether there is no more than `before`, save so much memory.
    pub fn fits(&self, before: &Census, memory_slack_kib: u64) -> bool {
        self.descriptors == before.descriptors
            && self.threads == before.threads
            && self.children == before.children
            && self.shared == before.shared
            && self.mappings <= before.mappings + MAPPINGS_SLACK
            && self.resident_kib <= before.resident_kib + memory_slack_kib
    }

    /// Count until it fits, for a second: a thread that has been joined is in /proc for a moment
    /// longer, and a process that is gone may still be waited for.
    pub fn settled(before: &Census, memory_slack_kib: u64) -> Census {
        let mut now = Census::take();
        for _ in 0..20 {
            if now.fits(before, memory_slack_kib) {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
            now = Census::take();
        }
        now
    }
}

impl fmt::Display for Census {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} descriptors, {} threads, {} children, {} mappings, {} KiB resident",
            self.descriptors.len(),
            self.threads,
            self.children.len(),
            self.mappings,
            self.resident_kib
        )
    }
}

/// What is in a directory.
fn names(directory: &str) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

fn descriptors() -> BTreeSet<(u32, String)> {
    let entries: Vec<_> =
        fs::read_dir("/proc/self/fd").expect("/proc is mounted").filter_map(Result::ok).collect();
    // The one with which the directory was read is gone by now.
    let target = |entry: &fs::DirEntry| {
        let target = fs::read_link(entry.path()).ok()?;
        let number = entry.file_name().to_str()?.parse().ok()?;
        Some((number, target.to_string_lossy().into_owned()))
    };
    entries.iter().filter_map(target).collect()
}

/// The `stat` lines of processes whose parent we are: number, name, state, parent.
fn children() -> Vec<String> {
    let own = std::process::id().to_string();
    let processes = fs::read_dir("/proc").expect("/proc is mounted").filter_map(Result::ok);
    let stat = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("stat")).ok();
    let is_child = |stat: &String| {
        // The name may contain anything, but no parenthesis comes after it.
        let after = stat.rsplit_once(") ").map_or("", |(_, after)| after);
        after.split(' ').nth(1) == Some(own.as_str())
    };
    processes.filter_map(stat).filter(is_child).collect()
}

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
