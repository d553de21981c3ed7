//! What blocks are helped with, and what they do with CPUID by themselves (translate/assist.rs,
//! cpuid.rs): the same as the interpreter does, without the run loop.

use iced_x86::IcedError;
use iced_x86::code_asm::*;

use super::mirror::{GLOBAL, TABLE, check_upper, entry_of};
use super::returns::like_a_kernel;
use super::{Machine, check_long, place, selector};
use crate::state::{cr4, rflags};

fn nothing(_: &mut Machine) {}

/// Whether blocks were helped as often as that, with hardly anything left to the interpreter: only if
/// the machine translates.
fn check_helped(machine: &Machine, least: u64) {
    let statistics = machine.cpu.statistics();
    if !machine.cpu.arch.config.interpret_only {
        // Where there is a mirror, accesses to the lower half are interpreted once.
        let most = 20 + statistics.mirror_exceptions;
        let helped = statistics.assisted;
        assert!(helped >= least && statistics.interpreted < most, "{least}: {statistics:?}");
    }
}

/// Page tables under which a page of code is another one.
const OTHER_ROOT: u64 = place::PAGES + 0xb000;
const OTHER_CODE: u64 = place::DATA + 0x4000;

/// Have page tables at [`OTHER_ROOT`] that differ from the machine's in the page of its code, which is
/// a copy of it there: both written by `program`, which is told where it is.
fn with_other_code(
    machine: &mut Machine,
    program: impl Fn(&mut CodeAssembler, bool) -> Result<(), IcedError>,
) {
    let tables = [OTHER_ROOT, OTHER_ROOT + 0x1000, OTHER_ROOT + 0x2000, OTHER_ROOT + 0x3000];
    for (level, &table) in tables.iter().enumerate() {
        let bytes: [u8; 0x1000] = machine.read(place::PAGES + 0x1000 * level as u64);
        machine.write(table, &bytes);
        if let Some(next) = tables.get(level + 1) {
            machine.write_u64(table, next | 7);
        }
    }
    machine.write_u64(tables[3] + 8 * (place::CODE >> 12), OTHER_CODE | 3);
    for (at, is_other) in [(place::CODE, false), (OTHER_CODE, true)] {
        let mut assembler = CodeAssembler::new(64).expect("a valid bitness");
        program(&mut assembler, is_other).expect("operands fit the instructions");
        let bytes = assembler.assemble(place::CODE).expect("labels are in reach");
        machine.write(at, &bytes);
    }
}

/// Twenty times: to the other code, which goes back.
fn there_and_back(a: &mut CodeAssembler, is_other: bool) -> Result<(), IcedError> {
    let mut again = a.create_label();
    a.set_label(&mut again)?;
    a.mov(rax, if is_other { r8 } else { r9 })?;
    a.mov(cr3, rax)?;
    // What is next depends on what CR3 is now.
    a.add(r10, if is_other { 1 } else { 1000 })?;
    a.dec(ecx)?;
    a.jnz(again)?;
    a.hlt()
}

#[test]
fn the_instruction_after_a_load_of_cr3_is_that_of_the_new_page_tables() {
    for (identified, keep) in [(false, 0), (true, 0), (true, 1 << 63)] {
        check_long(
            |machine| {
                with_other_code(machine, there_and_back);
                let regs = machine.regs();
                regs.cr4 |= if identified { cr4::PCIDE } else { 0 };
                let pcid = u64::from(identified);
                regs.gpr[8] = place::PAGES | keep;
                regs.gpr[9] = OTHER_ROOT | pcid | keep;
                regs.gpr[1] = 20;
                machine.cpu.arch.flush_tlb(crate::memory::Flush::All);
            },
            |a| a.nop(),
            |machine| {
                assert_eq!(machine.regs().gpr[10], 10 * 1001);
                assert_eq!(machine.regs().cr3, place::PAGES);
                check_helped(machine, 10);
            },
        );
    }
}

#[test]
fn the_instruction_after_invlpg_is_that_of_the_new_page() {
    let entry = place::PAGES + 0x3000 + 8 * (place::CODE >> 12);
    let program = |a: &mut CodeAssembler, is_other: bool| {
        let mut again = a.create_label();
        a.set_label(&mut again)?;
        a.mov(rax, (if is_other { place::CODE } else { OTHER_CODE }) | 3)?;
        a.mov(qword_ptr(entry), rax)?;
        a.invlpg(ptr(place::CODE))?;
        a.add(r10, if is_other { 1 } else { 1000 })?;
        a.dec(ecx)?;
        a.jnz(again)?;
        a.hlt()
    };
    check_long(
        |machine| {
            with_other_code(machine, program);
            machine.regs().gpr[1] = 20;
        },
        |a| a.nop(),
        |machine| {
            assert_eq!(machine.regs().gpr[10], 10 * 1001);
            check_helped(machine, 10);
        },
    );
}

#[test]
fn a_load_of_cr3_that_is_refused_changes_nothing() {
    for value in [1u64 << 63, 1 << 52, u64::MAX] {
        check_long(
            nothing,
            |a| {
                a.mov(ebx, 7)?;
                a.mov(rax, value)?;
                a.mov(cr3, rax)?;
                a.mov(ebx, 8)?;
                a.hlt()
            },
            |machine| {
                assert_eq!(machine.read::<1>(place::DATA)[0], 13, "{value:#x}");
                assert_eq!(machine.regs().gpr[3], 7);
                assert_eq!(machine.regs().cr3, place::PAGES);
            },
        );
    }
}

#[test]
fn model_specific_registers_are_read_and_written() {
    const LSTAR: i32 = 0xc000_0082u32 as i32;
    check_long(
        nothing,
        |a| {
            let mut again = a.create_label();
            a.mov(esi, 20)?;
            a.set_label(&mut again)?;
            a.mov(ecx, LSTAR)?;
            a.mov(eax, esi)?;
            a.mov(edx, -1)?;
            a.wrmsr()?;
            a.xor(eax, eax)?;
            a.rdmsr()?;
            a.add(rbx, rax)?;
            a.dec(esi)?;
            a.jnz(again)?;
            // Not canonical.
            a.mov(edx, 0x1000_0000)?;
            a.wrmsr()?;
            a.hlt()
        },
        |machine| {
            assert_eq!(machine.regs().gpr[3], 210);
            assert_eq!(machine.read::<1>(place::DATA)[0], 13);
            check_helped(machine, 40);
        },
    );
}

/// System calls are switched off by what a block is helped with: the next one is not translated as if
/// they were on.
#[test]
fn what_a_write_to_efer_changes_counts_for_the_next_instruction() {
    const EFER: i32 = 0xc000_0080u32 as i32;
    check_long(
        like_a_kernel,
        |a| {
            let mut next = a.create_label();
            a.mov(ecx, EFER)?;
            a.rdmsr()?;
            a.and(al, -2)?;
            a.wrmsr()?;
            a.jmp(next)?;
            a.set_label(&mut next)?;
            a.sysretq()?;
            a.hlt()
        },
        |machine| assert_eq!(machine.read::<1>(place::DATA)[0], 6),
    );
}

#[test]
fn data_segments_are_loaded_and_taken_away_from_user_code() {
    check_long(
        |machine| {
            like_a_kernel(machine);
            machine.assemble(64, place::CODE + 0x800, |a| {
                let mut done = a.create_label();
                a.mov(rsp, place::STACK)?;
                a.dec(r12)?;
                a.jz(done)?;
                a.jmp(place::CODE)?;
                a.set_label(&mut done)?;
                a.hlt()
            });
            machine.assemble(64, place::USER_CODE, |a| {
                a.mov(r14d, ds)?;
                a.mov(r15d, es)?;
                a.lea(r13, ptr(r13 + r14))?;
                a.syscall()
            });
            machine.regs().gpr[12] = 20;
        },
        |a| {
            a.mov(eax, i32::from(selector::DATA))?;
            a.mov(ds, eax)?;
            a.mov(edx, i32::from(selector::USER_DATA))?;
            a.mov(es, edx)?;
            a.mov(ebx, ds)?;
            a.push(i32::from(selector::USER_DATA))?;
            a.push(0x30_0000)?;
            a.push(0x202)?;
            a.push(i32::from(selector::USER_CODE_64))?;
            a.push(place::USER_CODE as i32)?;
            a.iretq()
        },
        |machine| {
            let gpr = machine.regs().gpr;
            assert_eq!(gpr[3], u64::from(selector::DATA), "the kernel has it");
            assert_eq!((gpr[13], gpr[15]), (0, u64::from(selector::USER_DATA)), "users have not");
            assert!(
                machine.cpu.arch.config.interpret_only || machine.cpu.statistics().assisted >= 40
            );
        },
    );
}

#[test]
fn cpuid_is_answered_in_place() {
    check_long(
        nothing,
        |a| {
            let mut again = a.create_label();
            a.mov(rsi, place::DATA + 0x100)?;
            a.mov(r8d, 200)?;
            a.set_label(&mut again)?;
            for (number, (leaf, subleaf)) in QUESTIONS.into_iter().enumerate() {
                a.mov(rax, u64::from(leaf) | 0x7777 << 32)?;
                a.mov(rcx, u64::from(subleaf) | 0x8888 << 32)?;
                a.stc()?;
                a.cpuid()?;
                a.adc(r9, 0)?;
                for (place, register) in [rax, rbx, rcx, rdx].into_iter().enumerate() {
                    a.mov(qword_ptr(rsi + (32 * number + 8 * place) as i32), register)?;
                }
            }
            a.dec(r8d)?;
            a.jnz(again)?;
            a.hlt()
        },
        |machine| {
            for (number, (leaf, subleaf)) in QUESTIONS.into_iter().enumerate() {
                let expected = machine.cpu.arch.cpuid(leaf, subleaf).map(u64::from);
                let place = place::DATA + 0x100 + 32 * number as u64;
                let got = [0, 8, 16, 24].map(|part| machine.read_u64(place + part));
                assert_eq!(got, expected, "{leaf:#x} {subleaf:#x}");
            }
            assert_eq!(machine.regs().gpr[9], 200 * QUESTIONS.len() as u64, "flags are left");
            let statistics = machine.cpu.statistics();
            if !machine.cpu.arch.config.interpret_only {
                // All but the first time round, and less where two have one line.
                assert!(statistics.answered > 150 * QUESTIONS.len() as u64, "{statistics:?}");
                check_helped(machine, 1);
            }
        },
    );
}

const QUESTIONS: [(u32, u32); 9] = [
    (0, 0),
    (1, 0xffff_fff2),
    (7, 0),
    (7, 1),
    (0xd, 0),
    (0xd, 1),
    (0xd, 2),
    (0x8000_0000, 0x1234_5678),
    (0x4000_0010, 5),
];

#[test]
fn what_cpuid_says_changes_with_cr4_and_xcr0() {
    // Leaf 1, ECX bit 27 is CR4.OSXSAVE; leaf 0xd, EBX is the size for XCR0.
    check_long(
        nothing,
        |a| {
            let mut again = a.create_label();
            a.mov(esi, 10)?;
            a.set_label(&mut again)?;
            for change in [false, true] {
                a.mov(eax, 1)?;
                a.cpuid()?;
                a.shr(ecx, 27)?;
                a.and(ecx, 1)?;
                a.lea(r8, ptr(r8 + rcx))?;
                a.mov(rax, cr4)?;
                a.btc(rax, 18)?;
                a.mov(cr4, rax)?;
                _ = change;
            }
            for components in [1, 7] {
                a.mov(eax, components)?;
                a.xor(edx, edx)?;
                a.xor(ecx, ecx)?;
                a.xsetbv()?;
                a.mov(eax, 0xd)?;
                a.cpuid()?;
                a.mov(if components == 1 { r9 } else { r10 }, rbx)?;
            }
            a.dec(esi)?;
            a.jnz(again)?;
            a.hlt()
        },
        |machine| {
            let gpr = machine.regs().gpr;
            assert_eq!((gpr[8], gpr[9]), (10, 576));
            assert!(gpr[10] > 576, "{}", gpr[10]);
        },
    );
}

/// Page faults of a kernel that has opened its users' memory return to where AC is set.
#[test]
fn returns_to_kernel_code_that_may_access_user_memory_keep_it_so() {
    check_upper(
        |machine| {
            like_a_kernel(machine);
            machine.regs().cr4 |= cr4::SMAP;
            // The handler of page faults: mends the pointer; AC is clear meanwhile.
            let handler = super::mirror::UPPER + place::CODE + 0x400;
            machine.long_gate(14, handler, 0, 0);
            machine.assemble(64, place::CODE + 0x400, |a| {
                a.clac()?;
                a.mov(edi, place::USER_CODE as i32)?;
                a.inc(r15)?;
                a.add(rsp, 8)?;
                a.iretq()
            });
        },
        |a| {
            let mut again = a.create_label();
            a.mov(ecx, 50)?;
            a.set_label(&mut again)?;
            a.mov(edi, place::HOLE as i32)?;
            a.stac()?;
            a.add(dword_ptr(rdi), 1)?;
            a.pushfq()?;
            a.pop(rbp)?;
            a.clac()?;
            a.dec(ecx)?;
            a.jnz(again)?;
            // And without: the user's memory is closed.
            a.xor(r15d, r15d)?;
            a.mov(edi, place::USER_CODE as i32)?;
            a.hlt()
        },
        |machine| {
            assert_eq!(machine.read_u32(place::USER_CODE), 50);
            let flags = machine.regs().gpr[5];
            assert_eq!(flags & (rflags::AC | rflags::RF), rflags::AC);
            assert_eq!(machine.regs().alignment_flag, 0);
            let statistics = machine.cpu.statistics();
            assert!(statistics.interpreted < 10, "{statistics:?}");
        },
    );
}

#[test]
fn a_fault_of_a_repeated_instruction_comes_after_what_was_done() {
    // The first page of both is there; of the second, neither.
    let (from, to) = (place::HOLE - 24, place::HOLE - 16);
    for (program, count, fault) in [(true, 2u64, place::HOLE), (false, 3, place::HOLE)] {
        check_long(
            |machine| {
                let regs = machine.regs();
                (regs.gpr[6], regs.gpr[7], regs.gpr[1]) = (from, to, 10);
                if !program {
                    regs.gpr[7] = place::HOLE - 24;
                }
            },
            |a| {
                if program {
                    a.rep().movsq()?
                } else {
                    a.rep().stosq()?
                }
                a.hlt()
            },
            |machine| {
                assert_eq!(machine.read::<1>(place::DATA)[0], 14);
                assert_eq!(machine.regs().cr2, fault);
                assert_eq!(machine.regs().gpr[1], 10 - count);
                assert_eq!(machine.regs().gpr[7], fault);
                check_helped(machine, 0);
            },
        );
    }
    // Reading faults before writing does, and nothing faults where nothing is to be done.
    for (count, vector) in [(1, 14), (0, 0)] {
        check_long(
            |machine| {
                let regs = machine.regs();
                let holes = (place::HOLE + 0x1000, place::HOLE);
                (regs.gpr[6], regs.gpr[7], regs.gpr[1]) = (holes.0, holes.1, count);
            },
            |a| {
                a.rep().movsb()?;
                a.hlt()
            },
            |machine| {
                assert_eq!(machine.read::<1>(place::DATA)[0], vector);
                let expected = if vector == 14 { place::HOLE + 0x1000 } else { 0 };
                assert_eq!(machine.regs().cr2, expected);
            },
        );
    }
}

#[test]
fn elements_that_cross_pages_are_copied_on_the_way() {
    check_long(
        |machine| {
            let bytes: Vec<u8> = (0..0x3000u32).map(|n| (n * 7) as u8).collect();
            machine.write(place::USER_CODE, &bytes);
        },
        |a| {
            let mut again = a.create_label();
            a.mov(r8d, 10)?;
            a.set_label(&mut again)?;
            a.mov(rsi, place::USER_CODE + 3)?;
            a.mov(rdi, place::USER_CODE + 0x1_0005)?;
            a.mov(ecx, 0x500)?;
            a.rep().movsq()?;
            a.movsq()?;
            a.lodsb()?;
            a.dec(r8d)?;
            a.jnz(again)?;
            a.hlt()
        },
        |machine| {
            let copy: [u8; 0x2808] = machine.read(place::USER_CODE + 0x1_0005);
            assert!(copy == machine.read::<0x2808>(place::USER_CODE + 3));
            assert_eq!(machine.regs().gpr[6], place::USER_CODE + 3 + 0x2808 + 1);
            check_helped(machine, 20);
        },
    );
}

#[test]
fn stores_beside_code_are_made_on_the_way() {
    // The program counts in its own page, and changes an instruction that comes right after.
    check_long(
        nothing,
        |a| {
            let mut again = a.create_label();
            a.mov(rsi, place::CODE)?;
            a.mov(ecx, 20)?;
            a.set_label(&mut again)?;
            a.mov(qword_ptr(rsi + 0x800), rcx)?;
            a.mov(word_ptr(rsi + 0x808), 0x1234)?;
            a.mov(byte_ptr(rsi + 0x80a), ch)?;
            a.dec(ecx)?;
            a.jnz(again)?;
            // mov byte [rip + 1], 7; mov ebx, 1: the store is 7 bytes long.
            a.db(&[0xc6, 0x05, 1, 0, 0, 0, 7, 0xbb, 1, 0, 0, 0])?;
            a.hlt()
        },
        |machine| {
            assert_eq!(machine.regs().gpr[3], 7, "the new instruction is executed");
            assert_eq!(machine.read_u64(place::CODE + 0x800), 1);
            assert_eq!(machine.read_u64(place::CODE + 0x808), 0x1234);
            check_helped(machine, 40);
        },
    );
}

#[test]
fn single_steps_stop_after_what_blocks_do_by_themselves() {
    check_long(
        |machine| {
            machine.long_gate(1, place::CODE + 0x400, 0, 0);
            machine.assemble(64, place::CODE + 0x400, |a| {
                a.inc(r15)?;
                a.iretq()
            });
        },
        |a| {
            let mut again = a.create_label();
            a.mov(esi, 5)?;
            a.set_label(&mut again)?;
            // Untraced, so that there are blocks; then traced.
            for traced in [false, true] {
                if traced {
                    a.pushfq()?;
                    a.or(dword_ptr(rsp), 0x100)?;
                    a.popfq()?;
                }
                a.xor(eax, eax)?;
                a.cpuid()?;
                a.mov(rax, cr3)?;
                a.mov(cr3, rax)?;
                a.invlpg(ptr(rsp))?;
                if traced {
                    a.pushfq()?;
                    a.and(dword_ptr(rsp), !0x100)?;
                    a.popfq()?;
                }
            }
            a.dec(esi)?;
            a.jnz(again)?;
            a.hlt()
        },
        // Each of eight instructions: those between the `popfq`s, and the last `popfq`.
        |machine| assert_eq!(machine.regs().gpr[15], 5 * 8),
    );
}

/// A kernel that has local pages sees them change with each load of CR3, in blocks.
#[test]
fn local_pages_change_with_each_switch_in_a_block() {
    check_upper(
        |machine| {
            machine.write_u64(place::DATA + 0x1000, 1);
            machine.write_u64(place::DATA + 0x2000, 100);
            machine.write_u64(entry_of(place::DATA + 0x1000), (place::DATA + 0x1000) | 3);
        },
        |a| {
            let mut again = a.create_label();
            a.mov(r9, (place::DATA + 0x1000) | 3)?;
            a.mov(r10, (place::DATA + 0x2000) | 3)?;
            a.mov(ecx, 20)?;
            a.set_label(&mut again)?;
            a.add(r8, qword_ptr(rbx + 0x1000))?;
            a.xchg(r9, r10)?;
            a.mov(qword_ptr(TABLE + 8 * ((place::DATA + 0x1000) >> 12)), r9)?;
            a.mov(rax, cr3)?;
            a.mov(cr3, rax)?;
            a.dec(ecx)?;
            a.jnz(again)?;
            a.hlt()
        },
        |machine| {
            assert_eq!(machine.regs().gpr[8], 10 * 101);
            assert_ne!(machine.read_u64(entry_of(place::DATA)) & GLOBAL, 0);
            check_helped(machine, 20);
        },
    );
}
