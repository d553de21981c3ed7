//! The state in which a vCPU enters a kernel, as plain data.
//!
//! The loader does not know the processor; a caller that knows both copies these values over.

/// What the processor is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// 64-bit mode, paging on.
    Long64,
    /// 32-bit protected mode, paging off.
    Protected32,
}

/// A segment register with its hidden part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Segment {
    /// Linear address of the segment's start.
    pub base: u64,
    /// Highest offset in bytes, granularity already applied.
    pub limit: u32,
    /// The visible selector.
    pub selector: u16,
    /// Bits 55:40 of the descriptor with bits 51:48 cleared (SDM 3A 3.4.5), plus [`UNUSABLE`].
    pub attributes: u16,
}

/// Attribute of a register that holds a null selector; it is in no descriptor.
pub const UNUSABLE: u16 = 1 << 11;

/// GDTR or IDTR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Table {
    /// Linear address.
    pub base: u64,
    /// Offset of the last byte.
    pub limit: u16,
}

/// Index into [`Entry::gprs`]: the order of encoding (SDM 2A 2.1.5).
#[allow(missing_docs)]
pub mod gpr {
    pub const RAX: usize = 0;
    pub const RBX: usize = 3;
    pub const RSP: usize = 4;
    pub const RSI: usize = 6;
}

/// The state in which a kernel is entered. What is not here is as after RESET.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Which of the two modes the rest describes.
    pub mode: Mode,
    /// The first instruction.
    pub rip: u64,
    /// RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8..R15.
    pub gprs: [u64; 16],
    /// RFLAGS: interrupts off, direction up.
    pub rflags: u64,
    /// ES, CS, SS, DS, FS, GS.
    pub segments: [Segment; 6],
    /// Local descriptor table: none.
    pub ldtr: Segment,
    /// Task register.
    pub tr: Segment,
    /// Global descriptor table, in guest memory.
    pub gdt: Table,
    /// Interrupt descriptor table: none.
    pub idt: Table,
    /// CR0.
    pub cr0: u64,
    /// CR3, 0 with paging off.
    pub cr3: u64,
    /// CR4.
    pub cr4: u64,
    /// IA32_EFER.
    pub efer: u64,
}
