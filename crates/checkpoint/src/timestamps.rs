//! The clock of TCP's timestamps (RFC 7323). It goes on while nobody runs, as the time does: what is older than what
//! the other end has seen last is dropped by it, and the last that it has seen may have been sent after the connection
//! was looked at.
//!
//! What the kernel tells and takes (`TCP_TIMESTAMP`) counts milliseconds. Since Linux 6.7 its lowest bit is no part of
//! that: it says that the clock counts microseconds. That bit stays as it is; such a clock only does not go back.

/// The bit that stays.
const KIND: u32 = 1;

/// The milliseconds since 1970, as far as there is room.
fn now() -> u32 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let milliseconds = now.tv_sec.wrapping_mul(1000).wrapping_add(now.tv_nsec / 1_000_000);
    (milliseconds & i64::from(u32::MAX)) as u32
}

/// A clock as it is kept: what it shows, less the time.
pub(crate) fn keep(shown: u32) -> u32 {
    at(shown, 0_u32.wrapping_sub(now()))
}

/// What a clock shows now that was kept.
pub(crate) fn show(kept: u32) -> u32 {
    // The lowest bits of both times are lost.
    at(kept, now().wrapping_add(2 * KIND))
}

fn at(clock: u32, span: u32) -> u32 {
    clock.wrapping_add(span) & !KIND | clock & KIND
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_go_on_and_stay_what_they_are() {
        for shown in [0, 1, 2, 3, 1000, u32::MAX - 1, u32::MAX] {
            let later = show(keep(shown));
            assert_eq!(later & KIND, shown & KIND, "{shown}");
            // A minute is more than this takes.
            assert!(later.wrapping_sub(shown) < 60_000, "{shown} {later}");
        }
        assert_eq!(at(at(7, 5), 0_u32.wrapping_sub(4)) & KIND, 1);
    }
}
