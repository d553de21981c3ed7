//! FADT: the fixed hardware (ACPI 6.5, 5.2.9).

use acpi_tables::fadt::{FADT, FADTBuilder, Flags, PmProfile};
use acpi_tables::gas::{AccessSize, AddressSpace, GAS};
use vm_memory::GuestAddress;

use super::{OEM_ID, OEM_REVISION, OEM_TABLE_ID};
use crate::layout::{irq, port};
use crate::power::offset;

/// IAPC_BOOT_ARCH (ACPI 6.5, table 5.10): there are ISA devices; no VGA, no PCIe ASPM. The
/// keyboard controller is there for resets only, so that a kernel need not probe it.
const BOOT_ARCHITECTURE: u16 = 1 << 0 | 1 << 2 | 1 << 4;

/// What resets the machine when written to the reset register.
const RESET_VALUE: u8 = 0x06;

/// Latencies above these say that there are no C2 and C3 states (table 5.9).
const NO_C2_MICROSECONDS: u16 = 101;
const NO_C3_MICROSECONDS: u16 = 1001;

/// Where the century is in the clock's memory.
const CENTURY: u8 = 0x32;

pub fn fadt(facs: GuestAddress, dsdt: GuestAddress) -> FADT {
    let mut table = FADTBuilder::new(OEM_ID, OEM_TABLE_ID, OEM_REVISION)
        .preferred_pm_profile(PmProfile::Unspecified);
    for flag in [
        Flags::Wbinvd,
        Flags::ProcC1,
        Flags::SlpButton,
        Flags::FixRtc,
        Flags::TmrValExt,
        Flags::ResetRegSup,
    ] {
        table = table.flag(flag);
    }
    table.firmware_ctrl = (facs.0 as u32).into();
    table.dsdt = (dsdt.0 as u32).into();
    table.x_dsdt = dsdt.0.into();
    table.sci_int = u16::from(irq::SCI).into();
    table.p_lvl2_lat = NO_C2_MICROSECONDS.into();
    table.p_lvl3_lat = NO_C3_MICROSECONDS.into();
    table.century = CENTURY;
    table.iapc_boot_arch = BOOT_ARCHITECTURE.into();
    table.reset_reg = io(port::RESET, 8, AccessSize::ByteAccess);
    table.reset_value = RESET_VALUE;
    blocks(table).finalize()
}

/// The PM1a and timer blocks, in both the old and the new fields.
fn blocks(mut table: FADTBuilder) -> FADTBuilder {
    let control = port::POWER + offset::CONTROL;
    let timer = port::POWER + offset::TIMER;
    table.pm1a_evt_blk = u32::from(port::POWER).into();
    table.pm1a_cnt_blk = u32::from(control).into();
    table.pm_tmr_blk = u32::from(timer).into();
    table.pm1_evt_len = 4;
    table.pm1_cnt_len = 2;
    table.pm_tmr_len = 4;
    table.x_pm1a_evt_blk = io(port::POWER, 32, AccessSize::WordAccess);
    table.x_pm1a_cnt_blk = io(control, 16, AccessSize::WordAccess);
    table.x_pm_tmr_blk = io(timer, 32, AccessSize::DwordAccess);
    table
}

fn io(port: u16, bits: u8, access: AccessSize) -> GAS {
    GAS::new(AddressSpace::SystemIo, bits, 0, access, port.into())
}
