//! Several processors on one memory.

use iced_x86::code_asm::*;

use super::{Machine, long_mode, place};
use crate::exit::Exit;
use crate::vcpu::Vcpu;

/// Where another processor's code begins.
const OTHER_CODE: u64 = place::CODE + 0x4000;

/// A function that is rewritten while it is used, in a page of its own.
const FUNCTION: u64 = place::CODE + 0x8000;

/// mov eax, 0; ret: the constant is at 1.
const RETURN_ZERO: [u8; 6] = [0xb8, 0, 0, 0, 0, 0xc3];

const COUNTER: u64 = place::DATA;
const FLAG: u64 = place::DATA + 0x40;
const ANSWER: u64 = place::DATA + 0x80;

fn stack_of(number: u64) -> u64 {
    place::STACK + 0x1000 * number
}

fn until_halt(cpu: &mut Vcpu) {
    assert_eq!(cpu.run().expect("the host lets us run"), Exit::Halt);
}

/// Run all processors of a machine, each on a thread of its own, until each has halted.
fn run_all(machine: &mut Machine, mut others: Vec<Vcpu>) {
    std::thread::scope(|scope| {
        for cpu in &mut others {
            scope.spawn(|| until_halt(cpu));
        }
        until_halt(&mut machine.cpu);
    });
}

/// `body`, `count` times over, then `hlt`; RCX counts.
fn repeat(
    a: &mut CodeAssembler,
    count: u64,
    body: impl FnOnce(&mut CodeAssembler) -> Result<(), iced_x86::IcedError>,
) -> Result<(), iced_x86::IcedError> {
    let mut again = a.create_label();
    a.mov(rcx, count)?;
    a.set_label(&mut again)?;
    body(a)?;
    a.dec(rcx)?;
    a.jne(again)?;
    a.hlt()
}

/// Count in COUNTER unless what was compared is equal.
fn count_unless_equal(a: &mut CodeAssembler) -> Result<(), iced_x86::IcedError> {
    let mut equal = a.create_label();
    a.je(equal)?;
    a.lock().inc(qword_ptr(COUNTER))?;
    a.set_label(&mut equal)
}

fn add_together(interpret_only: bool, count: u64) {
    let mut machine = long_mode(interpret_only);
    machine.assemble(64, place::CODE, |a| {
        repeat(a, count, |a| {
            a.lock().inc(qword_ptr(COUNTER))?;
            a.mov(eax, 1)?;
            a.lock().xadd(dword_ptr(COUNTER + 8), eax)?;
            // A loop of `cmpxchg16b` adds 1 to each half.
            let mut again = a.create_label();
            a.mov(r8, rcx)?;
            a.mov(rax, qword_ptr(COUNTER + 16))?;
            a.mov(rdx, qword_ptr(COUNTER + 24))?;
            a.set_label(&mut again)?;
            a.lea(rbx, qword_ptr(rax + 1))?;
            a.lea(rcx, qword_ptr(rdx + 1))?;
            a.lock().cmpxchg16b(xmmword_ptr(COUNTER + 16))?;
            a.jne(again)?;
            a.mov(rcx, r8)
        })
    });
    let others = (1..4).map(|number| machine.another(place::CODE, stack_of(number))).collect();
    run_all(&mut machine, others);
    for at in [0, 8, 16, 24] {
        assert_eq!(machine.read_u64(COUNTER + at), 4 * count, "at {at}");
    }
}

#[test]
fn locked_instructions_are_atomic_in_translated_code() {
    add_together(false, 20_000);
}

#[test]
fn locked_instructions_are_atomic_in_the_interpreter() {
    add_together(true, 2_000);
}

#[test]
fn locked_instructions_are_atomic_beside_code() {
    // The counter lies in the page of the code that counts.
    let counter = place::CODE + 0xf00;
    let mut machine = long_mode(false);
    machine.assemble(64, place::CODE, |a| repeat(a, 2_000, |a| a.lock().inc(qword_ptr(counter))));
    let others = (1..3).map(|number| machine.another(place::CODE, stack_of(number))).collect();
    run_all(&mut machine, others);
    assert_eq!(machine.read_u64(counter), 6_000);
}

#[test]
fn a_function_written_by_one_processor_is_executed_by_another() {
    let rounds = 3_000;
    let mut machine = long_mode(false);
    machine.write(FUNCTION, &RETURN_ZERO);
    // The writer: change the constant, publish its value, wait for the answer.
    machine.assemble(64, place::CODE, |a| {
        repeat(a, rounds, |a| {
            let mut wait = a.create_label();
            a.mov(dword_ptr(FUNCTION + 1), ecx)?;
            a.mov(qword_ptr(FLAG), rcx)?;
            a.set_label(&mut wait)?;
            a.pause()?;
            a.cmp(qword_ptr(ANSWER), rcx)?;
            a.jne(wait)
        })
    });
    // The other: wait for a new value, call, answer with what the function returned.
    machine.assemble(64, OTHER_CODE, |a| {
        a.mov(rbx, FUNCTION)?;
        repeat(a, rounds, |a| {
            let mut wait = a.create_label();
            a.nop()?;
            a.set_label(&mut wait)?;
            a.pause()?;
            a.cmp(qword_ptr(FLAG), rcx)?;
            a.jne(wait)?;
            a.call(rbx)?;
            a.cmp(rax, rcx)?;
            count_unless_equal(a)?;
            a.mov(qword_ptr(ANSWER), rcx)
        })
    });
    let other = machine.another(OTHER_CODE, stack_of(1));
    run_all(&mut machine, vec![other]);
    assert_eq!(machine.read_u64(COUNTER), 0, "stale code was executed");
    assert_eq!(machine.read_u64(ANSWER), 1);
}

/// Several call a function that is rewritten all the time, at this distance from it.
fn rewrite_while_called(distance: u64) {
    const CALLERS: u64 = 2;
    let rounds = 500;
    let answer = |caller: u64| ANSWER + 8 * caller;
    let mut machine = long_mode(false);
    machine.write(FUNCTION, &RETURN_ZERO);
    if distance != 0 {
        machine.assemble(64, FUNCTION + distance, |a| a.jmp(FUNCTION));
    }
    // The writer: change the constant, publish its value, wait for everybody's answer. The first store drops the
    // page's only translation, the others are made while all callers translate it again.
    machine.assemble(64, place::CODE, |a| {
        repeat(a, rounds, |a| {
            for _ in 0..4 {
                let mut linger = a.create_label();
                a.mov(dword_ptr(FUNCTION + 1), 0)?;
                // Not always as long.
                a.mov(edx, ecx)?;
                a.and(edx, 0x7fff)?;
                a.set_label(&mut linger)?;
                a.dec(edx)?;
                a.jne(linger)?;
            }
            a.mov(dword_ptr(FUNCTION + 1), ecx)?;
            a.mov(qword_ptr(FLAG), rcx)?;
            for caller in 0..CALLERS {
                let mut wait = a.create_label();
                a.set_label(&mut wait)?;
                a.pause()?;
                a.cmp(qword_ptr(answer(caller)), rcx)?;
                a.jne(wait)?;
            }
            a.nop()
        })
    });
    // The callers: call all the time, and look at what the function returns after the value was published.
    let mut others = Vec::new();
    for caller in 0..CALLERS {
        let code = OTHER_CODE + 0x1000 * caller;
        machine.assemble(64, code, |a| {
            a.mov(rbx, FUNCTION + distance)?;
            repeat(a, rounds, |a| {
                let mut wait = a.create_label();
                a.nop()?;
                a.set_label(&mut wait)?;
                a.call(rbx)?;
                a.cmp(qword_ptr(FLAG), rcx)?;
                a.jne(wait)?;
                a.call(rbx)?;
                a.cmp(rax, rcx)?;
                count_unless_equal(a)?;
                a.mov(qword_ptr(answer(caller)), rcx)
            })
        });
        others.push(machine.another(code, stack_of(caller + 1)));
    }
    run_all(&mut machine, others);
    assert_eq!(machine.read_u64(COUNTER), 0, "stale code was executed");
}

#[test]
fn a_function_is_rewritten_while_several_call_it() {
    rewrite_while_called(0);
}

#[test]
fn a_function_is_rewritten_while_several_jump_to_it() {
    // The jump is linked, again and again, to translations that somebody may drop meanwhile.
    rewrite_while_called(0x100);
}

#[test]
fn no_store_is_lost_while_its_page_becomes_code() {
    let rounds = 3_000;
    let data = FUNCTION + 0x800;
    let mut machine = long_mode(false);
    machine.write(FUNCTION, &RETURN_ZERO);
    // One counts in the page, with stores that need a write tag as long as there is no code in it.
    machine.assemble(64, place::CODE, |a| {
        repeat(a, 40 * rounds, |a| {
            a.inc(qword_ptr(data))?;
            a.mov(rax, qword_ptr(data))?;
            a.add(rax, rcx)?;
            a.cmp(rax, (40 * rounds + 1) as i32)?;
            count_unless_equal(a)?;
            a.nop()
        })
    });
    // The other rewrites the function and calls it.
    machine.assemble(64, OTHER_CODE, |a| {
        a.mov(rbx, FUNCTION)?;
        repeat(a, rounds, |a| {
            a.mov(dword_ptr(FUNCTION + 1), ecx)?;
            a.call(rbx)?;
            a.cmp(rax, rcx)?;
            count_unless_equal(a)?;
            a.nop()
        })
    });
    let other = machine.another(OTHER_CODE, stack_of(1));
    run_all(&mut machine, vec![other]);
    assert_eq!(machine.read_u64(data), 40 * rounds);
    assert_eq!(machine.read_u64(COUNTER), 0, "a store or a rewrite was lost");
}

#[test]
fn translations_can_be_dropped_while_others_run() {
    let mut machine = long_mode(false);
    machine
        .assemble(64, place::CODE, |a| repeat(a, 3_000_000, |a| a.lock().inc(qword_ptr(COUNTER))));
    let mut others: Vec<Vcpu> =
        (1..3).map(|number| machine.another(place::CODE, stack_of(number))).collect();
    std::thread::scope(|scope| {
        for cpu in &mut others {
            scope.spawn(|| until_halt(cpu));
        }
        for _ in 0..200 {
            machine.cpu.forget_code();
        }
        until_halt(&mut machine.cpu);
    });
    assert_eq!(machine.read_u64(COUNTER), 9_000_000);
}

#[test]
fn two_processors_can_share_a_thread() {
    let mut machine = long_mode(false);
    machine.assemble(64, place::CODE, |a| {
        let mut again = a.create_label();
        a.set_label(&mut again)?;
        a.inc(qword_ptr(COUNTER))?;
        a.jmp(again)
    });
    machine.long_gate(0, place::HANDLERS, 0, 0);
    machine.assemble(64, OTHER_CODE, |a| {
        a.xor(ecx, ecx)?;
        a.div(ecx)?;
        a.hlt()
    });
    let mut other = machine.another(OTHER_CODE, stack_of(1));
    for _ in 0..3 {
        let kick = machine.cpu.kick_handle();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(5));
                kick.kick();
            });
            assert_eq!(machine.exit(), Exit::Kicked);
        });
        other.arch.context.regs.rip = OTHER_CODE;
        other.pending.halted = false;
        until_halt(&mut other);
        assert_eq!(machine.read_u64(place::DATA) & 0xff, 0, "the division error was recorded");
    }
    assert!(machine.read_u64(COUNTER) > 0);
}
