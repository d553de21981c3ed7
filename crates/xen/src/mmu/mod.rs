//! Hypercalls about page tables: each change is validated by crate `frames`, which tells what follows for the engine.
//!
//! Who flushes: the guest asks for each flush that it relies on, as on hardware. What it does not ask for, and what
//! nevertheless has to go, is write access to a frame whose type changes ([`frames::Effects::revoke`]): a table or a
//! descriptor that is validated cannot be written by a translation from before. An entry of an upper table that goes
//! away leaves translations behind until the guest flushes; they lead to the domain's own memory. The walker caches no
//! upper tables.

mod extended;
mod update;

use frames::{Stop, Tables};
use machine::xen::{FlushOf, TableWrite};
use vm_memory::GuestAddress;
use xen_abi::{Mfn, errno, mmu};

use crate::caller::{Caller, Outcome, Reply};
use crate::engine::Engine;
use crate::errno::Errno;

pub(crate) use extended::mmuext_op;
pub(crate) use update::{mmu_update, update_va_mapping};

impl Caller<'_> {
    /// Call `act` with the domain's page tables.
    pub(crate) fn with_tables<R>(
        &mut self,
        act: impl FnOnce(&mut Tables<'_, Engine<'_>>) -> R,
    ) -> R {
        let domain = self.domain;
        let mut engine: Engine<'_> = Engine { domain, cpu: &mut *self.cpu };
        let mut state = domain.tables();
        act(&mut Tables::new(domain.frames(), &mut state, &mut engine, self.vcpu))
    }

    /// The same for one operation of a call that is made again if it is interrupted.
    pub(crate) fn operate(
        &mut self,
        again: [u64; 5],
        act: impl FnOnce(&mut Tables<'_, Engine<'_>>) -> Result<(), Stop>,
    ) -> Reply {
        match self.with_tables(act) {
            Ok(()) => Ok(Outcome::DONE),
            Err(Stop::Refused(errno)) => Err(errno.into()),
            Err(Stop::Yield) => Ok(Outcome::Again(again)),
        }
    }
}

/// Whether the domain whose memory a call is about is the caller's own; no other is there.
///
/// # Errors
///
/// `ESRCH`; `EPERM` for the machine's own memory.
fn check_owner(named: u64) -> Result<(), Errno> {
    match named as u32 {
        domain if domain == u32::from(xen_abi::domain::THIS) => Ok(()),
        domain if domain == u32::from(xen_abi::domain::IO) => Err(Errno::new(errno::EPERM)),
        _ => Err(Errno::new(errno::ESRCH)),
    }
}

/// What a flush concerns, of what lists of operations name.
pub(crate) struct Flush {
    pub(crate) of: FlushOf,
    /// Which vCPUs, a bit each; the caller's own is among them or not.
    pub(crate) vcpus: u64,
}

impl Engine<'_> {
    /// Flush, on the vCPU of this number and on others.
    fn flush(&mut self, vcpu: usize, flush: &Flush) {
        let own = 1 << (vcpu & 63);
        if flush.vcpus & own != 0 {
            self.cpu.flush(flush.of);
        }
        let others = flush.vcpus & !own;
        if others != 0 && self.domain.processors > 1 {
            self.cpu.flush_others(others, flush.of);
        }
    }

    /// A mask of vCPUs in the guest's memory.
    fn mask(&mut self, at: u64) -> Result<u64, frames::Errno> {
        let mut bytes = [0; 8];
        self.cpu.read_linear(at, &mut bytes).map_err(|_| frames::Errno::Inval)?;
        Ok(u64::from_le_bytes(bytes))
    }
}

/// The kernel has written to what is mapped read-only: it may have been an entry of an L1.
pub(crate) fn write(caller: &mut Caller<'_>, write: &TableWrite) {
    let GuestAddress(address) = write.address;
    let (table, index) = (Mfn::of_address(address), (address & 0xfff) as usize / 8);
    loop {
        let done =
            caller.with_tables(|tables| tables.write_leaf(table, index, write.old, write.new));
        match done {
            Ok(true) => return,
            Ok(false) => return caller.cpu.retry_write(),
            Err(Stop::Refused(_)) => return caller.cpu.refuse_write(),
            // What is to be finished first is bounded; the instruction starts over if somebody waits for us.
            Err(Stop::Yield) if caller.cpu.is_kicked() => return caller.cpu.retry_write(),
            Err(Stop::Yield) => {}
        }
    }
}

/// The count of a list, and whether the call goes on after an interruption.
fn count_of(count: u64) -> (usize, bool) {
    let count = count as u32;
    ((count & !mmu::PREEMPTED) as usize, count & mmu::PREEMPTED != 0)
}
