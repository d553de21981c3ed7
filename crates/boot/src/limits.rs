//! Every limit of the loader in one place.

/// Largest unpacked kernel: the window in which a 64-bit Linux kernel lives (`KERNEL_IMAGE_SIZE`,
/// Documentation/arch/x86/x86_64/mm.rst).
pub const MAX_UNPACKED_BYTES: u64 = 1 << 30;

/// Working memory that an LZMA or xz stream may ask for; the kernel's build uses a dictionary of at
/// most 128 MiB.
pub const MAX_DICTIONARY_BYTES: u64 = 256 << 20;

/// Longest command line where the kernel does not say less, terminator included.
pub const MAX_COMMAND_LINE_BYTES: usize = 64 << 10;

/// Entries that the zero page has room for (`E820_MAX_ENTRIES_ZEROPAGE`).
pub const MAX_MAP_ENTRIES: usize = 128;

/// Most modules of a Multiboot or PVH kernel.
pub const MAX_MODULES: usize = 64;

/// Most loadable segments of an ELF kernel.
pub const MAX_SEGMENTS: usize = 128;

/// How much of a file is searched for a Multiboot header (Multiboot 0.6.96, 3.1).
pub const MULTIBOOT_SEARCH_BYTES: usize = 8192;
