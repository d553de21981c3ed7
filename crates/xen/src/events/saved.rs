//! The saved state of event channels: what each port is bound to, and where FIFOs are. What is pending, masked or
//! linked is in the guest's memory.
//!
//! It is an allegation, as all of a snapshot is. Frames are taken anew, which says whether the domain may have them
//! shared; numbers are checked where something relies on them.

use serde::{Deserialize, Serialize};
use xen_abi::Mfn;
use xen_abi::event::fifo::PRIORITY_LOWEST;
use xen_abi::event::virq;

use super::fifo::{Fifo, Queue, SavedFifo};
use super::ports::{BUCKET, Table};
use super::{Binding, Events, INVALID, PORTS, Port};
use crate::domain::Domain;
use crate::errno::Errno;
use crate::services::HOST_ID;

/// See above.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedEvents {
    ports: Vec<SavedPort>,
    fifo: Option<SavedFifo>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct SavedPort {
    binding: SavedBinding,
    vcpu: usize,
    priority: u8,
    last_queue: Queue,
    was_raised: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum SavedBinding {
    Closed,
    /// A service's port, too: it is bound again when the service goes on.
    Unbound(u16),
    Loop(u32),
    Virtual(u32),
    Vcpu,
}

impl SavedPort {
    fn of(port: &Port) -> Self {
        let binding = match port.binding {
            Binding::Closed => SavedBinding::Closed,
            Binding::Unbound(remote) => SavedBinding::Unbound(remote),
            Binding::Service(_) => SavedBinding::Unbound(HOST_ID),
            Binding::Loop(other) => SavedBinding::Loop(other),
            Binding::Virtual(number) => SavedBinding::Virtual(number),
            Binding::Vcpu => SavedBinding::Vcpu,
        };
        let Port { vcpu, priority, last_queue, was_raised, .. } = *port;
        Self { binding, vcpu, priority, last_queue, was_raised }
    }

    /// The port of a number among all of them, if a domain with so many vCPUs can have it.
    fn restored(&self, number: usize, all: &[Self], vcpus: usize) -> Option<Port> {
        let binding = match self.binding {
            SavedBinding::Closed => Binding::Closed,
            // There is no port 0.
            _ if number == 0 => return None,
            SavedBinding::Unbound(remote) => Binding::Unbound(remote),
            SavedBinding::Loop(other) => {
                let back = all.get(other as usize)?.binding;
                (back == SavedBinding::Loop(number as u32)).then_some(Binding::Loop(other))?
            }
            SavedBinding::Virtual(number) => {
                (number < virq::COUNT).then_some(Binding::Virtual(number))?
            }
            SavedBinding::Vcpu => Binding::Vcpu,
        };
        let Self { vcpu, priority, last_queue, was_raised, .. } = *self;
        let is_priority = |priority| u32::from(priority) <= PRIORITY_LOWEST;
        let is_sane = vcpu < vcpus
            && last_queue.vcpu < vcpus
            && is_priority(priority)
            && is_priority(last_queue.priority);
        is_sane.then_some(Port { binding, vcpu, priority, last_queue, was_raised })
    }
}

/// The table that was saved, if a domain with so many vCPUs can have it.
fn restored(SavedEvents { ports, fifo }: &SavedEvents, vcpus: usize) -> Option<Table> {
    if !(BUCKET..=PORTS).contains(&ports.len()) || !ports.len().is_multiple_of(BUCKET) {
        return None;
    }
    let numbered = ports.iter().enumerate();
    let restored = numbered.map(|(number, port)| port.restored(number, ports, vcpus));
    let fifo = match fifo {
        Some(fifo) => Some(Fifo::restored(fifo, vcpus)?),
        None => None,
    };
    Some(Table { ports: restored.collect::<Option<_>>()?, fifo })
}

impl Events {
    /// What each port is bound to, and where FIFOs are.
    pub(crate) fn save(&self) -> SavedEvents {
        let table = self.table();
        let ports = table.ports.iter().map(SavedPort::of).collect();
        SavedEvents { ports, fifo: table.fifo.as_ref().map(Fifo::save) }
    }

    /// The frames that FIFOs are in, each as often as it is in use as writable memory.
    pub(crate) fn shared_frames(&self) -> Vec<Mfn> {
        self.table().fifo.iter().flat_map(Fifo::frames).collect()
    }
}

impl Domain {
    /// Go on from there. The domain has its memory.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it cannot have such ports.
    pub(crate) fn restore_events(&self, saved: &SavedEvents) -> Result<(), Errno> {
        let table = restored(saved, self.processors).ok_or(INVALID)?;
        table.fifo.iter().flat_map(Fifo::frames).try_for_each(|frame| self.take_shared(frame))?;
        *self.events.table() = table;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of two vCPUs with a pair of ports, and with FIFOs.
    fn saved() -> SavedEvents {
        let mut ports = vec![SavedPort::of(&Port::default()); BUCKET];
        let bindings = [SavedBinding::Loop(2), SavedBinding::Loop(1), SavedBinding::Unbound(0)];
        for (port, binding) in ports[1..].iter_mut().zip(bindings) {
            (port.binding, port.vcpu, port.priority) = (binding, 1, 7);
        }
        let mut fifo = Fifo::new(2);
        fifo.set_control(1, 0x7000 + 8);
        fifo.add_page(Mfn(9));
        SavedEvents { ports, fifo: Some(fifo.save()) }
    }

    #[test]
    fn what_is_saved_comes_back() {
        let table = restored(&saved(), 2).expect("two vCPUs have them");
        let ports = table.ports.iter().map(SavedPort::of).collect();
        assert_eq!(SavedEvents { ports, fifo: table.fifo.as_ref().map(Fifo::save) }, saved());
        let frames: Vec<_> = table.fifo.iter().flat_map(Fifo::frames).collect();
        assert_eq!(frames, [Mfn(9), Mfn(7)]);
    }

    #[test]
    fn what_no_domain_has_does_not() {
        assert!(restored(&saved(), 1).is_none(), "too few vCPUs");
        let is_refused = |change: fn(&mut SavedEvents)| {
            let mut events = saved();
            change(&mut events);
            restored(&events, 2).is_none()
        };
        assert!(is_refused(|events| events.ports.clear()));
        assert!(is_refused(|events| events.ports.truncate(3)));
        assert!(is_refused(|events| events.ports.resize(2 * PORTS, events.ports[3])));
        assert!(is_refused(|events| events.ports[0].binding = SavedBinding::Vcpu));
        assert!(is_refused(|events| events.ports[1].binding = SavedBinding::Loop(3)));
        assert!(is_refused(|events| events.ports[1].binding = SavedBinding::Loop(u32::MAX)));
        assert!(is_refused(|events| events.ports[1].binding = SavedBinding::Virtual(virq::COUNT)));
        assert!(is_refused(|events| events.ports[1].priority = 16));
        assert!(is_refused(|events| events.ports[1].last_queue.priority = 16));
        assert!(is_refused(|events| events.ports[1].last_queue.vcpu = 2));
        assert!(!is_refused(|events| events.fifo = None));
    }

    #[test]
    fn fifos_that_no_domain_has_do_not() {
        let (pages, tails) = (vec![9; 128], vec![0; 16]);
        let is_taken = |pages: &[u64], control, tails: &[u32]| {
            let (pages, vcpus) = (pages.to_vec(), vec![(control, tails.to_vec())]);
            Fifo::restored(&SavedFifo { pages, vcpus }, 1).is_some()
        };
        assert!(is_taken(&pages, Some(0x7fb8), &tails) && is_taken(&[], None, &tails));
        assert!(!is_taken(&[9; 129], None, &tails) && !is_taken(&[u64::MAX], None, &tails));
        assert!(!is_taken(&pages, Some(0x7fc0), &tails) && !is_taken(&pages, Some(0x7004), &tails));
        assert!(!is_taken(&pages, None, &tails[1..]));
    }
}
