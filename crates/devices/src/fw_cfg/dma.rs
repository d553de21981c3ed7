//! The DMA interface: the guest gives the address of a request, which is carried out before its
//! `out` instruction ends.

use vm_memory::GuestAddress;

use super::FwCfg;
use super::bits::{Control, DMA_BYTES};
use crate::limits::MAX_FW_CFG_DMA_BYTES;
use machine::memory::NoMemory;

/// Zeros that are written at once behind the end of an item.
const ZEROS: [u8; 4096] = [0; 4096];

impl FwCfg {
    /// Carry out the request at `address` and say there how it went. A request that is not in
    /// memory cannot be answered.
    pub(super) fn transfer(&mut self, address: u64) {
        let mut request = [0; DMA_BYTES];
        if self.memory.read(GuestAddress(address), &mut request).is_err() {
            return;
        }
        let [control, length, high, low] = std::array::from_fn(|n| {
            u32::from_be_bytes(std::array::from_fn(|b| request[4 * n + b]))
        });
        let target = u64::from(high) << 32 | u64::from(low);
        let done = self.carry_out(control, length, target);
        let status = if done.is_ok() { Control::empty() } else { Control::ERROR };
        // It was readable; if it is gone now, there is nobody to tell.
        let _ = self.memory.write(GuestAddress(address), &status.bits().to_be_bytes());
    }

    fn carry_out(&mut self, control: u32, length: u32, target: u64) -> Result<(), NoMemory> {
        let command = Control::from_bits_truncate(control);
        if command.contains(Control::SELECT) {
            self.select((control >> 16) as u16);
        }
        if command.contains(Control::READ) {
            self.read_into(target, length)?;
        } else if command.contains(Control::WRITE) {
            return Err(NoMemory);
        } else if !command.contains(Control::SKIP) {
            return Ok(());
        }
        self.position = self.position.saturating_add(length as usize);
        Ok(())
    }

    /// The item, then zeros.
    fn read_into(&self, target: u64, length: u32) -> Result<(), NoMemory> {
        if length > MAX_FW_CFG_DMA_BYTES {
            return Err(NoMemory);
        }
        let rest = self.rest();
        let item = &rest[..rest.len().min(length as usize)];
        self.memory.write(GuestAddress(target), item)?;
        let (mut at, mut left) = (item.len() as u64, length as usize - item.len());
        while left > 0 {
            let zeros = &ZEROS[..left.min(ZEROS.len())];
            self.memory.write(GuestAddress(target.checked_add(at).ok_or(NoMemory)?), zeros)?;
            at += zeros.len() as u64;
            left -= zeros.len();
        }
        Ok(())
    }
}
