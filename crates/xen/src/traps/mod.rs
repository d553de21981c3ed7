//! Hypercalls about traps, callbacks, stacks, segments and debug registers.

mod descriptors;

use machine::xen::SegmentBase;
use xen_abi::callback::{self, Register, TrapInfo, Unregister};
use xen_abi::hypercall::assist_command;
use xen_abi::segment::base;
use xen_abi::{Wire, errno, mmu};

use crate::caller::{Caller, Outcome, Reply};
use crate::errno::Errno;

pub(crate) use descriptors::{set_gdt, update_descriptor};

/// The kinds of `vm_assist` that a 64-bit guest may switch.
const ASSISTS: u64 = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 32;

/// Bits of DR6 and DR7 that are always set, and those of DR7 that a guest may set (SDM 3B 18.2).
const DR6_FIXED: u64 = 0xffff_0ff0;
const DR7_FIXED: u64 = 0x400;
const DR7_LOWER: u64 = 0x3ff;

const INVALID: Errno = Errno::new(errno::EINVAL);

/// Whether bits 47 to 63 of an address are the same.
fn is_canonical(address: u64) -> bool {
    (address << 16) as i64 >> 16 == address as i64
}

/// Set traps, up to one with address 0; without a list, clear all.
pub(crate) fn set_trap_table(caller: &mut Caller<'_>, arguments: [u64; 6]) -> Reply {
    let mut at = arguments[0];
    if at == 0 {
        caller.cpu.clear_traps();
        return Ok(Outcome::DONE);
    }
    loop {
        let trap: TrapInfo = caller.read(at)?;
        if trap.address == 0 {
            return Ok(Outcome::DONE);
        }
        if !is_canonical(trap.address) {
            return Err(INVALID);
        }
        caller.cpu.set_trap(&trap);
        at = at.wrapping_add(TrapInfo::BYTES as u64);
        if caller.cpu.is_kicked() {
            return Ok(Outcome::Again([at, 0, 0, 0, 0]));
        }
    }
}

/// Register and unregister callbacks.
pub(crate) fn callback_op(caller: &mut Caller<'_>, [command, at, ..]: [u64; 6]) -> Reply {
    match command as u32 {
        callback::command::REGISTER => {
            let Register { kind, flags, address } = caller.read(at)?;
            if !is_canonical(address) {
                return Err(INVALID);
            }
            check_kind(kind)?;
            let masks = flags & callback::flag::MASK_EVENTS != 0;
            caller.cpu.set_callback(kind, address, masks);
        }
        callback::command::UNREGISTER => {
            let Unregister { kind, .. } = caller.read(at)?;
            // Events and bad frames have to go somewhere.
            let is_needed = matches!(kind, callback::kind::EVENT | callback::kind::FAILSAFE);
            check_kind(kind)?;
            if is_needed || kind == callback::kind::SYSCALL {
                return Err(INVALID);
            }
            caller.cpu.set_callback(kind, 0, false);
        }
        _ => return Err(Errno::new(errno::ENOSYS)),
    }
    Ok(Outcome::DONE)
}

fn check_kind(kind: u16) -> Result<(), Errno> {
    use callback::kind::{EVENT, FAILSAFE, NMI, SYSCALL, SYSCALL32, SYSENTER};
    let is_known = matches!(kind, EVENT | FAILSAFE | SYSCALL | NMI | SYSENTER | SYSCALL32);
    if is_known { Ok(()) } else { Err(Errno::new(errno::ENOSYS)) }
}

/// Event, failsafe and syscall callbacks in one.
pub(crate) fn set_callbacks(caller: &mut Caller<'_>, arguments: [u64; 6]) -> Reply {
    use callback::kind::{EVENT, FAILSAFE, SYSCALL};
    let [event, failsafe, system_call, ..] = arguments;
    if ![event, failsafe, system_call].into_iter().all(is_canonical) {
        return Err(INVALID);
    }
    for (kind, address) in [(EVENT, event), (FAILSAFE, failsafe), (SYSCALL, system_call)] {
        caller.cpu.set_callback(kind, address, false);
    }
    Ok(Outcome::DONE)
}

/// The stack by which the kernel is entered from user mode.
pub(crate) fn stack_switch(caller: &mut Caller<'_>, [selector, pointer, ..]: [u64; 6]) -> Reply {
    caller.cpu.set_kernel_stack(selector as u16 | 3, pointer);
    Ok(Outcome::DONE)
}

/// CR0.TS.
pub(crate) fn fpu_taskswitch(caller: &mut Caller<'_>, [is_set, ..]: [u64; 6]) -> Reply {
    caller.cpu.set_task_switched(is_set != 0);
    Ok(Outcome::DONE)
}

/// The base of FS or GS.
pub(crate) fn set_segment_base(caller: &mut Caller<'_>, [which, value, ..]: [u64; 6]) -> Reply {
    let segment = match which as u32 {
        base::FS => SegmentBase::Fs,
        base::GS_USER => SegmentBase::UserGs,
        base::GS_KERNEL => SegmentBase::KernelGs,
        base::GS_USER_SELECTOR => {
            caller.cpu.load_user_gs(value as u16);
            return Ok(Outcome::DONE);
        }
        _ => return Err(INVALID),
    };
    if !is_canonical(value) {
        return Err(INVALID);
    }
    caller.cpu.set_segment_base(segment, value);
    Ok(Outcome::DONE)
}

/// A debug register.
pub(crate) fn set_debugreg(caller: &mut Caller<'_>, [number, value, ..]: [u64; 6]) -> Reply {
    let refused = Errno::new(errno::EPERM);
    let value = match number {
        0..=3 => {
            let is_ours = (mmu::reserved::START..mmu::reserved::END).contains(&value);
            if is_ours || !is_canonical(value) {
                return Err(refused);
            }
            value
        }
        6 => value & 0xe00f | DR6_FIXED,
        7 => dr7(value).ok_or(refused)?,
        _ => return Err(Errno::new(errno::ENODEV)),
    };
    caller.cpu.set_debug_register(number as usize, value);
    Ok(Outcome::DONE)
}

/// DR7 as it may be: breakpoints of ports and GD are refused.
fn dr7(value: u64) -> Option<u64> {
    const GENERAL_DETECT: u64 = 1 << 13;
    const PORT: u64 = 2;
    let has_port = (0..4).any(|number| value >> (16 + 4 * number) & 3 == PORT);
    let is_fine = value >> 32 == 0 && value & GENERAL_DETECT == 0 && !has_port;
    is_fine.then_some(value & (0xffff_0000 | DR7_LOWER) | DR7_FIXED)
}

/// What a debug register has.
pub(crate) fn get_debugreg(caller: &mut Caller<'_>, [number, ..]: [u64; 6]) -> Reply {
    match number {
        0..=3 | 6 | 7 => Ok(Outcome::Value(caller.cpu.debug_register(number as usize))),
        _ => Err(Errno::new(errno::ENODEV)),
    }
}

/// Switch an assist of the whole domain.
pub(crate) fn vm_assist(caller: &mut Caller<'_>, [command, kind, ..]: [u64; 6]) -> Reply {
    if kind >= 64 || ASSISTS >> kind & 1 == 0 {
        return Err(INVALID);
    }
    let assists = match command as u32 {
        assist_command::ENABLE => caller.domain.change_assists(|assists| assists | 1 << kind),
        assist_command::DISABLE => caller.domain.change_assists(|assists| assists & !(1 << kind)),
        _ => return Err(Errno::new(errno::ENOSYS)),
    };
    caller.cpu.set_assists(assists);
    Ok(Outcome::DONE)
}
