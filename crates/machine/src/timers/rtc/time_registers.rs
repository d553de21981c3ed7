//! The time and alarm registers: between the calendar and what the guest reads and writes, in
//! decimal or binary, with 12 or 24 hours.

use super::Rtc;
use super::bits::{AFTERNOON, ANY, Control, index};
use crate::calendar::Civil;
use crate::time::Clock;

impl Rtc {
    /// The time that is shown, in seconds since 1970.
    pub(super) fn seconds(&self, clock: &dyn Clock) -> i64 {
        let wall = i64::try_from(clock.wall().as_secs()).unwrap_or(i64::MAX);
        wall.saturating_add(self.offset)
    }

    /// The time that is shown.
    pub(super) fn shown(&self, clock: &dyn Clock) -> Civil {
        self.setting.unwrap_or_else(|| Civil::from_seconds(self.seconds(clock)))
    }

    pub(super) fn set_time(&mut self, civil: Civil, clock: &dyn Clock) {
        let wall = i64::try_from(clock.wall().as_secs()).unwrap_or(i64::MAX);
        self.offset = civil.to_seconds().saturating_sub(wall);
        self.last_update = self.seconds(clock);
    }

    pub(super) fn read_time(&self, clock: &dyn Clock) -> u8 {
        let civil = self.shown(clock);
        let value = match self.index {
            index::SECONDS => civil.second,
            index::MINUTES => civil.minute,
            index::HOURS => return self.encode_hour(civil.hour),
            index::WEEKDAY => civil.weekday,
            index::DAY => civil.day,
            index::MONTH => civil.month,
            index::YEAR => (civil.year % 100) as u8,
            _ => (civil.year / 100) as u8,
        };
        self.encode(value)
    }

    pub(super) fn write_time(&mut self, value: u8, clock: &dyn Clock) {
        let mut civil = self.shown(clock);
        let number = self.decode(value);
        match self.index {
            index::SECONDS => civil.second = number,
            index::MINUTES => civil.minute = number,
            index::HOURS => civil.hour = self.decode_hour(value),
            index::WEEKDAY => civil.weekday = number,
            index::DAY => civil.day = number,
            index::MONTH => civil.month = number,
            index::YEAR => civil.year = civil.year / 100 * 100 + u16::from(number.min(99)),
            _ => civil.year = u16::from(number.min(99)) * 100 + civil.year % 100,
        }
        if self.setting.is_some() {
            self.setting = Some(civil);
        } else {
            self.set_time(civil, clock);
        }
    }

    /// Whether the alarm is at this time.
    pub(super) fn is_alarm(&self, civil: Civil) -> bool {
        let matches = |at: u8, value: u8| {
            let alarm = self.memory[usize::from(at)];
            alarm & ANY == ANY || alarm == value
        };
        matches(index::SECONDS_ALARM, self.encode(civil.second))
            && matches(index::MINUTES_ALARM, self.encode(civil.minute))
            && matches(index::HOURS_ALARM, self.encode_hour(civil.hour))
    }

    fn encode(&self, value: u8) -> u8 {
        if self.control.contains(Control::BINARY) {
            value
        } else {
            (value / 10 % 10) << 4 | (value % 10)
        }
    }

    fn decode(&self, value: u8) -> u8 {
        if self.control.contains(Control::BINARY) {
            value
        } else {
            (value >> 4) * 10 + (value & 0xf)
        }
    }

    fn encode_hour(&self, hour: u8) -> u8 {
        if self.control.contains(Control::HOURS_24) {
            return self.encode(hour);
        }
        let twelve = if hour.is_multiple_of(12) { 12 } else { hour % 12 };
        self.encode(twelve) | if hour >= 12 { AFTERNOON } else { 0 }
    }

    fn decode_hour(&self, value: u8) -> u8 {
        if self.control.contains(Control::HOURS_24) {
            return self.decode(value);
        }
        let afternoon = value & AFTERNOON != 0;
        self.decode(value & !AFTERNOON) % 12 + if afternoon { 12 } else { 0 }
    }
}
