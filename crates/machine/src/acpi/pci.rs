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
    PCI_CONFIGURATION, PCI_CONFIGURATION_BYTES, PCI_WINDOW, PCI_WINDOW_BYTES, port,
};

/// The configuration space of bus 0, the only one.
pub fn mcfg() -> MCFG {
    let mut table = MCFG::new(OEM_ID, OEM_TABLE_ID, OEM_REVISION);
    table.add_ecam(PCI_CONFIGURATION.0, 0, 0, 0);
    table
}

/// Root and configuration space. There are no interrupt pins, hence no `_PRT`.
pub fn root(code: &mut Vec<u8>) {
    let express = Name::new("_HID".into(), &EISAName::new("PNP0A08"));
    let plain = Name::new("_CID".into(), &EISAName::new("PNP0A03"));
    let number = Name::new("_UID".into(), &ZERO);
    let segment = Name::new("_SEG".into(), &ZERO);
    let bus = Name::new("_BBN".into(), &ZERO);
    let buses = AddressSpace::new_bus_number(0u16, 0);
    let ports = IO::new(port::PCI_ADDRESS, port::PCI_ADDRESS, 1, 8);
    let last = PCI_WINDOW.0 + PCI_WINDOW_BYTES - 1;
    let (start, last) = (PCI_WINDOW.0 as u32, last as u32);
    let window =
        AddressSpace::new_memory(AddressSpaceCacheable::NotCacheable, true, start, last, None);
    let resources = ResourceTemplate::new(vec![&buses, &ports, &window]);
    let settings = Name::new("_CRS".into(), &resources);
    let root =
        Device::new("PCI0".into(), vec![&express, &plain, &number, &segment, &bus, &settings]);
    let hardware = Name::new("_HID".into(), &EISAName::new("PNP0C02"));
    let number = Name::new("_UID".into(), &ZERO);
    let taken =
        Memory32Fixed::new(true, PCI_CONFIGURATION.0 as u32, PCI_CONFIGURATION_BYTES as u32);
    let resources = ResourceTemplate::new(vec![&taken]);
    let settings = Name::new("_CRS".into(), &resources);
    let board = Device::new("MBRD".into(), vec![&hardware, &number, &settings]);
    Scope::new("_SB_".into(), vec![&root, &board]).to_aml_bytes(code);
}
