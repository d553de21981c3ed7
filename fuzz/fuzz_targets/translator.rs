//! The decoder, the translator and the interpreter, given any code at all, of 64 and of 32 bits, at CPL 3 and at
//! CPL 0: the processor must come back, and must neither panic nor hang. Instructions come from the processor's own
//! table, class by class ([`fuzz::forms`]), and between them any bytes.

#![no_main]

use std::ffi::{CStr, c_char};
use std::sync::{LazyLock, Mutex};

use cpu::state::Attributes;
use cpu::{Board, Config, Vcpu};
use fuzz::forms::{Piece, program};
use host::GuestMemory;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use machine::Platform;
use vm_memory::{Bytes, GuestAddress};

/// Page tables that map 4 MiB to itself, for users too.
const TABLES: u64 = 0x10_0000;
const CODE: u64 = 0x2000;
const STACK: u64 = 0x8000;

/// Where the registers point, each at a cache line of its own.
const DATA: u64 = 0x6000;

/// Attributes of code segments, for 64-bit code, and of data segments, at CPL 3 and at CPL 0.
const USER: [u16; 2] = [0xa0fb, 0xc0f3];
const KERNEL: [u16; 2] = [0xa09b, 0xc093];

/// In the attributes of a code segment, what 32-bit code has otherwise: L and D.
const CODE_SIZE: u16 = 0x6000;

/// A program, and who runs it.
#[derive(Debug, Arbitrary)]
struct Input {
    is_kernel: bool,
    is_32_bit: bool,
    pieces: Vec<Piece>,
}

static GUEST: LazyLock<(GuestMemory, Mutex<Vcpu>)> = LazyLock::new(|| {
    let memory = GuestMemory::new(&[(0, 4 << 20)]).expect("4 MiB of memory");
    let board = Board { msrs: <Platform as machine::Board>::MSRS, ..Board::default() };
    let config =
        Config { apic_id: 0, processors: 1, tsc_khz: 1_000_000, interpret_only: false, board };
    let cpu = Vcpu::in_memory(config, &memory).expect("this host can translate");
    (memory, Mutex::new(cpu))
});

/// AddressSanitizer is not to look for stack variables that are used too late: it would find where it keeps them by
/// thread-local storage, and in a handler that interrupts translated code, FS is the processor's context.
const ASAN_OPTIONS: &CStr = c"detect_stack_use_after_return=0";

// SAFETY: this is how AddressSanitizer's runtime (compiler-rt, asan_interface.h) declares what it asks for its options,
// and nobody else defines it.
#[unsafe(no_mangle)]
extern "C" fn __asan_default_options() -> *const c_char {
    ASAN_OPTIONS.as_ptr()
}

fuzz_target!(|input: Input| {
    let (memory, cpu) = &*GUEST;
    let mut cpu = cpu.lock().expect("no panic has got this far");
    let map = memory.map();
    let code = program(&input.pieces);
    for (at, entry) in [
        (TABLES, TABLES + 0x1007),
        (TABLES + 0x1000, TABLES + 0x2007),
        (TABLES + 0x2000, 0x87),
        (TABLES + 0x2008, 0x20_0087),
    ] {
        map.write_obj(entry, GuestAddress(at)).expect("the tables are in memory");
    }
    map.write_slice(&code, GuestAddress(CODE)).expect("the code is in memory");
    cpu.reset();
    cpu.forget_code();
    let regs = cpu.registers_mut();
    (regs.cr0, regs.cr3, regs.cr4, regs.efer) = (0x8001_0033, TABLES, 0x4_0620, 0x501);
    for (register, at) in regs.gpr.iter_mut().zip((DATA..).step_by(64)) {
        *register = at;
    }
    let cpl = if input.is_kernel { 0 } else { 3 };
    (regs.rip, regs.cpl, regs.idtr.limit, regs.gpr[4]) = (CODE, cpl, 0, STACK);
    let [code, data] = if input.is_kernel { KERNEL } else { USER };
    for segment in &mut regs.segments {
        (segment.base, segment.limit) = (0, u32::MAX);
        segment.attributes = Attributes::from_bits_retain(data);
    }
    let code = if input.is_32_bit { code ^ CODE_SIZE } else { code };
    regs.segments[1].attributes = Attributes::from_bits_retain(code);
    // With no IDT every exception is a triple fault. What runs for ever is kicked.
    let kick = cpu.kick_handle();
    let alarm = std::thread::spawn(move || {
        std::thread::park_timeout(std::time::Duration::from_millis(2));
        kick.kick();
    });
    let exit = cpu.run().expect("the host does not fail");
    alarm.thread().unpark();
    alarm.join().expect("the alarm does not panic");
    std::hint::black_box(exit);
});
