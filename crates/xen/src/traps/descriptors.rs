//! `set_gdt` and `update_descriptor` (public/xen.h).

use frames::{Stop, Tables};
use xen_abi::{Mfn, errno};

use crate::caller::{Caller, Outcome, Reply};
use crate::engine::Engine;
use crate::errno::Errno;

/// Descriptors of a GDT that are the guest's; the rest are Xen's.
const MAX_ENTRIES: u64 = 14 * ENTRIES;

/// Descriptors on a page.
const ENTRIES: u64 = 512;

/// Give the vCPU a GDT: frames, and how many descriptors there are.
pub(crate) fn set_gdt(caller: &mut Caller<'_>, [list, entries, ..]: [u64; 6]) -> Reply {
    let entries = u64::from(entries as u32);
    if entries > MAX_ENTRIES {
        return Err(Errno::new(errno::EINVAL));
    }
    let count = entries.div_ceil(ENTRIES);
    let mut frames = Vec::new();
    for index in 0..count {
        frames.push(Mfn(caller.read(list.wrapping_add(index * 8))?));
    }
    let again = [list, entries, 0, 0, 0];
    let mut old = caller.domain.replace_gdt(caller.vcpu, Vec::new());
    let reply = caller.operate(again, |tables| {
        take_all(tables, &frames)?;
        old.drain(..).for_each(|frame| tables.put_descriptors(frame));
        Ok(())
    });
    let is_done = reply == Ok(Outcome::DONE);
    let in_use = if is_done { frames.clone() } else { old };
    caller.domain.replace_gdt(caller.vcpu, in_use);
    if is_done {
        caller.cpu.set_gdt(&frames);
    }
    reply
}

/// Use frames as parts of a descriptor table: all of them, or none.
fn take_all(tables: &mut Tables<'_, Engine<'_>>, frames: &[Mfn]) -> Result<(), Stop> {
    for (taken, frame) in frames.iter().enumerate() {
        if let Err(stop) = tables.take_descriptors(*frame) {
            frames[..taken].iter().for_each(|frame| tables.put_descriptors(*frame));
            return Err(stop);
        }
    }
    Ok(())
}

/// Write a descriptor, in a table or not.
pub(crate) fn update_descriptor(caller: &mut Caller<'_>, arguments: [u64; 6]) -> Reply {
    let [address, descriptor, ..] = arguments;
    let again = [address, descriptor, 0, 0, 0];
    caller.operate(again, |tables| tables.update_descriptor(address, descriptor))
}
