//! Loads and stores where no RAM is: the two APICs, then what is plugged in.

use vm_memory::GuestAddress;

use super::Platform;
use crate::bus::Size;
use crate::layout::{APIC_BYTES, IO_APIC};

impl Platform {
    /// A load of `size` bytes: 1, 2, 4 or 8.
    #[inline]
    pub fn mmio_read(&mut self, processor: usize, address: GuestAddress, size: u8) -> u64 {
        let Some(size) = Size::from_bytes(size) else { return u64::MAX };
        let within = address.0 & (APIC_BYTES - 1);
        let local = self.interrupts.local(processor).filter(|local| local.is_at(address.0));
        let register = if let Some(local) = local {
            local.read_mmio(within as u32 & !3, &*self.clock)
        } else if address.0 - within == IO_APIC.0 {
            self.interrupts.synchronize();
            self.interrupts.read_io_apic(within & !3)
        } else {
            return self.mmio.read(address, size);
        };
        self.reschedule();
        u64::from(register) >> (8 * (within & 3)) & size.mask()
    }

    /// A store of `size` bytes: 1, 2, 4 or 8. The APICs take aligned stores of 4 bytes or more, of
    /// which the low 4 count; the manual leaves the others undefined (SDM 3A 11.4.1), and they are
    /// lost.
    #[inline]
    pub fn mmio_write(&mut self, processor: usize, address: GuestAddress, size: u8, value: u64) {
        let Some(size) = Size::from_bytes(size) else { return };
        let within = address.0 & (APIC_BYTES - 1);
        let whole = within & 3 == 0 && size >= Size::Dword;
        let local = self.interrupts.local(processor).filter(|local| local.is_at(address.0));
        if let Some(local) = local {
            if whole && within & 0xf == 0 {
                let effect = local.write_mmio(within as u32, value as u32, &*self.clock);
                self.interrupts.carry_out(effect);
                self.reschedule();
            }
        } else if address.0 - within == IO_APIC.0 {
            if whole {
                self.interrupts.synchronize();
                self.interrupts.write_io_apic(within, value as u32);
            }
        } else {
            return self.mmio.write(address, size, value);
        }
        self.interrupts.wake_others(processor);
    }
}
