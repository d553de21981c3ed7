//! Registers go in and come out bit for bit.

mod guest;

use direct::{EXTENDED_BYTES, Stop};
use guest::*;

/// xorshift64*: the same sequence at every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[(self.next() % choices.len() as u64) as usize]
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill_with(|| self.next() as u8);
    }
}

/// XSTATE_BV, and where the components lie that are carried, as far as the host has them.
const IN_USE: usize = 512;
const CARRIED: [u32; 4] = [2, 5, 6, 7];

fn components() -> Vec<(u64, std::ops::Range<usize>)> {
    use std::arch::x86_64::__cpuid_count;
    let enabled = __cpuid_count(0xd, 0).eax;
    let present = CARRIED.iter().filter(|&&bit| enabled & 1 << bit != 0);
    let place = |&bit: &u32| {
        let leaf = __cpuid_count(0xd, bit);
        (1 << bit, leaf.ebx as usize..(leaf.ebx + leaf.eax) as usize)
    };
    present.map(place).collect()
}

fn random_extended(random: &mut Random) -> Box<[u8; EXTENDED_BYTES]> {
    let mut image = initial_state();
    random.fill(&mut image[32..416]);
    for register in 0..8 {
        image[32 + 16 * register + 10..48 + 16 * register].fill(0);
    }
    // Control word, status word without exceptions, tags. No opcode and pointers: processors
    // differ in when they keep them.
    let control = random.next() as u16 & 0x0f3f | 0x0040;
    image[..2].copy_from_slice(&control.to_le_bytes());
    let status = random.next() as u16 & 0x7f00 & !0x8000;
    image[2..4].copy_from_slice(&status.to_le_bytes());
    image[4] = random.next() as u8;
    let mxcsr = random.next() as u32 & 0xffbf;
    image[24..28].copy_from_slice(&mxcsr.to_le_bytes());
    let mut in_use = 3;
    for (bit, place) in components() {
        in_use |= bit;
        random.fill(&mut image[place]);
    }
    image[IN_USE..IN_USE + 8].copy_from_slice(&u64::to_le_bytes(in_use));
    image
}

fn compare_extended(before: &[u8], after: &[u8]) {
    let in_use = u64::from_le_bytes(after[IN_USE..IN_USE + 8].try_into().unwrap());
    assert_eq!(in_use & 3, 3);
    assert_eq!(before[..6], after[..6], "x87 control, status, tags");
    assert_eq!(before[24..28], after[24..28], "MXCSR");
    assert_eq!(before[32..416], after[32..416], "ST and XMM");
    for (bit, place) in components() {
        assert_ne!(in_use & bit, 0);
        assert_eq!(before[place.clone()], after[place], "component {bit:#x}");
    }
}

/// CF, PF, AF, ZF, SF, DF, OF, NT, AC, ID.
const FLAGS: u64 = 0x0024_4cd5;

fn randomize(thread: &mut Thread, random: &mut Random, rip: u64) {
    let registers = &mut thread.registers;
    registers.general = [0; 16].map(|_: u64| random.next());
    registers.rip = rip;
    registers.rflags = random.next() & FLAGS | 0x202;
    let base = |random: &mut Random| match random.next() % 4 {
        0 => 0,
        1 => random.next() >> 17,
        2 => random.next() >> 17 | 0xffff_8000_0000_0000,
        _ => random.next() & 0xffff_ffff,
    };
    (registers.fs_base, registers.gs_base) = (base(random), base(random));
    // Not 1, 2 and 3: IRET in the host's kernel makes 0 of them (SDM 2, IRET).
    registers.selectors = [0; 4].map(|_: u16| random.one_of(&[0, 0, 0x2b, 0x33]));
    thread.extended = random_extended(random);
}

#[test]
fn a_fault_at_the_first_instruction_changes_nothing() {
    let guest = Guest::new();
    // ud2
    guest.write(CODE_OFFSET, &[0x0f, 0x0b]);
    let mut thread = guest.thread();
    let mut random = Random(0x1234_5678_9abc_def1);
    for _ in 0..3000 {
        randomize(&mut thread, &mut random, CODE);
        let (before, extended) = (thread.registers, thread.extended.clone());
        assert_eq!(thread.run(), exception(6, 0));
        // Faults push RF.
        thread.registers.rflags &= !0x1_0000;
        assert_eq!(before, thread.registers);
        compare_extended(&extended[..], &thread.extended[..]);
    }
}

#[test]
fn a_system_call_changes_what_the_instruction_changes() {
    let guest = Guest::new();
    guest.write(CODE_OFFSET + 0x123, &[0x0f, 0x05]);
    let mut thread = guest.thread();
    let mut random = Random(0xfeed_f00d);
    for _ in 0..3000 {
        randomize(&mut thread, &mut random, CODE + 0x123);
        let (mut expected, extended) = (thread.registers, thread.extended.clone());
        expected.rip += 2;
        expected.general[1] = expected.rip;
        expected.general[11] = expected.rflags;
        assert_eq!(thread.run(), Stop::SystemCall);
        assert_eq!(expected, thread.registers);
        compare_extended(&extended[..], &thread.extended[..]);
    }
}

#[test]
fn components_that_are_not_in_use_start_as_after_a_reset() {
    let guest = Guest::new();
    guest.write(CODE_OFFSET, &[0x0f, 0x0b]);
    let mut thread = guest.thread();
    let mut random = Random(77);
    randomize(&mut thread, &mut random, CODE);
    assert_eq!(thread.run(), exception(6, 0));
    // Nothing in use: what the registers held before must not shine through.
    thread.extended = initial_state();
    thread.registers.rip = CODE;
    assert_eq!(thread.run(), exception(6, 0));
    let image = &thread.extended;
    assert_eq!(image[..2], 0x37f_u16.to_le_bytes());
    assert!(image[32..416].iter().all(|&byte| byte == 0));
    let in_use = u64::from_le_bytes(image[IN_USE..IN_USE + 8].try_into().unwrap());
    for (bit, place) in components() {
        let zero = image[place].iter().all(|&byte| byte == 0);
        assert!(in_use & bit == 0 || zero, "component {bit:#x}");
    }
}

#[test]
fn a_kick_changes_nothing() {
    let guest = Guest::new();
    // jmp to itself
    guest.write(CODE_OFFSET, &[0xeb, 0xfe]);
    let mut thread = guest.thread();
    let mut random = Random(0xabcdef);
    for _ in 0..200 {
        randomize(&mut thread, &mut random, CODE);
        let (before, extended) = (thread.registers, thread.extended.clone());
        let kick = std::sync::Arc::clone(&thread.kick);
        let kicker = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_micros(300));
            kick.kick();
        });
        assert_eq!(thread.run(), Stop::Kicked);
        kicker.join().unwrap();
        thread.registers.rflags &= !0x1_0000;
        assert_eq!(before, thread.registers);
        // A kick that came before the program had begun has touched nothing at all.
        if thread.extended[IN_USE] & 3 == 3 {
            compare_extended(&extended[..], &thread.extended[..]);
        }
    }
}

#[test]
fn two_threads_take_turns_in_one_space() {
    let guest = Guest::new();
    // inc r12; vpaddq-like work is left to the random state; syscall; jmp back
    guest.write(CODE_OFFSET, &[0x49, 0xff, 0xc4, 0x0f, 0x05, 0xeb, 0xf9]);
    let mut thread = guest.thread();
    let mut random = Random(5);
    let mut states: Vec<_> = (0..4)
        .map(|_| {
            randomize(&mut thread, &mut random, CODE);
            (thread.registers, thread.extended.clone())
        })
        .collect();
    let first: Vec<_> = states.iter().map(|(registers, _)| registers.general[12]).collect();
    let images: Vec<_> = states.iter().map(|(_, image)| image.clone()).collect();
    for _ in 0..200 {
        for (registers, image) in &mut states {
            assert_eq!(thread.space.run(registers, image, &thread.kick), Stop::SystemCall);
        }
    }
    for (index, (registers, image)) in states.iter().enumerate() {
        assert_eq!(registers.general[12], first[index].wrapping_add(200));
        compare_extended(&images[index][..], &image[..]);
    }
}
