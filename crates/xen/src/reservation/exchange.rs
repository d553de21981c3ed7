//! Frames given for other frames (public/memory.h, `struct xen_memory_exchange`): a kernel asks for contiguous ones in
//! place of what it has, or the other way round.
//!
//! The lists are worked through in chunks: as many extents of the smaller size as the larger has. A chunk is exchanged
//! or not; `nr_exchanged` says how many extents were, and is where the call goes on. The frames taken may be those
//! given, where these fit.

use std::collections::HashSet;
use std::mem::offset_of;

use xen_abi::memory::Exchange;
use xen_abi::{Mfn, Wire, domain, errno};

use super::extents::flush_released;
use super::{INVALID, MAX_ORDER};
use crate::caller::{Caller, Outcome, Reply};
use crate::errno::Errno;
use crate::holding::Released;

/// Where `nr_exchanged` is.
const EXCHANGED: u64 = offset_of!(Layout, exchanged) as u64;

/// The structure's layout, of which only the last field is written.
#[repr(C)]
struct Layout {
    lists: [[u64; 4]; 2],
    exchanged: u64,
}

const _: () = assert!(size_of::<Layout>() == Exchange::BYTES);

/// Exchange frames.
pub(super) fn exchange(caller: &mut Caller<'_>, at: u64) -> Reply {
    let call: Exchange = caller.read(at)?;
    let orders = check(&call)?;
    let (given_order, taken_order) = orders;
    let given_per_chunk = taken_order.saturating_sub(given_order);
    let chunks = call.given.count >> given_per_chunk;
    let first = call.exchanged >> given_per_chunk;
    for chunk in first..chunks {
        let stop = |caller: &mut Caller<'_>| {
            caller.write(at.wrapping_add(EXCHANGED), &(chunk << given_per_chunk))
        };
        if chunk > first && caller.cpu.is_kicked() {
            stop(caller)?;
            return Ok(Outcome::Again([xen_abi::memory::command::EXCHANGE.into(), at, 0, 0, 0]));
        }
        if let Err(errno) = exchange_chunk(caller, &call, orders, chunk) {
            stop(caller)?;
            return Err(errno);
        }
    }
    caller.write(at.wrapping_add(EXCHANGED), &call.given.count)?;
    Ok(Outcome::DONE)
}

/// The orders of both lists, whose extents have as many frames together.
fn check(call: &Exchange) -> Result<(u32, u32), Errno> {
    let Exchange { given, taken, exchanged } = call;
    let frames = |count: u64, order: u32| {
        1_u64.checked_shl(order).and_then(|frames| frames.checked_mul(count))
    };
    let totals = (frames(given.count, given.order), frames(taken.count, taken.order));
    let is_sane = *exchanged <= given.count
        && given.domain == taken.domain
        && totals.0.is_some()
        && totals.0 == totals.1;
    if !is_sane {
        return Err(INVALID);
    }
    if given.domain != domain::THIS {
        return Err(Errno::new(errno::ESRCH));
    }
    if given.order.max(taken.order) > MAX_ORDER {
        return Err(Errno::new(errno::EPERM));
    }
    Ok((given.order, taken.order))
}

/// Exchange the extents of a chunk.
fn exchange_chunk(
    caller: &mut Caller<'_>,
    call: &Exchange,
    (given_order, taken_order): (u32, u32),
    chunk: u64,
) -> Result<(), Errno> {
    let order = given_order.max(taken_order);
    let read_list = |caller: &mut Caller<'_>, list: u64, of: u32| -> Result<Vec<u64>, Errno> {
        let count = 1 << (order - of);
        let place = |index: u64| list.wrapping_add((chunk * count + index).wrapping_mul(8));
        (0..count).map(|index| caller.read(place(index))).collect()
    };
    let given = read_list(caller, call.given.extents, given_order)?;
    let pages = read_list(caller, call.taken.extents, taken_order)?;
    let settled = caller.with_tables(|tables| tables.settle());
    settled.map_err(|_| Errno::new(errno::EAGAIN))?;
    let frames = given.iter().flat_map(|first| (*first..).take(1 << given_order)).map(Mfn);
    let given: Vec<_> = frames.collect();
    let taken = swap(caller, &given, pages.len(), taken_order)?;
    for (index, (page, first)) in (0..).zip(pages.iter().zip(&taken)) {
        for offset in 0..1 << taken_order {
            caller.domain.set_physical(Mfn(first.0 + offset), page.wrapping_add(offset));
        }
        let place = (chunk << (order - taken_order)) + index;
        caller.write(call.taken.extents.wrapping_add(place.wrapping_mul(8)), first)?;
    }
    Ok(())
}

/// Release frames and take others, or change nothing.
fn swap(
    caller: &mut Caller<'_>,
    given: &[Mfn],
    count: usize,
    order: u32,
) -> Result<Vec<Mfn>, Errno> {
    let domain = caller.domain;
    let mut reservation = domain.reservation();
    let release = |frame: &&Mfn| reservation.release(&domain.owned, **frame).is_ok();
    let released = given.iter().take_while(release).count();
    let given_back = &given[..released];
    if !given_back.is_empty() {
        flush_released(caller);
    }
    let mut taken = Vec::new();
    let mut failed = (released < given.len()).then_some(INVALID);
    while failed.is_none() && taken.len() < count {
        match reservation.take(&domain.owned, order) {
            Ok(first) => taken.push(first),
            Err(errno) => failed = Some(errno),
        }
    }
    let frames = taken.iter().flat_map(|first| (first.0..).take(1 << order)).map(Mfn);
    let frames: HashSet<Mfn> = frames.collect();
    if let Some(errno) = failed {
        // They were nobody's a moment ago. Another vCPU that has guessed their numbers keeps what it uses.
        frames.iter().for_each(|frame| _ = reservation.release(&domain.owned, *frame));
        if !frames.is_empty() {
            flush_released(caller);
        }
        given_back.iter().for_each(|frame| reservation.restore(&domain.owned, *frame));
        return Err(errno);
    }
    given_back.iter().for_each(|frame| domain.set_physical(*frame, u64::MAX));
    // What was taken again has its uses already.
    let mut gone = Released::default();
    given_back.iter().filter(|frame| !frames.contains(frame)).for_each(|frame| gone.add(*frame));
    gone.discard(&domain.owned);
    Ok(taken)
}
