//! What a debugger reads and writes by linear address (debugger.rs).

use iced_x86::code_asm::*;

use super::{Machine, check_long, place};
use crate::debugger::Unmapped;

/// The second 2 MiB of memory once more, by an entry that has not been used.
const ABOVE: u64 = 1 << 32;
const ENTRY: u64 = place::PAGES + 0x6000;
/// Present, writable, large; neither accessed nor dirty.
const UNUSED: u64 = 0x20_0083;

const IN_ABOVE: u64 = 0x20_0000 + place::DATA;

fn map_above(machine: &mut Machine) {
    machine.write_u64(place::PAGES + 0x1000 + 8 * (ABOVE >> 30), place::PAGES + 0x6003);
    machine.write_u64(ENTRY, UNUSED);
    machine.write_u64(IN_ABOVE, 0x1122_3344_5566_7788);
}

#[test]
fn memory_is_read_and_written_where_it_is_mapped_without_a_trace() {
    check_long(map_above, CodeAssembler::hlt, |machine| {
        let mut bytes = [0; 8];
        let read = machine.cpu.read_linear(ABOVE + place::DATA, &mut bytes);
        assert_eq!((read, u64::from_le_bytes(bytes)), (Ok(()), 0x1122_3344_5566_7788));
        assert_eq!(machine.cpu.write_linear(ABOVE + place::DATA + 4, &[0xaa; 4]), Ok(()));
        assert_eq!(machine.read_u64(IN_ABOVE), 0xaaaa_aaaa_5566_7788);
        assert_eq!(machine.read_u64(ENTRY), UNUSED, "the entry has not been used");
    });
}

#[test]
fn what_is_not_mapped_is_an_error_and_nothing_is_written() {
    check_long(map_above, CodeAssembler::hlt, |machine| {
        let hole = ABOVE + (2 << 20);
        let mut bytes = [1; 8];
        assert_eq!(machine.cpu.read_linear(hole - 4, &mut bytes), Err(Unmapped(hole)));
        assert_eq!(machine.cpu.write_linear(hole - 4, &[0xaa; 8]), Err(Unmapped(hole)));
        assert_eq!((bytes, machine.read_u32(0x40_0000 - 4)), ([1; 8], 0));
        let not_canonical = 1 << 62;
        let read = machine.cpu.read_linear(not_canonical, &mut bytes);
        assert_eq!(read, Err(Unmapped(not_canonical)));
    });
}

#[test]
fn code_that_a_debugger_writes_is_executed() {
    const CALLED: u64 = place::CODE + 0x800;
    let write = |machine: &mut Machine| {
        machine.assemble(64, CALLED, |a| {
            a.mov(eax, 1)?;
            a.ret()
        });
    };
    let program = |a: &mut CodeAssembler| {
        let mut again = a.create_label();
        a.set_label(&mut again)?;
        a.call(CALLED)?;
        a.hlt()?;
        a.jmp(again)
    };
    check_long(write, program, |machine| {
        assert_eq!(machine.regs().gpr[0], 1);
        // The constant of the `mov`.
        assert_eq!(machine.cpu.write_linear(CALLED + 1, &[2]), Ok(()));
        machine.cpu.pending.halted = false;
        machine.run();
        assert_eq!(machine.regs().gpr[0], 2);
    });
}
