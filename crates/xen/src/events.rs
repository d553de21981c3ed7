//! Event channels, in bitmaps of two levels (public/event_channel.h).
//!
//! A port is a number of the domain's. What it is bound to is in a table here; whether it is pending, and whether it is
//! masked, are bits in the page that the domain shares with us. Raising a port sets its bit, and if it was neither set
//! nor masked, the bit of its word in the `vcpu_info` of the vCPU that the port notifies, and that vCPU's pending byte;
//! then the vCPU's thread is woken. The guest takes them in the opposite order.
//!
//! At the other end of a port is one of: a virtual interrupt, another vCPU, or a *service* of the host's (the store, a
//! console, a disk), which is called on the thread of the vCPU that notifies it. No other domain is reached by a port.

use std::sync::atomic::{AtomicU64, Ordering};

use vm_memory::GuestAddress;
use xen_abi::event::{self, command, state};
use xen_abi::{domain, errno};
use xen_io::device::Notify;

use crate::caller::{Caller, Outcome, Reply};
use crate::domain::Domain;
use crate::errno::Errno;
use crate::ports::{Binding, PORTS, Port};

/// Where the bits are in `shared_info`.
const PENDING: u64 = 2048;
const MASK: u64 = 2560;

/// Where `evtchn_pending_sel` is in a `vcpu_info`.
const SELECTOR: u64 = 8;

const INVALID: Errno = Errno::new(errno::EINVAL);

impl Domain {
    /// Change a word by an atomic operation; the memory is the domain's own, or the guest has lost it.
    fn change(&self, at: u64, change: impl Fn(&AtomicU64) -> u64) -> u64 {
        let mut old = 0;
        let change = &mut |word: &AtomicU64| old = change(word);
        let _ = self.memory.bytes().change_word(GuestAddress(at & !7), change);
        old
    }

    /// Set a bit of `shared_info`; whether it was set.
    fn set_shared(&self, offset: u64, port: u32) -> bool {
        let at = self.shared_word(offset, port);
        self.change(at, |word| word.fetch_or(1 << (port % 64), Ordering::SeqCst)) >> (port % 64) & 1
            != 0
    }

    fn shared_word(&self, offset: u64, port: u32) -> u64 {
        self.geometry.shared_info().address() + offset + u64::from(port / 64) * 8
    }

    fn shared_bit(&self, offset: u64, port: u32) -> bool {
        let at = GuestAddress(self.shared_word(offset, port));
        self.memory.bytes().load_word(at).unwrap_or(0) >> (port % 64) & 1 != 0
    }

    /// Whether a port is pending.
    pub(crate) fn is_port_pending(&self, port: u32) -> bool {
        (port as usize) < PORTS && self.shared_bit(PENDING, port)
    }

    /// Make a port pending, from any thread.
    pub(crate) fn raise(&self, port: u32) {
        let Ok(Port { vcpu, .. }) = self.events.port(port) else { return };
        if self.set_shared(PENDING, port) {
            return;
        }
        if !self.shared_bit(MASK, port) {
            self.select(vcpu, port / 64);
        }
        // One that polls wants to know of masked ports, too.
        self.wake.wake(vcpu);
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

    /// Bind a port that the guest has left for us, or a new one, to a service.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the guest has not, `ENOSPC`.
    pub(crate) fn connect(&self, port: Option<u32>, notify: Notify) -> Result<u32, Errno> {
        let Some(number) = port else { return self.events.bind(Binding::Service(notify), 0) };
        let mut result = Err(INVALID);
        self.events.change(number, |port| {
            if matches!(port.binding, Binding::Unbound) {
                port.binding = Binding::Service(notify);
                result = Ok(number);
            }
        })?;
        result
    }

    /// The guest notifies the other end of a port.
    fn send(&self, number: u32) -> Result<(), Errno> {
        let Port { binding, .. } = self.events.port(number)?;
        match binding {
            Binding::Service(notify) => notify(),
            Binding::Vcpu => self.raise(number),
            // Nobody is there.
            Binding::Unbound => {}
            Binding::Virtual(_) | Binding::Closed => return Err(INVALID),
        }
        Ok(())
    }

    fn unmask(&self, port: u32) -> Result<(), Errno> {
        let Port { vcpu, .. } = self.events.port(port)?;
        let at = self.shared_word(MASK, port);
        let bit = 1 << (port % 64);
        let old = self.change(at, |word| word.fetch_and(!bit, Ordering::SeqCst));
        if old & bit != 0 && self.shared_bit(PENDING, port) {
            self.select(vcpu, port / 64);
        }
        Ok(())
    }

    fn close(&self, port: u32) -> Result<(), Errno> {
        self.events.change(port, |port| *port = Port { binding: Binding::Closed, vcpu: 0 })?;
        let at = self.shared_word(PENDING, port);
        self.change(at, |word| word.fetch_and(!(1 << (port % 64)), Ordering::SeqCst));
        Ok(())
    }
}

/// Whether a domain's number means the caller.
fn check_own(number: u16) -> Result<(), Errno> {
    if number == domain::THIS { Ok(()) } else { Err(Errno::new(errno::ESRCH)) }
}

/// `event_channel_op`.
pub(crate) fn event_channel_op(caller: &mut Caller<'_>, [command, at, ..]: [u64; 6]) -> Reply {
    let domain = caller.domain;
    let is_vcpu = |vcpu: u32| match (vcpu as usize) < domain.processors {
        true => Ok(vcpu as usize),
        false => Err(Errno::new(errno::ENOENT)),
    };
    match command as u32 {
        command::ALLOC_UNBOUND => {
            let mut wanted: event::AllocUnbound = caller.read(at)?;
            check_own(wanted.domain)?;
            wanted.port = domain.events.bind(Binding::Unbound, 0)?;
            caller.write(at, &wanted)?;
        }
        command::BIND_VIRQ => {
            let mut wanted: event::BindVirq = caller.read(at)?;
            let vcpu = is_vcpu(wanted.vcpu)?;
            if wanted.virq >= event::virq::COUNT {
                return Err(INVALID);
            }
            if domain.events.of_virtual(wanted.virq, vcpu).is_some() {
                return Err(Errno::new(errno::EEXIST));
            }
            wanted.port = domain.events.bind(Binding::Virtual(wanted.virq), vcpu)?;
            caller.write(at, &wanted)?;
        }
        command::BIND_IPI => {
            let mut wanted: event::BindIpi = caller.read(at)?;
            wanted.port = domain.events.bind(Binding::Vcpu, is_vcpu(wanted.vcpu)?)?;
            caller.write(at, &wanted)?;
        }
        command::BIND_INTERDOMAIN => return Err(Errno::new(errno::ESRCH)),
        command::BIND_PIRQ => return Err(Errno::new(errno::EPERM)),
        command::CLOSE => domain.close(caller.read::<event::Close>(at)?.port)?,
        command::SEND => domain.send(caller.read::<event::Send>(at)?.port)?,
        command::UNMASK => domain.unmask(caller.read::<event::Unmask>(at)?.port)?,
        command::STATUS => {
            let mut asked: event::Status = caller.read(at)?;
            check_own(asked.domain)?;
            status(domain, &mut asked)?;
            caller.write(at, &asked)?;
        }
        command::BIND_VCPU => {
            let event::BindVcpu { port, vcpu } = caller.read(at)?;
            let vcpu = is_vcpu(vcpu)?;
            let Port { binding, .. } = domain.events.port(port)?;
            if matches!(binding, Binding::Vcpu) || is_of_one_vcpu(&binding) {
                return Err(INVALID);
            }
            domain.events.change(port, |port| port.vcpu = vcpu)?;
        }
        command::RESET => {
            check_own(caller.read::<event::Reset>(at)?.domain)?;
            let ports = domain.events.count();
            for port in 1..ports {
                // One that is closed already stays so.
                let _ = domain.close(port);
            }
        }
        _ => return Err(Errno::new(errno::ENOSYS)),
    }
    Ok(Outcome::DONE)
}

/// Timers and the like belong to the vCPU that bound them.
fn is_of_one_vcpu(binding: &Binding) -> bool {
    use event::virq::{DEBUG, TIMER, XENOPROF};
    matches!(binding, Binding::Virtual(TIMER | DEBUG | XENOPROF))
}

fn status(domain: &Domain, asked: &mut event::Status) -> Result<(), Errno> {
    if asked.port as usize >= PORTS {
        return Err(INVALID);
    }
    let Ok(port) = domain.events.port(asked.port) else {
        asked.state = state::CLOSED;
        return Ok(());
    };
    asked.vcpu = port.vcpu as u32;
    (asked.state, asked.bound_to) = match port.binding {
        Binding::Closed => (state::CLOSED, 0),
        Binding::Unbound => (state::UNBOUND, 0),
        Binding::Service(_) => (state::INTERDOMAIN, 0),
        Binding::Virtual(number) => (state::VIRQ, number),
        Binding::Vcpu => (state::IPI, 0),
    };
    Ok(())
}
