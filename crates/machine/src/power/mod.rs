//! Power: ACPI's PM1a event and control blocks with the PM timer, the reset register, and the
//! keyboard controller and system control port A as far as they reset the machine.
//!
//! There is no keyboard and no mouse. The controller is here because kernels reset a PC through
//! it, and wait for its input buffer to be empty before they do.

mod bits;
mod keyboard;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use bits::offset;
use bits::{Control, ControlA, Events, ResetControl, SLEEP_TYPE_OFF, TIMER_FREQUENCY};
pub use keyboard::Keyboard;

use crate::bus::Size;
use crate::request::{Request, Requests};
use crate::time::{Clock, Nanoseconds};

/// Timer ticks after which its highest bit changes.
const HALF_PERIOD: u64 = 1 << 31;

/// The power block and the reset registers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Power {
    #[serde(skip)]
    requests: Requests,
    status: Events,
    enable: Events,
    control: Control,
    /// Half periods of the timer that have been accounted for in [`Events::TIMER`].
    half_periods: u64,
    reset_control: ResetControl,
    control_a: ControlA,
    /// When the timer started.
    origin: Nanoseconds,
}

impl Power {
    /// Switched on now.
    pub fn new(requests: Requests, now: Nanoseconds) -> Self {
        Self {
            requests,
            status: Events::empty(),
            enable: Events::empty(),
            control: Control::SCI_ENABLED,
            half_periods: 0,
            reset_control: ResetControl::empty(),
            control_a: ControlA::A20,
            origin: now,
        }
    }

    /// The same, asking for things here.
    #[must_use]
    pub fn with_requests(self, requests: &Requests) -> Self {
        Self { requests: requests.clone(), ..self }
    }

    /// The power button is pushed.
    pub fn press_button(&mut self) {
        self.status |= Events::POWER_BUTTON;
    }

    /// The level of the system control interrupt.
    #[inline]
    pub fn interrupts(&self) -> bool {
        self.status.intersects(self.enable)
    }

    /// When the timer's highest bit changes, if the guest has asked for that.
    #[inline]
    pub fn next_deadline(&self) -> Nanoseconds {
        let wanted = self.enable.contains(Events::TIMER) && !self.status.contains(Events::TIMER);
        if wanted {
            let ticks = (self.half_periods + 1).saturating_mul(HALF_PERIOD);
            self.origin.after(TIMER_FREQUENCY.time_of(ticks))
        } else {
            Nanoseconds::NEVER
        }
    }

    /// Time has passed.
    pub fn advance(&mut self, now: Nanoseconds) {
        let half_periods = self.ticks(now) / HALF_PERIOD;
        if half_periods != self.half_periods {
            self.half_periods = half_periods;
            self.status |= Events::TIMER;
        }
    }

    /// `in` from the block.
    pub fn read(&mut self, at: u16, size: Size, clock: &dyn Clock) -> u32 {
        if at >= offset::TIMER {
            let ticks = self.ticks(clock.now()) as u32;
            return ticks >> (8 * u32::from(at - offset::TIMER).min(3));
        }
        self.advance(clock.now());
        let control = u64::from(self.control.bits());
        let enable = u64::from(self.enable.bits());
        let all = control << 32 | enable << 16 | u64::from(self.status.bits());
        (all >> (8 * at) & size.mask()) as u32
    }

    /// `out` to the block; bytes and wider accesses that cover several registers are fine.
    pub fn write(&mut self, at: u16, size: Size, value: u32, clock: &dyn Clock) {
        if at >= offset::TIMER {
            return;
        }
        self.advance(clock.now());
        let (value, mask) = (u64::from(value) << (8 * at), size.mask() << (8 * at));
        let part = |at: u16| ((value >> (8 * at)) as u16, (mask >> (8 * at)) as u16);
        let (clear, _) = part(offset::STATUS);
        self.status -= Events::from_bits_truncate(clear);
        let (enable, written) = part(offset::ENABLE);
        let kept = self.enable.bits() & !written;
        self.enable = Events::from_bits_truncate(kept | enable & written);
        let (control, written) = part(offset::CONTROL);
        if written != 0 {
            self.set_control(self.control.bits() & !written | control & written);
        }
    }

    /// `in` from 0xcf9.
    pub fn read_reset_control(&self) -> u8 {
        self.reset_control.bits()
    }

    /// `out` to 0xcf9.
    pub fn write_reset_control(&mut self, value: u8) {
        let value = ResetControl::from_bits_truncate(value);
        if value.contains(ResetControl::RESET) && !self.reset_control.contains(ResetControl::RESET)
        {
            self.requests.make(Request::Reset);
        }
        self.reset_control = value;
    }

    /// `in` from 0x92.
    pub fn read_control_a(&self) -> u8 {
        self.control_a.bits()
    }

    /// `out` to 0x92.
    pub fn write_control_a(&mut self, value: u8) {
        let value = ControlA::from_bits_truncate(value);
        if value.contains(ControlA::RESET) && !self.control_a.contains(ControlA::RESET) {
            self.requests.make(Request::Reset);
        }
        self.control_a = value;
    }

    /// The one sleep state is off; a sleep of any other type does not happen.
    fn set_control(&mut self, value: u16) {
        let value = Control::from_bits_truncate(value);
        let kind = (value & Control::SLEEP_TYPE).bits() >> 10;
        if value.contains(Control::SLEEP) && kind == SLEEP_TYPE_OFF {
            self.requests.make(Request::PowerOff);
        }
        let kept = value - Control::SLEEP - Control::GLOBAL_RELEASE;
        self.control = kept | Control::SCI_ENABLED;
    }

    fn ticks(&self, now: Nanoseconds) -> u64 {
        TIMER_FREQUENCY.ticks_in(now.since(self.origin))
    }
}
