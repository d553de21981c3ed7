//! Files that are no files: counters, timers, signals, sets of files that are watched.

use std::cmp::Ordering;

use host::processes::identity;
use rustix::time::{Timespec, timerfd_gettime};

use super::notifications;
use crate::error::Error;
use crate::limits::MAX_DESCRIPTORS;
use crate::proc::descriptor::{self, Line};
use crate::state::{OpenFile, Watch};

/// `EPOLLERR` and `EPOLLHUP`, which are always reported.
const ALWAYS: u32 = 0x18;

/// Who has a description open.
pub(super) struct Holder {
    /// The host's number of the process.
    pub pid: u32,
    /// Its own number.
    pub own: u32,
    /// The descriptor.
    pub number: u32,
}

/// What a descriptor of `pid` refers to.
pub(super) fn describe(
    pid: u32,
    line: &Line,
    mut holders: impl Iterator<Item = Holder>,
) -> Result<OpenFile, Error> {
    let refused = || Error::unsupported(pid, format!("has {} open", line.link));
    let file = match line.link.as_str() {
        "anon_inode:[eventfd]" => counter(line),
        "anon_inode:[timerfd]" => timer(pid, line)?,
        "anon_inode:[signalfd]" => {
            hexadecimal(line.value("sigmask")).map(|mask| OpenFile::Signals { mask })
        }
        "anon_inode:[eventpoll]" => return watches(pid, line, holders),
        "anon_inode:inotify" => match holders.next().filter(|holder| holder.own != 0) {
            Some(holder) => return notifications::describe(holder.pid, holder.own, line),
            None => None,
        },
        _ => None,
    };
    file.ok_or_else(refused)
}

fn hexadecimal(text: Option<&str>) -> Option<u64> {
    u64::from_str_radix(text?.trim(), 16).ok()
}

fn counter(line: &Line) -> Option<OpenFile> {
    let value = hexadecimal(line.value("eventfd-count"))?;
    let semaphore = line.value("eventfd-semaphore").is_some_and(|value| value == "1");
    Some(OpenFile::Counter { value, semaphore })
}

/// A timer that has expired and has an interval goes on only when it is looked at, until when it says that nothing
/// remains. So it is, which changes nothing for the process.
fn timer(pid: u32, line: &Line) -> Result<Option<OpenFile>, Error> {
    let process = identity::open_process(pid).map_err(Error::io("open a process"))?;
    let timer = identity::descriptor_of(&process, line.number);
    let timer = timer.map_err(Error::io(format!("take a timer of process {pid}")))?;
    let times = timerfd_gettime(&timer).map_err(Error::io("ask a timer"))?;
    let line = descriptor::read_one(pid, line.number)?;
    let nanoseconds = |time: Timespec| {
        let [seconds, rest] = [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).ok());
        seconds?.checked_mul(1_000_000_000)?.checked_add(rest?)
    };
    let number = |name: &str| line.value(name);
    let parts = || {
        Some(OpenFile::Timer {
            clock: number("clockid")?.parse().ok()?,
            ticks: number("ticks")?.parse().ok()?,
            nanoseconds: [nanoseconds(times.it_interval)?, nanoseconds(times.it_value)?],
        })
    };
    Ok(parts())
}

/// What a set watches. The numbers are those of whoever added them: of the holders it is the first that has just these
/// files by these numbers.
fn watches(
    pid: u32,
    line: &Line,
    holders: impl Iterator<Item = Holder>,
) -> Result<OpenFile, Error> {
    let lines = line.rest.iter().filter(|(name, _)| name == "tfd");
    let watches: Option<Vec<Watch>> = lines.map(|(_, value)| watch(value)).collect();
    let mut watches = watches
        .filter(|watches| watches.len() <= MAX_DESCRIPTORS)
        .ok_or_else(|| Error::unsupported(pid, "has an epoll set that cannot be read"))?;
    watches.sort_by_key(|watch| watch.number);
    if watches.windows(2).any(|pair| pair[0].number == pair[1].number) {
        let what = "has an epoll set with two files that had the same descriptor";
        return Err(Error::unsupported(pid, what));
    }
    for holder in holders {
        let is_its = |watch: &Watch| {
            let (file, set) = ((holder.pid, watch.number), (holder.pid, holder.number));
            let order = identity::compare_watched(file, set, watch.number);
            matches!(order, Ok(Ordering::Equal))
        };
        if watches.iter().all(is_its) {
            return Ok(OpenFile::Watches { pid: holder.own, watches });
        }
    }
    Err(Error::unsupported(pid, "has an epoll set with a file whose descriptor was closed"))
}

/// `NUMBER events: HEX data: HEX ...`.
fn watch(value: &str) -> Option<Watch> {
    let words: Vec<&str> = value.split_whitespace().collect();
    let [number, "events:", events, "data:", data, ..] = words.as_slice() else { return None };
    let events = u32::from_str_radix(events, 16).ok()?;
    Some(Watch {
        number: number.parse().ok()?,
        events: events & !ALWAYS,
        data: u64::from_str_radix(data, 16).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_are_parsed() {
        let value = "       5 events: 80000019 data:               1f  pos:0 ino:61af sdev:7";
        let expected = Watch { number: 5, events: 0x8000_0001, data: 0x1f };
        assert_eq!(watch(value), Some(expected));
        assert_eq!(watch("5 events: x"), None);
    }
}
