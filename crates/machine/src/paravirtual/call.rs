//! Calls by the guest: `vmcall` or `vmmcall` with a number in RAX and arguments in RBX, RCX, RDX and
//! RSI; the answer comes back in RAX. The processor refuses calls by programs.

use crate::hypercall::{Answer, Call, Done, NO_SUCH_CALL};
use crate::interrupts::{DeliveryMode, Destination, Message, Router};

/// Numbers of calls (Linux, include/uapi/linux/kvm_para.h).
mod number {
    pub const POLL_INTERRUPTS: u64 = 1;
    pub const KICK: u64 = 5;
    pub const SEND_INTERRUPTS: u64 = 10;
    pub const YIELD: u64 = 11;
}

/// Do what the guest asks of the hypervisor.
pub(crate) fn call(call: &Call, caller: usize, router: &Router) -> Answer {
    let [first, second, third, fourth] = call.arguments;
    match call.number {
        number::POLL_INTERRUPTS => Answer::of(0),
        number::KICK => {
            // The first argument is reserved for flags.
            let there = u32::try_from(second).is_ok_and(|id| router.unhalt(id, caller));
            Answer::of(0).with(there, Done::EndedHalt)
        }
        number::SEND_INTERRUPTS => {
            let set = u128::from(first) | u128::from(second) << 64;
            let count = send(set, third, fourth as u32, caller, router);
            Answer::of(count).with(count > 0, Done::Interrupted)
        }
        number::YIELD => {
            let there = u32::try_from(first).is_ok_and(|id| router.has(id));
            Answer::of(0).with(there, Done::Yielded)
        }
        _ => Answer::of(NO_SUCH_CALL),
    }
}

/// Send what the low half of an interrupt command says to the processors of a set, of which bit 0
/// stands for the APIC id `first`; how many there were.
fn send(mut set: u128, first: u64, command: u32, caller: usize, router: &Router) -> i64 {
    let mode = DeliveryMode::from_register(command);
    // The other modes mean nothing here, or would reset a processor (KVM's `kvm_pv_send_ipi`
    // passes them on; no kernel sends them).
    if !matches!(mode, DeliveryMode::Fixed | DeliveryMode::NonMaskable) {
        return NO_SUCH_CALL;
    }
    let mut count = 0;
    while set != 0 {
        let bit = u64::from(set.trailing_zeros());
        set &= set - 1;
        let id = first.checked_add(bit).and_then(|id| u32::try_from(id).ok());
        let Some(id) = id.filter(|&id| router.has(id)) else { continue };
        let destination = Destination::Physical(id);
        let message = Message { destination, mode, vector: command as u8, level: false };
        router.send(&message, Some(caller));
        count += 1;
    }
    count
}
