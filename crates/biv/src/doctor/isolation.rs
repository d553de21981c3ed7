//! The confinement of this process, and whether it leaves what a machine needs.

use rustix::fs::{MemfdFlags, memfd_create};

use super::{Finding, read_line};

const TOPIC: &str = "isolation";

pub fn examine() -> Vec<Finding> {
    let own = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut findings = vec![seccomp(&own), privileges(&own)];
    findings.push(pods());
    findings.extend(system_calls());
    findings.push(direct(vmm::cost_of_a_stop()));
    findings
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim())
}

fn seccomp(status: &str) -> Finding {
    match field(status, "Seccomp") {
        Some("0") => Finding::good(TOPIC, "seccomp", "no filter on this process"),
        Some("1") => Finding::missing(TOPIC, "seccomp", "strict mode")
            .because("only read, write and exit are left"),
        Some("2") => {
            let count = field(status, "Seccomp_filters").unwrap_or("some");
            Finding::good(TOPIC, "seccomp", format!("filters on this process: {count}"))
                .because("what a machine needs is tried below")
        }
        _ => Finding::note(TOPIC, "seccomp", "not offered by this kernel"),
    }
}

fn privileges(status: &str) -> Finding {
    let user = rustix::process::geteuid();
    let capabilities = field(status, "CapEff")
        .and_then(|bits| u64::from_str_radix(bits, 16).ok())
        .map_or(0, u64::count_ones);
    Finding::good(
        TOPIC,
        "privileges",
        format!("user {}, {capabilities} capabilities (none needed)", user.as_raw()),
    )
}

/// Settings that keep ordinary users from user namespaces: the file, what it says then, and what that means.
const AGAINST_NAMESPACES: [(&str, &str, &str); 4] = [
    (
        "/proc/sys/user/max_user_namespaces",
        "0",
        "user.max_user_namespaces is 0: sysctl user.max_user_namespaces=10000 allows them",
    ),
    (
        "/proc/sys/user/max_user_namespaces",
        "",
        "the kernel has no user namespaces (CONFIG_USER_NS)",
    ),
    (
        "/proc/sys/kernel/unprivileged_userns_clone",
        "0",
        "kernel.unprivileged_userns_clone is 0: sysctl kernel.unprivileged_userns_clone=1 allows \
         them",
    ),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "AppArmor restricts them: sysctl kernel.apparmor_restrict_unprivileged_userns=0, or a \
         profile for biv with \"userns,\", allows them",
    ),
];

/// Whether there can be pods: the namespaces of one are entered, by a process that ends at once.
fn pods() -> Finding {
    const NAME: &str = "pods";
    let error = match pods::names::probe() {
        Ok(users) => {
            let found = format!("possible ({users})");
            return Finding::good(TOPIC, NAME, found);
        }
        Err(error) => error.to_string(),
    };
    let mut settings = AGAINST_NAMESPACES.iter();
    let against = settings.find(|(file, value, _)| read_line(file) == *value).map(|it| it.2);
    let reason = against.unwrap_or(
        "biv pod needs user namespaces, which a filter of system calls or a security module of \
         this host, or of the container that this is, forbids; machines do without",
    );
    Finding::note(TOPIC, NAME, format!("not possible: {error}")).because(reason)
}

/// Tries what machines are made of, and that filters and hardened kernels are known to refuse.
fn system_calls() -> Vec<Finding> {
    let memory = memfd_create("biv-doctor", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
    let guest = host::GuestMemory::new(&[(0, 2 << 20)]);
    let executable = executable_mapping();
    let signals = session::Signals::probe();
    vec![
        tried("memfd_create", memory.map(drop), "guest memory is such a file"),
        tried("guest memory", guest.map(drop), "a sealed memfd, mapped"),
        tried("executable memory", executable, "translated code is written, then executed"),
        tried("signalfd", signals, "signals are read while a machine runs"),
        confinement(host::confine::probe()),
        shares(files::server::landlock::is_offered()),
    ]
}

/// Whether a machine's process can be confined; without, machines run if they are told to.
fn confinement(result: std::io::Result<()>) -> Finding {
    match result {
        Ok(()) => Finding::good(TOPIC, "seccomp filters", "work")
            .because("a running machine's process opens no file, starts no process"),
        Err(error) => Finding::note(TOPIC, "seccomp filters", error.to_string())
            .because("machines run with --no-seccomp only, and are not confined then"),
    }
}

/// Whether the host's kernel keeps a file server in the directories that it serves.
fn shares(is_offered: bool) -> Finding {
    const NAME: &str = "landlock";
    match is_offered {
        true => Finding::good(TOPIC, NAME, "works")
            .because("the host's kernel keeps the file server in the shared directories"),
        false => Finding::note(TOPIC, NAME, "not offered, or older than Linux 5.19")
            .because("only the file server itself keeps to the shared directories"),
    }
}

/// Whether user code can run natively, in processes of its own, and what leaving it costs.
fn direct(result: Result<std::time::Duration, vmm::Error>) -> Finding {
    const NAME: &str = "direct execution";
    match result {
        Ok(stop) => {
            let microseconds = stop.as_nanos() as f64 / 1000.0;
            Finding::good(TOPIC, NAME, format!("works, {microseconds:.1} us for a stop"))
                .because("user code that computes runs natively; a stop is a call into its kernel")
        }
        Err(error) => Finding::note(TOPIC, NAME, "not possible").because(&error.to_string()),
    }
}

/// Maps a page that may be written and executed, and unmaps it again.
fn executable_mapping() -> std::io::Result<()> {
    use vm_memory::mmap::MmapRegion;
    const PROT_READ_WRITE_EXEC: i32 = 0b111;
    const MAP_PRIVATE_ANONYMOUS: i32 = 0x22;
    MmapRegion::<()>::build(None, 4096, PROT_READ_WRITE_EXEC, MAP_PRIVATE_ANONYMOUS)
        .map(drop)
        .map_err(std::io::Error::other)
}

fn tried<E: std::fmt::Display>(name: &str, result: Result<(), E>, why: &str) -> Finding {
    match result {
        Ok(()) => Finding::good(TOPIC, name, "works"),
        Err(error) => {
            Finding::missing(TOPIC, name, error.to_string()).because(&format!("needed: {why}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn seccomp_modes() {
        let check = |status, verdict| assert_eq!(seccomp(status).verdict, verdict);
        check("Name:\tbiv\nSeccomp:\t0\nSeccomp_filters:\t0\n", Verdict::Good);
        check("Seccomp:\t1\n", Verdict::Missing);
        check("Seccomp:\t2\nSeccomp_filters:\t1\n", Verdict::Good);
        check("Name:\tbiv\n", Verdict::Note);
        assert!(seccomp("Seccomp:\t2\nSeccomp_filters:\t3\n").found.ends_with('3'));
    }

    #[test]
    fn without_direct_execution_machines_run_all_the_same() {
        let works = direct(Ok(std::time::Duration::from_nanos(7840)));
        assert_eq!(
            (works.verdict, works.found.as_str()),
            (Verdict::Good, "works, 7.8 us for a stop")
        );
        let refused = std::io::Error::from_raw_os_error(1);
        assert_eq!(direct(Err(refused.into())).verdict, Verdict::Note);
    }

    #[test]
    fn what_fails_is_missing() {
        let finding = tried("x", Err("refused"), "y");
        assert_eq!((finding.verdict, finding.found.as_str()), (Verdict::Missing, "refused"));
    }
}
