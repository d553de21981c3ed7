//! User code that is mapped at many linear addresses at once: one translation serves all of them.

use iced_x86::IcedError;
use iced_x86::code_asm::*;

use super::returns::like_a_kernel;
use super::{Machine, check_long, place, selector};

/// The second 2 MiB are mapped here, and at each multiple of 2 MiB up to [`LAST`].
const FIRST: u64 = 0x60_0000;
const STEP: u64 = 0x20_0000;

/// One window more than the translator remembers for a page (translate/mod.rs).
const WINDOWS: u64 = 13;
const LAST: u64 = FIRST + (WINDOWS - 1) * STEP;

/// Where the constant is that the program adds up, from the start of the window.
const DATUM: u64 = 0x20;
/// And the instruction that the kernel changes: `add r11, imm8`.
const CHANGED: u64 = 0x40;

const KERNEL_AGAIN: u64 = place::CODE + 0x800;
const STACK: u64 = place::USER_CODE + 0x8000;

/// Returns to the window at R12.
fn enter_window(a: &mut CodeAssembler) -> Result<(), IcedError> {
    a.push(i32::from(selector::USER_DATA))?;
    a.push(STACK as i32)?;
    a.push(0x202)?;
    a.push(i32::from(selector::USER_CODE_64))?;
    a.push(r12)?;
    a.iretq()
}

/// Address-dependent things of all kinds. What depends on the window is made independent of it.
fn user_program(machine: &mut Machine) {
    let start = place::USER_CODE;
    machine.assemble(64, start, |a| {
        let (mut on, mut far) = (a.create_label(), a.create_label());
        let (mut datum, mut place) = (a.create_label(), a.create_label());
        a.jmp(on)?;
        a.nops_with_size(DATUM as usize - 2)?;
        a.set_label(&mut datum)?;
        a.dq(&[3])?;
        a.nops_with_size((CHANGED - DATUM - 8) as usize)?;
        a.set_label(&mut on)?;
        a.add(rbp, 1)?;
        a.add(r13, qword_ptr(datum))?;
        a.lea(rax, qword_ptr(place))?;
        a.sub(rax, r12)?;
        a.add(r14, rax)?;
        a.call(far)?;
        a.add(r14, rbx)?;
        a.jmp(start + 0x2100)?;
        a.nops_with_size(0x1000 - 0x40)?;
        a.set_label(&mut far)?;
        a.nop()?;
        a.set_label(&mut place)?;
        a.mov(rbx, qword_ptr(rsp))?;
        a.sub(rbx, r12)?;
        a.ret()
    });
    machine.assemble(64, start + 0x2100, |a| a.syscall());
}

#[test]
fn one_translation_serves_every_address() {
    check_long(
        |machine| {
            like_a_kernel(machine);
            let directory = place::PAGES + 0x2000;
            for window in 0..WINDOWS {
                let entry = directory + 8 * ((FIRST + window * STEP) >> 21);
                machine.write_u64(entry, place::USER_CODE | 0x87);
            }
            user_program(machine);
            machine.assemble(64, KERNEL_AGAIN, |a| {
                let mut more = a.create_label();
                let mut done = a.create_label();
                a.mov(rsp, place::STACK)?;
                a.add(r12, STEP as i32)?;
                a.cmp(r12, LAST as i32)?;
                a.jbe(more)?;
                a.dec(r8)?;
                a.js(done)?;
                // Other code from here on, for every window.
                a.mov(rdi, place::USER_CODE + CHANGED + 3)?;
                a.mov(byte_ptr(rdi), 100)?;
                a.mov(r12, FIRST)?;
                a.set_label(&mut more)?;
                enter_window(a)?;
                a.set_label(&mut done)?;
                a.hlt()
            });
        },
        |a| {
            a.mov(r8, 1u64)?;
            a.xor(ebp, ebp)?;
            a.mov(r12, FIRST)?;
            enter_window(a)
        },
        |machine| {
            let gpr = machine.regs().gpr;
            assert_eq!(gpr[5], WINDOWS + 100 * WINDOWS, "the changed instruction");
            assert_eq!(gpr[13], 2 * WINDOWS * 3, "what was loaded");
            let back = gpr[3];
            assert!(back > CHANGED && back < 0x80, "the return address, {back:#x}");
            let taken = gpr[0];
            assert!((0x1000..0x1100).contains(&taken), "the address taken, {taken:#x}");
            assert_eq!(gpr[14], 2 * WINDOWS * (taken + back), "the addresses");
            if !machine.cpu.arch.config.interpret_only {
                let blocks = machine.cpu.arch.statistics.blocks;
                assert!(blocks < 40, "{blocks} blocks for {WINDOWS} windows");
            }
        },
    );
}
