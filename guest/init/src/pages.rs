//! The size of the folios in which programs get memory. A page fault costs a guest more than a
//! host, so each fault maps as much as the kernel can: since Linux 6.8, folios of less than a huge
//! page, where a program touches memory of its own (Documentation/admin-guide/mm/transhuge.rst).

use std::fs;
use std::path::Path;

/// Where the kernel has a directory for each size that it can have.
pub const SIZES: &str = "/sys/kernel/mm/transparent_hugepage";

/// The kernel parameter that leaves all as it is, `biv.pages=base`.
pub const PARAMETER: &str = "biv.pages=";
pub const BASE: &str = "base";

/// In KiB. Larger ones cost a small program more memory than they save faults.
const KIBIBYTES: [u32; 3] = [16, 32, 64];

/// Has the kernel use these sizes wherever it can. One that lacks a size goes without.
pub fn enlarge(sizes: &Path) {
    for size in KIBIBYTES {
        let _ = fs::write(sizes.join(format!("hugepages-{size}kB/enabled")), "always");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_there_are_are_switched_on() {
        let sizes = std::env::temp_dir().join(format!("biv-pages-{}", std::process::id()));
        let file = |size| sizes.join(format!("hugepages-{size}kB/enabled"));
        for size in [32, 64, 128] {
            fs::create_dir_all(file(size).parent().unwrap()).unwrap();
            fs::write(file(size), "never").unwrap();
        }
        enlarge(&sizes);
        let read = |size| fs::read_to_string(file(size)).ok();
        let found = [16, 32, 64, 128].map(read);
        assert_eq!(found.map(|text| text.unwrap_or_default()), ["", "always", "always", "never"]);
        fs::remove_dir_all(&sizes).unwrap();
    }
}
