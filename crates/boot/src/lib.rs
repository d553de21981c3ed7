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
//! 3. What is kept between boots is handed in, too ([`KernelCache`]): no file is opened here.
//! 4. Nothing is placed where the memory map has no RAM, and nothing twice: every byte comes from one
//!    `Space`.

#![forbid(unsafe_code)]

mod bytes;
mod bzimage;
mod cache;
mod elf;
mod entry;
mod error;
pub mod limits;
mod linux;
mod loader;
mod memory_map;
mod modules;
mod multiboot;
mod pvh;
mod relocate;
mod request;
mod space;
mod tables;
mod unpack;

#[cfg(test)]
mod tests;

use vm_memory::GuestMemoryMmap;

pub use cache::{CachedKernel, KernelCache, Unpacked};
pub use entry::{Entry, Mode, Segment, Table, UNUSABLE, gpr};
pub use error::Error;
pub use memory_map::{MapEntry, MapKind};
pub use modules::{ModuleFile, split_modules};
pub use request::{Loaded, Module, Protocol, Randomness, Request};
pub use space::Range;
pub use unpack::{Format, unpack as unpack_payload, unpacked_bytes};

use bzimage::BzImage;
use elf::Image;
use linux::Kernel;
use loader::Loader;

/// Unpacks the payload of a bzImage: [`unpack_payload`], or somebody who has another process call it. The
/// decompressors are C, and a kernel may come from anywhere.
pub type Unpack<'a> = dyn Fn(&[u8]) -> Result<Vec<u8>, Error> + 'a;

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
    cache: Option<&dyn KernelCache>,
    unpack: &Unpack,
) -> Result<Unpacked<'a>, Error> {
    if !bzimage::is_bzimage(kernel) {
        return Ok(Unpacked::Borrowed(kernel));
    }
    let bzimage = BzImage::parse(kernel)?;
    if let Some(cache) = cache
        && let Some(kept) = cache.get(kernel).map_err(Error::Cache)?
    {
        return Ok(Unpacked::Cached(kept));
    }
    bzimage.verify()?;
    let unpacked = unpack(bzimage.payload)?;
    if let Some(cache) = cache {
        cache.put(kernel, &unpacked).map_err(Error::Cache)?;
    }
    Ok(Unpacked::Owned(unpacked))
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
