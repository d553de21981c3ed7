//! Memory: everything that was there is dropped, everything of the image is mapped and filled.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::thread;

use inject::AREA_BYTES;

use super::Made;
use super::ipc;
use super::kept::Kept;
use super::opened::Opened;
use super::plan::Plan;
use super::vdso::Other;
use crate::advice::ADVICE;
use crate::error::Error;
use crate::image::Image;
use crate::limits::{END_OF_MEMORY, MAX_VDSO_BYTES, PAGE_BYTES};
use crate::proc::maps;
use crate::state::{Mapping, Memory, Owner, Source};

/// `ARCH_MAP_VDSO_64`.
const MAP_VDSO: u64 = 0x2003;
/// `MAP_DROPPABLE`, which is a kind of mapping like `MAP_PRIVATE`.
const MAP_DROPPABLE: i32 = 8;

/// Threads that write the memory of one process, and the fewest pieces (of at most 64 KiB) that are worth a thread.
const THREADS_MAX: usize = 4;
const SHARE_MIN: usize = 256;

/// Give a new process its memory. `parent` is that of the process that bore it, with its number; the seed's is dropped
/// whole. `opened` has the objects; `other` is the vDSO that it gets if that is not its own.
pub(super) fn make(
    made: &Made,
    memory: &Memory,
    parent: Option<(u32, &Memory)>,
    image: &Image,
    (opened, other): (Opened, Option<&Other>),
) -> Result<(), Error> {
    let kept = Kept::find_all(memory, parent.map(|(_, parent)| parent));
    let is_vdso = |mapping: &&Mapping| mapping.source == Source::Vdso;
    let vdso_is_kept = memory.mappings.iter().find(is_vdso).is_some_and(|vdso| kept.has(vdso));
    drop_others(made, &kept, other.filter(|_| vdso_is_kept))?;
    let own = || memory.mappings.iter().filter(|mapping| !kept.has(mapping));
    let files = open(made, memory, own())?;
    // Before anything is mapped: the program cannot be set while the one before is mapped, which may be the same.
    set_fields(made, memory, &files, !kept.is_empty())?;
    let mut plan = Plan::new(made.pid, &made.seat, &made.area);
    ipc::attach(&mut plan, own(), image.state().ipc.as_ref())?;
    vdso(&mut plan, own(), other);
    for mapping in own() {
        map(&mut plan, mapping, &files, opened);
        plan.flush_if_full()?;
    }
    plan.run()?;
    match (other, own().find(is_vdso)) {
        (Some(other), Some(old)) => replace_vdso(made, old, other)?,
        (Some(_), None) => {}
        (None, _) => check_vdso(made, memory, image)?,
    }
    if let Some((parent, _)) = parent.filter(|_| !kept.is_empty()) {
        forget(made, &kept, image, parent)?;
    }
    fill(made, &kept, image)?;
    advise(made, memory, &kept)?;
    let mut plan = Plan::new(made.pid, &made.seat, &made.area);
    for (number, _) in files.values() {
        plan.may(libc::SYS_close, [*number]);
        plan.flush_if_full()?;
    }
    plan.run().map(drop)
}

/// Drop what the process was born with, but for what it keeps and the area.
fn drop_others(made: &Made, kept: &Kept<'_>, other: Option<&Other>) -> Result<(), Error> {
    let mut plan = Plan::new(made.pid, &made.seat, &made.area);
    let task = made.seat.task();
    // The kernel would write there at the next turn, and kill the process where nothing is.
    let sequences = host::processes::trace::sequences(task);
    if let Ok(sequences) = sequences
        && sequences.address != 0
    {
        const UNREGISTER: u64 = 1;
        let (bytes, signature) = (sequences.bytes.into(), sequences.signature.into());
        let arguments = [sequences.address, bytes, UNREGISTER, signature];
        plan.must("leave its restartable sequences", libc::SYS_rseq, arguments);
    }
    let mut stays = kept.ranges();
    stays.push((made.area.base(), made.area.base() + AREA_BYTES));
    stays.extend(other.map(|other| (other.start, other.end)));
    stays.sort_unstable();
    stays.push((END_OF_MEMORY, END_OF_MEMORY));
    let mut at = 0;
    for (start, end) in stays {
        if start > at {
            plan.must("drop its memory", libc::SYS_munmap, [at, start - at]);
            plan.flush_if_full()?;
        }
        at = end;
    }
    plan.run().map(drop)
}

/// Descriptors of the process for the files that it maps, and for its program; by path and whether it is writable.
type Files<'a> = BTreeMap<(&'a str, bool), (u64, Option<&'a Mapping>)>;

fn open<'a>(
    made: &Made,
    memory: &'a Memory,
    mappings: impl Iterator<Item = &'a Mapping>,
) -> Result<Files<'a>, Error> {
    let mut wanted: Files<'a> = BTreeMap::new();
    wanted.insert((&memory.program, false), (0, None));
    for mapping in mappings {
        if let Source::File { path, writable, .. } = &mapping.source {
            wanted.insert((path, *writable), (0, Some(mapping)));
        }
    }
    let mut keys: Vec<_> = wanted.keys().copied().collect();
    while !keys.is_empty() {
        let some = keys.split_off(keys.len().saturating_sub(16));
        let mut plan = Plan::new(made.pid, &made.seat, &made.area);
        for (path, writable) in &some {
            let name = plan.string(path);
            let mode = if *writable { libc::O_RDWR } else { libc::O_RDONLY };
            let flags = (mode | libc::O_CLOEXEC | libc::O_NOFOLLOW).cast_unsigned().into();
            let here = i64::from(libc::AT_FDCWD).cast_unsigned();
            plan.must(format!("open {path}"), libc::SYS_openat, [here, name, flags, 0]);
        }
        let results = plan.run()?.results;
        for (key, result) in some.into_iter().zip(results) {
            if let Some(entry) = wanted.get_mut(&key) {
                entry.0 = result.cast_unsigned();
            }
        }
    }
    check_files(made, &wanted)?;
    Ok(wanted)
}

/// The files must be those that were mapped: memory of a program and its libraries fit together.
fn check_files(made: &Made, files: &Files<'_>) -> Result<(), Error> {
    use std::os::unix::fs::MetadataExt;
    for ((path, _), (number, mapping)) in files {
        let Some(mapping) = mapping else { continue };
        let Source::File { bytes, modified, .. } = &mapping.source else { continue };
        let link = format!("/proc/{}/fd/{number}", made.seat.task());
        let metadata = std::fs::metadata(link).map_err(Error::io(format!("look at {path}")))?;
        let is_same =
            metadata.len() == *bytes && (metadata.mtime(), metadata.mtime_nsec()) == *modified;
        if !metadata.is_file() || (!is_same && !mapping.shared) {
            return Err(Error::Host(format!("{path} is not what it was")));
        }
    }
    Ok(())
}

fn vdso<'a>(
    plan: &mut Plan<'_>,
    mut mappings: impl Iterator<Item = &'a Mapping>,
    other: Option<&Other>,
) {
    let special = |mapping: &&Mapping| matches!(mapping.source, Source::Vdso | Source::VdsoData);
    // All of them are mapped at once, by the address of the first.
    if let Some(first) = mappings.find(special) {
        let start = other.map_or(first.start, |other| other.start);
        plan.must("map the vDSO", libc::SYS_arch_prctl, [MAP_VDSO, start]);
        let old = other.and_then(|_| {
            std::iter::once(first).chain(mappings).find(|one| one.source == Source::Vdso)
        });
        if let Some(old) = old {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
            let (flags, bytes) = (flags.cast_unsigned().into(), old.end - old.start);
            let arguments = [old.start, bytes, old.protection.into(), flags, u64::MAX, 0];
            plan.must("keep its vDSO", libc::SYS_mmap, arguments);
        }
    }
}

/// Write what is left of the old vDSO, and look whether the new one is where it leads to.
fn replace_vdso(made: &Made, old: &Mapping, other: &Other) -> Result<(), Error> {
    let lines = maps::read(made.seat.task())?;
    let line = lines.iter().find(|line| line.name == "[vdso]");
    let is_there = line.is_some_and(|line| (line.start, line.end) == (other.code, other.end));
    let digest = match line.filter(|_| is_there) {
        Some(line) => vdso_digest(made, line)?,
        None => [0; 32],
    };
    if digest != other.digest {
        return Err(Error::Host("its vDSO cannot be replaced by this kernel's".to_owned()));
    }
    let written = made.area.memory().write_all_at(&other.old, old.start);
    written.map_err(Error::io("write its vDSO"))
}

fn vdso_digest(made: &Made, line: &maps::Line) -> Result<[u8; 32], Error> {
    let mut bytes = vec![0; (line.end - line.start).min(MAX_VDSO_BYTES as u64) as usize];
    let read = made.area.memory().read_exact_at(&mut bytes, line.start);
    read.map_err(Error::io("read the vDSO"))?;
    Ok(*blake3::hash(&bytes).as_bytes())
}

fn check_vdso(made: &Made, memory: &Memory, image: &Image) -> Result<(), Error> {
    let Some(expected) = memory.mappings.iter().find(|mapping| mapping.source == Source::Vdso)
    else {
        return Ok(());
    };
    let other = || Error::Host("its kernel had another vDSO than this one".to_owned());
    let lines = maps::read(made.seat.task())?;
    let line = lines.iter().find(|line| line.name == "[vdso]").ok_or_else(other)?;
    if (line.start, line.end) != (expected.start, expected.end) {
        return Err(other());
    }
    match vdso_digest(made, line)?.as_slice() == &*image.state().vdso {
        true => Ok(()),
        false => Err(other()),
    }
}

fn map(plan: &mut Plan<'_>, mapping: &Mapping, files: &Files<'_>, opened: Opened) {
    let has = |word: &str| mapping.advice.iter().any(|advice| advice == word);
    let mut flags = libc::MAP_FIXED_NOREPLACE;
    flags |= match mapping.shared {
        true => libc::MAP_SHARED,
        false if has("dp") => MAP_DROPPABLE,
        false => libc::MAP_PRIVATE,
    };
    for (word, flag) in [("gd", libc::MAP_GROWSDOWN), ("nr", libc::MAP_NORESERVE)] {
        if has(word) {
            flags |= flag;
        }
    }
    let (descriptor, offset) = match &mapping.source {
        Source::Anonymous => {
            flags |= libc::MAP_ANONYMOUS;
            (u64::MAX, 0)
        }
        Source::File { path, offset, writable, .. } => {
            let file = files.get(&(path.as_str(), *writable));
            (file.map_or(u64::MAX, |(number, _)| *number), *offset)
        }
        Source::Object { index, offset } => (opened.object(*index), *offset),
        Source::Vdso | Source::VdsoData | Source::Segment { .. } => return,
    };
    let (start, bytes) = (mapping.start, mapping.end - mapping.start);
    let flags = flags.cast_unsigned().into();
    let arguments = [start, bytes, mapping.protection.into(), flags, descriptor, offset];
    plan.must(format!("map its memory at {start:#x}"), libc::SYS_mmap, arguments);
}

/// Drop the pages of kept mappings that the parent has written and the process has not.
fn forget(made: &Made, kept: &Kept<'_>, image: &Image, parent: u32) -> Result<(), Error> {
    let mut plan = Plan::new(made.pid, &made.seat, &made.area);
    for range in kept.forgotten(image, made.pid, parent) {
        let dont_need = libc::MADV_DONTNEED.cast_unsigned().into();
        let arguments = [range.start, range.end - range.start, dont_need];
        plan.must("forget pages of its parent", libc::SYS_madvise, arguments);
        plan.flush_if_full()?;
    }
    plan.run().map(drop)
}

/// Write the pages, through /proc/PID/mem, which also writes what the process may only read. In kept mappings only
/// those that differ. Most of the time is the kernel's, which makes the pages; so several threads share much memory.
fn fill(made: &Made, kept: &Kept<'_>, image: &Image) -> Result<(), Error> {
    let all = image.places_of(Owner::Process(made.pid));
    let share = all.len().div_ceil(threads()).max(SHARE_MIN);
    let (end, memory) = (all.end, made.area.memory());
    let mut shares = all.step_by(share).map(|first| first..end.min(first + share));
    let first = shares.next().unwrap_or_default();
    thread::scope(|scope| {
        let fill = |share: &Range<usize>| {
            let share = share.clone();
            move || fill_share(memory, kept, image, share)
        };
        let begin = |share: &Range<usize>| thread::Builder::new().spawn_scoped(scope, fill(share));
        let others: Vec<_> = shares.map(|share| (begin(&share), share)).collect();
        let mut result = fill(&first)();
        for (other, share) in others {
            // A host may allow no more threads.
            let Ok(other) = other else {
                result = result.and_then(|()| fill(&share)());
                continue;
            };
            let gone = |_| Err(Error::Host("a thread that writes memory has ended".to_owned()));
            result = result.and(other.join().unwrap_or_else(gone));
        }
        result
    })
}

fn threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX)
}

fn fill_share(
    memory: &File,
    kept: &Kept<'_>,
    image: &Image,
    places: Range<usize>,
) -> Result<(), Error> {
    for pages in image.pages_at(places) {
        let (run, bytes) = pages?;
        let at = run.address;
        let failed = || Error::io(format!("write memory at {at:#x}"));
        if kept.is_empty() {
            memory.write_all_at(&bytes, at).map_err(failed())?;
            continue;
        }
        let mut now = vec![0; bytes.len()];
        memory.read_exact_at(&mut now, at).map_err(failed())?;
        let page = PAGE_BYTES as usize;
        for (index, (wanted, found)) in bytes.chunks(page).zip(now.chunks(page)).enumerate() {
            if wanted != found {
                memory.write_all_at(wanted, at + index as u64 * PAGE_BYTES).map_err(failed())?;
            }
        }
    }
    Ok(())
}

fn advise(made: &Made, memory: &Memory, kept: &Kept<'_>) -> Result<(), Error> {
    const SET_NAME: [u64; 2] = [0x5356_4d41, 0];
    let mut plan = Plan::new(made.pid, &made.seat, &made.area);
    for mapping in &memory.mappings {
        let (start, bytes) = (mapping.start, mapping.end - mapping.start);
        // All but locks is inherited.
        let is_kept = kept.has(mapping);
        for word in mapping.advice.iter().filter(|word| !is_kept || *word == "lo") {
            let known = ADVICE.iter().find(|(name, _)| name == word);
            if let Some((_, Some(advice))) = known {
                let advice = advice.cast_unsigned().into();
                plan.must("advise on its memory", libc::SYS_madvise, [start, bytes, advice]);
            }
            if word == "lo" {
                plan.must("lock its memory", libc::SYS_mlock, [start, bytes]);
            }
        }
        if let Some(name) = mapping.name.as_ref().filter(|_| !is_kept) {
            let name = plan.string(name);
            let arguments = [SET_NAME[0], SET_NAME[1], start, bytes, name];
            plan.may(libc::SYS_prctl, arguments);
        }
        plan.flush_if_full()?;
    }
    plan.run().map(drop)
}

/// What /proc tells of code, stack, arguments; and where the heap goes on.
fn set_fields(made: &Made, memory: &Memory, files: &Files<'_>, keeps: bool) -> Result<(), Error> {
    const SET_MM: u64 = 35;
    const SET_MM_MAP: u64 = 14;
    /// Bytes of `struct prctl_mm_map`.
    const MAP_BYTES: u64 = 104;
    let mut plan = Plan::new(made.pid, &made.seat, &made.area);
    let auxiliary = plan.data(&memory.auxiliary);
    // A process that keeps mappings has its parent's program, which cannot be set while it is mapped.
    let none = u64::from(u32::MAX);
    let program = files.get(&(memory.program.as_str(), false)).filter(|_| !keeps);
    let program = program.map_or(none, |(number, _)| *number);
    let mut words = memory.fields.to_vec();
    words.push(auxiliary);
    words.push(memory.auxiliary.len() as u64 | program << 32);
    let map = plan.words(&words);
    let arguments = [SET_MM, SET_MM_MAP, map, MAP_BYTES, 0];
    plan.must("set what is known of its memory", libc::SYS_prctl, arguments);
    plan.run().map(drop)
}
