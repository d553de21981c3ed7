//! Memory: the layout of a process, how much there is, huge pages, and the limits on mappings.

use rustix::process::{Resource, getrlimit};

use super::{Finding, human, read_line};

const SPACE: &str = "address space";
const MEMORY: &str = "memory";
const LIMITS: &str = "limits";

/// Mappings that one machine makes: regions of memory, the code cache, and pages that are
/// write-protected because code was translated from them.
const MAPPINGS_WANTED: u64 = 65_530;

/// The least memory with which the default guest is worth starting.
const LEAST_BYTES: u64 = 256 << 20;

pub fn examine() -> Vec<Finding> {
    let mut findings = layout();
    findings.extend(amount());
    findings.extend(limits());
    findings
}

fn layout() -> Vec<Finding> {
    let information = read_line("/proc/cpuinfo");
    let sizes = information.lines().find(|line| line.starts_with("address sizes"));
    let bits = sizes.and_then(virtual_bits);
    let found = match bits {
        Some(bits) => format!("{} bits for a process ({bits} virtual)", bits - 1),
        None => "unknown".to_owned(),
    };
    let randomized = match read_line("/proc/sys/kernel/randomize_va_space").as_str() {
        "0" => "off",
        "1" => "on, without the heap",
        "2" => "on",
        _ => "unknown",
    };
    let randomization = match randomized {
        "off" => Finding::note(SPACE, "randomization (ASLR)", randomized)
            .because("a guest kernel's memory is looked up, which makes a boot a quarter longer"),
        _ => Finding::good(SPACE, "randomization (ASLR)", randomized),
    };
    let lowest = read_line("/proc/sys/vm/mmap_min_addr");
    vec![
        Finding::good(SPACE, "user addresses", found),
        randomization,
        Finding::good(SPACE, "vm.mmap_min_addr", lowest),
    ]
}

/// The last number in `address sizes : 46 bits physical, 48 bits virtual`.
fn virtual_bits(line: &str) -> Option<u32> {
    let text = line.rsplit(',').next()?;
    let bits = text.split_ascii_whitespace().next()?.parse().ok()?;
    (bits > 0).then_some(bits)
}

fn amount() -> Vec<Finding> {
    let available = host::Available::now();
    let found = if available.bytes == u64::MAX {
        "unknown".to_owned()
    } else {
        format!("{}, limited by {}", human(available.bytes), available.limited_by)
    };
    let first = if available.bytes < LEAST_BYTES {
        Finding::missing(MEMORY, "available", found)
            .because("too little for a machine; free some or raise the control group's limit")
    } else {
        Finding::good(MEMORY, "available", found)
    };
    vec![
        first,
        huge_pages(
            "huge pages",
            &read_line("/sys/kernel/mm/transparent_hugepage/enabled"),
            "the engine's own memory is faster with them",
        ),
        huge_pages(
            "huge pages, shared",
            &read_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled"),
            "first touches of guest memory cost a fifth with `advise`, `within_size` or `always`",
        ),
    ]
}

/// Judges a setting of the form `always [madvise] never`.
fn huge_pages(name: &str, setting: &str, why: &str) -> Finding {
    let chosen = setting.split('[').nth(1).and_then(|rest| rest.split(']').next());
    match chosen {
        Some(chosen @ ("never" | "deny")) => Finding::note(MEMORY, name, chosen).because(why),
        Some(chosen) => Finding::good(MEMORY, name, format!("{chosen}, used")),
        None => Finding::note(MEMORY, name, "not offered by this kernel").because(why),
    }
}

fn limits() -> Vec<Finding> {
    let mappings = read_line("/proc/sys/vm/max_map_count");
    let enough = mappings.parse::<u64>().is_ok_and(|count| count >= MAPPINGS_WANTED);
    let first = if enough {
        Finding::good(LIMITS, "vm.max_map_count", mappings)
    } else {
        Finding::note(LIMITS, "vm.max_map_count", mappings)
            .because("65530 is usual; large machines may run out of mappings with less")
    };
    let space = getrlimit(Resource::As).current;
    let space = match space {
        Some(bytes) => Finding::note(LIMITS, "address space (RLIMIT_AS)", human(bytes)).because(
            "guest memory and the code cache must fit; `ulimit -v unlimited` takes the limit away",
        ),
        None => Finding::good(LIMITS, "address space (RLIMIT_AS)", "unlimited"),
    };
    vec![
        first,
        space,
        plain("locked memory (RLIMIT_MEMLOCK)", Resource::Memlock, human, "not needed"),
        plain("open files (RLIMIT_NOFILE)", Resource::Nofile, |n| n.to_string(), "a few dozen do"),
        plain("processes (RLIMIT_NPROC)", Resource::Nproc, |n| n.to_string(), "a few threads do"),
        plain("file size (RLIMIT_FSIZE)", Resource::Fsize, human, "guest memory counts as a file"),
    ]
}

fn plain(name: &str, resource: Resource, show: fn(u64) -> String, why: &str) -> Finding {
    match getrlimit(resource).current {
        Some(value) => Finding::good(LIMITS, name, format!("{} ({why})", show(value))),
        None => Finding::good(LIMITS, name, "unlimited"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn address_sizes() {
        let line = "address sizes\t: 46 bits physical, 48 bits virtual";
        assert_eq!(virtual_bits(line), Some(48));
        assert_eq!(virtual_bits("address sizes\t: 46 bits physical, 57 bits virtual"), Some(57));
        assert_eq!(virtual_bits("address sizes : nonsense"), None);
    }

    #[test]
    fn huge_page_settings() {
        let check = |setting, verdict| assert_eq!(huge_pages("x", setting, "y").verdict, verdict);
        check("always [madvise] never", Verdict::Good);
        check("always within_size [advise] never deny force", Verdict::Good);
        check("always madvise [never]", Verdict::Note);
        check("", Verdict::Note);
    }
}
