//! Real-address mode, 16-bit and 32-bit protected mode, and the way from reset to long mode.

use iced_x86::code_asm::*;

use super::{Machine, place, protected_mode, real_mode, segment, selector};
use crate::state::{self, CodeSize, SegmentRegister, efer, rflags};

#[test]
fn real_mode_interrupts_go_through_the_vector_table() {
    let mut machine = real_mode();
    machine.write(place::IVT + 4 * 0x21, &[0x00, 0x01, 0x00, 0x30]);
    machine.assemble(16, 0x3_0100, |a| {
        a.mov(bx, 0x1234)?;
        a.iret()
    });
    machine.assemble(16, place::CODE, |a| {
        a.int(0x21)?;
        a.add(bx, 1)?;
        a.push(bx)?;
        a.pop(cx)?;
        a.hlt()
    });
    machine.run();
    let regs = *machine.regs();
    assert_eq!((regs.gpr[3], regs.gpr[1]), (0x1235, 0x1235));
    assert_eq!(regs.gpr[4], 0xfffe);
}

#[test]
fn real_mode_addresses_are_paragraphs_with_sixteen_bit_offsets() {
    let mut machine = real_mode();
    machine.write(place::DATA + 0x12, &[0xcd, 0xab]);
    machine.assemble(16, place::CODE, |a| {
        a.mov(ax, 0x5000)?;
        a.mov(ds, ax)?;
        a.mov(bx, 0xfff0)?;
        a.mov(si, 0x22)?;
        a.mov(ax, word_ptr(bx + si))?;
        a.lea(dx, word_ptr(bx + si + 1))?;
        a.hlt()
    });
    machine.run();
    assert_eq!((machine.regs().gpr[0], machine.regs().gpr[2]), (0xabcd, 0x13));
}

/// The whole way: real mode, protected mode, PAE, long mode.
#[test]
fn from_real_mode_to_long_mode() {
    let mut machine = real_mode();
    machine.write_u64(place::PAGES, place::PAGES + 0x1003);
    machine.write_u64(place::PAGES + 0x1000, place::PAGES + 0x2003);
    machine.write_u64(place::PAGES + 0x2000, 0x83);
    let table = [(8 * 14 - 1) as u8, 0, 0x00, 0x00, 0x02, 0x00];
    machine.write(place::CODE + 0x800, &table);
    machine.assemble(16, place::CODE, |a| {
        a.mov(ax, cs)?;
        a.mov(ds, ax)?;
        a.lgdt(fword_ptr(0x800))?;
        a.mov(eax, cr0)?;
        a.or(al, 1)?;
        a.mov(cr0, eax)?;
        // jmp dword 0x40:0x40100
        a.db(&[0x66, 0xea, 0x00, 0x01, 0x04, 0x00, 0x40, 0x00])
    });
    machine.assemble(32, place::CODE + 0x100, |a| {
        a.mov(eax, u32::from(selector::DATA))?;
        a.mov(ss, eax)?;
        a.mov(esp, place::STACK as u32)?;
        a.mov(eax, cr4)?;
        a.or(eax, 0x20)?;
        a.mov(cr4, eax)?;
        a.mov(eax, place::PAGES as u32)?;
        a.mov(cr3, eax)?;
        a.mov(ecx, 0xc000_0080u32)?;
        a.rdmsr()?;
        a.or(eax, 0x100)?;
        a.wrmsr()?;
        a.mov(eax, cr0)?;
        a.or(eax, 0x8000_0000u32)?;
        a.mov(cr0, eax)?;
        // jmp 0x08:0x40200
        a.db(&[0xea, 0x00, 0x02, 0x04, 0x00, 0x08, 0x00])
    });
    machine.assemble(64, place::CODE + 0x200, |a| {
        a.mov(rbx, 0x1122_3344_5566_7788u64)?;
        a.push(rbx)?;
        a.hlt()
    });
    machine.run();
    let regs = *machine.regs();
    assert_eq!(regs.code_size(), CodeSize::Bits64);
    assert_ne!(regs.efer & efer::LMA, 0);
    assert_eq!(regs.gpr[3], 0x1122_3344_5566_7788);
    assert_eq!(machine.read_u64(place::STACK - 8), 0x1122_3344_5566_7788);
}

/// A program at CPL 3 in 32-bit protected mode.
fn enter_user(machine: &mut Machine) {
    let regs = machine.regs();
    regs.cpl = 3;
    regs.segments.fill(segment(selector::USER_DATA));
    *regs.segment_mut(SegmentRegister::Cs) = segment(selector::USER_CODE_32);
    for which in [SegmentRegister::Ds, SegmentRegister::Es, SegmentRegister::Ss] {
        *regs.segment_mut(which) = segment(selector::USER_DATA);
    }
}

#[test]
fn protected_mode_interrupts_switch_stacks() {
    let mut machine = protected_mode();
    machine.protected_gate(0x80, selector::CODE_32, place::HANDLERS, 0xee);
    machine.assemble(32, place::HANDLERS, |a| {
        a.mov(eax, dword_ptr(esp + 12))?;
        a.mov(edx, ss)?;
        a.hlt()
    });
    machine.assemble(32, place::CODE, |a| a.int(0x80));
    enter_user(&mut machine);
    machine.run();
    let regs = *machine.regs();
    assert_eq!(regs.cpl, 0);
    assert_eq!(regs.gpr[0], place::STACK);
    assert_eq!(regs.gpr[2], u64::from(selector::DATA));
    assert_eq!(regs.gpr[4], place::INNER_STACK - 20);
    assert_eq!(u64::from(machine.read_u32(place::INNER_STACK - 20)), place::CODE + 2);
    assert_eq!(machine.read_u32(place::INNER_STACK - 16), u32::from(selector::USER_CODE_32));
}

#[test]
fn call_gates_lead_inward_and_far_returns_outward() {
    let mut machine = protected_mode();
    machine.assemble(32, place::HANDLERS, |a| {
        a.mov(ebx, cs)?;
        a.retf()
    });
    machine.protected_gate(13, selector::CODE_32, place::HANDLERS + 0x100, 0x8e);
    machine.assemble(32, place::HANDLERS + 0x100, |a| a.hlt());
    machine.assemble(32, place::CODE, |a| {
        a.db(&[0x9a, 0, 0, 0, 0, selector::CALL_GATE as u8 | 3, 0])?;
        a.mov(ecx, cs)?;
        a.hlt()
    });
    enter_user(&mut machine);
    machine.run();
    let regs = *machine.regs();
    assert_eq!(regs.gpr[3], u64::from(selector::CODE_32));
    assert_eq!(regs.gpr[1], u64::from(selector::USER_CODE_32));
    // `hlt` at CPL 3 is #GP: on the inner stack, with the outer one under it.
    assert_eq!(machine.read_u32(place::INNER_STACK - 8), place::STACK as u32);
}

#[test]
fn limits_are_checked() {
    let mut machine = protected_mode();
    machine.protected_gate(13, selector::CODE_32, place::HANDLERS, 0x8e);
    machine.assemble(32, place::HANDLERS, |a| a.hlt());
    machine.assemble(32, place::CODE, |a| {
        a.mov(eax, u32::from(selector::DATA_16))?;
        a.mov(es, eax)?;
        a.mov(ecx, dword_ptr(0xfffc).es())?;
        a.mov(ecx, dword_ptr(0xfffd).es())?;
        a.ud2()
    });
    machine.run();
    let regs = *machine.regs();
    assert_eq!(machine.read_u32(regs.gpr[4]), 0);
    assert_eq!(u64::from(machine.read_u32(regs.gpr[4] + 4)), place::CODE + 14);
}

#[test]
fn tasks_switch_and_return() {
    let mut machine = protected_mode();
    let second = place::TSS + 0x800;
    let fields: [(u64, u32); 6] = [
        (32, place::CODE as u32 + 0x400),
        (36, 2),
        (56, place::IST_STACK as u32),
        (76, u32::from(selector::CODE_32)),
        (80, u32::from(selector::DATA)),
        (84, u32::from(selector::DATA)),
    ];
    for (offset, value) in fields {
        machine.write(second + offset, &value.to_le_bytes());
    }
    machine.assemble(32, place::CODE + 0x400, |a| {
        a.mov(dword_ptr(place::DATA as u32), esp)?;
        a.pushfd()?;
        a.pop(dword_ptr(place::DATA as u32 + 4))?;
        a.iretd()
    });
    machine.assemble(32, place::CODE, |a| {
        a.mov(ebx, 77)?;
        a.db(&[0x9a, 0, 0, 0, 0, selector::SECOND_TSS as u8, 0])?;
        a.inc(ebx)?;
        a.hlt()
    });
    let busy = place::GDT + u64::from(selector::TSS) + 5;
    machine.write(busy, &[0x8b]);
    machine.run();
    let regs = *machine.regs();
    assert_eq!(regs.gpr[3], 78);
    assert_eq!(regs.tr.selector, selector::TSS);
    assert_ne!(regs.cr0 & state::cr0::TS, 0);
    assert_eq!(machine.read_u32(place::DATA), place::IST_STACK as u32);
    assert_ne!(u64::from(machine.read_u32(place::DATA + 4)) & rflags::NT, 0);
    let descriptor = place::GDT + u64::from(selector::SECOND_TSS) + 5;
    assert_eq!(machine.read::<1>(descriptor)[0], 0x89);
}

#[test]
fn decimal_arithmetic() {
    let mut machine = protected_mode();
    machine.assemble(32, place::CODE, |a| {
        a.mov(al, 0x79)?;
        a.add(al, 0x35)?;
        a.daa()?;
        a.mov(bl, al)?;
        a.mov(ax, 0x0035)?;
        a.aam(10)?;
        a.mov(cx, ax)?;
        a.mov(ax, 0x0205)?;
        a.aad(10)?;
        a.mov(dl, al)?;
        a.mov(ax, 0x000b)?;
        a.aaa()?;
        a.hlt()
    });
    machine.run();
    let gpr = machine.regs().gpr;
    assert_eq!(gpr[3] & 0xff, 0x14);
    assert_eq!(gpr[1] & 0xffff, 0x0503);
    assert_eq!(gpr[2] & 0xff, 25);
    assert_eq!(gpr[0] & 0xffff, 0x0101);
}

#[test]
fn all_registers_are_pushed_and_popped() {
    let mut machine = protected_mode();
    machine.assemble(32, place::CODE, |a| {
        a.mov(eax, 1)?;
        a.mov(edi, 7)?;
        a.pushad()?;
        a.xor(eax, eax)?;
        a.xor(edi, edi)?;
        a.popad()?;
        a.inc(eax)?;
        a.hlt()
    });
    machine.run();
    let gpr = machine.regs().gpr;
    assert_eq!((gpr[0], gpr[7], gpr[4]), (2, 7, place::STACK));
    assert_eq!(u64::from(machine.read_u32(place::STACK - 20)), place::STACK);
}

#[test]
fn virtual_8086_mode_and_back() {
    let mut machine = protected_mode();
    machine.protected_gate(13, selector::CODE_32, place::HANDLERS, 0x8e);
    machine.assemble(32, place::HANDLERS, |a| a.hlt());
    machine.assemble(16, place::DATA, |a| {
        a.mov(bx, cs)?;
        a.cli()
    });
    machine.assemble(32, place::CODE, |a| {
        for selector in [0, 0, 0x5000, 0x5000] {
            a.push(selector)?;
        }
        a.push(0x5000)?;
        a.push(0xff00)?;
        a.push(0x2_0002)?;
        a.push(0x5000)?;
        a.push(0)?;
        a.iretd()
    });
    machine.run();
    let regs = *machine.regs();
    assert_eq!(regs.gpr[3], 0x5000);
    assert_eq!(regs.rflags() & rflags::VM, 0);
    // Error code, EIP, CS, EFLAGS, ESP, SS, ES, DS, FS, GS.
    let frame = place::INNER_STACK - 40;
    assert_eq!(regs.gpr[4], frame);
    assert_eq!(machine.read_u32(frame + 4), 2);
    assert_eq!(machine.read_u32(frame + 12) & 0x2_0000, 0x2_0000);
    assert_eq!(machine.read_u32(frame + 28), 0x5000);
}
