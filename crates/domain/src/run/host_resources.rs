//! The host resources of a domain that goes on from a snapshot. The user names them for `biv
//! restore`, or they were recorded when the domain was started, and this user's `biv` has signed
//! the record ([`crate::seal`]).
//!
//! 1. *They are part of a description* ([`HostResources::of`]), with absolute paths. So `biv` can
//!    show what an unsigned file asks for, in options that the user can type
//!    ([`HostResources::shown`]).
//! 2. *What the user names wins, one kind at a time*: root, volumes, disks, network, ports.
//! 3. *A record does not set what is for watching or debugging a machine*: consoles and traces in
//!    files, `--no-seccomp`, how code is executed.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{PathBuf, absolute};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use spec::{Device, Directory, Disk, HostRoot, Mount, Net, Published, Root, Spec};

/// The most of a snapshot's wishes that is shown.
const SHOWN_MAX_BYTES: usize = 2000;

/// See above.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostResources {
    /// Its root; that of a host is not spoken of.
    pub root: Root,
    /// The directory in which it was started, of a machine that sees that.
    #[serde(with = "spec::text::option")]
    pub directory: Option<PathBuf>,
    /// Directories that it sees besides.
    pub mounts: Vec<Mount>,
    /// Disks but that of its root.
    pub disks: Vec<Disk>,
    /// What it is connected to, if that was said.
    pub net: Option<Net>,
    /// The ports of the host's that lead to it.
    pub publish: Vec<Published>,
    /// When it is ended.
    pub timeout: Option<Duration>,
}

/// What a machine's directories are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Likeness {
    /// Its root is shared with the host.
    pub has_shared_root: bool,
    /// It sees the directory in which it was started.
    pub sees_directory: bool,
}

impl HostResources {
    /// Those that a description has.
    #[must_use]
    pub fn of(spec: &Spec) -> Self {
        let disks = spec.devices.iter().filter_map(|device| match device {
            Device::Disk(disk) => Some(disk.clone()),
            _ => None,
        });
        let networks = spec.networks.as_deref();
        Self {
            root: spec.root.clone(),
            directory: spec.directory.clone(),
            mounts: spec.mounts.clone(),
            disks: spec.boot.disk.iter().cloned().chain(disks).collect(),
            net: networks.map(|all| all.first().map_or(Net::None, spec::Network::net)),
            publish: spec.published().copied().collect(),
            timeout: spec.life.timeout,
        }
    }

    /// Puts it into a description.
    ///
    /// # Errors
    ///
    /// What makes no sense in it.
    pub fn apply(self, spec: &mut Spec) -> Result<(), String> {
        // Without a word there is none: the default is for who starts a machine of his own.
        let networks = self.net.unwrap_or(Net::None).networks(self.publish)?;
        spec.root = self.root;
        spec.directory = self.directory;
        spec.mounts = self.mounts;
        spec.devices.extend(self.disks.into_iter().map(Device::Disk));
        spec.networks = Some(networks);
        spec.life.timeout = self.timeout;
        Ok(())
    }

    /// The same from any directory.
    ///
    /// # Errors
    ///
    /// There is no current directory.
    pub fn absolute(mut self) -> io::Result<Self> {
        let root = match &mut self.root {
            Root::Directory(directory) => vec![&mut directory.path],
            Root::Disk(root) => root.disk.paths_mut().collect(),
            Root::Host(_) | Root::Image(_) | Root::Busybox => Vec::new(),
        };
        let mounts = self.mounts.iter_mut().map(|mount| &mut mount.host);
        let disks = self.disks.iter_mut().flat_map(Disk::paths_mut);
        for path in mounts.chain(disks).chain(root).chain(&mut self.directory) {
            *path = absolute(&*path)?;
        }
        Ok(self)
    }

    /// The options of `biv restore` that say this.
    #[must_use]
    pub fn words(&self) -> Vec<OsString> {
        let Self { root, directory, mounts, disks, net, publish, timeout } = self;
        let (mut words, mut flags): (Vec<OsString>, Vec<&str>) = (Vec::new(), Vec::new());
        let mut add = |option: &str, value: OsString| {
            // One word, whatever the value begins with.
            words.push([OsStr::new(option), &value].join(OsStr::new("=")));
        };
        match root {
            Root::Host(HostRoot { here, .. }) => flags.extend(here.then_some("--here")),
            Root::Directory(Directory { path, writable, suid, owners, .. }) => {
                add("--root", path.into());
                flags.extend(writable.then_some("--root-rw"));
                flags.extend(suid.then_some("--root-suid"));
                flags.extend(owners.then_some("--root-owners"));
            }
            Root::Image(name) => add("--image", name.into()),
            Root::Disk(_) | Root::Busybox => {}
        }
        directory.iter().for_each(|directory| add("--directory", directory.into()));
        mounts.iter().for_each(|mount| add("--volume", mount.word()));
        if let Root::Disk(root) = root {
            add("--root-disk", root.word());
        }
        disks.iter().for_each(|disk| add("--disk", disk.word()));
        net.iter().for_each(|net| add("--net", net.to_string().into()));
        publish.iter().for_each(|published| add("--publish", published.to_string().into()));
        let seconds = timeout.map(|timeout| timeout.as_secs_f64().to_string());
        seconds.into_iter().for_each(|seconds| add("--timeout", seconds.into()));
        words.extend(flags.into_iter().map(OsString::from));
        words
    }

    /// Whether it says where the root comes from.
    fn has_root(&self) -> bool {
        !matches!(self.root, Root::Host(_))
    }

    /// Whether it may write to a home directory that it is started in.
    fn is_here(&self) -> bool {
        matches!(&self.root, Root::Host(HostRoot { here: true, .. }))
    }

    /// This, and what it does not speak of as `recorded` has it.
    #[must_use]
    pub fn or(self, recorded: Self) -> Self {
        let here = self.is_here() || (self.directory.is_none() && recorded.is_here());
        let root = match (self.has_root(), recorded.has_root()) {
            (true, _) => self.root,
            (false, true) => recorded.root,
            (false, false) => Root::Host(HostRoot { here, ..HostRoot::default() }),
        };
        Self {
            root,
            directory: self.directory.or(recorded.directory),
            mounts: if self.mounts.is_empty() { recorded.mounts } else { self.mounts },
            disks: if self.disks.is_empty() { recorded.disks } else { self.disks },
            net: self.net.or(recorded.net),
            publish: if self.publish.is_empty() { recorded.publish } else { self.publish },
            timeout: self.timeout.or(recorded.timeout),
        }
    }

    /// What is `wanted` of the host and not spoken of here, of which some may be refused by saying so.
    #[must_use]
    pub fn missing(&self, wanted: &Self) -> Self {
        let wanted = wanted.clone();
        let is_placed = self.has_root() || self.directory.is_some();
        let is_like_the_host = !wanted.has_root();
        let has_net = self.net.is_some() || wanted.net == Some(Net::None);
        let root = match &wanted.root {
            Root::Host(_) if is_placed || self.is_here() => Root::default(),
            Root::Busybox => Root::default(),
            root if is_like_the_host || !self.has_root() => root.clone(),
            _ => Root::default(),
        };
        Self {
            root,
            directory: wanted.directory.filter(|_| is_like_the_host && !is_placed),
            mounts: if self.mounts.is_empty() { wanted.mounts } else { Vec::new() },
            disks: if self.disks.is_empty() { wanted.disks } else { Vec::new() },
            net: wanted.net.filter(|_| !has_net),
            publish: if self.publish.is_empty() { wanted.publish } else { Vec::new() },
            timeout: None,
        }
    }

    /// As it would be typed, whatever it is: a file may have made it up.
    #[must_use]
    pub fn shown(&self) -> String {
        let mut text = self.words().iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
        if text.len() > SHOWN_MAX_BYTES {
            let end = (0..=SHOWN_MAX_BYTES).rev().find(|&end| text.is_char_boundary(end));
            text.truncate(end.unwrap_or(0));
            text.push_str("...");
        }
        text
    }
}

/// A word for a shell, with what a terminal would act on shown as text.
fn quoted(word: &OsStr) -> String {
    let text = String::from_utf8_lossy(word.as_bytes());
    let is_plain = |c: char| c.is_alphanumeric() || "/._-:,=+@".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.into_owned(),
        false => format!("'{}'", text.escape_debug()),
    }
}
