//! Whether the guest's kernel has noticed that something is wrong.

/// What it says then.
const COMPLAINTS: [&str; 9] = [
    "BUG:",
    "Oops",
    "WARNING:",
    "Call Trace",
    "soft lockup",
    "general protection fault",
    "rcu: INFO",
    "clocksource: timekeeping watchdog",
    "PCI: Fatal",
];

/// The kernel's first complaint, with what it says before and after. A program that takes all the
/// memory there is and is ended for it is none, though the kernel shows a call trace then too.
pub fn complaint(console: &str) -> Option<String> {
    let lines: Vec<_> = console.lines().collect();
    let is_out_of_memory = |at: usize| {
        let before = &lines[at.saturating_sub(4)..at];
        before.iter().any(|line| line.contains("invoked oom-killer"))
    };
    let complains = |at: &usize| {
        COMPLAINTS.iter().any(|complaint| lines[*at].contains(complaint)) && !is_out_of_memory(*at)
    };
    let first = (0..lines.len()).find(complains)?;
    let (from, to) = (first.saturating_sub(10), (first + 50).min(lines.len()));
    Some(lines[from..to].join("\n"))
}

#[cfg(test)]
mod tests {
    use super::complaint;

    #[test]
    fn complaints_are_seen_and_nothing_else_is() {
        assert!(complaint("[    5.0] BUG: unable to handle page fault for address: 1").is_some());
        assert!(complaint("[    0.0] Booting Linux").is_none());
        let out_of_memory =
            "[ 9.1] a invoked oom-killer: order=0\n[ 9.2] CPU: 0\n[ 9.3] Call Trace:\n";
        assert!(complaint(out_of_memory).is_none());
        assert!(complaint(&format!("{out_of_memory}\n\n\n[ 9.9] Call Trace:")).is_some());
    }
}
