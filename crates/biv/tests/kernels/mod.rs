//! Kernels of a few instructions, as Multiboot 1 ELF files (Multiboot Specification 0.6.96, 3.1).

// Not every test that has kernels has all of them.
#![allow(dead_code)]

use std::fs;
use std::path::PathBuf;

/// Where they are loaded, and where their header is.
const BASE: u32 = 0x10_0000;

/// Prints `R`, then sends back what it receives on the first serial port; at `q` it ends by the
/// debug-exit port with 5.
pub const ECHO: &[u8] = &[
    0x66, 0xba, 0xf8, 0x03, // mov dx, 0x3f8
    0xb0, b'R', // mov al, 'R'
    0xee, // out dx, al
    0x66, 0xba, 0xfd, 0x03, // again: mov dx, 0x3fd (line status)
    0xec, // in al, dx
    0xa8, 0x01, // test al, 1 (data ready)
    0x74, 0xf7, // jz again
    0x66, 0xba, 0xf8, 0x03, // mov dx, 0x3f8
    0xec, // in al, dx
    0xee, // out dx, al
    0x3c, b'q', // cmp al, 'q'
    0x75, 0xed, // jne again
    0xb0, 0x05, // mov al, 5
    0xe6, 0xf4, // out 0xf4, al
    0xf4, // halt: hlt
    0xeb, 0xfd, // jmp halt
];

/// Takes a breakpoint with an empty interrupt table, which ends in a triple fault.
pub const TRIPLE_FAULT: &[u8] = &[
    0x0f, 0x01, 0x1d, 0x15, 0x00, 0x10, 0x00, // lidt [BASE + 0x15]: six bytes of zero, below
    0xcc, // int3
    0xf4, // hlt
    0, 0, 0, 0, 0, 0,
];

/// Resets the machine by port 0xcf9.
pub const RESET: &[u8] = &[
    0x66, 0xba, 0xf9, 0x0c, // mov dx, 0xcf9
    0xb0, 0x06, // mov al, 6 (reset the processor)
    0xee, // out dx, al
    0xf4, // halt: hlt
    0xeb, 0xfd, // jmp halt
];

/// Prints `R` and does nothing for ever, with interrupts off.
pub const HANG: &[u8] = &[
    0x66, 0xba, 0xf8, 0x03, // mov dx, 0x3f8
    0xb0, b'R', // mov al, 'R'
    0xee, // out dx, al
    0xeb, 0xfe, // jmp $
];

/// An ELF file for the i386 whose one segment is a Multiboot header and `code`.
pub fn image(code: &[u8]) -> Vec<u8> {
    const MAGIC: u32 = 0x1bad_b002;
    let mut segment: Vec<u8> = Vec::new();
    for word in [MAGIC, 0, 0u32.wrapping_sub(MAGIC)] {
        segment.extend(word.to_le_bytes());
    }
    let entry = BASE + segment.len() as u32;
    segment.extend(code);
    let length = segment.len() as u32;
    let offset = 52 + 32;
    let mut file = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend([2, 0, 3, 0]); // executable, i386
    for word in [1, entry, 52, 0, 0] {
        file.extend(u32::to_le_bytes(word)); // version, entry, program headers, sections, flags
    }
    for half in [52u16, 32, 1, 40, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    for word in [1, offset, BASE, BASE, length, length, 7, 4096] {
        file.extend(u32::to_le_bytes(word)); // PT_LOAD
    }
    file.extend(segment);
    file
}

/// A kernel in a file that goes away again.
pub struct Kernel(pub PathBuf);

impl Kernel {
    pub fn new(name: &str, code: &[u8]) -> Kernel {
        let path = std::env::temp_dir().join(format!("biv-{name}-{}.elf", std::process::id()));
        fs::write(&path, image(code)).expect("a kernel can be written");
        Kernel(path)
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
