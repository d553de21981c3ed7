//! Settings of the kernel that reduce wake-ups of an idle guest. Where many machines share a host,
//! each wake-up of an idle machine counts.

use std::fs;

/// Settings, and what each of them saves.
const SETTINGS: &[(&str, &str)] = &[
    // Memory is not compacted before anybody needs large pages of it: two wake-ups a second.
    ("/proc/sys/vm/compaction_proactiveness", "0"),
    // Statistics of memory are gathered less often: one or two wake-ups a second.
    ("/proc/sys/vm/stat_interval", "30"),
    // Whether a processor is stuck is looked at every 24 seconds, not every 4: half a wake-up a second.
    ("/proc/sys/kernel/watchdog_thresh", "60"),
    // Neighbours that somebody has the kernel watch are probed every ten minutes: there are none.
    ("/proc/sys/net/ipv4/neigh/default/interval_probe_time_ms", "600000"),
    ("/proc/sys/net/ipv6/neigh/default/interval_probe_time_ms", "600000"),
];

/// Has the kernel sleep longer. One that lacks a setting goes without.
pub fn sleep_longer() {
    for (path, value) in SETTINGS {
        let _ = fs::write(path, value);
    }
}
