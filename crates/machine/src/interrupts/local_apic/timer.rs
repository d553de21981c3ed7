//! The timer of a local APIC (SDM 3A 11.5.4): one-shot and periodic count down at
//! [`FREQUENCY`], divided; TSC-deadline compares the time-stamp counter.
//!
//! Nothing counts. The instant at which the timer expires is computed when it is armed, and the
//! count is computed from it when it is read.

use serde::{Deserialize, Serialize};

use crate::limits::MIN_TIMER_PERIOD_NANOSECONDS;
use crate::saved::CounterShift;
use crate::time::{Clock, Hertz, Nanoseconds};

/// What the initial count counts, before division: one tick is a nanosecond. CPUID announces it
/// (leaf 0x15's crystal, and KVM's leaf 0x4000_0010).
pub const FREQUENCY: Hertz = Hertz(1_000_000_000);

/// Bits 18:17 of the timer's LVT entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    OneShot,
    Periodic,
    TscDeadline,
}

impl Mode {
    /// The reserved encoding behaves as one-shot.
    pub fn from_register(lvt: u32) -> Self {
        match lvt >> 17 & 3 {
            1 => Self::Periodic,
            2 => Self::TscDeadline,
            _ => Self::OneShot,
        }
    }
}

/// The timer, without its LVT entry.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Timer {
    mode: Mode,
    initial: u32,
    divide: u32,
    deadline: Nanoseconds,
    tsc_deadline: u64,
    tsc: Hertz,
    /// What the guest has added to its time-stamp counter.
    pub tsc_offset: u64,
}

impl Timer {
    pub fn new(tsc: Hertz) -> Self {
        Self {
            mode: Mode::OneShot,
            initial: 0,
            divide: 0,
            deadline: Nanoseconds::NEVER,
            tsc_deadline: 0,
            tsc,
            tsc_offset: 0,
        }
    }

    /// As after INIT or power-on; the time-stamp counter is not its own.
    pub fn reset(&mut self) {
        *self = Self { tsc_offset: self.tsc_offset, ..Self::new(self.tsc) };
    }

    /// The same on a host with another time-stamp counter.
    pub fn moved(self, tsc: Hertz, shift: CounterShift) -> Self {
        Self { tsc, tsc_offset: self.tsc_offset.wrapping_add(shift.guest), ..self }
    }

    pub fn tsc(&self) -> Hertz {
        self.tsc
    }

    /// When it expires.
    #[inline]
    pub fn deadline(&self) -> Nanoseconds {
        self.deadline
    }

    /// Whether it has expired since it was last asked; expirations that were missed count once.
    #[inline]
    pub fn expire(&mut self, now: Nanoseconds) -> bool {
        if now < self.deadline {
            return false;
        }
        if self.mode == Mode::Periodic {
            let period = self.period().0;
            let missed = now.since(self.deadline).0 / period;
            let ahead = missed.saturating_add(1).saturating_mul(period);
            self.deadline = self.deadline.after(Nanoseconds(ahead));
        } else {
            self.disarm();
        }
        true
    }

    /// The mode was written. Between counting and comparing, the timer is disarmed.
    pub fn set_mode(&mut self, mode: Mode) {
        if mode != self.mode && (mode == Mode::TscDeadline || self.mode == Mode::TscDeadline) {
            self.disarm();
        }
        self.mode = mode;
    }

    pub fn initial_count(&self) -> u32 {
        self.initial
    }

    /// Arms the timer; zero stops it. Ignored in TSC-deadline mode.
    pub fn set_initial_count(&mut self, count: u32, now: Nanoseconds) {
        if self.mode == Mode::TscDeadline {
            return;
        }
        self.initial = count;
        self.deadline = match (count, self.mode) {
            (0, _) => Nanoseconds::NEVER,
            (_, Mode::Periodic) => now.after(self.period()),
            _ => now.after(Nanoseconds(self.tick() * u64::from(count))),
        };
    }

    pub fn current_count(&self, now: Nanoseconds) -> u32 {
        if self.mode == Mode::TscDeadline || self.deadline == Nanoseconds::NEVER {
            return 0;
        }
        let left = self.deadline.since(now).0.div_ceil(self.tick());
        u32::try_from(left).unwrap_or(u32::MAX).min(self.initial)
    }

    pub fn divide(&self) -> u32 {
        self.divide
    }

    /// The count that is left goes on at the new pace.
    pub fn set_divide(&mut self, value: u32, now: Nanoseconds) {
        let left = self.current_count(now);
        self.divide = value & 0b1011;
        if self.mode != Mode::TscDeadline && self.deadline != Nanoseconds::NEVER {
            self.deadline = now.after(Nanoseconds(self.tick() * u64::from(left)));
        }
    }

    /// IA32_TSC_DEADLINE: zero when disarmed.
    pub fn tsc_deadline(&self) -> u64 {
        self.tsc_deadline
    }

    /// Arms the timer; zero stops it. Ignored in the other modes.
    pub fn set_tsc_deadline(&mut self, value: u64, clock: &dyn Clock) {
        if self.mode != Mode::TscDeadline {
            return;
        }
        self.disarm();
        if value != 0 {
            let tsc = clock.tsc().wrapping_add(self.tsc_offset);
            let left = self.tsc.time_of(value.saturating_sub(tsc));
            self.tsc_deadline = value;
            self.deadline = clock.now().after(left);
        }
    }

    fn disarm(&mut self) {
        self.deadline = Nanoseconds::NEVER;
        self.tsc_deadline = 0;
    }

    /// Nanoseconds per count: bits 3, 1 and 0 of the divide register, 0b111 for 1.
    fn tick(&self) -> u64 {
        let code = self.divide & 3 | self.divide >> 1 & 4;
        1 << ((code + 1) & 7)
    }

    fn period(&self) -> Nanoseconds {
        let exact = Nanoseconds(self.tick() * u64::from(self.initial));
        exact.max(MIN_TIMER_PERIOD_NANOSECONDS)
    }
}
