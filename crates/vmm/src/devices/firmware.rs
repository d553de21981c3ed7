//! What every PC has for its firmware, and kernels ask: fw_cfg and the POST port.

use machine::acpi;

use super::{Device, Slots};
use crate::outcome::Error;

/// QEMU's firmware configuration device, which tells of the vCPUs and so many bytes of memory. In a machine with
/// firmware of its own it is the last device, because it has the tables that name the others.
#[derive(Debug)]
pub struct FirmwareConfiguration(pub u64);

impl FirmwareConfiguration {
    /// The files that firmware looks for.
    fn files(&self, slots: &Slots<'_>) -> Result<Vec<(&'static str, Vec<u8>)>, Error> {
        let plugged = &slots.plugged;
        let tables = acpi::Config {
            processors: slots.processors(),
            fw_cfg: true,
            firmware_memory: Some(self.0),
            ..plugged.tables
        };
        let tables = acpi::linked(&tables).map_err(|error| Error::Tables(error.to_string()))?;
        let mut files = tables.to_vec();
        if !plugged.disks.is_empty() {
            files.push(("bootorder", boot_order(&plugged.disks)));
        }
        Ok(files)
    }
}

/// The disks to boot from by the names that Open Firmware would give them (QEMU, softmmu/bootdevice.c; edk2,
/// QemuBootOrderLib), in their order: paths by line, and a NUL behind them.
fn boot_order(slots: &[u8]) -> Vec<u8> {
    let paths: Vec<_> = slots.iter().map(|it| format!("/pci@i0cf8/scsi@{it:x}/disk@0,0")).collect();
    (paths.join("\n") + "\0").into_bytes()
}

impl Device for FirmwareConfiguration {
    fn kind(&self) -> &'static str {
        devices::fw_cfg::KIND
    }

    fn plug_in(self: Box<Self>, slots: &mut Slots<'_>) -> Result<(), Error> {
        let processors = slots.processors() as u16;
        let mut device = devices::FwCfg::new(slots.memory(), processors, self.0);
        if slots.firmware_bytes.is_some() {
            device = device.for_firmware(self.0);
            for (name, bytes) in self.files(slots)? {
                let added = device.add_file(name, bytes);
                added.map_err(|error| Error::Tables(error.to_string()))?;
            }
        }
        device.plug_into(slots.board())?;
        slots.plugged.tables.fw_cfg = true;
        Ok(())
    }
}

/// Port 0x80.
#[derive(Debug, Default)]
pub struct Post;

impl Device for Post {
    fn kind(&self) -> &'static str {
        devices::post::KIND
    }

    fn plug_in(self: Box<Self>, slots: &mut Slots<'_>) -> Result<(), Error> {
        Ok(devices::Post::plug_into(slots.board())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_have_open_firmwares_names() {
        let expected = "/pci@i0cf8/scsi@3/disk@0,0\n/pci@i0cf8/scsi@1f/disk@0,0\0";
        assert_eq!(boot_order(&[3, 31]), expected.as_bytes());
    }
}
