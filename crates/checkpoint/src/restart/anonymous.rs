//! Files that are no files: counters, timers, signals, sets of files that are watched.

use host::processes::identity;
use rustix::fd::OwnedFd;

use super::plan::Plan;
use crate::error::Error;
use crate::state::{Description, OpenFile, Process};

const KERNEL_SIGSET_BYTES: u64 = 8;
/// `TFD_IOC_SET_TICKS`: `_IOW('T', 0, __u64)`.
const SET_TICKS: u64 = 0x4008_5400;

/// Make one, if it is such a file.
pub(super) fn make(plan: &mut Plan<'_>, description: &Description) {
    let waits = u64::from(description.flags & libc::O_NONBLOCK.cast_unsigned());
    match &description.file {
        OpenFile::Counter { semaphore, .. } => {
            let flags = waits | u64::from(*semaphore);
            plan.must("make a counter", libc::SYS_eventfd2, [0, flags]);
        }
        OpenFile::Timer { clock, .. } => {
            let clock = i64::from(*clock).cast_unsigned();
            plan.must("make a timer", libc::SYS_timerfd_create, [clock, waits]);
        }
        OpenFile::Signals { mask } => {
            let mask = plan.words(&[*mask]);
            let arguments = [u64::MAX, mask, KERNEL_SIGSET_BYTES, waits];
            plan.must("make a file of signals", libc::SYS_signalfd4, arguments);
        }
        OpenFile::Notifications { .. } => {
            plan.must("make a file of changes", libc::SYS_inotify_init1, [waits]);
        }
        OpenFile::Watches { .. } => plan.must("make an epoll set", libc::SYS_epoll_create1, [0]),
        _ => {}
    }
}

/// Give it its state, at its number in the seed.
pub(super) fn set(
    plan: &mut Plan<'_>,
    process: &OwnedFd,
    number: u64,
    file: &OpenFile,
) -> Result<(), Error> {
    match file {
        OpenFile::Counter { value, .. } if *value > 0 => {
            let counter = identity::descriptor_of(process, u32::try_from(number).unwrap_or(0));
            let counter = counter.map_err(Error::io("take a counter"))?;
            let written = rustix::io::write(&counter, &value.to_ne_bytes());
            written.map_err(Error::io("set a counter"))?;
        }
        OpenFile::Timer { ticks, nanoseconds, .. } => {
            let parts = nanoseconds.map(|time| [time / 1_000_000_000, time % 1_000_000_000]);
            let parts = plan.words(parts.as_flattened());
            plan.must("set a timer", libc::SYS_timerfd_settime, [number, 0, parts, 0]);
            if *ticks > 0 {
                let ticks = plan.words(&[*ticks]);
                plan.must("set a timer's ticks", libc::SYS_ioctl, [number, SET_TICKS, ticks]);
            }
        }
        _ => {}
    }
    Ok(())
}

/// Have the sets watch what is the process's own; it has its descriptors.
pub(super) fn watch(
    plan: &mut Plan<'_>,
    process: &Process,
    descriptions: &[Description],
) -> Result<(), Error> {
    let mut done = std::collections::BTreeSet::new();
    for descriptor in &process.descriptors {
        let Some(description) = descriptions.get(descriptor.description) else { continue };
        let OpenFile::Watches { pid, watches } = &description.file else { continue };
        if *pid != process.pid || !done.insert(descriptor.description) {
            continue;
        }
        for watch in watches {
            // `struct epoll_event` is packed: four bytes of events, eight of data.
            let mut event = watch.events.to_le_bytes().to_vec();
            event.extend(watch.data.to_le_bytes());
            let event = plan.data(&event);
            let add = libc::EPOLL_CTL_ADD.cast_unsigned().into();
            let arguments = [descriptor.number.into(), add, watch.number.into(), event];
            plan.must("watch a file", libc::SYS_epoll_ctl, arguments);
            plan.flush_if_full()?;
        }
    }
    Ok(())
}
