//! The table of a domain's event channels: what each port is bound to.

use std::sync::{Mutex, MutexGuard};

use locks::Unpoisoned;
use xen_abi::errno;
use xen_abi::event::{fifo, limit};
use xen_io::device::Notify;

use super::fifo::{Fifo, Queue, Words};
use crate::errno::Errno;

/// Ports, of which 0 is none. FIFOs could have more; it is the domain's limit then.
pub(crate) const PORTS: usize = limit::TWO_LEVEL_PORTS as usize;

/// The table grows by so many ports, as Xen's does: those that have never been bound are valid already.
pub(super) const BUCKET: usize = 64;

const INVALID: Errno = Errno::new(errno::EINVAL);

/// What a port is bound to.
#[derive(Clone, Default)]
pub(crate) enum Binding {
    #[default]
    Closed,
    /// The domain of this number may connect.
    Unbound(u16),
    Service(Notify),
    /// Another port of the domain's own.
    Loop(u32),
    Virtual(u32),
    Vcpu,
}

/// A port.
#[derive(Clone, Default)]
pub(crate) struct Port {
    pub(crate) binding: Binding,
    /// The vCPU that is notified.
    pub(crate) vcpu: usize,
    /// In which of the vCPU's FIFOs its events go.
    pub(super) priority: u8,
    /// The FIFO that it was in last.
    pub(super) last_queue: Queue,
    /// It was raised when there was no word for it yet. As on Xen, this is not forgotten.
    pub(super) was_raised: bool,
}

/// What the lock of events is for.
pub(crate) struct Table {
    pub(super) ports: Vec<Port>,
    /// If the domain has changed to FIFO.
    pub(super) fifo: Option<Fifo>,
}

impl Table {
    /// A port of any kind, closed ones included.
    pub(super) fn valid(&mut self, number: u32) -> Result<&mut Port, Errno> {
        self.ports.get_mut(number as usize).ok_or(INVALID)
    }

    /// A port that is not closed.
    pub(super) fn open(&mut self, number: u32) -> Result<&mut Port, Errno> {
        let port = self.valid(number)?;
        if matches!(port.binding, Binding::Closed) { Err(INVALID) } else { Ok(port) }
    }

    /// The port, and the FIFOs if there are.
    pub(super) fn with_fifo(&mut self, number: u32) -> Option<(&mut Port, &mut Fifo)> {
        self.ports.get_mut(number as usize).zip(self.fifo.as_mut())
    }

    /// The lowest port that is closed and in no FIFO, bound to this from now on.
    pub(super) fn bind(
        &mut self,
        words: &impl Words,
        binding: Binding,
        vcpu: usize,
    ) -> Result<u32, Errno> {
        let is_busy = |number| self.fifo.as_ref().is_some_and(|fifo| fifo.is_linked(words, number));
        let mut closed = (1..).zip(self.ports.iter().skip(1)).filter_map(|(number, port)| {
            (matches!(port.binding, Binding::Closed) && !is_busy(number)).then_some(number)
        });
        let number = closed.next().unwrap_or(self.ports.len() as u32);
        if number as usize >= PORTS {
            return Err(Errno::new(errno::ENOSPC));
        }
        if number as usize == self.ports.len() {
            self.ports.resize_with(self.ports.len() + BUCKET, Port::default);
        }
        let port = &mut self.ports[number as usize];
        (port.binding, port.vcpu) = (binding, vcpu);
        port.priority = fifo::PRIORITY_DEFAULT as u8;
        Ok(number)
    }

    /// The numbers of all ports but 0.
    pub(super) fn numbers(&self) -> std::ops::Range<u32> {
        1..self.ports.len() as u32
    }

    /// The port of a vCPU's virtual interrupt, or of the domain's.
    fn of_virtual(&self, interrupt: u32, vcpu: usize) -> Option<u32> {
        let is_it = |port: &Port| {
            matches!(port.binding, Binding::Virtual(number) if number == interrupt)
                && (port.vcpu == vcpu || is_global(interrupt))
        };
        self.ports.iter().position(is_it).map(|number| number as u32)
    }
}

/// Whether a virtual interrupt is the domain's, and not one of each vCPU (public/xen.h, `VIRQ_*`).
pub(super) fn is_global(interrupt: u32) -> bool {
    use xen_abi::event::virq::{DEBUG, TIMER, XENOPROF, XENPMU};
    !matches!(interrupt, TIMER | DEBUG | XENOPROF | XENPMU)
}

/// The domain's ports.
pub(crate) struct Events {
    table: Mutex<Table>,
}

impl Events {
    /// With no port bound.
    pub(crate) fn new() -> Self {
        Self { table: Mutex::new(Table { ports: first_ports(), fifo: None }) }
    }

    /// Nobody else changes them meanwhile.
    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unpoisoned()
    }

    /// A port that is not closed.
    pub(crate) fn port(&self, number: u32) -> Result<Port, Errno> {
        self.table().open(number).cloned()
    }

    /// Change a port that is not closed.
    pub(crate) fn change(&self, number: u32, change: impl FnOnce(&mut Port)) -> Result<(), Errno> {
        change(self.table().open(number)?);
        Ok(())
    }

    /// The port of a vCPU's virtual interrupt, or of the domain's.
    pub(crate) fn of_virtual(&self, interrupt: u32, vcpu: usize) -> Option<u32> {
        self.table().of_virtual(interrupt, vcpu)
    }

    /// Close all, as if none had ever been open; the domain's frames are not in use any more.
    pub(crate) fn clear(&self) {
        *self.table() = Table { ports: first_ports(), fifo: None };
    }
}

fn first_ports() -> Vec<Port> {
    vec![Port::default(); BUCKET]
}
