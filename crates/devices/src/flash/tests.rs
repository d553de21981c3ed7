use std::sync::{Arc, Mutex};

use machine::bus::{MemoryDevice, Size};
use proptest::prelude::*;

use super::{BLOCK_BYTES, BUFFER_BYTES, Flash, Medium, Refused, State, Status};

const BLOCKS: usize = 3;

/// Bytes and where they go.
type Writes = Vec<(u64, Vec<u8>)>;

/// Where what is written goes, and whether it is full.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<(Writes, bool)>>);

impl Medium for Written {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Refused> {
        let mut it = self.0.lock().unwrap();
        if it.1 {
            return Err(Refused);
        }
        it.0.push((offset, bytes.to_vec()));
        Ok(())
    }
}

impl Written {
    fn take(&self) -> Writes {
        std::mem::take(&mut self.0.lock().unwrap().0)
    }

    fn fill_up(&self) {
        self.0.lock().unwrap().1 = true;
    }
}

/// Flash of which each byte is the number of its block plus 1.
fn flash() -> (Flash, Written) {
    let contents = (0..BLOCKS * BLOCK_BYTES).map(|at| (at / BLOCK_BYTES) as u8 + 1).collect();
    let written = Written::default();
    (Flash::new(contents, Some(Box::new(written.clone()))), written)
}

fn store(flash: &mut Flash, offset: u64, bytes: &[u8]) {
    bytes.iter().for_each(|byte| flash.write(offset, Size::Byte, (*byte).into()));
}

fn load(flash: &mut Flash, offset: u64) -> u8 {
    flash.read(offset, Size::Byte) as u8
}

/// Loads after these stores to the second block give this, and the flash then keeps this in its second block.
#[track_caller]
fn check(stores: &[u8], load_gives: u8, kept: [u8; 2]) {
    let (mut flash, _) = flash();
    let at = BLOCK_BYTES as u64;
    store(&mut flash, at, stores);
    assert_eq!(load(&mut flash, at), load_gives, "{stores:x?}");
    flash.reset();
    assert_eq!([load(&mut flash, at), load(&mut flash, at + 1)], kept, "{stores:x?}");
}

#[test]
fn stores_are_commands() {
    check(&[], 2, [2, 2]);
    check(&[0x70], 0x00, [2, 2]);
    check(&[0x70, 0xff], 2, [2, 2]);
    check(&[0x90], 0x00, [2, 2]);
    check(&[0x98, 0x90, 0x00], 2, [2, 2]);
    check(&[0x10, 0x5a], 0x80, [0x5a, 2]);
    check(&[0x40, 0xff, 0xff], 0xff, [0xff, 2]);
    check(&[0x20, 0xd0], 0x80, [0xff, 0xff]);
    check(&[0x20, 0xff], 2, [2, 2]);
    check(&[0x20, 0x20], 0xb0, [2, 2]);
    check(&[0x20, 0x20, 0x50], 2, [2, 2]);
    check(&[0x20, 0x20, 0x50, 0x70], 0x00, [2, 2]);
    check(&[0x60, 0xd0], 0x80, [2, 2]);
    check(&[0x60, 0x01], 0x80, [2, 2]);
    check(&[0x60, 0x02], 0xb0, [2, 2]);
    check(&[0x60, 0xff], 2, [2, 2]);
    // One store fills the buffer.
    check(&[0xe8], 0x80, [2, 2]);
    check(&[0xe8, 0x00, 0x5a], 0x80, [2, 2]);
    check(&[0xe8, 0x00, 0x5a, 0xd0], 0x80, [0x5a, 2]);
    check(&[0xe8, 0x00, 0x5a, 0xff], 2, [2, 2]);
    check(&[0xe8, 0x00, 0x5a, 0x70], 0xb0, [2, 2]);
    check(&[0xe8, 0x01, 0x5a, 0xd0, 0xd0], 0x80, [0xd0, 2]);
}

/// What edk2 does to know flash from RAM and ROM (OvmfPkg, QemuFlash.c).
#[test]
fn edk2_knows_it_by_its_cleared_status() {
    let (mut flash, _) = flash();
    store(&mut flash, 0, &[0x50]);
    assert_ne!(load(&mut flash, 0), 0x50);
    store(&mut flash, 0, &[0x70]);
    assert_eq!(load(&mut flash, 0), 0x00);
    store(&mut flash, 0, &[0xff]);
    assert_eq!(load(&mut flash, 0), 1);
}

#[test]
fn all_sizes_are_loaded_and_programmed() {
    let (mut flash, written) = flash();
    let sizes = [(Size::Byte, 1), (Size::Word, 2), (Size::Dword, 4), (Size::Qword, 8)];
    for (size, count) in sizes {
        flash.write(8, size, 0x10);
        flash.write(8, size, 0x8877_6655_4433_2211 & size.mask());
        assert_eq!(flash.read(8, size), 0x8080_8080_8080_8080 & size.mask());
        flash.write(8, size, 0xff);
        assert_eq!(flash.read(8, size), 0x8877_6655_4433_2211 & size.mask());
        let (offset, bytes) = written.take().pop().unwrap();
        assert_eq!((offset, bytes.len()), (8, count));
    }
    assert_eq!(flash.read((BLOCKS * BLOCK_BYTES - 1) as u64, Size::Dword), 0xffff_ff03);
    assert_eq!(flash.read(u64::MAX, Size::Qword), u64::MAX);
}

#[test]
fn it_tells_what_it_is() {
    let (mut flash, _) = flash();
    store(&mut flash, 0, &[0x98]);
    let table: Vec<_> = (0x10..0x36).map(|at| load(&mut flash, at)).collect();
    assert_eq!(&table[..7], b"QRY\x01\0\x31\0");
    // 16 KiB would hold it; buffer, regions, blocks less one, and 16 times 256 bytes.
    assert_eq!(&table[0x17..0x21], &[14, 0, 0, 11, 0, 1, 2, 0, 16, 0]);
    assert_eq!(&table[0x21..], b"PRI10");
}

#[test]
fn a_block_is_erased_and_written_at_once() {
    let (mut flash, written) = flash();
    let within = BLOCK_BYTES as u64 + 123;
    store(&mut flash, within, &[0x20, 0xd0, 0xff]);
    let ends = [0, 1, 2, 3].map(|n: u64| (n * BLOCK_BYTES as u64).saturating_sub(n % 2));
    assert_eq!(ends.map(|at| load(&mut flash, at)), [1, 1, 3, 3]);
    assert_eq!(load(&mut flash, BLOCK_BYTES as u64), 0xff);
    assert_eq!(written.take(), [(BLOCK_BYTES as u64, vec![0xff; BLOCK_BYTES])]);
}

#[test]
fn the_buffer_is_programmed_as_a_whole() {
    let (mut flash, written) = flash();
    store(&mut flash, 0, &[0xe8, 255]);
    (0..256).for_each(|n| flash.write(n * 8, Size::Qword, n));
    store(&mut flash, 0, &[0xd0, 0xff]);
    let (offset, bytes) = written.take().pop().unwrap();
    assert_eq!((offset, bytes.len()), (0, BUFFER_BYTES));
    assert_eq!(flash.read(255 * 8, Size::Qword), 255);
    // What is stored twice has the last value, and what is between two stores stays.
    store(&mut flash, 100, &[0xe8, 2, 1, 2]);
    flash.write(104, Size::Byte, 3);
    store(&mut flash, 0, &[0xd0, 0xff]);
    assert_eq!(written.take(), [(100, vec![2, 0, 0, 0, 3])]);
}

#[test]
fn what_leaves_the_buffer_is_not_programmed() {
    let (mut flash, written) = flash();
    let buffer = BUFFER_BYTES as u64;
    for other in [0, buffer - 1, 2 * buffer - 1, 2 * buffer, u64::MAX] {
        store(&mut flash, buffer, &[0x50, 0xe8, 1]);
        flash.write(buffer, Size::Byte, 0x11);
        flash.write(other, Size::Word, 0x2222);
        store(&mut flash, 0, &[0xd0]);
        assert_eq!(load(&mut flash, 0), 0x90, "{other:#x}");
    }
    let end = (BLOCKS * BLOCK_BYTES) as u64;
    for (at, stores, status) in [
        (end - 1, &[0x10u64, 0x1_0000][..], 0x90),
        (end, &[0x10, 1], 0x90),
        (u64::MAX, &[0x10, 1], 0x90),
        (end, &[0x20, 0xd0], 0xa0),
        (u64::MAX, &[0x20, 0xd0], 0xa0),
    ] {
        store(&mut flash, 0, &[0x50]);
        stores.iter().for_each(|value| flash.write(at, Size::Dword, *value));
        assert_eq!(load(&mut flash, 0), status, "{at:#x} {stores:x?}");
    }
    assert_eq!(written.take(), []);
    flash.reset();
    assert_eq!([load(&mut flash, buffer), load(&mut flash, end - 1)], [1, 3]);
}

#[test]
fn what_the_medium_refuses_is_not_there() {
    let (mut flash, written) = flash();
    written.fill_up();
    for (stores, status) in
        [(&[0x10, 0x5a][..], 0x90), (&[0x20, 0xd0], 0xa0), (&[0xe8, 0, 0x5a, 0xd0], 0x90)]
    {
        store(&mut flash, 0, &[0x50]);
        store(&mut flash, 7, stores);
        assert_eq!(load(&mut flash, 7), status, "{stores:x?}");
        // It stays until it is cleared.
        store(&mut flash, 7, &[0xff, 0x70]);
        assert_eq!(load(&mut flash, 7), status);
        store(&mut flash, 7, &[0xff]);
        assert_eq!(load(&mut flash, 7), 1);
    }
}

#[test]
fn a_reset_ends_commands_and_keeps_what_is_kept() {
    for begun in [&[0x10][..], &[0x20], &[0x60], &[0x70], &[0xe8], &[0xe8, 3, 1], &[0xe8, 0, 1]] {
        let (mut flash, _) = flash();
        store(&mut flash, 0, &[0x10, 0x5a]);
        store(&mut flash, 0, begun);
        flash.reset();
        assert_eq!((&flash.state, flash.status), (&State::Array, Status::empty()));
        assert_eq!([load(&mut flash, 0), load(&mut flash, 1)], [0x5a, 1]);
    }
}

#[test]
fn without_a_medium_it_is_gone_with_the_machine() {
    let mut flash = Flash::new(vec![0; BLOCK_BYTES + 5], None);
    store(&mut flash, 0, &[0x10, 0x5a, 0xff]);
    assert_eq!([load(&mut flash, 0), load(&mut flash, BLOCK_BYTES as u64)], [0x5a, 0xff]);
    let mut nothing = Flash::new(Vec::new(), None);
    store(&mut nothing, 0, &[0x20, 0xd0]);
    assert_eq!(load(&mut nothing, 0), 0xa0);
    store(&mut nothing, 0, &[0x98]);
    assert_eq!(load(&mut nothing, 0x2d), 0);
}

fn accesses() -> impl Strategy<Value = Vec<(u64, u8, u64, bool)>> {
    let end = (BLOCKS * BLOCK_BYTES) as u64;
    let offset =
        prop_oneof![8 => 0..end + 8, 1 => Just(BUFFER_BYTES as u64 - 1), 1 => any::<u64>()];
    const COMMANDS: &[u64] = &[0x10, 0x20, 0x40, 0x50, 0x60, 0x70, 0x98, 0xd0, 0xe8, 0xff, 0, 1, 3];
    let value = prop_oneof![4 => proptest::sample::select(COMMANDS), 1 => any::<u64>()];
    prop::collection::vec((offset, 0u8..4, value, any::<bool>()), 0..300)
}

proptest! {
    /// Whatever a guest does, nothing panics, and what it reads is what the medium was given.
    #[test]
    fn any_accesses_are_ordinary(accesses in accesses()) {
        let (mut flash, written) = flash();
        let mut kept = flash.contents.clone();
        for (offset, size, value, is_load) in accesses {
            let size = Size::from_bytes(1 << size).unwrap();
            match is_load {
                true => { flash.read(offset, size); }
                false => flash.write(offset, size, value & size.mask()),
            }
            for (at, bytes) in written.take() {
                prop_assert!(bytes.len() <= BLOCK_BYTES);
                kept[at as usize..][..bytes.len()].copy_from_slice(&bytes);
            }
            if let State::Fill(_, stores) | State::Full(stores) = &flash.state {
                prop_assert!(stores.len() <= 256);
            }
        }
        prop_assert_eq!(&flash.contents, &kept);
    }
}
