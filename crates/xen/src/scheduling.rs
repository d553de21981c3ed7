//! `sched_op` (public/sched.h).

use machine::Request;
use xen_abi::errno;
use xen_abi::scheduler::{Poll, Shutdown, command, reason};

use crate::caller::{Caller, Outcome, Reply};
use crate::errno::Errno;
use crate::limits::MAX_POLLED;
use crate::vcpus::write_runstate;

/// Wait, or end.
pub(crate) fn sched_op(caller: &mut Caller<'_>, [command, at, ..]: [u64; 6]) -> Reply {
    let domain = caller.domain;
    match command as u32 {
        command::YIELD => {
            write_runstate(caller);
            Ok(Outcome::Yield)
        }
        command::BLOCK => {
            domain.unmask_upcalls(caller.vcpu);
            write_runstate(caller);
            if domain.has_upcall(caller.vcpu) {
                return Ok(Outcome::DONE);
            }
            Ok(Outcome::Block)
        }
        command::SHUTDOWN => {
            let Shutdown { reason } = caller.read(at)?;
            shut_down(caller, reason)
        }
        command::POLL => poll(caller, at),
        command::WATCHDOG => Err(Errno::new(errno::ENOSYS)),
        command::REMOTE_SHUTDOWN | command::PIN_OVERRIDE => Err(Errno::new(errno::EPERM)),
        _ => Err(Errno::new(errno::ENOSYS)),
    }
}

fn shut_down(caller: &mut Caller<'_>, reason: u32) -> Reply {
    let request = match reason {
        reason::POWEROFF => Request::PowerOff,
        reason::REBOOT | reason::CRASH | reason::WATCHDOG => Request::Reset,
        // It goes on at once: there is nobody to save it.
        reason::SUSPEND => return Ok(Outcome::Value(1)),
        _ => return Err(Errno::new(errno::EINVAL)),
    };
    // The vCPU's thread finds it before the guest runs again.
    caller.domain.requests.make(request);
    Ok(Outcome::DONE)
}

fn poll(caller: &mut Caller<'_>, at: u64) -> Reply {
    let Poll { ports, count, timeout_ns, .. } = caller.read(at)?;
    if count > MAX_POLLED {
        return Err(Errno::new(errno::EINVAL));
    }
    if caller.domain.has_upcall(caller.vcpu) {
        return Ok(Outcome::DONE);
    }
    let mut polled = Vec::new();
    for index in 0..u64::from(count) {
        let port: u32 = caller.read(ports.wrapping_add(4 * index))?;
        caller.domain.events.port(port)?;
        if caller.domain.is_port_pending(port) {
            return Ok(Outcome::DONE);
        }
        polled.push(port);
    }
    let until = (timeout_ns != 0).then_some(timeout_ns);
    caller.domain.vcpus.vcpu(caller.vcpu).poll(polled, until);
    Ok(Outcome::Block)
}
