//! The file system device (virtio 1.2, 5.11).

/// Device type.
pub const NUMBER: u16 = 26;

/// PCI class: a storage controller of no other kind.
pub const CLASS: u32 = 0x01_80_00;

/// Descriptors of the queue for what must not wait, which is the first.
pub const URGENT_QUEUE_SIZE: u16 = 128;

/// Descriptors of each queue for requests.
pub const REQUEST_QUEUE_SIZE: u16 = 512;

/// Bytes of the name by which a file system is mounted.
pub const TAG_BYTES: usize = 36;

/// What is before each request and each answer (`fuse_in_header`, `fuse_out_header` of FUSE).
pub mod header {
    /// Where a request says what is asked for.
    pub const OPCODE: usize = 4;
    /// Where it has its number.
    pub const UNIQUE: usize = 8;
    /// Bytes of an answer's.
    pub const ANSWER_BYTES: u32 = 16;
    /// `EIO`.
    pub const INPUT_OUTPUT_ERROR: i32 = 5;
}
