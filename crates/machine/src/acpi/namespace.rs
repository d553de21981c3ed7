//! DSDT: the devices that cannot be found otherwise (ACPI 6.5, 5.2.11.1).

use acpi_tables::Aml;
use acpi_tables::aml::{
    Device, EISAName, IO, Interrupt, Name, Package, ResourceTemplate, Scope, ZERO,
};
use acpi_tables::sdt::Sdt;

use super::{Config, OEM_ID, OEM_REVISION, OEM_TABLE_ID};
use crate::layout::{irq, port};

/// Present, enabled, functioning, and not to be shown (ACPI 6.5, 6.3.7).
const HIDDEN: u8 = 0x0b;

/// Present, enabled, shown and functioning.
const PRESENT: u8 = 0x0f;

/// Ports of the fw_cfg device: selector, data and DMA address.
const FW_CFG_PORTS: u8 = 12;

pub fn dsdt(config: &Config) -> Vec<u8> {
    let mut code = Vec::new();
    // SLP_TYPa and SLP_TYPb of the state in which the machine is off (7.4.2).
    let off = Package::new(vec![&ZERO, &ZERO, &ZERO, &ZERO]);
    Name::new("_S5_".into(), &off).to_aml_bytes(&mut code);
    super::pci::root(&mut code, config.firmware_memory);
    rtc(&mut code);
    if config.com1 {
        serial(&mut code, "COM1", 1, port::COM1, irq::COM1);
    }
    if config.com2 {
        serial(&mut code, "COM2", 2, port::COM2, irq::COM2);
    }
    if config.fw_cfg {
        fw_cfg(&mut code);
    }
    let mut table = Sdt::new(*b"DSDT", 36, 2, OEM_ID, OEM_TABLE_ID, OEM_REVISION);
    table.append_slice(&code);
    table.as_slice().to_vec()
}

fn rtc(code: &mut Vec<u8>) {
    let ports = IO::new(port::RTC, port::RTC, 1, 2);
    let interrupt = Interrupt::new(true, true, false, false, irq::RTC.into());
    let resources = ResourceTemplate::new(vec![&ports, &interrupt]);
    device(code, "RTC_", &EISAName::new("PNP0B00"), None, &resources);
}

fn serial(code: &mut Vec<u8>, name: &str, number: u8, port: u16, irq: u8) {
    let ports = IO::new(port, port, 0, 8);
    let interrupt = Interrupt::new(true, true, false, false, irq.into());
    let resources = ResourceTemplate::new(vec![&ports, &interrupt]);
    device(code, name, &EISAName::new("PNP0501"), Some(number), &resources);
}

/// As QEMU's docs/specs/fw_cfg has it.
fn fw_cfg(code: &mut Vec<u8>) {
    let ports = IO::new(port::FW_CFG, port::FW_CFG, 1, FW_CFG_PORTS);
    let resources = ResourceTemplate::new(vec![&ports]);
    device(code, "FWCF", &"QEMU0002", None, &resources);
}

fn device(
    code: &mut Vec<u8>,
    name: &str,
    hardware_id: &dyn Aml,
    unique_id: Option<u8>,
    resources: &ResourceTemplate<'_>,
) {
    let hardware_id = Name::new("_HID".into(), hardware_id);
    let unique_id = unique_id.map(|number| Name::new("_UID".into(), &number));
    let status = Name::new("_STA".into(), if unique_id.is_some() { &PRESENT } else { &HIDDEN });
    let settings = Name::new("_CRS".into(), resources);
    let mut children: Vec<&dyn Aml> = vec![&hardware_id, &status];
    if let Some(unique_id) = &unique_id {
        children.push(unique_id);
    }
    children.push(&settings);
    let device = Device::new(name.into(), children);
    Scope::new("_SB_".into(), vec![&device]).to_aml_bytes(code);
}
