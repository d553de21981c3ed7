//! Operands that cross a page (translate/crossing.rs).

use iced_x86::IcedError;
use iced_x86::code_asm::*;

use super::{Machine, long_mode, place, selector};
use crate::exit::Exit;
use crate::state::SegmentRegister;

/// The boundary that operands lie across.
const BOUNDARY: u64 = place::DATA + 0x2000;

/// Rounds of a loop.
const ROUNDS: u64 = 200;

/// As often as instructions may cross a page and be interpreted before they are translated for it; each
/// belongs to a block of its own in the first round, and to that of the loop.
const FIRST_TIMES: u64 = 12;

/// `body` so many times over, with an address 5 bytes before the boundary in RBX; then `hlt`.
fn repeated(
    a: &mut CodeAssembler,
    rounds: u64,
    body: impl FnOnce(&mut CodeAssembler) -> Result<(), IcedError>,
) -> Result<(), IcedError> {
    let mut again = a.create_label();
    a.mov(rbx, BOUNDARY - 5)?;
    a.mov(rcx, rounds)?;
    a.set_label(&mut again)?;
    body(a)?;
    a.dec(rcx)?;
    a.jne(again)?;
    a.hlt()
}

/// A machine that has run a loop of `instructions` of which each crosses a page, and splits them.
fn check(
    instructions: u64,
    body: impl Fn(&mut CodeAssembler) -> Result<(), IcedError>,
    verify: impl Fn(&mut Machine),
) {
    for interpret_only in [true, false] {
        let mut machine = long_mode(interpret_only);
        machine.write(BOUNDARY - 128, &pattern::<256>());
        machine.assemble(64, place::CODE, |a| repeated(a, ROUNDS, &body));
        machine.run();
        verify(&mut machine);
        let statistics = machine.cpu.statistics();
        if !interpret_only {
            let first = FIRST_TIMES * instructions;
            assert!(statistics.crossings >= ROUNDS * instructions - first, "{statistics:?}");
            assert!(statistics.crossings_interpreted <= first, "{statistics:?}");
            assert!(statistics.interpreted <= first + 10, "{statistics:?}");
        }
    }
}

fn pattern<const N: usize>() -> [u8; N] {
    std::array::from_fn(|n| n as u8 ^ 0x5a)
}

/// What [`pattern`] has from `distance` before the boundary on.
fn pattern_before<const N: usize>(distance: usize) -> [u8; N] {
    pattern::<256>()[128 - distance..][..N].try_into().unwrap()
}

#[test]
fn loads_are_not_interpreted() {
    let first = u64::from_le_bytes(pattern_before(5));
    check(
        2,
        |a| {
            a.add(rax, qword_ptr(rbx))?;
            a.lea(rdx, qword_ptr(rbx - 8))?;
            a.vmovdqu(ymm1, ymmword_ptr(rdx))
        },
        |machine| assert_eq!(machine.regs().gpr[0], first.wrapping_mul(ROUNDS)),
    );
}

#[test]
fn stores_are_not_interpreted_and_write_nothing_beside_themselves() {
    check(
        2,
        |a| {
            a.mov(qword_ptr(rbx), rcx)?;
            a.lea(rdx, qword_ptr(rbx - 24))?;
            a.vmovdqu(xmm1, xmmword_ptr(BOUNDARY - 120))?;
            a.mov(byte_ptr(rbx - 24), 0)?;
            a.vmovdqu(xmmword_ptr(rdx + 16), xmm1)
        },
        |machine| {
            let mut expected = pattern::<256>();
            expected[128 - 29] = 0;
            expected.copy_within(8..24, 128 - 13);
            assert_eq!(machine.read::<256>(BOUNDARY - 128), expected);
        },
    );
}

#[test]
fn what_is_changed_in_memory_is_not_interpreted() {
    let first = u32::from_le_bytes(pattern_before(3));
    check(
        3,
        |a| {
            a.lea(rdx, qword_ptr(rbx + 2))?;
            a.add(dword_ptr(rdx), 5)?;
            a.adc(dword_ptr(rdx + rdi), ecx)?;
            a.xadd(dword_ptr(rdx + rdi * 2), eax)
        },
        |machine| {
            let (mut memory, mut register) = (first, 0u32);
            for count in (1..=ROUNDS as u32).rev() {
                let (sum, carry) = memory.overflowing_add(5);
                memory = sum.wrapping_add(count).wrapping_add(u32::from(carry));
                (memory, register) = (memory.wrapping_add(register), memory);
            }
            assert_eq!(machine.regs().gpr[0] as u32, register);
            assert_eq!(machine.read_u32(BOUNDARY - 3), memory);
            assert_eq!(machine.read::<125>(BOUNDARY - 128), pattern::<256>()[..125]);
            assert_eq!(machine.read::<127>(BOUNDARY + 1), pattern::<256>()[129..]);
        },
    );
}

/// Locked instructions and masked stores stay with the interpreter, however often they cross.
#[test]
fn what_cannot_be_split_is_interpreted() {
    let mut machine = long_mode(false);
    machine.write(BOUNDARY - 128, &pattern::<256>());
    machine.assemble(64, place::CODE, |a| {
        repeated(a, ROUNDS, |a| {
            a.lock().inc(qword_ptr(rbx))?;
            a.xchg(qword_ptr(rbx - 1), rax)?;
            a.bts(word_ptr(rbx + 4), 3)
        })
    });
    machine.run();
    let statistics = machine.cpu.statistics();
    assert!(statistics.interpreted >= 2 * ROUNDS, "{statistics:?}");
    assert!(statistics.crossings < ROUNDS, "{statistics:?}");
}

/// A store of which the second page cannot be written leaves the first as it is.
#[test]
fn a_fault_in_either_page_is_the_instruction_s() {
    /// Into the table of the first 2 MiB, what makes a page readable only.
    const ENTRY: u64 = place::PAGES + 0x3000;
    let entry_of = |page: u64| ENTRY + 8 * (page >> 12);
    for (closed, address) in [(BOUNDARY, BOUNDARY), (BOUNDARY - 0x1000, BOUNDARY - 5)] {
        let mut machine = long_mode(false);
        machine.write(BOUNDARY - 128, &pattern::<256>());
        machine.assemble(64, place::CODE, |a| {
            let mut again = a.create_label();
            let mut open = a.create_label();
            a.mov(rbx, BOUNDARY - 5)?;
            a.mov(rdi, entry_of(closed))?;
            a.mov(rcx, ROUNDS)?;
            a.set_label(&mut again)?;
            a.cmp(rcx, 1)?;
            a.jne(open)?;
            a.and(qword_ptr(rdi), !2)?;
            a.invlpg(ptr(closed))?;
            a.set_label(&mut open)?;
            a.mov(qword_ptr(rbx), rcx)?;
            a.dec(rcx)?;
            a.jmp(again)
        });
        machine.run();
        assert_eq!(machine.read::<1>(place::DATA)[0], 14);
        assert_eq!(machine.read_u64(place::DATA + 8), 3, "a write to a page that is there");
        assert_eq!(machine.regs().cr2, address);
        assert_eq!(machine.read_u64(BOUNDARY - 5), 2, "the store of the round before");
        assert!(machine.cpu.statistics().crossings > ROUNDS / 2);
    }
}

/// In 32-bit code no second way goes from the last page to one at 4 GiB, which 64-bit code may have.
#[test]
fn operands_of_32_bit_code_are_split_up_to_4_gib() {
    const ABOVE: u64 = 1 << 32;
    const LAST_PAGE: u64 = ABOVE - 0x1000;
    let mut machine = long_mode(false);
    // The last 2 MiB of the first 4 GiB, and the 2 MiB behind them, are the second 2 MiB of memory.
    for (address, table) in [(LAST_PAGE, 0x6000), (ABOVE, 0x7000)] {
        let directory = place::PAGES + table;
        machine.write_u64(place::PAGES + 0x1000 + 8 * (address >> 30), directory + 3);
        machine.write_u64(directory + 8 * (address >> 21 & 511), 0x20_0083);
    }
    machine.write(BOUNDARY - 2, &[5, 6, 7, 8]);
    machine.assemble(64, place::CODE, |a| {
        a.mov(rbx, ABOVE)?;
        a.mov(rax, qword_ptr(rbx))?;
        a.push(i32::from(selector::CODE_32))?;
        a.push(place::CODE as i32 + 0x100)?;
        a.retf()
    });
    machine.assemble(32, place::CODE + 0x100, |a| {
        let mut again = a.create_label();
        a.mov(esi, (BOUNDARY as u32 - 2).wrapping_sub(LAST_PAGE as u32))?;
        a.mov(edi, 0xffe)?;
        a.mov(ecx, 2 * ROUNDS as u32)?;
        a.set_label(&mut again)?;
        a.mov(eax, dword_ptr(esi).gs())?;
        a.cmp(ecx, ROUNDS as u32 + 1)?;
        a.cmove(esi, edi)?;
        a.cmova(edx, eax)?;
        a.dec(ecx)?;
        a.jne(again)?;
        a.hlt()
    });
    machine.regs().segment_mut(SegmentRegister::Gs).base = LAST_PAGE;
    machine.run();
    assert_eq!(machine.regs().gpr[2], 0x0807_0605);
    let statistics = machine.cpu.statistics();
    assert!((ROUNDS - FIRST_TIMES..=ROUNDS).contains(&statistics.crossings), "{statistics:?}");
    assert!(statistics.interpreted >= ROUNDS, "{statistics:?}");
}

/// A second page with code that is executed between the stores into it.
#[test]
fn code_in_the_second_page_may_change() {
    let function = BOUNDARY;
    let mut machine = long_mode(false);
    machine.assemble(64, place::CODE, |a| {
        a.mov(r8, function)?;
        a.xor(esi, esi)?;
        repeated(a, ROUNDS, |a| {
            // mov eax, imm32; the constant is at BOUNDARY + 1, the low byte of RCX.
            a.mov(rdx, 0xb8_0000_0000u64)?;
            a.mov(rdi, rcx)?;
            a.shl(rdi, 40)?;
            a.or(rdx, rdi)?;
            a.mov(qword_ptr(rbx + 1), rdx)?;
            a.call(r8)?;
            a.add(rsi, rax)
        })
    });
    machine.write(function, &[0xb8, 0, 0, 0, 0, 0xc3]);
    machine.run();
    let sum: u64 = (1..=ROUNDS).sum();
    assert_eq!(machine.regs().gpr[6], sum);
}

/// The second page is a device's, in one round of many.
#[test]
fn a_device_in_the_second_page_is_asked() {
    let mut machine = long_mode(false);
    machine.write_u64(place::PAGES + 0x3000 + 8 * (BOUNDARY >> 12), super::RAM_BYTES as u64 | 3);
    let elsewhere = place::DATA + 0x3ffb;
    machine.assemble(64, place::CODE, |a| {
        let mut again = a.create_label();
        a.mov(rbx, elsewhere)?;
        a.mov(rcx, ROUNDS)?;
        a.set_label(&mut again)?;
        a.mov(qword_ptr(rbx), rcx)?;
        a.dec(rcx)?;
        a.jne(again)?;
        a.inc(rdx)?;
        a.mov(rbx, BOUNDARY - 5)?;
        a.inc(rcx)?;
        a.cmp(rdx, 2)?;
        a.jne(again)?;
        a.hlt()
    });
    let exit = machine.exit();
    assert_eq!(exit, Exit::MmioWrite { address: super::RAM_BYTES as u64, size: 2, value: 0 });
    assert!(machine.cpu.statistics().crossings > ROUNDS / 2);
}

/// One processor stores across the boundary, another counts in the bytes to either side.
#[test]
fn a_neighbour_s_bytes_are_not_written() {
    const OTHER_CODE: u64 = place::CODE + 0x4000;
    const COUNT: u64 = 20_000;
    let mut machine = long_mode(false);
    machine.assemble(64, place::CODE, |a| {
        repeated(a, COUNT, |a| {
            a.mov(qword_ptr(rbx), rcx)?;
            a.add(qword_ptr(rbx + rdx), 1)
        })
    });
    machine.assemble(64, OTHER_CODE, |a| {
        repeated(a, COUNT, |a| {
            a.inc(byte_ptr(BOUNDARY - 6))?;
            a.inc(byte_ptr(BOUNDARY + 3))
        })
    });
    let mut other = machine.another(OTHER_CODE, place::STACK + 0x1000);
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(other.run().unwrap(), Exit::Halt));
        machine.run();
    });
    for at in [BOUNDARY - 6, BOUNDARY + 3] {
        assert_eq!(machine.read::<1>(at)[0], COUNT as u8, "at {at:#x}");
    }
    assert!(machine.cpu.statistics().crossings > COUNT);
}
