//! What a vCPU tells its history, and the tracer if there is one ([`crate::inspect`]).

use crate::history::Happened;
use crate::inspect::{Traced, read_physical};
use crate::vcpu::Vcpu;

impl Vcpu {
    /// Note an event, for the history and for the tracer.
    #[inline]
    pub(crate) fn note(&mut self, happened: Happened) {
        self.history.note(happened);
        if self.is_traced() {
            self.trace(happened);
        }
    }

    /// A block is about to be entered.
    #[inline]
    pub(crate) fn note_block(&mut self) {
        if self.is_traced() {
            self.trace(Happened::Block { rip: self.arch.context.regs.rip });
        }
    }

    /// An instruction is about to be interpreted; not one that has only been waiting for an answer.
    #[inline]
    pub(crate) fn note_interpreted(&mut self) {
        if self.is_traced() && !self.arch.replay.has_question() {
            self.trace(Happened::Interpreted { rip: self.arch.context.regs.rip });
        }
    }

    /// Whether there is a tracer, which follows every block.
    #[inline]
    pub(crate) fn is_traced(&self) -> bool {
        self.tracer.is_some()
    }

    #[cold]
    fn trace(&mut self, happened: Happened) {
        let Some(tracer) = self.tracer.take() else { return };
        let arch = &self.arch;
        let seen =
            Traced { number: arch.vcpu_index, registers: &arch.context.regs, ram: &arch.ram };
        if tracer.trace(&seen, &happened) {
            self.tracer = Some(tracer);
        }
    }

    /// The index of this vCPU in its group.
    pub fn number(&self) -> usize {
        self.arch.vcpu_index
    }

    /// Guest-physical memory, as much of `bytes` as lies in RAM; the rest is left alone.
    pub fn read_physical(&self, at: u64, bytes: &mut [u8]) {
        read_physical(&self.arch.ram, at, bytes);
    }
}
