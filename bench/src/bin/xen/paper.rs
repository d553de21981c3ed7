//! The paper's own numbers: tables 3 to 5, in microseconds, and figure 3, as parts of native Linux's score. Its Linux
//! is the one for one processor (L-UP), as its Xen is.

/// A row of tables 3 to 5.
#[derive(Debug)]
pub struct Row {
    /// What measures the same here, by its name in the tables of `bench`.
    pub number: &'static str,
    /// What the paper calls it.
    pub name: &'static str,
    /// Linux, Xen, VMware Workstation 3.2, User-Mode Linux.
    pub times: [f64; 4],
}

const fn row(number: &'static str, name: &'static str, times: [f64; 4]) -> Row {
    Row { number, name, times }
}

/// Table 3: lmbench, processes.
pub const PROCESSES: [Row; 10] = [
    row("null-syscall", "null call", [0.45, 0.46, 0.73, 24.7]),
    row("read-byte", "null I/O", [0.50, 0.50, 0.83, 25.1]),
    row("stat", "stat", [1.28, 1.22, 1.88, 36.1]),
    row("open-close", "open close", [1.92, 1.88, 2.99, 62.8]),
    row("select-tcp", "slct TCP", [5.70, 5.69, 11.1, 39.9]),
    row("signal-install", "sig inst", [0.68, 0.69, 1.02, 26.0]),
    row("signal", "sig hndl", [2.49, 1.75, 4.63, 46.0]),
    row("fork-exit", "fork proc", [110.0, 198.0, 874.0, 21_000.0]),
    row("fork-exec", "exec proc", [530.0, 768.0, 2300.0, 33_000.0]),
    row("shell", "sh proc", [4000.0, 4800.0, 10_000.0, 58_000.0]),
];

/// Table 4: lmbench, context switching.
pub const SWITCHES: [Row; 7] = [
    row("switch-2p-0k", "2p 0K", [0.77, 1.97, 18.1, 15.5]),
    row("switch-2p-16k", "2p 16K", [0.91, 2.22, 17.6, 14.6]),
    row("switch-2p-64k", "2p 64K", [1.06, 2.67, 21.3, 14.4]),
    row("switch-8p-16k", "8p 16K", [1.03, 3.07, 22.4, 16.3]),
    row("switch-8p-64k", "8p 64K", [24.3, 28.7, 51.6, 36.8]),
    row("switch-16p-16k", "16p 16K", [3.61, 7.08, 41.7, 23.6]),
    row("switch-16p-64k", "16p 64K", [37.6, 39.4, 72.2, 52.0]),
];

/// Table 5: lmbench, file and virtual memory system.
pub const FILES: [Row; 7] = [
    row("create-0k", "0K file create", [32.1, 32.5, 35.3, 130.0]),
    row("delete-0k", "0K file delete", [6.08, 5.86, 9.3, 65.7]),
    row("create-10k", "10K file create", [66.0, 68.2, 85.6, 250.0]),
    row("delete-10k", "10K file delete", [12.5, 13.6, 21.4, 113.0]),
    row("map-file", "mmap lat", [68.0, 139.0, 620.0, 1400.0]),
    row("protection-fault", "prot fault", [1.06, 1.40, 7.53, 21.8]),
    row("anonymous-fault", "page fault", [1.42, 2.73, 12.4, 26.3]),
];

/// A group of figure 3's bars.
#[derive(Debug)]
pub struct Score {
    /// What stands in for it here, by its name in the tables of `bench`.
    pub number: &'static str,
    /// What the paper ran.
    pub name: &'static str,
    /// Xen's score, as a part of Linux's, if the text that we have says it.
    pub xen: Option<f64>,
}

const fn score(number: &'static str, name: &'static str, xen: Option<f64>) -> Score {
    Score { number, name, xen }
}

/// Figure 3. dbench's scores are 518 and 514; the others stand in the text: "a mere 3% overhead" for the build, "within
/// 1%" for SPEC WEB99. Bars without a number are not in the text.
pub const APPLICATIONS: [Score; 6] = [
    score("nbody", "SPEC INT2000", Some(1.0)),
    score("build", "Linux build time", Some(0.97)),
    score("pgbench-read", "OSDB-IR", None),
    score("pgbench-write", "OSDB-OLTP", None),
    score("untar", "dbench", Some(514.0 / 518.0)),
    score("nginx", "SPEC WEB99", Some(0.99)),
];
