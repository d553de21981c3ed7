//! The clock that Linux reads without leaving the guest: kvmclock (Linux,
//! Documentation/virt/kvm/x86/msr.rst and cpuid.rst).
//!
//! A page of the guest says how to turn the time-stamp counter into nanoseconds. The counter is
//! constant and the same on all processors, so a page is written once, when the guest asks for it.

#[cfg(test)]
mod tests;

use vm_memory::GuestAddress;

use crate::interrupts::Fault;
use crate::memory::Memory;
use crate::time::{Clock, Hertz, Nanoseconds};

/// The model-specific registers.
#[allow(missing_docs)]
pub mod msr {
    pub const WALL_CLOCK_OLD: u32 = 0x11;
    pub const SYSTEM_TIME_OLD: u32 = 0x12;
    pub const WALL_CLOCK: u32 = 0x4b56_4d00;
    pub const SYSTEM_TIME: u32 = 0x4b56_4d01;
}

/// Bit 0 of the system-time register: the page is to be kept up to date.
const ENABLE: u64 = 1;

/// `PVCLOCK_TSC_STABLE_BIT`: all processors' pages agree.
const STABLE: u8 = 1;

/// Bytes of `struct pvclock_vcpu_time_info`.
const TIME_INFO_BYTES: usize = 32;

/// The clock.
#[derive(Debug)]
pub struct ParavirtualClock {
    tsc: Hertz,
    /// When guest time started.
    origin: Nanoseconds,
    wall_clock: u64,
    system_time: Vec<u64>,
}

impl ParavirtualClock {
    /// For so many processors; guest time starts now.
    pub fn new(processors: usize, tsc: Hertz, now: Nanoseconds) -> Self {
        Self { tsc, origin: now, wall_clock: 0, system_time: vec![0; processors] }
    }

    /// As after power-on.
    pub fn reset(&mut self, now: Nanoseconds) {
        *self = Self::new(self.system_time.len(), self.tsc, now);
    }

    /// `rdmsr`.
    ///
    /// # Errors
    ///
    /// [`Fault`] where there is no such register.
    pub fn read(&self, processor: usize, index: u32) -> Result<u64, Fault> {
        match index {
            msr::WALL_CLOCK | msr::WALL_CLOCK_OLD => Ok(self.wall_clock),
            msr::SYSTEM_TIME | msr::SYSTEM_TIME_OLD => {
                self.system_time.get(processor).copied().ok_or(Fault)
            }
            _ => Err(Fault),
        }
    }

    /// `wrmsr`. An address at which there is no memory is remembered and nothing is written, as in
    /// KVM.
    ///
    /// # Errors
    ///
    /// [`Fault`] where there is no such register.
    pub fn write(
        &mut self,
        processor: usize,
        index: u32,
        value: u64,
        clock: &dyn Clock,
        memory: &dyn Memory,
    ) -> Result<(), Fault> {
        match index {
            msr::WALL_CLOCK | msr::WALL_CLOCK_OLD => {
                self.wall_clock = value;
                self.write_wall_clock(GuestAddress(value), clock, memory);
            }
            msr::SYSTEM_TIME | msr::SYSTEM_TIME_OLD => {
                *self.system_time.get_mut(processor).ok_or(Fault)? = value;
                if value & ENABLE != 0 {
                    self.write_system_time(GuestAddress(value & !ENABLE), clock, memory);
                }
            }
            _ => return Err(Fault),
        }
        Ok(())
    }

    /// `struct pvclock_wall_clock`: version, seconds, nanoseconds at guest time zero.
    fn write_wall_clock(&self, at: GuestAddress, clock: &dyn Clock, memory: &dyn Memory) {
        let since_origin = clock.now().since(self.origin).0;
        let origin = clock.wall().saturating_sub(std::time::Duration::from_nanos(since_origin));
        let mut body = [0; 8];
        body[..4].copy_from_slice(&(origin.as_secs() as u32).to_le_bytes());
        body[4..].copy_from_slice(&origin.subsec_nanos().to_le_bytes());
        publish(at, &body, memory);
    }

    fn write_system_time(&self, at: GuestAddress, clock: &dyn Clock, memory: &dyn Memory) {
        let (multiplier, shift) = scale(self.tsc);
        let (tsc, now) = (clock.tsc(), clock.now().since(self.origin).0);
        let mut body = [0; TIME_INFO_BYTES - 4];
        body[4..12].copy_from_slice(&tsc.to_le_bytes());
        body[12..20].copy_from_slice(&now.to_le_bytes());
        body[20..24].copy_from_slice(&multiplier.to_le_bytes());
        body[24] = shift as u8;
        body[25] = STABLE;
        publish(at, &body, memory);
    }
}

/// Write what follows a version so that a reader on another processor notices: the version is odd
/// while the rest changes, and then is not what it was.
fn publish(at: GuestAddress, body: &[u8], memory: &dyn Memory) {
    let mut version = [0; 4];
    if memory.read(at, &mut version).is_err() {
        return;
    }
    let odd = u32::from_le_bytes(version).wrapping_add(1) | 1;
    let write = |offset: u64, bytes: &[u8]| {
        // Nothing to do where memory ends: the guest gave the address.
        let _ = memory.write(GuestAddress(at.0.wrapping_add(offset)), bytes);
    };
    write(0, &odd.to_le_bytes());
    write(4, body);
    write(0, &odd.wrapping_add(1).to_le_bytes());
}

/// The multiplier and shift that turn ticks into nanoseconds:
/// `(ticks << shift) * multiplier >> 32`, with a negative shift to the right.
fn scale(tsc: Hertz) -> (u32, i8) {
    let mut hertz = tsc.0.max(1);
    let mut shift = 0;
    // Bring the frequency into (1e9, 2e9], where the multiplier has all its bits.
    while hertz > 2 * Nanoseconds::SECOND.0 {
        hertz >>= 1;
        shift -= 1;
    }
    while hertz <= Nanoseconds::SECOND.0 {
        hertz <<= 1;
        shift += 1;
    }
    // Undo the rounding of the shifts above: divide by the exact frequency.
    let scaled = u128::from(Nanoseconds::SECOND.0) << 32;
    let exact = if shift < 0 {
        (scaled << -shift) / u128::from(tsc.0)
    } else {
        (scaled >> shift) / u128::from(tsc.0.max(1))
    };
    (u32::try_from(exact).unwrap_or(u32::MAX), shift)
}
