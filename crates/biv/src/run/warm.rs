//! Warm starts: the default guest, and what is like it, does not boot each time. The first machine of a kind
//! leaves a snapshot of itself in the cache, at the moment at which its init is up and has been told
//! nothing; the next ones go on from there.
//!
//! 1. *What differs between two machines that share a snapshot is told to the init*: what to mount, what to
//!    run, what time it is, and randomness of its own. Everything else is part of the [`Key`].
//! 2. *A snapshot has no name before it is whole.* A machine that ends too early leaves nothing. The file
//!    server gives the name, because the machine's process can give none.
//! 3. *No guest's program comes near one.* It is taken before anything of the user's runs, its file is closed then,
//!    and who goes on from it can only read it: a guest that owns its machine's process changes nothing for
//!    those that come later.
//! 4. *A snapshot that does not fit is no error*: the machine boots. (A host's processor may have changed.)

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, openat};
use vmm::snapshot::Snapshot;

use crate::domain::hub::Conversation;
use crate::domain::snapshot::{Finish, Note};
use crate::provision;

/// Where snapshots are, below the cache.
const DIRECTORY: &str = "warm";

/// How many are kept, of which each has some 100 MiB.
const KEPT_MAX: usize = 4;

/// The variable with which a machine boots, whatever there is.
pub const OFF: &str = "BIVOUAC_COLD";

/// Whether that is set.
pub fn is_off() -> bool {
    std::env::var_os(OFF).is_some()
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

/// A file that is to become a snapshot.
#[derive(Debug)]
pub struct Unnamed {
    file: File,
    directory: File,
    name: String,
}

impl Unnamed {
    /// Empty, below this directory.
    fn new(directory: &Path, name: String) -> io::Result<Self> {
        let directory = File::open(directory)?;
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = openat(&directory, ".", flags, Mode::RUSR | Mode::WUSR)?.into();
        Ok(Self { file, directory, name })
    }

    /// The file, and what gives it its name through the file server at the other end of `control`, which is
    /// told now which one that will be: once the guest runs, it would not be believed.
    pub fn into_parts(self, control: OwnedFd) -> io::Result<(File, Finish)> {
        let Self { file, directory, name } = self;
        files::client::promise_name(control.as_fd(), file.as_fd(), directory.as_fd(), &name)?;
        let finish = move |_: &File| files::client::publish(control.as_fd());
        Ok((file, Box::new(finish)))
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
    GoOn(Snapshot, Option<Conversation>),
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

fn find(path: &Path) -> io::Result<Start> {
    match File::open(path) {
        Ok(file) => {
            if let Some(start) = go_on(file) {
                return Ok(start);
            }
            // Another biv's, or damaged.
            fs::remove_file(path)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let directory = path.parent().unwrap_or(path);
    fs::create_dir_all(directory)?;
    tidy(directory);
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    Ok(Start::First(Unnamed::new(directory, name.unwrap_or_default())?))
}

fn go_on(file: File) -> Option<Start> {
    let snapshot = Snapshot::open(file).ok()?;
    snapshot.check_host().ok()?;
    let note: Note = serde_json::from_slice(snapshot.note()).ok()?;
    tracing::debug!("going on from a snapshot");
    Some(Start::GoOn(snapshot, note.conversation))
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
