//! The layers of a pod's root: what the pod writes is kept in a layer of its own, above a directory of the host that
//! stays as it is (overlayfs).
//!
//! Mounts that a process has from before its user namespace are locked: nobody may look below them. So the kernel
//! lets a layer lie above a directory only if nothing is mounted in it. Where something is, as in most hosts' root,
//! the directory is made anew in memory, and each of its entries is laid by itself:
//!
//! | entry | becomes |
//! | --- | --- |
//! | directory without mounts in it | a layer above it |
//! | directory with mounts in it | the same again |
//! | directory that cannot be read | an empty one |
//! | link | the same link |
//! | file | the file, read-only |
//!
//! What the pod is to have instead of a file of the host's is in the upper layer from the beginning, and what it is not
//! to see is removed there, before anybody is in the pod. It is not covered by a mount,
//! which the pod's superuser could take away.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::fs::{self, DirEntry, File, FileType, Permissions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{
    CWD, FileType as Kind, Mode, OFlags, StatVfsMountFlags, mknodat, openat, statvfs,
};
use rustix::mount::{MountFlags, mount, mount_bind, mount_remount};

use crate::error::{Doing, Error};

/// Where the host's root is on the stage.
pub const HOST: &str = "/host";

/// How deep directories are made anew.
const DEPTH_MAX: u32 = 16;

/// See above.
pub struct Layers {
    /// Where something is mounted on the host.
    mounted: Vec<PathBuf>,
    /// What is not shown.
    hidden: Vec<PathBuf>,
    /// What is the pod's own from the beginning.
    replaced: Option<Replaced>,
    /// How many there are.
    count: u32,
    /// Links that were laid by themselves.
    links: Links,
}

/// What links lead to that a pod has because the host has them, by the paths where they are. The pod has not made
/// these.
pub type Links = HashMap<PathBuf, PathBuf>;

/// A file that the pod has instead of the host's, if that has one.
pub struct Replaced {
    /// Where the host has it.
    pub path: PathBuf,
    /// What is in it.
    pub text: String,
}

impl Layers {
    /// Where their upper parts are on the stage.
    pub const PLACE: &str = "/layers";

    /// The file beside them that tells of [`Links`]: paths from the pod's root and targets, each ended by a NUL.
    pub const LINKS: &str = "links";

    /// None yet; where the host has mounts is read now, while it is the root.
    pub fn of_host(hidden: Vec<PathBuf>, replaced: Option<Replaced>) -> io::Result<Layers> {
        let table = fs::read("/proc/self/mountinfo")?;
        Ok(Layers {
            mounted: mount_points(&table),
            hidden,
            replaced,
            count: 0,
            links: Links::new(),
        })
    }

    /// Lays the host's directory `lower` at `target`, without the entries `left_out`, for which there are empty
    /// directories.
    pub fn lay(&mut self, lower: &Path, target: &Path, left_out: &[&str]) -> Result<(), Error> {
        if left_out.is_empty() && !self.has_mounts_in(lower) {
            return self.lay_above(lower, target);
        }
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        let mounted = mount("tmpfs", target, "tmpfs", flags, c"mode=0755");
        mounted.doing("cannot have a root in memory")?;
        self.lay_entries(lower, target, left_out, DEPTH_MAX)
    }

    /// Writes down which links were laid, when all were, below the pod's root.
    pub fn note_links(&self, root: &Path) -> io::Result<()> {
        let mut bytes = Vec::new();
        for (path, target) in &self.links {
            for part in [path.strip_prefix(root).map_err(io::Error::other)?, target] {
                bytes.extend_from_slice(part.as_os_str().as_bytes());
                bytes.push(0);
            }
        }
        fs::write(Path::new(Self::PLACE).join(Self::LINKS), bytes)
    }

    /// What was written there, in the directory of layers that is open.
    pub fn read_links(layers: impl AsFd) -> io::Result<Links> {
        let file = openat(layers, Self::LINKS, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut bytes = Vec::new();
        File::from(file).read_to_end(&mut bytes)?;
        Ok(links_of(&bytes))
    }

    fn has_mounts_in(&self, directory: &Path) -> bool {
        self.mounted.iter().any(|point| point != directory && point.starts_with(directory))
    }

    /// Lays the entries of a directory each by itself.
    fn lay_entries(
        &mut self,
        lower: &Path,
        target: &Path,
        left_out: &[&str],
        depth: u32,
    ) -> Result<(), Error> {
        let what = || format!("cannot read {}", lower.display());
        for entry in fs::read_dir(on_stage(lower)).doing(what())? {
            let entry = entry.doing(what())?;
            let (path, place) = (lower.join(entry.file_name()), target.join(entry.file_name()));
            let is_replaced = self.replaced.as_ref().is_some_and(|it| it.path == path);
            if self.hidden.contains(&path) || is_replaced {
                continue;
            }
            if left_out.iter().any(|name| entry.file_name() == *name) {
                fs::create_dir(&place).doing(format!("cannot make {}", path.display()))?;
                continue;
            }
            match entry.file_type() {
                // It has gone meanwhile.
                Err(_) => {}
                Ok(kind) => self.lay_entry(&entry, kind, (&path, &place), depth)?,
            }
        }
        match &self.replaced {
            Some(replaced) if replaced.path.parent() == Some(lower) => replaced
                .lay(lower, target)
                .doing(format!("cannot make {}", replaced.path.display())),
            _ => Ok(()),
        }
    }

    fn lay_entry(
        &mut self,
        entry: &DirEntry,
        kind: FileType,
        (path, place): (&Path, &Path),
        depth: u32,
    ) -> Result<(), Error> {
        let what = || format!("cannot have {} in the pod", path.display());
        if kind.is_symlink() {
            let target = fs::read_link(entry.path()).doing(what())?;
            symlink(&target, place).doing(what())?;
            self.links.insert(place.to_owned(), target);
            return Ok(());
        }
        if kind.is_dir() {
            let mode = entry.metadata().map_or(0o755, |found| found.mode() & 0o7777);
            fs::create_dir(place).doing(what())?;
            fs::set_permissions(place, Permissions::from_mode(mode)).doing(what())?;
            if fs::read_dir(entry.path()).is_err() {
                return Ok(());
            }
            return match self.has_mounts_in(path) {
                true if depth > 0 => self.lay_entries(path, place, &[], depth - 1),
                true => Ok(()),
                false => match self.lay_above(path, place) {
                    // Some file systems can be no layer (overlayfs, "Upper and Lower"): the pod is without them.
                    Err(Error::Host { error, .. }) if is_unfit(&error) => Ok(()),
                    other => other,
                },
            };
        }
        // A device would be none in the pod, and a socket is somebody's of the host.
        if kind.is_file() && !kind.is_socket() && File::open(entry.path()).is_ok() {
            File::create(place).doing(what())?;
            return bind_to_read(&entry.path(), place).doing(what());
        }
        Ok(())
    }

    /// Lays one directory, in which nothing is mounted.
    fn lay_above(&mut self, lower: &Path, target: &Path) -> Result<(), Error> {
        let what = || format!("cannot lay a layer above {}", lower.display());
        self.count += 1;
        let layer = Path::new(Self::PLACE).join(self.count.to_string());
        let (upper, work) = (layer.join("upper"), layer.join("work"));
        for directory in [&layer, &upper, &work] {
            fs::create_dir(directory).doing(what())?;
        }
        copy_mode(&on_stage(lower), &upper).doing(what())?;
        let hidden: Vec<_> = self.hidden.iter().filter(|path| path.starts_with(lower)).collect();
        for path in hidden {
            hide(path, lower, &upper).doing(format!("cannot hide {}", path.display()))?;
        }
        if let Some(replaced) = self.replaced.as_ref().filter(|it| it.path.starts_with(lower)) {
            replaced
                .lay(lower, &upper)
                .doing(format!("cannot make {}", replaced.path.display()))?;
        }
        // The host's path is not for the pod, which sees these options: the lower directory is the current one.
        let before = std::env::current_dir().doing(what())?;
        std::env::set_current_dir(on_stage(lower)).doing(what())?;
        let options =
            format!("lowerdir=.,upperdir={},workdir={},userxattr", upper.display(), work.display());
        let laid = CString::new(options).map_err(io::Error::from).and_then(|options| {
            let flags = MountFlags::NODEV;
            Ok(mount("overlay", target, "overlay", flags, options.as_c_str())?)
        });
        std::env::set_current_dir(before).doing(what())?;
        laid.doing(what())
    }
}

impl Replaced {
    /// Makes the file in a directory `upper` that is, or will be laid above, the host's directory `lower`.
    fn lay(&self, lower: &Path, upper: &Path) -> io::Result<()> {
        let rest = self.path.strip_prefix(lower).map_err(io::Error::other)?;
        if !make_parents(rest, lower, upper)? {
            return Ok(());
        }
        let file = upper.join(rest);
        fs::write(&file, &self.text)?;
        fs::set_permissions(file, Permissions::from_mode(0o644))
    }
}

/// A path of the host's as it is on the stage.
pub fn on_stage(path: &Path) -> PathBuf {
    Path::new(HOST).join(path.strip_prefix("/").unwrap_or(path))
}

fn is_unfit(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidInput
}

fn copy_mode(from: &Path, to: &Path) -> io::Result<()> {
    let mode = fs::metadata(from)?.mode() & 0o7777;
    fs::set_permissions(to, Permissions::from_mode(mode))
}

/// Removes a path below `lower` in its upper layer: there is a device with the number 0 then (overlayfs, "whiteouts").
fn hide(path: &Path, lower: &Path, upper: &Path) -> io::Result<()> {
    let rest = path.strip_prefix(lower).map_err(io::Error::other)?;
    // What is not there, or is out of reach, is hidden.
    if rest.as_os_str().is_empty() || fs::symlink_metadata(on_stage(path)).is_err() {
        return Ok(());
    }
    // What is below a link is hidden where it is.
    if !make_parents(rest, lower, upper)? {
        return Ok(());
    }
    let name = upper.join(rest);
    Ok(mknodat(CWD, &name, Kind::CharacterDevice, Mode::empty(), 0)?)
}

/// Makes the directories of a path below `lower` in its upper layer; false if one of them is a link.
fn make_parents(rest: &Path, lower: &Path, upper: &Path) -> io::Result<bool> {
    let (mut there, mut here) = (on_stage(lower), upper.to_owned());
    for part in rest.parent().into_iter().flat_map(Path::iter) {
        (there, here) = (there.join(part), here.join(part));
        let is_there = match fs::symlink_metadata(&there) {
            Ok(found) if found.is_symlink() => return Ok(false),
            Ok(_) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        match fs::create_dir(&here) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other if is_there => other.and_then(|()| copy_mode(&there, &here))?,
            other => other?,
        }
    }
    Ok(true)
}

/// Has a file of the host's at a place, to be read. What else the host's mount forbids stays forbidden.
fn bind_to_read(from: &Path, place: &Path) -> io::Result<()> {
    mount_bind(from, place)?;
    let found = statvfs(place)?.f_flag;
    let kept = [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ];
    let kept = kept.iter().filter(|(flag, _)| found.contains(*flag));
    let flags = kept.fold(MountFlags::BIND | MountFlags::RDONLY, |all, (_, flag)| all | *flag);
    Ok(mount_remount(place, flags, c"")?)
}

/// Where something is mounted, of `/proc/PID/mountinfo`: the fifth word of each line, with `\040` for a space.
pub fn mount_points(table: &[u8]) -> Vec<PathBuf> {
    let lines = table.split(|&byte| byte == b'\n');
    let fifth = lines.filter_map(|line| line.split(|&byte| byte == b' ').nth(4));
    fifth.map(path_of_word).collect()
}

/// A path in that table.
pub fn path_of_word(word: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(&unescaped(word)))
}

fn links_of(bytes: &[u8]) -> Links {
    let parts: Vec<_> = bytes.split(|&byte| byte == 0).collect();
    let path = |bytes| PathBuf::from(OsStr::from_bytes(bytes));
    parts.chunks_exact(2).map(|pair| (path(pair[0]), path(pair[1]))).collect()
}

fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    let mut rest = word;
    while let Some((&first, after)) = rest.split_first() {
        let digits =
            after.get(..3).filter(|digits| digits.iter().all(|it| (b'0'..=b'7').contains(it)));
        match digits.filter(|_| first == b'\\') {
            Some(digits) => {
                let value = digits.iter().fold(0_u32, |sum, it| sum * 8 + u32::from(it - b'0'));
                text.push(value as u8);
                rest = &after[3..];
            }
            None => {
                text.push(first);
                rest = after;
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_told_by_path_and_target() {
        let expected = [("bin", "usr/bin"), ("usr/lib/a", "")];
        let expected: Links = expected.map(|(path, to)| (path.into(), to.into())).into();
        assert_eq!(links_of(b"bin\0usr/bin\0usr/lib/a\0\0"), expected);
        assert_eq!(links_of(b""), Links::new());
        assert_eq!(links_of(b"odd"), Links::new());
    }

    #[test]
    fn mount_points_are_read() {
        let table = b"22 1 254:0 / / rw - ext4 /dev/vda rw\n\
            23 22 0:5 / /a\\040b\\134c rw,nosuid shared:2 - proc proc rw\n\
            24 22 0:6 / /dev rw - devtmpfs d rw\n";
        let expected = ["/", "/a b\\c", "/dev"].map(PathBuf::from);
        assert_eq!(mount_points(table), expected);
        let mounted = mount_points(table);
        let layers =
            Layers { mounted, hidden: Vec::new(), replaced: None, count: 0, links: Links::new() };
        let check = |path: &str, expected| {
            assert_eq!(layers.has_mounts_in(Path::new(path)), expected, "{path}");
        };
        check("/", true);
        check("/dev", false);
        check("/de", false);
        check("/a b\\c", false);
        check("/usr", false);
    }
}
