//! The cache of unpacked kernels: a directory of them, so that a kernel is unpacked once and not at
//! every boot.
//!
//! An entry is named after the hash of the *packed* file, so a changed file never finds a stale
//! entry. It carries the length and the hash of its own content, so a damaged entry is noticed and
//! made anew. An entry appears under its name when it is finished: several machines may start at
//! once, and one that is killed leaves nothing behind where the file system has files without
//! names. Beyond a number of entries and of bytes ([`crate::limits`]), the least recently used are
//! evicted; the modification time of an entry's file tells when it was used.
//!
//! A user who can write the directory can replace kernels; it belongs to the user who runs the
//! machine.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use boot::limits::MAX_UNPACKED_BYTES;
use boot::{CachedKernel, KernelCache};
use host::Buffer;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::cache::trusted;
use super::limits::{MAX_CACHED_BYTES, MAX_CACHED_KERNELS, STALE_SECONDS};

/// Where it is below the user's cache directory.
const DIRECTORY: &str = "unpacked";

const MAGIC: [u8; 8] = *b"bivkern2";
/// What follows the kernel in an entry: magic, length, hash. At the end, so that it can be cut off.
const TRAILER_BYTES: usize = 48;
const EXTENSION: &str = "kernel";
const UNFINISHED: &str = "part";

/// Why the cache of unpacked kernels cannot be used.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot {action} the kernel cache {}: {source}; make it writable or set XDG_CACHE_HOME to a \
     directory that is",
    path.display()
)]
pub struct Error {
    /// What was tried.
    action: &'static str,
    /// The file or directory.
    path: PathBuf,
    /// The operating system's answer.
    source: io::Error,
}

/// The cache in one directory, which is made when it is first needed.
#[derive(Debug, Clone)]
pub struct UnpackedKernels {
    directory: PathBuf,
}

impl KernelCache for UnpackedKernels {
    fn get(&self, packed: &[u8]) -> Result<Option<CachedKernel>, String> {
        let kept = self.get(packed).map_err(|error| error.to_string())?;
        Ok(kept.map(|kernel| Box::new(kernel) as _))
    }

    fn put(&self, packed: &[u8], unpacked: &[u8]) -> Result<(), String> {
        self.put(packed, unpacked).map_err(|error| error.to_string())
    }
}

impl UnpackedKernels {
    /// The user's cache; `None` if it cannot be trusted: a kernel is then unpacked at each boot.
    pub fn of_user() -> Option<Self> {
        trusted(DIRECTORY).ok().map(Self::new)
    }

    /// A cache in this directory.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    fn path_of(&self, packed: &[u8]) -> PathBuf {
        let name = blake3::hash(packed).to_hex();
        self.directory.join(name.as_str()).with_extension(EXTENSION)
    }

    /// The unpacked form of the kernel file `packed`, if it is in the cache. Says of a damaged entry that it is not.
    ///
    /// # Errors
    ///
    /// The entry is there and cannot be read.
    pub fn get(&self, packed: &[u8]) -> Result<Option<Buffer>, Error> {
        let path = self.path_of(packed);
        let kept = match Buffer::read(&path, MAX_UNPACKED_BYTES + TRAILER_BYTES as u64) {
            Ok(entry) => content(entry),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => None,
            Err(source) => return Err(Error { action: "read", path, source }),
        };
        match &kept {
            Some(_) => mark_used(&path),
            None => tracing::warn!("{} is damaged and is made anew", path.display()),
        }
        Ok(kept)
    }

    /// Keep the unpacked form of the kernel file `packed`.
    ///
    /// # Errors
    ///
    /// The directory cannot be made, or nothing can be written there.
    pub fn put(&self, packed: &[u8], unpacked: &[u8]) -> Result<(), Error> {
        self.store(&self.path_of(packed), unpacked)
    }

    fn store(&self, path: &Path, kernel: &[u8]) -> Result<(), Error> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let directory = &self.directory;
        fs::create_dir_all(directory).map_err(|source| Error {
            action: "create",
            path: directory.clone(),
            source,
        })?;
        self.tidy(path, (kernel.len() + TRAILER_BYTES) as u64);
        match store_nameless(directory, path, kernel) {
            Ok(()) => return Ok(()),
            Err(error) => tracing::debug!(%error, "no file without a name in the kernel cache"),
        }
        let unique = (std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        let unfinished = path.with_extension(format!("{}-{}.{UNFINISHED}", unique.0, unique.1));
        store_named(&unfinished, path, kernel).map_err(|source| {
            let _ = fs::remove_file(&unfinished);
            Error { action: "write to", path: directory.clone(), source }
        })
    }

    /// Remove leftovers of processes that were killed, and make room for `keep`, which is to have
    /// so many bytes. Failure is no harm: the next one tries again.
    fn tidy(&self, keep: &Path, bytes: u64) {
        let Ok(files) = fs::read_dir(&self.directory) else { return };
        let mut entries = Vec::new();
        for file in files.flatten() {
            let path = file.path();
            let Ok(metadata) = file.metadata() else { continue };
            let changed = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let age = SystemTime::now().duration_since(changed).unwrap_or_default();
            let extension = path.extension().and_then(|extension| extension.to_str());
            match extension {
                Some(UNFINISHED) if age > Duration::from_secs(STALE_SECONDS) => {
                    let _ = fs::remove_file(&path);
                }
                Some(EXTENSION) if path != keep => {
                    entries.push(Entry { used: changed, bytes: metadata.len(), path });
                }
                _ => {}
            }
        }
        for entry in to_drop(entries, bytes) {
            let _ = fs::remove_file(entry.path);
        }
    }
}

/// What is known of an entry without reading it; the order is that of last use.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    used: SystemTime,
    bytes: u64,
    path: PathBuf,
}

/// Which of `entries` have to go so that another one, of so many bytes, is within the limits.
fn to_drop(mut entries: Vec<Entry>, bytes: u64) -> Vec<Entry> {
    entries.sort();
    let (mut count, mut total) = (1, bytes);
    // From the one that was used last; none that is older than one that goes may stay.
    let kept = entries.iter().rev().take_while(|entry| {
        (count, total) = (count + 1, total.saturating_add(entry.bytes));
        count <= MAX_CACHED_KERNELS && total <= MAX_CACHED_BYTES
    });
    let dropped = entries.len() - kept.count();
    entries.truncate(dropped);
    entries
}

/// A cache that cannot be written is used as it is.
fn mark_used(path: &Path) {
    let file = File::options().append(true).open(path);
    if let Err(error) = file.and_then(|file| file.set_modified(SystemTime::now())) {
        tracing::debug!(%error, "cannot mark {} as used", path.display());
    }
}

/// Write a file that gets its name when it is finished (open(2), O_TMPFILE).
fn store_nameless(directory: &Path, path: &Path, kernel: &[u8]) -> io::Result<()> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(directory, flags, Mode::from_raw_mode(0o644))?);
    write(&mut file, kernel)?;
    // A damaged entry gives way. One that appears now is another process's, and as good as ours.
    let _ = fs::remove_file(path);
    let source = format!("/proc/self/fd/{}", file.as_raw_fd());
    match rustix::fs::linkat(CWD, source, CWD, path, AtFlags::SYMLINK_FOLLOW) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn store_named(unfinished: &Path, path: &Path, kernel: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).open(unfinished)?;
    write(&mut file, kernel)?;
    fs::rename(unfinished, path)
}

fn write(file: &mut File, kernel: &[u8]) -> io::Result<()> {
    file.write_all(kernel)?;
    file.write_all(&MAGIC)?;
    file.write_all(&(kernel.len() as u64).to_le_bytes())?;
    file.write_all(blake3::hash(kernel).as_bytes())
}

/// The kernel in an entry, if the entry is intact.
fn content(mut entry: Buffer) -> Option<Buffer> {
    let length = entry.len().checked_sub(TRAILER_BYTES)?;
    let (body, trailer) = entry.split_at(length);
    let (magic, rest) = trailer.split_at(MAGIC.len());
    let (bytes, hash) = rest.split_at(size_of::<u64>());
    let is_intact = magic == MAGIC
        && bytes == (length as u64).to_le_bytes()
        && hash == blake3::hash(body).as_bytes();
    entry.truncate(length);
    is_intact.then_some(entry)
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

    /// What the loader does.
    fn get_or_unpack(
        cache: &UnpackedKernels,
        packed: &[u8],
        unpack: impl FnOnce() -> Vec<u8>,
    ) -> Result<Vec<u8>, Error> {
        if let Some(kept) = cache.get(packed)? {
            return Ok(kept.to_vec());
        }
        let unpacked = unpack();
        cache.put(packed, &unpacked)?;
        Ok(unpacked)
    }

    fn never() -> Vec<u8> {
        panic!("was in the cache")
    }

    #[test]
    fn a_kernel_is_unpacked_once() {
        let directory = Directory::new("once");
        let cache = UnpackedKernels::new(&directory.0);
        let unpack = || b"unpacked".to_vec();
        assert_eq!(get_or_unpack(&cache, b"packed", unpack).unwrap()[..], *b"unpacked");
        assert_eq!(get_or_unpack(&cache, b"packed", never).unwrap()[..], *b"unpacked");
        assert_eq!(get_or_unpack(&cache, b"other", || vec![7]).unwrap()[..], [7]);
        assert_eq!(directory.entries().len(), 2);
    }

    #[test]
    fn a_damaged_entry_is_made_anew() {
        let directory = Directory::new("damaged");
        let cache = UnpackedKernels::new(&directory.0);
        let unpack = || b"unpacked".to_vec();
        get_or_unpack(&cache, b"packed", unpack).unwrap();
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
            assert_eq!(get_or_unpack(&cache, b"packed", unpack).unwrap()[..], *b"unpacked");
            assert_eq!(fs::read(&path).unwrap(), good);
        }
    }

    #[test]
    fn both_ways_to_store_an_entry_make_the_same_file() {
        let directory = Directory::new("ways");
        fs::create_dir_all(&directory.0).unwrap();
        let [nameless, named] = ["nameless", "named"].map(|name| directory.0.join(name));
        store_named(&directory.0.join("x.part"), &named, b"kernel").unwrap();
        let written = fs::read(&named).unwrap();
        assert_eq!(directory.entries(), [named]);
        // Not every file system has files without names; what is there gives way.
        fs::write(&nameless, "damaged").unwrap();
        match store_nameless(&directory.0, &nameless, b"kernel") {
            Ok(()) => assert_eq!(fs::read(&nameless).unwrap(), written),
            Err(error) => println!("files without names are not tested here: {error}"),
        }
    }

    #[test]
    fn what_was_not_used_for_longest_is_dropped() {
        let directory = Directory::new("old");
        let cache = UnpackedKernels::new(&directory.0);
        let fill = |index: u8| get_or_unpack(&cache, &[index], || vec![index]).unwrap();
        let most = MAX_CACHED_KERNELS as u8;
        (0..most).for_each(|index| drop(fill(index)));
        // All of them long ago, and in the order of their making.
        for index in 0..most {
            let name = blake3::hash(&[index]).to_hex();
            let path = directory.0.join(name.as_str()).with_extension(EXTENSION);
            let then = SystemTime::now() - Duration::from_secs(1000 - u64::from(index));
            File::options().append(true).open(path).unwrap().set_modified(then).unwrap();
        }
        assert_eq!(get_or_unpack(&cache, &[0], never).unwrap()[..], [0]);
        fill(most);
        fill(most + 1);
        assert_eq!(directory.entries().len(), MAX_CACHED_KERNELS);
        // The first was used since; the second and the third had to go.
        for index in (0..most + 2).filter(|index| ![1, 2].contains(index)) {
            assert_eq!(get_or_unpack(&cache, &[index], never).unwrap()[..], [index]);
        }
    }

    #[test]
    fn entries_are_limited_in_number_and_in_bytes() {
        let check = |sizes: &[u64], new: u64, dropped: usize| {
            let entry = |(age, bytes): (usize, &u64)| Entry {
                used: SystemTime::UNIX_EPOCH + Duration::from_secs(age as u64),
                bytes: *bytes,
                path: PathBuf::from(age.to_string()),
            };
            let entries: Vec<Entry> = sizes.iter().enumerate().map(entry).collect();
            let expected = entries[..dropped].to_vec();
            assert_eq!(to_drop(entries, new), expected, "{sizes:?} and {new}");
        };
        check(&[], MAX_CACHED_BYTES + 1, 0);
        check(&[1; MAX_CACHED_KERNELS - 1], 1, 0);
        check(&[1; MAX_CACHED_KERNELS + 3], 1, 4);
        check(&[MAX_CACHED_BYTES / 2; 4], MAX_CACHED_BYTES / 4, 3);
        check(&[5, MAX_CACHED_BYTES, 7], 1, 2);
        check(&[1, 1], MAX_CACHED_BYTES, 2);
        check(&[u64::MAX, 1], 1, 1);
    }

    #[test]
    fn an_entry_that_is_too_large_is_made_anew() {
        let directory = Directory::new("huge");
        let cache = UnpackedKernels::new(&directory.0);
        get_or_unpack(&cache, b"packed", || b"unpacked".to_vec()).unwrap();
        let path = directory.entries().pop().unwrap();
        File::options().append(true).open(&path).unwrap().set_len(1 << 42).unwrap();
        let again = get_or_unpack(&cache, b"packed", || b"unpacked".to_vec()).unwrap();
        assert_eq!(again[..], *b"unpacked");
        assert!(path.metadata().unwrap().len() < 100);
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_an_error() {
        let directory = Directory::new("file");
        fs::write(&directory.0, "a file").unwrap();
        let cache = UnpackedKernels::new(directory.0.join("below"));
        let error = get_or_unpack(&cache, b"packed", || vec![1]).unwrap_err();
        assert!(error.to_string().starts_with("cannot read the kernel cache"), "{error}");
        assert!(!error.to_string().contains('\n'));
        fs::remove_file(&directory.0).unwrap();
    }
}
