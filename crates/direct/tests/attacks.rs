//! Programs that want out. Each must end as the program's own fault, and leave everything else as
//! it was.

mod guest;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use direct::{Kick, RESERVED, Registers, Stop};
use guest::*;
use iced_x86::code_asm::*;

/// The helper's pages: code; what is read only; what can be written.
const STUB: u64 = RESERVED.start;
const STUB_BYTES: u64 = 4096;
const CONTROL: u64 = STUB + 0x1000;
const SCRATCH: u64 = STUB + 0x9000;
const REPORT: u64 = SCRATCH;
const SIGNAL_STACK: u64 = STUB + 0xa000;

/// Page-fault error codes.
const WRITE_PROTECTED: u16 = 7;
const NO_FETCH: u16 = 0x14;

/// Kicks whatever runs too long.
struct Watchdog {
    runs: Arc<AtomicU64>,
}

impl Watchdog {
    fn over(kick: &Arc<Kick>) -> Self {
        let runs = Arc::new(AtomicU64::new(0));
        let (watched, kick) = (Arc::downgrade(&runs), Arc::clone(kick));
        std::thread::spawn(move || {
            let mut last = u64::MAX;
            while let Some(runs) = watched.upgrade() {
                let now = runs.load(Ordering::SeqCst);
                if now == last {
                    kick.kick();
                }
                last = now;
                drop(runs);
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        Self { runs }
    }
}

/// A hostile thread, and what it must not touch.
struct Attack {
    guest: Guest,
    thread: Thread,
    watchdog: Watchdog,
    victim: Thread,
    stops: BTreeMap<String, u64>,
}

/// Guest memory that the attacker has not got, with something in it.
const SECRET_OFFSET: u64 = 0x80_0000;
const SECRET: &[u8] = b"nobody but the victim reads or writes this";

impl Attack {
    fn new() -> Self {
        let guest = Guest::new();
        guest.write(SECRET_OFFSET, SECRET);
        // The victim: inc rbx; syscall; jmp back.
        guest.write(SECRET_OFFSET + 4096, &[0x48, 0xff, 0xc3, 0x0f, 0x05, 0xeb, 0xf9]);
        let mut victim = Thread::new(guest.helpers.space(direct::TimeStamp::Native).unwrap());
        victim.space.map(CODE, 4096, SECRET_OFFSET + 4096, EXECUTE, false).unwrap();
        let thread = guest.thread();
        let watchdog = Watchdog::over(&thread.kick);
        Self { guest, thread, watchdog, victim, stops: BTreeMap::new() }
    }

    /// Run the attacker; a helper that it has killed is replaced.
    fn run(&mut self) -> Stop {
        self.watchdog.runs.fetch_add(1, Ordering::SeqCst);
        let stop = self.thread.run();
        let kind = format!("{stop:?}");
        let kind = kind.split(' ').next().unwrap().to_owned();
        *self.stops.entry(kind).or_default() += 1;
        assert!(self.thread.registers.rip >> 47 == 0 || self.thread.registers.rip >> 47 == 0x1ffff);
        if stop == Stop::Died {
            self.thread.space = self.guest.space();
        }
        stop
    }

    fn run_at(&mut self, registers: Registers) -> Stop {
        self.thread.registers = registers;
        self.thread.extended = initial_state();
        self.run()
    }

    /// Run until something other than a kick happens that came too early.
    fn expect(&mut self, registers: Registers, expected: Stop) {
        for _ in 0..100 {
            match self.run_at(registers) {
                Stop::Kicked => {}
                stop => return assert_eq!(with_presence(stop), expected, "{registers:x?}"),
            }
        }
        panic!("always kicked: {registers:x?}");
    }

    /// What must hold whatever the attacker has done.
    fn check(&mut self) {
        // Read-only is read-only, what is not there is not there.
        let probe = |code: [u8; 2], address| {
            let mut registers = Registers::at(CODE + CODE_BYTES - 16);
            registers.general[3] = address;
            (code, registers)
        };
        let (read, write) = ([0x8a, 0x03], [0x88, 0x03]);
        let probes = [
            (probe(write, STUB), page_fault(WRITE_PROTECTED, STUB)),
            (probe(write, CONTROL), page_fault(WRITE_PROTECTED, CONTROL)),
            (probe(write, SCRATCH - 8), page_fault(WRITE_PROTECTED, SCRATCH - 8)),
            (probe(read, STUB - 1), page_fault(4, STUB - 1)),
            (probe(read, RESERVED.end), page_fault(4, RESERVED.end)),
            (probe(read, NOTHING), page_fault(4, NOTHING)),
            (probe(write, CODE), page_fault(WRITE_PROTECTED, CODE)),
            (probe(read, 0), page_fault(4, 0)),
        ];
        for ((code, registers), expected) in probes {
            self.guest.write(CODE_OFFSET + CODE_BYTES - 16, &code);
            self.expect(registers, expected);
        }
        // Another space does not notice.
        let before = self.victim.registers.general[3];
        self.victim.registers.rip = CODE;
        assert_eq!(self.victim.run(), Stop::SystemCall);
        assert_eq!(self.victim.registers.general[3], before + 1);
        assert_eq!(self.guest.read(SECRET_OFFSET, SECRET.len()), SECRET);
    }

    /// The bytes of the stub, read as a program would.
    fn stub(&mut self) -> Vec<u8> {
        self.guest.program(|code| {
            code.rep().movsb()?;
            code.syscall()
        });
        let mut registers = Registers::at(CODE);
        registers.general[1] = STUB_BYTES;
        registers.general[6] = STUB;
        registers.general[7] = DATA;
        self.expect(registers, Stop::SystemCall);
        self.guest.read(DATA_OFFSET, STUB_BYTES as usize)
    }
}

/// A write to a page of the helper's that has not been touched yet is refused like one that has.
fn with_presence(stop: Stop) -> Stop {
    match stop {
        Stop::Exception { vector: 14, error: 6, address, .. } if RESERVED.contains(&address) => {
            page_fault(WRITE_PROTECTED, address)
        }
        other => other,
    }
}

/// `number(arguments)` in the layout of the stub's scripts, that goes on to itself.
fn fake_step(number: u64, arguments: [u64; 6], next: u64) -> Vec<u8> {
    let words = [&[number][..], &arguments, &[i64::MIN as u64, i64::MAX as u64, next, next, STUB]];
    words.concat().iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A `ucontext` all of whose words are this.
fn fake_context(word: u64) -> Vec<u8> {
    word.to_le_bytes().repeat(128)
}

#[test]
fn jumping_into_the_stub_at_every_byte_gains_nothing() {
    let mut attack = Attack::new();
    let stub = attack.stub();
    let used = stub.iter().rposition(|&byte| byte != 0).unwrap() as u64 + 1;
    // Scripts that would map something at NOTHING, write to a descriptor, or exit.
    let map = [NOTHING, 4096, 7, 0x32, u64::MAX, 0];
    let scripts =
        [(9, map), (1, [0, STUB, 16, 0, 0, 0]), (231, [0; 6]), (56, [17; 6]), (15, [0; 6])];
    for (index, &(number, arguments)) in scripts.iter().enumerate() {
        let at = 256 * index as u64;
        attack.guest.write(DATA_OFFSET + at, &fake_step(number, arguments, DATA + at));
    }
    attack.guest.write(DATA_OFFSET + 0x1000, &fake_context(STUB + 64));
    attack.guest.write(DATA_OFFSET + 0x2000, &fake_context(CODE));
    let stack = DATA + 0x8000;
    let choices: [[u64; 3]; 9] = [
        // RBX (step, report, entry), RDX (context), RSP
        [DATA, DATA + 0x1000, stack],
        [DATA + 256, DATA + 0x2000, stack],
        [DATA + 512, SIGNAL_STACK, SIGNAL_STACK + 0x4000],
        [DATA + 768, REPORT, SCRATCH + 0x800],
        [DATA + 1024, DATA, stack],
        [CONTROL, CONTROL, stack],
        [CONTROL + 0x2000, CONTROL + 0x100, CONTROL + 0x80],
        [REPORT, 0, 0],
        [STUB, u64::MAX / 2, 1 << 63],
    ];
    for offset in 0..used {
        for (index, [step, context, top]) in choices.into_iter().enumerate() {
            let mut registers = Registers::at(CODE);
            registers.general = [offset; 16];
            registers.general[0] = [110, 9, 15, 0, 1][index % 5];
            registers.general[3] = step;
            registers.general[2] = context;
            registers.general[4] = top;
            // push-free: jmp r15
            registers.general[15] = STUB + offset;
            attack.guest.write(CODE_OFFSET, &[0x41, 0xff, 0xe7]);
            attack.run_at(registers);
        }
        if offset % 32 == 0 {
            attack.check();
        }
    }
    attack.check();
    println!("{:?}", attack.stops);
}

#[test]
fn no_system_call_is_made() {
    let mut attack = Attack::new();
    attack.guest.write(CODE_OFFSET, &[0x0f, 0x05]);
    let arguments = [0, 1, 2, DATA, STUB, CONTROL, SCRATCH, NOTHING, 4096, u64::MAX];
    let mut pick = 0;
    for number in (0..1024).chain(0x4000_0000..0x4000_0400).chain([u64::MAX, 1 << 31, 1 << 32]) {
        let mut registers = Registers::at(CODE);
        for index in [7, 6, 2, 10, 8, 9] {
            pick = (pick * 7 + 3) % 101;
            registers.general[index] = arguments[pick % arguments.len()];
        }
        registers.general[0] = number;
        registers.general[4] = DATA + DATA_BYTES;
        attack.expect(registers, Stop::SystemCall);
        // What the call would have changed first.
        let after = attack.thread.registers;
        assert_eq!(after.general[0], number);
        for index in [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15] {
            assert_eq!(after.general[index], registers.general[index], "call {number}");
        }
    }
    attack.check();
}

#[test]
fn no_32_bit_system_call_is_made() {
    let mut attack = Attack::new();
    attack.guest.write(CODE_OFFSET, &[0xcd, 0x80]);
    for number in 0..512 {
        let mut registers = Registers::at(CODE);
        registers.general = [4096; 16];
        registers.general[0] = number;
        registers.general[4] = DATA + DATA_BYTES;
        loop {
            match attack.run_at(registers) {
                Stop::Kicked => {}
                Stop::LegacyCall => break,
                stop => {
                    assert_eq!(stop, exception(13, 0x80 << 3 | 2));
                    break;
                }
            }
        }
    }
    // sysenter: on AMD's processors #UD in 64-bit mode, on Intel's a call, which returns elsewhere.
    attack.guest.write(CODE_OFFSET, &[0x0f, 0x34]);
    for number in [1, 11, 20, 37, 90, 125, 252] {
        let mut registers = Registers::at(CODE);
        registers.general = [DATA; 16];
        registers.general[0] = number;
        assert_ne!(attack.run_at(registers), Stop::Died);
    }
    attack.check();
}

#[test]
fn the_stubs_own_calls_serve_the_stop_only() {
    let mut attack = Attack::new();
    let stub = attack.stub();
    let calls = (0..stub.len() as u64 - 1).filter(|&at| stub[at as usize..][..2] == [0x0f, 0x05]);
    let calls: Vec<_> = calls.collect();
    assert!(calls.len() >= 4);
    attack.guest.write(CODE_OFFSET, &[0x41, 0xff, 0xe7]);
    let stop = 110;
    let mut stops = 0;
    for call in calls {
        for number in (0..512).chain(0x4000_0000..0x4000_0200) {
            let mut registers = Registers::at(CODE);
            registers.general = [DATA; 16];
            registers.general[0] = number;
            registers.general[15] = STUB + call;
            // Otherwise the report of the last stop would be read once more.
            let fetch = page_fault(NO_FETCH, STUB + call + 2);
            let after = loop {
                match attack.run_at(registers) {
                    Stop::Kicked => {}
                    after => break after,
                }
            };
            if [335, 336].contains(&number) {
                // uretprobe and uprobe, which Linux exempts from filters: they do something in
                // trampolines of the kernel's only.
                let Stop::Exception { address, .. } = after else { panic!("{after:?}") };
                assert!(address == 0 || address >> 12 == STUB >> 12 || address < 1 << 32);
            } else if number == stop {
                stops += u64::from(after != fetch);
            } else {
                assert_eq!(after, fetch, "call {number:#x} at {call:#x}");
            }
        }
    }
    assert_eq!(stops, 0, "a stop at once reports the old frame, which was a fault here");
    attack.check();
}

/// Words of a signal frame (asm/sigcontext.h, asm/siginfo.h).
const RIP: usize = 5 + 16;
const TRAP: usize = 5 + 20;
const EXTENDED: usize = 5 + 23;
const CODE_OF_SIGNAL: usize = 38 + 1;
const ARCH: usize = 38 + 3;

#[test]
fn a_forged_stop_is_what_the_program_could_have_had() {
    let mut attack = Attack::new();
    let stub = attack.stub();
    // mov eax, 110; syscall
    let stop = [0xb8, 110, 0, 0, 0, 0x0f, 0x05];
    let stop = stub.windows(stop.len()).position(|bytes| bytes == stop).unwrap() as u64;
    // Copy a forged report and frame to where they are read, then stop.
    attack.guest.program(|code| {
        code.rep().movsb()?;
        code.mov(rsi, r8)?;
        code.mov(rdi, r9)?;
        code.mov(rcx, 0x1000_u64)?;
        code.rep().movsb()?;
        code.jmp(r15)
    });
    let mut random = 0x9e37_79b9_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let frame_at = SIGNAL_STACK + 0x2000;
    for round in 0..6000_u64 {
        // signal, context, selectors, bases
        let signals = [31, 11, 7, 4, 8, 5, 10, 31, 11, 31, 11, 255, 0, 9, u64::MAX, next()];
        let signal = signals[round as usize % signals.len()];
        let context = match round / 16 % 32 {
            0 => next(),
            1 => SIGNAL_STACK - 8,
            2 => RESERVED.end - 8,
            3 => CONTROL,
            4 => DATA,
            _ => frame_at,
        };
        let mut report = vec![signal, context];
        report.extend((0..6).map(|_| next()));
        let mut frame: Vec<u64> = (0..512).map(|_| next()).collect();
        if round % 3 != 0 {
            // A plausible frame with wild parts: trap number, extended state, code.
            let trap = next() % 40;
            frame[TRAP] = if trap < 34 { trap % 20 } else { next() };
            let wild = [SIGNAL_STACK, RESERVED.end - 64, next(), CONTROL, 0];
            let extended = next() as usize % 30;
            frame[EXTENDED] = *wild.get(extended).unwrap_or(&(frame_at + 0x400));
            frame[CODE_OF_SIGNAL] = next() % 8;
            frame[RIP] = [next() >> 17, next(), STUB, CODE][next() as usize % 4];
            if next() % 2 == 0 {
                frame[ARCH] = next() << 32 | 0xc000_003e << 32;
            }
        }
        let bytes =
            |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
        attack.guest.write(DATA_OFFSET, &bytes(&report));
        attack.guest.write(DATA_OFFSET + 0x1000, &bytes(&frame));
        let mut registers = Registers::at(CODE);
        registers.general[1] = 64;
        registers.general[6] = DATA;
        registers.general[7] = REPORT;
        registers.general[8] = DATA + 0x1000;
        registers.general[9] = frame_at;
        registers.general[4] = DATA + DATA_BYTES;
        registers.general[15] = STUB + stop;
        match attack.run_at(registers) {
            Stop::Exception { vector, error, .. } => {
                assert!(matches!(vector, 0 | 1 | 3..=6 | 11..=14 | 16 | 17 | 19), "{vector}");
                assert!(vector != 14 || error & 4 != 0);
                assert!(error == 0 || matches!(vector, 11..=14));
            }
            Stop::Died | Stop::Kicked | Stop::SystemCall | Stop::LegacyCall | Stop::NoMemory => {}
            stop => panic!("{stop:?}"),
        }
        let after = attack.thread.registers;
        assert_eq!(after.rflags & !0x25_4dd5, 0x202);
        assert!(after.cs == 0x33 && after.ss == 0x2b || after.cs == 0x23);
        // And the state can be had again, whatever it is.
        let (mut again, extended) = (after, attack.thread.extended.clone());
        (again.rip, again.cs, again.ss, again.rflags) = (CODE + CODE_BYTES - 16, 0x33, 0x2b, 0x202);
        if round % 50 == 0 {
            attack.guest.write(CODE_OFFSET + CODE_BYTES - 16, &[0x0f, 0x05]);
            (attack.thread.registers, attack.thread.extended) = (again, extended);
            while attack.run() == Stop::Kicked {}
            assert_eq!(attack.thread.registers.rip, CODE + CODE_BYTES - 14);
            attack.check();
        }
    }
    println!("{:?}", attack.stops);
}

#[test]
fn a_loop_through_the_kicks_handler_is_kicked() {
    let mut attack = Attack::new();
    let stub = attack.stub();
    attack.guest.write(CODE_OFFSET, &[0x41, 0xff, 0xe7]);
    // Every instruction boundary of the stub as the place that a forged context returns to, so that
    // whatever loop can be made there is made.
    for start in (0..stub.len() as u64).step_by(1).filter(|&at| stub[at as usize] == 0x6a) {
        for target in 0..64 {
            attack.guest.write(DATA_OFFSET, &fake_context(STUB + start + target));
            let mut registers = Registers::at(CODE);
            registers.general = [DATA; 16];
            registers.general[4] = DATA + DATA_BYTES;
            registers.general[15] = STUB + start;
            attack.run_at(registers);
        }
    }
    // Plain loops, and such as never leave an instruction for long.
    for program in [
        &[0xeb, 0xfe][..],
        &[0xf3, 0x90, 0xeb, 0xfc],
        &[0x48, 0xc7, 0xc1, 0xff, 0xff, 0xff, 0x7f, 0xe2, 0xfe, 0xeb, 0xf5],
    ] {
        attack.guest.write(CODE_OFFSET, program);
        assert_eq!(attack.run_at(Registers::at(CODE)), Stop::Kicked);
    }
    attack.check();
}

#[test]
fn no_stack_pointer_confuses_a_stop() {
    let mut attack = Attack::new();
    attack.guest.write(CODE_OFFSET, &[0x0f, 0x05]);
    let far = [0, 1, 8, 127, 128, 4096, NOTHING, CODE, 1 << 46, (1 << 47) - 1, 1 << 47, 1 << 63];
    let kernel = [0xffff_8000_0000_0000, 0xffff_ffff_8100_0000, 0xffff_ffff_ff60_0000, u64::MAX];
    let near = [STUB, CONTROL, SCRATCH, SIGNAL_STACK - 1, SIGNAL_STACK - 128, RESERVED.end + 1];
    for top in far.into_iter().chain(kernel).chain(near) {
        let mut registers = Registers::at(CODE);
        registers.general[4] = top;
        attack.expect(registers, Stop::SystemCall);
        assert_eq!(attack.thread.registers.general[4], top);
    }
    // On the signal stack itself: a stop, or the kernel ends a helper that has no room left.
    let mut deaths = 0;
    for top in (SIGNAL_STACK..=RESERVED.end).step_by(0x1f8) {
        let mut registers = Registers::at(CODE);
        registers.general[4] = top;
        match attack.run_at(registers) {
            Stop::SystemCall => assert_eq!(attack.thread.registers.general[4], top),
            Stop::Died => deaths += 1,
            Stop::Kicked => {}
            stop => panic!("{stop:?}"),
        }
    }
    assert!(deaths > 0);
    attack.check();
}

#[test]
fn frames_do_not_overflow_into_guest_memory() {
    let mut attack = Attack::new();
    // Guest memory right below and above the helper's pages.
    for (linear, offset) in [(STUB - 0x4000, 0x90_0000), (RESERVED.end, 0x90_4000)] {
        attack.thread.space.map(linear, 0x4000, offset, WRITE, true).unwrap();
    }
    attack.guest.write(0x90_0000, &[0x5a; 0x8000]);
    attack.guest.write(CODE_OFFSET, &[0x0f, 0x0b]);
    for top in (SIGNAL_STACK - 0x1000..SIGNAL_STACK + 0x2000).step_by(0x80) {
        let mut registers = Registers::at(CODE);
        registers.general[4] = top;
        if attack.run_at(registers) == Stop::Died {
            for (linear, offset) in [(STUB - 0x4000, 0x90_0000), (RESERVED.end, 0x90_4000)] {
                attack.thread.space.map(linear, 0x4000, offset, WRITE, true).unwrap();
            }
        }
    }
    assert_eq!(attack.guest.read(0x90_0000, 0x8000), [0x5a; 0x8000]);
}

#[test]
fn the_vsyscall_page_is_not_there() {
    let mut attack = Attack::new();
    attack.guest.write(CODE_OFFSET, &[0xff, 0xd3]);
    let page = 0xffff_ffff_ff60_0000_u64;
    for address in [page, page + 0x400, page + 0x800, page + 0x10, page + 0xfff] {
        for argument in [0, DATA, CONTROL] {
            let mut registers = Registers::at(CODE);
            registers.general = [argument; 16];
            registers.general[3] = address;
            registers.general[4] = DATA + DATA_BYTES;
            for _ in 0..100 {
                let stop = attack.run_at(registers);
                if stop == Stop::Kicked {
                    continue;
                }
                let Stop::Exception { vector: 14, error, address: at, .. } = stop else {
                    panic!("{stop:?}");
                };
                assert_eq!((error & NO_FETCH, at), (NO_FETCH, address));
                break;
            }
            let after = attack.thread.registers;
            assert_eq!((after.rip, after.general[4]), (address, DATA + DATA_BYTES - 8));
            // The return address is where the call has put it.
            assert_eq!(attack.guest.read_u64(DATA_OFFSET + DATA_BYTES - 8), CODE + 2);
            assert!(after.general[2..4] == registers.general[2..4]);
        }
    }
    attack.check();
}

#[test]
fn nothing_of_the_hosts_is_mapped() {
    let mut attack = Attack::new();
    // mov al, [rbx]; syscall, all over the lower half: in steps of 64 GiB, and where Linux puts
    // things on the host: this test's own mappings, the vDSO among them.
    attack.guest.write(CODE_OFFSET, &[0x8a, 0x03, 0x0f, 0x05]);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let ours = maps.lines().map(|line| u64::from_str_radix(line.split('-').next().unwrap(), 16));
    let ours = ours.map(Result::unwrap);
    let everywhere = (0..0x7fff_ffff_f000_u64).step_by(64 << 30);
    for address in everywhere.chain(ours) {
        if (CODE..CODE + CODE_BYTES).contains(&address) || RESERVED.contains(&address) {
            continue;
        }
        let mut registers = Registers::at(CODE);
        registers.general[3] = address;
        let present = u16::from(address >= 0x7fff_ffff_f000);
        attack.expect(registers, page_fault(4 | present, address));
    }
    attack.check();
}

#[test]
fn every_selector_is_loaded_or_refused() {
    let mut attack = Attack::new();
    let loads: [&[u8]; 4] = [&[0x8e, 0xd8], &[0x8e, 0xc0], &[0x8e, 0xe0], &[0x8e, 0xe8]];
    for load in loads {
        attack.guest.write(CODE_OFFSET, &[load, &[0x0f, 0x05]].concat());
        for selector in (0..=0xffff_u64).filter(|selector| selector % 7 == 3 || *selector < 0x200) {
            let mut registers = Registers::at(CODE);
            registers.general[0] = selector;
            let stop = loop {
                match attack.run_at(registers) {
                    Stop::Kicked => {}
                    stop => break stop,
                }
            };
            match stop {
                Stop::SystemCall => {}
                Stop::Exception { vector: 11 | 13, error, .. } => {
                    assert_eq!(u64::from(error), selector & !3);
                }
                stop => panic!("{selector:#x}: {stop:?}"),
            }
        }
    }
    attack.check();
}

/// The components of extended state that are AMX's: XTILECFG and XTILEDATA (SDM 1 13.1).
const TILES: u64 = 3 << 17;

#[test]
fn wild_extended_state_is_the_programs_own_fault() {
    let mut attack = Attack::new();
    // xrstor64 [rbx]; xrstorc-like headers included; then syscall
    attack.guest.write(CODE_OFFSET, &[0x48, 0x0f, 0xae, 0x2b, 0x0f, 0x05]);
    let headers = [
        [u64::MAX, 0],
        [0, u64::MAX],
        [0, 1 << 63],
        [u64::MAX, u64::MAX],
        [0xe7, 1 << 63 | 0xe7],
        [1 << 9, 0],
        [3 << 17, 0],
        [0xff, 1 << 63 | 0xff],
    ];
    for header in headers {
        let mut image = vec![0xff; 0x2000];
        image[24..28].copy_from_slice(&0x1f80_u32.to_le_bytes());
        image[512..520].copy_from_slice(&header[0].to_le_bytes());
        image[520..528].copy_from_slice(&header[1].to_le_bytes());
        image[528..576].fill(0);
        attack.guest.write(DATA_OFFSET, &image);
        for mask in [u64::MAX, 0xe7, 3, 1 << 9] {
            let mut registers = Registers::at(CODE);
            registers.general[0] = mask & 0xffff_ffff;
            registers.general[2] = mask >> 32;
            registers.general[3] = DATA;
            let stop = attack.run_at(registers);
            // Linux has not let it use tiles (Documentation/arch/x86/xstate.rst).
            let is_forbidden = header[0] & mask & TILES != 0 && stop == exception(6, 0);
            let fine = stop == Stop::SystemCall || stop == Stop::Kicked || stop == exception(13, 0);
            assert!(fine || is_forbidden, "{header:x?} {mask:#x}: {stop:?}");
            // What it has loaded can be loaded again.
            let extended = attack.thread.extended.clone();
            attack.thread.registers = Registers::at(CODE + 4);
            attack.thread.extended = extended;
            while attack.run() == Stop::Kicked {}
            assert_eq!(attack.thread.registers.rip, CODE + 6);
        }
    }
    // wrpkru with everything forbidden: where there are keys, the program locks itself out.
    attack.guest.program(|code| {
        code.xor(ecx, ecx)?;
        code.xor(edx, edx)?;
        code.mov(eax, -4)?;
        code.wrpkru()?;
        code.mov(rax, qword_ptr(DATA))?;
        code.syscall()
    });
    attack.run_at(Registers::at(CODE));
    attack.check();
}

#[test]
fn flags_do_not_break_the_stub() {
    let mut attack = Attack::new();
    let stub = attack.stub();
    let used = stub.iter().rposition(|&byte| byte != 0).unwrap() as u64 + 1;
    // popfq; jmp r15, with TF, NT, AC, DF and all of them.
    attack.guest.write(CODE_OFFSET, &[0x9d, 0x41, 0xff, 0xe7]);
    for flags in [0x100_u64, 0x4000, 0x4_0000, 0x400, 0x4_4500, u64::MAX] {
        attack.guest.write(DATA_OFFSET + DATA_BYTES - 8, &flags.to_le_bytes());
        for offset in 0..used {
            let mut registers = Registers::at(CODE);
            registers.general = [REPORT; 16];
            registers.general[4] = DATA + DATA_BYTES - 8;
            registers.general[15] = STUB + offset;
            attack.run_at(registers);
        }
        attack.check();
    }
    println!("{:?}", attack.stops);
}
