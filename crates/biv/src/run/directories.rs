//! Directories of the host's in the guest: its root, the current directory, volumes; and the process
//! that serves them.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::str::FromStr;

use files::Share;
use protocol::mounts::{Kind, Mount};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{getgid, getgroups, getuid};
use vmm::{SharedDirectories, SharedDirectory};

use super::Error;
use crate::cli::Run;
use crate::helper::helper;

/// The drivers that mounting them takes, in the order in which they are loaded.
pub const DRIVERS: &[&str] = &["fuse", "virtiofs", "overlay"];

/// The verb by which `biv` starts itself as a file server.
pub const SERVER_VERB: &str = "serve-files";

/// How long the guest may believe what it knows of a directory that only the host changes, if anybody,
/// in milliseconds.
const ROOT_VALIDITY: u64 = 60_000;

/// The same of one that both change.
const SHARED_VALIDITY: u64 = 1000;

/// Where nobody's own files are.
const OF_THE_KERNEL: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];

/// `--volume HOST:GUEST[:ro]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// The directory on the host.
    pub host: PathBuf,
    /// Where it is in the guest.
    pub guest: PathBuf,
    /// It is only read.
    pub is_read_only: bool,
}

impl FromStr for Volume {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<_> = text.split(':').collect();
        let (host, guest, options) = match parts[..] {
            [host, guest] => (host, guest, "rw"),
            [host, guest, options] => (host, guest, options),
            _ => return Err("a volume is HOST:GUEST or HOST:GUEST:ro".to_owned()),
        };
        let is_read_only = match options {
            "ro" => true,
            "rw" => false,
            other => return Err(format!("a volume is ro or rw, not {other:?}")),
        };
        if host.is_empty() || !guest.starts_with('/') || guest == "/" {
            let text = "HOST is a directory, GUEST an absolute path other than / (see --root)";
            return Err(text.to_owned());
        }
        Ok(Self { host: host.into(), guest: guest.into(), is_read_only })
    }
}

/// Which directory is the guest's root.
#[derive(Debug, Clone, Copy)]
pub enum Root<'a> {
    /// None: it comes from somewhere else.
    Elsewhere,
    /// This one.
    Here(&'a Path),
    /// This one, which `biv image build` has made.
    Image(&'a Path),
    /// The host's own, with the current directory, which can be written.
    Host,
}

/// Which directories a guest has.
#[derive(Debug, Default)]
pub struct Directories {
    mounts: Vec<Mount>,
    shared: Vec<SharedDirectory>,
    /// The guest looks like the host, to who started it.
    pub is_the_host: bool,
    /// Where the command starts.
    pub working_directory: Option<PathBuf>,
}

impl Directories {
    /// What the options name.
    pub fn open(arguments: &Run, root: Root<'_>) -> Result<Self, Error> {
        let mut directories = Self::default();
        match root {
            Root::Elsewhere => {}
            Root::Here(path) => directories.add_root(path, arguments, false)?,
            Root::Image(path) => {
                directories.add_root(path, arguments, false)?;
                directories.shared.iter_mut().for_each(|root| root.share.has_owners = true);
            }
            Root::Host => directories.add_root(Path::new("/"), arguments, true)?,
        }
        // A place in another volume comes after that, which would cover it.
        let mut volumes: Vec<_> = arguments.volume.iter().collect();
        volumes.sort_by_key(|volume| volume.guest.components().count());
        for volume in volumes {
            let validity = if volume.is_read_only { ROOT_VALIDITY } else { SHARED_VALIDITY };
            let share = directories.share(&volume.host, !volume.is_read_only, validity)?;
            directories.add(Kind::Directory, &volume.guest, share);
        }
        Ok(directories)
    }

    /// The root is a disk of that name.
    pub fn set_root_disk(&mut self, name: String, is_read_only: bool) {
        let (source, place) = (name.into_bytes(), b"/".to_vec());
        self.mounts.insert(0, Mount { kind: Kind::DiskRoot, source, place, is_read_only });
    }

    fn add_root(&mut self, root: &Path, arguments: &Run, with_here: bool) -> Result<(), Error> {
        let is_writable = arguments.root_rw;
        let is_host = std::fs::canonicalize(root).is_ok_and(|path| path == Path::new("/"));
        self.is_the_host = is_host;
        let (kind, validity) = match is_writable {
            true => (Kind::Root, SHARED_VALIDITY),
            false => (Kind::OverlaidRoot, ROOT_VALIDITY),
        };
        let share = self.share(root, is_writable, validity)?;
        self.add(kind, Path::new("/"), share);
        if !is_host {
            return Ok(());
        }
        let here = std::env::current_dir();
        // A volume at the current directory, or above it, is there instead.
        let is_covered =
            |here: &PathBuf| arguments.volume.iter().any(|volume| here.starts_with(&volume.guest));
        let is_kernels = |here: &PathBuf| OF_THE_KERNEL.iter().any(|place| here.starts_with(place));
        let here = match here {
            Ok(here) if is_covered(&here) || !is_kernels(&here) => here,
            Ok(here) => {
                say_not_shared(&here.display().to_string());
                return Ok(());
            }
            Err(_) => {
                say_not_shared("the current directory, which is gone,");
                return Ok(());
            }
        };
        if with_here && !is_covered(&here) && here != Path::new("/") {
            let share = self.share(&here, true, SHARED_VALIDITY)?;
            self.add(Kind::Directory, &here, share);
        }
        self.working_directory = Some(here);
        Ok(())
    }

    fn add(&mut self, kind: Kind, place: &Path, share: Share) {
        let tag = format!("biv{}", self.shared.len());
        self.mounts.push(Mount {
            kind,
            source: tag.clone().into_bytes(),
            place: place.as_os_str().as_bytes().to_vec(),
            is_read_only: !share.is_writable,
        });
        self.shared.push(SharedDirectory { tag, share });
    }

    /// A directory. Whoever runs us is, in the guest, whoever runs the command there.
    fn share(&self, path: &Path, is_writable: bool, validity: u64) -> Result<Share, Error> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open(path, flags, Mode::empty())
            .map_err(|errno| Error::Open { path: path.to_owned(), error: errno.into() })?;
        let caller = (getuid().as_raw(), getgid().as_raw());
        Ok(Share {
            directory,
            is_writable,
            validity_milliseconds: validity,
            host_owner: caller,
            guest_owner: if self.is_the_host { caller } else { (0, 0) },
            has_owners: false,
        })
    }

    /// Whom the command runs as: nobody special, or who started the machine that looks like the host.
    pub fn user(&self) -> String {
        match self.is_the_host {
            true => format!("{}:{}", getuid().as_raw(), getgid().as_raw()),
            false => String::new(),
        }
    }

    /// The groups that it is in besides its own, where the guest's files are those that they give a right to.
    pub fn groups(&self) -> Option<Vec<u32>> {
        let groups = self.is_the_host.then(getgroups)?;
        // Who cannot be told them does without.
        let groups = groups.unwrap_or_default();
        Some(groups.into_iter().map(|group| group.as_raw()).collect())
    }

    /// Are there any?
    pub fn is_empty(&self) -> bool {
        self.shared.is_empty()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.shared.len()
    }

    /// The list for the guest's init.
    pub fn list(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.mounts.iter().for_each(|mount| mount.encode(&mut bytes));
        bytes
    }

    /// Start who serves them, for a machine; nothing if there are none.
    pub fn serve(self, confined: bool) -> Result<Option<SharedDirectories>, Error> {
        if self.is_empty() {
            return Ok(None);
        }
        let (control, theirs) = files::client::pair()?;
        start_server(theirs, confined)?;
        Ok(Some(SharedDirectories { control, directories: self.shared }))
    }
}

/// The command starts elsewhere, and what it writes does not stay.
fn say_not_shared(here: &str) {
    super::say(&format!(
        "{here} is not shared with the machine, which has its own {}: the command starts in /, and what it \
         writes is gone with the machine; --volume HOST:GUEST shares a directory",
        OF_THE_KERNEL.join(", ")
    ));
}

/// A file server, which ends when the other end of its standard input is closed.
fn start_server(socket: OwnedFd, confined: bool) -> io::Result<()> {
    let mut command = helper(SERVER_VERB, confined);
    command.current_dir("/").env_clear().stdin(Stdio::from(socket)).spawn()?;
    Ok(())
}

/// Variables of the environment that mean the same in a guest that looks like the host.
const ENVIRONMENT: [&str; 8] =
    ["HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TZ", "USER"];

/// What of the environment a command in such a guest gets.
pub fn environment() -> Vec<Vec<u8>> {
    let is_kept = |name: &OsStr| {
        let name = name.as_bytes();
        name.starts_with(b"LC_") || ENVIRONMENT.iter().any(|kept| kept.as_bytes() == name)
    };
    let pair = |(name, value): (OsString, OsString)| {
        [name.into_vec(), b"=".to_vec(), value.into_vec()].concat()
    };
    std::env::vars_os().filter(|(name, _)| is_kept(name)).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_two_places_and_how() {
        let volume: Volume = "src:/usr/src:ro".parse().unwrap();
        let expected = Volume { host: "src".into(), guest: "/usr/src".into(), is_read_only: true };
        assert_eq!(volume, expected);
        assert!(!"/a:/b".parse::<Volume>().unwrap().is_read_only);
        for wrong in ["", "/a", ":/b", "/a:b", "/a:/", "/a:/b:rx", "/a:/b:ro:x"] {
            assert!(wrong.parse::<Volume>().is_err(), "{wrong}");
        }
    }
}
