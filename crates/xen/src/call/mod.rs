//! Hypercalls: from a number and arguments to what they do.

mod multicall;
mod others;

use machine::xen::{Then, XenCall};
use xen_abi::errno;

use crate::caller::{Caller, Outcome, Reply};
use crate::errno::Errno;
use crate::{mmu, traps};

/// Make a call, and say what the vCPU's thread does then.
pub(crate) fn call(caller: &mut Caller<'_>, call: &XenCall) -> Then {
    let [a, b, c, d, e] = call.arguments;
    match dispatch(caller, call.number, [a, b, c, d, e, 0]) {
        Ok(Outcome::Value(value)) => caller.cpu.set_result(value),
        Ok(Outcome::Again(arguments)) => caller.cpu.restart_call(arguments),
        Ok(Outcome::Loaded) => {}
        Ok(then @ (Outcome::Block | Outcome::Yield)) => {
            caller.cpu.set_result(0);
            return if then == Outcome::Block { Then::Block } else { Then::Yield };
        }
        Err(errno) => caller.cpu.set_result(errno.returned()),
    }
    Then::Run
}

/// The call of this number.
fn dispatch(caller: &mut Caller<'_>, number: u64, arguments: [u64; 6]) -> Reply {
    use xen_abi::hypercall::number as calls;
    let Ok(number) = u32::try_from(number) else { return Err(Errno::new(errno::ENOSYS)) };
    match number {
        calls::SET_TRAP_TABLE => traps::set_trap_table(caller, arguments),
        calls::MMU_UPDATE => mmu::mmu_update(caller, arguments),
        calls::SET_GDT => traps::set_gdt(caller, arguments),
        calls::STACK_SWITCH => traps::stack_switch(caller, arguments),
        calls::SET_CALLBACKS => traps::set_callbacks(caller, arguments),
        calls::FPU_TASKSWITCH => traps::fpu_taskswitch(caller, arguments),
        calls::SET_DEBUGREG => traps::set_debugreg(caller, arguments),
        calls::GET_DEBUGREG => traps::get_debugreg(caller, arguments),
        calls::UPDATE_DESCRIPTOR => traps::update_descriptor(caller, arguments),
        calls::MULTICALL => multicall::multicall(caller, arguments),
        calls::UPDATE_VA_MAPPING => mmu::update_va_mapping(caller, arguments),
        calls::VM_ASSIST => traps::vm_assist(caller, arguments),
        calls::SET_SEGMENT_BASE => traps::set_segment_base(caller, arguments),
        calls::MMUEXT_OP => mmu::mmuext_op(caller, arguments),
        calls::CALLBACK_OP => traps::callback_op(caller, arguments),
        _ => others::call(caller, number, arguments),
    }
}
