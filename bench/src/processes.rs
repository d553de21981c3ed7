//! The processes that make up a system: what they hold in memory, and their end.

use std::fs;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};

/// `process` and all below it.
fn tree(process: u32) -> Vec<u32> {
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
    fn a_process_and_its_child_are_found() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(tree(std::process::id()).contains(&child.id()));
        end(child.id());
        assert!(!child.wait().unwrap().success());
    }
}
