//! The flash of firmware's variables, which keeps what its medium was given, and is refused some of it.

#![no_main]

use std::sync::{Arc, Mutex};

use devices::Flash;
use devices::flash::{BLOCK_BYTES, Medium, Refused};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use machine::bus::{MemoryDevice, Size};

const BLOCKS: usize = 4;

#[derive(Debug, Arbitrary)]
enum Step {
    Load { offset: u16, size: u8 },
    Store { offset: u16, size: u8, value: u64 },
    Command { offset: u16, command: Command },
    Far { offset: u64, value: u64 },
    Fail { fails: bool },
    Reset,
}

/// Those that an input of few bytes would not find.
#[derive(Debug, Clone, Copy, Arbitrary)]
#[repr(u8)]
enum Command {
    Program = 0x10,
    Erase = 0x20,
    Confirm = 0xd0,
    Buffer = 0xe8,
    Query = 0x98,
    Array = 0xff,
}

#[derive(Clone)]
struct File(Arc<Mutex<(Vec<u8>, bool)>>);

impl Medium for File {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Refused> {
        let (kept, fails) = &mut *self.0.lock().expect("nobody panics");
        if *fails {
            return Err(Refused);
        }
        kept[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

fuzz_target!(|steps: Vec<Step>| {
    let contents = vec![0x11; BLOCKS * BLOCK_BYTES];
    let file = File(Arc::new(Mutex::new((contents.clone(), false))));
    let mut flash = Flash::new(contents, Some(Box::new(file.clone())));
    let size = |exponent: u8| Size::from_bytes(1 << (exponent & 3)).expect("it is one");
    // A little more than there is.
    let place = |offset: u16| u64::from(offset) % ((BLOCKS * BLOCK_BYTES) as u64 + 9);
    for step in steps {
        match step {
            Step::Load { offset, size: exponent } => {
                flash.read(place(offset), size(exponent));
            }
            Step::Store { offset, size: exponent, value } => {
                let size = size(exponent);
                flash.write(place(offset), size, value & size.mask());
            }
            Step::Command { offset, command } => {
                flash.write(place(offset), Size::Byte, command as u64);
            }
            Step::Far { offset, value } => {
                flash.write(offset, Size::Qword, value);
                flash.read(offset, Size::Qword);
            }
            Step::Fail { fails } => file.0.lock().expect("nobody panics").1 = fails,
            Step::Reset => flash.reset(),
        }
    }
    flash.reset();
    let (kept, _) = &*file.0.lock().expect("nobody panics");
    for (at, expected) in kept.iter().enumerate() {
        assert_eq!(flash.read(at as u64, Size::Byte), u64::from(*expected), "{at:#x}");
    }
});
