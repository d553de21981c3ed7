//! The console's ring.

use std::sync::Arc;

use fastrand::Rng;
use xen_abi::Mfn;
use xen_fronts::machine::{BASE, Machine, address};
use xen_io::console::Console;
use xen_io::{Broken, Memory};

const PAGE: u32 = 5;

fn console() -> (Arc<Machine>, Console) {
    let machine = Machine::new();
    let console = Console::new(&*machine, Mfn(BASE + u64::from(PAGE))).expect("it is memory");
    (machine, console)
}

fn get(machine: &Machine, offset: u64) -> u32 {
    let mut bytes = [0; 4];
    machine.read(address(PAGE).plus(offset), &mut bytes).expect("it is there");
    u32::from_le_bytes(bytes)
}

fn set(machine: &Machine, offset: u64, value: u32) {
    machine.write(address(PAGE).plus(offset), &value.to_le_bytes()).expect("it is there");
}

#[test]
fn bytes_go_both_ways_round_and_round() {
    let (machine, mut console) = console();
    let mut random = Rng::with_seed(1);
    let (mut written, mut taken, mut given, mut read) = (vec![], vec![], vec![], vec![]);
    for _ in 0..500 {
        let (consumer, producer) = (get(&machine, 3080), get(&machine, 3084));
        let count = random.u32(..=2048 - producer.wrapping_sub(consumer));
        for index in producer..producer + count {
            let byte = random.u8(..);
            let at = address(PAGE).plus(1024 + u64::from(index % 2048));
            machine.write(at, &[byte]).expect("it is there");
            written.push(byte);
        }
        set(&machine, 3084, producer + count);
        assert_eq!(console.take(&*machine, &mut taken), Ok(count > 0));
        let offered: Vec<u8> = (0..random.usize(..3000)).map(|_| random.u8(..)).collect();
        let room = 1024 - get(&machine, 3076).wrapping_sub(get(&machine, 3072)) as usize;
        let count = console.give(&*machine, &offered).expect("the indices are right");
        assert_eq!(count, offered.len().min(room));
        given.extend_from_slice(&offered[..count]);
        let (consumer, producer) = (get(&machine, 3072), get(&machine, 3076));
        let end = consumer + random.u32(..=producer - consumer);
        for index in consumer..end {
            let mut byte = [0];
            let at = address(PAGE).plus(u64::from(index % 1024));
            machine.read(at, &mut byte).expect("it is there");
            read.extend(byte);
        }
        set(&machine, 3072, end);
    }
    assert!(taken == written && given[..read.len()] == read && read.len() > 10_000);
}

#[test]
fn indices_that_cannot_be_end_the_console() {
    let (machine, mut console) = console();
    let mut bytes = Vec::new();
    set(&machine, 3084, 2049);
    let expected = Broken::Index { index: 2049, most: 2048 };
    assert_eq!(console.take(&*machine, &mut bytes), Err(expected));
    assert!(bytes.is_empty());
    set(&machine, 3072, 1);
    assert!(console.give(&*machine, b"text").is_err());
    assert_eq!(get(&machine, 3076), 0);
}
