//! Between the vocabularies of crates that do not know each other.

use boot::{self, Entry};
use cpu::state::Attributes;
use machine::Board;
use machine::layout::{self, Kind};

/// The registers with which the processor enters a kernel.
pub(crate) fn enter(regs: &mut cpu::Registers, entry: &Entry) {
    regs.gpr = entry.gprs;
    regs.rip = entry.rip;
    regs.set_rflags(entry.rflags);
    for (register, segment) in regs.segments.iter_mut().zip(&entry.segments) {
        *register = segment_of(segment);
    }
    regs.ldtr = segment_of(&entry.ldtr);
    regs.tr = segment_of(&entry.tr);
    regs.gdtr = table_of(entry.gdt);
    regs.idtr = table_of(entry.idt);
    regs.cr0 = entry.cr0;
    regs.cr3 = entry.cr3;
    regs.cr4 = entry.cr4;
    regs.efer = entry.efer;
}

fn segment_of(segment: &boot::Segment) -> cpu::Segment {
    cpu::Segment {
        base: segment.base,
        limit: segment.limit,
        selector: segment.selector,
        attributes: Attributes::from_bits_retain(segment.attributes),
    }
}

fn table_of(table: boot::Table) -> cpu::TableRegister {
    cpu::TableRegister { base: table.base, limit: table.limit }
}

/// The memory map as the boot protocols want it.
pub(crate) fn memory_map(bytes: u64) -> Vec<boot::MapEntry> {
    layout::memory_map(bytes)
        .into_iter()
        .map(|range| boot::MapEntry {
            start: range.start.0,
            size: range.size,
            kind: match range.kind {
                Kind::Ram => boot::MapKind::Ram,
                Kind::Reserved => boot::MapKind::Reserved,
                Kind::AcpiTables => boot::MapKind::AcpiTables,
            },
        })
        .collect()
}

/// A board as its processors are told of it.
pub(crate) fn board<B: Board>() -> cpu::Board {
    let hypervisor = B::HYPERVISOR.map(|it| cpu::Hypervisor {
        leaves: it.leaves,
        timing_leaf: it.timing_leaf,
        arguments: it.arguments,
        user_answer: it.user_answer,
    });
    cpu::Board { msrs: B::MSRS, hypervisor, paravirtual: B::PARAVIRTUAL }
}
