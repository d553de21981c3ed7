//! `vcpu_op` and `set_timer_op` (public/vcpu.h).

use vm_memory::GuestAddress;
use xen_abi::event::virq;
use xen_abi::vcpu::{
    GuestContext, PeriodicTimer, RegisterInfo, RegisterRunstate, SingleshotTimer, command,
    singleshot,
};
use xen_abi::{Mfn, PAGE_BYTES, errno};

use super::{INFO_BYTES, MAX_PERIOD_NS, MIN_PERIOD_NS, State};
use crate::caller::{Caller, Outcome, Reply};
use crate::domain::Domain;
use crate::errno::Errno;

const INVALID: Errno = Errno::new(errno::EINVAL);

/// An operation on a vCPU of the domain's.
pub(crate) fn vcpu_op(caller: &mut Caller<'_>, [command, number, at, ..]: [u64; 6]) -> Reply {
    let domain = caller.domain;
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    if number >= domain.processors {
        return Err(Errno::new(errno::ENOENT));
    }
    let is_own = number == caller.vcpu;
    match command as u32 {
        command::INITIALISE => return initialise(caller, number, at),
        command::UP => up(domain, number)?,
        command::DOWN => down(caller, number),
        command::IS_UP => return Ok(Outcome::Value(domain.vcpus.vcpu(number).is_up.into())),
        command::REGISTER_VCPU_INFO => register_info(caller, number, at)?,
        command::REGISTER_RUNSTATE_MEMORY_AREA => {
            let area: RegisterRunstate = caller.read(at)?;
            domain.vcpus.vcpu(number).runstate_area = Some(area.address);
            if is_own {
                write_runstate(caller);
            }
        }
        command::GET_RUNSTATE_INFO => {
            let now = domain.system_time();
            let shown = domain.vcpus.vcpu(number).accounts.shown(now);
            caller.write(at, &shown)?;
        }
        command::SET_PERIODIC_TIMER => {
            let PeriodicTimer { period_ns } = caller.read(at)?;
            if !(MIN_PERIOD_NS..=MAX_PERIOD_NS).contains(&period_ns) {
                return Err(INVALID);
            }
            let next = domain.system_time().saturating_add(period_ns);
            domain.vcpus.vcpu(number).periodic = Some((period_ns, next));
        }
        command::STOP_PERIODIC_TIMER => domain.vcpus.vcpu(number).periodic = None,
        command::SET_SINGLESHOT_TIMER if is_own => {
            let SingleshotTimer { deadline_ns, flags } = caller.read(at)?;
            let is_past = deadline_ns < domain.system_time();
            if flags & singleshot::FUTURE != 0 && is_past {
                return Err(Errno::new(errno::ETIME));
            }
            domain.vcpus.vcpu(number).single_shot = Some(deadline_ns);
        }
        command::STOP_SINGLESHOT_TIMER if is_own => domain.vcpus.vcpu(number).single_shot = None,
        command::SET_SINGLESHOT_TIMER | command::STOP_SINGLESHOT_TIMER => return Err(INVALID),
        command::SEND_NMI => {
            domain.vcpus.vcpu(number).nmi = true;
            domain.wake.wake(number);
        }
        _ => return Err(Errno::new(errno::ENOSYS)),
    }
    Ok(Outcome::DONE)
}

/// Give a vCPU that is down its first state.
fn initialise(caller: &mut Caller<'_>, number: usize, at: u64) -> Reply {
    let context: GuestContext = caller.read(at)?;
    let domain = caller.domain;
    if domain.vcpus.vcpu(number).is_initialised {
        return Err(Errno::new(errno::EEXIST));
    }
    let (root, user) = (Mfn::of_address(context.control[3]), Mfn::of_address(context.control[1]));
    caller.with_tables(|tables| -> Result<(), Errno> {
        let refused = |stop| match stop {
            frames::Stop::Refused(errno) => Errno::from(errno),
            frames::Stop::Yield => Errno::new(errno::EAGAIN),
        };
        let mut tables = tables.of_vcpu(number);
        tables.new_baseptr(root).map_err(refused)?;
        if user != Mfn(0) {
            tables.new_user_baseptr(user).map_err(refused)?;
        }
        Ok(())
    })?;
    let mut vcpu = domain.vcpus.vcpu(number);
    vcpu.context = Some(Box::new(context));
    vcpu.is_initialised = true;
    Ok(Outcome::DONE)
}

fn up(domain: &Domain, number: usize) -> Result<(), Errno> {
    let mut vcpu = domain.vcpus.vcpu(number);
    if !vcpu.is_initialised {
        return Err(INVALID);
    }
    vcpu.is_up = true;
    vcpu.accounts.enter(State::Running, domain.system_time());
    drop(vcpu);
    domain.wake.wake(number);
    Ok(())
}

/// The last one that goes down ends the domain.
fn down(caller: &mut Caller<'_>, number: usize) {
    let domain = caller.domain;
    let now = domain.system_time();
    let mut vcpu = domain.vcpus.vcpu(number);
    vcpu.is_up = false;
    vcpu.accounts.enter(State::Offline, now);
    drop(vcpu);
    domain.wake.wake(number);
    if (0..domain.processors).all(|number| !domain.vcpus.vcpu(number).is_up) {
        domain.requests.make(machine::Request::PowerOff);
    }
}

/// Move a vCPU's `vcpu_info` to a page of the guest's, once.
fn register_info(caller: &mut Caller<'_>, number: usize, at: u64) -> Result<(), Errno> {
    let RegisterInfo { frame, offset, .. } = caller.read(at)?;
    let domain = caller.domain;
    let offset = u64::from(offset);
    let fits = offset + INFO_BYTES <= PAGE_BYTES as u64 && offset.is_multiple_of(8);
    if !fits || std::mem::replace(&mut domain.vcpus.vcpu(number).has_own_info, true) {
        return Err(INVALID);
    }
    // The page stays the guest's to write, for as long as the domain lives.
    if domain.frames().take_writable(Mfn(frame)).is_err() {
        domain.vcpus.vcpu(number).has_own_info = false;
        return Err(INVALID);
    }
    let (from, to) = (domain.vcpus.info(number), Mfn(frame).address() + offset);
    let mut info = [0; INFO_BYTES as usize];
    let memory = domain.memory.bytes();
    let _ = memory.read(GuestAddress(from), &mut info);
    // What is raised between here and there is found by looking at all ports.
    info[8..16].fill(0xff);
    (info[0], info[1]) = (1, 1);
    let _ = memory.write(GuestAddress(to), &info);
    domain.vcpus.set_info(number, to);
    if number == caller.vcpu {
        caller.cpu.set_vcpu_info(GuestAddress(to));
    }
    domain.write_time(number);
    domain.mark_pending(number);
    Ok(())
}

/// Tell the guest how long the calling vCPU has been in each state.
pub(crate) fn write_runstate(caller: &mut Caller<'_>) {
    let now = caller.domain.system_time();
    let mut vcpu = caller.domain.vcpus.vcpu(caller.vcpu);
    vcpu.accounts.enter(State::Running, now);
    let (area, shown) = (vcpu.runstate_area, vcpu.accounts.shown(now));
    drop(vcpu);
    if let Some(at) = area {
        // Where nothing is mapped, nothing is told, as on Xen.
        let _ = caller.write(at, &shown);
    }
}

/// The one-shot timer of the calling vCPU, without a sub-command; 0 is none.
pub(crate) fn set_timer_op(caller: &mut Caller<'_>, [deadline, ..]: [u64; 6]) -> Reply {
    let mut vcpu = caller.domain.vcpus.vcpu(caller.vcpu);
    vcpu.single_shot = (deadline != 0).then_some(deadline);
    Ok(Outcome::DONE)
}

impl Domain {
    /// What a vCPU does from now on.
    pub(crate) fn enter_state(&self, number: usize, state: State) {
        let now = self.system_time();
        self.vcpus.vcpu(number).enter(state, now);
    }

    /// Raise the timer interrupts that are due.
    pub(crate) fn advance_timers(&self, number: usize) {
        let now = self.system_time();
        let is_due = self.vcpus.vcpu(number).take_due(now);
        if is_due {
            self.raise_virtual(virq::TIMER, number);
        }
    }
}
