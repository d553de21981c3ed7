//! The processes that make up a system: what they compute, what they hold in memory, and their end.

use std::fs;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};

/// `process` and all below it.
pub fn tree(process: u32) -> Vec<u32> {
    let mut found = vec![process];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        next += 1;
        let Ok(threads) = fs::read_dir(format!("/proc/{parent}/task")) else { continue };
        for thread in threads.filter_map(Result::ok) {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
        }
    }
    found
}

/// What processes have computed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Computed {
    /// Seconds of a core.
    pub seconds: f64,
    /// How often they were given one.
    pub times: u64,
}

/// What the threads of `processes` have computed so far (Linux, Documentation/scheduler/sched-stats.rst). Those
/// that have ended count no more.
pub fn computed(processes: &[u32]) -> Computed {
    let mut sum = Computed::default();
    for process in processes {
        let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { continue };
        for thread in threads.filter_map(Result::ok) {
            let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            let fields: Vec<u64> =
                text.split_whitespace().filter_map(|field| field.parse().ok()).collect();
            if let [nanoseconds, _, times] = fields[..] {
                sum.seconds += nanoseconds as f64 / 1e9;
                sum.times += times;
            }
        }
    }
    sum
}

/// The proportional set size of a process, in KiB.
pub fn held_kib(process: u32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap_or_default();
    let value = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    value.and_then(|value| value.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

/// Ends a process that we started, and all below it.
pub fn end(process: u32) {
    for process in tree(process) {
        if let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) {
            // It may have ended meanwhile.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Bytes that the processes below `parent` hold in memory beside the memory of their guest:
/// proportional set sizes without mappings of a memory file or of a whole guest.
pub fn overhead_bytes(parent: u32, guest_memory_mib: u32) -> Option<f64> {
    let guest_bytes = u64::from(guest_memory_mib) << 20;
    let mut kib = 0.0;
    for process in tree(parent) {
        let maps = PathBuf::from(format!("/proc/{process}/smaps"));
        kib += beside_guest_kib(&fs::read_to_string(maps).unwrap_or_default(), guest_bytes);
    }
    (kib > 0.0).then_some(kib * 1024.0)
}

/// What holds guest memory, by the name of its file: `biv`'s, gVisor's, User-Mode Linux's.
const GUEST_FILES: [&str; 3] = ["memfd:bivouac-guest", "memfd:runsc-memory", "/vm_file-"];

/// `smaps` of proc(5): a line with the range and the file, then lines `KEY: VALUE kB`.
fn beside_guest_kib(smaps: &str, guest_bytes: u64) -> f64 {
    let (mut kib, mut guest) = (0.0, false);
    for line in smaps.lines() {
        let first = line.split(' ').next().unwrap_or_default();
        if let Some((start, end)) = first.split_once('-') {
            let number = |text| u64::from_str_radix(text, 16).unwrap_or(0);
            // QEMU's is anonymous, and as large as what was asked for.
            guest = GUEST_FILES.iter().any(|name| line.contains(name))
                || number(end).saturating_sub(number(start)) == guest_bytes;
        } else if first == "Pss:" && !guest {
            let value = line.trim_start_matches("Pss:").trim().trim_end_matches(" kB");
            kib += value.parse::<f64>().unwrap_or(0.0);
        }
    }
    kib
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_memory_is_not_counted() {
        let smaps = "1000-2000 rw-p 00000000 00:00 0 \nRss: 9 kB\nPss:                  5 kB\n\
            Pss_Dirty:  2 kB\n2000-3000 rw-s 00000000 00:01 7   /memfd:bivouac-guest (deleted)\n\
            Pss:  700 kB\n10000-20000 rw-p 00000000 00:00 0 \nPss: 800 kB\n\
            20000-20800 rw-p 00000000 00:00 0 [heap]\nPss: 2 kB\n";
        assert_eq!(beside_guest_kib(smaps, 0x10000), 7.0);
    }

    #[test]
    fn what_is_computed_and_held_grows() {
        let busy = "while :; do :; done";
        let mut child = std::process::Command::new("sh").args(["-c", busy]).spawn().unwrap();
        let process = [child.id()];
        let start = std::time::Instant::now();
        while computed(&process).seconds < 0.05 && start.elapsed().as_secs() < 60 {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let (sum, kib) = (computed(&process), held_kib(child.id()));
        end(child.id());
        child.wait().unwrap();
        assert!(sum.seconds >= 0.05 && sum.times > 0 && kib > 0, "{sum:?}, {kib} KiB");
    }

    #[test]
    fn a_process_and_its_child_are_found() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(tree(std::process::id()).contains(&child.id()));
        end(child.id());
        assert!(!child.wait().unwrap().success());
    }
}
