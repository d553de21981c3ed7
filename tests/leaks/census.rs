//! What a process has, as `/proc` tells (proc(5)).

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;

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
            shared: super::names(Path::new("/dev/shm"))
                .into_iter()
                .filter(|name| name.contains("biv"))
                .collect(),
        }
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
