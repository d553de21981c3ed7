//! Files whose changes are told (inotify(7)): a process that has the descriptor adds what is watched, by its numbers.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use host::processes::identity;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::Made;
use super::plan::Plan;
use crate::error::Error;
use crate::state::{OpenFile, PathWatch, Process, State};

/// `INOTIFY_IOC_SETNEXTWD`.
const SET_NEXT: u64 = 0x4004_4900;
/// What is told is added to what was before, never followed by its last name.
const PLAIN: u32 = libc::IN_DONT_FOLLOW;

/// Descriptors of files of changes that are a process's to fill, and what is watched.
fn own<'a>(process: &'a Process, state: &'a State) -> Vec<(u32, &'a [PathWatch])> {
    let mut seen = BTreeSet::new();
    let watches = |descriptor: &crate::state::Descriptor| {
        let description = state.descriptions.get(descriptor.description)?;
        match &description.file {
            OpenFile::Notifications { pid, watches }
                if *pid == process.pid && seen.insert(descriptor.description) =>
            {
                Some((descriptor.number, watches.as_slice()))
            }
            _ => None,
        }
    };
    process.descriptors.iter().filter_map(watches).collect()
}

/// Add what is watched; the process has its descriptors.
pub(super) fn watch(plan: &mut Plan<'_>, process: &Process, state: &State) -> Result<(), Error> {
    for (number, watches) in own(process, state) {
        for watch in watches {
            let (next, path) = (watch.number.into(), plan.string(&watch.path));
            plan.must("number what it watches", libc::SYS_ioctl, [number.into(), SET_NEXT, next]);
            let events = (watch.events | PLAIN).into();
            let purpose = format!("watch {}", watch.path);
            plan.must(purpose, libc::SYS_inotify_add_watch, [number.into(), path, events]);
            plan.flush_if_full()?;
        }
    }
    Ok(())
}

/// Forget the changes that the restart itself has made, when all is there: nothing was unread.
pub(super) fn forget(made: &Made, process: &Process, state: &State) -> Result<(), Error> {
    for (number, _) in own(process, state) {
        let failed = || Error::io("empty a file of changes");
        let held = identity::open_process(made.seat.task()).map_err(failed())?;
        let file = identity::descriptor_of(&held, number).map_err(failed())?;
        drain(&file).map_err(|error| failed()(error.into()))?;
    }
    Ok(())
}

fn drain(file: &OwnedFd) -> rustix::io::Result<()> {
    let flags = fcntl_getfl(file)?;
    fcntl_setfl(file, flags | OFlags::NONBLOCK)?;
    let mut bytes = [0; 8192];
    let result = loop {
        match rustix::io::read(file, &mut bytes) {
            Ok(read) if read > 0 => {}
            Ok(_) | Err(rustix::io::Errno::AGAIN) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    fcntl_setfl(file, flags)?;
    result
}
