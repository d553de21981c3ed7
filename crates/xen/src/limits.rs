//! Every limit of the crate in one place.

/// Program headers of a kernel's ELF file; Linux has five, others fewer.
pub const MAX_PROGRAM_HEADERS: u16 = 128;

/// Notes of a kernel, Xen's and others'; Linux has about twenty.
pub const MAX_NOTES: usize = 1024;

/// Bytes of a command line without the zero that ends it.
pub const MAX_COMMAND_LINE_BYTES: usize = 1023;
