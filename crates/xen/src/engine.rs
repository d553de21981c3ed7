//! What validation of page tables works on: the domain's memory, and the vCPU that makes the call, whose engine
//! hears of changes.

use frames::{Change, Effects, FrameType, Level, Words};
use machine::xen::XenVcpu;
use xen_abi::{Mfn, PAGE_SHIFT};

use crate::domain::Domain;

/// See above.
pub(crate) struct Engine<'a, C = &'a mut dyn XenVcpu> {
    pub(crate) domain: &'a Domain,
    pub(crate) cpu: C,
}

/// A level as the engine counts it.
fn number_of(level: Level) -> u8 {
    match level {
        Level::L1 => 1,
        Level::L2 => 2,
        Level::L3 => 3,
        Level::L4 => 4,
    }
}

/// In place of a vCPU while none has run: nothing has been derived from memory.
pub(crate) struct NotRunning;

impl<C> frames::Memory for Engine<'_, C> {
    fn load(&self, frame: Mfn, index: usize) -> u64 {
        self.domain.memory.load(frame, index)
    }

    fn load_all(&self, frame: Mfn, words: &mut Words) {
        self.domain.memory.load_all(frame, words);
    }

    fn store(&mut self, frame: Mfn, index: usize, value: u64) {
        self.domain.memory.store(frame, index, value);
    }

    fn compare_exchange(
        &mut self,
        frame: Mfn,
        index: usize,
        expected: u64,
        value: u64,
    ) -> Result<(), u64> {
        self.domain.memory.compare_exchange(frame, index, expected, value)
    }

    fn set_physical(&mut self, frame: Mfn, page: u64) {
        self.domain.set_physical(frame, page);
    }
}

impl Effects for Engine<'_> {
    fn revoke(&mut self, frame: Mfn, former: FrameType) {
        if former == FrameType::Writable {
            self.cpu.revoke_writable(frame);
        }
    }

    fn demoted(&mut self, frame: Mfn, former: FrameType) {
        if let Some(level) = Level::of_type(former) {
            self.cpu.table_demoted(frame, number_of(level));
        }
    }

    fn changed(&mut self, change: Change) {
        let Change { table, level, index, old, new } = change;
        self.cpu.entry_changed((table, number_of(level)), index, old.0, new.0);
    }

    fn should_yield(&mut self) -> bool {
        self.cpu.is_kicked()
    }
}

impl Effects for Engine<'_, NotRunning> {
    fn revoke(&mut self, _: Mfn, _: FrameType) {}

    fn should_yield(&mut self) -> bool {
        false
    }
}

impl Domain {
    /// Set a frame's entry of the machine-to-physical table.
    pub(crate) fn set_physical(&self, frame: Mfn, page: u64) {
        let geometry = &self.geometry;
        if frame.0 < geometry.end().0 {
            let at = (geometry.machine_to_physical().address() + frame.0 * 8) >> PAGE_SHIFT;
            self.memory.store(Mfn(at), (frame.0 % 512) as usize, page);
        }
    }
}
