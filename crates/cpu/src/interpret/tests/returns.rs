//! `iretq` and segment bases, many times over, so that translated code takes its short ways.

use iced_x86::IcedError;
use iced_x86::code_asm::*;

use super::{Machine, check_long, place, selector};
use crate::memory::Flush;
use crate::state::{Segment, SegmentRegister, rflags};
use crate::system::null_segment;

const USER_STACK: u64 = 0x30_0000;

/// What a kernel sets up before its first return to user mode: system calls, and no data segments.
pub(super) fn like_a_kernel(machine: &mut Machine) {
    use SegmentRegister::{Ds, Es, Fs, Gs};
    let regs = machine.regs();
    regs.star = u64::from(selector::CODE_64) << 32 | u64::from(selector::USER_CODE_32) << 48;
    regs.lstar = place::CODE + 0x800;
    regs.sfmask = 0x25_7fd5;
    for which in [Es, Ds, Fs, Gs] {
        *regs.segment_mut(which) = null_segment(0);
    }
}

/// Push a frame and return through it; the address of the next instruction for `rip` 0.
fn return_through(
    a: &mut CodeAssembler,
    stack: (u16, u64),
    flags: u64,
    code: u16,
    rip: u64,
) -> Result<(), IcedError> {
    let mut next = a.create_label();
    a.push(i32::from(stack.0))?;
    a.push(stack.1 as i32)?;
    a.push(flags as i32)?;
    a.push(i32::from(code))?;
    if rip == 0 {
        a.lea(r8, ptr(next))?;
        a.push(r8)?;
    } else {
        a.push(rip as i32)?;
    }
    a.iretq()?;
    a.set_label(&mut next)?;
    a.nop()
}

#[test]
fn returns_to_the_same_level_load_stack_and_flags() {
    for selector in [selector::DATA, 0] {
        check_long(
            like_a_kernel,
            |a| {
                let mut again = a.create_label();
                a.mov(ecx, 20)?;
                a.set_label(&mut again)?;
                let frame = (selector, place::STACK - 0x100);
                return_through(a, frame, 0x8d5 | rflags::RF, selector::CODE_64, 0)?;
                a.pushfq()?;
                a.pop(rbx)?;
                a.mov(rdx, rsp)?;
                a.mov(ebp, ss)?;
                a.mov(rsp, place::STACK)?;
                a.dec(ecx)?;
                a.jnz(again)?;
                a.hlt()
            },
            |machine| {
                let regs = *machine.regs();
                assert_eq!(regs.gpr[3], 0x8d7);
                assert_eq!(regs.gpr[2], place::STACK - 0x100);
                assert_eq!(regs.gpr[5], u64::from(selector));
                let stack = *regs.segment(SegmentRegister::Ss);
                let kind = if selector == 0 { 0x93 } else { 0xc093 };
                assert_eq!((stack.base, stack.limit), (0, 0xffff_ffff));
                assert_eq!(stack.attributes.bits(), kind);
            },
        );
    }
}

/// A user program takes page faults; the handler mends its pointer and returns. RF, which every
/// frame of a fault has, is gone afterwards.
fn faulting_user(machine: &mut Machine) {
    like_a_kernel(machine);
    machine.long_gate(14, place::CODE + 0x400, 0, 0);
    machine.assemble(64, place::CODE + 0x400, |a| {
        a.inc(r15)?;
        a.mov(r14, qword_ptr(rsp + 24))?;
        a.mov(rdi, place::USER_CODE + 0x1000)?;
        a.add(rsp, 8)?;
        a.iretq()
    });
    machine.assemble(64, place::CODE + 0x800, |a| a.hlt());
    machine.assemble(64, place::USER_CODE, |a| {
        let mut again = a.create_label();
        a.mov(ecx, 10)?;
        a.set_label(&mut again)?;
        a.mov(rdi, place::HOLE)?;
        a.stc()?;
        a.mov(dword_ptr(rdi), ecx)?;
        a.adc(ebx, 0)?;
        a.pushfq()?;
        a.pop(rbp)?;
        a.dec(ecx)?;
        a.jnz(again)?;
        a.syscall()
    });
}

#[test]
fn faults_of_user_code_return_to_the_instruction() {
    check_long(
        faulting_user,
        |a| {
            let stack = (selector::USER_DATA, USER_STACK);
            return_through(a, stack, 0x202, selector::USER_CODE_64, place::USER_CODE)
        },
        |machine| {
            let regs = *machine.regs();
            assert_eq!((regs.gpr[15], regs.gpr[3]), (10, 10));
            assert_eq!(regs.gpr[14] & (rflags::RF | rflags::CF), rflags::RF | rflags::CF);
            assert_eq!(regs.gpr[5] & (rflags::RF | rflags::IF), rflags::IF);
            assert_eq!(machine.read_u32(place::USER_CODE + 0x1000), 1);
            assert_eq!(regs.cr2, place::HOLE);
            let direct_runs = machine.cpu.statistics().direct_runs;
            assert_eq!(direct_runs > 0, machine.cpu.user.is_some());
        },
    );
}

/// Returns that must not be made by the short way: what comes of them.
fn check_odd_return(prepare: impl Fn(&mut Machine), flags: u64, verify: impl Fn(&mut Machine)) {
    check_long(
        |machine| {
            like_a_kernel(machine);
            machine.assemble(64, place::USER_CODE, |a| a.hlt());
            prepare(machine);
        },
        |a| {
            let stack = (selector::USER_DATA, USER_STACK);
            return_through(a, stack, flags, selector::USER_CODE_64, place::USER_CODE)
        },
        verify,
    );
}

#[test]
fn returns_look_at_the_descriptor_table() {
    let descriptor = place::GDT + u64::from(selector::USER_CODE_64 & !7);
    check_odd_return(
        |machine| machine.write_u64(descriptor, 0x00af_7b00_0000_ffff),
        0x202,
        |machine| {
            assert_eq!(machine.read::<1>(place::DATA)[0], 11);
            assert_eq!(machine.read_u64(place::DATA + 8), 0x30);
        },
    );
    // Not accessed yet.
    check_odd_return(
        |machine| machine.write_u64(descriptor, 0x00af_fa00_0000_ffff),
        0x202,
        |machine| {
            assert_eq!(machine.read::<1>(place::DATA)[0], 13);
            assert_eq!(machine.read_u64(descriptor), 0x00af_fb00_0000_ffff);
        },
    );
    check_odd_return(
        |machine| machine.regs().gdtr.limit = 0x2f,
        0x202,
        |machine| {
            assert_eq!(machine.read::<1>(place::DATA)[0], 13);
            assert_eq!(machine.read_u64(place::DATA + 8), 0x30);
        },
    );
}

#[test]
fn returns_take_segments_away_that_user_code_may_not_have() {
    check_odd_return(
        |machine| {
            let kernel = super::segment(selector::DATA);
            *machine.regs().segment_mut(SegmentRegister::Ds) = kernel;
            let user = super::segment(selector::USER_DATA);
            *machine.regs().segment_mut(SegmentRegister::Es) = user;
        },
        0x202,
        |machine| {
            let selector_of =
                |machine: &mut Machine, which| -> Segment { *machine.regs().segment(which) };
            assert_eq!(selector_of(machine, SegmentRegister::Ds).selector, 0);
            let kept = selector_of(machine, SegmentRegister::Es).selector;
            assert_eq!(kept, selector::USER_DATA);
            assert_eq!(machine.read::<1>(place::DATA)[0], 13);
        },
    );
}

#[test]
fn returns_may_set_any_flag() {
    check_odd_return(
        |_| (),
        rflags::AC | rflags::ID | rflags::DF | 0x202,
        |machine| {
            let saved = machine.read_u64(place::INNER_STACK - 24);
            assert_eq!(machine.read::<1>(place::DATA)[0], 13);
            let expected = rflags::RF | rflags::AC | rflags::ID | rflags::DF | 0x202;
            assert_eq!(saved, expected);
        },
    );
}

#[test]
fn segment_bases_are_read_and_written() {
    check_long(
        |machine| {
            machine.write_u64(place::DATA + 0x108, 77);
            machine.cpu.arch.flush_tlb(Flush::All);
        },
        |a| {
            let mut again = a.create_label();
            a.mov(esi, 10)?;
            a.set_label(&mut again)?;
            a.mov(rcx, place::DATA)?;
            a.wrgsbase(rcx)?;
            a.mov(rax, qword_ptr(0x108).gs())?;
            a.mov(rbx, 0xffff_8123_4567_89abu64)?;
            a.wrfsbase(rbx)?;
            a.rdfsbase(rdx)?;
            a.rdfsbase(ebp)?;
            a.wrfsbase(ebx)?;
            a.rdfsbase(rdi)?;
            a.dec(esi)?;
            a.jnz(again)?;
            a.mov(rcx, 0x0000_8000_0000_0000u64)?;
            a.wrgsbase(rcx)?;
            a.hlt()
        },
        |machine| {
            // The last one is not canonical.
            assert_eq!(machine.read::<1>(place::DATA)[0], 13);
            let gpr = machine.regs().gpr;
            assert_eq!((gpr[0], gpr[1]), (77, 0x0000_8000_0000_0000));
            assert_eq!((gpr[2], gpr[5], gpr[7]), (gpr[3], 0x4567_89ab, 0x4567_89ab));
            assert_eq!(machine.regs().segment(SegmentRegister::Gs).base, place::DATA);
        },
    );
}

#[test]
fn selectors_are_stored_in_memory() {
    check_long(
        like_a_kernel,
        |a| {
            let mut again = a.create_label();
            a.mov(esi, 3)?;
            a.set_label(&mut again)?;
            a.mov(rbx, place::DATA)?;
            a.mov(qword_ptr(rbx), -1)?;
            a.mov(word_ptr(rbx), cs)?;
            a.mov(word_ptr(rbx + 4), ds)?;
            a.mov(rcx, -1i64)?;
            a.mov(cx, cs)?;
            a.dec(esi)?;
            a.jnz(again)?;
            a.hlt()
        },
        |machine| {
            let stored = 0xffff_0000_ffff_0000 | u64::from(selector::CODE_64);
            assert_eq!(machine.read_u64(place::DATA), stored);
            assert_eq!(machine.regs().gpr[1], !0xffff | u64::from(selector::CODE_64));
        },
    );
}
