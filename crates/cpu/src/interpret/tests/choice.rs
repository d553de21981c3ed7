//! User code that computes begins to run directly by itself, and so does its program the next time. What
//! the kernel does for such code is translated.

use iced_x86::IcedError;
use iced_x86::code_asm::*;

use super::returns::like_a_kernel;
use super::{Machine, RAM_BYTES, enter_long_mode, place, selector};
use crate::config::Config;
use crate::user::UserExecution;
use crate::vcpu::Vcpu;
use crate::vcpu_group::VcpuGroup;

/// Times round the user's loop: some hundred milliseconds of a processor.
const ROUNDS: u64 = 400_000_000;

/// Other page tables with the same contents.
const OTHER_PAGES: u64 = place::PAGES + 0x4000;

const KERNEL_AGAIN: u64 = place::CODE + 0x800;
const STACK: u64 = place::USER_CODE + 0x8000;

fn choosing() -> Machine {
    let memory = host::GuestMemory::new(&[(0, RAM_BYTES as u64)]).expect("a little memory");
    let helpers = direct::Helpers::start(&memory).expect("this host runs helpers");
    let group = VcpuGroup::with_helpers(&memory, &helpers, UserExecution::Auto);
    let config = Config {
        apic_id: 0,
        processors: 1,
        tsc_khz: 1_000_000,
        interpret_only: false,
        board: crate::board::TEST_PC,
    };
    let cpu = Vcpu::in_group(config, &group.expect("this host runs helpers"));
    let cpu = cpu.expect("this host can run guests");
    Machine { cpu, ram: memory.regions()[0].host, memory: Some(memory) }
}

fn enter(a: &mut CodeAssembler) -> Result<(), IcedError> {
    a.mov(r8, ROUNDS)?;
    a.push(i32::from(selector::USER_DATA))?;
    a.push(STACK as i32)?;
    a.push(0x202)?;
    a.push(i32::from(selector::USER_CODE_64))?;
    a.push(place::USER_CODE as i32)?;
    a.iretq()
}

#[test]
fn who_computes_runs_directly_and_its_program_begins_so() {
    let mut machine = enter_long_mode(choosing());
    like_a_kernel(&mut machine);
    machine.write_u64(OTHER_PAGES, place::PAGES + 0x1007);
    machine.assemble(64, place::CODE, |a| {
        a.xor(r14d, r14d)?;
        enter(a)
    });
    machine.assemble(64, KERNEL_AGAIN, |a| {
        a.mov(rsp, place::STACK)?;
        a.hlt()?;
        a.mov(eax, OTHER_PAGES as i32)?;
        a.mov(cr3, rax)?;
        enter(a)
    });
    machine.assemble(64, place::USER_CODE, |a| {
        let mut again = a.create_label();
        a.set_label(&mut again)?;
        a.add(r14, 1)?;
        a.dec(r8)?;
        a.jne(again)?;
        a.syscall()
    });
    machine.run();
    let first = machine.cpu.statistics();
    assert_eq!(machine.regs().gpr[14], ROUNDS);
    // Nothing but the timer has interrupted it.
    assert!(first.direct_timer_looks > 0 && first.interrupts == 0, "{first:?}");
    assert_eq!((first.direct_promotions, first.direct_begun), (1, 0), "{first:?}");
    machine.cpu.end_halt();
    machine.run();
    let second = machine.cpu.statistics();
    assert_eq!(machine.regs().gpr[14], 2 * ROUNDS);
    assert_eq!((second.direct_promotions, second.direct_begun), (2, 1), "{second:?}");
    assert_eq!(second.direct_demotions, 0, "{second:?}");
}

/// Times that the user calls its kernel.
const CALLS: u64 = 300;

#[test]
fn returns_to_direct_code_are_translated() {
    let mut machine = enter_long_mode(Machine::with_helpers());
    like_a_kernel(&mut machine);
    machine.assemble(64, place::CODE, |a| {
        a.xor(r14d, r14d)?;
        enter(a)
    });
    // It returns by `iretq` and `sysretq` in turn.
    machine.assemble(64, KERNEL_AGAIN, |a| {
        let (mut fast, mut done) = (a.create_label(), a.create_label());
        a.inc(r14)?;
        a.cmp(r14, CALLS as i32)?;
        a.je(done)?;
        a.test(r14, 1)?;
        a.je(fast)?;
        a.mov(rsp, place::STACK)?;
        a.push(i32::from(selector::USER_DATA))?;
        a.push(STACK as i32)?;
        a.push(0x202)?;
        a.push(i32::from(selector::USER_CODE_64))?;
        a.push(rcx)?;
        a.iretq()?;
        a.set_label(&mut fast)?;
        a.sysretq()?;
        a.set_label(&mut done)?;
        a.hlt()
    });
    machine.assemble(64, place::USER_CODE, |a| {
        let mut again = a.create_label();
        a.set_label(&mut again)?;
        a.syscall()?;
        a.jmp(again)
    });
    machine.run();
    let statistics = machine.cpu.statistics();
    assert!(statistics.direct_entries >= CALLS, "{statistics:?}");
    assert!(statistics.interpreted < 30, "{statistics:?}");
}
