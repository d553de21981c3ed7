//! What direct execution costs on this host: print the figures that choosing between it and
//! translation rests on.
//!
//! `cargo run --release -p direct --example cost`

use std::sync::Arc;
use std::time::Instant;

use direct::{EXTENDED_BYTES, Helpers, Kick, Protection, Registers, Space, Stop, TimeStamp};
use host::GuestMemory;
use vm_memory::{Bytes, GuestAddress};

const CODE: u64 = 0x40_0000;
const DATA: u64 = 0x1000_0000;
const DATA_OFFSET: u64 = 16 << 20;
const DATA_BYTES: u64 = 64 << 20;
const PAGE: u64 = 4096;
const EXECUTE: Protection = Protection { write: false, execute: true };
const WRITE: Protection = Protection { write: true, execute: false };
/// `again: syscall; jmp again`.
const CALLS: [u8; 4] = [0x0f, 0x05, 0xeb, 0xfc];
/// `again: mov [rbx], rax; add rbx, 4096; jmp again`.
const TOUCHES: [u8; 12] = [0x48, 0x89, 0x03, 0x48, 0x81, 0xc3, 0x00, 0x10, 0x00, 0x00, 0xeb, 0xf4];
const MEMORY_BYTES: u64 = 128 << 20;

struct Bench {
    helpers: Arc<Helpers>,
    memory: GuestMemory,
    extended: Box<[u8; EXTENDED_BYTES]>,
    kick: Arc<Kick>,
}

fn main() {
    let memory = GuestMemory::new(&[(0, MEMORY_BYTES)]).expect("there is memory");
    let since = Instant::now();
    let helpers = Helpers::start(&memory).unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(1);
    });
    report("starting the zygote and trying it out", 1, since);
    let mut extended = Box::new([0; EXTENDED_BYTES]);
    extended[..2].copy_from_slice(&0x37f_u16.to_le_bytes());
    extended[24..28].copy_from_slice(&0x1f80_u32.to_le_bytes());
    let kick = Arc::new(Kick::new());
    // What is measured is not the first touch of the host's memory.
    memory.map().write_slice(&vec![0; MEMORY_BYTES as usize], GuestAddress(0)).expect("in range");
    let mut bench = Bench { helpers, memory, extended, kick };
    bench.spaces();
    bench.calls();
    for pages in [1, 4, 16, 64] {
        bench.faults(pages, false);
        bench.faults(pages, true);
    }
    bench.scattered();
    bench.kicks();
}

fn report(what: &str, count: u64, since: Instant) {
    println!("{what}: {:.2} us", since.elapsed().as_secs_f64() * 1e6 / count as f64);
}

impl Bench {
    fn program(&self, code: &[u8]) -> (Space, Registers) {
        self.memory.map().write_slice(code, GuestAddress(0)).expect("in range");
        let mut space = self.helpers.space(TimeStamp::Native).expect("there is another space");
        space.map(CODE, PAGE, 0, EXECUTE, true).expect("code can be mapped");
        let mut registers = Registers::at(CODE);
        registers.general[3] = DATA;
        (space, registers)
    }

    fn run(&mut self, space: &mut Space, registers: &mut Registers) -> Stop {
        space.run(registers, &mut self.extended, &self.kick)
    }

    fn spaces(&self) {
        let count = 50;
        let since = Instant::now();
        let make = || self.helpers.space(TimeStamp::Native).expect("one more");
        let spaces: Vec<_> = (0..count).map(|_| make()).collect();
        report("making spaces one after the other", count, since);
        let since = Instant::now();
        drop(spaces);
        report("dropping a space", count, since);
        let mut total = 0.0;
        for _ in 0..count {
            std::thread::sleep(std::time::Duration::from_millis(5));
            let since = Instant::now();
            let space = make();
            total += since.elapsed().as_secs_f64();
            drop(space);
        }
        println!("a space now and then: {:.2} us", total * 1e6 / count as f64);
    }

    fn calls(&mut self) {
        let (mut space, mut registers) = self.program(&CALLS);
        self.run(&mut space, &mut registers);
        let count = 100_000;
        let since = Instant::now();
        for _ in 0..count {
            assert_eq!(self.run(&mut space, &mut registers), Stop::SystemCall);
        }
        report("system call, there and back", count, since);
    }

    /// One fault, answered by one order for so many pages.
    fn faults(&mut self, pages: u64, populate: bool) {
        let (mut space, mut registers) = self.program(&TOUCHES);
        let (mut count, mut mapped) = (0, 0);
        let since = Instant::now();
        while mapped < DATA_BYTES {
            assert!(matches!(self.run(&mut space, &mut registers), Stop::Exception { .. }));
            let bytes = pages * PAGE;
            let (linear, offset) = (DATA + mapped, DATA_OFFSET + mapped);
            space.map(linear, bytes, offset, WRITE, populate).expect("data can be mapped");
            mapped += bytes;
            count += 1;
        }
        let what = format!(
            "page fault, {pages} pages in one order{}, all touched",
            if populate { ", populated" } else { "" }
        );
        report(&what, count, since);
    }

    /// One fault, answered by 16 orders for a page each.
    fn scattered(&mut self) {
        let (mut space, mut registers) = self.program(&TOUCHES);
        let batches = DATA_BYTES / PAGE / 16;
        let since = Instant::now();
        for batch in 0..batches {
            assert!(matches!(self.run(&mut space, &mut registers), Stop::Exception { .. }));
            for page in 0..16 {
                let linear = DATA + (batch * 16 + page) * PAGE;
                let offset = DATA_OFFSET + DATA_BYTES - (batch * 16 + page + 1) * PAGE;
                space.map(linear, PAGE, offset, WRITE, true).expect("data can be mapped");
            }
        }
        report("page fault, 16 orders of a page each, populated, all touched", batches, since);
    }

    fn kicks(&mut self) {
        let (mut space, mut registers) = self.program(&[0xeb, 0xfe]);
        let count = 200;
        let mut total = 0.0;
        for _ in 0..count {
            let kick = Arc::clone(&self.kick);
            let kicker = std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(1));
                let now = Instant::now();
                kick.kick();
                now
            });
            while self.run(&mut space, &mut registers) != Stop::Kicked {}
            let stopped = Instant::now();
            let kicked = kicker.join().expect("the kicker does not panic");
            total += stopped.saturating_duration_since(kicked).as_secs_f64();
        }
        println!("kick to stop: {:.2} us", total * 1e6 / f64::from(count));
    }
}
