//! Event channels in bitmaps of two levels (public/event_channel.h), which a domain has until it changes to FIFO.
//!
//! Whether a port is pending, and whether it is masked, are bits in the page that the domain shares with us. Raising a
//! port sets its bit, and if it was neither set nor masked, the bit of its word in the `vcpu_info` of the vCPU that the
//! port notifies, and that vCPU's pending byte. The guest takes them in the opposite order.

use std::sync::atomic::Ordering;

use vm_memory::GuestAddress;

use super::PORTS;
use crate::domain::Domain;

/// Where the bits are in `shared_info`.
const PENDING: u64 = 2048;
const MASK: u64 = 2560;

/// Where `evtchn_pending_sel` is in a `vcpu_info`.
const SELECTOR: u64 = 8;

impl Domain {
    fn shared_word(&self, offset: u64, port: u32) -> u64 {
        self.geometry.shared_info().address() + offset + u64::from(port / 64) * 8
    }

    fn shared_bit(&self, offset: u64, port: u32) -> bool {
        let at = GuestAddress(self.shared_word(offset, port));
        let word = self.memory.bytes().load_word(at).unwrap_or(0);
        (port as usize) < PORTS && word >> (port % 64) & 1 != 0
    }

    /// Whether the port's bit is set.
    pub(super) fn is_bit_pending(&self, port: u32) -> bool {
        self.shared_bit(PENDING, port)
    }

    /// Set the port's bit, of which the vCPU is told. Whether it was not set.
    pub(super) fn set_bit_pending(&self, port: u32, vcpu: usize) -> bool {
        let (at, bit) = (self.shared_word(PENDING, port), 1 << (port % 64));
        let old = self.change(at, |word| word.fetch_or(bit, Ordering::SeqCst));
        if old & bit != 0 {
            return false;
        }
        if !self.shared_bit(MASK, port) {
            self.select(vcpu, port / 64);
        }
        true
    }

    /// Set a bit in a vCPU's selector, and have its events delivered.
    fn select(&self, vcpu: usize, word: u32) {
        let info = self.vcpus.info(vcpu);
        let order = Ordering::SeqCst;
        let old = self.change(info + SELECTOR, |selector| selector.fetch_or(1 << word, order));
        if old >> word & 1 == 0 {
            self.mark_pending(vcpu);
        }
    }

    /// Clear the bit that masks the port; the vCPU is told if the port is pending.
    pub(super) fn unmask_bit(&self, port: u32, vcpu: usize) {
        let (at, bit) = (self.shared_word(MASK, port), 1 << (port % 64));
        let old = self.change(at, |word| word.fetch_and(!bit, Ordering::SeqCst));
        if old & bit != 0 && self.is_bit_pending(port) {
            self.select(vcpu, port / 64);
        }
    }

    /// Clear the port's bit.
    pub(super) fn clear_bit_pending(&self, port: u32) {
        let (at, bit) = (self.shared_word(PENDING, port), 1 << (port % 64));
        self.change(at, |word| word.fetch_and(!bit, Ordering::SeqCst));
    }
}
