//! The instruction after `sti`, before which no interrupt is taken (SDM 2B "STI"), when it misses.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use iced_x86::code_asm::*;

use super::mirror::with_upper_half;
use super::{Machine, long_mode, place};
use crate::exit::Exit;

/// Pages of memory that nothing has touched.
const FRESH: u64 = 0xb_0000;
const PAGES: u64 = 0x140;

/// `sti`, and the first access to a page, again and again. Between both, somebody asks for the
/// processor as often as it has come back.
fn check(mut machine: Machine, base: u64) {
    let mut assembler = CodeAssembler::new(64).expect("a valid bitness");
    let a = &mut assembler;
    let mut build = || {
        let mut again = a.create_label();
        a.mov(rbx, base + FRESH)?;
        a.mov(ecx, PAGES as u32)?;
        a.set_label(&mut again)?;
        a.cli()?;
        a.add(rbx, 4096)?;
        a.sti()?;
        let before = a.instructions().len();
        // Two accesses by one base register: what is coalesced.
        a.mov(rax, qword_ptr(rbx))?;
        a.mov(rdx, qword_ptr(rbx + 8))?;
        a.dec(ecx)?;
        a.jne(again)?;
        a.hlt()?;
        Ok::<_, iced_x86::IcedError>(before)
    };
    let before: usize = build().expect("operands fit the instructions");
    let bytes = assembler.assemble(base + place::CODE).expect("labels are in reach");
    let mut decoder = iced_x86::Decoder::with_ip(64, &bytes, base + place::CODE, 0);
    let sheltered = decoder.iter().nth(before).expect("it was assembled").ip();
    machine.write(place::CODE, &bytes);

    let (returns, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let kick = machine.cpu.kick_handle();
    let mut early = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                let seen = returns.load(Ordering::Acquire);
                kick.kick();
                while returns.load(Ordering::Acquire) == seen && !over.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
                // Time to get on, of the order of a miss.
                for _ in 0..2000 {
                    std::hint::spin_loop();
                }
            }
        });
        while returns.load(Ordering::Acquire) == 0 {
            returns.store(u64::from(machine.cpu.arch.is_kicked()), Ordering::Release);
        }
        while machine.exit() == Exit::Kicked {
            let cpu = &machine.cpu;
            early += u64::from(cpu.registers().rip == sheltered && cpu.can_inject_interrupt());
            returns.fetch_add(1, Ordering::Release);
        }
        over.store(true, Ordering::Release);
    });
    assert_eq!(machine.regs().gpr[1] as u32, 0, "the program did not end");
    assert!(returns.load(Ordering::Relaxed) > 1, "nobody came in between");
    assert_eq!(early, 0, "interrupts would have been taken after sti");
}

#[test]
fn nothing_comes_between_sti_and_an_access_that_the_mirror_lacks() {
    for _ in 0..8 {
        with_upper_half(check);
    }
}

#[test]
fn nothing_comes_between_sti_and_an_access_that_the_tlb_lacks() {
    for _ in 0..8 {
        check(long_mode(false), 0);
    }
}
