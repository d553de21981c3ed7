//! Waiting for what other processes do.

use std::time::{Duration, Instant};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// Waits until something is so.
///
/// # Panics
///
/// When it does not come to that.
#[track_caller]
pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "it does not come to this: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
