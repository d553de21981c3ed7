//! A directory of unpacked kernels, so that a kernel is unpacked once and not at every boot.
//!
//! An entry is named after the hash of the *packed* file, so a changed file never finds a stale
//! entry, and carries the length and the hash of its own content, so a damaged entry is noticed and
//! made anew. Entries appear by renaming a finished file: several machines may start at once. The
//! oldest entries beyond a small number are dropped.
//!
//! Whoever can write the directory can replace kernels; it belongs to the user who runs the machine.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use host::Buffer;

use super::bytes::{array_at, u64_at};
use super::error::Error;
use super::limits::{MAX_CACHED_KERNELS, STALE_SECONDS};

const MAGIC: [u8; 8] = *b"bivkern2";
/// What follows the kernel in an entry: magic, length, hash. At the end, so that it can be cut off.
const TRAILER_BYTES: usize = 48;
const EXTENSION: &str = "kernel";
const UNFINISHED: &str = "part";

/// An unpacked kernel, wherever its bytes are.
#[derive(Debug)]
pub enum Unpacked<'a> {
    /// It was never packed.
    Borrowed(&'a [u8]),
    /// Just unpacked.
    Owned(Vec<u8>),
    /// From the cache.
    Cached(Buffer),
}

impl Unpacked<'_> {
    /// The bytes, to be changed; a copy if they are somebody else's.
    pub fn to_mut(&mut self) -> &mut [u8] {
        if let Self::Borrowed(bytes) = self {
            *self = Self::Owned(bytes.to_vec());
        }
        match self {
            Self::Borrowed(_) => &mut [],
            Self::Owned(bytes) => bytes,
            Self::Cached(bytes) => bytes,
        }
    }
}

impl Deref for Unpacked<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Owned(bytes) => bytes,
            Self::Cached(bytes) => bytes,
        }
    }
}

/// The cache in one directory, which is made when it is first needed.
#[derive(Debug, Clone)]
pub struct Cache {
    directory: PathBuf,
}

impl Cache {
    /// A cache in this directory.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// The unpacked form of `packed`, from the cache or by `unpack`.
    ///
    /// # Errors
    ///
    /// What `unpack` says, or [`Error::Cache`] if the result cannot be kept.
    pub fn get_or_unpack(
        &self,
        packed: &[u8],
        unpack: impl FnOnce() -> Result<Vec<u8>, Error>,
    ) -> Result<Unpacked<'static>, Error> {
        let name = blake3::hash(packed).to_hex();
        let path = self.directory.join(name.as_str()).with_extension(EXTENSION);
        match Buffer::read(&path) {
            Ok(entry) => match content(entry) {
                Some(kernel) => return Ok(Unpacked::Cached(kernel)),
                None => tracing::warn!("{} is damaged and is made anew", path.display()),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(Error::Cache { action: "read", path, source }),
        }
        let kernel = unpack()?;
        self.store(&path, &kernel)?;
        Ok(Unpacked::Owned(kernel))
    }

    fn store(&self, path: &Path, kernel: &[u8]) -> Result<(), Error> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let directory = &self.directory;
        fs::create_dir_all(directory).map_err(|source| Error::Cache {
            action: "create",
            path: directory.clone(),
            source,
        })?;
        self.tidy(path);
        let unique = (std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        let unfinished = path.with_extension(format!("{}-{}.{UNFINISHED}", unique.0, unique.1));
        let result = write(&unfinished, kernel).and_then(|()| fs::rename(&unfinished, path));
        result.map_err(|source| {
            let _ = fs::remove_file(&unfinished);
            Error::Cache { action: "write to", path: directory.clone(), source }
        })
    }

    /// Remove leftovers of processes that were killed, and the oldest entries if there are many.
    /// Failure is no harm: the next one tries again.
    fn tidy(&self, keep: &Path) {
        let Ok(files) = fs::read_dir(&self.directory) else { return };
        let mut entries = Vec::new();
        for file in files.flatten() {
            let path = file.path();
            let changed = file.metadata().and_then(|metadata| metadata.modified());
            let changed = changed.unwrap_or(SystemTime::UNIX_EPOCH);
            let age = SystemTime::now().duration_since(changed).unwrap_or_default();
            let extension = path.extension().and_then(|extension| extension.to_str());
            match extension {
                Some(UNFINISHED) if age > Duration::from_secs(STALE_SECONDS) => {
                    let _ = fs::remove_file(&path);
                }
                Some(EXTENSION) if path != keep => entries.push((changed, path)),
                _ => {}
            }
        }
        entries.sort();
        let excess = (entries.len() + 1).saturating_sub(MAX_CACHED_KERNELS);
        for (_, path) in entries.iter().take(excess) {
            let _ = fs::remove_file(path);
        }
    }
}

fn write(path: &Path, kernel: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).open(path)?;
    file.write_all(kernel)?;
    file.write_all(&MAGIC)?;
    file.write_all(&(kernel.len() as u64).to_le_bytes())?;
    file.write_all(blake3::hash(kernel).as_bytes())
}

/// The kernel in an entry, if the entry is intact.
fn content(mut entry: Buffer) -> Option<Buffer> {
    let length = entry.len().checked_sub(TRAILER_BYTES)?;
    let (body, trailer) = entry.split_at(length);
    let hash: [u8; 32] = array_at(trailer, 16)?;
    let intact = array_at(trailer, 0) == Some(MAGIC)
        && u64_at(trailer, 8) == Some(length as u64)
        && blake3::hash(body) == hash;
    entry.truncate(length);
    intact.then_some(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that goes away again.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("bivouac-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }

        fn entries(&self) -> Vec<PathBuf> {
            let files = fs::read_dir(&self.0).unwrap();
            files.map(|file| file.unwrap().path()).collect()
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn never() -> Result<Vec<u8>, Error> {
        panic!("was in the cache")
    }

    #[test]
    fn a_kernel_is_unpacked_once() {
        let directory = Directory::new("once");
        let cache = Cache::new(&directory.0);
        let unpack = || Ok(b"unpacked".to_vec());
        assert_eq!(cache.get_or_unpack(b"packed", unpack).unwrap()[..], *b"unpacked");
        assert_eq!(cache.get_or_unpack(b"packed", never).unwrap()[..], *b"unpacked");
        assert_eq!(cache.get_or_unpack(b"other", || Ok(vec![7])).unwrap()[..], [7]);
        assert_eq!(directory.entries().len(), 2);
    }

    #[test]
    fn a_damaged_entry_is_made_anew() {
        let directory = Directory::new("damaged");
        let cache = Cache::new(&directory.0);
        let unpack = || Ok(b"unpacked".to_vec());
        cache.get_or_unpack(b"packed", unpack).unwrap();
        let path = directory.entries().pop().unwrap();
        let good = fs::read(&path).unwrap();
        let damage = |at: usize| {
            let mut bad = good.clone();
            bad[at] ^= 1;
            bad
        };
        // The kernel, then magic, length and hash.
        for bad in [
            vec![],
            good[..40].to_vec(),
            good[..50].to_vec(),
            damage(0),
            damage(9),
            damage(20),
            damage(55),
        ] {
            fs::write(&path, bad).unwrap();
            assert_eq!(cache.get_or_unpack(b"packed", unpack).unwrap()[..], *b"unpacked");
            assert_eq!(fs::read(&path).unwrap(), good);
        }
    }

    #[test]
    fn a_failure_to_unpack_leaves_nothing_behind() {
        let directory = Directory::new("failure");
        let cache = Cache::new(&directory.0);
        assert!(cache.get_or_unpack(b"packed", || Err(Error::Checksum)).is_err());
        assert!(!directory.0.exists());
    }

    #[test]
    fn old_entries_are_dropped() {
        let directory = Directory::new("old");
        let cache = Cache::new(&directory.0);
        for index in 0..MAX_CACHED_KERNELS as u8 + 5 {
            cache.get_or_unpack(&[index], || Ok(vec![index])).unwrap();
        }
        assert_eq!(directory.entries().len(), MAX_CACHED_KERNELS);
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_an_error() {
        let directory = Directory::new("file");
        fs::write(&directory.0, "a file").unwrap();
        let cache = Cache::new(directory.0.join("below"));
        let error = cache.get_or_unpack(b"packed", || Ok(vec![1])).unwrap_err();
        assert!(matches!(error, Error::Cache { .. }), "{error}");
        assert!(!error.to_string().contains('\n'));
        fs::remove_file(&directory.0).unwrap();
    }
}
