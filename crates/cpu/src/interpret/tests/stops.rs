//! What a debugger outside stops at (stops.rs), in each way of executing.

use std::sync::Arc;

use iced_x86::IcedError;
use iced_x86::code_asm::*;

use super::returns::like_a_kernel;
use super::{Machine, enter_long_mode, place, selector};
use crate::exit::Exit;
use crate::stops::{Stopped, Stops, WatchKind, Watchpoint};

const STACK: u64 = place::USER_CODE + 0x8000;
const KERNEL_AGAIN: u64 = place::CODE + 0x800;

/// The second 2 MiB once more.
const OTHER_WINDOW: u64 = 0x60_0000;

/// Times round a loop.
const ROUNDS: u64 = 1000;

/// How often somebody stops before the test gives up.
const MAX_STOPS: usize = 100;

fn each_machine(check: impl Fn(&mut Machine)) {
    let machines =
        [|| Machine::new(true), || Machine::new(false), Machine::in_memory, Machine::with_helpers];
    machines.into_iter().for_each(|new| check(&mut enter_long_mode(new())));
}

fn stop_at(machine: &mut Machine, breakpoints: &[u64], watchpoints: &[Watchpoint]) {
    machine.cpu.set_stops(&Arc::new(Stops::new(breakpoints.to_vec(), watchpoints.to_vec())));
}

/// Go on until the guest stops for the debugger, or halts.
fn go_on(machine: &mut Machine) -> Option<Stopped> {
    match machine.exit() {
        Exit::Halt => None,
        Exit::Debug => Some(machine.cpu.take_stop().expect("there is a reason")),
        exit => panic!("{exit:?}"),
    }
}

fn step(machine: &mut Machine) {
    machine.cpu.set_step(true);
    assert_eq!(go_on(machine), Some(Stopped::Step));
}

/// As gdb goes on from a breakpoint: a step without it.
fn step_over(machine: &mut Machine, breakpoints: &[u64]) {
    stop_at(machine, &[], &[]);
    step(machine);
    stop_at(machine, breakpoints, &[]);
}

fn enter_user(a: &mut CodeAssembler, at: u64) -> Result<(), IcedError> {
    a.push(i32::from(selector::USER_DATA))?;
    a.push(STACK as i32)?;
    a.push(0x202)?;
    a.push(i32::from(selector::USER_CODE_64))?;
    a.push(at as i32)?;
    a.iretq()
}

/// A loop with a call, at some address: each round adds one to RAX twice.
fn program(
    machine: &mut Machine,
    at: u64,
    end: impl Fn(&mut CodeAssembler) -> Result<(), IcedError>,
) {
    machine.assemble(64, at, |a| {
        let (mut again, mut called) = (a.create_label(), a.create_label());
        a.mov(rcx, ROUNDS)?;
        a.xor(eax, eax)?;
        a.set_label(&mut again)?;
        a.inc(rax)?;
        a.nop()?;
        a.call(called)?;
        a.dec(rcx)?;
        a.jne(again)?;
        end(a)?;
        a.set_label(&mut called)?;
        a.inc(rax)?;
        a.ret()
    });
}

/// Where in [`program`] the instruction after `inc rax` is, by its bytes.
fn second(machine: &Machine, at: u64) -> u64 {
    let bytes: [u8; 0x60] = machine.read(at);
    let found = bytes.windows(4).position(|four| four == [0x48, 0xff, 0xc0, 0x90]);
    at + found.expect("it is there") as u64 + 3
}

#[test]
fn a_breakpoint_in_a_loop_stops_each_round_and_none_when_it_is_gone() {
    each_machine(|machine| {
        program(machine, place::CODE, CodeAssembler::hlt);
        let at = second(machine, place::CODE);
        // Where there are blocks already.
        stop_at(machine, &[], &[]);
        machine.regs().gpr[2] = 0;
        for round in 1..=5 {
            if round == 3 {
                // Set late: nothing is to be left of the blocks before.
                stop_at(machine, &[at + 0x1000], &[]);
            }
            stop_at(machine, &[at], &[]);
            assert_eq!(go_on(machine), Some(Stopped::Breakpoint), "round {round}");
            let regs = *machine.regs();
            assert_eq!((regs.rip, regs.gpr[0]), (at, 2 * round - 1));
            // It is hit again where the guest has not moved.
            assert_eq!(go_on(machine), Some(Stopped::Breakpoint));
            step_over(machine, &[at]);
        }
        stop_at(machine, &[], &[]);
        assert_eq!(go_on(machine), None);
        assert_eq!(machine.regs().gpr[0], 2 * ROUNDS);
    });
}

#[test]
fn a_breakpoint_is_found_in_code_that_has_run_and_been_linked() {
    each_machine(|machine| {
        program(machine, place::CODE, |a| {
            a.hlt()?;
            a.jmp(place::CODE)
        });
        assert_eq!(go_on(machine), None);
        let at = second(machine, place::CODE);
        machine.cpu.end_halt();
        stop_at(machine, &[at], &[]);
        assert_eq!(go_on(machine), Some(Stopped::Breakpoint));
        assert_eq!(machine.regs().gpr[0], 1);
        // What has the same offset in another page does not stop.
        stop_at(machine, &[at + 0x1000], &[]);
        assert_eq!(go_on(machine), None);
        assert_eq!(machine.regs().gpr[0], 2 * ROUNDS);
    });
}

#[test]
fn of_a_page_that_is_mapped_twice_one_address_stops() {
    each_machine(|machine| {
        like_a_kernel(machine);
        machine
            .write_u64(place::PAGES + 0x2000 + 8 * (OTHER_WINDOW >> 21), place::USER_CODE | 0x87);
        program(machine, place::USER_CODE, CodeAssembler::syscall);
        machine.assemble(64, KERNEL_AGAIN, |a| {
            a.mov(rsp, place::STACK)?;
            a.add(r12, rax)?;
            a.hlt()?;
            enter_user(a, OTHER_WINDOW)
        });
        machine.assemble(64, place::CODE, |a| enter_user(a, place::USER_CODE));
        let at = second(machine, place::USER_CODE) - place::USER_CODE + OTHER_WINDOW;
        stop_at(machine, &[at], &[]);
        assert_eq!(go_on(machine), None, "the first window has none");
        assert_eq!(machine.regs().gpr[12], 2 * ROUNDS);
        machine.cpu.end_halt();
        for round in 1..=3 {
            assert_eq!(go_on(machine), Some(Stopped::Breakpoint), "round {round}");
            let regs = *machine.regs();
            assert_eq!((regs.rip, regs.gpr[0], regs.cpl), (at, 2 * round - 1, 3));
            step_over(machine, &[at]);
        }
        stop_at(machine, &[], &[]);
        assert_eq!(go_on(machine), None);
        assert_eq!(machine.regs().gpr[12], 4 * ROUNDS);
    });
}

#[test]
fn steps_go_from_instruction_to_instruction_and_into_the_kernel() {
    each_machine(|machine| {
        like_a_kernel(machine);
        machine.assemble(64, place::USER_CODE, |a| {
            a.mov(eax, 7)?;
            a.syscall()
        });
        machine.assemble(64, KERNEL_AGAIN, |a| {
            a.inc(rax)?;
            a.hlt()?;
            a.inc(rax)?;
            a.hlt()
        });
        machine.assemble(64, place::CODE, |a| enter_user(a, place::USER_CODE));
        stop_at(machine, &[place::USER_CODE], &[]);
        assert_eq!(go_on(machine), Some(Stopped::Breakpoint));
        let expected = [(place::USER_CODE + 5, 3), (KERNEL_AGAIN, 0), (KERNEL_AGAIN + 3, 0)];
        stop_at(machine, &[], &[]);
        for (rip, cpl) in expected {
            step(machine);
            let regs = *machine.regs();
            assert_eq!((regs.rip, regs.cpl), (rip, cpl));
        }
        // A halt is one, which begins when the guest goes on.
        step(machine);
        assert_eq!(machine.regs().rip, KERNEL_AGAIN + 4);
        assert_eq!(go_on(machine), None);
        machine.cpu.end_halt();
        assert_eq!(go_on(machine), None);
        assert_eq!(machine.regs().gpr[0], 9);
    });
}

#[test]
fn watchpoints_stop_behind_the_access() {
    each_machine(|machine| {
        machine.assemble(64, place::CODE, |a| {
            a.mov(rbx, place::DATA)?;
            a.mov(qword_ptr(rbx), 1)?;
            a.mov(eax, dword_ptr(rbx + 0x102))?;
            a.mov(dword_ptr(rbx + 0x0fe), 5)?;
            a.mov(ecx, 8)?;
            a.lea(rdi, qword_ptr(rbx + 0x0fc))?;
            a.rep().stosb()?;
            a.hlt()
        });
        let watch = |kind| Watchpoint { start: place::DATA + 0x100, length: 4, kind };
        let stops = |machine: &mut Machine, kind| {
            machine.regs().rip = place::CODE;
            machine.cpu.end_halt();
            stop_at(machine, &[], &[watch(kind)]);
            let mut stops = Vec::new();
            while let Some(stopped) = go_on(machine) {
                let Stopped::Watchpoint(kind, at) = stopped else { panic!("{stopped:?}") };
                stops.push((kind, at - place::DATA));
                assert!(stops.len() < MAX_STOPS);
            }
            stops
        };
        use WatchKind::{Access, Read, Write};
        assert_eq!(stops(machine, Read), [(Read, 0x102)]);
        let written = [0x100, 0x100, 0x101, 0x102, 0x103];
        let writes = |kind| written.map(|at| (kind, at));
        assert_eq!(stops(machine, Write), writes(Write));
        let all = [&[(Access, 0x102)], &writes(Access)[..]].concat();
        assert_eq!(stops(machine, Access), all);
    });
}

#[test]
fn the_guests_own_breakpoints_work_beside_a_debuggers() {
    each_machine(|machine| {
        // #DB and #BP count in R14 and R15.
        for (vector, counter) in [(1, r14), (3, r15)] {
            let handler = place::HANDLERS + 64 * vector;
            machine.long_gate(vector as u8, handler, 0, 0);
            machine.assemble(64, handler, |a| {
                a.inc(counter)?;
                a.mov(rdx, dr6)?;
                if vector == 1 {
                    // RF, so that the instruction is executed.
                    a.or(qword_ptr(rsp + 16), 0x1_0000)?;
                }
                a.iretq()
            });
        }
        let program = |a: &mut CodeAssembler| {
            let mut here = a.create_label();
            a.xor(r14d, r14d)?;
            a.xor(r15d, r15d)?;
            a.lea(rax, qword_ptr(here))?;
            a.mov(dr0, rax)?;
            a.mov(eax, 0x401)?;
            a.mov(dr7, rax)?;
            a.int3()?;
            a.set_label(&mut here)?;
            a.mov(ebx, 1)?;
            a.mov(eax, 0x400)?;
            a.mov(dr7, rax)?;
            a.hlt()
        };
        machine.assemble(64, place::CODE, program);
        let bytes: [u8; 0x60] = machine.read(place::CODE);
        let here = bytes.windows(2).position(|two| two == [0xcc, 0xbb]).expect("int3") as u64 + 1;
        let here = place::CODE + here;
        stop_at(machine, &[here - 1, here], &[]);
        for at in [here - 1, here] {
            assert_eq!(go_on(machine), Some(Stopped::Breakpoint));
            assert_eq!(machine.regs().rip, at);
            step_over(machine, &[here - 1, here]);
            // Its own stop it as well: a step has gone into the handler.
            let regs = *machine.regs();
            let handler = place::HANDLERS + 64 * if at == here { 1 } else { 3 };
            assert_eq!(regs.rip, handler, "{at:#x}");
            assert_eq!(regs.rflags() & 0x100, 0);
        }
        assert_eq!(go_on(machine), Some(Stopped::Breakpoint), "after the handler");
        step_over(machine, &[]);
        assert_eq!(go_on(machine), None);
        let regs = *machine.regs();
        assert_eq!((regs.gpr[14], regs.gpr[15], regs.gpr[3]), (1, 1, 1));
    });
}
