//! A machine that starts firmware: a few instructions at the end of an image, which run from RESET on.

use vmm::devices::{DebugExit, Device};
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
