//! Kernel memory through the host's MMU (memory/mirror.rs): the promises of a TLB.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use iced_x86::code_asm::*;
use locks::Unpoisoned;

use super::{Machine, enter_long_mode, place, selector};
use crate::memory::place::BASE;
use crate::state::{cr4, rflags};

/// A process has one mirror, of which other tests' machines are not asked whether they need it.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Where the first 4 MiB are mapped a second time: the second 2 MiB as one large page.
pub(super) const UPPER: u64 = 0xffff_8880_0000_0000;

/// Page table of the first 2 MiB, and an entry in it for a page of DATA.
pub(super) const TABLE: u64 = place::PAGES + 0x5000;

pub(super) const GLOBAL: u64 = 0x100;

pub(super) fn entry_of(at: u64) -> u64 {
    TABLE + 8 * (at >> 12)
}

/// Run a program that is mapped, with its data and stack, in the upper half.
pub(super) fn check_upper(
    prepare: impl Fn(&mut Machine),
    program: impl Fn(&mut CodeAssembler) -> Result<(), iced_x86::IcedError>,
    verify: impl Fn(&mut Machine),
) {
    with_upper_half(|mut machine, base| {
        let mut assembler = CodeAssembler::new(64).expect("a valid bitness");
        program(&mut assembler).expect("operands fit the instructions");
        let bytes = assembler.assemble(base + place::CODE).expect("labels are in reach");
        machine.write(place::CODE, &bytes);
        prepare(&mut machine);
        machine.run();
        verify(&mut machine);
    });
}

/// Give a machine that is mapped in the upper half as well, and goes on there; and where that is.
/// RBX is at the data.
pub(super) fn with_upper_half(use_it: impl FnOnce(Machine, u64)) {
    let _one = ONE_AT_A_TIME.lock().unpoisoned();
    let mut machine = enter_long_mode(with_mirror());
    let index = |shift: u64| 8 * (UPPER >> shift & 0x1ff);
    machine.write_u64(place::PAGES + index(39), place::PAGES + 0x6007);
    machine.write_u64(place::PAGES + 0x6000 + index(30), place::PAGES + 0x7007);
    machine.write_u64(place::PAGES + 0x7000, TABLE | 3);
    machine.write_u64(place::PAGES + 0x7008, 0x20_0083 | GLOBAL);
    for page in 0..512 {
        machine.write_u64(TABLE + 8 * page, page << 12 | 3 | GLOBAL);
    }
    machine.regs().cr4 |= cr4::PGE;
    machine.regs().rip = UPPER + place::CODE;
    machine.regs().gpr[4] = UPPER + place::STACK;
    machine.regs().gpr[3] = UPPER + place::DATA;
    use_it(machine, UPPER);
}

/// A machine that has the mirror, as soon as no other has it.
fn with_mirror() -> Machine {
    const CLAIM_TIMEOUT: Duration = Duration::from_secs(300);
    let start = Instant::now();
    loop {
        let machine = Machine::in_memory();
        if machine.cpu.arch.group.mirror.is_some() {
            return machine;
        }
        assert!(start.elapsed() < CLAIM_TIMEOUT, "another test keeps the mirror");
        drop(machine);
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn nothing(_: &mut Machine) {}

#[test]
fn loads_stores_and_calls_reach_memory() {
    check_upper(
        nothing,
        |a| {
            let mut function = a.create_label();
            a.mov(rax, 0x1122_3344_5566_7788u64)?;
            a.mov(qword_ptr(rbx), rax)?;
            a.push(rax)?;
            a.call(function)?;
            a.pop(rcx)?;
            a.hlt()?;
            a.set_label(&mut function)?;
            a.mov(dl, byte_ptr(rbx + 3))?;
            a.xchg(qword_ptr(rbx + 8), rax)?;
            a.ret()
        },
        |machine| {
            assert_eq!(machine.read_u64(place::DATA), 0x1122_3344_5566_7788);
            assert_eq!(machine.read_u64(place::DATA + 8), 0x1122_3344_5566_7788);
            let gpr = machine.regs().gpr;
            assert_eq!((gpr[1], gpr[2] & 0xff), (0x1122_3344_5566_7788, 0x55));
            assert!(machine.cpu.arch.statistics.mirror_faults > 0, "the mirror was not used");
            assert_eq!(machine.cpu.arch.statistics.mirror_exceptions, 0);
        },
    );
}

#[test]
fn accessed_and_dirty_bits_are_set_by_the_access_that_says_so() {
    check_upper(
        nothing,
        |a| {
            a.mov(rax, qword_ptr(rbx))?;
            // The entry, read through the identity mapping of the tables.
            a.mov(rcx, qword_ptr(entry_of(place::DATA)))?;
            a.mov(qword_ptr(rbx), rax)?;
            a.mov(rdx, qword_ptr(entry_of(place::DATA)))?;
            a.hlt()
        },
        |machine| {
            let gpr = machine.regs().gpr;
            assert_eq!((gpr[1] & 0x60, gpr[2] & 0x60), (0x20, 0x60));
        },
    );
}

#[test]
fn a_read_only_page_faults_on_writing_and_can_be_read() {
    check_upper(
        |machine| machine.write_u64(entry_of(place::DATA + 0x1000), (place::DATA + 0x1000) | 1),
        |a| {
            a.mov(rax, qword_ptr(rbx + 0x1000))?;
            a.mov(rcx, 77u64)?;
            a.mov(qword_ptr(rbx + 0x1000), rcx)?;
            a.hlt()
        },
        |machine| {
            // The recording handlers: vector, and the error code of a write to a present page.
            assert_eq!(machine.read_u64(place::DATA) & 0xff, 14);
            assert_eq!(machine.read_u64(place::DATA + 8), 3);
            assert_eq!(machine.regs().cr2, UPPER + place::DATA + 0x1000);
            assert_eq!(machine.read_u64(place::DATA + 0x1000), 0);
        },
    );
}

#[test]
fn a_changed_entry_counts_after_invlpg() {
    check_upper(
        |machine| {
            machine.write_u64(place::DATA + 0x1000, 1);
            machine.write_u64(place::DATA + 0x2000, 2);
        },
        |a| {
            a.mov(r8, qword_ptr(rbx + 0x1000))?;
            a.mov(rax, (place::DATA + 0x2000) | 3 | GLOBAL)?;
            a.mov(qword_ptr(entry_of(place::DATA + 0x1000)), rax)?;
            a.invlpg(ptr(rbx + 0x1000))?;
            a.mov(r9, qword_ptr(rbx + 0x1000))?;
            // And to nothing, with everything flushed: CR4.PGE off and on.
            a.xor(eax, eax)?;
            a.mov(qword_ptr(entry_of(place::DATA + 0x1000)), rax)?;
            a.mov(rax, cr4)?;
            a.btc(rax, 7)?;
            a.mov(cr4, rax)?;
            a.btc(rax, 7)?;
            a.mov(cr4, rax)?;
            a.mov(r10, qword_ptr(rbx + 0x1000))?;
            a.hlt()
        },
        |machine| {
            let gpr = machine.regs().gpr;
            assert_eq!((gpr[8], gpr[9]), (1, 2));
            assert_eq!(machine.read_u64(place::DATA) & 0xff, 14, "the absent page has faulted");
            assert_eq!(machine.read_u64(place::DATA + 8), 0);
        },
    );
}

#[test]
fn a_local_page_changes_with_cr3() {
    check_upper(
        |machine| {
            machine.write_u64(place::DATA + 0x1000, 1);
            machine.write_u64(place::DATA + 0x2000, 2);
            machine.write_u64(entry_of(place::DATA + 0x1000), (place::DATA + 0x1000) | 3);
        },
        |a| {
            a.mov(r8, qword_ptr(rbx + 0x1000))?;
            a.mov(rax, (place::DATA + 0x2000) | 3)?;
            a.mov(qword_ptr(entry_of(place::DATA + 0x1000)), rax)?;
            a.mov(rax, cr3)?;
            a.mov(cr3, rax)?;
            a.mov(r9, qword_ptr(rbx + 0x1000))?;
            a.hlt()
        },
        |machine| {
            let gpr = machine.regs().gpr;
            assert_eq!((gpr[8], gpr[9]), (1, 2));
        },
    );
}

/// Another PML4, and tables of its own for what is in [`TABLE`].
const OTHER_ROOT: u64 = place::PAGES + 0xb000;
const OTHER_TABLES: [u64; 3] =
    [place::PAGES + 0xc000, place::PAGES + 0xd000, place::PAGES + 0xe000];

/// A page that is not global, with 1 in it; in two others are 2 and 3.
const LOCAL: u64 = place::DATA + 0x1000;

/// Two address spaces with a page that is not global: with the same tables, or with tables of their own, of which
/// the second's say that 2 is there.
fn prepare_two_spaces(machine: &mut Machine, have_same_tables: bool) {
    for value in 1..4 {
        machine.write_u64(place::DATA + 0x1000 * value, value);
    }
    machine.write_u64(entry_of(LOCAL), LOCAL | 3);
    let first: [u8; 4096] = machine.read(place::PAGES);
    machine.write(OTHER_ROOT, &first);
    machine.regs().cr4 |= cr4::PCIDE;
    if have_same_tables {
        return;
    }
    let index = |shift: u64| 8 * (UPPER >> shift & 0x1ff);
    let [pointers, directory, table] = OTHER_TABLES;
    machine.write_u64(OTHER_ROOT + index(39), pointers | 7);
    machine.write_u64(pointers + index(30), directory | 7);
    let entries: [u8; 16] = machine.read(place::PAGES + 0x7000);
    machine.write(directory, &entries);
    machine.write_u64(directory, table | 3);
    let entries: [u8; 4096] = machine.read(TABLE);
    machine.write(table, &entries);
    machine.write_u64(table + (entry_of(LOCAL) - TABLE), (place::DATA + 0x2000) | 3);
}

/// What loads CR3 for the second address space and reads its page into R8, and the same for the first and R9.
fn read_in_both(a: &mut CodeAssembler, keep: u64) -> Result<(), iced_x86::IcedError> {
    a.mov(rax, OTHER_ROOT | 1 | keep)?;
    a.mov(cr3, rax)?;
    a.mov(r8, qword_ptr(rbx + 0x1000))?;
    a.mov(rax, place::PAGES | keep)?;
    a.mov(cr3, rax)?;
    a.mov(r9, qword_ptr(rbx + 0x1000))
}

const KEEP_TLB: u64 = 1 << 63;

/// What a switch of address space does not change is not missed after it.
#[test]
fn a_local_page_that_spaces_share_stays_when_cr3_is_loaded() {
    const SWITCHES: u64 = 1000;
    for keep in [0, KEEP_TLB] {
        check_upper(
            |machine| prepare_two_spaces(machine, true),
            |a| {
                let mut again = a.create_label();
                a.mov(rcx, SWITCHES)?;
                a.set_label(&mut again)?;
                a.add(qword_ptr(rbx + 0x1000), 1)?;
                read_in_both(a, keep)?;
                a.dec(rcx)?;
                a.jne(again)?;
                // It becomes another page, in the tables that both have.
                a.mov(r10, r8)?;
                a.mov(r11, r9)?;
                a.mov(rax, (place::DATA + 0x3000) | 3)?;
                a.mov(qword_ptr(entry_of(LOCAL)), rax)?;
                read_in_both(a, 0)?;
                // And back, while the second space is used.
                a.mov(rax, OTHER_ROOT | 1)?;
                a.mov(cr3, rax)?;
                a.mov(rax, (place::DATA + 0x2000) | 3)?;
                a.mov(qword_ptr(entry_of(LOCAL)), rax)?;
                a.invlpg(ptr(rbx + 0x1000))?;
                a.mov(r12, qword_ptr(rbx + 0x1000))?;
                a.hlt()
            },
            |machine| {
                let gpr = machine.regs().gpr;
                assert_eq!((gpr[10], gpr[11]), (1 + SWITCHES, 1 + SWITCHES));
                assert_eq!((gpr[8], gpr[9], gpr[12]), (3, 3, 2));
                let faults = machine.cpu.arch.statistics.mirror_faults;
                assert!((1..20).contains(&faults), "{faults} faults, keep {keep:#x}");
                // The tables, which are written in the users' half.
                assert_eq!(machine.cpu.arch.statistics.mirror_exceptions, 2);
            },
        );
    }
}

#[test]
fn spaces_with_a_local_page_of_their_own_each_have_theirs() {
    for keep in [0, KEEP_TLB] {
        check_upper(
            |machine| prepare_two_spaces(machine, false),
            |a| {
                let mut again = a.create_label();
                let mut wrong = a.create_label();
                a.mov(rcx, 50u64)?;
                a.set_label(&mut again)?;
                read_in_both(a, keep)?;
                a.cmp(r8, 2)?;
                a.jne(wrong)?;
                a.cmp(r9, 1)?;
                a.jne(wrong)?;
                a.dec(rcx)?;
                a.jne(again)?;
                a.set_label(&mut wrong)?;
                a.hlt()
            },
            |machine| {
                let gpr = machine.regs().gpr;
                assert_eq!((gpr[1], gpr[8], gpr[9]), (0, 2, 1));
            },
        );
    }
}

/// A page may become read-only without a flush being asked for where it is only used after CR3 was loaded.
#[test]
fn a_local_page_that_became_read_only_faults_after_cr3_was_loaded() {
    check_upper(
        |machine| prepare_two_spaces(machine, true),
        |a| {
            a.mov(qword_ptr(rbx + 0x1000), 7)?;
            a.mov(rax, LOCAL | 0x61)?;
            a.mov(qword_ptr(entry_of(LOCAL)), rax)?;
            a.mov(rax, OTHER_ROOT | 1 | KEEP_TLB)?;
            a.mov(cr3, rax)?;
            a.mov(qword_ptr(rbx + 0x1000), 8)?;
            a.hlt()
        },
        |machine| {
            assert_eq!(machine.read_u64(place::DATA) & 0xff, 14);
            assert_eq!(machine.read_u64(place::DATA + 8), 3);
            assert_eq!(machine.read_u64(LOCAL), 7);
        },
    );
}

/// Two processors, each in a space of its own; the second runs when the first has halted.
fn check_two_processors(have_same_tables: bool, expected: u64) {
    with_upper_half(|mut machine, base| {
        const SECOND: u64 = place::CODE + 0x1000;
        prepare_two_spaces(&mut machine, have_same_tables);
        let mut second = machine.another(base + SECOND, base + place::STACK + 0x1000);
        second.arch.context.regs.cr3 = OTHER_ROOT | 1;
        let assemble = |machine: &mut Machine, at, space: u64| {
            machine.assemble(64, at, |a| {
                let mut again = a.create_label();
                a.mov(ecx, 100)?;
                a.set_label(&mut again)?;
                a.mov(rax, space)?;
                a.mov(cr3, rax)?;
                a.mov(r8, qword_ptr(rbx + 0x1000))?;
                a.dec(ecx)?;
                a.jne(again)?;
                a.hlt()?;
                a.mov(r8, qword_ptr(rbx + 0x1000))?;
                a.hlt()
            });
        };
        assemble(&mut machine, place::CODE, place::PAGES | KEEP_TLB);
        assemble(&mut machine, SECOND, OTHER_ROOT | 1 | KEEP_TLB);
        for _ in 0..2 {
            machine.run();
            assert_eq!(second.run().expect("the host lets us run"), crate::exit::Exit::Halt);
            assert_eq!((machine.regs().gpr[8], second.arch.context.regs.gpr[8]), (1, expected));
        }
        let faults =
            machine.cpu.arch.statistics.mirror_faults + second.arch.statistics.mirror_faults;
        assert!((1..30).contains(&faults), "{faults} faults");
        let exceptions = machine.cpu.arch.statistics.mirror_exceptions
            + second.arch.statistics.mirror_exceptions;
        assert_eq!(exceptions > 0, !have_same_tables, "{exceptions} exceptions");
    });
}

#[test]
fn processors_share_a_local_page_that_all_have() {
    check_two_processors(true, 1);
}

#[test]
fn processors_do_not_share_a_local_page_that_only_one_has() {
    check_two_processors(false, 2);
}

#[test]
fn code_written_through_another_mapping_is_executed() {
    // In the large page: a function, called, rewritten through its own address and through the
    // identity mapping, and called again.
    const FUNCTION: u64 = 0x28_0000;
    check_upper(
        |machine| machine.write(FUNCTION, &[0xb8, 1, 0, 0, 0, 0xc3]),
        |a| {
            a.mov(rsi, UPPER + FUNCTION)?;
            a.mov(edi, FUNCTION as u32)?;
            a.mov(qword_ptr(rsi + 0x800), rbx)?;
            a.call(rsi)?;
            a.mov(r8, rax)?;
            a.mov(dword_ptr(rsi + 1), 2)?;
            a.call(rsi)?;
            a.mov(r9, rax)?;
            a.mov(dword_ptr(rdi + 1), 3)?;
            a.call(rsi)?;
            a.mov(r10, rax)?;
            a.mov(rax, qword_ptr(rsi + 0x800))?;
            a.hlt()
        },
        |machine| {
            let gpr = machine.regs().gpr;
            assert_eq!((gpr[8], gpr[9], gpr[10]), (1, 2, 3));
            assert_eq!(gpr[0], UPPER + place::DATA);
        },
    );
}

#[test]
fn user_memory_and_wild_addresses_are_the_guests_own_faults() {
    for (address, vector) in [(place::HOLE, 14), (1 << 47, 13), (0xffff_8000_0000_1000, 14)] {
        check_upper(
            |machine| machine.regs().gpr[6] = address,
            |a| {
                a.mov(rax, qword_ptr(rsi))?;
                a.hlt()
            },
            |machine| {
                assert_eq!(machine.read_u64(place::DATA) & 0xff, vector, "at {address:#x}");
            },
        );
    }
}

/// Part of this process, which no guest may reach.
static OURS: [AtomicU64; 64] = [const { AtomicU64::new(0x5ec4_e700) }; 64];

/// The user's address that would lead to [`OURS`] if the mirror were 2 TiB lower.
fn users_address_of_ours() -> u64 {
    (&raw const OURS[32] as u64).wrapping_sub(BASE & !((1 << 41) - 1))
}

fn ours_is_unchanged() -> bool {
    OURS.iter().all(|word| word.load(Ordering::Relaxed) == 0x5ec4_e700)
}

/// Have the page of an address lead to some physical page, for users.
fn map_for_users(machine: &mut Machine, at: u64, physical: u64) {
    let index = |shift: u64| 8 * (at >> shift & 0x1ff);
    let tables = [place::PAGES + 0x8000, place::PAGES + 0x9000];
    // The first 512 GiB have a table already.
    let first = if index(39) == 0 { place::PAGES + 0x1000 } else { place::PAGES + 0xa000 };
    machine.write_u64(place::PAGES + index(39), first | 7);
    machine.write_u64(first + index(30), tables[0] | 7);
    machine.write_u64(tables[0] + index(21), tables[1] | 7);
    machine.write_u64(tables[1] + index(12), physical | 7);
}

/// Without SMAP a kernel may use its user's stack, and its user may have pointed RSP and GS anywhere.
#[test]
fn a_users_stack_pointer_does_not_lead_a_kernel_without_smap_into_this_process() {
    const STACK_PAGE: u64 = place::DATA + 0x3000;
    let top = users_address_of_ours();
    check_upper(
        |machine| {
            map_for_users(machine, top, STACK_PAGE);
            map_for_users(machine, top - 64, STACK_PAGE);
            let flags = rflags::NATIVE | rflags::IF | rflags::TF | rflags::AC | rflags::NT;
            let regs = machine.regs();
            regs.star =
                u64::from(selector::CODE_64) << 32 | u64::from(selector::USER_CODE_32) << 48;
            (regs.lstar, regs.sfmask) = (UPPER + place::CODE + 0x200, flags);
            machine.assemble(64, place::CODE + 0x200, |a| {
                a.push(rbx)?;
                a.mov(qword_ptr(rsp - 16), rbx)?;
                a.mov(rdx, qword_ptr(rsp - 16))?;
                a.mov(qword_ptr(0).gs(), rbx)?;
                a.push(0x77)?;
                a.pop(rcx)?;
                a.hlt()
            });
            machine.assemble(64, place::USER_CODE, |a| {
                a.mov(rbx, 0x1122_3344_5566_7788u64)?;
                a.mov(rsp, top)?;
                a.lea(rax, ptr(rsp - 32))?;
                a.wrgsbase(rax)?;
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
            assert!(ours_is_unchanged());
            let gpr = machine.regs().gpr;
            assert_eq!((gpr[1], gpr[2], gpr[3]), (0x77, gpr[3], 0x1122_3344_5566_7788));
            let written = |machine: &mut Machine, below: u64| {
                machine.read_u64(STACK_PAGE + (top - below) % 0x1000)
            };
            assert_eq!(written(machine, 8), gpr[3]);
            assert_eq!(written(machine, 16), 0x77);
            assert_eq!(written(machine, 24), gpr[3]);
            assert_eq!(written(machine, 32), gpr[3]);
        },
    );
}

#[test]
fn a_users_address_without_permission_is_the_guests_own_fault() {
    const USERS: u64 = place::DATA + 0x3000;
    let at = users_address_of_ours();
    check_upper(
        |machine| {
            map_for_users(machine, at, USERS);
            machine.regs().cr4 |= cr4::SMAP;
            machine.regs().gpr[6] = at;
            machine.regs().gpr[0] = 1;
        },
        |a| {
            a.mov(qword_ptr(rsi), rax)?;
            a.hlt()
        },
        |machine| {
            assert!(ours_is_unchanged());
            assert_eq!(machine.read_u64(place::DATA) & 0xff, 14);
            // A write by the supervisor to a page that is there.
            assert_eq!(machine.read_u64(place::DATA + 8), 3);
            assert_eq!(machine.regs().cr2, at);
            assert_eq!(machine.read_u64(USERS + at % 0x1000), 0);
        },
    );
}

/// A kernel that enters memory of its own where this process lies gets that, and not the process.
#[test]
fn the_mirror_makes_way_for_a_guests_memory() {
    const ITS_OWN: u64 = place::DATA + 0x3000;
    let at = (&raw const OURS[32] as u64).wrapping_sub(BASE);
    let entry = place::PAGES + 8 * (at >> 39 & 0x1ff);
    check_upper(
        |machine| {
            map_for_users(machine, at, ITS_OWN);
            machine.regs().gpr[1] = machine.read_u64(entry);
            machine.write_u64(entry, 0);
            machine.regs().gpr[6] = at;
        },
        |a| {
            a.mov(qword_ptr(rbx + 0x1000), rsi)?;
            a.mov(qword_ptr(entry), rcx)?;
            a.mov(rax, cr3)?;
            a.mov(cr3, rax)?;
            a.mov(eax, 0x77)?;
            a.mov(qword_ptr(rsi), rax)?;
            a.add(qword_ptr(rsi), 1)?;
            a.push(qword_ptr(rbx + 0x1000))?;
            a.pop(rdx)?;
            a.hlt()
        },
        |machine| {
            assert!(ours_is_unchanged());
            assert_eq!(machine.read_u64(ITS_OWN + at % 0x1000), 0x78);
            assert_eq!(machine.regs().gpr[2], at);
            assert!(
                machine.cpu.arch.statistics.mirror_faults > 0,
                "the mirror was not used before"
            );
            assert!(machine.cpu.arch.without_mirror);
        },
    );
}
