//! `event_channel_op`.

use xen_abi::event::{self, command, fifo as abi, state};
use xen_abi::{Mfn, PAGE_BYTES, domain, errno};

use super::fifo::{Fifo, Full, is_place_of_control};
use super::ports::is_global;
use super::{Binding, INVALID, PORTS, Port};
use crate::caller::{Caller, Outcome, Reply};
use crate::domain::Domain;
use crate::errno::Errno;
use crate::services::{DOMAIN_ID, HOST_ID};

/// Whether a domain's number means the caller.
///
/// # Errors
///
/// `EPERM` for the host, which is there; `ESRCH` for the others.
fn check_own(number: u16) -> Result<(), Errno> {
    match number {
        domain::THIS | DOMAIN_ID => Ok(()),
        HOST_ID => Err(Errno::new(errno::EPERM)),
        _ => Err(Errno::new(errno::ESRCH)),
    }
}

/// An operation on event channels.
pub(crate) fn event_channel_op(caller: &mut Caller<'_>, [command, at, ..]: [u64; 6]) -> Reply {
    let domain = caller.domain;
    match command as u32 {
        command::ALLOC_UNBOUND => alloc_unbound(caller, at)?,
        command::BIND_INTERDOMAIN => {
            let mut wanted: event::BindInterdomain = caller.read(at)?;
            wanted.local_port = domain.bind_loop(wanted.remote_domain, wanted.remote_port)?;
            caller.write(at, &wanted)?;
        }
        command::BIND_VIRQ => {
            let mut wanted: event::BindVirq = caller.read(at)?;
            wanted.port = domain.bind_virtual(wanted.virq, wanted.vcpu)?;
            caller.write(at, &wanted)?;
        }
        command::BIND_IPI => {
            let mut wanted: event::BindIpi = caller.read(at)?;
            let vcpu = domain.vcpu_of(wanted.vcpu)?;
            wanted.port = domain.events.table().bind(&domain.memory, Binding::Vcpu, vcpu)?;
            caller.write(at, &wanted)?;
        }
        command::BIND_PIRQ => return Err(Errno::new(errno::EPERM)),
        command::CLOSE => domain.close(caller.read::<event::Close>(at)?.port)?,
        command::SEND => domain.send(caller.read::<event::Send>(at)?.port)?,
        command::UNMASK => domain.unmask(caller.read::<event::Unmask>(at)?.port)?,
        command::STATUS => {
            let mut asked: event::Status = caller.read(at)?;
            check_own(asked.domain)?;
            domain.status(&mut asked)?;
            caller.write(at, &asked)?;
        }
        command::BIND_VCPU => {
            let event::BindVcpu { port, vcpu } = caller.read(at)?;
            domain.bind_vcpu(port, vcpu)?;
        }
        command::RESET => {
            check_own(caller.read::<event::Reset>(at)?.domain)?;
            domain.reset_events();
        }
        command::INIT_CONTROL => {
            let mut wanted: event::InitControl = caller.read(at)?;
            domain.init_control(&wanted)?;
            wanted.link_bits = abi::LINK_MASK.count_ones() as u8;
            caller.write(at, &wanted)?;
        }
        command::EXPAND_ARRAY => {
            let event::ExpandArray { frame } = caller.read(at)?;
            domain.expand_array(Mfn(frame))?;
        }
        command::SET_PRIORITY => {
            let event::SetPriority { port, priority } = caller.read(at)?;
            domain.set_priority(port, priority)?;
        }
        _ => return Err(Errno::new(errno::ENOSYS)),
    }
    Ok(Outcome::DONE)
}

fn alloc_unbound(caller: &mut Caller<'_>, at: u64) -> Result<(), Errno> {
    let domain = caller.domain;
    let mut wanted: event::AllocUnbound = caller.read(at)?;
    check_own(wanted.domain)?;
    let remote = match wanted.remote_domain {
        domain::THIS => DOMAIN_ID,
        other => other,
    };
    wanted.port = domain.events.table().bind(&domain.memory, Binding::Unbound(remote), 0)?;
    caller.write(at, &wanted)
}

impl Domain {
    /// A vCPU by its number.
    fn vcpu_of(&self, number: u32) -> Result<usize, Errno> {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        if number < self.processors { Ok(number) } else { Err(Errno::new(errno::ENOENT)) }
    }

    /// Bind a new port to one of the domain's own. The host leaves none for it.
    fn bind_loop(&self, remote_domain: u16, remote: u32) -> Result<u32, Errno> {
        match remote_domain {
            domain::THIS | DOMAIN_ID => {}
            HOST_ID => return Err(INVALID),
            _ => return Err(Errno::new(errno::ESRCH)),
        }
        let mut table = self.events.table();
        let is_free = |port: &mut Port| matches!(port.binding, Binding::Unbound(DOMAIN_ID));
        if !table.valid(remote).is_ok_and(is_free) {
            return Err(INVALID);
        }
        let local = table.bind(&self.memory, Binding::Loop(remote), 0)?;
        table.open(remote)?.binding = Binding::Loop(local);
        drop(table);
        // What was sent before there was somebody is not lost.
        self.raise(local);
        Ok(local)
    }

    fn bind_virtual(&self, interrupt: u32, vcpu: u32) -> Result<u32, Errno> {
        if interrupt >= event::virq::COUNT || is_global(interrupt) && vcpu != 0 {
            return Err(INVALID);
        }
        let vcpu = self.vcpu_of(vcpu)?;
        if self.events.of_virtual(interrupt, vcpu).is_some() {
            return Err(Errno::new(errno::EEXIST));
        }
        self.events.table().bind(&self.memory, Binding::Virtual(interrupt), vcpu)
    }

    fn close(&self, number: u32) -> Result<(), Errno> {
        let mut table = self.events.table();
        let port = table.open(number)?;
        let binding = std::mem::take(&mut port.binding);
        port.vcpu = 0;
        if let Binding::Loop(other) = binding {
            // The other end waits for the domain once more.
            table.open(other)?.binding = Binding::Unbound(DOMAIN_ID);
        }
        match &table.fifo {
            Some(fifo) => fifo.clear_pending(&self.memory, number),
            None => self.clear_bit_pending(number),
        }
        Ok(())
    }

    /// The guest notifies the other end of a port.
    fn send(&self, number: u32) -> Result<(), Errno> {
        let Port { binding, .. } = self.events.port(number)?;
        match binding {
            Binding::Service(notify) => notify(),
            Binding::Vcpu => self.raise(number),
            Binding::Loop(other) => self.raise(other),
            // Nobody is there.
            Binding::Unbound(_) => {}
            Binding::Virtual(_) | Binding::Closed => return Err(INVALID),
        }
        Ok(())
    }

    fn unmask(&self, number: u32) -> Result<(), Errno> {
        let mut table = self.events.table();
        let port = table.valid(number)?;
        let vcpu = port.vcpu;
        if matches!(port.binding, Binding::Closed) {
            return Ok(());
        }
        let Some(fifo) = &table.fifo else {
            drop(table);
            self.unmask_bit(number, vcpu);
            return Ok(());
        };
        if fifo.unmask(&self.memory, number) {
            self.raise_valid(table, number);
        }
        Ok(())
    }

    fn bind_vcpu(&self, number: u32, vcpu: u32) -> Result<(), Errno> {
        let vcpu = self.vcpu_of(vcpu)?;
        let mut table = self.events.table();
        let port = table.open(number)?;
        match port.binding {
            Binding::Virtual(interrupt) if !is_global(interrupt) => return Err(INVALID),
            Binding::Vcpu | Binding::Closed => return Err(INVALID),
            Binding::Virtual(_) | Binding::Unbound(_) | Binding::Service(_) | Binding::Loop(_) => {
                port.vcpu = vcpu;
            }
        }
        Ok(())
    }

    fn status(&self, asked: &mut event::Status) -> Result<(), Errno> {
        let mut table = self.events.table();
        let port = table.valid(asked.port)?;
        asked.vcpu = port.vcpu as u32;
        asked.state = match port.binding {
            Binding::Closed => state::CLOSED,
            Binding::Unbound(remote) => {
                asked.bound_to = remote.into();
                state::UNBOUND
            }
            Binding::Service(_) => {
                (asked.bound_to, asked.remote_port) = (HOST_ID.into(), asked.port);
                state::INTERDOMAIN
            }
            Binding::Loop(other) => {
                (asked.bound_to, asked.remote_port) = (DOMAIN_ID.into(), other);
                state::INTERDOMAIN
            }
            Binding::Virtual(number) => {
                asked.bound_to = number;
                state::VIRQ
            }
            Binding::Vcpu => state::IPI,
        };
        Ok(())
    }

    /// Close all ports, and go back to bitmaps.
    fn reset_events(&self) {
        let numbers = self.events.table().numbers();
        for number in numbers {
            // One that is closed already stays so.
            let _ = self.close(number);
        }
        let fifo = self.events.table().fifo.take();
        fifo.iter().flat_map(Fifo::frames).for_each(|frame| self.frames().put_writable(frame));
    }

    /// Use a frame of the domain's for as long as it has FIFOs.
    pub(super) fn take_shared(&self, frame: Mfn) -> Result<(), Errno> {
        self.frames().take_writable(frame).map_err(|_| INVALID)
    }

    /// A vCPU's control block; the first changes the domain to FIFO.
    fn init_control(&self, wanted: &event::InitControl) -> Result<(), Errno> {
        let vcpu = self.vcpu_of(wanted.vcpu)?;
        let offset = u64::from(wanted.offset);
        if offset >= PAGE_BYTES as u64 || !is_place_of_control(offset) {
            return Err(INVALID);
        }
        let mut table = self.events.table();
        if table.fifo.as_ref().is_some_and(|fifo| fifo.has_control(vcpu)) {
            return Err(INVALID);
        }
        self.take_shared(Mfn(wanted.frame))?;
        if table.fifo.is_none() {
            for number in table.numbers() {
                let is_pending = self.is_bit_pending(number);
                let port = table.valid(number)?;
                port.was_raised |= is_pending;
                port.priority = abi::PRIORITY_DEFAULT as u8;
            }
        }
        let fifo = table.fifo.get_or_insert_with(|| Fifo::new(self.processors));
        fifo.set_control(vcpu, Mfn(wanted.frame).address() + offset);
        Ok(())
    }

    /// One more page of words. What was raised before there was a word is raised now.
    fn expand_array(&self, frame: Mfn) -> Result<(), Errno> {
        let mut table = self.events.table();
        let fifo = table.fifo.as_mut().ok_or(Errno::new(errno::EOPNOTSUPP))?;
        fifo.check_room().map_err(|Full| Errno::new(errno::ENOSPC))?;
        self.take_shared(frame)?;
        let numbers = fifo.add_page(frame);
        let was_raised = |number: &u32| table.valid(*number).is_ok_and(|port| port.was_raised);
        let raised: Vec<u32> = numbers.take(PORTS).filter(was_raised).collect();
        drop(table);
        raised.into_iter().for_each(|number| self.raise_valid(self.events.table(), number));
        Ok(())
    }

    fn set_priority(&self, number: u32, priority: u32) -> Result<(), Errno> {
        let mut table = self.events.table();
        let is_fifo = table.fifo.is_some();
        let port = table.valid(number)?;
        if !is_fifo {
            return Err(Errno::new(errno::ENOSYS));
        }
        if matches!(port.binding, Binding::Closed) {
            return Err(Errno::new(errno::EACCES));
        }
        if priority > abi::PRIORITY_LOWEST {
            return Err(INVALID);
        }
        port.priority = priority as u8;
        Ok(())
    }
}
