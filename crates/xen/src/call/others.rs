//! Calls that are about neither page tables nor traps: events, grants, time, vCPUs, memory, and what Xen is.

use xen_abi::console;
use xen_abi::errno;
use xen_abi::hypercall::number as calls;
use xen_abi::physical::{self, SetIobitmap, SetIopl};

use crate::caller::{Caller, Outcome, Reply};
use crate::errno::Errno;
use crate::limits::MAX_CONSOLE_BYTES;
use crate::{events, grants, reservation, scheduling, vcpus, version};

/// The call of this number.
pub(super) fn call(caller: &mut Caller<'_>, number: u32, arguments: [u64; 6]) -> Reply {
    match number {
        calls::EVENT_CHANNEL_OP => events::event_channel_op(caller, arguments),
        calls::GRANT_TABLE_OP => grants::grant_table_op(caller, arguments),
        calls::MEMORY_OP => reservation::memory_op(caller, arguments),
        calls::SCHED_OP => scheduling::sched_op(caller, arguments),
        calls::VCPU_OP => vcpus::vcpu_op(caller, arguments),
        calls::SET_TIMER_OP => vcpus::set_timer_op(caller, arguments),
        calls::XEN_VERSION => version::xen_version(caller, arguments),
        calls::CONSOLE_IO => console_io(caller, arguments),
        calls::PHYSDEV_OP => physdev_op(caller, arguments),
        calls::DOMCTL | calls::SYSCTL => Err(Errno::new(errno::EPERM)),
        _ => Err(Errno::new(errno::ENOSYS)),
    }
}

/// Write to the console of the hypervisor, which kernels use before they have their own.
fn console_io(caller: &mut Caller<'_>, [command, count, at, ..]: [u64; 6]) -> Reply {
    match command as u32 {
        console::command::WRITE => {
            let total = usize::try_from(count).unwrap_or(usize::MAX);
            let mut bytes = vec![0; total.min(MAX_CONSOLE_BYTES)];
            caller.cpu.read_linear(at, &mut bytes)?;
            caller.domain.consoles[0].say(&bytes);
            let left = (total - bytes.len()) as u64;
            if left > 0 {
                let at = at.wrapping_add(bytes.len() as u64);
                return Ok(Outcome::Again([command, left, at, 0, 0]));
            }
            Ok(Outcome::DONE)
        }
        console::command::READ => Ok(Outcome::Value(0)),
        _ => Err(Errno::new(errno::ENOSYS)),
    }
}

/// There is no device; but ports are open or closed.
fn physdev_op(caller: &mut Caller<'_>, [command, at, ..]: [u64; 6]) -> Reply {
    /// The rings that there are.
    const MAX_LEVEL: u32 = 3;
    /// Ports that there are.
    const MAX_PORTS: u32 = 1 << 16;
    match command as u32 {
        physical::command::SET_IOPL => {
            let SetIopl { level } = caller.read(at)?;
            if level > MAX_LEVEL {
                return Err(Errno::new(errno::EINVAL));
            }
            caller.cpu.set_io_privilege(level as u8);
            Ok(Outcome::DONE)
        }
        physical::command::SET_IOBITMAP => {
            let SetIobitmap { bitmap, ports } = caller.read(at)?;
            if ports > MAX_PORTS {
                return Err(Errno::new(errno::EINVAL));
            }
            caller.cpu.set_open_ports(bitmap, ports);
            Ok(Outcome::DONE)
        }
        _ => Err(Errno::new(errno::ENOSYS)),
    }
}
