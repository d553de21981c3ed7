//! Directories of the host in the guest (its root, the current directory, volumes), and the file
//! server that shares them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use files::{Owners, Share};
use protocol::mounts::{FileSystem, Kind, Mount};
use provision::caches::Held;
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{getgid, getgroups, getuid};
use session::homes::{self, Wide};
use spec::Spec;
use vmm::{SharedDirectories, SharedDirectory};

use super::caches;
use super::error::Error;
use super::image_disk::{self, ImageDisk, OVERLAY};
use super::{owners, paravirtual};
use crate::helper::helper;
use crate::say::say;
use serde::{Deserialize, Serialize};

/// The drivers that mounting them takes, in the order in which they are loaded.
const DRIVERS: &[&str] = &["fuse", "virtiofs"];

/// The same by 9p.
pub const NINE_DRIVERS: &[&str] = &["9pnet", "9pnet_virtio", "9p"];

/// What a guest mounts its modules by.
const MODULES: &str = "modules";

/// The kind of process that serves files.
pub const KIND: &str = "serve-files";

/// How long the guest may believe what it knows of a directory that only the host changes, if anybody,
/// in milliseconds.
pub const ROOT_VALIDITY: u64 = 60_000;

/// The same of one that both change.
const SHARED_VALIDITY: u64 = 1000;

/// The same of one that only the guest changes, if anybody.
pub const EXCLUSIVE_VALIDITY: u64 = 24 * 3600 * 1000;

/// Where nobody's own files are.
const OF_THE_KERNEL: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];

/// Which directory is the guest's root.
#[derive(Debug, Clone, Copy)]
pub enum Root<'a> {
    /// None: it comes from somewhere else.
    Elsewhere,
    /// This one.
    Here(&'a spec::Directory),
    /// This one, which `biv image build` has made.
    Image(&'a Path),
    /// Layers on a disk, which come later.
    Layers,
    /// The host's own, with the current directory, which can be written.
    Host,
}

impl Root<'_> {
    /// Whether the guest looks like the host.
    fn is_the_hosts(self) -> bool {
        match self {
            Self::Elsewhere | Self::Image(_) | Self::Layers => false,
            Self::Here(directory) => {
                directory.path.canonicalize().is_ok_and(|path| path == Path::new("/"))
            }
            Self::Host => true,
        }
    }
}

/// Whether credentials are shown, which lie below a directory that is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Secrets {
    /// The user has named the directory.
    Shown,
    /// It is shared by default.
    Hidden,
}

/// Which directories a guest has.
#[derive(Debug, Default)]
pub struct Directories {
    mounts: Vec<Mount>,
    shared: Vec<SharedDirectory>,
    /// By which file system the guest mounts them all.
    pub file_system: FileSystem,
    /// The guest looks like the host, to who started it.
    pub is_the_host: bool,
    /// Where the command starts.
    pub working_directory: Option<PathBuf>,
    /// Those that are not there by default: volumes and caches, as a description has volumes.
    pub volumes: Vec<spec::Mount>,
    /// The caches among them, which nobody removes while these are held.
    pub held: Vec<Held>,
    /// The root, if that is not one of them.
    pub image_disk: Option<ImageDisk>,
    /// One of them has the kernel's modules.
    pub modules: Option<PathBuf>,
    /// The list of devices whose drivers are among them.
    pub devices: Option<PathBuf>,
}

impl Directories {
    /// What the options name.
    pub fn open(spec: &Spec, root: Root<'_>) -> Result<Self, Error> {
        let is_the_host = root.is_the_hosts();
        let mut directories = Self { is_the_host, ..Self::default() };
        let named = caches::volumes(spec, is_the_host)?;
        match root {
            Root::Elsewhere | Root::Layers => {}
            Root::Here(spec::Directory { path, writable, suid, owners, other: _ }) => {
                directories.add_root(path, *writable, Secrets::Shown)?;
                if let Some(SharedDirectory { share, .. }) = directories.shared.first_mut() {
                    share.allows_privileges = *suid;
                    share.owners = owners::of(&share.directory, *owners, path)?;
                }
            }
            Root::Image(path) => {
                directories.add_root(path, false, Secrets::Shown)?;
                // An image is never changed: another that is built is another directory.
                directories.shared.iter_mut().for_each(|root| {
                    root.share.owners = Owners::Recorded;
                    root.share.is_exclusive = true;
                    root.share.validity_milliseconds = EXCLUSIVE_VALIDITY;
                });
            }
            Root::Host => {
                let here = matches!(&spec.root, spec::Root::Host(host) if host.here);
                directories.add_host(here, &named)?;
            }
        }
        if directories.is_the_host {
            directories.working_directory = here(&named);
            if directories.working_directory.is_none() {
                say_not_shared();
            }
            if spec.process.user.is_some() && !getuid().is_root() {
                say("what you may not read is not shown to other users of the machine, its root \
                     included: directories are empty, and files are refused");
            }
        }
        // A place in another volume comes after that, which would cover it.
        let mut volumes: Vec<_> = named.iter().collect();
        volumes.sort_by_key(|volume| volume.guest.components().count());
        let user = caches::user(spec);
        volumes.into_iter().try_for_each(|volume| directories.add_volume(volume, user))?;
        directories.volumes = named;
        Ok(directories)
    }

    /// Adds what a description names; a cache belongs to the command's user, if that is known.
    fn add_volume(&mut self, volume: &spec::Mount, user: Option<(u32, u32)>) -> Result<(), Error> {
        let validity = match volume.read_only {
            _ if volume.exclusive => EXCLUSIVE_VALIDITY,
            true => ROOT_VALIDITY,
            false => SHARED_VALIDITY,
        };
        // It is made if it is a cache.
        let held = caches::hold(volume)?;
        let is_cache = held.is_some();
        self.held.extend(held);
        let writes = !volume.read_only;
        let mut share = self.share(&volume.host, writes, validity, Secrets::Shown)?;
        if let Some(user) = user.filter(|_| is_cache && !self.is_the_host) {
            share.guest_owner = user;
        }
        share.allows_privileges = volume.suid;
        share.allows_unknown_kinds = volume.anyfs;
        share.is_exclusive = volume.exclusive;
        share.is_written_back = volume.writeback;
        share.without_attributes = volume.noxattr;
        if volume.owners {
            share.owners = owners::of(&share.directory, true, &volume.host)?;
        }
        self.add(Kind::Directory, &volume.guest, share)
    }

    /// The root is a disk of that name.
    pub fn set_root_disk(&mut self, name: String, is_read_only: bool) {
        self.mounts.insert(0, Mount::new(Kind::DiskRoot, name, "/", is_read_only));
    }

    /// The root is the same as a disk of this machine's, or layers on one: nobody has to serve it. No directory may be
    /// added after this.
    pub fn set_image_disk(&mut self, disk: ImageDisk, spec: &Spec) {
        let (kind, source) = disk.mount(paravirtual::image_device(spec));
        let mut mounts = self.mounts.iter_mut();
        match mounts.find(|mount| mount.kind == Kind::OverlaidRoot) {
            Some(root) => {
                self.shared.retain(|directory| directory.tag.as_bytes() != root.source);
                (root.kind, root.source) = (kind, source);
            }
            None => self.mounts.insert(0, Mount::new(kind, source, "/", true)),
        }
        self.image_disk = Some(disk);
    }

    /// The guest's kernel can load the modules in a directory. All others are there already.
    pub fn add_modules(&mut self, kind: Kind, path: PathBuf, share: Share) {
        self.mounts.push(Mount::new(kind, MODULES, "/lib/modules", true));
        // It comes first: one that a restored machine lacks is one of the user's.
        self.shared.insert(0, SharedDirectory { tag: MODULES.to_owned(), share });
        self.modules = Some(path);
    }

    /// What the guest's kernel needs to mount them, in the order in which it is loaded.
    pub fn drivers(&self) -> Vec<&'static str> {
        let (has_shares, has_disk) = (!self.is_empty(), self.image_disk.is_some());
        // Modules need none, and if another needs one, they have it.
        let has_files = self.shared.iter().any(|directory| directory.tag != MODULES);
        let shares = match self.file_system {
            FileSystem::VirtioFs => DRIVERS,
            FileSystem::Nine => NINE_DRIVERS,
        };
        let shares = shares.iter().filter(|_| has_shares);
        let disk = image_disk::DRIVERS.iter().filter(|_| has_disk);
        let overlay = [&OVERLAY].into_iter().filter(|_| has_files || has_disk);
        shares.chain(disk).chain(overlay).copied().collect()
    }

    fn add_root(&mut self, root: &Path, is_writable: bool, secrets: Secrets) -> Result<(), Error> {
        let (kind, validity) = match is_writable {
            true => (Kind::Root, SHARED_VALIDITY),
            false => (Kind::OverlaidRoot, ROOT_VALIDITY),
        };
        let share = self.share(root, is_writable, validity, secrets)?;
        self.add(kind, Path::new("/"), share)?;
        Ok(())
    }

    /// The host's root, without what is nobody's business, and the current directory to write to, unless a
    /// volume is there instead; not where that is all of the user's files, or all of the host's, unless
    /// `anything` may be.
    fn add_host(&mut self, anything: bool, volumes: &[spec::Mount]) -> Result<(), Error> {
        let here = here(volumes);
        let wide = here.as_ref().and_then(|here| Wide::of(here, &homes::own(home())));
        let is_root = wide == Some(Wide::Root);
        self.add_root(Path::new("/"), anything && is_root, Secrets::Hidden)?;
        let Some(here) = here.filter(|here| !is_covered(here, volumes)) else { return Ok(()) };
        if let Some(wide) = wide.filter(|_| !anything) {
            say(&format!(
                "{} {}: what is written there stays in the machine's memory and is lost with it \
                 (--here keeps it; so does a directory below)",
                here.display(),
                wide.describe()
            ));
        } else if !is_root {
            let share = self.share(&here, true, SHARED_VALIDITY, Secrets::Hidden)?;
            self.add(Kind::Directory, &here, share)?;
        }
        Ok(())
    }

    /// The current directory, to be read, where it is on the host; nothing of it if that is all of the user's
    /// files.
    pub fn add_here_to_read(&mut self) -> Result<(), Error> {
        let Some(here) = here(&[]).filter(|_| !self.is_the_host) else { return Ok(()) };
        if let Some(wide) = Wide::of(&here, &homes::own(home())) {
            let (here, is) = (here.display(), wide.describe());
            say(&format!("{here} {is}: the machine does not see it (--volume shows a directory)"));
            return Ok(());
        }
        let share = self.share(&here, false, ROOT_VALIDITY, Secrets::Hidden)?;
        self.add(Kind::Directory, &here, share)?;
        // Volumes may be below it, and are mounted after it.
        let first = self.mounts.iter().position(|mount| mount.kind == Kind::Directory);
        self.mounts[first.unwrap_or(0)..].rotate_right(1);
        self.working_directory = Some(here);
        Ok(())
    }

    fn add(&mut self, kind: Kind, place: &Path, share: Share) -> Result<(), Error> {
        check_kind(place, &share)?;
        let tag = format!("biv{}", self.shared.len());
        let at = place.as_os_str().as_bytes();
        self.mounts.push(Mount::new(kind, tag.as_str(), at, !share.is_writable));
        self.shared.push(SharedDirectory { tag, share });
        Ok(())
    }

    /// A directory. Whoever runs us is, in the guest, whoever runs the command there.
    fn share(
        &self,
        path: &Path,
        is_writable: bool,
        validity: u64,
        secrets: Secrets,
    ) -> Result<Share, Error> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open(path, flags, Mode::empty())
            .map_err(|errno| Error::Open { path: path.to_owned(), error: errno.into() })?;
        let caller = (getuid().as_raw(), getgid().as_raw());
        Ok(Share {
            directory,
            is_writable,
            allows_privileges: false,
            allows_unknown_kinds: false,
            hides_secrets: secrets == Secrets::Hidden,
            validity_milliseconds: validity,
            host_owner: caller,
            guest_owner: if self.is_the_host { caller } else { (0, 0) },
            owners: Owners::OfHost,
            is_exclusive: false,
            is_written_back: false,
            without_attributes: false,
            may_be_another: false,
            is_nine: false,
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

    /// Is what the guest has of them, and they have not, to be written before the machine's end?
    pub fn are_written_back(&self) -> bool {
        self.shared.iter().any(|directory| directory.share.is_written_back)
    }

    /// Why a guest that has mounted them cannot go on elsewhere, if it cannot. What it calls its files by over 9p is
    /// not saved.
    pub fn obstacle(&self) -> Option<&'static str> {
        let is_saved = self.is_empty() || self.file_system == FileSystem::VirtioFs;
        (!is_saved).then_some(
            "its kernel has no virtio-fs, and has mounted directories of the host by 9p, which a \
             snapshot cannot contain",
        )
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.shared.len()
    }

    /// The list for the guest's init.
    pub fn list(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let file_system = self.file_system;
        for mount in &self.mounts {
            Mount { file_system, ..mount.clone() }.encode(&mut bytes);
        }
        bytes
    }

    /// Start who serves them, for a machine; nothing if there are none. A process has those whose users are the host's,
    /// and another those of each namespace.
    pub fn serve(self, confined: bool) -> Result<Option<SharedDirectories>, Error> {
        if self.is_empty() {
            return Ok(None);
        }
        let (mut servers, mut controls) = (Vec::new(), Vec::new());
        let mut server_of = |share: &Share| -> Result<usize, Error> {
            let namespace = match share.owners {
                Owners::OfHost | Owners::Recorded => None,
                Owners::OfNamespace(namespace) => Some(namespace),
            };
            if let Some(server) = servers.iter().position(|other| *other == namespace) {
                return Ok(server);
            }
            let (control, theirs) = files::client::pair()?;
            let server = start_server(theirs, namespace.is_some(), confined)?;
            if let Some(namespace) = namespace {
                namespace.admit(control.as_fd(), server.id()).map_err(Error::Users)?;
            }
            servers.push(namespace);
            controls.push(control);
            Ok(controls.len() - 1)
        };
        let is_nine = self.file_system == FileSystem::Nine;
        let directories: Result<_, Error> = self
            .shared
            .into_iter()
            .map(|mut directory| {
                directory.share.is_nine = is_nine;
                Ok((server_of(&directory.share)?, directory))
            })
            .collect();
        let directories = directories?;
        Ok(Some(SharedDirectories { controls, directories }))
    }
}

/// Whether the kind of the directory's file system may be shown; `place` is where it was to be.
pub fn check_kind(place: &Path, share: &Share) -> Result<(), Error> {
    let failed = |errno: rustix::io::Errno| Error::from(io::Error::from(errno));
    let kind = files::kinds::Kind::of(&share.directory).map_err(failed)?;
    match kind.may_be_shown(share.allows_unknown_kinds) {
        true => Ok(()),
        false => Err(Error::FileSystem { place: place.to_owned(), kind }),
    }
}

/// The directory where the user is, unless that is gone, or in the host's kernel and no volume is there.
fn here(volumes: &[spec::Mount]) -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let is_kernels = OF_THE_KERNEL.iter().any(|place| here.starts_with(place));
    (is_covered(&here, volumes) || !is_kernels).then_some(here)
}

/// Whether a volume is there in the guest, or above.
fn is_covered(place: &Path, volumes: &[spec::Mount]) -> bool {
    volumes.iter().any(|volume| place.starts_with(&volume.guest))
}

/// The user's home directory as the environment has it.
fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from)
}

/// The command starts elsewhere than the user is, and what it writes does not stay.
fn say_not_shared() {
    let here = match std::env::current_dir() {
        Ok(here) => here.display().to_string(),
        Err(_) => "the current directory, which is gone,".to_owned(),
    };
    say(&format!(
        "{here} is not shared with the machine, which has its own {}: the command starts \
         in /, and what it \
         writes is gone with the machine; --volume HOST:GUEST shares a directory",
        OF_THE_KERNEL.join(", ")
    ));
}

/// What a file server is started with.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServeFiles {
    /// The user's home directory.
    #[serde(with = "spec::text::option")]
    pub home: Option<PathBuf>,
    /// It is the superuser of a namespace, whose users who has started it maps.
    #[serde(default)]
    pub is_superuser: bool,
    /// It may make the system calls only that it needs.
    pub confined: bool,
}

/// A file server, which ends when the other end of its standard input is closed.
fn start_server(socket: OwnedFd, is_superuser: bool, confined: bool) -> io::Result<Child> {
    // It has none of our environment.
    let order = ServeFiles { home: home(), is_superuser, confined };
    helper(KIND, &order)?.stdin(Stdio::from(socket)).spawn()
}
