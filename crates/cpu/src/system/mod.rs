//! The system side of the processor: control, debug and model-specific registers, descriptors,
//! event delivery, task switches, identification (SDM 3A, 4).
//!
//! Everything here happens rarely, one instruction or one event at a time, and is written to be
//! checked against the manual.

mod control;
pub(crate) mod cpuid;
mod debug;
mod deliver;
pub(crate) mod descriptor;
mod msr;
mod segment;
mod task;

pub(crate) use deliver::{Event, Source};
pub(crate) use segment::{flat, null_segment};
pub(crate) use task::Cause;

use std::collections::BTreeMap;

use crate::config::Config;
use crate::state::Registers;
use cpuid::Identity;
use serde::{Deserialize, Serialize};

/// The part of a processor's saved state that [`SystemState`] has.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SavedSystem {
    /// Model-specific registers that are plain storage.
    pub(crate) msrs: BTreeMap<u32, u64>,
    pub(crate) tsc_adjust: u64,
    pub(crate) hits: u64,
    pub(crate) deferred: bool,
    pub(crate) repeating: bool,
}

/// State of the system side that is not in [`crate::Registers`].
#[derive(Debug)]
pub(crate) struct SystemState {
    identity: Identity,
    msrs: msr::Storage,
    debug: debug::DebugState,
    /// The current instruction is a repeated one that has more to do.
    repeating: bool,
    /// The current instruction was a return by a hypervisor, whose flags are those of the next one.
    returned: bool,
}

impl SystemState {
    /// State after RESET of a processor that can carry these components of extended state.
    pub(crate) fn new(config: &Config, components: u64) -> Self {
        Self {
            identity: Identity::new(config, components),
            msrs: msr::Storage::default(),
            debug: debug::DebugState::default(),
            repeating: false,
            returned: false,
        }
    }

    /// Back to the state after RESET.
    pub(crate) fn reset(&mut self) {
        self.msrs = msr::Storage::default();
        self.debug = debug::DebugState::default();
        self.repeating = false;
    }

    /// What a processor that goes on from here has to know.
    pub(crate) fn save(&self) -> SavedSystem {
        let (msrs, tsc_adjust) = self.msrs.save();
        let (hits, deferred) = self.debug.save();
        SavedSystem { msrs, tsc_adjust, hits, deferred, repeating: self.repeating }
    }

    /// Go on from there.
    pub(crate) fn restore(&mut self, saved: SavedSystem) {
        self.msrs = msr::Storage::restored(saved.msrs, saved.tsc_adjust);
        self.debug = debug::DebugState::restored(saved.hits, saved.deferred);
        self.repeating = saved.repeating;
    }

    /// An instruction begins: forget what the last one left behind.
    pub(crate) fn begin_instruction(&mut self) {
        self.repeating = false;
        self.returned = false;
        self.debug.begin_instruction();
    }

    /// Hold debug traps back until after the next instruction (SDM 3A 6.8.3).
    pub(crate) fn defer_debug_traps(&mut self) {
        self.debug.defer();
    }

    /// The current instruction was interrupted while another thread had its turn.
    pub(crate) fn set_repeating(&mut self) {
        self.repeating = true;
    }

    /// Whether the current instruction has more to do.
    pub(crate) fn repeating(&self) -> bool {
        self.repeating
    }

    /// The current instruction has had the effect of an `iret`.
    pub(crate) fn set_returned(&mut self) {
        self.returned = true;
    }

    /// Whether it has.
    pub(crate) fn has_returned(&self) -> bool {
        self.returned
    }

    /// What CPUID answers.
    pub(crate) fn cpuid(&self, leaf: u32, subleaf: u32, regs: &Registers) -> [u32; 4] {
        self.identity.answer(leaf, subleaf, regs, self.msrs.has_apic())
    }

    /// Whether the announced vendor is AMD (or Hygon).
    pub(crate) fn is_amd(&self) -> bool {
        self.identity.is_amd()
    }

    /// Components of extended state that XCR0 may have.
    pub(crate) fn components(&self) -> u64 {
        self.identity.components()
    }
}
