//! Linux by the 64-bit boot protocol (Documentation/arch/x86/boot.rst), entered at the unpacked
//! kernel's own entry.
//!
//! A bzImage normally unpacks itself. Here the host has done it, so the loader must also do what that
//! code (arch/x86/boot/compressed) does besides unpacking:
//!
//! 1. Choose where the kernel goes. The physical address may be anything that is aligned, RAM, and
//!    not below both the address it was linked for and 512 MiB (kaslr.c,
//!    `choose_random_location`).
//! 2. Choose where it appears in virtual memory: between the address it was linked for and the end of
//!    its 1 GiB window (`find_random_virt_addr`), and change all addresses in it accordingly
//!    ([`super::relocate`]).
//! 3. Say so in `loadflags`, so that the kernel randomizes the rest of its layout too.
//!
//! None of this happens with `nokaslr`, without randomness, or if the kernel has no relocations.
//! Otherwise it goes where it was linked, or if memory is short, where it fits.

use linux_loader::bootparam::{
    KASLR_FLAG, LOADED_HIGH, SETUP_RNG_SEED, XLF_CAN_BE_LOADED_ABOVE_4G, boot_e820_entry,
    boot_params, setup_header,
};

use super::cache::Unpacked;
use super::elf::Image;
use super::entry::gpr;
use super::error::Error;
use super::loader::Loader;
use super::relocate::Table;
use super::space::Range;
use super::{Loaded, Protocol, tables};

/// The size of the window that a kernel's virtual address is chosen from (`KERNEL_IMAGE_SIZE` with
/// `CONFIG_RANDOMIZE_BASE`).
const WINDOW_BYTES: u64 = 1 << 30;

/// The kernel is mapped with pages of this size while it starts (`MIN_KERNEL_ALIGN`).
const MIN_ALIGN: u64 = 2 << 20;

/// Kernels are never placed below this: everything lower belongs to the PC's past.
const LOWEST_KERNEL: u64 = MIN_ALIGN;

/// kaslr.c considers no address below the smaller of this and where the kernel was linked.
const KASLR_FROM: u64 = 512 << 20;

/// Longest command line of a kernel that does not say (`COMMAND_LINE_SIZE` without its zero byte).
const COMMAND_LINE_BYTES: u32 = 2047;

/// Where an initrd may end in a kernel that does not say (boot.rst, `initrd_addr_max`).
const INITRD_MAX: u32 = 0x7fff_ffff;

const PAGE_BYTES: u64 = 4096;

/// A loader without an assigned number (boot.rst, `type_of_loader`).
const UNDEFINED_LOADER: u8 = 0xff;

/// An unpacked kernel.
pub struct Kernel<'a> {
    /// The ELF file, and the relocation table behind it.
    pub file: Unpacked<'a>,
    /// Its headers.
    pub image: Image,
    /// The setup header of the bzImage that it came from.
    pub header: Option<setup_header>,
}

/// What decides where a kernel may go.
struct Layout {
    /// The address that it was linked for.
    linked: u64,
    /// From the first to the last byte in memory.
    span: u64,
    /// What it wants to have for itself while it starts.
    room: u64,
    align: u64,
    relocatable: bool,
}

impl Layout {
    fn of(kernel: &Kernel, has_relocations: bool) -> Self {
        let (linked, end) = kernel.image.physical_range();
        let header = kernel.header.unwrap_or_default();
        let align = u64::from(header.kernel_alignment);
        let align = if align.is_power_of_two() { align.max(MIN_ALIGN) } else { MIN_ALIGN };
        let relocatable = header.relocatable_kernel != 0 || has_relocations;
        let span = end - linked;
        Self {
            linked,
            span,
            room: span.max(u64::from(header.init_size)),
            align,
            relocatable: relocatable && linked % MIN_ALIGN == 0,
        }
    }

    /// A random distance to move by in virtual memory.
    fn linear_offset(&self, file_bytes: u64, random: u64) -> u64 {
        let size = self.span.max(file_bytes).next_multiple_of(self.align);
        let slots = WINDOW_BYTES
            .checked_sub(self.linked)
            .and_then(|room| room.checked_sub(size))
            .map_or(1, |room| room / self.align + 1);
        random % slots * self.align
    }
}

/// Load a kernel.
///
/// # Errors
///
/// [`Error`] if the kernel, the initrd or the command line do not fit.
pub fn load(mut loader: Loader, mut kernel: Kernel) -> Result<Loaded, Error> {
    let header = kernel.header.unwrap_or_else(header_of_vmlinux);
    if !kernel.image.is_64 {
        return Err(Error::Only32Bit);
    }
    check_command_line(loader.request.command_line, &header)?;
    let table = Table::parse(&kernel.file[kernel.image.file_end..]);
    let layout = Layout::of(&kernel, table.is_some());
    let (start, end) = kernel.image.physical_range();
    if !(start..end).contains(&kernel.image.entry) {
        return Err(Error::BadElf { reason: "its entry point is outside it" });
    }

    let mut params = Box::new(boot_params { hdr: header, ..boot_params::default() });
    params.hdr.loadflags &= !KASLR_FLAG;
    let mut linear_offset = 0;
    let (address, initrd);
    match (loader.request.randomness, table) {
        (Some(random), Some(table))
            if layout.relocatable && !has_word(loader.request.command_line, "nokaslr") =>
        {
            place_tables(&mut loader, &mut params)?;
            initrd = place_initrd(&mut loader, &mut params)?;
            address = choose_address(&mut loader, &layout, random.physical)?;
            linear_offset = layout.linear_offset(kernel.file.len() as u64, random.linear);
            if linear_offset != 0 {
                table.apply(kernel.file.to_mut(), &kernel.image, linear_offset)?;
            }
            params.hdr.loadflags |= KASLR_FLAG;
        }
        _ => {
            address = linked_address(&mut loader, &layout)?;
            place_tables(&mut loader, &mut params)?;
            initrd = place_initrd(&mut loader, &mut params)?;
        }
    }
    let physical_offset = address.wrapping_sub(layout.linked).cast_signed();
    write_image(&loader, &kernel, physical_offset)?;

    let range = Range { start: address, end: address + layout.span };
    let rip = kernel.image.entry.wrapping_add_signed(physical_offset);
    let mut entry = tables::enter_long(&mut loader, rip, range)?;
    let zero_page = loader.space.take_table(size_of::<boot_params>(), PAGE_BYTES)?;
    loader.write_object(zero_page, &*params)?;
    entry.gprs[gpr::RSI] = zero_page;
    entry.gprs[gpr::RSP] = loader.space.take_table(PAGE_BYTES as usize, PAGE_BYTES)? + PAGE_BYTES;
    Ok(Loaded {
        entry,
        protocol: Protocol::Linux64,
        kernel: range,
        initrd,
        physical_offset,
        linear_offset,
    })
}

/// The header of a kernel that came without one: an ELF file says nothing about itself.
fn header_of_vmlinux() -> setup_header {
    setup_header {
        boot_flag: 0xaa55,
        header: u32::from_le_bytes(*b"HdrS"),
        version: 0x020c,
        loadflags: LOADED_HIGH,
        initrd_addr_max: INITRD_MAX,
        kernel_alignment: MIN_ALIGN as u32,
        cmdline_size: COMMAND_LINE_BYTES,
        ..setup_header::default()
    }
}

fn check_command_line(text: &str, header: &setup_header) -> Result<(), Error> {
    let limit = match header.cmdline_size {
        0 => COMMAND_LINE_BYTES as usize,
        size => size as usize,
    };
    if text.len() > limit {
        return Err(Error::CommandLineTooLong { length: text.len(), limit });
    }
    Ok(())
}

/// Whether one of the blank-separated words of a command line is `word`.
fn has_word(command_line: &str, word: &str) -> bool {
    command_line.split_whitespace().any(|candidate| candidate == word)
}

/// Where the kernel was linked, or anywhere if it does not mind.
fn linked_address(loader: &mut Loader, layout: &Layout) -> Result<u64, Error> {
    if loader.space.take_at(layout.linked, layout.room) {
        return Ok(layout.linked);
    }
    if !layout.relocatable {
        let end = layout.linked.saturating_add(layout.room);
        return Err(Error::NoMemoryAt { start: layout.linked, end });
    }
    loader
        .space
        .take_lowest(layout.room, layout.align, LOWEST_KERNEL, u64::MAX)
        .ok_or(Error::KernelTooLarge { needed: layout.room })
}

/// A random address. A command line that restricts memory is left to the kernel to understand: then
/// the address is not random.
fn choose_address(loader: &mut Loader, layout: &Layout, random: u64) -> Result<u64, Error> {
    let words = loader.request.command_line.split_whitespace();
    let restricted =
        words.into_iter().any(|word| word.starts_with("mem=") || word.starts_with("memmap="));
    let from = layout.linked.min(KASLR_FROM);
    if !restricted {
        let range = (from, u64::MAX);
        if let Some(address) = loader.space.take_random(layout.room, layout.align, range, random) {
            return Ok(address);
        }
    }
    linked_address(loader, layout)
}

/// Place the command line and the seed, and describe them and the machine.
fn place_tables(loader: &mut Loader, params: &mut boot_params) -> Result<(), Error> {
    params.hdr.type_of_loader = UNDEFINED_LOADER;
    params.hdr.loadflags |= LOADED_HIGH;
    let command_line = loader.place_string(loader.request.command_line)?;
    params.hdr.cmd_line_ptr = command_line as u32;
    params.ext_cmd_line_ptr = (command_line >> 32) as u32;
    params.acpi_rsdp_addr = loader.request.rsdp.map_or(0, |address| address.0);
    params.e820_entries = loader.memory_map().len() as u8;
    let mut map = params.e820_table;
    for (slot, entry) in map.iter_mut().zip(loader.memory_map()) {
        *slot = boot_e820_entry { addr: entry.start, size: entry.size, r#type: entry.kind as u32 };
    }
    params.e820_table = map;
    if let Some(random) = loader.request.randomness {
        // struct setup_data: next, type, length, data.
        let mut seed = vec![0; 8];
        seed.extend_from_slice(&SETUP_RNG_SEED.to_le_bytes());
        seed.extend_from_slice(&(random.seed.len() as u32).to_le_bytes());
        seed.extend_from_slice(&random.seed);
        params.hdr.setup_data = loader.place(&seed, 16)?;
    }
    Ok(())
}

/// Place the initrd as high as the kernel allows. Several are joined, aligned to 4 bytes, which
/// Linux unpacks one after the other (Documentation/driver-api/early-userspace/buffer-format.rst).
fn place_initrd(loader: &mut Loader, params: &mut boot_params) -> Result<Option<Range>, Error> {
    let modules = loader.modules()?;
    let aligned = |module: &super::Module| (module.data.len() as u64).next_multiple_of(4);
    let size: u64 = modules.iter().map(aligned).sum();
    if size == 0 {
        return Ok(None);
    }
    let header = params.hdr;
    let limit = match header.initrd_addr_max {
        0 => INITRD_MAX,
        limit => limit,
    };
    let above_4g = header.xloadflags & XLF_CAN_BE_LOADED_ABOVE_4G != 0;
    let address = loader
        .space
        .take_highest(size, PAGE_BYTES, u64::from(limit) + 1)
        .or_else(|| above_4g.then(|| loader.space.take_highest(size, PAGE_BYTES, u64::MAX))?)
        .ok_or(Error::InitrdTooLarge { size })?;
    let mut at = address;
    for module in modules {
        loader.write(at, module.data)?;
        let end = at + module.data.len() as u64;
        at += aligned(module);
        loader.write(end, &[0; 4][..(at - end) as usize])?;
    }
    params.hdr.ramdisk_image = address as u32;
    params.ext_ramdisk_image = (address >> 32) as u32;
    params.hdr.ramdisk_size = size as u32;
    params.ext_ramdisk_size = (size >> 32) as u32;
    Ok(Some(Range { start: address, end: at }))
}

/// The kernel clears its own `.bss` (arch/x86/kernel/head64.c, `clear_bss`); touching it here would
/// only cost time.
fn write_image(loader: &Loader, kernel: &Kernel, physical_offset: i64) -> Result<(), Error> {
    for segment in &kernel.image.segments {
        let bytes = &kernel.file[segment.offset..segment.offset + segment.file_bytes];
        loader.write(segment.physical.wrapping_add_signed(physical_offset), bytes)?;
    }
    Ok(())
}
