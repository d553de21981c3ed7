//! Errors in a kernel, an initrd or a memory map. Each message is one line and says what to do.

use std::io;

/// Why a machine cannot be booted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No format that we know.
    #[error(
        "this file is not a kernel; give a Linux bzImage or vmlinux, an ELF file with a PVH note, \
         or a Multiboot kernel"
    )]
    NotAKernel,
    /// The file ends early.
    #[error(
        "the kernel is truncated: {what} needs {needed} bytes but the file has {have}; get it anew"
    )]
    Truncated {
        /// The part that does not fit.
        what: &'static str,
        /// Bytes that there should be.
        needed: u64,
        /// Bytes that there are.
        have: u64,
    },
    /// The file's own checksum does not match.
    #[error("the kernel is damaged: its checksum does not match; get it anew")]
    Checksum,
    /// The compressed part cannot be unpacked.
    #[error("the kernel is damaged: its {format} payload does not unpack ({reason}); get it anew")]
    Payload {
        /// The compression.
        format: &'static str,
        /// What the decompressor said.
        reason: String,
    },
    /// Compressed in a way that we do not know.
    #[error(
        "the kernel's compression is unknown; use one that is compressed with gzip, bzip2, lzma, \
         xz, lzo, lz4 or zstd"
    )]
    UnknownCompression,
    /// It says that it unpacks to more than a kernel can be.
    #[error(
        "the kernel claims to unpack to {claimed} bytes, more than the {limit} that one can be"
    )]
    UnpackedTooLarge {
        /// What it says.
        claimed: u64,
        /// What is allowed.
        limit: u64,
    },
    /// Who unpacks kernels has failed, or says what is wrong with this one.
    #[error("{0}")]
    Unpack(String),
    /// From before boot protocol 2.08.
    #[error(
        "the kernel uses boot protocol {}.{:02}, which is older than 2.08; \
         use Linux 2.6.24 or newer",
        version >> 8, version & 0xff
    )]
    ProtocolTooOld {
        /// As in the setup header.
        version: u16,
    },
    /// No 64-bit entry.
    #[error("this is a 32-bit Linux kernel, which Bivouac does not boot; use a 64-bit one (amd64)")]
    Only32Bit,
    /// An ELF file for something else.
    #[error("this is an ELF file but not a kernel for x86: {reason}; give one built for x86-64")]
    WrongElf {
        /// What is not as it should be.
        reason: &'static str,
    },
    /// An ELF file that contradicts itself.
    #[error("the kernel's ELF file is damaged: {reason}; get it anew")]
    BadElf {
        /// What is wrong.
        reason: &'static str,
    },
    /// A Multiboot header that we cannot honour.
    #[error("the kernel's Multiboot header is not usable: {reason}")]
    Multiboot {
        /// What is wrong.
        reason: String,
    },
    /// The relocation table points outside the kernel.
    #[error("the kernel is damaged: its relocation table points outside it; get it anew")]
    Relocation,
    /// The kernel does not fit.
    #[error(
        "the kernel needs {} MiB of memory in one piece, which this machine does not have; \
         give a larger --mem",
        needed.div_ceil(1 << 20)
    )]
    KernelTooLarge {
        /// Bytes.
        needed: u64,
    },
    /// The kernel wants to be where there is no memory.
    #[error(
        "the kernel must be loaded at {start:#x}..{end:#x}, where this machine has no free memory; \
         give a larger --mem"
    )]
    NoMemoryAt {
        /// First address.
        start: u64,
        /// Address after the last.
        end: u64,
    },
    /// The initrd, or a module, does not fit.
    #[error(
        "the initrd of {} MiB does not fit into memory beside the kernel; give a larger --mem",
        size.div_ceil(1 << 20)
    )]
    InitrdTooLarge {
        /// Bytes.
        size: u64,
    },
    /// More modules than we allow.
    #[error("{count} modules are more than the {limit} that are supported; give fewer to --initrd")]
    TooManyModules {
        /// How many were given.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
    /// Not even the tables fit.
    #[error("the machine has too little memory to boot anything; give a larger --mem")]
    NoMemory,
    /// The command line is longer than the kernel accepts.
    #[error(
        "the command line has {length} bytes but this kernel accepts {limit}; shorten --append"
    )]
    CommandLineTooLong {
        /// Bytes given.
        length: usize,
        /// Bytes accepted.
        limit: usize,
    },
    /// A NUL would cut the command line short.
    #[error("the command line contains a zero byte; remove it from --append")]
    CommandLineZero,
    /// More entries than the zero page holds.
    #[error("the memory map has {count} entries, more than the {limit} that a kernel accepts")]
    MapTooLong {
        /// How many there are.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
    /// The memory map promises memory that is not there.
    #[error("guest memory at {address:#x} cannot be written: {source}")]
    Memory {
        /// Guest-physical address.
        address: u64,
        /// What the memory said.
        source: io::Error,
    },
    /// The cache of unpacked kernels cannot be used, as it says itself.
    #[error("{0}")]
    Cache(String),
}
