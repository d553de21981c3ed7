//! Memory that several share, and files that have no name any more: objects that only descriptors and mappings lead to.
//!
//! One that is open is read through a description of our own, holes left out. Of one that is only mapped all that can
//! be seen is what the mappings show, and they are read whole: the kernel does not tell us which of its pages are
//! there. So the holes of such memory become pages when it is dumped, as if a process had read them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use host::processes::identity;
use rustix::fs::{SeekFrom, fcntl_get_seals};

use super::pages::{Pages, put_written};
use crate::error::Error;
use crate::limits::{PAGE_BYTES, PIECE_BYTES};
use crate::proc::{descriptor, maps};
use crate::state::{Object, Owner};

/// What a memfd has that was made without seals.
const SEAL_SEAL: u32 = 1;
/// How the kernel marks names that are none any more.
const DELETED: &str = " (deleted)";

/// Where an object can be seen in the memory of a process.
struct View {
    pid: u32,
    start: u64,
    offset: u64,
    bytes: u64,
}

struct Entry {
    object: Object,
    descriptor: Option<OwnedFd>,
    views: Vec<View>,
}

/// Those that were found so far.
#[derive(Default)]
pub(crate) struct Objects {
    /// By device and inode: the place.
    places: BTreeMap<(u64, u64), usize>,
    entries: Vec<Entry>,
    /// Numbers of System V segments, which are none of them.
    segments: BTreeSet<u32>,
}

impl Objects {
    /// None yet, where there are System V segments of these numbers.
    pub fn new(segments: BTreeSet<u32>) -> Self {
        Self { segments, ..Self::default() }
    }

    /// The number of the System V segment that a mapping shows: the kernel gives it as that of an inode.
    pub fn segment(&self, line: &maps::Line) -> Option<u32> {
        let key = line.name.strip_prefix("/SYSV")?.strip_suffix(DELETED)?;
        let is_key = key.len() == 8 && u32::from_str_radix(key, 16).is_ok();
        let number = u32::try_from(line.file.1).ok()?;
        (is_key && line.shared && self.segments.contains(&number)).then_some(number)
    }

    /// That of a descriptor; its place. `root` is a process in whose root the names of files are.
    pub fn open(&mut self, pid: u32, root: u32, line: &descriptor::Line) -> Result<usize, Error> {
        let file = (line.device, line.inode);
        if let Some(&place) = self.places.get(&file) {
            return Ok(place);
        }
        let process = identity::open_process(pid).map_err(Error::io("open a process"))?;
        let taken = identity::descriptor_of(&process, line.number);
        let taken = taken.map_err(Error::io(format!("take {} of process {pid}", line.link)))?;
        let bytes = rustix::fs::fstat(&taken).map_err(Error::io("look at a file"))?;
        let bytes = u64::try_from(bytes.st_size).unwrap_or(0);
        let path = line.link.strip_suffix(DELETED).unwrap_or(&line.link);
        let name = path.strip_prefix("/memfd:");
        let directory = match name {
            Some(_) => None,
            None => Some(directory(root, path)?),
        };
        let seals = fcntl_get_seals(&taken).map_or(SEAL_SEAL, |seals| seals.bits());
        let object = Object { bytes, name: name.unwrap_or("").to_owned(), seals, directory };
        Ok(self.add(file, Entry { object, descriptor: Some(taken), views: Vec::new() }))
    }

    /// That of a mapping; its place.
    pub fn map(&mut self, pid: u32, line: &maps::Line) -> Result<usize, Error> {
        let path = line.name.strip_suffix(DELETED).unwrap_or(&line.name);
        if ["/SYSV", "/secretmem", "/anon_hugepage"].iter().any(|kind| path.starts_with(kind)) {
            return Err(Error::unsupported(pid, format!("maps {path} at {:#x}", line.start)));
        }
        let place = match self.places.get(&line.file) {
            Some(&place) => place,
            None => {
                let name = path.strip_prefix("/memfd:").unwrap_or("").to_owned();
                let object = Object { bytes: 0, name, seals: SEAL_SEAL, directory: None };
                self.add(line.file, Entry { object, descriptor: None, views: Vec::new() })
            }
        };
        let bytes = line.end - line.start;
        let entry = &mut self.entries[place];
        if entry.descriptor.is_none() {
            entry.object.bytes = entry.object.bytes.max(line.offset.saturating_add(bytes));
            entry.views.push(View { pid, start: line.start, offset: line.offset, bytes });
        }
        Ok(place)
    }

    fn add(&mut self, file: (u64, u64), entry: Entry) -> usize {
        let place = self.entries.len();
        self.entries.push(entry);
        self.places.insert(file, place);
        place
    }

    /// Write down what is in them.
    pub fn dump(self, pages: &mut impl Pages) -> Result<Vec<Object>, Error> {
        let mut objects = Vec::new();
        for (place, entry) in self.entries.into_iter().enumerate() {
            let owner = Owner::Object(u32::try_from(place).unwrap_or(u32::MAX));
            match &entry.descriptor {
                Some(descriptor) => dump_open(descriptor, owner, pages)?,
                None => dump_mapped(&entry.views, owner, pages)?,
            }
            objects.push(entry.object);
        }
        Ok(objects)
    }
}

/// The directory of a path, which must still be there.
fn directory(pid: u32, path: &str) -> Result<String, Error> {
    let directory = match path.rsplit_once('/') {
        Some(("", _)) => "/",
        Some((directory, _)) => directory,
        None => "",
    };
    let is_there = std::fs::metadata(format!("/proc/{pid}/root{directory}"));
    match is_there.is_ok_and(|metadata| metadata.is_dir()) {
        true => Ok(directory.to_owned()),
        false => Err(Error::unsupported(pid, format!("has {path} open, whose directory is gone"))),
    }
}

/// What is in a file, without moving anybody's position.
fn dump_open(descriptor: &OwnedFd, owner: Owner, pages: &mut impl Pages) -> Result<(), Error> {
    let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    let file = File::open(path).map_err(Error::io("read a file without a name"))?;
    let mut at = 0;
    // `ENXIO` says that there is nothing behind `at`.
    while let Ok(data) = rustix::fs::seek(&file, SeekFrom::Data(at)) {
        let hole = rustix::fs::seek(&file, SeekFrom::Hole(data));
        let hole = hole.map_err(Error::io("look for a hole"))?;
        at = data - data % PAGE_BYTES;
        while at < hole {
            let mut bytes = vec![0; PIECE_BYTES];
            let wanted = usize::try_from(hole - at).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
            let read = read_up_to(&file, &mut bytes[..wanted], at);
            bytes.truncate(read.next_multiple_of(PAGE_BYTES as usize));
            put_written(&bytes, owner, at, pages)?;
            at += wanted as u64;
        }
    }
    Ok(())
}

/// What is seen of memory that nobody has open.
fn dump_mapped(views: &[View], owner: Owner, pages: &mut impl Pages) -> Result<(), Error> {
    let mut done = BTreeSet::new();
    for view in views {
        let memory = File::open(format!("/proc/{}/mem", view.pid));
        let memory = memory.map_err(Error::io("open memory"))?;
        let mut at = 0;
        while at < view.bytes {
            let wanted = (view.bytes - at).min(PIECE_BYTES as u64);
            let offset = view.offset + at;
            let mut bytes = vec![0; wanted as usize];
            // What is behind the end of a file cannot be read.
            read_up_to(&memory, &mut bytes, view.start + at);
            for (page, offset) in
                bytes.chunks_mut(PAGE_BYTES as usize).zip((offset..).step_by(4096))
            {
                // In another process, or another mapping, the same page is the same.
                if !done.insert(offset) {
                    page.fill(0);
                }
            }
            put_written(&bytes, owner, offset, pages)?;
            at += wanted;
        }
    }
    Ok(())
}

/// Read what can be read; the rest stays as it is.
fn read_up_to(file: &File, bytes: &mut [u8], at: u64) -> usize {
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], at + done as u64) {
            Ok(read) if read > 0 => done += read,
            _ => break,
        }
    }
    done
}
