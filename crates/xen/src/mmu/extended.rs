//! `mmuext_op` (public/xen.h): roots, pins, flushes.

use frames::{Errno as Refusal, Level, Memory as _, Stop, Tables};
use machine::xen::FlushOf;
use xen_abi::mmu::{MmuExtended, extended};
use xen_abi::{Mfn, PAGE_BYTES, Wire};

use super::update::finish;
use super::{Flush, check_owner, count_of};
use crate::caller::{Caller, Reply};
use crate::engine::Engine;
use crate::memory::WORDS;

/// Descriptors of an LDT.
const MAX_LDT_ENTRIES: u64 = 8192;

/// Do the operations of a list.
pub(crate) fn mmuext_op(caller: &mut Caller<'_>, arguments: [u64; 6]) -> Reply {
    let [list, count, done, owner, ..] = arguments;
    check_owner(owner)?;
    let (total, _) = count_of(count);
    let vcpu = caller.vcpu;
    let progress = caller.with_tables(|tables| {
        tables.run_list(total, |tables, index| {
            let at = list.wrapping_add((index * MmuExtended::BYTES) as u64);
            let mut bytes = [0; MmuExtended::BYTES];
            let read = tables.machine().cpu.read_linear(at, &mut bytes);
            read.map_err(|_| Refusal::Fault)?;
            operate(tables, vcpu, &MmuExtended::decode(&bytes))
        })
    });
    finish(caller, [list, count, done, owner], progress, MmuExtended::BYTES as u64)
}

fn operate(
    tables: &mut Tables<'_, Engine<'_>>,
    vcpu: usize,
    operation: &MmuExtended,
) -> Result<(), Stop> {
    let (frame, second) = (Mfn(operation.first), operation.second);
    match operation.command {
        extended::PIN_L1_TABLE => tables.pin(frame, Level::L1),
        extended::PIN_L2_TABLE => tables.pin(frame, Level::L2),
        extended::PIN_L3_TABLE => tables.pin(frame, Level::L3),
        extended::PIN_L4_TABLE => tables.pin(frame, Level::L4),
        extended::UNPIN_TABLE => tables.unpin(frame),
        extended::NEW_BASEPTR => {
            tables.new_baseptr(frame)?;
            tables.machine().cpu.load_kernel_root(frame);
            Ok(())
        }
        extended::NEW_USER_BASEPTR => {
            tables.new_user_baseptr(frame)?;
            tables.machine().cpu.load_user_root((frame.0 != 0).then_some(frame));
            Ok(())
        }
        extended::SET_LDT => {
            let is_fine =
                operation.first.is_multiple_of(PAGE_BYTES as u64) && second <= MAX_LDT_ENTRIES;
            if !is_fine {
                return Err(Refusal::Inval.into());
            }
            tables.machine().cpu.set_ldt(operation.first, second as u32);
            Ok(())
        }
        extended::CLEAR_PAGE => fill(tables, frame, None),
        extended::COPY_PAGE => fill(tables, frame, Some(Mfn(second))),
        extended::FLUSH_CACHE | extended::FLUSH_CACHE_GLOBAL => Err(Refusal::Perm.into()),
        extended::MARK_SUPER | extended::UNMARK_SUPER => Err(Refusal::NoSys.into()),
        _ => flush(tables.machine(), vcpu, operation),
    }
}

/// The operations that flush.
fn flush(engine: &mut Engine<'_>, vcpu: usize, operation: &MmuExtended) -> Result<(), Stop> {
    let page = FlushOf::Page(operation.first);
    let (of, vcpus) = match operation.command {
        extended::TLB_FLUSH_LOCAL => (FlushOf::All, 1 << vcpu),
        extended::INVLPG_LOCAL => (page, 1 << vcpu),
        extended::TLB_FLUSH_MULTI => (FlushOf::All, engine.mask(operation.second)?),
        extended::INVLPG_MULTI => (page, engine.mask(operation.second)?),
        extended::TLB_FLUSH_ALL => (FlushOf::All, u64::MAX),
        extended::INVLPG_ALL => (page, u64::MAX),
        _ => return Err(Refusal::NoSys.into()),
    };
    engine.flush(vcpu, &Flush { of, vcpus });
    Ok(())
}

/// Clear a page, or copy another into it, neither of which need be mapped.
fn fill(tables: &mut Tables<'_, Engine<'_>>, to: Mfn, from: Option<Mfn>) -> Result<(), Stop> {
    let domain = tables.machine().domain;
    let frames = domain.frames();
    if let Some(from) = from {
        frames.take_reference(from).map_err(|_| Refusal::Inval)?;
    }
    let taken = frames.take_writable(to);
    if taken.is_ok() {
        for index in 0..WORDS {
            let word = from.map_or(0, |from| tables.machine().load(from, index));
            tables.machine().store(to, index, word);
        }
        frames.put_writable(to);
    }
    if let Some(from) = from {
        frames.put_reference(from);
    }
    taken.map_err(|_| Stop::Refused(Refusal::Inval))
}
