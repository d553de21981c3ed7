//! The ACPI tables: what there is besides what a kernel finds by itself (ACPI 6.5).
//!
//! Nothing can be asked of firmware: the tables describe fixed hardware only, ACPI mode is always on (no SMI command
//! port), and the one sleep state is off.
//!
//! Most machines have no firmware, and find the tables in memory ([`build`]). Where a machine starts firmware of its
//! own, that is given the same tables in files ([`linked`]), because it decides where they are.

mod fixed;
mod interrupts;
mod linked;
mod namespace;
mod pci;
#[cfg(test)]
mod tests;

use acpi_tables::Aml;
use acpi_tables::facs::FACS;
use acpi_tables::rsdp::Rsdp;
use acpi_tables::xsdt::XSDT;
use vm_memory::GuestAddress;

pub use linked::linked;

use crate::layout::{ACPI_TABLES, HIGH_MEMORY};

/// The maker of the tables.
const OEM_ID: [u8; 6] = *b"BIVUAC";
const OEM_TABLE_ID: [u8; 8] = *b"BIVOUAC ";
const OEM_REVISION: u32 = 1;

/// Every table starts at a multiple of this; the FACS must (ACPI 6.5, 5.2.10).
const ALIGNMENT: u64 = 64;

/// What the tables say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Config {
    /// Processors; their APIC ids are 0 and up.
    pub processors: usize,
    /// There is a serial port at COM1.
    pub com1: bool,
    /// There is a serial port at COM2.
    pub com2: bool,
    /// There is a fw_cfg device.
    pub fw_cfg: bool,
    /// The machine has so many bytes of memory, and firmware, which places the PCI bus's functions.
    pub firmware_memory: Option<u64>,
}

/// Why there are no tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// They would not fit below 1 MiB.
    #[error("the ACPI tables need {needed} bytes but have {room}; use fewer processors")]
    TooLarge {
        /// Bytes that there should be.
        needed: u64,
        /// Bytes that there are.
        room: u64,
    },
}

/// Tables to be copied into guest memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tables {
    /// Where the RSDP is: for the boot protocol.
    pub rsdp: GuestAddress,
    /// What goes where.
    pub pieces: Vec<(GuestAddress, Vec<u8>)>,
}

/// The tables of a machine, to be placed from [`ACPI_TABLES`] on.
///
/// # Errors
///
/// [`Error::TooLarge`].
pub fn build(config: &Config) -> Result<Tables, Error> {
    let rsdp = ACPI_TABLES;
    let mut placer = Placer { next: rsdp.0 + ALIGNMENT, pieces: Vec::new() };
    let roots = place_all(config, &mut placer);
    placer.pieces.insert(0, (rsdp, rsdp_of(&roots)));
    check_size(placer.next - ACPI_TABLES.0)?;
    Ok(Tables { rsdp, pieces: placer.pieces })
}

/// Whether so many bytes of tables fit.
fn check_size(needed: u64) -> Result<(), Error> {
    let room = HIGH_MEMORY.0 - ACPI_TABLES.0;
    if needed > room { Err(Error::TooLarge { needed, room }) } else { Ok(()) }
}

/// The tables that have the addresses of others.
struct Roots {
    fadt: GuestAddress,
    xsdt: GuestAddress,
    /// How many tables the XSDT names.
    entries: usize,
}

/// Place all tables but the RSDP.
fn place_all(config: &Config, placer: &mut Placer) -> Roots {
    let facs = placer.place(&FACS::new());
    let dsdt = placer.place_bytes(namespace::dsdt(config));
    let fadt = placer.place(&fixed::fadt(facs, dsdt));
    let mut tables = vec![fadt, placer.place_bytes(interrupts::madt(config))];
    if config.firmware_memory.is_none() {
        tables.push(placer.place(&pci::mcfg()));
    }
    let mut xsdt = XSDT::new(OEM_ID, OEM_TABLE_ID, OEM_REVISION);
    tables.iter().for_each(|table| xsdt.add_entry(table.0));
    Roots { fadt, xsdt: placer.place(&xsdt), entries: tables.len() }
}

/// The RSDP, which names the XSDT.
fn rsdp_of(roots: &Roots) -> Vec<u8> {
    let mut bytes = Vec::new();
    Rsdp::new(OEM_ID, roots.xsdt.0).to_aml_bytes(&mut bytes);
    bytes
}

/// Lays out tables one after the other.
struct Placer {
    next: u64,
    pieces: Vec<(GuestAddress, Vec<u8>)>,
}

impl Placer {
    fn place(&mut self, table: &dyn Aml) -> GuestAddress {
        let mut bytes = Vec::new();
        table.to_aml_bytes(&mut bytes);
        self.place_bytes(bytes)
    }

    fn place_bytes(&mut self, bytes: Vec<u8>) -> GuestAddress {
        let at = GuestAddress(self.next);
        self.next = (self.next + bytes.len() as u64).next_multiple_of(ALIGNMENT);
        self.pieces.push((at, bytes));
        at
    }
}
