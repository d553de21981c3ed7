//! What time it is, told so that it does not matter how long the telling takes: the host reads its clock and the
//! time-stamp counter at once, and says both. The guest, which has the same counter, or one that is a known
//! distance ahead, reads its own when it hears of it, and knows how long ago that was.

/// The longest time that may pass between the reading and the hearing of it. What is older, or not yet, is of
/// another counter: the guest has moved its own.
const AGE_MAX_SECONDS: u64 = 3600;

/// Bytes of a time on the line.
pub const TIME_BYTES: usize = 25;

/// A time of the host's clock, and the guest's time-stamp counter then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time {
    /// Nanoseconds since 1970 (UTC).
    pub realtime: u64,
    /// Ticks.
    pub counter: u64,
    /// Ticks in a second.
    pub frequency: u64,
    /// The machine starts, or goes on elsewhere: whatever its clock shows is of no use to anybody yet.
    pub is_start: bool,
}

impl Time {
    /// How late it is, in nanoseconds since 1970, when the counter shows this; none if it cannot be told.
    #[must_use]
    pub fn at(&self, counter: u64) -> Option<u64> {
        let ticks = counter.wrapping_sub(self.counter);
        if ticks > self.frequency.saturating_mul(AGE_MAX_SECONDS) {
            return None;
        }
        self.realtime.checked_add(nanoseconds(ticks, self.frequency)?)
    }

    pub(crate) fn to_bytes(self) -> [u8; TIME_BYTES] {
        let Self { realtime, counter, frequency, is_start } = self;
        let mut bytes = [u8::from(is_start); TIME_BYTES];
        for (place, number) in [realtime, counter, frequency].into_iter().enumerate() {
            bytes[8 * place..][..8].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; TIME_BYTES]) -> Self {
        let number =
            |place: usize| u64::from_le_bytes(std::array::from_fn(|n| bytes[8 * place + n]));
        let is_start = bytes[TIME_BYTES - 1] != 0;
        Self { realtime: number(0), counter: number(1), frequency: number(2), is_start }
    }
}

/// Nanoseconds of so many ticks.
#[must_use]
pub fn nanoseconds(ticks: u64, frequency: u64) -> Option<u64> {
    let scaled = u128::from(ticks) * 1_000_000_000;
    u64::try_from(scaled.checked_div(u128::from(frequency))?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn time(counter: u64) -> Time {
        let (realtime, frequency) = (1_700_000_000 * SECOND, 2_500_000_000);
        Time { realtime, counter, frequency, is_start: true }
    }

    #[test]
    fn it_does_not_matter_when_it_is_heard() {
        let check = |time: Time, later: u64, expected: Option<u64>| {
            let now = time.at(time.counter.wrapping_add(later));
            assert_eq!(now.map(|now| now - time.realtime), expected, "{later} ticks");
        };
        for counter in [0, 12_345, u64::MAX, u64::MAX - 1_000_000] {
            check(time(counter), 0, Some(0));
            check(time(counter), 5, Some(2));
            check(time(counter), 2_500_000_000, Some(SECOND));
            check(time(counter), 3600 * 2_500_000_000, Some(3600 * SECOND));
            check(time(counter), 3600 * 2_500_000_000 + 1, None);
            // A little earlier is another counter, and not nearly 2^64 ticks later.
            check(time(counter), 1_u64.wrapping_neg(), None);
        }
    }

    #[test]
    fn numbers_that_make_no_sense_tell_no_time() {
        assert_eq!(Time { frequency: 0, ..time(0) }.at(0), None);
        assert_eq!(Time { frequency: 1, ..time(0) }.at(3601), None);
        let late = Time { realtime: u64::MAX, frequency: u64::MAX, ..time(0) };
        assert_eq!(late.at(u64::MAX), None);
    }
}
