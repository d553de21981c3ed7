//! What the kernel does though nobody wants anything of it. Where many machines share a host, each wake-up
//! of one that is idle counts.

use std::fs;

/// Settings, and what each of them saves.
const SETTINGS: &[(&str, &str)] = &[
    // Memory is not compacted before anybody needs large pages of it: two wake-ups a second.
    ("/proc/sys/vm/compaction_proactiveness", "0"),
    // Statistics of memory are gathered less often: one or two wake-ups a second.
    ("/proc/sys/vm/stat_interval", "30"),
];

/// Has the kernel sleep longer. One that lacks a setting goes without.
pub fn sleep_longer() {
    for (path, value) in SETTINGS {
        let _ = fs::write(path, value);
    }
}
