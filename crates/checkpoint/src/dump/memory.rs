//! Mappings, and the pages that are a process's own.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};

use host::processes::pagemap::{self, PageMap};

use super::objects::Objects;
use super::pages::{Pages, put_written};
use crate::advice::ADVICE;
use crate::error::Error;
use crate::limits::{END_OF_MEMORY, MAX_VDSO_BYTES, READ_BYTES};
use crate::proc::maps::{self, Line};
use crate::ranges::Ranges;
use crate::state::{Bytes, Mapping, Memory, Owner, Source};
use crate::track::Tracked;
use crate::{proc, refuse};

/// The mappings of a process; `vdso` becomes its vDSO, which all have in common.
pub(super) fn dump(
    pid: u32,
    known: &Memory,
    vdso: &mut Option<Bytes>,
    objects: &mut Objects,
) -> Result<Memory, Error> {
    let program = proc::link(pid, "exe")?;
    if !refuse::names_itself(pid, "exe", &program) {
        return Err(Error::unsupported(pid, "runs a program that was deleted"));
    }
    let auxiliary = fs::read(format!("/proc/{pid}/auxv"));
    let auxiliary = Bytes(auxiliary.map_err(Error::io("read an auxiliary vector"))?);
    let mut mappings: Vec<Mapping> = Vec::new();
    for line in maps::read(pid)?.into_iter().filter(|line| line.name != "[vsyscall]") {
        if line.name == "[vdso]" {
            let found = read_vdso(pid, &line)?;
            if vdso.as_ref().is_some_and(|known| *known != found) {
                return Err(Error::unsupported(pid, "has another vDSO than the others"));
            }
            *vdso = Some(found);
        }
        let mapping = mapping(pid, &line, objects)?;
        match mappings.last_mut().filter(|last| continues(last, &mapping)) {
            Some(last) => last.end = mapping.end,
            None => mappings.push(mapping),
        }
    }
    Ok(Memory { mappings, fields: known.fields, auxiliary, program })
}

/// The digest of a vDSO.
pub(super) fn digest(vdso: &Bytes) -> Bytes {
    blake3::hash(vdso).as_bytes().as_slice().into()
}

fn read_vdso(pid: u32, line: &Line) -> Result<Bytes, Error> {
    let memory = File::open(format!("/proc/{pid}/mem")).map_err(Error::io("open memory"))?;
    let mut bytes = vec![0; (line.end - line.start).min(MAX_VDSO_BYTES as u64) as usize];
    memory.read_exact_at(&mut bytes, line.start).map_err(Error::io("read the vDSO"))?;
    Ok(Bytes(bytes))
}

/// Whether two mappings are one: the kernel may have made two of what it makes one of, when it is made anew.
fn continues(last: &Mapping, next: &Mapping) -> bool {
    let is_one = last.end == next.start
        && last.protection == next.protection
        && last.shared == next.shared
        && last.advice == next.advice
        && last.name == next.name
        && !last.advice.iter().any(|advice| advice == "gd");
    let length = last.end - last.start;
    is_one
        && match (&last.source, &next.source) {
            (Source::Anonymous, Source::Anonymous) => true,
            (Source::File { path, offset, .. }, Source::File { path: other, offset: next, .. }) => {
                path == other && offset.checked_add(length) == Some(*next)
            }
            (Source::Object { index, offset }, Source::Object { index: other, offset: next }) => {
                index == other && offset.checked_add(length) == Some(*next)
            }
            (
                Source::Segment { id, offset, writable },
                Source::Segment { id: other, offset: next, writable: also },
            ) => id == other && writable == also && offset.checked_add(length) == Some(*next),
            _ => false,
        }
}

fn mapping(pid: u32, line: &Line, objects: &mut Objects) -> Result<Mapping, Error> {
    let has = |flag: &str| line.flags.iter().any(|found| found == flag);
    let own_name = line.name.strip_prefix("[anon:").and_then(|name| name.strip_suffix(']'));
    let source = match line.name.as_str() {
        "[vdso]" => Source::Vdso,
        name if name.starts_with("[vvar") => Source::VdsoData,
        name if name.starts_with('/') => file(pid, line, has("mw"), objects)?,
        _ if line.shared => {
            let what = format!("has shared memory without a file at {:#x}", line.start);
            return Err(Error::unsupported(pid, what));
        }
        name if maps::is_anonymous(name) => Source::Anonymous,
        name => {
            return Err(Error::unsupported(
                pid,
                format!("has the mapping {name} at {:#x}", line.start),
            ));
        }
    };
    let is_special = matches!(source, Source::Vdso | Source::VdsoData);
    let wanted = ADVICE.iter().map(|(name, _)| *name).filter(|name| has(name) && !is_special);
    Ok(Mapping {
        start: line.start,
        end: line.end,
        protection: line.protection,
        shared: line.shared && !is_special,
        source,
        advice: wanted.map(str::to_owned).collect(),
        name: own_name.map(str::to_owned),
    })
}

fn file(pid: u32, line: &Line, may_write: bool, objects: &mut Objects) -> Result<Source, Error> {
    let path = &line.name;
    if !refuse::names(pid, path, line.file.1) {
        if let Some(id) = objects.segment(line) {
            return Ok(Source::Segment { id, offset: line.offset, writable: may_write });
        }
        let index = objects.map(pid, line)?;
        return Ok(Source::Object { index, offset: line.offset });
    }
    let metadata = fs::symlink_metadata(format!("/proc/{pid}/root{path}"));
    let metadata = metadata.map_err(Error::io(format!("look at {path}")))?;
    if !metadata.is_file() {
        return Err(Error::unsupported(pid, format!("maps {path}, which is no regular file")));
    }
    Ok(Source::File {
        path: path.clone(),
        offset: line.offset,
        bytes: metadata.len(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        writable: line.shared && may_write,
    })
}

/// The pages of private mappings that are not the file's and not zero: those that are not known to have been copied.
/// The process may be tracked, and be so on.
pub(super) fn dump_pages(
    pid: u32,
    own: u32,
    memory: &Memory,
    pages: &mut impl Pages,
    (mut tracked, goes_on): (Option<&mut Tracked>, bool),
) -> Result<(), Error> {
    let mut map = PageMap::open(pid).map_err(Error::io("open a page map"))?;
    let (mut wanted, mut kept) = (Vec::new(), Ranges::default());
    let mut copied = Ranges::default();
    for mapping in memory.mappings.iter().filter(|mapping| has_own_pages(mapping)) {
        let range = mapping.start..mapping.end;
        let is_anonymous = mapping.source == Source::Anonymous;
        let Some(tracked) = tracked.as_deref().filter(|_| is_anonymous) else {
            let found = map.find(range, pagemap::Pages::Own);
            let found = found.map_err(Error::io("read a page map"))?;
            wanted.extend(found.into_iter().map(|range| (mapping, range)));
            continue;
        };
        let [changed, same] = tracked.split(&map, range).map_err(Error::io("read a page map"))?;
        changed.iter().chain(same.iter()).for_each(|range| copied.insert(range));
        wanted.extend(changed.iter().map(|range| (mapping, range)));
        same.iter().for_each(|range| kept.insert(range));
    }
    for gap in kept.gaps(&(0..END_OF_MEMORY)) {
        pages.forget(Owner::Process(own), gap).map_err(Error::io("forget pages"))?;
    }
    copy_pages(pid, own, &wanted, pages)?;
    match tracked.as_mut().filter(|_| goes_on) {
        Some(tracked) => tracked.go_on(pid, &map, copied),
        None => Ok(()),
    }
}

/// Whether a mapping may have pages of the process's own that are worth keeping.
fn has_own_pages(mapping: &Mapping) -> bool {
    let is_droppable = mapping.advice.iter().any(|advice| advice == "dp");
    let is_special = matches!(mapping.source, Source::Vdso | Source::VdsoData);
    !(mapping.shared || is_special || is_droppable)
}

fn copy_pages(
    pid: u32,
    own: u32,
    wanted: &[(&Mapping, Range<u64>)],
    pages: &mut impl Pages,
) -> Result<(), Error> {
    let content = File::open(format!("/proc/{pid}/mem")).map_err(Error::io("open memory"))?;
    let mut bytes = vec![0; READ_BYTES];
    for (mapping, range) in wanted {
        let mut at = range.start;
        while at < range.end {
            let count = usize::try_from(range.end - at).unwrap_or(READ_BYTES).min(READ_BYTES);
            let read = content.read_exact_at(&mut bytes[..count], at);
            read.map_err(Error::io(format!("read memory of process {pid} at {at:#x}")))?;
            put(mapping, &bytes[..count], Owner::Process(own), at, pages)?;
            at += count as u64;
        }
    }
    Ok(())
}

/// Keep pages of a mapping. Zero is content where it hides that of a file.
fn put(
    mapping: &Mapping,
    bytes: &[u8],
    owner: Owner,
    at: u64,
    pages: &mut impl Pages,
) -> Result<(), Error> {
    match mapping.source {
        Source::Anonymous => put_written(bytes, owner, at, pages),
        _ => pages.put(owner, at, bytes).map_err(Error::io("keep pages")),
    }
}
