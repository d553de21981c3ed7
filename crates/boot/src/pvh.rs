//! PVH: 32-bit protected mode, a pointer to `hvm_start_info` in EBX
//! (xen/docs/misc/pvh.pandoc, xen/include/public/arch-x86/hvm/start_info.h).

use linux_loader::start_info::{hvm_memmap_table_entry, hvm_modlist_entry, hvm_start_info};
use vm_memory::ByteValued;

use super::elf::Image;
use super::entry::gpr;
use super::error::Error;
use super::loader::Loader;
use super::{Loaded, Protocol, tables};

/// `XEN_HVM_START_MAGIC_VALUE`.
const MAGIC: u32 = 0x336e_c578;

/// The first version with a memory map.
const VERSION: u32 = 1;

const PAGE_BYTES: u64 = 4096;

/// Load a kernel whose image has a PVH entry.
///
/// # Errors
///
/// [`Error`] if the kernel or a module does not fit.
pub fn load(mut loader: Loader, image: &Image) -> Result<Loaded, Error> {
    let rip = image.pvh_entry.unwrap_or(image.entry);
    let inside =
        |segment: &super::elf::Segment| (segment.physical..segment.physical_end()).contains(&rip);
    if rip > u64::from(u32::MAX) || !image.segments.iter().any(inside) {
        return Err(Error::BadElf { reason: "its PVH entry is outside it" });
    }
    let kernel = loader.place_image(image)?;
    let command_line = loader.place_string(loader.request.command_line)?;
    let modules = place_modules(&mut loader)?;
    let map: Vec<hvm_memmap_table_entry> = loader
        .memory_map()
        .iter()
        .map(|entry| hvm_memmap_table_entry {
            addr: entry.start,
            size: entry.size,
            type_: entry.kind as u32,
            reserved: 0,
        })
        .collect();
    let info = hvm_start_info {
        magic: MAGIC,
        version: VERSION,
        flags: 0,
        nr_modules: modules.len() as u32,
        modlist_paddr: if modules.is_empty() { 0 } else { place_all(&mut loader, &modules)? },
        cmdline_paddr: command_line,
        rsdp_paddr: loader.request.rsdp.map_or(0, |address| address.0),
        memmap_paddr: place_all(&mut loader, &map)?,
        memmap_entries: map.len() as u32,
        reserved: 0,
    };
    let info = loader.place(info.as_slice(), 16)?;
    let mut entry = tables::enter_protected(&mut loader, rip)?;
    entry.gprs[gpr::RBX] = info;
    Ok(Loaded {
        entry,
        protocol: Protocol::Pvh,
        kernel,
        initrd: None,
        physical_offset: 0,
        linear_offset: 0,
    })
}

fn place_all<T: ByteValued>(loader: &mut Loader, items: &[T]) -> Result<u64, Error> {
    let bytes: Vec<u8> = items.iter().flat_map(|item| item.as_slice().to_vec()).collect();
    loader.place(&bytes, 16)
}

fn place_modules(loader: &mut Loader) -> Result<Vec<hvm_modlist_entry>, Error> {
    let mut entries = Vec::new();
    for module in loader.modules()? {
        let size = module.data.len() as u64;
        let paddr = loader
            .space
            .take_highest(size, PAGE_BYTES, 1 << 32)
            .ok_or(Error::InitrdTooLarge { size })?;
        loader.write(paddr, module.data)?;
        let cmdline_paddr = loader.place_string(module.command_line)?;
        entries.push(hvm_modlist_entry { paddr, size, cmdline_paddr, reserved: 0 });
    }
    Ok(entries)
}
