//! What both sides can be asked for: a list of registers, in the order of QEMU's `g` packet.

use std::fmt;

use vmm::Registers;

use crate::Failure;

/// One register. Numbers, and places in the packet, are those of QEMU's gdb-xml/i386-64bit.xml.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field(usize);

/// Name and bytes of each.
const FIELDS: [(&str, usize); 33] = [
    ("rax", 8),
    ("rbx", 8),
    ("rcx", 8),
    ("rdx", 8),
    ("rsi", 8),
    ("rdi", 8),
    ("rbp", 8),
    ("rsp", 8),
    ("r8", 8),
    ("r9", 8),
    ("r10", 8),
    ("r11", 8),
    ("r12", 8),
    ("r13", 8),
    ("r14", 8),
    ("r15", 8),
    ("rip", 8),
    ("rflags", 4),
    ("cs", 4),
    ("ss", 4),
    ("ds", 4),
    ("es", 4),
    ("fs", 4),
    ("gs", 4),
    ("fs_base", 8),
    ("gs_base", 8),
    ("kernel_gs_base", 8),
    ("cr0", 8),
    ("cr2", 8),
    ("cr3", 8),
    ("cr4", 8),
    ("cr8", 8),
    ("efer", 8),
];

/// The numbers of encoding (RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI) in GDB's order.
const ENCODING: [usize; 16] = [0, 3, 1, 2, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];

/// The next instruction.
pub const RIP: Field = Field(16);
/// The flags.
pub const RFLAGS: Field = Field(17);
/// Belongs to the APIC, which the engine knows nothing about.
const CR8: Field = Field(31);

/// RF is for the instruction that has just been resumed; GDB's steps change it.
const COMPARED_FLAGS: u64 = !(1 << 16);

impl Field {
    /// All that are compared.
    pub fn all() -> impl Iterator<Item = Field> {
        (0..FIELDS.len()).map(Field).filter(|&field| field != CR8)
    }

    /// A general-purpose register by its number in instructions.
    pub fn general(number: usize) -> Field {
        Field(ENCODING.iter().position(|&encoded| encoded == number).unwrap_or_default())
    }

    /// CS, SS, DS, ES, FS, GS.
    pub fn is_selector(self) -> bool {
        (18..24).contains(&self.0)
    }

    /// GDB's number.
    pub fn number(self) -> usize {
        self.0
    }

    /// Its bytes in a packet.
    pub fn bytes(self, value: u64) -> Vec<u8> {
        value.to_le_bytes()[..FIELDS[self.0].1].to_vec()
    }
}

impl fmt::Display for Field {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(FIELDS[self.0].0)
    }
}

/// All registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State([u64; FIELDS.len()]);

impl State {
    /// QEMU's.
    pub fn from_packet(packet: &[u8]) -> Result<State, Failure> {
        let (mut values, mut at) = ([0; FIELDS.len()], 0);
        for (value, (_, bytes)) in values.iter_mut().zip(FIELDS) {
            let piece = packet.get(at..at + bytes).ok_or("QEMU's registers are too short")?;
            let mut word = [0; 8];
            word[..bytes].copy_from_slice(piece);
            (*value, at) = (u64::from_le_bytes(word), at + bytes);
        }
        values[RFLAGS.0] &= COMPARED_FLAGS;
        Ok(State(values))
    }

    /// The engine's.
    pub fn of(regs: &Registers) -> State {
        let selector = |number: usize| u64::from(regs.segments[number].selector);
        let mut values = [0; FIELDS.len()];
        for (value, number) in values.iter_mut().zip(ENCODING) {
            *value = regs.gpr[number];
        }
        let rest = [
            regs.rip,
            regs.rflags() & COMPARED_FLAGS,
            selector(1),
            selector(2),
            selector(3),
            selector(0),
            selector(4),
            selector(5),
            regs.segments[4].base,
            regs.segments[5].base,
            regs.kernel_gs_base,
            regs.cr0,
            regs.cr2,
            regs.cr3,
            regs.cr4,
            0,
            regs.efer,
        ];
        values[16..].copy_from_slice(&rest);
        State(values)
    }

    /// One register.
    pub fn get(&self, field: Field) -> u64 {
        self.0[field.0]
    }

    /// To be changed.
    pub fn set(&mut self, field: Field, value: u64) {
        self.0[field.0] = value;
    }

    /// The registers in which two states differ.
    pub fn differences(&self, other: &State) -> Vec<Field> {
        Field::all().filter(|&field| self.get(field) != other.get(field)).collect()
    }
}
