//! Kernels of a few instructions for tests of the machine's outside: its console, its ends, what it
//! leaves behind. They are Multiboot 1 ELF files (Multiboot Specification 0.6.96, 3.1), so they are
//! entered in 32-bit protected mode without paging.

#![forbid(unsafe_code)]

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

/// Prints its Multiboot command line and ends by the debug-exit port with 0.
pub const COMMAND_LINE: &[u8] = &[
    0x8b, 0x73, 0x10, // mov esi, [ebx + 16] (the information's field `cmdline`)
    0x66, 0xba, 0xf8, 0x03, // mov dx, 0x3f8
    0xac, // again: lodsb
    0x84, 0xc0, // test al, al
    0x74, 0x03, // jz done
    0xee, // out dx, al
    0xeb, 0xf8, // jmp again
    0xe6, 0xf4, // done: out 0xf4, al
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

/// Switches the machine off by the port of QEMU's ACPI controller.
pub const POWER_OFF: &[u8] = &[
    0x66, 0xba, 0x04, 0x06, // mov dx, 0x604
    0x66, 0xb8, 0x00, 0x20, // mov ax, 0x2000 (enter sleep type 0)
    0x66, 0xef, // out dx, ax
    0xf4, // halt: hlt
    0xeb, 0xfd, // jmp halt
];

/// Writes `hi` to the debug console if there is one, and ends by the debug-exit port with what
/// port 0x80 has kept of 0x2a.
pub const DEBUG_PORTS: &[u8] = &[
    0xb0, 0x2a, // mov al, 0x2a
    0xe6, 0x80, // out 0x80, al
    0xe4, 0xe9, // in al, 0xe9
    0x3c, 0xe9, // cmp al, 0xe9 (it is there)
    0x75, 0x08, // jne done
    0xb0, b'h', // mov al, 'h'
    0xe6, 0xe9, // out 0xe9, al
    0xb0, b'i', // mov al, 'i'
    0xe6, 0xe9, // out 0xe9, al
    0xe4, 0x80, // done: in al, 0x80
    0xe6, 0xf4, // out 0xf4, al
    0xf4, // halt: hlt
    0xeb, 0xfd, // jmp halt
];

/// Prints `R` and sends characters for ever, without looking at what it receives.
pub const BABBLE: &[u8] = &[
    0x66, 0xba, 0xf8, 0x03, // mov dx, 0x3f8
    0xb0, b'R', // mov al, 'R'
    0xee, // again: out dx, al
    0xeb, 0xfd, // jmp again
];

/// Prints `R` and does nothing for ever, with interrupts off.
pub const HANG: &[u8] = &[
    0x66, 0xba, 0xf8, 0x03, // mov dx, 0x3f8
    0xb0, b'R', // mov al, 'R'
    0xee, // out dx, al
    0xeb, 0xfe, // jmp $
];

/// Computes for a thousand turns of a loop in 64-bit mode, in which code is translated, and ends by the
/// debug-exit port with 0 if the result is right, with 1 if not.
pub const LONG_MODE: &[u8] = &[
    0xc7, 0x05, 0x00, 0x00, 0x11, 0x00, 0x03, 0x10, 0x11,
    0x00, // mov dword [0x110000], 0x111003
    0xc7, 0x05, 0x00, 0x10, 0x11, 0x00, 0x03, 0x20, 0x11,
    0x00, // mov dword [0x111000], 0x112003
    0xc7, 0x05, 0x00, 0x20, 0x11, 0x00, 0x83, 0x00, 0x00, 0x00, // mov dword [0x112000], 0x83
    0x0f, 0x20, 0xe0, // mov eax, cr4
    0x0c, 0x20, // or al, 0x20 (PAE)
    0x0f, 0x22, 0xe0, // mov cr4, eax
    0xb8, 0x00, 0x00, 0x11, 0x00, // mov eax, 0x110000
    0x0f, 0x22, 0xd8, // mov cr3, eax
    0xb9, 0x80, 0x00, 0x00, 0xc0, // mov ecx, 0xc0000080 (EFER)
    0x0f, 0x32, // rdmsr
    0x80, 0xcc, 0x01, // or ah, 1 (LME)
    0x0f, 0x30, // wrmsr
    0x0f, 0x20, 0xc0, // mov eax, cr0
    0x0d, 0x00, 0x00, 0x00, 0x80, // or eax, 0x80000000 (PG)
    0x0f, 0x22, 0xc0, // mov cr0, eax
    0x0f, 0x01, 0x15, 0x98, 0x00, 0x10, 0x00, // lgdt [BASE + 0x98]
    0xea, 0x5f, 0x00, 0x10, 0x00, 0x08, 0x00, // jmp 8:BASE + 0x5f
    0xbc, 0x00, 0x00, 0x1f, 0x00, // mov esp, 0x1f0000
    0xb9, 0xe8, 0x03, 0x00, 0x00, // mov ecx, 1000
    0x31, 0xc0, // xor eax, eax
    0xe8, 0x11, 0x00, 0x00, 0x00, // again: call mix
    0xff, 0xc9, // dec ecx
    0x75, 0xf7, // jnz again
    0x3d, 0xa5, 0x7a, 0xbf, 0x84, // cmp eax, 0x84bf7aa5
    0x0f, 0x95, 0xc0, // setne al
    0xe6, 0xf4, // out 0xf4, al
    0xf4, // halt: hlt
    0xeb, 0xfd, // jmp halt
    0x51, // mix: push rcx
    0xc1, 0xc0, 0x05, // rol eax, 5
    0x31, 0xc8, // xor eax, ecx
    0x05, 0x67, 0x45, 0x23, 0x01, // add eax, 0x1234567
    0x89, 0x04, 0x25, 0x00, 0x00, 0x18, 0x00, // mov [0x180000], eax
    0x59, // pop rcx
    0xc3, // ret
    0x90, 0x90, 0x90, // nop
    0x0f, 0x00, 0xa0, 0x00, 0x10, 0x00, 0x90,
    0x90, // the table of descriptors: its limit and base
    0, 0, 0, 0, 0, 0, 0, 0, // its empty one
    0xff, 0xff, 0, 0, 0, 0x9b, 0xaf, 0, // code of 64-bit mode
];

/// Where [`LONG_MODE`] has its function `mix`.
pub const LONG_MODE_MIX: u64 = 0x10_0081;

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
    /// Writes it to the temporary directory.
    ///
    /// # Panics
    ///
    /// If that cannot be written.
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
