//! The clock that Linux reads without leaving the guest: kvmclock.
//!
//! A page of the guest says how to turn the time-stamp counter into nanoseconds. The counter is
//! constant and the same on all processors, and all pages of a machine are computed from one
//! reference, which is taken when the guest first asks. So what one processor reads can never be
//! before what another has read, and pages are written once, unless the guest moves its counter.

use serde::{Deserialize, Serialize};

use vm_memory::GuestAddress;

use crate::memory::Memory;
use crate::saved::CounterShift;
use crate::time::{Clock, Hertz, Nanoseconds};

/// `PVCLOCK_TSC_STABLE_BIT`: all processors' pages agree.
const STABLE: u8 = 1;

/// `PVCLOCK_GUEST_STOPPED`: the machine has stood still, which is not the guest's fault. The guest clears
/// it when it has seen it.
const STOPPED: u8 = 2;

/// Bytes of `struct pvclock_vcpu_time_info`.
const TIME_INFO_BYTES: usize = 32;

/// A reading of the time-stamp counter and the guest's time then, and the counter's pace.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Reference {
    tsc: u64,
    time: Nanoseconds,
    frequency: Hertz,
}

/// The clock of a machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MachineClock {
    /// When guest time started.
    origin: Nanoseconds,
    reference: Option<Reference>,
    /// The register, which all processors share.
    pub wall_clock: u64,
}

impl MachineClock {
    /// Guest time starts now.
    pub fn new(now: Nanoseconds) -> Self {
        Self { origin: now, reference: None, wall_clock: 0 }
    }

    /// The same on a host with another time-stamp counter.
    #[must_use]
    pub fn moved(self, shift: CounterShift) -> Self {
        let moved = |reference: Reference| Reference {
            tsc: reference.tsc.wrapping_sub(shift.host),
            ..reference
        };
        Self { reference: self.reference.map(moved), ..self }
    }

    /// `struct pvclock_wall_clock`: version, seconds, nanoseconds at guest time zero. An address at
    /// which there is no memory is remembered and nothing is written, as in KVM.
    pub fn set_wall_clock(&mut self, value: u64, clock: &dyn Clock, memory: &dyn Memory) {
        self.wall_clock = value;
        let since_origin = clock.now().since(self.origin).0;
        let origin = clock.wall().saturating_sub(std::time::Duration::from_nanos(since_origin));
        let mut body = [0; 8];
        body[..4].copy_from_slice(&(origin.as_secs() as u32).to_le_bytes());
        body[4..].copy_from_slice(&origin.subsec_nanos().to_le_bytes());
        publish(GuestAddress(value), &body, memory);
    }

    /// `struct pvclock_vcpu_time_info` of a processor whose time-stamp counter is `tsc_offset` ahead
    /// of the host's. `stopped` says that the machine has stood still.
    pub fn write_page(
        &mut self,
        at: GuestAddress,
        tsc_offset: u64,
        stopped: bool,
        clock: &dyn Clock,
        memory: &dyn Memory,
    ) {
        let origin = self.origin;
        let Reference { tsc, time, frequency } = *self.reference.get_or_insert_with(|| Reference {
            tsc: clock.tsc(),
            time: Nanoseconds(clock.now().since(origin).0),
            frequency: clock.tsc_frequency(),
        });
        let (multiplier, shift) = scale(frequency);
        let mut body = [0; TIME_INFO_BYTES - 4];
        body[4..12].copy_from_slice(&tsc.wrapping_add(tsc_offset).to_le_bytes());
        body[12..20].copy_from_slice(&time.0.to_le_bytes());
        body[20..24].copy_from_slice(&multiplier.to_le_bytes());
        body[24] = shift as u8;
        body[25] = if stopped { STABLE | STOPPED } else { STABLE };
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
pub(super) fn scale(tsc: Hertz) -> (u32, i8) {
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
