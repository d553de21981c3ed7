//! The processes of a domain, as the host accounts for them: the process that owns it, the helpers
//! that run guest code for it, and those that serve its devices.
//!
//! They are recognized by what they have in common. A detached domain has a session of its own. Of
//! any other, the processes of its process group count that run the same program.
//!
//! The kernel shows an ordinary user neither the program nor the mappings nor the I/O of confined
//! processes (they are not dumpable, proc(5)). Then those of the group count that show none, and
//! their memory is their anonymous and file-backed memory.

use std::fs;
use std::time::Duration;

/// What the processes of a domain have used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Group {
    /// How many there are.
    pub processes: usize,
    /// Time of the host's cores, also of those that have ended.
    pub computed: Duration,
    /// Bytes of memory; what several have counts in parts.
    pub memory: u64,
    /// Bytes read from disks.
    pub read: u64,
    /// Bytes written to them.
    pub written: u64,
    /// The most bytes of shared memory that one has whose part is not told.
    shared: u64,
}

/// What is of interest in `/proc/PID/stat` (proc(5)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    group: i32,
    session: i32,
    /// Ticks of the clock, of the process and of children that it has waited for.
    ticks: u64,
}

impl Group {
    /// The processes of the domain that this process owns.
    pub fn of(owner: i32) -> Group {
        let mut group = Group::default();
        let Some(own) = stat(owner) else { return group };
        let program = fs::read_link(format!("/proc/{owner}/exe")).ok();
        let numbers = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
        for number in numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
            let Some(stat) = stat(number) else { continue };
            let is_ours = if own.session == owner {
                stat.session == owner
            } else {
                let same = || fs::read_link(format!("/proc/{number}/exe")).ok() == program;
                number == owner || (stat.group == own.group && same())
            };
            if is_ours {
                group.add(number, &stat);
            }
        }
        group.memory += group.shared;
        group
    }

    fn add(&mut self, process: i32, stat: &Stat) {
        let ticks_per_second = rustix::param::clock_ticks_per_second().max(1);
        self.processes += 1;
        self.computed += Duration::from_millis(stat.ticks * 1000 / ticks_per_second);
        match fs::read_to_string(format!("/proc/{process}/smaps_rollup")) {
            Ok(parts) => self.memory += number_after(&parts, "Pss:") << 10,
            Err(_) => {
                let status = fs::read_to_string(format!("/proc/{process}/status"));
                let status = status.unwrap_or_default();
                let own = number_after(&status, "RssAnon:") + number_after(&status, "RssFile:");
                self.memory += own << 10;
                // The guest's memory, which all of them map.
                self.shared = self.shared.max(number_after(&status, "RssShmem:") << 10);
            }
        }
        let io = fs::read_to_string(format!("/proc/{process}/io")).unwrap_or_default();
        self.read += number_after(&io, "read_bytes:");
        self.written += number_after(&io, "write_bytes:");
    }
}

fn stat(process: i32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// The name, in parentheses, may have any characters in it.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let number = |field: usize| fields.get(field)?.parse::<u64>().ok();
    let ticks = (11..=14).filter_map(number).sum();
    Some(Stat { group: fields.get(2)?.parse().ok()?, session: fields.get(3)?.parse().ok()?, ticks })
}

/// The number in the line that begins with `name`.
fn number_after(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let digits = line.and_then(|line| line.split_ascii_whitespace().next());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_anything_in_it() {
        let text = "42 (a) b (c) S 1 7 8 0 -1 4194304 1 2 3 4 10 20 30 40 20 0 1 0 99 1 2";
        assert_eq!(parse_stat(text), Some(Stat { group: 7, session: 8, ticks: 100 }));
        assert_eq!(parse_stat("42 (x"), None);
    }

    #[test]
    fn our_own_process_counts() {
        let group = Group::of(std::process::id().cast_signed());
        assert!(group.processes >= 1 && group.memory > 0, "{group:?}");
        assert_eq!(Group::of(i32::MAX), Group::default());
    }
}
