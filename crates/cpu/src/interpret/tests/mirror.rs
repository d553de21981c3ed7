//! Kernel memory through the host's MMU (memory/mirror.rs): the promises of a TLB.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use iced_x86::code_asm::*;

use super::{Machine, enter_long_mode, place, selector};
use crate::memory::place::BASE;
use crate::state::{cr4, rflags};

/// A process has one mirror, of which other tests' machines are not asked whether they need it.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Where the first 4 MiB are mapped a second time: the second 2 MiB as one large page.
const UPPER: u64 = 0xffff_8880_0000_0000;

/// Page table of the first 2 MiB, and an entry in it for a page of DATA.
const TABLE: u64 = place::PAGES + 0x5000;

const GLOBAL: u64 = 0x100;

fn entry_of(at: u64) -> u64 {
    TABLE + 8 * (at >> 12)
}

/// Run a program that is mapped, with its data and stack, in the upper half.
fn check_upper(
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
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
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
    const PATIENCE: Duration = Duration::from_secs(300);
    let start = Instant::now();
    loop {
        let machine = Machine::in_memory();
        if machine.cpu.package.mirror.is_some() {
            return machine;
        }
        assert!(start.elapsed() < PATIENCE, "somebody else keeps the mirror");
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
            assert!(machine.cpu.statistics.mirror_faults > 0, "the mirror was not used");
            assert_eq!(machine.cpu.statistics.mirror_exceptions, 0);
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
            assert!(machine.cpu.statistics.mirror_faults > 0, "the mirror was not used before");
            assert!(machine.cpu.without_mirror);
        },
    );
}
