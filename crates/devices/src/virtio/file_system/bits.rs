//! The file system device (virtio 1.2, 5.11), and that for 9p (5.12 reserves its number; Linux,
//! include/uapi/linux/virtio_9p.h).

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

/// The device whose driver speaks 9P2000.L.
pub mod nine {
    /// Device type.
    pub const NUMBER: u16 = 9;
    /// `VIRTIO_9P_MOUNT_TAG`: the configuration has the name by which it is mounted.
    pub const MOUNT_TAG: u64 = 1 << 0;
    /// Descriptors of the one queue, as many as Linux's driver uses.
    pub const QUEUE_SIZE: u16 = 128;
    /// Bytes before a message: its length, what it is, and its number.
    pub const HEAD_BYTES: usize = 7;
    /// Where it says what it is.
    pub const KIND: usize = 4;
    /// Where it has its number, of two bytes.
    pub const TAG: usize = 5;
    /// `Rlerror`, and how long one is.
    pub const ERROR: u8 = 7;
    pub const ERROR_BYTES: u32 = 11;

    /// What FUSE calls what is mostly the same; none, if there is no such.
    pub const fn opcode(kind: u8) -> u32 {
        match kind {
            8 => 17,
            12 => 14,
            14 => 35,
            16 => 6,
            18 => 8,
            22 => 5,
            24 => 3,
            26 => 4,
            30 => 22,
            32 => 21,
            40 => 28,
            50 => 20,
            70 => 13,
            72 => 9,
            74 => 12,
            76 => 10,
            110 => 1,
            116 => 15,
            118 => 16,
            120 => 18,
            _ => 0,
        }
    }
}
