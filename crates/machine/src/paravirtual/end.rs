//! PV EOI: the guest notes the end of an interrupt in its memory instead of leaving to tell the
//! local APIC.
//!
//! When the end of the interrupt in service concerns nobody else (it is edge triggered, and nothing
//! waits to be delivered), the host sets bit 0 of a word of the guest before it runs it. A guest that
//! finds the bit set clears it and is done. When the processor comes out of guest code, the host
//! looks: if the bit is clear, the interrupt has ended; if not, the offer is taken back, so that the
//! guest tells the APIC if something waits by then. Only the processor's own thread and the processor
//! itself use the word, never at the same time.

use serde::{Deserialize, Serialize};

use vm_memory::GuestAddress;

use super::bits::ENABLE;
use crate::interrupts::{Fault, LocalApic};
use crate::memory::Memory;

/// The word must be aligned to 4 bytes: bit 1 of the register is reserved.
const RESERVED: u64 = 2;

/// The bit that stands for an end that may be noted (`KVM_PV_EOI_BIT`).
const MAY_NOTE: u8 = 1;

/// Interrupts of one processor that end in memory.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct DeferredEnd {
    register: u64,
    /// The bit was set before the guest was run.
    offered: bool,
}

impl DeferredEnd {
    /// The register.
    pub fn register(&self) -> u64 {
        self.register
    }

    /// The guest writes the register.
    ///
    /// # Errors
    ///
    /// [`Fault`] for an address that is not aligned.
    pub fn set_register(&mut self, value: u64) -> Result<(), Fault> {
        if value & RESERVED != 0 {
            return Err(Fault);
        }
        *self = Self { register: value, offered: false };
        Ok(())
    }

    /// Before the guest runs.
    #[inline]
    pub fn offer(&mut self, apic: &LocalApic, memory: &dyn Memory) {
        if self.register & ENABLE != 0 && apic.silent_end().is_some() {
            self.offered = memory.swap_byte(self.word(), MAY_NOTE).is_ok();
        }
    }

    /// After the guest has run.
    #[inline]
    pub fn collect(&mut self, apic: &mut LocalApic, memory: &dyn Memory) {
        if std::mem::take(&mut self.offered)
            && memory.swap_byte(self.word(), 0).is_ok_and(|old| old & MAY_NOTE == 0)
        {
            // It was offered because nobody has to be told.
            apic.end_of_interrupt();
        }
    }

    fn word(&self) -> GuestAddress {
        GuestAddress(self.register & !ENABLE)
    }
}
