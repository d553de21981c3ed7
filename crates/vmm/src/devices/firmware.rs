//! What every PC has for its firmware, and kernels ask: fw_cfg and the POST port.

use super::{Device, Slots};
use crate::outcome::Error;

/// QEMU's firmware configuration device, which tells of the vCPUs and the memory.
#[derive(Debug, Default)]
pub struct FirmwareConfiguration;

impl Device for FirmwareConfiguration {
    fn kind(&self) -> &'static str {
        devices::fw_cfg::KIND
    }

    fn plug_in(self: Box<Self>, slots: &mut Slots<'_>) -> Result<(), Error> {
        let processors = slots.processors() as u16;
        let device = devices::FwCfg::new(slots.memory(), processors, slots.memory_bytes());
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
