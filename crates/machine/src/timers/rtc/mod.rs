//! The MC146818 real-time clock with 128 bytes of memory, at ports 0x70 and 0x71.
//!
//! It shows the wall clock plus what the guest has set it off by. It has something to do only
//! while the guest has enabled one of its interrupts: once a second for the update and the alarm,
//! at the chosen rate for the periodic one.

mod bits;
#[cfg(test)]
mod tests;
mod time_registers;

use serde::{Deserialize, Serialize};

use crate::calendar::Civil;
use bits::{A_RESET, A_UPDATING, ANNOUNCED_NANOSECONDS, BYTES, D_VALID, INDEX_MASK};
use bits::{Control, Flags, index};

use crate::limits::MAX_MISSED_ALARM_SECONDS;
use crate::time::{Clock, Nanoseconds};

/// The clock.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Rtc {
    index: u8,
    #[serde(with = "crate::saved::array")]
    memory: [u8; BYTES],
    control: Control,
    flags: Flags,
    /// Seconds to add to the wall clock.
    offset: i64,
    /// The guest is setting the time, and it stands still.
    setting: Option<Civil>,
    /// The second that was shown, and the periods that had ended, when the flags were last set.
    last_update: i64,
    last_period: u64,
    next_update: Nanoseconds,
    next_periodic: Nanoseconds,
}

impl Default for Rtc {
    fn default() -> Self {
        let mut memory = [0; BYTES];
        memory[usize::from(index::A)] = A_RESET;
        Self {
            index: 0,
            memory,
            control: Control::HOURS_24,
            flags: Flags::empty(),
            offset: 0,
            setting: None,
            last_update: i64::MAX,
            last_period: 0,
            next_update: Nanoseconds::NEVER,
            next_periodic: Nanoseconds::NEVER,
        }
    }
}

impl Rtc {
    /// RESET of the machine: interrupts are off; a battery keeps the time and the memory.
    pub fn reset(&mut self) {
        self.flags = Flags::empty();
        self.control -= Control::UPDATE_INTERRUPT
            | Control::ALARM_INTERRUPT
            | Control::PERIODIC_INTERRUPT
            | Control::SQUARE_WAVE;
        self.next_update = Nanoseconds::NEVER;
        self.next_periodic = Nanoseconds::NEVER;
    }

    /// The level of the interrupt line.
    pub fn interrupts(&self) -> bool {
        self.flags.contains(Flags::INTERRUPT)
    }

    /// When it has something to do.
    #[inline]
    pub fn next_deadline(&self) -> Nanoseconds {
        self.next_update.min(self.next_periodic)
    }

    /// Time has passed.
    pub fn advance(&mut self, clock: &dyn Clock) {
        self.settle(clock);
        self.schedule(clock);
    }

    /// `in` from 0x70 (which cannot be read) and 0x71.
    pub fn read(&mut self, offset: u16, clock: &dyn Clock) -> u8 {
        if offset == 0 {
            return 0xff;
        }
        match self.index {
            index::A => self.memory[usize::from(index::A)] | self.updating(clock),
            index::B => self.control.bits(),
            index::C => {
                self.settle(clock);
                std::mem::replace(&mut self.flags, Flags::empty()).bits()
            }
            index::D => D_VALID,
            index::SECONDS_ALARM | index::MINUTES_ALARM | index::HOURS_ALARM => self.remembered(),
            index::SECONDS..=index::YEAR | index::CENTURY => self.read_time(clock),
            _ => self.remembered(),
        }
    }

    /// `out` to 0x70 and 0x71.
    pub fn write(&mut self, offset: u16, value: u8, clock: &dyn Clock) {
        if offset == 0 {
            self.index = value & INDEX_MASK;
            return;
        }
        match self.index {
            index::A => {
                self.settle(clock);
                self.memory[usize::from(index::A)] = value & !A_UPDATING;
                self.last_period = self.periods(clock.now());
                self.schedule(clock);
            }
            index::B => self.set_control(Control::from_bits_retain(value), clock),
            index::C | index::D => {}
            index::SECONDS_ALARM | index::MINUTES_ALARM | index::HOURS_ALARM => {
                self.remember(value);
            }
            index::SECONDS..=index::YEAR | index::CENTURY => self.write_time(value, clock),
            _ => self.remember(value),
        }
    }

    /// Put a byte into the memory, as firmware does.
    pub fn set_memory(&mut self, at: u8, value: u8) {
        self.memory[usize::from(at & INDEX_MASK)] = value;
    }

    fn remembered(&self) -> u8 {
        self.memory[usize::from(self.index & INDEX_MASK)]
    }

    fn remember(&mut self, value: u8) {
        self.memory[usize::from(self.index & INDEX_MASK)] = value;
    }

    fn raise(&mut self, flags: Flags) {
        self.flags |= flags;
        if self.flags.bits() & self.control.bits() & (Flags::all() - Flags::INTERRUPT).bits() != 0 {
            self.flags |= Flags::INTERRUPT;
        }
    }

    fn set_control(&mut self, value: Control, clock: &dyn Clock) {
        self.settle(clock);
        let was_set = self.control.contains(Control::SET);
        match (was_set, value.contains(Control::SET)) {
            (false, true) => self.setting = Some(self.shown(clock)),
            (true, false) => {
                if let Some(civil) = self.setting.take() {
                    self.set_time(civil, clock);
                }
            }
            _ => {}
        }
        self.control = value;
        self.raise(Flags::empty());
        self.schedule(clock);
    }

    /// Set the flags of what has happened since the last time, whether it interrupts or not.
    fn settle(&mut self, clock: &dyn Clock) {
        let periods = self.periods(clock.now());
        if periods != self.last_period {
            self.last_period = periods;
            self.raise(Flags::PERIODIC);
        }
        if self.setting.is_none() {
            self.update(clock);
        }
    }

    /// The end of one second, or of several that were missed.
    fn update(&mut self, clock: &dyn Clock) {
        let seconds = self.seconds(clock);
        let missed = seconds.saturating_sub(self.last_update);
        let missed = missed.clamp(0, MAX_MISSED_ALARM_SECONDS as i64);
        if missed > 0 {
            self.raise(Flags::UPDATE);
        }
        if (0..missed).any(|back| self.is_alarm(Civil::from_seconds(seconds - back))) {
            self.raise(Flags::ALARM);
        }
        self.last_update = seconds;
    }

    /// When the next enabled interrupt can come: at the end of a period, or of a second.
    fn schedule(&mut self, clock: &dyn Clock) {
        let periodic = self.control.contains(Control::PERIODIC_INTERRUPT);
        self.next_periodic = match self.period() {
            Some(period) if periodic => {
                Nanoseconds((clock.now().0 / period).saturating_add(1).saturating_mul(period))
            }
            _ => Nanoseconds::NEVER,
        };
        let secondly = Control::UPDATE_INTERRUPT | Control::ALARM_INTERRUPT;
        let wanted = self.control.intersects(secondly) && self.setting.is_none();
        self.next_update = if wanted {
            let left = Nanoseconds::SECOND.0 - u64::from(clock.wall().subsec_nanos());
            clock.now().after(Nanoseconds(left))
        } else {
            Nanoseconds::NEVER
        };
    }

    /// Nanoseconds of a period, if there are any. Rates 1 and 2 are those of 8 and 9 (data sheet,
    /// table 5).
    fn period(&self) -> Option<u64> {
        let rate = match self.memory[usize::from(index::A)] & 0xf {
            0 => return None,
            rate @ 1..=2 => rate + 7,
            rate => rate,
        };
        Some((Nanoseconds::SECOND.0 << (rate - 1)) >> 15)
    }

    /// Periods until now, from whenever.
    fn periods(&self, now: Nanoseconds) -> u64 {
        self.period().map_or(0, |period| now.0 / period)
    }

    fn updating(&self, clock: &dyn Clock) -> u8 {
        let left = Nanoseconds::SECOND.0 as u32 - clock.wall().subsec_nanos();
        let soon = left <= ANNOUNCED_NANOSECONDS && self.setting.is_none();
        if soon { A_UPDATING } else { 0 }
    }
}
