//! `mmu_update` and `update_va_mapping` (public/xen.h).

use frames::{Outcome as ListOutcome, Progress};
use machine::xen::FlushOf;
use xen_abi::mmu::{self, MmuUpdate};
use xen_abi::{Wire, errno};

use super::{Flush, check_owner, count_of};
use crate::caller::{Caller, Outcome, Reply};
use crate::errno::Errno;

/// What has become of a list: how the call ends, or goes on.
pub(super) fn finish(
    caller: &mut Caller<'_>,
    [list, count, done, owner]: [u64; 4],
    progress: Progress,
    element_bytes: u64,
) -> Reply {
    let (total, is_resumed) = count_of(count);
    if done != 0 {
        let before: u32 = if is_resumed { caller.read(done)? } else { 0 };
        caller.write(done, &before.wrapping_add(progress.done as u32))?;
    }
    match progress.outcome {
        ListOutcome::Done => Ok(Outcome::DONE),
        ListOutcome::Refused(errno) => Err(errno.into()),
        ListOutcome::Continue => {
            let left = (total - progress.done) as u64 | u64::from(mmu::PREEMPTED);
            let list = list.wrapping_add(progress.done as u64 * element_bytes);
            Ok(Outcome::Again([list, left, done, owner, 0]))
        }
    }
}

/// Change entries of page tables.
pub(crate) fn mmu_update(caller: &mut Caller<'_>, arguments: [u64; 6]) -> Reply {
    let [list, count, done, owner, ..] = arguments;
    check_owner(owner)?;
    let (total, _) = count_of(count);
    let progress = caller.with_tables(|tables| {
        tables.run_list(total, |tables, index| {
            let at = list.wrapping_add((index * MmuUpdate::BYTES) as u64);
            let mut bytes = [0; MmuUpdate::BYTES];
            let read = tables.machine().cpu.read_linear(at, &mut bytes);
            read.map_err(|_| frames::Errno::Fault)?;
            let MmuUpdate { pointer, value } = MmuUpdate::decode(&bytes);
            tables.update(pointer, value)
        })
    });
    finish(caller, [list, count, done, owner], progress, MmuUpdate::BYTES as u64)
}

/// Change the entry of a linear address, and flush.
pub(crate) fn update_va_mapping(caller: &mut Caller<'_>, arguments: [u64; 6]) -> Reply {
    let [address, value, flags, ..] = arguments;
    let again = [address, value, flags, 0, 0];
    let vcpus = match flags & !mmu::flush::KIND_MASK {
        _ if flags & mmu::flush::KIND_MASK == mmu::flush::NONE => 0,
        mmu::flush::LOCAL => 1 << caller.vcpu,
        mmu::flush::ALL => u64::MAX,
        mask => caller.read(mask)?,
    };
    let of = match flags & mmu::flush::KIND_MASK {
        mmu::flush::NONE => None,
        mmu::flush::TLB => Some(FlushOf::All),
        mmu::flush::PAGE => Some(FlushOf::Page(address)),
        _ => return Err(Errno::new(errno::ENOSYS)),
    };
    let vcpu = caller.vcpu;
    caller.operate(again, |tables| {
        tables.update_va_mapping(address, value)?;
        if let Some(of) = of {
            tables.machine().flush(vcpu, &Flush { of, vcpus });
        }
        Ok(())
    })
}
