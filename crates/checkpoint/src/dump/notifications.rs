//! Files whose changes are told (inotify(7)).
//!
//! The kernel tells device and inode of what is watched, not its path, and opens no file by these for who has no
//! privileges. So the path is looked for: among the directories that processes are in, what they have open and what is
//! around that, then everywhere below their root, up to a limit. What is not found is refused, and so are changes that
//! were told and not read: they could be taken out, but not put back.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::os::unix::fs::MetadataExt;

use host::processes::identity;

use crate::error::Error;
use crate::limits::{MAX_LOOKED_AT, MAX_PATH_WATCHES};
use crate::proc;
use crate::proc::descriptor::Line;
use crate::state::{OpenFile, PathWatch};

/// Where no file is that can be watched.
const NOWHERE: [&str; 2] = ["/proc", "/sys"];

/// A device and an inode, as stat(2) has them.
type File = (u64, u64);

/// What is told to the descriptor of `pid`, which calls itself `own`.
pub(super) fn describe(pid: u32, own: u32, line: &Line) -> Result<OpenFile, Error> {
    let refused = |what: &str| Error::unsupported(pid, what);
    let process = identity::open_process(pid).map_err(Error::io("open a process"))?;
    let file = identity::descriptor_of(&process, line.number);
    let file = file.map_err(Error::io("take a file of changes"))?;
    let waiting = rustix::io::ioctl_fionread(&file);
    if waiting.map_err(Error::io("look at a file of changes"))? > 0 {
        return Err(refused("has been told of changes (inotify(7)) that it has not read yet"));
    }
    let lines = line.rest.iter().filter(|(name, _)| name.starts_with("inotify "));
    let parsed: Option<Vec<_>> = lines.map(|(name, value)| parse(name, value)).collect();
    let mut parsed = parsed
        .filter(|watches| watches.len() <= MAX_PATH_WATCHES)
        .ok_or_else(|| refused("watches files (inotify(7)) that cannot be read"))?;
    parsed.sort_unstable();
    let wanted = parsed.iter().map(|(_, file, _)| *file).collect();
    let found = find(pid, wanted);
    let mut watches = Vec::new();
    for (number, file, events) in parsed {
        let path = found.get(&file).cloned().ok_or_else(|| {
            refused(&format!("watches a file (inotify(7)) that is not found: inode {}", file.1))
        })?;
        watches.push(PathWatch { number, path, events });
    }
    Ok(OpenFile::Notifications { pid: own, watches })
}

/// `inotify wd`, and `1 ino:a4 sdev:fe00000 mask:2 ignored_mask:0 fhandle-bytes:...`.
fn parse(name: &str, value: &str) -> Option<(u32, File, u32)> {
    let mut words = value.split_whitespace();
    let number = words.next().filter(|_| name == "inotify wd")?;
    let number = u32::from_str_radix(number, 16).ok()?;
    let mut hexadecimal = |name: &str| {
        let value = words.next()?.strip_prefix(name)?;
        u64::from_str_radix(value, 16).ok()
    };
    let inode = hexadecimal("ino:")?;
    // The kernel's own way to write a device.
    let device = u32::try_from(hexadecimal("sdev:")?).ok()?;
    let device = rustix::fs::makedev(device >> 20, device & 0xf_ffff);
    let events = u32::try_from(hexadecimal("mask:")?).ok()?;
    Some((number, (device, inode), events))
}

/// The paths of files, as far as they are found, below the root of a process.
fn find(pid: u32, mut wanted: BTreeSet<File>) -> BTreeMap<File, String> {
    let mut found = BTreeMap::new();
    let mut look = |path: &str| {
        let metadata = fs::symlink_metadata(format!("/proc/{pid}/root{path}")).ok()?;
        let file = (metadata.dev(), metadata.ino());
        if wanted.remove(&file) {
            found.insert(file, path.to_owned());
        }
        Some((wanted.is_empty(), metadata.is_dir()))
    };
    let mut near = VecDeque::new();
    for path in known(pid) {
        if let Some((true, _)) = look(&path) {
            return found;
        }
        near.push_back(path);
    }
    near.push_back("/".to_owned());
    let (mut seen, mut looked) = (BTreeSet::new(), 0);
    while let Some(directory) = near.pop_front() {
        if NOWHERE.contains(&directory.as_str()) || !seen.insert(directory.clone()) {
            continue;
        }
        let entries = fs::read_dir(format!("/proc/{pid}/root{directory}"));
        for entry in entries.into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = format!("{}/{name}", directory.trim_end_matches('/'));
            looked += 1;
            match look(&path) {
                Some((true, _)) => return found,
                Some((false, true)) => near.push_back(path),
                _ => {}
            }
            if looked > MAX_LOOKED_AT {
                return found;
            }
        }
    }
    found
}

/// Where a process is and what it has open, with all directories around that; the deepest first.
fn known(pid: u32) -> BTreeSet<String> {
    let links = proc::numbers(pid, "fd").unwrap_or_default();
    let links = links.into_iter().map(|number| format!("fd/{number}"));
    let paths = links.chain(["cwd".to_owned(), "exe".to_owned()]);
    let mut known = BTreeSet::new();
    for path in paths.filter_map(|link| proc::link(pid, &link).ok()) {
        let mut path = path.as_str();
        while path.starts_with('/') && path.len() > 1 && known.insert(path.to_owned()) {
            path = path.rsplit_once('/').map_or("", |(directory, _)| directory);
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_are_parsed() {
        let value = "1f ino:a4 sdev:fe00003 mask:2000002 ignored_mask:0 fhandle-bytes:8";
        let file = (rustix::fs::makedev(0xfe, 3), 0xa4);
        assert_eq!(parse("inotify wd", value), Some((0x1f, file, 0x200_0002)));
        assert_eq!(parse("inotify wd", "1 ino:x"), None);
        assert_eq!(parse("fanotify ino", value), None);
    }
}
