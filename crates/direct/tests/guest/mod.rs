//! A guest without a kernel: memory, and programs put into it by hand.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::sync::Arc;

use direct::{EXTENDED_BYTES, Helpers, Kick, Protection, Registers, Space, Stop, TimeStamp};
use host::GuestMemory;
use iced_x86::code_asm::CodeAssembler;
use vm_memory::{Bytes, GuestAddress};

/// Where programs lie, and in guest memory.
pub const CODE: u64 = 0x40_0000;
pub const CODE_OFFSET: u64 = 0;
pub const CODE_BYTES: u64 = 0x1_0000;
/// Where their data lie, and in guest memory.
pub const DATA: u64 = 0x60_0000;
pub const DATA_OFFSET: u64 = 0x10_0000;
pub const DATA_BYTES: u64 = 0x1_0000;
/// An address where nothing is.
pub const NOTHING: u64 = 0x1234_5000;
/// Guest memory.
pub const MEMORY_BYTES: u64 = 16 << 20;

pub const READ: Protection = Protection { write: false, execute: false };
pub const WRITE: Protection = Protection { write: true, execute: false };
pub const EXECUTE: Protection = Protection { write: false, execute: true };

/// Memory and what makes spaces for it.
pub struct Guest {
    pub memory: GuestMemory,
    pub helpers: Arc<Helpers>,
}

impl Guest {
    pub fn new() -> Self {
        let memory = GuestMemory::new(&[(0, MEMORY_BYTES)]).unwrap();
        let helpers = Helpers::start(&memory).unwrap();
        Self { memory, helpers }
    }

    pub fn write(&self, offset: u64, bytes: &[u8]) {
        self.memory.map().write_slice(bytes, GuestAddress(offset)).unwrap();
    }

    pub fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory.map().read_slice(&mut bytes, GuestAddress(offset)).unwrap();
        bytes
    }

    pub fn read_u64(&self, offset: u64) -> u64 {
        u64::from_le_bytes(self.read(offset, 8).try_into().unwrap())
    }

    /// Put a program at [`CODE`].
    pub fn program(
        &self,
        build: impl FnOnce(&mut CodeAssembler) -> Result<(), iced_x86::IcedError>,
    ) {
        let mut code = CodeAssembler::new(64).unwrap();
        build(&mut code).unwrap();
        self.write(CODE_OFFSET, &code.assemble(CODE).unwrap());
    }

    /// A space with code and data.
    pub fn space(&self) -> Space {
        let mut space = self.helpers.space(TimeStamp::Native).unwrap();
        space.map(CODE, CODE_BYTES, CODE_OFFSET, EXECUTE, false).unwrap();
        space.map(DATA, DATA_BYTES, DATA_OFFSET, WRITE, false).unwrap();
        space
    }

    /// A thread of a program that has been put at [`CODE`], in a space of its own.
    pub fn thread(&self) -> Thread {
        Thread::new(self.space())
    }
}

/// One guest thread.
pub struct Thread {
    pub space: Space,
    pub registers: Registers,
    pub extended: Box<[u8; EXTENDED_BYTES]>,
    pub kick: Arc<Kick>,
}

impl Thread {
    pub fn new(space: Space) -> Self {
        let mut registers = Registers::at(CODE);
        registers.general[4] = DATA + DATA_BYTES;
        Self { space, registers, extended: initial_state(), kick: Arc::new(Kick::new()) }
    }

    pub fn run(&mut self) -> Stop {
        self.space.run(&mut self.registers, &mut self.extended, &self.kick)
    }

    /// Run from the program's start with the stack empty again.
    pub fn restart(&mut self) -> Stop {
        self.registers.rip = CODE;
        self.registers.general[4] = DATA + DATA_BYTES;
        self.run()
    }
}

/// The extended state after a reset, with the C library's MXCSR and control word.
pub fn initial_state() -> Box<[u8; EXTENDED_BYTES]> {
    let mut image = Box::new([0; EXTENDED_BYTES]);
    image[..2].copy_from_slice(&0x37f_u16.to_le_bytes());
    image[24..28].copy_from_slice(&0x1f80_u32.to_le_bytes());
    image
}

/// What an exception without address is reported as.
pub fn exception(vector: u8, error: u16) -> Stop {
    Stop::Exception { vector, error, address: 0, single_step: false }
}

/// What a page fault is reported as.
pub fn page_fault(error: u16, address: u64) -> Stop {
    Stop::Exception { vector: 14, error, address, single_step: false }
}
