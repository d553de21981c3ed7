//! Memory that is copied while its processes run, and what they have written since.
//!
//! ```text
//! freeze --protect--> Round, thaw --copy--> freeze --protect--> Round, thaw --copy--> ... freeze --dump_rest--> State
//! ```
//!
//! *The idea.* All pages are protected and copied; a page that is written afterwards is copied again, in the next round
//! or by the dump. What the dump need not copy is what has been copied since it was protected and is not written: it
//! believes a note of the kernel's, page by page, and copies whatever the kernel does not vouch for.
//!
//! *Invariants.*
//!
//! 1. *Pages are protected only while all processes stand still.* A read(2) that has the disk write into a page of the
//!    process goes on behind the protection's back; but a process that is in one does not stop before it has ended.
//! 2. *Copied means read after it was protected.* A page that could not be read is not copied, whatever the kernel says
//!    of it.
//! 3. *Nothing is known of what is new*: mappings that were made, moved or grown since, children, and processes that
//!    have executed another program. All of that counts as written.
//! 4. Only private memory without a file is tracked. Private mappings of files are small, and shared memory and files
//!    without a name are the business of several processes: the dump copies them whole.
//!
//! Which of two trackers a process has, [`Watch`], is found out by trying.

mod faults;
mod soft_dirty;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use host::processes::pagemap::{Found, PageMap};

use self::faults::Faults;
use self::soft_dirty::SoftDirty;
use self::watch::Watch;
use crate::dump::{Pages, put_written};
use crate::error::Error;
use crate::freeze::Frozen;
use crate::limits::{END_OF_MEMORY, PAGE_BYTES, READ_BYTES};
use crate::proc;
use crate::proc::maps;
use crate::proc::stat::Stat;
use crate::proc::status::Status;
use crate::ranges::Ranges;
use crate::state::Owner;

/// What is known of the memory of some processes.
#[derive(Debug, Default)]
pub struct Tracker {
    /// By the host's numbers.
    processes: BTreeMap<u32, Tracked>,
}

/// What is known of the memory of one.
#[derive(Debug)]
pub(crate) struct Tracked {
    /// When it began, which tells it from another with its number.
    began: u64,
    /// Its own number.
    own: u32,
    watch: Box<dyn Watch>,
    /// What has been copied since it was protected.
    copied: Ranges,
}

/// What is to be copied while the processes run.
#[derive(Debug, Default)]
pub struct Round {
    works: Vec<Work>,
}

#[derive(Debug)]
struct Work {
    pid: u32,
    memory: File,
    written: Vec<Range<u64>>,
}

/// What has been copied while the processes ran.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Copied {
    /// Bytes of pages that were read.
    pub bytes: u64,
}

impl Round {
    /// Bytes of the pages that are to be copied.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let ranges = self.works.iter().flat_map(|work| &work.written);
        ranges.map(|range| range.end - range.start).sum()
    }
}

impl Tracker {
    /// Nothing is known yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes of memory of their own that the descendants of a process have, about; 0 for what has gone.
    #[must_use]
    pub fn estimate(parent: u32) -> u64 {
        let (mut found, mut next, mut bytes) = (vec![parent], 0, 0);
        while let Some(&pid) = found.get(next) {
            found.extend(proc::children(pid).unwrap_or_default());
            if next > 0 {
                bytes += own_bytes(pid).unwrap_or(0);
            }
            next += 1;
            if found.len() > crate::limits::MAX_TASKS {
                break;
            }
        }
        bytes
    }

    /// Processes whose memory is watched, which shows in their lists of mappings; by the host's numbers.
    #[must_use]
    pub fn watched(&self) -> BTreeSet<u32> {
        self.processes.keys().copied().collect()
    }

    /// Protect all memory; what has to be copied because it has been written since it was protected last, or never was.
    ///
    /// # Errors
    ///
    /// Where processes cannot be asked.
    pub fn protect(&mut self, frozen: &Frozen, pages: &mut impl Pages) -> Result<Round, Error> {
        self.adopt(frozen, pages)?;
        let mut round = Round::default();
        for (&pid, tracked) in &mut self.processes {
            let map = PageMap::open(pid).map_err(Error::io("open a page map"))?;
            let memory = File::open(format!("/proc/{pid}/mem"));
            let memory = memory.map_err(Error::io("open memory"))?;
            let ranges = maps::anonymous(pid)?;
            let written = tracked.watch.protect(&map, &ranges);
            let written = written.map_err(Error::io("protect memory"))?;
            for range in &written {
                tracked.forget(range.clone(), pages)?;
            }
            round.works.push(Work { pid, memory, written });
        }
        Ok(round)
    }

    /// Copy what is to be copied, while the processes run.
    ///
    /// # Errors
    ///
    /// Where pages cannot be kept.
    pub fn copy(&mut self, round: Round, pages: &mut impl Pages) -> Result<Copied, Error> {
        let (mut copied, mut bytes) = (Copied::default(), vec![0; READ_BYTES]);
        for work in round.works {
            let Some(tracked) = self.processes.get_mut(&work.pid) else { continue };
            for range in work.written {
                for start in range.clone().step_by(READ_BYTES) {
                    let wanted = (range.end - start).min(READ_BYTES as u64) as usize;
                    // It may be gone: the dump looks again.
                    let read = work.memory.read_at(&mut bytes[..wanted], start).unwrap_or(0);
                    let read = read - read % PAGE_BYTES as usize;
                    put_written(&bytes[..read], Owner::Process(tracked.own), start, pages)?;
                    tracked.copied.insert(start..start + read as u64);
                    copied.bytes += read as u64;
                }
            }
        }
        Ok(copied)
    }

    /// Bytes of pages that have been written since they were protected, about: the processes may run.
    #[must_use]
    pub fn written(&self) -> u64 {
        let of = |(pid, tracked): (&u32, &Tracked)| -> io::Result<u64> {
            let (map, mut bytes) = (PageMap::open(*pid)?, 0);
            for range in maps::anonymous(*pid).unwrap_or_default() {
                let found = tracked.watch.look(&map, range)?.into_iter();
                let written = found.filter(|found| found.is_written).map(|found| found.range);
                bytes += written.map(|range| range.end - range.start).sum::<u64>();
            }
            Ok(bytes)
        };
        // One may have ended.
        self.processes.iter().filter_map(|entry| of(entry).ok()).sum()
    }

    /// Say what is known to be as it was in the image that was written last.
    pub fn hand_down(&self, pages: &mut impl Pages) {
        for tracked in self.processes.values() {
            for range in tracked.copied.iter() {
                pages.inherit(Owner::Process(tracked.own), range);
            }
        }
    }

    /// Watch all processes that stand still, and forget the others.
    pub(crate) fn adopt(&mut self, frozen: &Frozen, pages: &mut impl Pages) -> Result<(), Error> {
        self.dismiss(frozen, pages)?;
        for &pid in frozen.processes.keys() {
            if self.processes.contains_key(&pid) {
                continue;
            }
            if let Some(watch) = begin(pid)? {
                let own = Status::read(pid, "status")?.own_number("NSpid")?;
                let tracked = Tracked { began: began(pid)?, own, watch, copied: Ranges::default() };
                self.processes.insert(pid, tracked);
            }
        }
        Ok(())
    }

    /// Forget processes that have gone, with their pages.
    pub(crate) fn dismiss(&mut self, frozen: &Frozen, pages: &mut impl Pages) -> Result<(), Error> {
        let mut kept = BTreeMap::new();
        for (pid, mut tracked) in std::mem::take(&mut self.processes) {
            let is_there = frozen.processes.contains_key(&pid)
                && began(pid).is_ok_and(|began| began == tracked.began);
            if is_there && !tracked.watch.is_over() {
                kept.insert(pid, tracked);
            } else {
                tracked.forget(0..END_OF_MEMORY, pages)?;
            }
        }
        self.processes = kept;
        Ok(())
    }

    /// What is known of a process.
    pub(crate) fn of(&mut self, pid: u32) -> Option<&mut Tracked> {
        self.processes.get_mut(&pid)
    }
}

impl Tracked {
    fn forget(&mut self, range: Range<u64>, pages: &mut impl Pages) -> Result<(), Error> {
        self.copied.remove(range.clone());
        pages.forget(Owner::Process(self.own), range).map_err(Error::io("forget pages"))
    }

    /// Of the process's own pages in a range: those that must be copied, and those that have been.
    pub(crate) fn split(&self, map: &PageMap, range: Range<u64>) -> io::Result<[Ranges; 2]> {
        let [mut wanted, mut kept] = [Ranges::default(), Ranges::default()];
        for Found { range, is_written } in self.watch.look(map, range)? {
            if is_written {
                wanted.insert(range);
                continue;
            }
            self.copied.gaps(&range).into_iter().for_each(|gap| wanted.insert(gap));
            self.copied.overlaps(&range).into_iter().for_each(|part| kept.insert(part));
        }
        Ok([wanted, kept])
    }

    /// What has been copied is this, and from now on what is written counts anew. The process stands still.
    pub(crate) fn go_on(&mut self, pid: u32, map: &PageMap, copied: Ranges) -> Result<(), Error> {
        let ranges = maps::anonymous(pid)?;
        self.watch.protect(map, &ranges).map_err(Error::io("protect memory"))?;
        self.copied = copied;
        Ok(())
    }
}

/// Begin to watch a process; none where the host has no way to.
fn begin(pid: u32) -> Result<Option<Box<dyn Watch>>, Error> {
    if let Some(faults) = Faults::begin(pid)? {
        return Ok(Some(Box::new(faults)));
    }
    Ok(SoftDirty::begin(pid).map(|watch| Box::new(watch) as Box<dyn Watch>))
}

fn began(pid: u32) -> Result<u64, Error> {
    Stat::read(pid, "stat")?.field(22)
}

/// Bytes of a process's own memory.
fn own_bytes(pid: u32) -> Option<u64> {
    let status = Status::read(pid, "status").ok()?;
    let kib = |name| status.words(name).first().and_then(|word| word.parse::<u64>().ok());
    Some((kib("RssAnon")? + kib("VmSwap").unwrap_or(0)) << 10)
}
