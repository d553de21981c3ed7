//! The PCI root in the DSDT, and what it takes (PCI Firmware Specification 3.3, 4.1 and 4.3): without
//! a window in its resources Linux would move the functions, and without a device that takes the
//! configuration space it would not believe the MCFG table.

use acpi_tables::Aml;
use acpi_tables::aml::{
    AddressSpace, AddressSpaceCacheable, Device, EISAName, IO, Memory32Fixed, Name,
    ResourceTemplate, Scope, ZERO,
};
use acpi_tables::mcfg::MCFG;

use super::{OEM_ID, OEM_REVISION, OEM_TABLE_ID};
use crate::layout::{
    PCI_CONFIGURATION, PCI_CONFIGURATION_BYTES, PCI_WINDOW, PCI_WINDOW_BYTES, firmware_pci_windows,
    port,
};

/// The configuration space of bus 0, the only one.
pub fn mcfg() -> MCFG {
    let mut table = MCFG::new(OEM_ID, OEM_TABLE_ID, OEM_REVISION);
    table.add_ecam(PCI_CONFIGURATION.0, 0, 0, 0);
    table
}

/// Root and configuration space. There are no interrupt pins, hence no `_PRT`.
pub fn root(code: &mut Vec<u8>, firmware_memory: Option<u64>) {
    match firmware_memory {
        Some(bytes) => root_for_firmware(code, bytes),
        None => {
            let last = PCI_WINDOW.0 + PCI_WINDOW_BYTES - 1;
            root_with(code, &[&memory(PCI_WINDOW.0 as u32, last as u32)]);
            configuration_space(code);
        }
    }
}

/// The root where firmware places the functions in a machine with so many bytes of memory: they may be anywhere that it
/// may use, and there is no configuration space by memory.
fn root_for_firmware(code: &mut Vec<u8>, memory_bytes: u64) {
    let [low, high] = firmware_pci_windows(memory_bytes);
    let (below, above) = (port::PCI_ADDRESS - 1, port::PCI_DATA + 4);
    let below = AddressSpace::new_io(0u16, below, None);
    let above = AddressSpace::new_io(above, u16::MAX, None);
    let low = memory(low.0 as u32, (low.1 - 1) as u32);
    let high = memory(high.0, high.1 - 1);
    root_with(code, &[&below, &above, &low, &high]);
}

fn memory<T: Default>(first: T, last: T) -> AddressSpace<T> {
    AddressSpace::new_memory(AddressSpaceCacheable::NotCacheable, true, first, last, None)
}

/// The root of the only bus, with these windows.
fn root_with(code: &mut Vec<u8>, windows: &[&dyn Aml]) {
    let express = Name::new("_HID".into(), &EISAName::new("PNP0A08"));
    let plain = Name::new("_CID".into(), &EISAName::new("PNP0A03"));
    let number = Name::new("_UID".into(), &ZERO);
    let segment = Name::new("_SEG".into(), &ZERO);
    let bus = Name::new("_BBN".into(), &ZERO);
    let buses = AddressSpace::new_bus_number(0u16, 0);
    let ports = IO::new(port::PCI_ADDRESS, port::PCI_ADDRESS, 1, 8);
    let mut resources: Vec<&dyn Aml> = vec![&buses, &ports];
    resources.extend(windows);
    let resources = ResourceTemplate::new(resources);
    let settings = Name::new("_CRS".into(), &resources);
    let root =
        Device::new("PCI0".into(), vec![&express, &plain, &number, &segment, &bus, &settings]);
    Scope::new("_SB_".into(), vec![&root]).to_aml_bytes(code);
}

/// What takes the configuration space.
fn configuration_space(code: &mut Vec<u8>) {
    let hardware = Name::new("_HID".into(), &EISAName::new("PNP0C02"));
    let number = Name::new("_UID".into(), &ZERO);
    let taken =
        Memory32Fixed::new(true, PCI_CONFIGURATION.0 as u32, PCI_CONFIGURATION_BYTES as u32);
    let resources = ResourceTemplate::new(vec![&taken]);
    let settings = Name::new("_CRS".into(), &resources);
    let board = Device::new("MBRD".into(), vec![&hardware, &number, &settings]);
    Scope::new("_SB_".into(), vec![&board]).to_aml_bytes(code);
}
