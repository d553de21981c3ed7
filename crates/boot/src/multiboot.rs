//! Multiboot 0.6.96: ELF kernels, and others by the addresses in their header.
//!
//! What the specification leaves open is as in QEMU: the command line begins with the kernel's name,
//! modules follow the kernel in memory, and a wish for a graphics mode is not granted. A loader of
//! Multiboot kernels is started by firmware, whose data area says how much conventional memory there is:
//! kernels that go to real mode, such as Xen, look for it there.

use super::bytes::u32_at;
use super::elf::{self, Image, Segment};
use super::entry::gpr;
use super::error::Error;
use super::limits::MULTIBOOT_SEARCH_BYTES;
use super::loader::Loader;
use super::{Loaded, MapEntry, MapKind, Protocol, tables};

const HEADER_MAGIC: u32 = 0x1bad_b002;

/// What EAX holds at the entry.
const ENTRY_MAGIC: u64 = 0x2bad_b002;

// Flags of the header (3.1.2).
const MANDATORY: u32 = 0xffff;
const PAGE_ALIGN: u32 = 1 << 0;
const MEMORY_INFO: u32 = 1 << 1;
const VIDEO_MODE: u32 = 1 << 2;
const ADDRESSES: u32 = 1 << 16;

// Flags of the information structure (3.3).
const HAS_MEMORY: u32 = 1 << 0;
const HAS_BOOT_DEVICE: u32 = 1 << 1;
const HAS_COMMAND_LINE: u32 = 1 << 2;
const HAS_MODULES: u32 = 1 << 3;
const HAS_MAP: u32 = 1 << 6;
const HAS_LOADER_NAME: u32 = 1 << 9;

/// Length of the structure, all fields of the specification included.
const INFO_BYTES: usize = 116;

/// The first BIOS disk, no partition, as QEMU says.
const BOOT_DEVICE: u32 = 0x8000_ffff;

/// In the BIOS data area (PC/AT technical reference, "ROM BIOS data areas"): the segment of the extended BIOS
/// data area, and KiB of conventional memory below it.
const EXTENDED_DATA_SEGMENT: u64 = 0x40e;
const CONVENTIONAL_KIB: u64 = 0x413;

/// Conventional memory ends here at the latest.
const MAX_CONVENTIONAL_KIB: u64 = 640;

/// What a segment counts in.
const PARAGRAPH_BYTES: u64 = 16;

const PAGE_BYTES: u64 = 4096;
const MIB: u64 = 1 << 20;

/// A valid header and where it is in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    offset: usize,
    flags: u32,
}

/// Find the header: in the first 8 KiB, 4-byte aligned, with a checksum (3.1).
pub fn find_header(file: &[u8]) -> Option<Header> {
    let searched = &file[..file.len().min(MULTIBOOT_SEARCH_BYTES)];
    (0..searched.len()).step_by(4).find_map(|offset| {
        let words = [offset, offset + 4, offset + 8].map(|at| u32_at(searched, at));
        let [Some(HEADER_MAGIC), Some(flags), Some(checksum)] = words else { return None };
        let sum = HEADER_MAGIC.wrapping_add(flags).wrapping_add(checksum);
        (sum == 0).then_some(Header { offset, flags })
    })
}

/// Load the kernel that this header is in.
///
/// # Errors
///
/// [`Error`] if the header asks for what we do not have, or something does not fit.
pub fn load(mut loader: Loader, header: &Header) -> Result<Loaded, Error> {
    let unknown = header.flags & MANDATORY & !(PAGE_ALIGN | MEMORY_INFO | VIDEO_MODE);
    if unknown != 0 {
        let reason = format!("it requires features {unknown:#x}, which are not defined");
        return Err(Error::Multiboot { reason });
    }
    let file = loader.request.kernel;
    let (image, entry) = if header.flags & ADDRESSES != 0 {
        let image = image_by_addresses(file, header.offset)?;
        let entry = image.entry;
        (image, entry)
    } else if elf::is_elf(file) {
        let image = Image::parse(file)?;
        let entry = physical_entry(&image);
        (image, entry)
    } else {
        let reason = "it gives no addresses, and the file is not ELF".to_owned();
        return Err(Error::Multiboot { reason });
    };
    let (_, end) = image.physical_range();
    if end > 1 << 32 || entry > u64::from(u32::MAX) {
        let reason = "the kernel is to be loaded above 4 GiB".to_owned();
        return Err(Error::Multiboot { reason });
    }
    let kernel = loader.place_image(&image)?;
    describe_conventional_memory(&loader)?;
    let info = place_info(&mut loader, end)?;
    let mut entry = tables::enter_protected(&mut loader, entry)?;
    entry.gprs[gpr::RAX] = ENTRY_MAGIC;
    entry.gprs[gpr::RBX] = info;
    Ok(Loaded {
        entry,
        protocol: Protocol::Multiboot,
        kernel,
        initrd: None,
        physical_offset: 0,
        linear_offset: 0,
    })
}

/// The image that the address fields of the header describe (3.1.3).
fn image_by_addresses(file: &[u8], header: usize) -> Result<Image, Error> {
    let have = file.len() as u64;
    let needed = header as u64 + 32;
    let mut fields = [0_u64; 5];
    for (index, field) in fields.iter_mut().enumerate() {
        let word = u32_at(file, header + 12 + index * 4);
        let truncated = Error::Truncated { what: "the Multiboot header", needed, have };
        *field = u64::from(word.ok_or(truncated)?);
    }
    let [header_address, load, load_end, bss_end, entry] = fields;
    let bad = |reason: &str| Error::Multiboot { reason: reason.to_owned() };
    let before = header_address.checked_sub(load).ok_or(bad("it is below what is loaded"))?;
    let offset = (header as u64).checked_sub(before).ok_or(bad("it is not in what is loaded"))?;
    let size = match load_end {
        0 => have - offset,
        end => end.checked_sub(load).ok_or(bad("what is loaded ends before it starts"))?,
    };
    if offset + size > have {
        return Err(Error::Truncated { what: "the kernel", needed: offset + size, have });
    }
    let memory_bytes = match bss_end {
        0 => size,
        end => end.checked_sub(load).ok_or(bad("its memory ends before it starts"))?.max(size),
    };
    if size == 0 || !(load..load + memory_bytes).contains(&entry) {
        return Err(bad("the entry point is not in what is loaded"));
    }
    let segment = Segment {
        physical: load,
        linear: load,
        offset: offset as usize,
        file_bytes: size as usize,
        memory_bytes,
    };
    Ok(Image {
        is_64: false,
        entry,
        segments: vec![segment],
        pvh_entry: None,
        is_linux: false,
        file_end: file.len(),
    })
}

/// An ELF file's entry point is a virtual address; paging is off, so the physical one is needed.
fn physical_entry(image: &Image) -> u64 {
    let segment = image.segments.iter().find(|segment| {
        image.entry.checked_sub(segment.linear).is_some_and(|at| at < segment.memory_bytes)
    });
    segment.map_or(image.entry, |segment| image.entry - segment.linear + segment.physical)
}

/// Fill the BIOS data area, which is in the first page, where the loader places nothing. What the map reserves
/// right behind conventional memory is the extended one, which begins with its own size in KiB.
fn describe_conventional_memory(loader: &Loader) -> Result<(), Error> {
    let (conventional, _) = memory_sizes(loader.memory_map());
    if conventional == 0 {
        return Ok(());
    }
    loader.write(CONVENTIONAL_KIB, &(conventional as u16).to_le_bytes())?;
    let start = conventional << 10;
    let is_extended = |entry: &&MapEntry| entry.start == start && entry.kind == MapKind::Reserved;
    let Some(extended) = loader.memory_map().iter().find(is_extended) else { return Ok(()) };
    loader.write(start, &[u8::try_from(extended.size >> 10).unwrap_or(u8::MAX)])?;
    loader.write(EXTENDED_DATA_SEGMENT, &((start / PARAGRAPH_BYTES) as u16).to_le_bytes())
}

/// Place the information structure and all that it points to.
fn place_info(loader: &mut Loader, kernel_end: u64) -> Result<u64, Error> {
    let request = loader.request;
    let command_line = format!("{} {}", request.kernel_name, request.command_line);
    let command_line = loader.place_string(command_line.trim_end())?;
    let loader_name = loader.place_string("Bivouac")?;
    let (modules, count) = place_modules(loader, kernel_end)?;
    let map = map_bytes(loader.memory_map());
    let map_at = loader.place(&map, 16)?;
    let (lower, upper) = memory_sizes(loader.memory_map());
    let flags = HAS_MEMORY | HAS_BOOT_DEVICE | HAS_COMMAND_LINE | HAS_MAP | HAS_LOADER_NAME;
    let flags = if count > 0 { flags | HAS_MODULES } else { flags };
    let mut info = [0; INFO_BYTES];
    for (offset, value) in [
        (0, u64::from(flags)),
        (4, lower),
        (8, upper),
        (12, u64::from(BOOT_DEVICE)),
        (16, command_line),
        (20, count as u64),
        (24, modules),
        (44, map.len() as u64),
        (48, map_at),
        (64, loader_name),
    ] {
        info[offset..offset + 4].copy_from_slice(&(value as u32).to_le_bytes());
    }
    loader.place(&info, 16)
}

/// Place the modules behind the kernel and their list in low memory; returns the list and its length.
fn place_modules(loader: &mut Loader, kernel_end: u64) -> Result<(u64, usize), Error> {
    let modules = loader.modules()?;
    let mut list = Vec::new();
    for module in modules {
        let size = module.data.len() as u64;
        let start = loader
            .space
            .take_lowest(size, PAGE_BYTES, kernel_end.max(MIB), 1 << 32)
            .ok_or(Error::InitrdTooLarge { size })?;
        loader.write(start, module.data)?;
        let string = loader.place_string(module.command_line)?;
        for value in [start, start + size, string, 0] {
            list.extend_from_slice(&(value as u32).to_le_bytes());
        }
    }
    let at = if list.is_empty() { 0 } else { loader.place(&list, 16)? };
    Ok((at, modules.len()))
}

/// The memory map: each entry preceded by its size, which does not count itself.
fn map_bytes(map: &[MapEntry]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(map.len() * 24);
    for entry in map {
        bytes.extend_from_slice(&20_u32.to_le_bytes());
        bytes.extend_from_slice(&entry.start.to_le_bytes());
        bytes.extend_from_slice(&entry.size.to_le_bytes());
        bytes.extend_from_slice(&(entry.kind as u32).to_le_bytes());
    }
    bytes
}

/// KiB of memory from 0, at most 640, and KiB from 1 MiB to the first hole.
fn memory_sizes(map: &[MapEntry]) -> (u64, u64) {
    let ram_from = |start: u64| {
        let mut end = start;
        while let Some(entry) =
            map.iter().find(|entry| entry.kind.is_ram() && entry.start <= end && entry.end() > end)
        {
            end = entry.end();
        }
        (end - start) >> 10
    };
    (ram_from(0).min(MAX_CONVENTIONAL_KIB), ram_from(MIB).min(u64::from(u32::MAX)))
}
