//! One look-up for several accesses (translate/coalesce.rs).

use iced_x86::code_asm::*;

use super::{Machine, check_long, place};

/// The second 2 MiB of memory once more, 4 GiB above the place of the first.
const ABOVE: u64 = 1 << 32;

/// What lies where a displacement of 32 bits leads that has wrapped.
const ELSEWHERE: u64 = 0x6666_6666_6666_6666;

/// Map [`ABOVE`], and fill both places.
fn prepare(machine: &mut Machine) {
    machine.write_u64(place::PAGES + 0x1000 + 8 * (ABOVE >> 30), place::PAGES + 0x6003);
    machine.write_u64(place::PAGES + 0x6000, 0x20_0083);
    for number in 0..64 {
        let at = place::DATA + 8 * number;
        machine.write_u64(at, number);
        machine.write_u64(0x20_0000 + at, ELSEWHERE);
    }
}

/// After a step of the stack pointer, the same displacement means another place: together they are
/// farther from the pointer than 32 bits say.
#[test]
fn a_coalesced_range_does_not_wrap_at_the_largest_displacement() {
    check_long(
        prepare,
        |a| {
            // The page 4 GiB above is in the TLB, so that an access there would succeed.
            a.mov(rbx, ABOVE + place::DATA)?;
            a.mov(rcx, qword_ptr(rbx))?;
            a.mov(rsp, place::DATA + 0x80 + (1 << 31))?;
            a.mov(rax, qword_ptr(rsp - i32::MIN.unsigned_abs()))?;
            a.lea(rsp, qword_ptr(rsp - 8))?;
            a.mov(rdx, qword_ptr(rsp - i32::MIN.unsigned_abs()))?;
            a.hlt()
        },
        |machine| {
            let gpr = machine.regs().gpr;
            assert_eq!((gpr[0], gpr[2]), (16, 15));
            assert_eq!(gpr[1], ELSEWHERE);
        },
    );
}

/// The same upwards, where the first access is the farther one.
#[test]
fn a_coalesced_range_does_not_wrap_at_the_largest_displacement_upwards() {
    check_long(
        prepare,
        |a| {
            a.mov(rbx, ABOVE + place::DATA)?;
            a.mov(rcx, qword_ptr(rbx))?;
            a.mov(rsp, (place::DATA + 0x80).wrapping_sub(0x7fff_fff8))?;
            a.mov(rax, qword_ptr(rsp + 0x7fff_fff8))?;
            a.lea(rsp, qword_ptr(rsp + 16))?;
            a.mov(rdx, qword_ptr(rsp + 0x7fff_fff8))?;
            a.lea(rsp, qword_ptr(rsp - 32))?;
            a.mov(rsi, qword_ptr(rsp + 0x7fff_fff8))?;
            a.hlt()
        },
        |machine| {
            let gpr = machine.regs().gpr;
            assert_eq!((gpr[0], gpr[2], gpr[6]), (16, 18, 14));
        },
    );
}
