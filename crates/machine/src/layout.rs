//! Where everything is: guest-physical memory, MMIO, ports and interrupt inputs.
//!
//! ```text
//!          0 .. 0009_fc00   RAM
//!  0009_fc00 .. 000a_0000   extended BIOS data area (reserved)
//!  000a_0000 .. 000e_0000   video memory and option ROMs of a real PC (reserved, backed by RAM)
//!  000e_0000 .. 0010_0000   ACPI tables, the RSDP first (reserved)
//!  0010_0000 .. c000_0000   RAM, as much as there is
//!  c000_0000 .. 1_0000_0000 devices: memory of PCI functions at d000_0000, their configuration
//!                           at e000_0000, I/O APIC at fec0_0000, local APIC at fee0_0000
//!  1_0000_0000 ..           the rest of RAM
//! ```
//!
//! RAM is two regions, [`ram_regions`]; the first starts at 0 and also backs the reserved parts.

use vm_memory::GuestAddress;

/// End of conventional memory.
pub const EXTENDED_BIOS_DATA: GuestAddress = GuestAddress(0x9_fc00);
/// End of what a real-mode program may use.
pub const VIDEO_MEMORY: GuestAddress = GuestAddress(0xa_0000);
/// The ACPI tables, within the range that is searched for the RSDP (ACPI 6.5, 5.2.5.1).
pub const ACPI_TABLES: GuestAddress = GuestAddress(0xe_0000);
/// End of the first mebibyte.
pub const HIGH_MEMORY: GuestAddress = GuestAddress(0x10_0000);
/// RAM ends here and resumes at 4 GiB; devices are in between.
pub const DEVICE_HOLE: GuestAddress = GuestAddress(0xc000_0000);
/// Where RAM resumes.
pub const ABOVE_4G: GuestAddress = GuestAddress(1 << 32);
/// Where PCI functions decode memory.
pub const PCI_WINDOW: GuestAddress = GuestAddress(0xd000_0000);
/// Bytes of it.
pub const PCI_WINDOW_BYTES: u64 = 0x1000_0000;
/// Configuration space of the PCI bus (ECAM).
pub const PCI_CONFIGURATION: GuestAddress = GuestAddress(0xe000_0000);
/// Bytes of it: one bus.
pub const PCI_CONFIGURATION_BYTES: u64 = 1 << 20;
/// I/O APIC (82093AA, 3.0).
pub const IO_APIC: GuestAddress = GuestAddress(0xfec0_0000);
/// Bits of the processors' physical addresses, as CPUID has it (leaf 0x8000_0008).
pub const PHYSICAL_BITS: u32 = 40;

/// Local APIC after reset (SDM 3A 11.4.1).
pub const LOCAL_APIC: GuestAddress = GuestAddress(0xfee0_0000);
/// Bytes that either APIC takes.
pub const APIC_BYTES: u64 = 0x1000;

/// A machine's own firmware, of so many bytes: a ROM that ends at 4 GiB. The first instruction is 16 bytes below that.
pub fn firmware(bytes: u64) -> (GuestAddress, u64) {
    (GuestAddress(ABOVE_4G.0.saturating_sub(bytes)), bytes)
}

/// The flash with so many bytes that keeps its variables, directly below the `firmware` with so many.
pub fn flash(bytes: u64, firmware: u64) -> (GuestAddress, u64) {
    (GuestAddress(ABOVE_4G.0.saturating_sub(firmware).saturating_sub(bytes)), bytes)
}

/// Where firmware finds itself a second time, as far as it has so many bytes: code of 16-bit mode starts there. (It is
/// a copy in RAM.)
pub const FIRMWARE_SHADOW: GuestAddress = GuestAddress(0xe_0000);
/// Bytes of it, up to [`HIGH_MEMORY`].
pub const FIRMWARE_SHADOW_BYTES: u64 = HIGH_MEMORY.0 - FIRMWARE_SHADOW.0;

/// Where firmware may place PCI functions in a machine with so many bytes of memory, below 4 GiB and above: the first
/// address, and the one behind the last. edk2 (OvmfPkg, PlatformInitLib) begins behind RAM, at 2 GiB at least, where
/// variable MTRRs can begin that are as large as what is behind; and above all RAM, or with the last eighth of what
/// processors can address.
pub fn firmware_pci_windows(memory_bytes: u64) -> [(u64, u64); 2] {
    let low = memory_bytes.min(DEVICE_HOLE.0);
    let high = ABOVE_4G.0.saturating_add(memory_bytes - low).next_multiple_of(1 << 30);
    [(low.max(1 << 31), 0xfc00_0000), (high, 1 << PHYSICAL_BITS)]
}

/// I/O ports of the devices that every machine has.
#[allow(missing_docs)]
pub mod port {
    pub const PIC_PRIMARY: u16 = 0x20;
    pub const PIT: u16 = 0x40;
    pub const KEYBOARD_DATA: u16 = 0x60;
    pub const SYSTEM_CONTROL_B: u16 = 0x61;
    pub const KEYBOARD_COMMAND: u16 = 0x64;
    pub const RTC: u16 = 0x70;
    pub const POST: u16 = 0x80;
    pub const SYSTEM_CONTROL_A: u16 = 0x92;
    pub const PIC_SECONDARY: u16 = 0xa0;
    pub const DEBUG_CONSOLE: u16 = 0xe9;
    pub const DEBUG_EXIT: u16 = 0xf4;
    pub const COM2: u16 = 0x2f8;
    pub const COM1: u16 = 0x3f8;
    /// Where firmware writes its log, if somebody is there.
    pub const FIRMWARE_LOG: u16 = 0x402;
    pub const PIC_EDGE_LEVEL: u16 = 0x4d0;
    pub const FW_CFG: u16 = 0x510;
    /// PM1a event block; control at +4 and timer at +8, where QEMU has them, so that kernels
    /// which power off with `out 0x604, 0x2000` do.
    pub const POWER: u16 = 0x600;
    /// The same where firmware expects it in a PIIX4 (edk2, OvmfPkg/Include/OvmfPlatforms.h).
    pub const POWER_OF_PIIX4: u16 = 0xb000;
    pub const PCI_ADDRESS: u16 = 0xcf8;
    pub const RESET: u16 = 0xcf9;
    pub const PCI_DATA: u16 = 0xcfc;
}

/// Interrupt inputs: the number is that of the ISA interrupt and, but for the PIT's, of the pin of
/// the I/O APIC.
#[allow(missing_docs)]
pub mod irq {
    pub const PIT: u8 = 0;
    /// The pin of the I/O APIC that the PIT is wired to (MADT: interrupt source override).
    pub const PIT_PIN: u8 = 2;
    pub const COM2: u8 = 3;
    pub const COM1: u8 = 4;
    pub const RTC: u8 = 8;
    /// ACPI's system control interrupt, level triggered.
    pub const SCI: u8 = 9;
}

/// What a range of guest-physical addresses is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The guest's to use.
    Ram,
    /// Not to be used.
    Reserved,
    /// ACPI tables: RAM once they have been read.
    AcpiTables,
}

/// One line of the memory map that the guest is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// First address.
    pub start: GuestAddress,
    /// Bytes.
    pub size: u64,
    /// What it is.
    pub kind: Kind,
}

/// The RAM to map for a machine with `bytes` of memory: start and size, each a whole number of
/// pages if `bytes` is.
pub fn ram_regions(bytes: u64) -> Vec<(GuestAddress, u64)> {
    let low = bytes.min(DEVICE_HOLE.0);
    let mut regions = vec![(GuestAddress(0), low)];
    if bytes > low {
        regions.push((ABOVE_4G, bytes - low));
    }
    regions
}

/// What the guest is told of a machine with `bytes` of memory, in rising order.
pub fn memory_map(bytes: u64) -> Vec<Range> {
    let fixed = [
        (GuestAddress(0), EXTENDED_BIOS_DATA, Kind::Ram),
        (EXTENDED_BIOS_DATA, VIDEO_MEMORY, Kind::Reserved),
        (ACPI_TABLES, HIGH_MEMORY, Kind::Reserved),
        (HIGH_MEMORY, GuestAddress(bytes.min(DEVICE_HOLE.0)), Kind::Ram),
        (
            PCI_CONFIGURATION,
            GuestAddress(PCI_CONFIGURATION.0 + PCI_CONFIGURATION_BYTES),
            Kind::Reserved,
        ),
        (IO_APIC, GuestAddress(IO_APIC.0 + APIC_BYTES), Kind::Reserved),
        (LOCAL_APIC, GuestAddress(LOCAL_APIC.0 + APIC_BYTES), Kind::Reserved),
        (ABOVE_4G, GuestAddress(ABOVE_4G.0 + bytes.saturating_sub(DEVICE_HOLE.0)), Kind::Ram),
    ];
    let ranges = fixed.into_iter().filter(|(start, end, _)| start < end);
    ranges.map(|(start, end, kind)| Range { start, size: end.0 - start.0, kind }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ram_bytes(bytes: u64) -> u64 {
        memory_map(bytes).iter().filter(|r| r.kind == Kind::Ram).map(|r| r.size).sum()
    }

    #[test]
    fn ranges_rise_and_do_not_overlap() {
        for bytes in [2 << 20, 128 << 20, 3 << 30, (3 << 30) + 4096, 8 << 30] {
            for pair in memory_map(bytes).windows(2) {
                assert!(pair[0].start.0 + pair[0].size <= pair[1].start.0, "{bytes:#x}: {pair:x?}");
            }
        }
    }

    #[test]
    fn all_memory_but_the_reserved_part_of_the_first_mebibyte_is_told() {
        let lost = HIGH_MEMORY.0 - EXTENDED_BIOS_DATA.0;
        for bytes in [2 << 20, 3 << 30, 8 << 30] {
            assert_eq!(ram_bytes(bytes), bytes - lost);
            assert_eq!(ram_regions(bytes).iter().map(|r| r.1).sum::<u64>(), bytes);
        }
    }

    #[test]
    fn memory_beyond_three_gibibytes_is_above_four() {
        let regions = ram_regions(4 << 30);
        assert_eq!(regions, [(GuestAddress(0), 3 << 30), (GuestAddress(4 << 30), 1 << 30)]);
    }
}
