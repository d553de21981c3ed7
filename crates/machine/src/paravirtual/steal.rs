//! Steal time: how long a processor was ready and its thread had no core, and whether it sleeps now.
//!
//! ```text
//! struct kvm_steal_time {      // 64 bytes, aligned to 64
//!     u64 steal;               //  0: nanoseconds
//!     u32 version;             //  8: odd while the rest is being written
//!     u32 flags;               // 12
//!     u8  preempted;           // 16: bit 0: it does not run; bit 1: flush its TLB first
//! };
//! ```
//!
//! `preempted` is exchanged between processors: while bit 0 is set, another one may set bit 1
//! instead of sending an interrupt to a processor that sleeps. A thread that the host has taken the
//! core from cannot say so; only one that sleeps does.

use serde::{Deserialize, Serialize};

use vm_memory::GuestAddress;

use super::bits::ENABLE;
use crate::interrupts::Fault;
use crate::memory::Memory;
use crate::time::Nanoseconds;

/// Bits of the register that must be clear (`KVM_STEAL_RESERVED_MASK`).
const RESERVED: u64 = 0x3e;

/// Where the fields are.
const STEAL: u64 = 0;
const VERSION: u64 = 8;
const PREEMPTED: u64 = 16;

/// `KVM_VCPU_PREEMPTED`.
const DOES_NOT_RUN: u8 = 1 << 0;

/// `KVM_VCPU_FLUSH_TLB`.
const FLUSH_TLB: u8 = 1 << 1;

/// The steal time of one processor.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StealTime {
    register: u64,
    /// What the host had counted when it was last told.
    total: Option<Nanoseconds>,
}

impl StealTime {
    /// Whether the guest wants it.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        self.register & ENABLE != 0
    }

    /// The register.
    pub fn register(&self) -> u64 {
        self.register
    }

    /// The guest writes the register.
    ///
    /// # Errors
    ///
    /// [`Fault`] for reserved bits.
    pub fn set_register(&mut self, value: u64, memory: &dyn Memory) -> Result<(), Fault> {
        if value & RESERVED != 0 {
            return Err(Fault);
        }
        *self = Self { register: value, total: None };
        if self.is_enabled() {
            // Where there is no memory, nothing is written: the guest gave the address.
            let _ = memory.swap_byte(self.field(PREEMPTED), 0);
        }
        Ok(())
    }

    /// The host has counted this much. What passed before the guest asked does not count.
    pub fn set_total(&mut self, total: Nanoseconds, memory: &dyn Memory) {
        if !self.is_enabled() {
            return;
        }
        let stolen = total.since(self.total.replace(total).unwrap_or(total)).0;
        let (mut steal, mut version) = ([0; 8], [0; 4]);
        let read = memory.read(self.field(STEAL), &mut steal).is_ok()
            && memory.read(self.field(VERSION), &mut version).is_ok();
        if stolen == 0 || !read {
            return;
        }
        let odd = u32::from_le_bytes(version) | 1;
        let steal = u64::from_le_bytes(steal).wrapping_add(stolen);
        let _ = memory.write(self.field(VERSION), &odd.to_le_bytes());
        let _ = memory.write(self.field(STEAL), &steal.to_le_bytes());
        let _ = memory.write(self.field(VERSION), &odd.wrapping_add(1).to_le_bytes());
    }

    /// The processor does not run from now on.
    pub fn fall_asleep(&mut self, memory: &dyn Memory) {
        if self.is_enabled() {
            let _ = memory.swap_byte(self.field(PREEMPTED), DOES_NOT_RUN);
        }
    }

    /// It runs again; whether its TLB must be flushed first.
    pub fn wake_up(&mut self, memory: &dyn Memory) -> bool {
        self.is_enabled()
            && memory.swap_byte(self.field(PREEMPTED), 0).is_ok_and(|old| old & FLUSH_TLB != 0)
    }

    fn field(&self, offset: u64) -> GuestAddress {
        GuestAddress((self.register & !(RESERVED | ENABLE)).wrapping_add(offset))
    }
}
