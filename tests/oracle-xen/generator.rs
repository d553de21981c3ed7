//! Random scripts for `guest/paravirtual/kernel/script.c`: operations that mostly are such as a kernel makes, and wrong
//! ones among them. What is not to be compared is left out: no frame is used as tables of several levels, because of
//! what Xen leaves in them (its own entries in an L4, bits in those of the others, which another level may not have).

use fastrand::Rng;

/// Three arguments after a kind, as `struct operation` has them.
pub type Operation = [u64; 4];

/// Kinds begin with these numbers.
const EVENTS: u64 = 16;
const GRANTS: u64 = 48;

const POOL: u64 = 40;

/// A root from the start of a script to its end, which others may name.
const PINNED_ROOT: u64 = 6;

/// What a frame of the pool mostly is used as: a level, or 0 for memory.
fn usual(frame: u64) -> u64 {
    [1, 1, 1, 2, 2, 3, 4, 0][(frame % 8) as usize]
}

fn any_of<T: Copy>(random: &mut Rng, values: &[T]) -> T {
    values[random.usize(..values.len())]
}

/// A frame that mostly is used as a level.
fn frame_of(random: &mut Rng, level: u64) -> u64 {
    let candidates: Vec<u64> = (0..POOL).filter(|frame| usual(*frame) == level).collect();
    any_of(random, &candidates)
}

/// A script of the number that is its seed.
pub fn script(number: u64) -> Vec<Operation> {
    let mut random = Rng::with_seed(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let count = random.usize(20..60);
    let kind = number % 4;
    let mut fifo = Fifo { is_likely: random.bool() };
    let first = if kind == 1 { None } else { Some([2, PINNED_ROOT, 3, 0]) };
    let others = (0..count).map(|index| match kind {
        0 => page_operation(&mut random),
        1 | 2 if kind == 1 || random.u8(..8) > 0 => fifo.operation(&mut random, index),
        3 if random.u8(..8) > 0 => grant_operation(&mut random),
        _ => page_operation(&mut random),
    });
    first.into_iter().chain(others).collect()
}

/// A value for a table of this level.
fn entry(random: &mut Rng, level: u64) -> u64 {
    if random.u8(..6) == 0 {
        return random.u64(..) & !1;
    }
    let target = match (level, random.u8(..10)) {
        // A linear entry.
        (4, 0) => PINNED_ROOT,
        (4, _) => frame_of(random, 3),
        (2 | 3, 0) => any_of(random, &[PINNED_ROOT, 0xffff]),
        (3, _) => frame_of(random, 2),
        (2, _) => frame_of(random, 1),
        (_, 0) => 0xffff,
        // Whatever this table is pinned as, no root becomes another table by it.
        _ => any_of(random, &(0..POOL).filter(|frame| usual(*frame) != 4).collect::<Vec<_>>()),
    };
    let mut flags = 1 | random.u64(..) & (2 | 4 | 0x60 | 1 << 63);
    if level > 1 && random.u8(..4) > 0 {
        flags |= 7;
    }
    if random.u8(..20) == 0 {
        // Global, which only an L1 may be, and available. Memory types are left out: domain 0 may choose them.
        flags |= 1 << random.u64(8..12);
    }
    target << 12 | flags
}

fn page_operation(random: &mut Rng) -> Operation {
    let frame = random.u64(..POOL);
    let level = usual(frame);
    let slot = any_of(random, &[0, 1, 2, 255, 272, 511]);
    match random.u8(..20) {
        0..=6 => [random.u64(..8) / 7, frame, slot, entry(random, level)],
        // By a store, an exchange, a comparison that succeeds, and one that does not.
        7..=9 => [any_of(random, &[6, 6, 7, 8, 9]), frame, slot, entry(random, level)],
        10..=13 => {
            let (frame, wanted) = match random.u8(..8) {
                0 => (PINNED_ROOT, random.u64(1..4)),
                _ => (frame, level.max(1)),
            };
            [2, frame, wanted - 1, 0]
        }
        14 | 15 if frame != PINNED_ROOT => [3, frame, 0, 0],
        16 => [4, frame_of(random, 4), 0, random.u64(..3)],
        _ => [5, frame, 0, random.u64(..2)],
    }
}

/// Scripts of events change to FIFO at some time, or not.
struct Fifo {
    is_likely: bool,
}

impl Fifo {
    fn operation(&mut self, random: &mut Rng, index: usize) -> Operation {
        if self.is_likely && index < 3 {
            let offset = any_of(random, &[0, 8, 128]);
            return if index == 0 { [EVENTS + 10, 0, offset, 0] } else { [EVENTS + 11, 1, 0, 0] };
        }
        event_operation(random)
    }
}

fn port(random: &mut Rng) -> u64 {
    match random.u8(..30) {
        0 => 0,
        1 => random.u64(64..3000),
        2 => any_of(random, &[4095, 4096, 1 << 17, 0xffff_ffff]),
        _ => random.u64(1..9),
    }
}

fn event_operation(random: &mut Rng) -> Operation {
    let (first, second, vcpu) =
        (port(random), port(random), any_of(random, &[0, 0, 0, 0, 1, 1 << 20]));
    let kind = |number: u64| EVENTS + number;
    match random.u8(..64) {
        0..=5 => [kind(0), random.u64(..4), random.u64(..4), 0],
        6..=11 => [kind(1), random.u64(..4), first, 0],
        12..=14 => {
            // Not those that Xen raises for itself.
            let interrupt = any_of(random, &[0, 1, 3, 4, 6, 7, 9, 16, 23, 24, 0xffff_ffff]);
            [kind(2), interrupt, vcpu, 0]
        }
        15..=18 => [kind(3), vcpu, 0, 0],
        19..=23 => [kind(4), first, 0, 0],
        24..=35 => [kind(5), first, 0, 0],
        36..=38 => [kind(6), random.u64(..4), first, 0],
        39 | 40 => [kind(7), first, vcpu, 0],
        41..=45 => [kind(8), first, 0, 0],
        46 if random.u8(..3) == 0 => [kind(9), random.u64(..4), 0, 0],
        46 | 47 => {
            let offset = any_of(random, &[0, 8, 16, 4, 4024, 4032, 1 << 31]);
            [kind(10), random.u64(..16), offset, vcpu]
        }
        48 => [kind(11), random.u64(..8), 0, 0],
        49..=52 => [kind(12), first, any_of(random, &[0, 1, 7, 15, 16, 1 << 31]), 0],
        53..=56 => [kind(13), first, 0, 0],
        57..=60 => [kind(14), 0, 0, 0],
        61 => {
            let word = random.u64(..16) << 28 | any_of(random, &[0, first, second]);
            [kind(15), first, word & 0xffff_ffff, 0]
        }
        62 if random.u8(..4) == 0 => [kind(16), random.u64(..24), second, 0],
        _ => [kind(17), second, 0, 0],
    }
}

fn grant_operation(random: &mut Rng) -> Operation {
    let reference = match random.u8(..24) {
        0 => any_of(random, &[255, 256, 511, 512, 0xffff]),
        _ => random.u64(..12),
    };
    let (handle, address) = (random.u64(..5), random.u64(..16));
    let kind = |number: u64| GRANTS + number;
    // The own number, mostly; the others are wrong.
    let domain = any_of(random, &[2, 2, 2, 2, 2, 0, 3]);
    match random.u8(..48) {
        0..=13 => {
            let flags = any_of(random, &[1, 1, 1, 1, 1, 5, 5, 0x101, 0, 2, 3, 0x21, 0x19]);
            let range = any_of(random, &[0, 0x800_0000, 0x1000_0000, 0x0100_0040_0000]);
            [kind(0), reference, flags | domain << 16, frame(random) | range << 16 >> 16 << 16]
        }
        14..=23 => {
            let flags = any_of(random, &[2, 2, 2, 6, 6, 18, 22, 1, 3, 7, 10, 0, 5, 0x1_0002]);
            [kind(1), reference | domain << 16, flags, address.min(random.u64(..16))]
        }
        24..=31 => [kind(2), handle, address, random.u64(..8) & random.u64(..8)],
        32 => [kind(3), handle, address, random.u64(..10)],
        33..=38 => copy(random, reference),
        39 => [kind(5), any_of(random, &[0, 1, 2, 2, 3, 4, 64, 65]), random.u64(..4), 0],
        40 => [kind(6), random.u64(..4), 0, 0],
        41 | 42 => [kind(7), any_of(random, &[1, 2, 2, 0, 3]), 0, 0],
        43 => [kind(8), random.u64(..4), 0, 0],
        44 => [kind(9), random.u64(..3), random.u64(..4), 0],
        45 => [kind(10), reference, random.u64(..12), 0],
        // Not what is no memory, which domain 0 may map as a device's.
        46 => [kind(11), random.u64(..4), frame(random).min(9), random.u64(..4)],
        _ => [kind(12), any_of(random, &[0, 1, 2, 3, 5, 6, 7, 9, 11, 13, 40, 0x1000]), 0, 0],
    }
}

fn frame(random: &mut Rng) -> u64 {
    if random.u8(..3) > 0 { random.u64(..4) } else { random.u64(..12) }
}

fn copy(random: &mut Rng, reference: u64) -> Operation {
    let flags = any_of(random, &[0, 1, 2, 3, 1, 3]);
    let mut side = |is_reference: bool| {
        let domain =
            any_of(random, if is_reference { &[2, 2, 0, 0, 3] } else { &[0, 0, 0, 0, 0, 2] });
        let offset = any_of(random, &[0, 0, 64, 128, 4000, 4096]);
        let page = if is_reference { (reference + random.u64(..2)) & 0xff } else { frame(random) };
        page | domain << 8 | offset << 16
    };
    let (source, destination) = (side(flags & 1 != 0), side(flags & 2 != 0));
    let length = any_of(random, &[0, 8, 64, 96, 128, 4096, 0xffff]);
    [GRANTS + 4, source, destination, length | flags << 16]
}
