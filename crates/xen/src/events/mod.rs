//! Event channels (public/event_channel.h).
//!
//! A port is a number of the domain's. What it is bound to is in a table here ([`ports`]); whether it is pending, and
//! whether it is masked, the guest finds in its own memory: in bitmaps ([`two_level`]), or in FIFOs ([`fifo`]) once it
//! has asked for these. When a port is raised, the thread of the vCPU that it notifies is woken.
//!
//! At the other end of a port is one of: a virtual interrupt, another vCPU, another port of the domain's own, or a
//! *service* of the host's (the store, a console, a disk), which is called on the thread of the vCPU that notifies it.
//! No other domain is reached by a port.

mod fifo;
mod operations;
mod ports;
mod saved;
mod two_level;

use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, Ordering};

use vm_memory::GuestAddress;
use xen_abi::errno;
use xen_io::device::Notify;

use crate::domain::Domain;
use crate::errno::Errno;
use crate::limits::MAX_WORD_ATTEMPTS;
use crate::memory::MachineMemory;
use crate::services::HOST_ID;
use fifo::{Queue, Raised, Words};
use ports::Table;

pub(crate) use operations::event_channel_op;
pub(crate) use ports::{Binding, Events, PORTS, Port};
pub(crate) use saved::SavedEvents;

const INVALID: Errno = Errno::new(errno::EINVAL);

impl Words for MachineMemory {
    fn change(&self, at: u64, change: &mut dyn FnMut(u32) -> Option<u32>) -> u32 {
        let shift = at as u32 % 8 * 8;
        let mut found = 0;
        let exchange = &mut |word: &AtomicU64| {
            // The guest may change the word, or its neighbour, all the time: then it waits for its event.
            for _ in 0..MAX_WORD_ATTEMPTS {
                let old = word.load(Ordering::SeqCst);
                found = (old >> shift) as u32;
                let Some(new) = change(found) else { return };
                let new = old & !(u64::from(u32::MAX) << shift) | u64::from(new) << shift;
                let order = Ordering::SeqCst;
                if word.compare_exchange(old, new, order, order).is_ok() {
                    return;
                }
            }
        };
        // The frame is the domain's: it was taken as writable.
        let _ = self.bytes().change_word(GuestAddress(at & !7), exchange);
        found
    }
}

impl Domain {
    /// Change a word by an atomic operation; the memory is the domain's own, or the guest has lost it.
    fn change(&self, at: u64, change: impl Fn(&AtomicU64) -> u64) -> u64 {
        let mut old = 0;
        let change = &mut |word: &AtomicU64| old = change(word);
        let _ = self.memory.bytes().change_word(GuestAddress(at & !7), change);
        old
    }

    /// Whether a port is open and pending.
    pub(crate) fn is_port_pending(&self, port: u32) -> bool {
        let mut table = self.events.table();
        if table.open(port).is_err() {
            return false;
        }
        match &table.fifo {
            Some(fifo) => fifo.is_pending(&self.memory, port),
            None => self.is_bit_pending(port),
        }
    }

    /// Make a port pending, from any thread.
    pub(crate) fn raise(&self, number: u32) {
        let mut table = self.events.table();
        if table.open(number).is_ok() {
            self.raise_valid(table, number);
        }
    }

    /// Make a port pending that may be closed: the guest has said that it is.
    fn raise_valid(&self, mut table: MutexGuard<'_, Table>, number: u32) {
        let Ok(&mut Port { vcpu, .. }) = table.valid(number) else { return };
        let is_new = match table.with_fifo(number) {
            Some((port, fifo)) => {
                let queue = Queue { vcpu, priority: port.priority };
                let raised = fifo.raise(&self.memory, number, queue, &mut port.last_queue);
                port.was_raised |= raised.is_none();
                let Raised { is_new, is_ready } = raised.unwrap_or_default();
                if is_ready {
                    self.mark_pending(vcpu);
                }
                is_new
            }
            None => {
                drop(table);
                self.set_bit_pending(number, vcpu)
            }
        };
        if is_new {
            // One that polls wants to know of masked ports, too.
            self.wake.wake(vcpu);
        }
    }

    /// A vCPU has events.
    pub(crate) fn mark_pending(&self, vcpu: usize) {
        let info = self.vcpus.info(vcpu);
        self.change(info, |word| word.fetch_or(1, Ordering::SeqCst));
        self.wake.wake(vcpu);
    }

    /// Whether a vCPU has events, and would have them delivered.
    pub(crate) fn has_upcall(&self, vcpu: usize) -> bool {
        let word = self.memory.bytes().load_word(GuestAddress(self.vcpus.info(vcpu) & !7));
        word.unwrap_or(0) & 0xffff == 1
    }

    /// Have a vCPU's events delivered from now on.
    pub(crate) fn unmask_upcalls(&self, vcpu: usize) {
        self.change(self.vcpus.info(vcpu), |word| word.fetch_and(!0xff00, Ordering::SeqCst));
    }

    /// Raise a vCPU's virtual interrupt, if it is bound.
    pub(crate) fn raise_virtual(&self, interrupt: u32, vcpu: usize) {
        if let Some(port) = self.events.of_virtual(interrupt, vcpu) {
            self.raise(port);
        }
    }

    /// Bind a port that the guest has left for the host, or a new one, to a service.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the guest has not, `ENOSPC`.
    pub(crate) fn connect(&self, port: Option<u32>, notify: Notify) -> Result<u32, Errno> {
        let mut table = self.events.table();
        let Some(number) = port else {
            return table.bind(&self.memory, Binding::Service(notify), 0);
        };
        let port = table.open(number)?;
        if !matches!(port.binding, Binding::Unbound(HOST_ID)) {
            return Err(INVALID);
        }
        port.binding = Binding::Service(notify);
        Ok(number)
    }
}
