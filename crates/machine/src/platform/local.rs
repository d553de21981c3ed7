//! The part of the PC that belongs to one vCPU.

use crate::interrupts::LocalApic;
use crate::paravirtual;

/// What belongs to one vCPU alone: its thread holds the lock of this as long as it runs the guest.
pub(super) struct Local {
    pub apic: LocalApic,
    pub paravirtual: paravirtual::Processor,
}
