//! The registry: a directory for each domain; and another of the same form for each pod. It tells which names are
//! taken, which domains live, and which have left files behind.
//!
//! 1. A domain lives as long as a process holds the lock on `lock` in its directory. The kernel
//!    releases the lock however the process ends, so nothing relies on a process number or on a
//!    socket.
//! 2. A process creates and removes directories only while it holds the lock on `.lock` beside
//!    them, which it does for a moment. So no process removes a directory that another has created
//!    and not yet locked.
//! 3. Every access is relative to an open directory that only this user may write.
//! 4. A running machine's process can remove nothing (`host::confine`). The next command that looks
//!    at the registry removes what is not to be kept ([`Registry::sweep`]).

use std::io;
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, CWD, Dir, FlockOperation, Mode, OFlags, RenameFlags, flock, fstat, mkdirat, openat,
    renameat_with, unlinkat,
};
use rustix::io::Errno;

use serde::{Deserialize, Serialize};
use spec::Name;

use super::admission::{Demand, Limits, Refusal};
use super::ended::End;
use super::files;
use super::kept::{Kept, Kind};
use super::networks::{self, Networks};
use super::pod;
use super::record::Record;

/// How long between two tries.
const PAUSE: Duration = Duration::from_millis(2);

/// The largest record that is read.
const RECORD_MAX_BYTES: u64 = 1 << 20;

/// The longest limits, or demand, that are read.
const ADMISSION_MAX_BYTES: u64 = 4 << 10;

/// Where networks between domains, and between pods, have their directories: a control socket, a lock and messages.
const NETWORKS: &str = ".networks";

/// Where pods have their directories.
const PODS: &str = ".pods";

/// Generated names that are tried.
const NAMES_TRIED: u32 = 32;

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Why the registry cannot be used, or a name in it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory of the registry.
    #[error(
        "cannot use {path} for the state of domains and pods: {error}; set XDG_RUNTIME_DIR to a \
         directory of yours", path = path.display()
    )]
    Place {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
    /// One with that name lives.
    #[error("{0} {1} already exists and is running; choose another name")]
    Running(Kind, Name),
    /// One with that name has ended, and is kept.
    #[error(
        "{0} {1} already exists and has ended; remove it with `{program} rm {1}`",
        program = .0.program()
    )]
    Ended(Kind, Name),
    /// How much domains may have.
    #[error(
        "cannot read the limits of paravirtual domains: {0}; set all of them again with `biv xen \
         admission`"
    )]
    Limits(io::Error),
    /// It does not fit.
    #[error("the domain is not admitted: {0}; `biv xen admission` shows and changes the limits")]
    Refused(#[from] Refusal),
    /// There is none with that name.
    #[error("no {0} {1}; `{program} ps --all` lists the {0}s", program = .0.program())]
    Unknown(Kind, String),
    /// Its supervisor was to start it again.
    #[error("domain {0} was stopped")]
    Stopped(Name),
    /// Others know it by its name.
    #[error(
        "domain {0} cannot be renamed while it runs: it is paravirtual, in a network that \
         it shares, or started with --restart"
    )]
    KeepsName(Name),
    /// It lives, so it cannot be removed.
    #[error(
        "{0} {1} is running; stop it first with `{program} stop {1}`, or use --force",
        program = .0.program()
    )]
    Alive(Kind, Name),
    /// One of its files.
    #[error("cannot use the files of {kind} {name}: {error}")]
    Files {
        /// What it is.
        kind: Kind,
        /// Its name.
        name: Name,
        /// What is wrong with them.
        error: io::Error,
    },
}

/// All domains of one user, or all pods.
#[derive(Debug)]
pub struct Registry<R = Record> {
    path: PathBuf,
    directory: OwnedFd,
    records: PhantomData<fn() -> R>,
}

/// Who starts a domain again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StartedBy {
    /// Whoever asks for it.
    User,
    /// Its supervisor, unless somebody has stopped it.
    Supervisor,
}

/// A name that this process owns as long as this value lives, with its directory.
#[derive(Debug)]
pub struct Claim {
    /// The name.
    pub name: Name,
    /// Its directory.
    pub directory: OwnedFd,
    /// The directory's path, for messages.
    pub path: PathBuf,
    _lock: OwnedFd,
}

/// A domain or a pod as its directory has it.
#[derive(Debug)]
pub struct Entry<R = Record> {
    /// Its name.
    pub name: Name,
    /// Its directory.
    pub directory: OwnedFd,
    /// Its record, if that can be read.
    pub record: Option<R>,
    /// Whether it lives.
    pub alive: bool,
}

impl Registry {
    /// The registry of this user, in the place that the environment names.
    pub fn open() -> Result<Registry, Error> {
        Self::at(&Self::place())
    }

    /// Where it is.
    fn place() -> PathBuf {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty());
        let uid = rustix::process::getuid().as_raw();
        match runtime {
            Some(runtime) => PathBuf::from(runtime).join("bivouac"),
            None if is_ours(Path::new(&format!("/run/user/{uid}"))) => {
                PathBuf::from(format!("/run/user/{uid}/bivouac"))
            }
            None if uid == 0 => PathBuf::from("/run/bivouac"),
            None => PathBuf::from(format!("/tmp/bivouac-{uid}")),
        }
    }

    /// The registry in this directory, which is made if it is not there.
    pub fn at(path: &Path) -> Result<Registry, Error> {
        Self::at_any(path)
    }
}

impl Registry {
    /// A file of the registry's own; so many bytes of it at most.
    pub(crate) fn read(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        files::read(&self.directory, name, most)
    }

    /// Replace such a file.
    pub(crate) fn write(&self, name: &str, contents: &[u8]) -> io::Result<()> {
        files::replace(&self.directory, name, contents)
    }

    /// The directory of the keeper, if there is one.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn keeper(&self) -> Result<OwnedFd, Errno> {
        openat(&self.directory, files::KEEPER, DIRECTORY, Mode::empty())
    }

    /// Become the keeper: its directory, and the lock on it, which lasts as long as the descriptor. None if another
    /// process is.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn become_keeper(&self) -> Result<Option<(OwnedFd, OwnedFd)>, Error> {
        let _changes = self.lock()?;
        let fail = |error: Errno| Error::Place { path: self.path.clone(), error: error.into() };
        match mkdirat(&self.directory, files::KEEPER, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(fail(error)),
        }
        let directory = self.keeper().map_err(fail)?;
        let lock = files::create(&directory, files::LOCK).map_err(fail)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some((directory, lock))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(fail(error)),
        }
    }

    /// Be the keeper no longer, and leave nothing behind, unless domains live that `needs_keeper` is true of; whether
    /// that is so. No domain comes to be meanwhile.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn leave_keeping(&self, needs_keeper: impl Fn(&Entry) -> bool) -> Result<bool, Error> {
        let _changes = self.lock()?;
        if self.list()?.iter().any(|entry| entry.alive && needs_keeper(entry)) {
            return Ok(false);
        }
        let fail = |error: Errno| Error::Place { path: self.path.clone(), error: error.into() };
        let directory = self.keeper().map_err(fail)?;
        for name in [files::SOCKET, files::LOCK] {
            let _ = unlinkat(&directory, name, AtFlags::empty());
        }
        unlinkat(&self.directory, files::KEEPER, AtFlags::REMOVEDIR).map_err(fail)?;
        Ok(true)
    }

    /// How much paravirtual domains may have.
    ///
    /// # Errors
    ///
    /// The host's, or the file is none of ours.
    pub fn limits(&self) -> io::Result<Limits> {
        match self.read(files::ADMISSION, ADMISSION_MAX_BYTES) {
            Ok(text) => Ok(serde_json::from_slice(&text)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Limits::default()),
            Err(error) => Err(error),
        }
    }

    /// Let other limits hold, from the next domain on. Those that run go on.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn set_limits(&self, limits: &Limits) -> io::Result<()> {
        self.write(files::ADMISSION, &serde_json::to_vec(limits)?)
    }

    /// Whether there is room for one more domain, which asks for that if it is paravirtual. Nobody else claims a name
    /// meanwhile.
    fn admit(&self, wanted: Option<&Demand>) -> Result<(), Error> {
        let Some(wanted) = wanted else { return Ok(()) };
        let limits = self.limits().map_err(Error::Limits)?;
        if limits == Limits::default() {
            return Ok(());
        }
        Ok(limits.admit(*wanted, self.demand()?)?)
    }

    /// The most that all paravirtual domains that live may have together.
    pub fn demand(&self) -> Result<Demand, Error> {
        let living = self.list()?.into_iter().filter(|entry| entry.alive);
        Ok(living.filter_map(|entry| read_demand(&entry.directory).ok()).sum())
    }

    /// The directory of a network between domains, which is made if it is not there. No domain is called like the one
    /// that these are in.
    pub fn network(&self, name: &Name) -> Result<OwnedFd, Error> {
        let fail = |error: Errno| Error::Place { path: self.path.clone(), error: error.into() };
        let enter = |place: &OwnedFd, name: &str| {
            match mkdirat(place, name, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
            openat(place, name, DIRECTORY, Mode::empty())
        };
        let all = enter(&self.directory, NETWORKS).map_err(fail)?;
        enter(&all, name.as_str()).map_err(fail)
    }

    /// Makes a domain's directory, under `name` or under a generated one, if there is room for what it asks for.
    pub fn claim(&self, name: Option<&Name>, demand: Option<&Demand>) -> Result<Claim, Error> {
        let _changes = self.lock()?;
        self.sweep_locked();
        self.admit(demand)?;
        let claim = self.make_one(name)?;
        self.note_demand(&claim, demand)?;
        Ok(claim)
    }

    /// Takes the directory of a domain that has ended, for one of the same name: what it has left but its log and its
    /// messages is removed. If its supervisor starts it again, nobody may have stopped it; whoever stops it marks it
    /// first and then looks whether it lives, so one of both notices the other.
    ///
    /// # Errors
    ///
    /// There is none, or it runs, or there is no room for what it asks for, or the host's.
    pub fn claim_again(
        &self,
        name: &Name,
        demand: Option<&Demand>,
        by: StartedBy,
    ) -> Result<Claim, Error> {
        let _changes = self.lock()?;
        let entry = self.find(name.as_str())?;
        if entry.alive || (by == StartedBy::User && entry.is_supervised()) {
            return Err(Error::Running(Kind::Domain, name.clone()));
        }
        self.admit(demand)?;
        let claim = self.take(name)?;
        if by == StartedBy::Supervisor && entry.is_marked_stopped() {
            return Err(Error::Stopped(name.clone()));
        }
        const KEPT: [&str; 5] =
            [files::LOCK, files::LOGS[0], files::LOGS[1], files::MESSAGES, files::SUPERVISOR];
        let is_kept = |file: &[u8]| KEPT.iter().any(|kept| file == kept.as_bytes());
        let is_mark =
            |file: &[u8]| by == StartedBy::Supervisor && file == files::STOPPED.as_bytes();
        let emptied = empty(&claim.directory, |file| is_kept(file) || is_mark(file));
        emptied.map_err(|error| self.files_of(name, error.into()))?;
        self.note_demand(&claim, demand)?;
        Ok(claim)
    }

    fn note_demand(&self, claim: &Claim, demand: Option<&Demand>) -> Result<(), Error> {
        let Some(demand) = demand else { return Ok(()) };
        let fail = |error| self.files_of(&claim.name, error);
        let demand = serde_json::to_vec(demand).map_err(|error| fail(error.into()))?;
        files::replace(&claim.directory, files::DEMAND, &demand).map_err(fail)
    }

    /// Gives a domain another name, whether it runs or not. A paravirtual one that runs keeps its own, by which the
    /// keeper and its router know it, and so do one by whose name others of its network find it and one that a
    /// supervisor starts again.
    ///
    /// # Errors
    ///
    /// There is none, or one that keeps its name; the new name is taken; or the host's.
    pub fn rename(&self, from: &Name, to: &Name) -> Result<(), Error> {
        let _changes = self.lock()?;
        let entry = self.find(from.as_str())?;
        let is_xen = |record: &Record| record.spec.machine.board == spec::Board::Xen;
        let is_resident = || !matches!(super::places::of_machine(&entry.directory), Ok(None));
        let is_known_elsewhere =
            entry.alive && (entry.record.as_ref().is_none_or(is_xen) || is_resident());
        if is_known_elsewhere || entry.is_supervised() {
            return Err(Error::KeepsName(from.clone()));
        }
        let flags = RenameFlags::NOREPLACE;
        match renameat_with(&self.directory, from.as_str(), &self.directory, to.as_str(), flags) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => Err(self.why_taken(to)),
            Err(error) => Err(self.files_of(from, error.into())),
        }
    }
}

impl Registry<pod::Record> {
    /// The registry of this user's pods: a directory beside those of domains, whose name is none that a domain can
    /// have. A domain and a pod may have the same name, for no verb takes both.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn of_pods() -> Result<Self, Error> {
        let domains = Registry::open()?;
        Self::at_any(&domains.path.join(PODS))
    }

    /// Makes a pod's directory, under `name` or under a generated one.
    ///
    /// # Errors
    ///
    /// The host's, or the name is taken.
    pub fn claim(&self, name: Option<&Name>) -> Result<Claim, Error> {
        let _changes = self.lock()?;
        self.sweep_locked();
        self.make_one(name)
    }

    /// The networks of this user's pods.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn networks(&self) -> Result<Networks, networks::Error> {
        Networks::at(&self.path.join(NETWORKS))
    }

    /// Gives a name back, with all that is in its directory. Nobody else has removed it: it was locked.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn discard(&self, claim: Claim) -> Result<(), Error> {
        let _changes = self.lock()?;
        let gone = self.delete(&claim.directory, &claim.name);
        gone.map_err(|error| self.files_of(&claim.name, error.into()))
    }
}

impl<R: Kept> Registry<R> {
    /// The registry in this directory, which is made if it is not there.
    fn at_any(path: &Path) -> Result<Self, Error> {
        let fail = |error: Errno| Error::Place { path: path.to_owned(), error: error.into() };
        match mkdirat(CWD, path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(fail(error)),
        }
        let directory = openat(CWD, path, DIRECTORY, Mode::empty()).map_err(fail)?;
        let found = fstat(&directory).map_err(fail)?;
        if found.st_uid != rustix::process::geteuid().as_raw() || found.st_mode & 0o022 != 0 {
            let error = io::Error::other("it belongs to another user, or others may write to it");
            return Err(Error::Place { path: path.to_owned(), error });
        }
        Ok(Registry { path: path.to_owned(), directory, records: PhantomData })
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is wrong with the files of one.
    fn files_of(&self, name: &Name, error: io::Error) -> Error {
        Error::Files { kind: R::KIND, name: name.clone(), error }
    }

    fn make_one(&self, name: Option<&Name>) -> Result<Claim, Error> {
        if let Some(name) = name {
            return self.make(name)?.ok_or_else(|| self.why_taken(name));
        }
        for _ in 0..NAMES_TRIED {
            let name = Name::generated(files::random());
            if let Some(claim) = self.make(&name)? {
                return Ok(claim);
            }
        }
        Err(Error::Place { path: self.path.clone(), error: io::ErrorKind::AlreadyExists.into() })
    }

    /// Makes the directory if there is none.
    fn make(&self, name: &Name) -> Result<Option<Claim>, Error> {
        let fail = |error: Errno| self.files_of(name, error.into());
        match mkdirat(&self.directory, name.as_str(), Mode::RWXU) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(None),
            Err(error) => return Err(fail(error)),
        }
        self.take(name).map(Some)
    }

    /// Takes a directory in which no domain lives.
    fn take(&self, name: &Name) -> Result<Claim, Error> {
        let fail = |error: Errno| self.files_of(name, error.into());
        let directory =
            openat(&self.directory, name.as_str(), DIRECTORY, Mode::empty()).map_err(fail)?;
        let lock = files::create(&directory, files::LOCK).map_err(fail)?;
        // Somebody who lists domains may just be looking.
        files::until_locked(&lock).map_err(fail)?;
        let path = self.path.join(name.as_str());
        Ok(Claim { name: name.clone(), directory, path, _lock: lock })
    }

    fn why_taken(&self, name: &Name) -> Error {
        match self.entry(name) {
            Ok(entry) if !entry.alive => Error::Ended(R::KIND, name.clone()),
            _ => Error::Running(R::KIND, name.clone()),
        }
    }

    /// The domain of that name.
    pub fn find(&self, name: &str) -> Result<Entry<R>, Error> {
        let unknown = || Error::Unknown(R::KIND, name.to_owned());
        let name: Name = name.parse().map_err(|_| unknown())?;
        match self.entry(&name) {
            Ok(entry) => Ok(entry),
            Err(Errno::NOENT) => Err(unknown()),
            Err(error) => Err(self.files_of(&name, error.into())),
        }
    }

    /// All domains, in the order of their names.
    pub fn list(&self) -> Result<Vec<Entry<R>>, Error> {
        let mut names = self.names()?;
        names.sort();
        // One that is being removed is not there any more.
        Ok(names.iter().filter_map(|name| self.entry(name).ok()).collect())
    }

    fn names(&self) -> Result<Vec<Name>, Error> {
        let fail = |error: Errno| Error::Place { path: self.path.clone(), error: error.into() };
        let directory = Dir::read_from(&self.directory).map_err(fail)?;
        let entries = directory.filter_map(Result::ok);
        Ok(entries.filter_map(|entry| entry.file_name().to_str().ok()?.parse().ok()).collect())
    }

    fn entry(&self, name: &Name) -> Result<Entry<R>, Errno> {
        let directory = openat(&self.directory, name.as_str(), DIRECTORY, Mode::empty())?;
        // The lock before the record: one that has let go of it has written all of its record.
        let alive = is_locked(&directory);
        let record = read_record(&directory, name).ok();
        Ok(Entry { name: name.clone(), directory, record, alive })
    }

    /// Removes what is left of domains that have ended and are not kept.
    pub fn sweep(&self) -> Result<(), Error> {
        let _changes = self.lock()?;
        self.sweep_locked();
        Ok(())
    }

    fn sweep_locked(&self) {
        for entry in self.list().unwrap_or_default() {
            let is_kept = entry.record.as_ref().is_some_and(R::is_kept);
            if !entry.alive && !is_kept {
                // Whoever comes next may have more luck.
                let _ = self.delete(&entry.directory, &entry.name);
            }
        }
    }

    /// Removes a domain that has ended.
    pub fn remove(&self, name: &Name) -> Result<(), Error> {
        let _changes = self.lock()?;
        let entry = self.find(name.as_str())?;
        if entry.alive {
            return Err(Error::Alive(R::KIND, name.clone()));
        }
        let fail = |error: Errno| self.files_of(name, error.into());
        self.delete(&entry.directory, &entry.name).map_err(fail)
    }

    fn delete(&self, directory: &OwnedFd, name: &Name) -> Result<(), Errno> {
        empty(directory, |_| false)?;
        unlinkat(&self.directory, name.as_str(), AtFlags::REMOVEDIR)
    }

    /// The lock that a process needs to create and remove directories.
    fn lock(&self) -> Result<OwnedFd, Error> {
        let fail = |error: Errno| Error::Place { path: self.path.clone(), error: error.into() };
        let lock = files::create(&self.directory, ".lock").map_err(fail)?;
        files::until_locked(&lock).map_err(fail)?;
        Ok(lock)
    }
}

impl<R: Kept> Entry<R> {
    /// Waits until the domain has ended.
    pub fn wait(&self) -> io::Result<()> {
        let lock = files::open(&self.directory, files::LOCK)?;
        loop {
            match flock(&lock, FlockOperation::LockShared) {
                Err(Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }

    /// The same, but not for longer than `span`; whether it has ended.
    pub fn wait_for(&self, span: Duration) -> bool {
        let start = Instant::now();
        while is_locked(&self.directory) {
            if start.elapsed() >= span {
                return false;
            }
            std::thread::sleep(PAUSE * 5);
        }
        true
    }

    /// Whether it lives now.
    #[must_use]
    pub fn lives(&self) -> bool {
        is_locked(&self.directory)
    }

    /// What has become of one that does not live.
    #[must_use]
    pub fn end(&self) -> End {
        match self.record.as_ref().and_then(Kept::ending) {
            Some(ending) if ending.error.is_some() => End::Failed,
            Some(ending) => End::Ended(ending.status),
            None => End::Killed,
        }
    }

    /// Whether there is something to stop: it lived when it was found, or its supervisor is about to start it again.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.alive || self.is_supervised()
    }

    /// Whether a supervisor runs it, which starts it again when it ends (`biv run --restart`).
    #[must_use]
    pub fn is_supervised(&self) -> bool {
        holds(&self.directory, files::SUPERVISOR)
    }

    /// Becomes its supervisor, as long as the descriptor lasts.
    ///
    /// # Errors
    ///
    /// It has one, or the host's.
    pub fn supervise(&self) -> io::Result<OwnedFd> {
        let lock = files::create(&self.directory, files::SUPERVISOR)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(lock)
    }

    /// Says that it is not to be started again by its supervisor.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn mark_stopped(&self) -> io::Result<()> {
        Ok(files::create(&self.directory, files::STOPPED).map(drop)?)
    }

    /// Whether somebody has said that.
    #[must_use]
    pub fn is_marked_stopped(&self) -> bool {
        files::open(&self.directory, files::STOPPED).is_ok()
    }

    /// Its record now.
    pub fn read_again(&mut self) {
        self.alive = is_locked(&self.directory);
        self.record = read_record(&self.directory, &self.name).ok();
    }
}

/// Removes all files of a directory but those that are to be kept.
fn empty(directory: &OwnedFd, is_kept: impl Fn(&[u8]) -> bool) -> Result<(), Errno> {
    for file in Dir::read_from(directory)?.filter_map(Result::ok) {
        let file = file.file_name();
        if file != c"." && file != c".." && !is_kept(file.to_bytes()) {
            unlinkat(directory, file, AtFlags::empty())?;
        }
    }
    Ok(())
}

/// Whether a domain lives in this directory.
fn is_locked(directory: &OwnedFd) -> bool {
    holds(directory, files::LOCK)
}

/// Whether a process has a lock on this file.
fn holds(directory: &OwnedFd, name: &str) -> bool {
    let Ok(lock) = files::open(directory, name) else { return false };
    flock(&lock, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
}

fn read_demand(directory: &OwnedFd) -> io::Result<Demand> {
    Ok(serde_json::from_slice(&files::read(directory, files::DEMAND, ADMISSION_MAX_BYTES)?)?)
}

/// The record in a directory of this name, which may have had another one when the record was written.
fn read_record<R: Kept>(directory: &OwnedFd, name: &Name) -> io::Result<R> {
    let mut record = R::parse(&files::read(directory, files::RECORD, RECORD_MAX_BYTES)?)?;
    record.set_name(name.clone());
    Ok(record)
}

fn is_ours(path: &Path) -> bool {
    let found = rustix::fs::lstat(path);
    found.is_ok_and(|found| {
        found.st_uid == rustix::process::geteuid().as_raw()
            && found.st_mode & 0o170_022 == 0o040_000
    })
}
