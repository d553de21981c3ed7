//! Processes of the host, as `/proc` shows them.

use std::fs;
use std::time::{Duration, Instant};

/// Have processes whose parents end become children of this one, so that none gets out of sight.
pub fn adopt_orphans() {
    let own = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(own)).expect("Linux lets everybody do this");
}

/// What is asked of a process's entry.
struct Entry {
    process: u32,
    parent: u32,
    /// Whether it still runs, and is not just waiting for its parent to take notice.
    lives: bool,
}

fn entry(process: u32) -> Option<Entry> {
    let Stat { fields, .. } = stat(process)?;
    let (state, parent) = (fields.first()?, fields.get(1)?.parse().ok()?);
    Some(Entry { process, parent, lives: !matches!(state.as_str(), "Z" | "X") })
}

/// What the host says of a process (proc(5), `/proc/PID/stat`).
pub struct Stat {
    /// What it is called.
    pub name: String,
    /// What follows the name: state, parent, group, session, and so on.
    pub fields: Vec<String>,
}

impl Stat {
    /// Hundredths of a second that it and its threads have had of a core. (What of that is user time is a guess of
    /// the host's, by where its ticks find the process.)
    pub fn computed(&self) -> u64 {
        self.fields[11..13].iter().map(|field| field.parse::<u64>().expect("a number")).sum()
    }
}

/// The entry of a process, if there is one.
pub fn stat(process: u32) -> Option<Stat> {
    let line = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let (head, fields) = line.trim_end().rsplit_once(") ")?;
    let name = head.split_once(" (")?.1.to_owned();
    Some(Stat { name, fields: fields.split(' ').map(str::to_owned).collect() })
}

/// The numbers of all processes.
fn all() -> Vec<u32> {
    let names = fs::read_dir("/proc").expect("there is a /proc").filter_map(Result::ok);
    names.filter_map(|name| name.file_name().to_str()?.parse().ok()).collect()
}

/// Every living process that descends from this one.
pub fn descendants() -> Vec<u32> {
    descendants_of(std::process::id())
}

/// Every living process that descends from that one.
pub fn descendants_of(process: u32) -> Vec<u32> {
    let all: Vec<Entry> = all().into_iter().filter_map(entry).filter(|entry| entry.lives).collect();
    let mut found = vec![process];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(all.iter().filter(|one| one.parent == parent).map(|one| one.process));
        next += 1;
    }
    found.split_off(1)
}

/// Those of `processes` that are still alive after `patience`.
pub fn survivors(processes: &[u32], patience: Duration) -> Vec<u32> {
    let start = Instant::now();
    loop {
        let lives = |process: &&u32| entry(**process).is_some_and(|entry| entry.lives);
        let left: Vec<u32> = processes.iter().filter(lives).copied().collect();
        if left.is_empty() || start.elapsed() > patience {
            return left;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The threads of `processes` that have no system-call filter, or that could get privileges
/// (proc(5), `status`). A thread that ends meanwhile has neither any more.
pub fn unconfined(processes: &[u32]) -> Vec<String> {
    let threads = processes.iter().flat_map(|process| {
        fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().filter_map(Result::ok)
    });
    let status = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("status")).ok();
    let is_confined = |status: &String| {
        ["Seccomp:\t2", "NoNewPrivs:\t1"].iter().all(|line| status.lines().any(|l| l == *line))
    };
    threads.filter_map(status).filter(|status| !is_confined(status)).collect()
}
