//! What a vCPU knows of the board around it: which model-specific registers are the board's, and what
//! the guest sees of a hypervisor. The vCPU knows none of them by name.

use std::ops::RangeInclusive;

/// IA32_APIC_BASE, which a board has that has local APICs.
const APIC_BASE: u32 = 0x1b;

/// The board around a processor, as its guest sees it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Board {
    /// Model-specific registers whose reads and writes are exits; those that are used most are first.
    pub msrs: &'static [RangeInclusive<u32>],
    /// What the guest sees of a hypervisor. Without, CPUID says that there is none, and a call is an invalid opcode.
    pub hypervisor: Option<Hypervisor>,
    /// The guest's kernel is paravirtual, by Xen's interface.
    pub paravirtual: bool,
}

/// What the guest sees of a hypervisor.
#[derive(Debug, Clone, Copy)]
pub struct Hypervisor {
    /// CPUID's leaves from 0x4000_0000 to 0x4000_00ff with EAX, EBX, ECX and EDX; the others there read zero.
    pub leaves: &'static [(u32, [u32; 4])],
    /// The leaf whose EAX is the frequency of the time-stamp counter in kHz.
    pub timing_leaf: Option<u32>,
    /// The registers of the arguments of `vmcall` and `vmmcall`, by their numbers (0 is RAX). The number of the
    /// call and its answer are in RAX.
    pub arguments: [u8; 4],
    /// What a call from CPL 3 gets; one from CPL 0 is an exit, and the board decides what an unknown one gets.
    pub user_answer: u64,
}

impl Board {
    /// Whether a model-specific register is the board's.
    #[inline]
    pub(crate) fn has_msr(&self, index: u32) -> bool {
        self.msrs.iter().any(|range| range.contains(&index))
    }

    /// Whether processors have local APICs.
    pub(crate) fn has_apic(&self) -> bool {
        self.has_msr(APIC_BASE)
    }
}

impl Hypervisor {
    /// What CPUID answers for one of the hypervisor's leaves.
    pub(crate) fn leaf(&self, leaf: u32, tsc_khz: u32) -> [u32; 4] {
        if self.timing_leaf == Some(leaf) {
            return [tsc_khz, 0, 0, 0];
        }
        let found = self.leaves.iter().find(|(number, _)| *number == leaf);
        found.map_or([0; 4], |(_, answer)| *answer)
    }
}

/// A PC with KVM's interface, for tests of what a board and a hypervisor take part in.
#[cfg(test)]
pub(crate) const TEST_PC: Board = Board {
    msrs: &[0x800..=0x8ff, 0x6e0..=0x6e0, APIC_BASE..=APIC_BASE],
    hypervisor: Some(Hypervisor {
        leaves: &[(0x4000_0000, [0x4000_0010, 0x4b4d_564b, 0x564b_4d56, 0x4d])],
        timing_leaf: Some(0x4000_0010),
        arguments: [3, 1, 2, 6],
        user_answer: -1_i64 as u64,
    }),
    paravirtual: false,
};
