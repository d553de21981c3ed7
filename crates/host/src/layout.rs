//! Where this process has its memory.

use std::fs::File;
use std::io::{BufRead, BufReader};

/// The lowest address that something is mapped at (proc(5), `maps`, which is sorted); none if the host
/// does not say.
#[must_use]
pub fn lowest_address() -> Option<u64> {
    let mut line = String::new();
    BufReader::new(File::open("/proc/self/maps").ok()?).read_line(&mut line).ok()?;
    u64::from_str_radix(line.split('-').next()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::lowest_address;

    #[test]
    fn nothing_is_below_the_lowest_address() {
        let lowest = lowest_address().expect("/proc is mounted");
        let (here, there) = (&raw const lowest as u64, lowest_address as *const () as u64);
        assert!(lowest > 0 && lowest <= here && lowest <= there, "{lowest:#x}");
    }
}
