//! The table of a domain's event channels: what each port is bound to.

use std::sync::{Mutex, MutexGuard};

use locks::Unpoisoned;
use xen_abi::errno;
use xen_abi::event::limit;
use xen_io::device::Notify;

use crate::errno::Errno;

/// Ports, of which 0 is none.
pub(crate) const PORTS: usize = limit::TWO_LEVEL_PORTS as usize;

const INVALID: Errno = Errno::new(errno::EINVAL);

/// What a port is bound to.
#[derive(Clone)]
pub(crate) enum Binding {
    Closed,
    /// A back-end may connect.
    Unbound,
    Service(Notify),
    Virtual(u32),
    Vcpu,
}

/// A port.
#[derive(Clone)]
pub(crate) struct Port {
    pub(crate) binding: Binding,
    /// The vCPU that is notified.
    pub(crate) vcpu: usize,
}

/// The domain's ports.
pub(crate) struct Events {
    ports: Mutex<Vec<Port>>,
}

impl Events {
    /// With no port bound.
    pub(crate) fn new() -> Self {
        Self { ports: Mutex::new(vec![Port { binding: Binding::Closed, vcpu: 0 }]) }
    }

    fn ports(&self) -> MutexGuard<'_, Vec<Port>> {
        self.ports.lock().unpoisoned()
    }

    /// The lowest port that is closed, bound to this from now on.
    pub(crate) fn bind(&self, binding: Binding, vcpu: usize) -> Result<u32, Errno> {
        let mut ports = self.ports();
        let free = ports.iter().skip(1).position(|port| matches!(port.binding, Binding::Closed));
        let number = free.map_or(ports.len(), |index| index + 1);
        if number >= PORTS {
            return Err(Errno::new(errno::ENOSPC));
        }
        let port = Port { binding, vcpu };
        match ports.get_mut(number) {
            Some(place) => *place = port,
            None => ports.push(port),
        }
        Ok(number as u32)
    }

    /// A port that is not closed.
    pub(crate) fn port(&self, number: u32) -> Result<Port, Errno> {
        let found = self.ports().get(number as usize).cloned();
        found.filter(|port| !matches!(port.binding, Binding::Closed)).ok_or(INVALID)
    }

    /// Change a port that is not closed.
    pub(crate) fn change(&self, number: u32, change: impl FnOnce(&mut Port)) -> Result<(), Errno> {
        let mut ports = self.ports();
        let port = ports.get_mut(number as usize);
        let port = port.filter(|port| !matches!(port.binding, Binding::Closed)).ok_or(INVALID)?;
        change(port);
        Ok(())
    }

    /// The port of a vCPU's virtual interrupt.
    pub(crate) fn of_virtual(&self, interrupt: u32, vcpu: usize) -> Option<u32> {
        let is_it = |port: &Port| {
            matches!(port.binding, Binding::Virtual(number) if number == interrupt)
                && port.vcpu == vcpu
        };
        self.ports().iter().position(is_it).map(|number| number as u32)
    }

    /// Close all.
    pub(crate) fn clear(&self) {
        self.ports().truncate(1);
    }

    /// How many ports have ever been bound, with that of number 0.
    pub(crate) fn count(&self) -> u32 {
        self.ports().len() as u32
    }
}
