//! Polling for what another thread or process is about to do, where waking a sleeping thread would
//! cost more.

use std::time::{Duration, Instant};

use crate::limits::POLLS_PER_READING;

/// Look for something for so long at most; whether it was there.
#[inline]
pub fn watch(span: Duration, mut is_there: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < span {
        for _ in 0..POLLS_PER_READING {
            if is_there() {
                return true;
            }
            std::hint::spin_loop();
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_with_what_is_there_or_with_the_time() {
        let mut looks = 0;
        let third = || {
            looks += 1;
            looks == 3
        };
        assert!(watch(Duration::from_secs(60), third));
        assert_eq!(looks, 3);
        assert!(!watch(Duration::from_micros(50), || false));
        assert!(!watch(Duration::ZERO, || true), "there is no time to look");
    }
}
