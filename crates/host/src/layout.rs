//! The mappings of this process.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;

/// The end of the addresses that a process can have: what is mapped above is the kernel's (`[vsyscall]`).
const USER_END: u64 = 1 << 47;

/// What is mapped in this process (proc(5), `maps`), in order; none if the host does not say.
#[must_use]
pub fn mappings() -> Option<Vec<Range<u64>>> {
    let mut found = Vec::new();
    for line in BufReader::new(File::open("/proc/self/maps").ok()?).lines() {
        let mapping = range(&line.ok()?)?;
        if mapping.start < USER_END {
            found.push(mapping);
        }
    }
    Some(found)
}

/// The addresses that a line begins with.
fn range(line: &str) -> Option<Range<u64>> {
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    Some(u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
}

#[cfg(test)]
mod tests {
    use super::{mappings, range};

    #[test]
    fn what_this_process_has_is_found() {
        let found = mappings().expect("/proc is mounted");
        assert!(found.is_sorted_by_key(|mapping| mapping.start));
        let heap = Box::new(0);
        for at in [&raw const found as u64, &raw const *heap as u64, mappings as *const () as u64] {
            assert!(found.iter().any(|mapping| mapping.contains(&at)), "{at:#x}");
        }
        assert!(found.iter().all(|mapping| mapping.end <= 1 << 47));
    }

    #[test]
    fn lines_are_read() {
        assert_eq!(range("7e90-7ea0 r-xp 00 fe:00 1 /biv"), Some(0x7e90..0x7ea0));
        assert_eq!(range(""), None);
        assert_eq!(range("7e90 7ea0"), None);
    }
}
