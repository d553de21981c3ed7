//! One of the three counters of the 8254.
//!
//! Nothing counts. A counter is what it was loaded with and when; what it shows, and when its
//! output rises, is computed.

use serde::{Deserialize, Serialize};

use super::bits::{Access, FREQUENCY, Mode};
use crate::limits::{MAX_TIMER_BACKLOG_NANOSECONDS, MIN_TIMER_PERIOD_NANOSECONDS};
use crate::time::Nanoseconds;

/// A counter.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Channel {
    mode: Mode,
    access: Access,
    bcd: bool,
    /// What was loaded, 1 to 65536.
    count: u32,
    /// When counting started; [`Nanoseconds::NEVER`] when nothing was loaded since the last
    /// control word, or the trigger has not come.
    started: Nanoseconds,
    gate: bool,
    /// The gate has been low since then, and the count stands still.
    stopped: Option<Nanoseconds>,
    low_written: Option<u8>,
    high_is_next: bool,
    latched_count: Option<u16>,
    latched_status: Option<u8>,
    /// Periods since then that have interrupted.
    periods: u64,
    /// When the output rises next, on a channel whose output interrupts.
    deadline: Nanoseconds,
}

impl Channel {
    /// Whether it can be what was saved: nothing counts from zero.
    pub fn makes_sense(&self) -> bool {
        (1..=0x1_0000).contains(&self.count)
    }

    pub fn new(gate: bool) -> Self {
        Self {
            mode: Mode::SquareWave,
            access: Access::Both,
            bcd: false,
            count: 0x1_0000,
            started: Nanoseconds::NEVER,
            gate,
            stopped: None,
            low_written: None,
            high_is_next: false,
            latched_count: None,
            latched_status: None,
            periods: 0,
            deadline: Nanoseconds::NEVER,
        }
    }

    pub fn deadline(&self) -> Nanoseconds {
        self.deadline
    }

    /// Whether the output has risen since it was last asked.
    pub fn expire(&mut self, now: Nanoseconds) -> bool {
        if now < self.deadline {
            return false;
        }
        self.deadline =
            if self.mode.is_periodic() { self.next_period(now) } else { Nanoseconds::NEVER };
        true
    }

    /// Kernels count these interrupts, so periods that have passed unseen are made up for, a little
    /// apart from each other; not if the machine stood still for long.
    fn next_period(&mut self, now: Nanoseconds) -> Nanoseconds {
        let count = u64::from(self.count);
        self.periods += 1;
        let end = |periods: u64| self.started.after(FREQUENCY.time_of((periods + 1) * count));
        if now.since(end(self.periods)) > MAX_TIMER_BACKLOG_NANOSECONDS {
            self.periods = self.ticks(now) / count;
        }
        end(self.periods).max(now.after(MIN_TIMER_PERIOD_NANOSECONDS))
    }

    /// A control word for this channel that sets its mode.
    pub fn set_control(&mut self, access: Access, word: u8) {
        let (gate, mode) = (self.gate, Mode::from_control(word));
        *self = Self { access, mode, bcd: word & 1 != 0, ..Self::new(gate) };
    }

    pub fn latch_count(&mut self, now: Nanoseconds) {
        if self.latched_count.is_none() {
            self.latched_count = Some(self.shown(now));
            self.high_is_next = false;
        }
    }

    pub fn latch_status(&mut self, now: Nanoseconds) {
        let null_count = u8::from(self.started == Nanoseconds::NEVER);
        self.latched_status.get_or_insert(
            u8::from(self.output(now)) << 7
                | null_count << 6
                | (self.access as u8) << 4
                | (self.mode as u8) << 1
                | u8::from(self.bcd),
        );
    }

    pub fn read(&mut self, now: Nanoseconds) -> u8 {
        if let Some(status) = self.latched_status.take() {
            return status;
        }
        let value = self.latched_count.unwrap_or_else(|| self.shown(now));
        let high = match self.access {
            Access::Low => false,
            Access::High => true,
            Access::Both => {
                self.high_is_next = !self.high_is_next;
                !self.high_is_next
            }
        };
        if !self.high_is_next {
            self.latched_count = None;
        }
        value.to_le_bytes()[usize::from(high)]
    }

    pub fn write(&mut self, value: u8, now: Nanoseconds) {
        let bytes = match (self.access, self.low_written.take()) {
            (Access::Low, _) => [value, 0],
            (Access::High, _) => [0, value],
            (Access::Both, Some(low)) => [low, value],
            (Access::Both, None) => {
                self.low_written = Some(value);
                return;
            }
        };
        self.load(u16::from_le_bytes(bytes), now);
    }

    pub fn gate(&self) -> bool {
        self.gate
    }

    pub fn set_gate(&mut self, gate: bool, now: Nanoseconds) {
        if gate == self.gate {
            return;
        }
        self.gate = gate;
        if !gate {
            self.stopped = Some(now);
        } else if self.mode.is_retriggered() {
            self.start(now);
        } else if let Some(stopped) = self.stopped.take()
            && self.started != Nanoseconds::NEVER
        {
            self.started = self.started.after(now.since(stopped));
            self.rearm();
        }
    }

    /// OUT.
    pub fn output(&self, now: Nanoseconds) -> bool {
        let counting = self.started != Nanoseconds::NEVER;
        let (ticks, count) = (self.ticks(now), u64::from(self.count));
        match self.mode {
            Mode::TerminalCount => counting && ticks >= count,
            Mode::OneShot => !counting || ticks >= count,
            Mode::RateGenerator => !counting || ticks % count != count - 1,
            Mode::SquareWave => !counting || ticks % count < count.div_ceil(2),
            Mode::SoftwareStrobe | Mode::HardwareStrobe => ticks != count,
        }
    }

    /// A new count. Modes that a trigger starts wait for it; periodic ones start at once, where
    /// the real one finishes the period.
    fn load(&mut self, value: u16, now: Nanoseconds) {
        let (value, wrap) =
            if self.bcd { (from_bcd(value), 10_000) } else { (value.into(), 1 << 16) };
        self.count = if value == 0 { wrap } else { value };
        match self.mode {
            Mode::OneShot | Mode::HardwareStrobe => {}
            _ => self.start(now),
        }
    }

    fn start(&mut self, now: Nanoseconds) {
        self.started = now;
        self.periods = 0;
        self.stopped = (!self.gate).then_some(now);
        self.rearm();
    }

    fn rearm(&mut self) {
        self.deadline = match self.stopped {
            Some(_) => Nanoseconds::NEVER,
            None => self.started.after(FREQUENCY.time_of(self.count.into())),
        };
    }

    /// Counts since it was started.
    fn ticks(&self, now: Nanoseconds) -> u64 {
        FREQUENCY.ticks_in(self.stopped.unwrap_or(now).since(self.started))
    }

    /// The counting element as the guest reads it.
    fn shown(&self, now: Nanoseconds) -> u16 {
        let (ticks, count) = (self.ticks(now), u64::from(self.count));
        let left = match self.mode {
            Mode::RateGenerator => count - ticks % count,
            Mode::SquareWave => count - 2 * ticks % count,
            _ if self.bcd => count + 9_999 * (ticks % 10_000),
            _ => count.wrapping_sub(ticks),
        };
        if self.bcd { to_bcd((left % 10_000) as u16) } else { left as u16 }
    }
}

fn from_bcd(value: u16) -> u32 {
    [12, 8, 4, 0].iter().fold(0, |sum, shift| sum * 10 + u32::from(value >> shift & 0xf).min(9))
}

fn to_bcd(value: u16) -> u16 {
    [1000, 100, 10, 1].iter().fold(0, |sum, place| sum << 4 | (value / place % 10))
}
