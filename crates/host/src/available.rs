//! How much memory this process could still get, and how much if no program had any.
//!
//! Two authorities have a say: the kernel, whose estimate is `MemAvailable` (proc(5)), and every
//! memory control group from ours up to the root, of version 1 or 2. The least of them counts. What
//! cannot be read sets no limit: a wrong guess must not keep a machine from starting.

use std::fs;
use std::path::{Path, PathBuf};

/// The least of the limits, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Available {
    /// Bytes; `u64::MAX` when nothing limits us.
    pub bytes: u64,
    /// Who says so, in words that fit after "limited by".
    pub limited_by: String,
}

impl Available {
    /// Ask the running system.
    pub fn now() -> Self {
        Self::under(Path::new("/"), Used::Counts)
    }

    /// What there would be if no program used any, which stays the same as long as nobody changes a limit.
    pub fn ever() -> Self {
        Self::under(Path::new("/"), Used::DoesNotCount)
    }

    /// The same for a system whose `/proc` and `/sys` are below `root`, for tests.
    fn under(root: &Path, used: Used) -> Self {
        let nothing = Self { bytes: u64::MAX, limited_by: "nothing".to_owned() };
        let meminfo = fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
        let of_machine = match used {
            Used::Counts => "MemAvailable:",
            Used::DoesNotCount => "MemTotal:",
        };
        let machine = field(&meminfo, of_machine)
            .map(|kib| Self { bytes: kib.saturating_mul(1024), limited_by: "the host".to_owned() });
        let membership = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        let groups = membership.lines().filter_map(|line| group_limit(root, line, used));
        machine.into_iter().chain(groups).min_by_key(|limit| limit.bytes).unwrap_or(nothing)
    }
}

/// Whether memory counts that programs use.
#[derive(Debug, Clone, Copy)]
enum Used {
    Counts,
    DoesNotCount,
}

/// The number after `key` at the start of a line.
fn field(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The files of one version of memory control groups.
struct Version {
    mount: &'static str,
    limit: &'static str,
    usage: &'static str,
    /// Field of `memory.stat` with the page cache that would be given up first.
    reclaimable: &'static str,
}

const VERSION_1: Version = Version {
    mount: "sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    reclaimable: "total_inactive_file ",
};

const VERSION_2: Version = Version {
    mount: "sys/fs/cgroup",
    limit: "memory.max",
    usage: "memory.current",
    reclaimable: "inactive_file ",
};

/// The tightest limit on the way from the group named by a line of `/proc/self/cgroup`
/// (`hierarchy:controllers:path`, cgroups(7)) to the root.
fn group_limit(root: &Path, line: &str, used: Used) -> Option<Available> {
    let mut parts = line.splitn(3, ':');
    let (hierarchy, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let version = if controllers.split(',').any(|name| name == "memory") {
        VERSION_1
    } else if hierarchy == "0" && controllers.is_empty() {
        VERSION_2
    } else {
        return None;
    };
    let mount = root.join(version.mount);
    let relative = PathBuf::from(path.trim_start_matches('/'));
    relative
        .ancestors()
        .filter_map(|group| room(&mount.join(group), &version, used))
        .min()
        .map(|bytes| Available { bytes, limited_by: format!("control group {path}") })
}

/// What one group may (still) use; `None` if it sets no limit or is not visible to us.
fn room(group: &Path, version: &Version, used: Used) -> Option<u64> {
    let number =
        |name| -> Option<u64> { fs::read_to_string(group.join(name)).ok()?.trim().parse().ok() };
    let limit = number(version.limit)?;
    if let Used::DoesNotCount = used {
        return Some(limit);
    }
    let usage = number(version.usage)?;
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let reclaimable = field(&stat, version.reclaimable).unwrap_or(0);
    Some(limit.saturating_sub(usage.saturating_sub(reclaimable)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A made-up `/proc` and `/sys` that go away again.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let path = std::env::temp_dir().join(format!("bivouac-{}-{name}", std::process::id()));
            for (file, text) in files {
                let file = path.join(file);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
            Self(path)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn check(name: &str, files: &[(&str, &str)], bytes: [u64; 2], limited_by: &str) {
        let tree = Tree::new(name, files);
        let expected = bytes.map(|bytes| Available { bytes, limited_by: limited_by.to_owned() });
        let found = [Used::Counts, Used::DoesNotCount].map(|used| Available::under(&tree.0, used));
        assert_eq!(found, expected);
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal: 900 kB\nMemAvailable:  800 kB\n");

    #[test]
    fn the_host_limits_where_no_group_does() {
        check("host", &[MEMINFO], [800 * 1024, 900 * 1024], "the host");
    }

    #[test]
    fn nothing_readable_sets_no_limit() {
        check("nothing", &[("proc/none", "")], [u64::MAX; 2], "nothing");
    }

    #[test]
    fn a_parent_group_of_version_2_counts() {
        let files = [
            MEMINFO,
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/memory.max", "5000\n"),
            ("sys/fs/cgroup/a/memory.current", "3000\n"),
            ("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 1000\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/memory.current", "3000\n"),
        ];
        check("v2", &files, [3000, 5000], "control group /a/b");
    }

    #[test]
    fn a_group_of_version_1_counts() {
        let files = [
            MEMINFO,
            ("proc/self/cgroup", "8:pids:/\n4:cpu,memory:/a\n0::/\n"),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "5000\n"),
            ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "6000\n"),
        ];
        check("v1", &files, [0, 5000], "control group /a");
    }

    #[test]
    fn the_running_system_has_some_memory() {
        assert!(Available::now().bytes > 0);
    }
}
