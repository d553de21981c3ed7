//! User code beside CPUID: a helper executes a copy of its page (user/copies.rs).

use iced_x86::IcedError;
use iced_x86::code_asm::*;

use super::returns::like_a_kernel;
use super::{Machine, check_long, place, selector};

/// The user's code is mapped here, 2 MiB with it.
const WINDOW: u64 = 0x60_0000;

/// Times round the loop, each of two times.
const ROUNDS: u64 = 200;

/// Where the instruction is that the kernel changes in between, `add r14, imm8`.
const CHANGED: u64 = 0x10;

const KERNEL_AGAIN: u64 = place::CODE + 0x800;
const STACK: u64 = place::USER_CODE + 0x8000;

fn enter(a: &mut CodeAssembler) -> Result<(), IcedError> {
    a.mov(r8, ROUNDS)?;
    a.push(i32::from(selector::USER_DATA))?;
    a.push(STACK as i32)?;
    a.push(0x202)?;
    a.push(i32::from(selector::USER_CODE_64))?;
    a.push(WINDOW as i32)?;
    a.iretq()
}

fn user_program(machine: &mut Machine) {
    machine.assemble(64, place::USER_CODE, |a| {
        let mut again = a.create_label();
        a.jmp(place::USER_CODE + CHANGED)?;
        a.nops_with_size(CHANGED as usize - 2)?;
        a.set_label(&mut again)?;
        a.add(r14, 1)?;
        a.mov(eax, 1)?;
        a.cpuid()?;
        a.add(r13, rbx)?;
        a.dec(r8)?;
        a.jne(again)?;
        a.syscall()
    });
}

#[test]
fn code_beside_cpuid_runs_and_may_change() {
    check_long(
        |machine| {
            like_a_kernel(machine);
            let entry = place::PAGES + 0x2000 + 8 * (WINDOW >> 21);
            machine.write_u64(entry, place::USER_CODE | 0x87);
            user_program(machine);
            machine.assemble(64, KERNEL_AGAIN, |a| {
                let mut done = a.create_label();
                a.mov(rsp, place::STACK)?;
                a.dec(r9)?;
                a.js(done)?;
                a.mov(rdi, place::USER_CODE + CHANGED + 3)?;
                a.mov(byte_ptr(rdi), 100)?;
                enter(a)?;
                a.set_label(&mut done)?;
                a.hlt()
            });
        },
        |a| {
            a.mov(r9, 1u64)?;
            a.xor(r13d, r13d)?;
            a.xor(r14d, r14d)?;
            enter(a)
        },
        |machine| {
            let gpr = machine.regs().gpr;
            assert_eq!(gpr[14], ROUNDS + 100 * ROUNDS, "the changed instruction");
            assert_eq!(gpr[13], 2 * ROUNDS * gpr[3], "what CPUID says, each time");
            let statistics = machine.cpu.statistics();
            if machine.cpu.user.is_some() && machine.cpu.arch.group.peers.plan.is_some() {
                assert!(statistics.direct_runs > ROUNDS, "{statistics:?}");
                assert!(statistics.direct_suspensions < 20, "{statistics:?}");
            }
        },
    );
}
