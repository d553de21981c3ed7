//! What Linux can have of a hypervisor that it cannot have of a processor, offered as KVM offers it
//! (Linux, Documentation/virt/kvm/x86: cpuid.rst, msr.rst, hypercalls.rst). CPUID's leaf 0x4000_0001
//! says what is there ([`HYPERVISOR`]); the processor answers it as it is told here.
//!
//! | feature | what it is for | here |
//! | --- | --- | --- |
//! | CLOCKSOURCE, CLOCKSOURCE2, STABLE_BIT | time without an exit | [`MachineClock`] |
//! | STEAL_TIME | time that the host gave to others; who sleeps | [`steal::StealTime`] |
//! | PV_EOI | the end of an interrupt without an exit | [`end::DeferredEnd`] |
//! | PV_UNHALT | spinlocks that sleep: a processor ends another's halt | [`call`] |
//! | PV_TLB_FLUSH | a sleeping processor flushes when it wakes | [`steal::StealTime`] |
//! | PV_SEND_IPI | an interrupt for many with one exit | [`call`] |
//! | PV_SCHED_YIELD | let the processor go first that one waits for | [`call`] |

mod bits;
mod call;
mod clock;
pub mod end;
pub mod steal;
#[cfg(test)]
mod tests;

use std::sync::Mutex;

use locks::Unpoisoned;
use serde::{Deserialize, Serialize};
use vm_memory::GuestAddress;

pub use crate::hypercall::{Answer, Call, Done};
use bits::ENABLE;
pub use bits::msr;
pub(crate) use call::call;
pub use clock::MachineClock;
use end::DeferredEnd;
use steal::StealTime;

use crate::board::Hypervisor;
use crate::interrupts::Fault;
use crate::memory::Memory;
use crate::saved::CounterShift;
use crate::time::Clock;

/// How the guest finds all this, and how it calls.
pub const HYPERVISOR: Hypervisor = Hypervisor {
    leaves: &[
        // The highest leaf, and the signature "KVMKVMKVM".
        (0x4000_0000, [TIMING_LEAF, 0x4b4d_564b, 0x564b_4d56, 0x0000_004d]),
        (0x4000_0001, [FEATURES, 0, 0, 0]),
    ],
    timing_leaf: Some(TIMING_LEAF),
    // RBX, RCX, RDX, RSI (Linux, Documentation/virt/kvm/x86/hypercalls.rst).
    arguments: [3, 1, 2, 6],
    user_answer: NOT_PERMITTED,
};

/// The frequency of the time-stamp counter (VMware's convention, which Linux reads for KVM as well).
const TIMING_LEAF: u32 = 0x4000_0010;

/// `-KVM_EPERM`.
const NOT_PERMITTED: u64 = -1_i64 as u64;

/// CLOCKSOURCE, NOP_IO_DELAY, CLOCKSOURCE2, STEAL_TIME, PV_EOI, PV_UNHALT, PV_TLB_FLUSH, PV_SEND_IPI,
/// PV_SCHED_YIELD, CLOCKSOURCE_STABLE_BIT (Linux, Documentation/virt/kvm/x86/cpuid.rst).
const FEATURES: u32 =
    1 | 1 << 1 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 9 | 1 << 11 | 1 << 13 | 1 << 24;

/// What the paravirtual registers of all vCPUs of a machine work on.
#[derive(Clone, Copy)]
pub(crate) struct Shared<'a> {
    pub clock: &'a dyn Clock,
    pub memory: &'a dyn Memory,
    /// No other lock is taken while this one is held.
    pub machine_clock: &'a Mutex<MachineClock>,
}

/// The paravirtual registers of one vCPU.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Processor {
    system_time: u64,
    tsc_offset: u64,
    /// Time that was stolen.
    pub steal: StealTime,
    /// Interrupts that end in memory.
    pub end: DeferredEnd,
}

impl Processor {
    /// `rdmsr`.
    ///
    /// # Errors
    ///
    /// [`Fault`] where there is no such register.
    pub(crate) fn read(&self, index: u32, shared: Shared<'_>) -> Result<u64, Fault> {
        Ok(match index {
            msr::WALL_CLOCK | msr::WALL_CLOCK_OLD => {
                shared.machine_clock.lock().unpoisoned().wall_clock
            }
            msr::SYSTEM_TIME | msr::SYSTEM_TIME_OLD => self.system_time,
            msr::STEAL_TIME => self.steal.register(),
            msr::END_OF_INTERRUPT => self.end.register(),
            _ => return Err(Fault),
        })
    }

    /// `wrmsr`.
    ///
    /// # Errors
    ///
    /// [`Fault`] where there is no such register, and for reserved bits.
    pub(crate) fn write(
        &mut self,
        index: u32,
        value: u64,
        shared: Shared<'_>,
    ) -> Result<(), Fault> {
        let (clock, memory) = (shared.clock, shared.memory);
        match index {
            msr::WALL_CLOCK | msr::WALL_CLOCK_OLD => {
                shared.machine_clock.lock().unpoisoned().set_wall_clock(value, clock, memory);
            }
            msr::SYSTEM_TIME | msr::SYSTEM_TIME_OLD => {
                self.system_time = value;
                self.write_clock_page(false, shared);
            }
            msr::STEAL_TIME => self.steal.set_register(value, memory)?,
            msr::END_OF_INTERRUPT => self.end.set_register(value)?,
            _ => return Err(Fault),
        }
        Ok(())
    }

    /// The guest has moved its time-stamp counter, or not.
    #[inline]
    pub(crate) fn set_tsc_offset(&mut self, offset: u64, shared: Shared<'_>) {
        if self.tsc_offset != offset {
            self.tsc_offset = offset;
            self.write_clock_page(false, shared);
        }
    }

    /// The same on a host with another time-stamp counter.
    #[must_use]
    pub(crate) fn moved(self, shift: CounterShift) -> Self {
        Self { tsc_offset: self.tsc_offset.wrapping_add(shift.guest), ..self }
    }

    /// Whether the guest has a clock that does not depend on the counter of where it runs.
    pub(crate) fn has_clock(&self) -> bool {
        self.system_time & ENABLE != 0
    }

    /// The machine has stood still until now.
    pub(crate) fn has_been_stopped(&self, shared: Shared<'_>) {
        self.write_clock_page(true, shared);
    }

    fn write_clock_page(&self, stopped: bool, shared: Shared<'_>) {
        if self.has_clock() {
            let at = GuestAddress(self.system_time & !ENABLE);
            let (clock, memory) = (shared.clock, shared.memory);
            let offset = self.tsc_offset;
            shared.machine_clock.lock().unpoisoned().write_page(at, offset, stopped, clock, memory);
        }
    }
}
