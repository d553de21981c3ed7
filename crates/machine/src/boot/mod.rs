//! Booting: from a kernel file to memory that is filled and a state in which to enter it.
//!
//! There is no firmware. The loader does what firmware and boot loader would have done: it unpacks
//! and places the kernel, the initrd and the tables of the boot protocol, and says with which
//! registers the processor starts. It knows no processor and no machine: the memory map, the address
//! of the ACPI tables and all randomness are handed to it, and the answer is plain data.
//!
//! # Which protocol
//!
//! The first that fits:
//!
//! 1. A bzImage (magic number `HdrS`): its payload is unpacked and entered by the 64-bit Linux
//!    protocol ([`Protocol::Linux64`]). The kernel's own unpacking and randomizing code never runs;
//!    `linux` does its work.
//! 2. A Multiboot header in the first 8 KiB: Multiboot ([`Protocol::Multiboot`]). As in QEMU this
//!    comes before the other ELF protocols, because only a Multiboot kernel has that header.
//! 3. A 64-bit ELF file whose notes say that it is Linux: the 64-bit Linux protocol, which skips the
//!    32-bit start that PVH has to go through.
//! 4. An ELF file with a PVH note: PVH ([`Protocol::Pvh`]).
//! 5. Any other 64-bit ELF file: the 64-bit Linux protocol, for Linux kernels without notes.
//!
//! # What rules it
//!
//! 1. A kernel file is untrusted. No input panics, hangs or takes unbounded memory ([`limits`]); each
//!    error is one line that says what to do.
//! 2. What decompresses is handed in ([`Unpack`]), so that it can be done where it can do no harm.
//! 3. Nothing is placed where the memory map has no RAM, and nothing twice: every byte comes from one
//!    `Space`.

mod bytes;
mod bzimage;
mod cache;
mod elf;
mod entry;
mod error;
pub mod limits;
mod linux;
mod loader;
mod modules;
mod multiboot;
mod pvh;
mod relocate;
mod space;
mod tables;
mod unpack;

#[cfg(test)]
mod tests;

use vm_memory::{GuestAddress, GuestMemoryMmap};

pub use cache::{Cache, Unpacked};
pub use entry::{Entry, Mode, Segment, Table, UNUSABLE, gpr};
pub use error::Error;
pub use modules::{ModuleFile, split_modules};
pub use space::Range;
pub use unpack::{Format, unpack as unpack_payload, unpacked_bytes};

use bzimage::BzImage;
use elf::Image;
use linux::Kernel;
use loader::Loader;

/// What a range of guest-physical addresses is, with the numbers that e820 gives it (ACPI 6.5, table
/// 15.4), which all boot protocols share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum MapKind {
    /// Memory that is free for use.
    Ram = 1,
    /// Not for use.
    Reserved = 2,
    /// ACPI tables, memory once they are read.
    AcpiTables = 3,
    /// Memory that ACPI wants preserved.
    AcpiStorage = 4,
}

impl MapKind {
    fn is_ram(self) -> bool {
        self == Self::Ram
    }
}

/// An entry of the memory map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapEntry {
    /// Guest-physical address.
    pub start: u64,
    /// Bytes.
    pub size: u64,
    /// What is there.
    pub kind: MapKind,
}

impl MapEntry {
    /// Address after the last byte.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.size)
    }
}

/// A file that the kernel gets: the initrd, or a Multiboot module.
#[derive(Debug, Clone, Copy)]
pub struct Module<'a> {
    /// Its bytes.
    pub data: &'a [u8],
    /// Its own command line, if the protocol has such.
    pub command_line: &'a str,
}

/// Uniform random numbers for one boot. Never use them twice.
#[derive(Debug, Clone, Copy)]
pub struct Randomness {
    /// Chooses the physical address.
    pub physical: u64,
    /// Chooses the virtual address.
    pub linear: u64,
    /// Seeds the kernel's random number generator (`SETUP_RNG_SEED`).
    pub seed: [u8; 32],
}

/// Everything that a boot needs to know.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The kernel file.
    pub kernel: &'a [u8],
    /// Its name, which Multiboot kernels see as the first word of their command line.
    pub kernel_name: &'a str,
    /// The kernel's command line.
    pub command_line: &'a str,
    /// The initrd (several are joined, which Linux understands), or modules.
    pub modules: &'a [Module<'a>],
    /// What is where in guest-physical memory.
    pub memory_map: &'a [MapEntry],
    /// The ACPI root pointer, in memory that the map does not call RAM.
    pub rsdp: Option<GuestAddress>,
    /// Without it the kernel is not randomized.
    pub randomness: Option<Randomness>,
}

/// Unpacks the payload of a bzImage: [`unpack_payload`], or somebody who has another process call it. The
/// decompressors are C, and a kernel may come from anywhere.
pub type Unpack<'a> = dyn Fn(&[u8]) -> Result<Vec<u8>, Error> + 'a;

/// How a kernel is entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Linux, 64-bit (Documentation/arch/x86/boot.rst, "64-bit Boot Protocol").
    Linux64,
    /// Xen's PVH (xen/docs/misc/pvh.pandoc).
    Pvh,
    /// Multiboot 0.6.96.
    Multiboot,
}

/// A kernel in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loaded {
    /// How to start the processor.
    pub entry: Entry,
    /// The protocol that was used.
    pub protocol: Protocol,
    /// Where the kernel is in physical memory, its zeros included.
    pub kernel: Range,
    /// Where the initrd is, if Linux got one.
    pub initrd: Option<Range>,
    /// How far it is above where it was linked, in physical memory.
    pub physical_offset: i64,
    /// The same in virtual memory, where it only moves up.
    pub linear_offset: u64,
}

/// By which protocol a file would be booted, without unpacking or loading it.
///
/// # Errors
///
/// [`Error::NotAKernel`] and whatever is wrong with an ELF file's headers.
pub fn protocol(kernel: &[u8]) -> Result<Protocol, Error> {
    if bzimage::is_bzimage(kernel) {
        return Ok(Protocol::Linux64);
    }
    if multiboot::find_header(kernel).is_some() {
        return Ok(Protocol::Multiboot);
    }
    Ok(elf_protocol(&Image::parse(kernel)?))
}

/// Whether a file would be booted by Multiboot.
pub fn is_multiboot(kernel: &[u8]) -> bool {
    matches!(protocol(kernel), Ok(Protocol::Multiboot))
}

fn elf_protocol(image: &Image) -> Protocol {
    if image.pvh_entry.is_some() && !(image.is_64 && image.is_linux) {
        Protocol::Pvh
    } else {
        Protocol::Linux64
    }
}

/// What is to be loaded of a kernel file: what a bzImage holds, from the cache if it is there, or the file itself.
///
/// # Errors
///
/// [`Error`] says what is wrong with a bzImage, or with the cache.
pub fn unpack<'a>(
    kernel: &'a [u8],
    cache: Option<&Cache>,
    unpack: &Unpack,
) -> Result<Unpacked<'a>, Error> {
    if !bzimage::is_bzimage(kernel) {
        return Ok(Unpacked::Borrowed(kernel));
    }
    let bzimage = BzImage::parse(kernel)?;
    let unpack = || bzimage.verify().and_then(|()| unpack(bzimage.payload));
    match cache {
        Some(cache) => cache.get_or_unpack(kernel, unpack),
        None => Ok(Unpacked::Owned(unpack()?)),
    }
}

/// Put a kernel, which has been unpacked from the request's by [`unpack`], and all that it needs into guest
/// memory.
///
/// # Errors
///
/// [`Error`] says what is wrong with the kernel, the initrd, the command line or the memory map.
/// Guest memory may have been written in part.
pub fn load(
    memory: &GuestMemoryMmap,
    request: &Request,
    unpacked: Unpacked,
) -> Result<Loaded, Error> {
    if request.memory_map.len() > limits::MAX_MAP_ENTRIES {
        let (count, limit) = (request.memory_map.len(), limits::MAX_MAP_ENTRIES);
        return Err(Error::MapTooLong { count, limit });
    }
    let loader = Loader::new(memory, request);
    let file = request.kernel;
    if bzimage::is_bzimage(file) {
        let header = Some(BzImage::parse(file)?.header);
        let image = Image::parse(&unpacked)?;
        return linux::load(loader, Kernel { file: unpacked, image, header });
    }
    if let Some(header) = multiboot::find_header(file) {
        return multiboot::load(loader, &header);
    }
    let image = Image::parse(file)?;
    match elf_protocol(&image) {
        Protocol::Pvh => pvh::load(loader, &image),
        _ => linux::load(loader, Kernel { file: unpacked, image, header: None }),
    }
}
