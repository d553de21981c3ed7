//! Warm starts: the default guest, and guests like it, do not boot each time. The first machine of
//! a kind leaves a snapshot in the cache, at the moment at which its init is up and has had no
//! order; the next ones start from that snapshot.
//!
//! 1. *What differs between two machines that share a snapshot is sent to the init*: what to mount,
//!    what to run, the time, and a random seed. Everything else is part of the [`Key`].
//! 2. *A snapshot has no name before it is whole.* A machine that ends too early leaves none. A
//!    helper process links the file to its name, because the machine's process may name no file,
//!    and signs it ([`crate::seal`]), because the machine's process has no secret. `biv` uses no
//!    snapshot that is not signed for this kind of machine, and none that another user may write.
//! 3. *No program of a guest comes near one.* It is taken before any program of the user's runs,
//!    and then its file is closed. A machine that starts from it can only read it: a guest that
//!    owns its machine's process changes nothing for later machines.
//! 4. *A snapshot that does not fit is no error*: the machine boots. (The host's processor may have
//!    changed.)
//! 5. *Machines do not share for long what a boot decides*: above all the addresses at which the
//!    kernel has placed itself (KASLR). A snapshot is used for a day ([`AGE_MAX_SECONDS`]); then a
//!    machine boots and leaves another. A user who wants addresses of his own boots (`--cold`).

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::SystemTime;

use rustix::fs::{CWD, Mode, OFlags, openat};
use serde::{Deserialize, Serialize};
use spec::{
    Device, Engine, Life, Network, Process, Root, Scheduling, Spec, UserExecution, UserNetwork,
    Watch,
};
use vmm::snapshot::Snapshot;

use super::paravirtual::is_paravirtual;
use crate::domain::Domain;
use crate::helper::helper;
use crate::inspect;
use crate::seal::{self, Purpose, Sealing};
use crate::snapshot::{Finish, Note};
use hub::Conversation;

/// Where snapshots are, below the cache.
const DIRECTORY: &str = "warm";

/// How many are kept, of which each has some 100 MiB.
const KEPT_MAX: usize = 4;

/// For how long one is used.
const AGE_MAX_SECONDS: u64 = 24 * 60 * 60;

/// The variable with which a machine boots, whatever there is.
const OFF: &str = "BIVOUAC_COLD";

/// The kind of machine that this is, if those of its kind can start warm: as much of its description as it has from
/// its start on. Whatever is not named here tells kinds apart.
pub fn kind(spec: &Spec) -> Option<Spec> {
    let is_off = spec.boot.cold || std::env::var_os(OFF).is_some();
    let mut kind = spec.clone();
    // What its init is told, and what the process outside does.
    kind.boot.refresh = false;
    (kind.root, kind.mounts, kind.directory) = (Root::default(), Vec::new(), None);
    kind.caches = Vec::new();
    (kind.process, kind.hostname, kind.sandbox) = (Process::default(), None, false);
    // What is known to others has a console.
    kind.life = Life { detached: Domain::is_wanted(&spec.life), ..Life::default() };
    kind.engine.user_execution = UserExecution::default();
    kind.engine.no_seccomp = false;
    kind.machine.scheduling = Scheduling::default();
    kind.machine.shares = None;
    kind.networks = Some(match kind.networks.take().unwrap_or_default().first() {
        None if spec.networks.is_some() => Vec::new(),
        None => vec![Network::User(UserNetwork::default())],
        // Its card and its kernel's parameters have an address that no other has.
        Some(network) if network.shared().is_some() => return None,
        Some(Network::User(network)) => {
            vec![Network::User(UserNetwork { publish: Vec::new(), ..network.clone() })]
        }
        // The interface may be another's when the next one starts.
        Some(Network::Tap(_) | Network::Vif(_)) => return None,
    });
    // It is packed into the memory of such a machine.
    if is_paravirtual(spec) && spec.root == Root::Busybox {
        kind.root = Root::Busybox;
    }
    // One with a process 1 of its own may reboot, for which it takes a kernel.
    let is_whole = spec.boot.init.is_some();
    let is_usual = !is_whole
        && kind.devices.iter().all(|device| matches!(device, Device::Entropy(_)))
        && !matches!(spec.root, Root::Disk(_));
    // What is watched or measured is so from its start on.
    let is_watched = spec.watch != Watch::default() || inspect::is_used(&spec.watch);
    let is_measured = kind.engine != Engine::default();
    (is_usual && !is_off && !is_watched && !is_measured).then_some(kind)
}

/// What tells one kind of machine from others.
#[derive(Debug, Default)]
pub struct Key {
    parts: blake3::Hasher,
}

impl Key {
    /// One more part of it.
    pub fn add(&mut self, part: impl AsRef<[u8]>) {
        let part = part.as_ref();
        self.parts.update(&(part.len() as u64).to_le_bytes());
        self.parts.update(part);
    }

    /// A file, as it is now.
    pub fn add_file(&mut self, path: &Path) -> io::Result<()> {
        let found = fs::metadata(path)?;
        self.add(path.as_os_str().as_encoded_bytes());
        for number in [found.dev(), found.ino(), found.size()] {
            self.add(number.to_le_bytes());
        }
        self.add(found.mtime().to_le_bytes());
        self.add(found.mtime_nsec().to_le_bytes());
        Ok(())
    }

    fn path(&self) -> Option<PathBuf> {
        let name = format!("{}.snapshot", self.parts.finalize().to_hex());
        provision::trusted(Path::new(DIRECTORY).join(name)).ok()
    }
}

/// A file that is to become a snapshot, and who is to sign and name it then ([`seal::seal_warm_start`]).
#[derive(Debug)]
pub struct Unnamed {
    file: File,
    /// The way there.
    signer: UnixStream,
}

impl Unnamed {
    /// Empty, below this directory.
    fn new(directory: &Path, name: &str) -> Result<Self, Error> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file: File = openat(CWD, directory, flags, Mode::RUSR | Mode::WUSR)?.into();
        let (signer, theirs) = UnixStream::pair()?;
        let made = Made { at: now() };
        let text = serde_json::to_string(&made).map_err(io::Error::from)?;
        let (state, name) = (seal::state_directory()?, name.to_owned());
        let order = Sealing { state, text, name, in_background: false };
        let mut command = helper(seal::KIND, &order)?;
        command.current_dir(directory);
        command.stdin(OwnedFd::from(theirs)).stdout(file.try_clone()?).stderr(Stdio::null());
        // It goes to the background at once: a confined process cannot ask after its children.
        command.spawn()?.wait()?;
        Ok(Self { file, signer })
    }

    /// The file, and what has it signed and named.
    pub fn into_parts(self) -> (File, Finish) {
        let Self { file, signer } = self;
        let finish = move || {
            rustix::io::write(&signer, &[1])?;
            let mut answer = [0];
            match rustix::io::read(&signer, &mut answer)? {
                1 if answer == [1] => Ok(()),
                _ => Err(io::Error::other("cannot sign it")),
            }
        };
        (file, Box::new(finish))
    }
}

/// What the label of a warm start says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Made {
    /// When it was made, in seconds since 1970.
    at: u64,
}

impl Made {
    /// Whether it is to be used now.
    fn is_fresh(self, now: u64) -> bool {
        now.checked_sub(self.at).is_some_and(|age| age <= AGE_MAX_SECONDS)
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Why a machine boots, though others of its kind need not.
#[derive(Debug, thiserror::Error)]
enum Error {
    /// The cache, or a process.
    #[error(transparent)]
    Host(#[from] io::Error),
    /// The key.
    #[error(transparent)]
    Seal(#[from] seal::Error),
}

impl From<rustix::io::Errno> for Error {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Host(errno.into())
    }
}

/// How a machine starts.
#[derive(Debug, Default)]
pub enum Start {
    /// It boots.
    #[default]
    Cold,
    /// It boots, and leaves a snapshot in this file.
    First(Unnamed),
    /// It goes on from there, with the conversation that its init was in.
    GoOn(Box<Snapshot>, Option<Conversation>),
}

/// How a machine of that kind starts.
pub fn start(key: &Key) -> Start {
    let Some(path) = key.path() else { return Start::Cold };
    match find(&path) {
        Ok(start) => start,
        Err(error) => {
            tracing::debug!(%error, "no warm start");
            Start::Cold
        }
    }
}

/// What is there is of no use.
pub fn forget(key: &Key) {
    if let Some(path) = key.path() {
        // It may have gone.
        let _ = fs::remove_file(path);
    }
}

fn find(path: &Path) -> Result<Start, Error> {
    let directory = path.parent().unwrap_or(path);
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    make_private(directory)?;
    match open(path, OFlags::NOFOLLOW | OFlags::NONBLOCK) {
        Ok(file) => {
            if let Some(start) = go_on(file, &name) {
                return Ok(start);
            }
            // Another biv's, another's, too old, or damaged.
            fs::remove_file(path)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    tidy(directory);
    Ok(Start::First(Unnamed::new(directory, &name)?))
}

/// Makes the directory if there is none; no other user may write to it.
fn make_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let directory = open(path, OFlags::DIRECTORY)?;
    let found = directory.metadata()?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("the directory of warm starts belongs to another user"));
    }
    match found.mode() & 0o022 {
        0 => Ok(()),
        _ => directory.set_permissions(Permissions::from_mode(0o700)),
    }
}

fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(openat(CWD, path, flags, Mode::empty())?.into())
}

fn go_on(file: File, name: &str) -> Option<Start> {
    let found = file.metadata().ok()?;
    if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o022 != 0 {
        return None;
    }
    let snapshot = Snapshot::open(file).ok()?;
    let label = seal::read(snapshot.label(), Purpose::WarmStart(name), &snapshot.digest());
    let made: Made = serde_json::from_slice(label.text).ok().filter(|_| label.is_ours)?;
    if !made.is_fresh(now()) {
        return None;
    }
    snapshot.check_host().ok()?;
    let note = Note::parse(snapshot.note())?;
    tracing::debug!("going on from a snapshot");
    Some(Start::GoOn(Box::new(snapshot), note.conversation))
}

/// Makes room for another: removes those that were made longest ago.
fn tidy(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    let age = |path: PathBuf| Some((fs::metadata(&path).ok()?.modified().ok()?, path));
    let mut all: Vec<_> = entries.filter_map(|entry| age(entry.ok()?.path())).collect();
    all.sort();
    let surplus = (all.len() + 1).saturating_sub(KEPT_MAX);
    for (_, path) in all.into_iter().take(surplus) {
        // Machines that go on from it have it open.
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_the_init_is_told_makes_no_other_kind() {
        let same = [
            Spec { root: Root::Image("web".into()), ..Spec::default() },
            Spec { sandbox: true, ..Spec::default() },
            Spec { directory: Some("/tmp".into()), ..Spec::default() },
        ];
        for spec in same {
            assert_eq!(kind(&spec), kind(&Spec::default()), "{spec:?}");
        }
        let mut spec = Spec::default();
        spec.process.args = vec!["true".into()];
        (spec.life.timeout, spec.engine.user_execution) =
            (Some(Duration::MAX), UserExecution::Direct);
        assert_eq!(kind(&spec), kind(&Spec::default()));
    }

    #[test]
    fn everything_else_does() {
        let with = |change: fn(&mut Spec)| {
            let mut spec = Spec::default();
            change(&mut spec);
            kind(&spec)
        };
        let others = [
            with(|spec| spec.machine.memory /= 2),
            with(|spec| spec.boot.append = Some("a".into())),
            with(|spec| spec.networks = Some(Vec::new())),
            with(|spec| spec.life.detached = true),
            with(|spec| spec.devices.push(Device::entropy())),
        ];
        for (number, other) in others.iter().enumerate() {
            assert!(other.is_some() && *other != kind(&Spec::default()), "{other:?}");
            assert!(!others[..number].contains(other), "{other:?}");
        }
        let none = [
            with(|spec| spec.watch.statistics = true),
            with(|spec| spec.engine.interpret = true),
            with(|spec| spec.boot.cold = true),
            with(|spec| spec.devices.push(Device::debug_exit())),
        ];
        assert!(none.iter().all(Option::is_none), "{none:?}");
    }

    #[test]
    fn a_warm_start_is_used_for_a_day() {
        let made = Made { at: 1_000_000 };
        assert!(made.is_fresh(1_000_000) && made.is_fresh(1_000_000 + 24 * 3600));
        assert!(!made.is_fresh(1_000_000 + 24 * 3600 + 1));
        assert!(!made.is_fresh(999_999), "it is not made yet");
    }
}
