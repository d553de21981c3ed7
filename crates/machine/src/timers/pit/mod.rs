//! The 8254 interval timer: channel 0 interrupts, channel 1 (memory refresh) only counts, channel
//! 2 has a gate and an output that software sees in system control port B and by which kernels
//! calibrate their faster clocks.

mod bits;
mod channel;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use bits::{Access, CONTROL, ControlB, Mode, REFRESH_NANOSECONDS, ReadBack};
use channel::Channel;

use crate::time::Nanoseconds;

/// The timer with its control port.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pit {
    channels: [Channel; 3],
    speaker: ControlB,
}

impl Default for Pit {
    fn default() -> Self {
        let channels = [Channel::new(true), Channel::new(true), Channel::new(false)];
        Self { channels, speaker: ControlB::empty() }
    }
}

impl Pit {
    /// As a PC's firmware leaves it: channel 0 divides by 65536, which makes 18.2 ticks a second.
    pub fn initialize_as_firmware(&mut self, now: Nanoseconds) {
        const SQUARE_WAVE_OF_BOTH_BYTES: u8 =
            (Mode::SquareWave as u8) << 1 | (Access::Both as u8) << 4;
        self.control(SQUARE_WAVE_OF_BOTH_BYTES, now);
        self.channels[0].write(0, now);
        self.channels[0].write(0, now);
    }

    /// Whether it can be what was saved.
    pub fn makes_sense(&self) -> bool {
        self.channels.iter().all(Channel::makes_sense)
    }

    /// When channel 0 interrupts next.
    #[inline]
    pub fn next_deadline(&self) -> Nanoseconds {
        self.channels[0].deadline()
    }

    /// Whether channel 0 has interrupted since it was last asked.
    pub fn advance(&mut self, now: Nanoseconds) -> bool {
        self.channels[0].expire(now)
    }

    /// `in` from 0x40 to 0x43; the control word cannot be read.
    pub fn read(&mut self, offset: u16, now: Nanoseconds) -> u8 {
        match self.channels.get_mut(usize::from(offset)) {
            Some(channel) => channel.read(now),
            None => 0xff,
        }
    }

    /// `out` to 0x40 to 0x43.
    pub fn write(&mut self, offset: u16, value: u8, now: Nanoseconds) {
        match self.channels.get_mut(usize::from(offset)) {
            Some(channel) => channel.write(value, now),
            None if offset == CONTROL => self.control(value, now),
            None => {}
        }
    }

    /// `in` from 0x61.
    pub fn read_control_b(&self, now: Nanoseconds) -> u8 {
        let mut value = self.speaker;
        value.set(ControlB::GATE, self.channels[2].gate());
        value.set(ControlB::OUTPUT, self.channels[2].output(now));
        value.set(ControlB::REFRESH, (now.0 / REFRESH_NANOSECONDS) & 1 != 0);
        value.bits()
    }

    /// `out` to 0x61.
    pub fn write_control_b(&mut self, value: u8, now: Nanoseconds) {
        let value = ControlB::from_bits_truncate(value);
        self.speaker = value & (ControlB::SPEAKER | ControlB::CHECKS_OFF);
        self.channels[2].set_gate(value.contains(ControlB::GATE), now);
    }

    fn control(&mut self, word: u8, now: Nanoseconds) {
        let Some(channel) = self.channels.get_mut(usize::from(word >> 6)) else {
            return self.read_back(word, now);
        };
        match word >> 4 & 3 {
            0 => channel.latch_count(now),
            1 => channel.set_control(Access::Low, word),
            2 => channel.set_control(Access::High, word),
            _ => channel.set_control(Access::Both, word),
        }
    }

    fn read_back(&mut self, word: u8, now: Nanoseconds) {
        let command = ReadBack::from_bits_truncate(word);
        let chosen = self.channels.iter_mut().enumerate().filter(|(n, _)| word & 2 << n != 0);
        for (_, channel) in chosen {
            if !command.contains(ReadBack::NOT_COUNT) {
                channel.latch_count(now);
            }
            if !command.contains(ReadBack::NOT_STATUS) {
                channel.latch_status(now);
            }
        }
    }
}
