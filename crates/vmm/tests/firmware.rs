//! A machine that starts firmware: a few instructions at the end of an image, which run from RESET on.

use std::fs::File;
use std::sync::Arc;

use vmm::devices::{DebugExit, Device, Flash, Keeper};
use vmm::{Configuration, Contents, Machine, Outcome};

const IMAGE_BYTES: usize = 128 << 10;

/// Where the last 64 KiB of the image have code, and a byte to be tried.
const CODE: usize = 0xf000;
const TRIED: usize = 0xf100;

/// What that byte is in the image.
const ORIGINAL: u8 = 0x11;

/// An image that runs this in real mode, with the data segment at the copy below 1 MiB.
fn image(code: &[u8]) -> Vec<u8> {
    let mut image = vec![0xff; IMAGE_BYTES];
    let segment = IMAGE_BYTES - 0x1_0000;
    image[segment + CODE..][..code.len()].copy_from_slice(code);
    image[segment + TRIED] = ORIGINAL;
    let back = (CODE as u16).wrapping_sub(0xfff3).to_le_bytes();
    image[segment + 0xfff0..][..3].copy_from_slice(&[0xe9, back[0], back[1]]);
    image
}

/// How a machine ends that does this. `out 0xf4, al` ends it with AL.
fn outcome(code: &[u8], interpret: bool) -> Outcome {
    let devices: Vec<Box<dyn Device>> = vec![Box::new(DebugExit)];
    let configuration = Configuration {
        firmware: Some(Contents::new(image(code))),
        memory: 16 << 20,
        devices,
        interpret,
        ..Configuration::default()
    };
    let mut machine: Machine = Machine::new(configuration).expect("a machine");
    machine.run().expect("it runs")
}

fn check(code: &[u8], expected: u8) {
    for interpret in [false, true] {
        assert_eq!(outcome(code, interpret), Outcome::DebugExit(expected << 1 | 1), "{interpret}");
    }
}

#[test]
fn what_is_written_to_the_rom_is_lost() {
    let written = [
        0x2e, 0xc6, 0x06, 0x00, 0xf1, 0x22, // mov byte cs:[TRIED], 0x22
        0x2e, 0xa0, 0x00, 0xf1, // mov al, cs:[TRIED]
        0xe6, 0xf4, // out 0xf4, al
    ];
    check(&written, ORIGINAL);
    let locked = [
        0xf0, 0x2e, 0x80, 0x06, 0x00, 0xf1, 0x22, // lock add byte cs:[TRIED], 0x22
        0x2e, 0xa0, 0x00, 0xf1, // mov al, cs:[TRIED]
        0xe6, 0xf4, // out 0xf4, al
    ];
    check(&locked, ORIGINAL);
}

#[test]
fn the_copy_below_one_mebibyte_is_memory() {
    let code = [
        0xb8, 0x00, 0xf0, // mov ax, 0xf000
        0x8e, 0xd8, // mov ds, ax
        0x80, 0x06, 0x00, 0xf1, 0x22, // add byte [TRIED], 0x22
        0xa0, 0x00, 0xf1, // mov al, [TRIED]
        0xe6, 0xf4, // out 0xf4, al
    ];
    check(&code, ORIGINAL + 0x22);
}

/// The chip set is one that firmware knows: the host bridge is an Intel 440FX.
#[test]
fn the_host_bridge_is_one_that_firmware_knows() {
    let code = [
        0x66, 0xb8, 0x00, 0x00, 0x00, 0x80, // mov eax, 0x80000000
        0xba, 0xf8, 0x0c, // mov dx, 0xcf8
        0x66, 0xef, // out dx, eax
        0xba, 0xfe, 0x0c, // mov dx, 0xcfe
        0xec, // in al, dx
        0xe6, 0xf4, // out 0xf4, al
    ];
    check(&code, 0x37);
}

/// An image of 32 KiB, so that flash below it is in the first segment, from 0x7000 on.
const SMALL_BYTES: usize = 32 << 10;

/// How a machine ends that does this and may reboot, and has so many bytes of flash with 0x11 everywhere.
fn outcome_with_flash(
    code: &[u8],
    bytes: usize,
    keeper: Option<Keeper>,
) -> Result<Outcome, String> {
    let image = image(code);
    let flash = Flash::new(vec![0x11; bytes], keeper);
    let devices: Vec<Box<dyn Device>> = vec![Box::new(DebugExit), Box::new(flash)];
    let configuration = Configuration {
        firmware: Some(Contents::new(image[IMAGE_BYTES - SMALL_BYTES..].to_vec())),
        memory: 16 << 20,
        devices,
        reboot: true,
        ..Configuration::default()
    };
    let mut machine: Machine = Machine::new(configuration).map_err(|error| error.to_string())?;
    machine.run().map_err(|error| error.to_string())
}

/// Ends with what is at the beginning of the flash. Before, unless it is 0x5a, makes it that, and reboots in the middle
/// of the next command.
const PROGRAMMING: [u8; 34] = [
    0x2e, 0xa0, 0x00, 0x70, // mov al, cs:[0x7000]
    0x3c, 0x5a, // cmp al, 0x5a
    0x74, 0x18, // je the last but one
    0x2e, 0xc6, 0x06, 0x00, 0x70, 0x10, // mov byte cs:[0x7000], 0x10
    0x2e, 0xc6, 0x06, 0x00, 0x70, 0x5a, // mov byte cs:[0x7000], 0x5a
    0x2e, 0xc6, 0x06, 0x00, 0x70, 0x10, // mov byte cs:[0x7000], 0x10
    0xb0, 0xfe, // mov al, 0xfe
    0xe6, 0x64, // out 0x64, al
    0xeb, 0xfe, // jmp to itself
    0xe6, 0xf4, // out 0xf4, al
];

#[test]
fn what_is_programmed_is_there_after_a_reboot() {
    let expected = Ok(Outcome::DebugExit(0x5a << 1 | 1));
    assert_eq!(outcome_with_flash(&PROGRAMMING, 4096, None), expected);
}

#[test]
fn a_file_keeps_what_is_programmed() {
    let path = std::env::temp_dir().join(format!("biv-flash-{}", std::process::id()));
    std::fs::write(&path, [0x11; 8192]).expect("there is room");
    let file = File::options().write(true).open(&path).expect("it was made");
    let keeper = Keeper::new(file, "a file".into(), Arc::new(|text: &str| panic!("{text}")));
    let outcome = outcome_with_flash(&PROGRAMMING, 4096, Some(keeper));
    let kept = std::fs::read(&path).expect("it is there");
    std::fs::remove_file(&path).expect("likewise");
    assert_eq!(outcome, Ok(Outcome::DebugExit(0x5a << 1 | 1)));
    assert_eq!((kept[0], &kept[1..]), (0x5a, &[0x11; 8191][..]));
}

/// The host's disk is full: the guest reads what was there, and the status with bits 4 and 7.
#[test]
fn the_guest_is_told_when_the_host_cannot_write() {
    let code = [
        0x2e, 0xc6, 0x06, 0x00, 0x70, 0x10, // mov byte cs:[0x7000], 0x10
        0x2e, 0xc6, 0x06, 0x00, 0x70, 0x5a, // mov byte cs:[0x7000], 0x5a
        0x2e, 0xa0, 0x00, 0x70, // mov al, cs:[0x7000]
        0x2e, 0xc6, 0x06, 0x00, 0x70, 0xff, // mov byte cs:[0x7000], 0xff
        0x2e, 0x02, 0x06, 0x00, 0x70, // add al, cs:[0x7000]
        0xd0, 0xe8, // shr al, 1
        0xe6, 0xf4, // out 0xf4, al
    ];
    let file = File::options().write(true).open("/dev/full").expect("every Linux has it");
    let keeper = Keeper::new(file, "full".into(), Arc::new(|_: &str| ()));
    let outcome = outcome_with_flash(&code, 4096, Some(keeper));
    assert_eq!(outcome, Ok(Outcome::DebugExit(((0x90 + 0x11) >> 1 << 1) | 1)));
}

#[test]
fn flash_has_blocks_and_room_below_the_firmware() {
    for bytes in [0, 1, 4095, 4097, (16 << 20) - SMALL_BYTES + 4096] {
        let refused = outcome_with_flash(&PROGRAMMING, bytes, None).expect_err("it is refused");
        assert!(refused.contains("multiple of 4 KiB"), "{refused}");
    }
}
