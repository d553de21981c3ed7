//! Exceptions, interrupts, privilege changes, single-stepping and breakpoints.

use iced_x86::code_asm::*;

use super::{check_long, long_mode, place, selector};
use crate::exit::Exit;
use crate::state::rflags;

fn nothing(_: &mut super::Machine) {}

#[test]
fn faults_push_their_frame_and_error_code() {
    check_long(
        nothing,
        |a| {
            a.xor(ecx, ecx)?;
            a.mov(ax, 0x77)?;
            a.mov(ds, ax)?;
            a.hlt()
        },
        |machine| {
            assert_eq!(machine.read::<1>(place::DATA)[0], 13);
            assert_eq!(machine.read_u64(place::DATA + 8), 0x74);
            let frame = machine.regs().gpr[4];
            assert_eq!(machine.read_u64(frame), place::CODE + 6);
            assert_eq!(machine.read_u64(frame + 8), u64::from(selector::CODE_64));
            assert_eq!(machine.read_u64(frame + 24), place::STACK);
            assert_ne!(machine.read_u64(frame + 16) & rflags::RF, 0);
        },
    );
}

#[test]
fn division_errors_come_from_the_host() {
    check_long(
        nothing,
        |a| {
            a.xor(ecx, ecx)?;
            a.div(ecx)?;
            a.hlt()
        },
        |machine| {
            assert_eq!(machine.read::<1>(place::DATA)[0], 0);
            let frame = machine.regs().gpr[4];
            assert_eq!(machine.read_u64(frame), place::CODE + 2);
        },
    );
}

#[test]
fn interrupt_stacks_are_used() {
    check_long(
        |machine| machine.long_gate(3, place::HANDLERS + 3 * 64, 0, 1),
        |a| {
            a.int3()?;
            a.hlt()
        },
        |machine| {
            assert_eq!(machine.read::<1>(place::DATA)[0], 3);
            assert_eq!(machine.regs().gpr[4], place::IST_STACK - 40);
        },
    );
}

/// `iretq` to user mode, `syscall` back.
#[test]
fn user_mode_and_back_by_system_call() {
    check_long(
        |machine| {
            let regs = machine.regs();
            regs.star =
                u64::from(selector::CODE_64) << 32 | u64::from(selector::USER_CODE_32) << 48;
            regs.lstar = place::CODE + 0x100;
            regs.sfmask = rflags::IF | rflags::TF;
            machine.assemble(64, place::CODE + 0x100, |a| {
                a.mov(rbx, rcx)?;
                a.mov(ebp, cs)?;
                a.hlt()
            });
            machine.assemble(64, place::USER_CODE, |a| {
                a.mov(edx, cs)?;
                a.syscall()
            });
        },
        |a| {
            a.push(i32::from(selector::USER_DATA))?;
            a.push(0x30_0000)?;
            a.push(0x202)?;
            a.push(i32::from(selector::USER_CODE_64))?;
            a.push(place::USER_CODE as i32)?;
            a.iretq()
        },
        |machine| {
            let regs = *machine.regs();
            assert_eq!(regs.cpl, 0);
            assert_eq!(regs.gpr[2], u64::from(selector::USER_CODE_64));
            assert_eq!(regs.gpr[3], place::USER_CODE + 4);
            assert_eq!(regs.gpr[5], u64::from(selector::CODE_64));
            assert_eq!(regs.gpr[11] & rflags::IF, rflags::IF);
            assert_eq!(regs.interrupt_flag, 0);
        },
    );
}

#[test]
fn user_mode_may_not_do_what_kernels_do() {
    check_long(
        |machine| machine.assemble(64, place::USER_CODE, |a| a.cli()),
        |a| {
            a.push(i32::from(selector::USER_DATA))?;
            a.push(0x30_0000)?;
            a.push(0x202)?;
            a.push(i32::from(selector::USER_CODE_64))?;
            a.push(place::USER_CODE as i32)?;
            a.iretq()
        },
        |machine| {
            assert_eq!(machine.read::<1>(place::DATA)[0], 13);
            // On the stack that the TSS has for CPL 0, under SS, RSP, RFLAGS, CS and RIP.
            assert_eq!(machine.regs().gpr[4], place::INNER_STACK - 40);
            assert_eq!(machine.read_u64(place::INNER_STACK - 40), place::USER_CODE);
            assert_eq!(machine.read_u64(place::INNER_STACK - 16), 0x30_0000);
        },
    );
}

#[test]
fn user_mode_may_not_touch_supervisor_pages() {
    check_long(
        |machine| {
            machine.assemble(64, place::USER_CODE, |a| a.mov(rax, qword_ptr(place::DATA)));
        },
        |a| {
            a.push(i32::from(selector::USER_DATA))?;
            a.push(0x30_0000)?;
            a.push(0x202)?;
            a.push(i32::from(selector::USER_CODE_64))?;
            a.push(place::USER_CODE as i32)?;
            a.iretq()
        },
        |machine| {
            assert_eq!(machine.read::<1>(place::DATA)[0], 14);
            assert_eq!(machine.read_u64(place::DATA + 8), 5);
            assert_eq!(machine.regs().cr2, place::DATA);
        },
    );
}

#[test]
fn three_faults_shut_the_processor_down() {
    for interpret_only in [true, false] {
        let mut machine = long_mode(interpret_only);
        machine.regs().idtr.limit = 0;
        machine.assemble(64, place::CODE, |a| a.ud2());
        assert_eq!(machine.exit(), Exit::Shutdown);
    }
}

#[test]
fn two_contributory_faults_make_a_double_fault() {
    check_long(
        // The handler of #GP is not present: #NP while delivering #GP.
        |machine| machine.write_u64(place::IDT + 16 * 13, 0x0000_0e00_0008_0000),
        |a| {
            a.mov(ax, 0x77)?;
            a.mov(ds, ax)?;
            a.hlt()
        },
        |machine| {
            assert_eq!(machine.read::<1>(place::DATA)[0], 8);
            assert_eq!(machine.read_u64(place::DATA + 8), 0);
        },
    );
}

#[test]
fn single_steps_trap_after_each_instruction() {
    check_long(
        |machine| {
            machine.long_gate(1, place::CODE + 0x200, 0, 0);
            machine.assemble(64, place::CODE + 0x200, |a| {
                a.inc(r15)?;
                a.mov(r14, qword_ptr(rsp))?;
                a.iretq()
            });
        },
        |a| {
            a.pushfq()?;
            a.or(dword_ptr(rsp), 0x100)?;
            a.popfq()?;
            a.nop()?;
            a.mov(eax, 1)?;
            a.mov(ecx, ss)?;
            a.mov(ss, ecx)?;
            a.nop()?;
            a.pushfq()?;
            a.and(dword_ptr(rsp), !0x100)?;
            a.popfq()?;
            a.nop()?;
            a.hlt()
        },
        |machine| {
            let regs = *machine.regs();
            // nop, mov, mov, (mov ss has none), nop, pushfq, and, popfq.
            assert_eq!(regs.gpr[15], 7);
            assert_eq!(regs.dr[6] & 0x4000, 0x4000);
        },
    );
}

#[test]
fn data_breakpoints_trap_after_the_access() {
    check_long(
        |machine| {
            let regs = machine.regs();
            regs.dr[0] = place::DATA + 0x100;
            regs.dr[7] = 0x400 | 1 << 0 | 1 << 16 | 3 << 18;
        },
        |a| {
            a.mov(eax, dword_ptr(place::DATA + 0x100))?;
            a.mov(dword_ptr(place::DATA + 0x0f0), eax)?;
            a.mov(byte_ptr(place::DATA + 0x103), 1)?;
            a.ud2()
        },
        |machine| {
            assert_eq!(machine.read::<1>(place::DATA)[0], 1);
            assert_eq!(machine.regs().dr[6] & 0xf, 1);
            let frame = machine.regs().gpr[4];
            assert_eq!(machine.read_u64(frame), place::CODE + 9 + 9 + 8);
        },
    );
}

#[test]
fn interrupts_wait_for_the_shadow_to_end() {
    for interpret_only in [true, false] {
        let mut machine = long_mode(interpret_only);
        machine.assemble(64, place::CODE, |a| {
            a.sti()?;
            a.inc(ebx)?;
            a.inc(ebx)?;
            a.hlt()
        });
        machine.cpu.request_interrupt_window(true);
        assert_eq!(machine.exit(), Exit::InterruptWindow);
        assert_eq!(machine.regs().gpr[3], 1);
        assert!(machine.cpu.can_inject_interrupt());
        machine.cpu.inject_interrupt(0x20);
        machine.run();
        assert_eq!(machine.read::<1>(place::DATA)[0], 0x20);
        let frame = machine.regs().gpr[4];
        assert_eq!(machine.read_u64(frame), place::CODE + 3);
    }
}

#[test]
fn halt_ends_with_an_interrupt() {
    for interpret_only in [true, false] {
        let mut machine = long_mode(interpret_only);
        machine.assemble(64, place::CODE, |a| {
            a.sti()?;
            a.hlt()?;
            a.hlt()
        });
        machine.run();
        assert_eq!(machine.regs().rip, place::CODE + 2);
        assert!(machine.cpu.can_inject_interrupt());
        machine.cpu.inject_interrupt(0x21);
        machine.run();
        assert_eq!(machine.read::<1>(place::DATA)[0], 0x21);
    }
}

#[test]
fn ports_are_exits() {
    for interpret_only in [true, false] {
        let mut machine = long_mode(interpret_only);
        machine.assemble(64, place::CODE, |a| {
            a.mov(dx, 0x3f8)?;
            a.in_(al, dx)?;
            a.out(0x80, al)?;
            a.mov(rdi, place::DATA)?;
            a.mov(ecx, 2)?;
            a.rep().insw()?;
            a.hlt()
        });
        assert_eq!(machine.exit(), Exit::IoRead { port: 0x3f8, size: 1 });
        machine.cpu.complete_read(0x41);
        assert_eq!(machine.exit(), Exit::IoWrite { port: 0x80, size: 1, value: 0x41 });
        for value in [0x1122, 0x3344] {
            assert_eq!(machine.exit(), Exit::IoRead { port: 0x3f8, size: 2 });
            machine.cpu.complete_read(value);
        }
        machine.run();
        assert_eq!(machine.read_u32(place::DATA), 0x3344_1122);
    }
}

#[test]
fn platform_registers_are_exits_and_can_refuse() {
    let mut machine = long_mode(true);
    machine.assemble(64, place::CODE, |a| {
        a.mov(ecx, 0x1b)?;
        a.rdmsr()?;
        a.mov(ecx, 0x802)?;
        a.wrmsr()?;
        a.hlt()
    });
    assert_eq!(machine.exit(), Exit::MsrRead { index: 0x1b });
    machine.cpu.complete_read(0xfee0_0900);
    assert_eq!(machine.exit(), Exit::MsrWrite { index: 0x802, value: 0xfee0_0900 });
    machine.cpu.fail_msr();
    machine.run();
    assert_eq!(machine.read::<1>(place::DATA)[0], 13);
}

#[test]
fn an_instruction_across_a_missing_page_faults_on_the_second() {
    check_long(
        |machine| machine.write(place::HOLE - 2, &[0x48, 0xb8]),
        |a| {
            a.mov(rax, place::HOLE - 2)?;
            a.jmp(rax)
        },
        |machine| {
            assert_eq!(machine.read::<1>(place::DATA)[0], 14);
            assert_eq!(machine.regs().cr2, place::HOLE);
            assert_eq!(machine.read_u64(place::DATA + 8), 0x10);
        },
    );
}
