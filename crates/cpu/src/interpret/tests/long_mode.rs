//! 64-bit programs: stack, control flow, strings, segments, system registers.

use iced_x86::code_asm::*;

use super::{check_long, place, selector};
use crate::exit::Exit;
use crate::state::rflags;

fn nothing(_: &mut super::Machine) {}

#[test]
fn calls_push_return_addresses_and_returns_release_parameters() {
    check_long(
        nothing,
        |a| {
            let mut function = a.create_label();
            a.push(7)?;
            a.push(8)?;
            a.call(function)?;
            a.mov(rbx, rsp)?;
            a.hlt()?;
            a.set_label(&mut function)?;
            a.mov(rax, qword_ptr(rsp + 8))?;
            a.add(rax, qword_ptr(rsp + 16))?;
            a.ret_1(16)
        },
        |machine| {
            assert_eq!(machine.regs().gpr[0], 15);
            assert_eq!(machine.regs().gpr[3], place::STACK);
        },
    );
}

#[test]
fn enter_and_leave_make_and_drop_a_frame() {
    check_long(
        nothing,
        |a| {
            a.mov(rbp, 0x1234u64)?;
            a.enter(32, 0)?;
            a.mov(rax, rbp)?;
            a.mov(rcx, rsp)?;
            a.leave()?;
            a.hlt()
        },
        |machine| {
            let gpr = machine.regs().gpr;
            assert_eq!((gpr[0], gpr[1]), (place::STACK - 8, place::STACK - 40));
            assert_eq!((gpr[5], gpr[4]), (0x1234, place::STACK));
        },
    );
}

#[test]
fn loops_count_and_test() {
    check_long(
        nothing,
        |a| {
            let mut again = a.create_label();
            let mut out = a.create_label();
            a.xor(eax, eax)?;
            a.mov(ecx, 5)?;
            a.set_label(&mut again)?;
            a.add(eax, ecx)?;
            a.loop_(again)?;
            a.jrcxz(out)?;
            a.ud2()?;
            a.set_label(&mut out)?;
            a.hlt()
        },
        |machine| assert_eq!((machine.regs().gpr[0], machine.regs().gpr[1]), (15, 0)),
    );
}

#[test]
fn repeated_moves_cross_pages() {
    let bytes: Vec<u8> = (0..10_000u32).map(|n| (n * 7 + n / 256) as u8).collect();
    check_long(
        |machine| machine.write(place::DATA + 3, &bytes),
        |a| {
            a.mov(rsi, place::DATA + 3)?;
            a.mov(rdi, place::DATA + 0x8ffd)?;
            a.mov(ecx, 10_000)?;
            a.rep().movsb()?;
            a.hlt()
        },
        |machine| {
            assert_eq!(machine.read::<10_000>(place::DATA + 0x8ffd)[..], bytes[..]);
            let gpr = machine.regs().gpr;
            assert_eq!(gpr[1], 0);
            assert_eq!(gpr[6], place::DATA + 3 + 10_000);
            assert_eq!(gpr[7], place::DATA + 0x8ffd + 10_000);
        },
    );
}

/// As the dynamic linker does it.
#[test]
fn single_moves_are_translated() {
    const ROUNDS: u64 = 700;
    let bytes: Vec<u8> = (0..15 * ROUNDS as u32).map(|n| (n * 7 + n / 256) as u8).collect();
    check_long(
        |machine| machine.write(place::DATA, &bytes),
        |a| {
            let mut again = a.create_label();
            a.mov(rax, 0x1122_3344_5566_7788u64)?;
            a.mov(rsi, place::DATA)?;
            a.mov(rdi, place::DATA + 0x8000)?;
            a.mov(ecx, ROUNDS as u32)?;
            a.set_label(&mut again)?;
            a.movsq()?;
            a.movsd()?;
            a.movsw()?;
            a.movsb()?;
            a.stosb()?;
            a.stosw()?;
            a.stosd()?;
            a.stosq()?;
            a.dec(ecx)?;
            a.jne(again)?;
            a.hlt()
        },
        |machine| {
            for (round, moved) in bytes.chunks(15).enumerate() {
                let found = machine.read::<30>(place::DATA + 0x8000 + 30 * round as u64);
                assert_eq!(found[..15], *moved, "round {round}");
                let stored = [0x88, 0x88, 0x77, 0x88, 0x77, 0x66, 0x55];
                assert_eq!(found[15..22], stored, "round {round}");
                assert_eq!(found[22..], 0x1122_3344_5566_7788u64.to_le_bytes(), "round {round}");
            }
            let gpr = machine.regs().gpr;
            assert_eq!(
                (gpr[6], gpr[7]),
                (place::DATA + 15 * ROUNDS, place::DATA + 0x8000 + 30 * ROUNDS,)
            );
            // Elements that cross a page are the interpreter's.
            let interpreted = machine.cpu.statistics().interpreted;
            assert!(machine.cpu.arch.config.interpret_only || interpreted < 50, "{interpreted}");
        },
    );
}

/// Which would take half a second for each MiB, one at a time.
#[test]
fn repetitions_far_from_a_breakpoint_are_done_at_once() {
    check_long(
        |machine| {
            let regs = machine.regs();
            regs.dr[0] = place::DATA + 20_000;
            regs.dr[7] = 0x1_0401; // DR0, writes
        },
        |a| {
            a.mov(rdi, place::DATA)?;
            a.mov(ecx, 10_000)?;
            a.rep().stosb()?;
            a.hlt()
        },
        |machine| {
            assert_eq!(machine.regs().gpr[1], 0);
            let steps = machine.cpu.arch.statistics.interpreted;
            assert!((4..100).contains(&steps), "{steps} steps");
        },
    );
}

#[test]
fn overlapping_moves_repeat_what_they_wrote() {
    check_long(
        |machine| machine.write(place::DATA, b"abc"),
        |a| {
            a.mov(rsi, place::DATA)?;
            a.mov(rdi, place::DATA + 3)?;
            a.mov(ecx, 9)?;
            a.rep().movsb()?;
            a.hlt()
        },
        |machine| assert_eq!(&machine.read::<12>(place::DATA), b"abcabcabcabc"),
    );
}

#[test]
fn backward_moves_and_stores() {
    check_long(
        |machine| machine.write(place::DATA, b"12345678"),
        |a| {
            a.std()?;
            a.mov(rsi, place::DATA + 7)?;
            a.mov(rdi, place::DATA + 9)?;
            a.mov(ecx, 8)?;
            a.rep().movsb()?;
            a.cld()?;
            a.mov(al, 0x2a)?;
            a.mov(rdi, place::DATA)?;
            a.mov(ecx, 2)?;
            a.rep().stosb()?;
            a.hlt()
        },
        |machine| assert_eq!(&machine.read::<10>(place::DATA), b"**12345678"),
    );
}

#[test]
fn scans_and_comparisons_stop_where_they_should() {
    check_long(
        |machine| {
            machine.write(place::DATA, b"hello, world\0");
            machine.write(place::DATA + 0x100, b"hello, there\0");
        },
        |a| {
            a.mov(rdi, place::DATA)?;
            a.xor(eax, eax)?;
            a.mov(rcx, -1i64)?;
            a.repne().scasb()?;
            a.mov(rbx, rdi)?;
            a.mov(rsi, place::DATA)?;
            a.mov(rdi, place::DATA + 0x100)?;
            a.mov(ecx, 13)?;
            a.repe().cmpsb()?;
            a.mov(rdx, rsi)?;
            a.hlt()
        },
        |machine| {
            let gpr = machine.regs().gpr;
            assert_eq!(gpr[3], place::DATA + 13);
            assert_eq!((gpr[2], gpr[1]), (place::DATA + 8, 5));
            let flags = machine.regs().rflags();
            // 'w' - 't' is positive.
            assert_eq!(flags & (rflags::ZF | rflags::CF | rflags::SF), 0);
        },
    );
}

#[test]
fn a_fault_in_a_repeated_store_leaves_the_registers_where_it_happened() {
    check_long(
        nothing,
        |a| {
            a.mov(rdi, place::HOLE - 16)?;
            a.mov(ecx, 10)?;
            a.mov(rax, 0x0101_0101_0101_0101u64)?;
            a.rep().stosq()?;
            a.hlt()
        },
        |machine| {
            assert_eq!(machine.read::<1>(place::DATA)[0], 14);
            assert_eq!(machine.read_u64(place::DATA + 8), 2);
            let regs = *machine.regs();
            assert_eq!(regs.cr2, place::HOLE);
            assert_eq!((regs.gpr[1], regs.gpr[7]), (8, place::HOLE));
            assert_eq!(machine.read_u64(place::HOLE - 8), 0x0101_0101_0101_0101);
        },
    );
}

#[test]
fn segment_registers_and_bases() {
    check_long(
        |machine| machine.write_u64(place::DATA + 0x20, 99),
        |a| {
            a.mov(eax, 0)?;
            a.mov(gs, eax)?;
            a.mov(ecx, 0xc000_0101u32)?;
            a.mov(eax, place::DATA as u32)?;
            a.xor(edx, edx)?;
            a.wrmsr()?;
            a.mov(rbx, qword_ptr(0x20).gs())?;
            a.mov(rsi, 0x1111u64)?;
            a.wrfsbase(rsi)?;
            a.swapgs()?;
            a.rdgsbase(rdi)?;
            a.swapgs()?;
            a.rdgsbase(rbp)?;
            a.mov(eax, u32::from(selector::USER_DATA))?;
            a.mov(es, eax)?;
            a.mov(r8d, es)?;
            a.hlt()
        },
        |machine| {
            let regs = *machine.regs();
            assert_eq!(regs.gpr[3], 99);
            assert_eq!((regs.gpr[7], regs.gpr[5]), (0, place::DATA));
            assert_eq!(regs.segments[4].base, 0x1111);
            assert_eq!(regs.gpr[8], u64::from(selector::USER_DATA));
        },
    );
}

#[test]
fn unknown_registers_fault_and_known_ones_hold_values() {
    check_long(
        nothing,
        |a| {
            a.mov(ecx, 0xc000_0082u32)?;
            a.mov(eax, 0x1234_5678)?;
            a.mov(edx, 0xffff_ffffu32)?;
            a.wrmsr()?;
            a.xor(eax, eax)?;
            a.rdmsr()?;
            a.mov(ebx, eax)?;
            a.mov(ecx, 0x1234_5678)?;
            a.rdmsr()?;
            a.hlt()
        },
        |machine| {
            assert_eq!(machine.regs().gpr[3], 0x1234_5678);
            assert_eq!(machine.regs().lstar, 0xffff_ffff_1234_5678);
            assert_eq!(machine.read::<1>(place::DATA)[0], 13);
        },
    );
}

#[test]
fn the_time_stamp_counter_can_be_set() {
    check_long(
        nothing,
        |a| {
            a.mov(ecx, 0x10)?;
            a.xor(eax, eax)?;
            a.mov(edx, 0x100)?;
            a.wrmsr()?;
            a.rdtsc()?;
            a.hlt()
        },
        |machine| assert_eq!(machine.regs().gpr[2], 0x100),
    );
}

#[test]
fn control_register_changes_are_checked() {
    // Clearing PAE in long mode is #GP.
    check_long(
        nothing,
        |a| {
            a.mov(rax, cr4)?;
            a.and(al, !0x20i32)?;
            a.mov(cr4, rax)?;
            a.hlt()
        },
        |machine| assert_eq!(machine.read::<1>(place::DATA)[0], 13),
    );
}

#[test]
fn flags_move_through_the_stack() {
    check_long(
        nothing,
        |a| {
            a.push(0x246 | 0xcd7)?;
            a.popfq()?;
            a.pushfq()?;
            a.pop(rax)?;
            a.cld()?;
            a.cli()?;
            a.hlt()
        },
        |machine| {
            let flags = machine.regs().gpr[0];
            let wanted = rflags::STATUS | rflags::IF | rflags::DF;
            assert_eq!(flags & (wanted | rflags::TF), wanted);
        },
    );
}

#[test]
fn calls_to_the_hypervisor_leave_and_are_answered() {
    for interpret_only in [true, false] {
        let mut machine = super::long_mode(interpret_only);
        machine.assemble(64, place::CODE, |a| {
            a.mov(eax, 5)?;
            a.mov(ebx, 1)?;
            a.mov(ecx, 2)?;
            a.mov(edx, 3)?;
            a.mov(esi, 4)?;
            a.vmcall()?;
            a.vmmcall()?;
            a.hlt()
        });
        let call = |number| Exit::Hypercall { number, arguments: [1, 2, 3, 4] };
        assert_eq!(machine.exit(), call(5));
        machine.cpu.complete_read(6);
        assert_eq!(machine.exit(), call(6));
        machine.cpu.complete_read(u64::MAX);
        machine.run();
        assert_eq!(machine.regs().gpr[0], u64::MAX);
    }
}

#[test]
fn near_branches_to_addresses_that_are_not_canonical_fault_where_they_are() {
    type Program = fn(&mut CodeAssembler) -> Result<(), iced_x86::IcedError>;
    let programs: [(Program, u64, u64); 5] = [
        (|a| a.jmp(rax), 0, 10),
        (|a| a.jmp(qword_ptr(place::DATA + 0x20)), 0, 10),
        (|a| a.call(rax), 0, 10),
        (
            |a| {
                a.push(rax)?;
                a.ret()
            },
            8,
            11,
        ),
        (
            |a| {
                a.push(rax)?;
                a.ret_1(24)
            },
            8,
            11,
        ),
    ];
    for (program, pushed, place) in programs {
        check_long(
            |machine| machine.write_u64(place::DATA + 0x20, 1 << 47),
            |a| {
                a.mov(rax, 1u64 << 47)?;
                program(a)
            },
            |machine| {
                assert_eq!(machine.read_u64(place::DATA) & 0xff, 13);
                let frame = machine.regs().gpr[4];
                assert_eq!(machine.read_u64(frame), place::CODE + place);
                assert_eq!(machine.read_u64(frame + 24), place::STACK - pushed);
            },
        );
    }
}

#[test]
fn a_direct_jump_out_of_the_canonical_addresses_faults_where_it_is() {
    let end = (1u64 << 47) - 0x1000;
    for (bytes, place) in [
        // `jmp`, `call`, `jc` (taken) over the end; and on to what comes after the end.
        (&[0xe9, 0, 0x10, 0, 0][..], 0xf00),
        (&[0xe8, 0, 0x10, 0, 0], 0xf00),
        (&[0x0f, 0x82, 0, 0x10, 0, 0], 0xf00),
        (&[0x90, 0x90], 0xffe),
    ] {
        check_long(
            |machine| {
                // The page before the end is the one at DATA.
                machine.write_u64(place::PAGES + 8 * 255, place::PAGES + 0x1007);
                machine.write_u64(place::PAGES + 0x1000 + 8 * 511, place::PAGES + 0x2007);
                machine.write_u64(place::PAGES + 0x2000 + 8 * 511, place::PAGES + 0x3003);
                machine.write_u64(place::PAGES + 0x3000 + 8 * 511, place::DATA & !0xfff | 3);
                machine.write(place::DATA & !0xfff | place, bytes);
            },
            |a| {
                a.mov(rax, end + place)?;
                a.stc()?;
                a.jmp(rax)
            },
            |machine| {
                assert_eq!(machine.read_u64(place::DATA) & 0xff, 13);
                let frame = machine.regs().gpr[4];
                let falls_through = bytes[0] == 0x90;
                let expected = if falls_through { 1 << 47 } else { end + place };
                assert_eq!(machine.read_u64(frame), expected, "{bytes:x?}");
                assert_eq!(machine.read_u64(frame + 24), place::STACK);
            },
        );
    }
}

/// An operand that begins in the last page and ends in the first. The last is not there, and an
/// empty entry of the TLB, which still knows the page that it was for, must not be taken for it.
#[test]
fn an_access_that_wraps_around_the_end_of_the_addresses_faults() {
    type Access = fn(&mut CodeAssembler, i64) -> Result<(), iced_x86::IcedError>;
    let accesses: [(Access, i64, u64); 6] = [
        (|a, at| a.mov(ax, word_ptr(at)), 2, 0),
        (|a, at| a.mov(eax, dword_ptr(at)), 4, 0),
        (|a, at| a.mov(rax, qword_ptr(at)), 8, 0),
        (|a, at| a.mov(qword_ptr(at), rax), 8, 2),
        (|a, at| a.movdqu(xmm0, xmmword_ptr(at)), 16, 0),
        (|a, at| a.movdqu(xmmword_ptr(at), xmm0), 16, 2),
    ];
    /// The page of the same entry.
    const PAGE: u64 = ((crate::memory::tlb::ENTRIES - 1) as u64) << 12;
    for (access, size, error) in accesses {
        for before in 1..=size {
            check_long(
                |machine| {
                    machine.write_u64(place::PAGES + 0x2000 + 8 * (PAGE >> 21), 0x20_0083);
                },
                |a| {
                    a.mov(rcx, qword_ptr(PAGE))?;
                    a.mov(qword_ptr(PAGE), rcx)?;
                    a.invlpg(byte_ptr(PAGE))?;
                    access(a, -before)
                },
                |machine| {
                    assert_eq!(machine.read::<1>(place::DATA)[0], 14, "{size} at -{before}");
                    assert_eq!(machine.read_u64(place::DATA + 8), error, "{size} at -{before}");
                    let address = machine.regs().cr2.wrapping_neg();
                    assert_eq!(address, before as u64, "{size} at -{before}");
                },
            );
        }
    }
}
