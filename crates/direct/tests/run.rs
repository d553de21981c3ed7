//! Programs run natively and stop as they would on a processor.

mod guest;

use std::time::{Duration, Instant};

use direct::{Error, RESERVED, Stop, TimeStamp};
use guest::*;
use iced_x86::code_asm::*;

/// Page-fault error codes: present, write, user, fetch.
const P: u16 = 1;
const W: u16 = 2;
const U: u16 = 4;
const I: u16 = 16;

#[test]
fn a_system_call_stops_the_program_behind_it() {
    let guest = Guest::new();
    guest.program(|code| {
        code.mov(rax, 39_u64)?;
        code.syscall()?;
        code.inc(rax)?;
        code.syscall()
    });
    let mut thread = guest.thread();
    assert_eq!(thread.run(), Stop::SystemCall);
    assert_eq!(thread.registers.general[0], 39);
    assert_eq!(thread.registers.general[1], thread.registers.rip);
    assert_eq!(thread.registers.general[11], thread.registers.rflags);
    thread.registers.general[0] = 1000;
    assert_eq!(thread.run(), Stop::SystemCall);
    assert_eq!(thread.registers.general[0], 1001);
}

/// Bytes of a program that starts with zero registers but RSP, what it stops with, and where.
fn check(guest: &Guest, program: &[u8], expected: Stop, rip: u64) {
    guest.write(CODE_OFFSET, program);
    let mut thread = guest.thread();
    assert_eq!(thread.run(), expected, "{program:x?}");
    assert_eq!(thread.registers.rip, rip, "{program:x?}");
}

#[test]
fn exceptions_are_the_processors_own() {
    let guest = Guest::new();
    let check = |program: &[u8], vector, error, rip| {
        check(&guest, program, exception(vector, error), rip);
    };
    // xor ecx, ecx; div ecx
    check(&[0x31, 0xc9, 0xf7, 0xf1], 0, 0, CODE + 2);
    // int3; int 3 in two bytes
    check(&[0xcc], 3, 0, CODE + 1);
    check(&[0xcd, 3], 3, 0, CODE + 2);
    // ud2
    check(&[0x0f, 0x0b], 6, 0, CODE);
    // hlt; cli; in al, 0x80; mov rax, cr0; rdmsr; wbinvd; xsetbv; lgdt [rsp]
    check(&[0xf4], 13, 0, CODE);
    check(&[0xfa], 13, 0, CODE);
    check(&[0xe4, 0x80], 13, 0, CODE);
    check(&[0x0f, 0x20, 0xc0], 13, 0, CODE);
    check(&[0x0f, 0x32], 13, 0, CODE);
    check(&[0x0f, 0x09], 13, 0, CODE);
    check(&[0x0f, 0x01, 0xd1], 13, 0, CODE);
    check(&[0x0f, 0x01, 0x14, 0x24], 13, 0, CODE);
    // int 0x20; int 0x81: gates that user code may not use.
    check(&[0xcd, 0x20], 13, 0x20 << 3 | 2, CODE);
    // A non-canonical address: mov rax, 1 << 47; mov [rax], al
    let non_canonical = [0x48, 0xb8, 0, 0, 0, 0, 0, 0x80, 0, 0, 0x88, 0];
    check(&non_canonical, 13, 0, CODE + 10);
    // The same through the stack: mov rsp, (1 << 47) + 4096; push rax
    let stack = [0x48, 0xbc, 0, 0x10, 0, 0, 0, 0x80, 0, 0, 0x50];
    check(&stack, 12, 0, CODE + 10);
    // A selector beyond the table: mov eax, 0x1003; mov ds, eax
    check(&[0xb8, 0x03, 0x10, 0, 0, 0x8e, 0xd8], 13, 0x1000, CODE + 5);
    // Alignment: pushfq; or dword [rsp], AC; popfq; mov eax, [rsp - 7]
    let alignment = [0x9c, 0x81, 0x0c, 0x24, 0, 0, 4, 0, 0x9d, 0x8b, 0x44, 0x24, 0xf9];
    check(&alignment, 17, 0, CODE + 9);
    // x87: push 0; fldcw [rsp] (unmask all); fldz; fld1; fdivrp; fwait
    let x87 = [0x6a, 0, 0xd9, 0x2c, 0x24, 0xd9, 0xe8, 0xd9, 0xee, 0xde, 0xf9, 0x9b];
    check(&x87, 16, 0, CODE + 11);
    // SSE: push 0; ldmxcsr [rsp]; xorps xmm0, xmm0; divss xmm0, xmm0
    let sse = [0x6a, 0, 0x0f, 0xae, 0x14, 0x24, 0x0f, 0x57, 0xc0, 0xf3, 0x0f, 0x5e, 0xc0];
    check(&sse, 19, 0, CODE + 9);
    // A reserved bit of MXCSR: push -1; ldmxcsr [rsp]
    check(&[0x6a, 0xff, 0x0f, 0xae, 0x14, 0x24], 13, 0, CODE + 2);
}

#[test]
fn a_single_step_is_one_instruction() {
    let guest = Guest::new();
    guest.write(CODE_OFFSET, &[0x90, 0x90, 0x0f, 0x05]);
    let mut thread = guest.thread();
    let trap = Stop::Exception { vector: 1, error: 0, address: 0, single_step: true };
    for rip in [CODE + 1, CODE + 2] {
        thread.registers.rflags |= 0x100;
        assert_eq!(thread.run(), trap);
        assert_eq!((thread.registers.rip, thread.registers.rflags & 0x100), (rip, 0x100));
    }
    thread.registers.rflags &= !0x100;
    assert_eq!(thread.run(), Stop::SystemCall);
}

#[test]
fn page_faults_say_where_and_what() {
    let guest = Guest::new();
    let nothing = NOTHING.to_le_bytes();
    let with_address = |bytes: &[u8]| {
        let mut program = vec![0x48, 0xbb];
        program.extend(nothing);
        program.extend(bytes);
        program
    };
    // mov rbx, NOTHING, and then mov al, [rbx]; mov [rbx], al; jmp rbx.
    check(&guest, &with_address(&[0x8a, 0x03]), page_fault(U, NOTHING), CODE + 10);
    check(&guest, &with_address(&[0x88, 0x03]), page_fault(U | W, NOTHING), CODE + 10);
    check(&guest, &with_address(&[0xff, 0xe3]), page_fault(U | I, NOTHING), NOTHING);
    // mov [rip - 6 ...], al: the program's own page.
    check(&guest, &[0x88, 0x05, 0, 0, 0, 0], page_fault(U | W | P, CODE + 6), CODE);
    // jmp to the data.
    let mut program = vec![0x48, 0xbb];
    program.extend(DATA.to_le_bytes());
    program.extend([0xff, 0xe3]);
    // Linux without NX would run it; every x86-64 host has it.
    check(&guest, &program, page_fault(U | I | P, DATA), DATA);
}

#[test]
fn a_page_that_is_mapped_after_its_fault_is_there() {
    let guest = Guest::new();
    guest.program(|code| {
        code.mov(rbx, NOTHING)?;
        code.mov(qword_ptr(rbx), 77)?;
        code.syscall()
    });
    let mut thread = guest.thread();
    assert_eq!(thread.run(), page_fault(U | W, NOTHING));
    thread.space.map(NOTHING, 4096, 0x20_0000, WRITE, true).unwrap();
    assert_eq!(thread.run(), Stop::SystemCall);
    assert_eq!(guest.read_u64(0x20_0000), 77);
    // Write-protected, it faults again; unmapped, differently.
    thread.space.protect(NOTHING, 4096, READ).unwrap();
    assert_eq!(thread.restart(), page_fault(U | W | P, NOTHING));
    thread.space.unmap(NOTHING, 4096).unwrap();
    assert_eq!(thread.restart(), page_fault(U | W, NOTHING));
}

#[test]
fn a_string_instruction_stops_in_its_middle() {
    let guest = Guest::new();
    guest.program(|code| {
        code.mov(rdi, DATA + DATA_BYTES - 100)?;
        code.mov(rcx, 1000_u64)?;
        code.mov(eax, 7)?;
        code.rep().stosb()?;
        code.syscall()
    });
    let mut thread = guest.thread();
    assert_eq!(thread.run(), page_fault(U | W, DATA + DATA_BYTES));
    assert_eq!(thread.registers.general[1], 900);
    assert_eq!(thread.registers.general[7], DATA + DATA_BYTES);
    thread.space.map(DATA + DATA_BYTES, 4096, 0x20_0000, WRITE, false).unwrap();
    assert_eq!(thread.run(), Stop::SystemCall);
    assert_eq!(guest.read(0x20_0000, 901), [vec![7; 900], vec![0]].concat());
}

#[test]
fn many_orders_make_one_batch() {
    let guest = Guest::new();
    // Sum up the first bytes of 1000 pages.
    guest.program(|code| {
        let mut again = code.create_label();
        code.mov(rbx, NOTHING)?;
        code.mov(ecx, 1000)?;
        code.xor(eax, eax)?;
        code.set_label(&mut again)?;
        code.movzx(edx, byte_ptr(rbx))?;
        code.add(eax, edx)?;
        code.add(rbx, 4096)?;
        code.dec(ecx)?;
        code.jnz(again)?;
        code.syscall()
    });
    let mut thread = guest.thread();
    let mut expected = 0;
    for page in 0..1000_u64 {
        let offset = 0x20_0000 + (999 - page) * 4096;
        guest.write(offset, &[page as u8]);
        expected += page & 0xff;
        thread.space.map(NOTHING + page * 4096, 4096, offset, READ, page % 2 == 0).unwrap();
    }
    assert_eq!(thread.run(), Stop::SystemCall);
    assert_eq!(thread.registers.general[0], expected);
    thread.space.unmap_all().unwrap();
    assert_eq!(thread.restart(), page_fault(U | I, CODE));
}

#[test]
fn an_order_that_fails_is_told_and_can_be_mended() {
    let guest = Guest::new();
    guest.write(CODE_OFFSET, &[0x0f, 0x05]);
    let mut thread = guest.thread();
    assert_eq!(thread.run(), Stop::SystemCall);
    for flush in [false, true] {
        // A hole cannot be protected.
        thread.space.protect(NOTHING, 4096, READ).unwrap();
        if flush {
            assert!(matches!(thread.space.flush(), Err(Error::Order { .. })));
        } else {
            assert_eq!(thread.restart(), Stop::Refused);
        }
        thread.space.unmap_all().unwrap();
        thread.space.map(CODE, CODE_BYTES, CODE_OFFSET, EXECUTE, false).unwrap();
        assert_eq!(thread.restart(), Stop::SystemCall);
    }
}

#[test]
fn what_cannot_be_mapped_is_refused() {
    let guest = Guest::new();
    let mut space = guest.space();
    let map = |linear, bytes, offset| (linear, bytes, offset);
    let end = MEMORY_BYTES + 4096 * host::SPARE_PAGES as u64;
    let refused = [
        map(RESERVED.start, 4096, 0),
        map(RESERVED.end - 4096, 8192, 0),
        map(0, RESERVED.end, 0),
        map(1, 4096, 0),
        map(4096, 1, 0),
        map(4096, 0, 0),
        map(4096, 4096, 1),
        map(4096, 4096, end),
        map(4096, 8192, end - 4096),
        map(4096, 4096, u64::MAX - 4095),
        map(0x7fff_ffff_f000, 4096, 0),
        map(u64::MAX - 4095, 4096, 0),
        map(0xffff_ffff_8000_0000, 4096, 0),
    ];
    for (linear, bytes, offset) in refused {
        let result = space.map(linear, bytes, offset, READ, false);
        assert!(matches!(result, Err(Error::Range { .. })), "{linear:#x}+{bytes:#x} {offset:#x}");
    }
    assert!(space.protect(RESERVED.start, 4096, WRITE).is_err());
    // Unmapping everything spares what is not the guest's.
    space.unmap(RESERVED.start - 4096, RESERVED.end - RESERVED.start + 8192).unwrap();
    assert!(space.flush().is_ok());
}

#[test]
fn old_calls_and_old_code_are_recognized() {
    let guest = Guest::new();
    // mov eax, 20; int 0x80. Where the host has no 32-bit calls, the gate is not for users.
    guest.write(CODE_OFFSET, &[0xb8, 20, 0, 0, 0, 0xcd, 0x80]);
    let mut thread = guest.thread();
    let stop = thread.run();
    if stop == exception(13, 0x80 << 3 | 2) {
        return;
    }
    assert_eq!(stop, Stop::LegacyCall);
    assert_eq!((thread.registers.rip, thread.registers.general[0]), (CODE + 7, 20));
    // push 0x23; push CODE + 16; retfq; at 16: inc eax (in 64-bit code a prefix); int 0x80
    let mut program = vec![0x6a, 0x23, 0x68, 0x10, 0x00, 0x40, 0x00, 0x48, 0xcb];
    program.resize(16, 0x90);
    program.extend([0x40, 0xcd, 0x80]);
    guest.write(CODE_OFFSET, &program);
    let mut thread = guest.thread();
    thread.registers.general[4] = DATA + 0x1000;
    thread.registers.general[0] = 19;
    assert_eq!(thread.run(), Stop::LegacyCall);
    assert_eq!((thread.registers.cs, thread.registers.general[0]), (0x23, 20));
    assert_eq!(thread.run(), Stop::Unsupported);
}

#[test]
fn the_time_stamp_counter_runs_or_faults() {
    let guest = Guest::new();
    // rdtsc; syscall
    guest.write(CODE_OFFSET, &[0x0f, 0x31, 0x0f, 0x05]);
    // SAFETY: reads a counter.
    let host = || unsafe { core::arch::x86_64::_rdtsc() };
    let mut thread = guest.thread();
    let before = host();
    assert_eq!(thread.run(), Stop::SystemCall);
    let read = thread.registers.general[2] << 32 | thread.registers.general[0];
    assert!((before..=host()).contains(&read));
    let mut space = guest.helpers.space(TimeStamp::Faults).unwrap();
    space.map(CODE, CODE_BYTES, CODE_OFFSET, EXECUTE, false).unwrap();
    assert_eq!(Thread::new(space).run(), exception(13, 0));
}

#[test]
fn cpuid_faults_where_it_says_so() {
    let guest = Guest::new();
    guest.write(CODE_OFFSET, &[0x0f, 0xa2, 0x0f, 0x05]);
    let stop = guest.thread().run();
    let expected = if guest.helpers.cpuid_faults() { exception(13, 0) } else { Stop::SystemCall };
    assert_eq!(stop, expected);
}

#[test]
fn registers_that_no_user_code_has_are_not_run() {
    let guest = Guest::new();
    guest.write(CODE_OFFSET, &[0x0f, 0x05]);
    let check = |change: fn(&mut direct::Registers)| {
        let mut thread = guest.thread();
        change(&mut thread.registers);
        assert_eq!(thread.run(), Stop::Unsupported);
    };
    check(|registers| registers.cs = 0x23);
    check(|registers| registers.cs = 0x10);
    check(|registers| registers.ss = 0);
    check(|registers| registers.rflags |= 0x3000);
    check(|registers| registers.rflags &= !0x200);
    check(|registers| registers.rflags |= 1 << 17);
    check(|registers| registers.fs_base = 1 << 47);
    check(|registers| registers.gs_base = 1 << 63);
    check(|registers| registers.selectors[0] = 7);
    check(|registers| registers.rip = 1 << 47);
    check(|registers| registers.rip = u64::MAX);
}

#[test]
fn a_kick_ends_an_endless_loop_soon() {
    let guest = Guest::new();
    guest.write(CODE_OFFSET, &[0x48, 0xff, 0xc0, 0xeb, 0xfb]);
    let mut thread = guest.thread();
    for _ in 0..50 {
        let kick = std::sync::Arc::clone(&thread.kick);
        let kicker = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(2));
            kick.kick();
            Instant::now()
        });
        assert_eq!(thread.run(), Stop::Kicked);
        let late = Instant::now().duration_since(kicker.join().unwrap());
        assert!(late < Duration::from_secs(3), "{late:?}");
        assert!((CODE..CODE + 5).contains(&thread.registers.rip));
    }
    // Some kicks may have come before the run had begun; not all.
    assert!(thread.registers.general[0] > 1000);
}

#[test]
fn kicks_at_any_moment_lose_nothing() {
    let guest = Guest::new();
    // inc rax; syscall; jmp back
    guest.write(CODE_OFFSET, &[0x48, 0xff, 0xc0, 0x0f, 0x05, 0xeb, 0xf9]);
    let mut thread = guest.thread();
    let kick = std::sync::Arc::clone(&thread.kick);
    let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let until = std::sync::Arc::clone(&done);
    let kicker = std::thread::spawn(move || {
        let mut pause = 0;
        while !until.load(std::sync::atomic::Ordering::Relaxed) {
            kick.kick();
            pause = (pause + 7) % 60;
            std::thread::sleep(Duration::from_micros(pause));
        }
    });
    let (mut calls, mut kicks) = (0, 0);
    while calls < 5000 {
        // Orders too, so that a kick may come while the mapper works.
        if calls % 3 == 0 {
            thread.space.map(NOTHING, 4096, 0x20_0000, READ, true).unwrap();
        }
        match thread.run() {
            Stop::SystemCall => calls += 1,
            Stop::Kicked => kicks += 1,
            other => panic!("{other:?}"),
        }
        assert!(thread.registers.general[0] - calls <= 1);
    }
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    kicker.join().unwrap();
    assert_eq!(thread.registers.general[0], calls);
    assert!(kicks > 0);
}
