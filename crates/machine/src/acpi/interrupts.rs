//! MADT: the interrupt controllers (ACPI 6.5, 5.2.12). `acpi_tables` has no x2APIC, override and
//! NMI structures, so the entries are written here, as the specification lays them out.

use acpi_tables::sdt::Sdt;

use super::{Config, OEM_ID, OEM_REVISION, OEM_TABLE_ID};
use crate::layout::{IO_APIC, LOCAL_APIC, irq};

/// There is a pair of 8259s.
const PCAT_COMPATIBLE: u32 = 1;
/// The processor can be used.
const ENABLED: u32 = 1;
/// Override flags: active high, level triggered.
const HIGH_LEVEL: u16 = 0b1101;
/// As the bus has it.
const CONFORMS: u16 = 0;
/// For all processors.
const ALL: u8 = 0xff;
/// Ids from here on need an x2APIC entry.
const FIRST_X2APIC_ID: usize = 255;

pub fn madt(config: &Config) -> Vec<u8> {
    let mut table = Sdt::new(*b"APIC", 36, 5, OEM_ID, OEM_TABLE_ID, OEM_REVISION);
    table.append_slice(&(LOCAL_APIC.0 as u32).to_le_bytes());
    table.append_slice(&PCAT_COMPATIBLE.to_le_bytes());
    for id in 0..config.processors {
        table.append_slice(&processor(id as u32));
    }
    table.append_slice(&io_apic());
    table.append_slice(&source_override(irq::PIT, irq::PIT_PIN, CONFORMS));
    table.append_slice(&source_override(irq::SCI, irq::SCI, HIGH_LEVEL));
    table.append_slice(&local_nmi());
    table.as_slice().to_vec()
}

/// Processor Local APIC (5.2.12.2), or Processor Local x2APIC (5.2.12.12) where the id needs it.
fn processor(id: u32) -> Vec<u8> {
    if (id as usize) < FIRST_X2APIC_ID {
        return entry(0, &[&[id as u8, id as u8], &ENABLED.to_le_bytes()]);
    }
    entry(9, &[&[0, 0], &id.to_le_bytes(), &ENABLED.to_le_bytes(), &id.to_le_bytes()])
}

/// I/O APIC (5.2.12.3): id 0, interrupts from 0 on.
fn io_apic() -> Vec<u8> {
    entry(1, &[&[0, 0], &(IO_APIC.0 as u32).to_le_bytes(), &0u32.to_le_bytes()])
}

/// Interrupt Source Override (5.2.12.5) of the ISA bus.
fn source_override(source: u8, pin: u8, flags: u16) -> Vec<u8> {
    entry(2, &[&[0, source], &u32::from(pin).to_le_bytes(), &flags.to_le_bytes()])
}

/// Local APIC NMI (5.2.12.7): LINT1 of every processor.
fn local_nmi() -> Vec<u8> {
    entry(4, &[&[ALL], &CONFORMS.to_le_bytes(), &[1]])
}

fn entry(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let mut bytes = vec![kind, body.len() as u8 + 2];
    bytes.extend(body);
    bytes
}
