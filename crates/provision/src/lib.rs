//! The default guest: Debian's kernel for cloud machines ([`recent`]) and a static busybox,
//! downloaded once through the host's own package client, or from Debian's archive where the host has none
//! ([`archive`]), and kept in the user's cache directory.
//!
//! What it is not: an image store. It keeps two parts, each a directory under
//! `$XDG_CACHE_HOME/bivouac`.
//!
//! What rules it:
//!
//! 1. *The host's package system stays as it is.* apt works on lists, state and a cache of its own
//!    ([`apt`]), so it needs no privilege, and installs nothing.
//! 2. *All or nothing*: a part is unpacked beside its place and renamed into it, under a lock. A
//!    part that is there is not downloaded again unless the user asks for it (`--refresh`).
//! 3. *What is downloaded is authenticated*: by apt, with the keys that the host trusts, or by the keys of Debian's
//!    that this crate has.
//! 4. *No C decompressor runs in this process.* Packages and the modules in them are decompressed in Rust without
//!    unsafe code, up to a limit ([`limits`]).

#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use cache::{Error as CacheError, base_directory, cache_directory, trusted};
use cache::{Lock, Work, at};
use initramfs::Busybox;
use packages::Packages;
pub use unpacked::{Error as UnpackedKernelsError, UnpackedKernels};

pub mod apt;
pub mod archive;
mod cache;
pub mod caches;
mod file;
pub mod images;
pub mod initramfs;
pub mod kernels;
pub mod limits;
pub mod modules;
mod package;
pub mod packages;
pub mod progress;
pub mod recent;
mod unpacked;

/// What every virtio device needs, in the order in which it is loaded.
pub const VIRTIO: &[&str] =
    &["virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci"];

/// The file beside what came from a package that has the package's name.
const NAME: &str = "package";

/// A part of the default guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The kernel.
    Kernel,
    /// The user space.
    Busybox,
    /// The kernel's drivers, of the same package, which a machine with virtio devices needs.
    Drivers,
}

/// Where the parts are once they are there.
#[derive(Debug, Clone)]
pub struct Guest {
    cache: PathBuf,
}

/// Why there is no default guest.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cache.
    #[error(transparent)]
    Cache(#[from] cache::Error),
    /// The download.
    #[error(
        "cannot get the default guest: {0}; give your own with --kernel FILE and --initrd FILE or \
         --root DIR"
    )]
    Packages(#[from] packages::Error),
    /// An image.
    #[error(transparent)]
    Image(#[from] images::Trouble),
    /// There is no such kernel.
    #[error("there is no kernel {version}, only {found}; name another --suite")]
    NoKernel {
        /// What was wanted.
        version: String,
        /// What there is.
        found: String,
    },
    /// A name of several kernels.
    #[error("{name} is ambiguous: it matches the kernels {found}")]
    SeveralKernels {
        /// What they were called.
        name: String,
        /// Their releases.
        found: String,
    },
    /// What was downloaded.
    #[error(
        "cannot unpack the default guest: {0}; give your own with --kernel FILE and --initrd FILE \
         or --root DIR"
    )]
    Package(#[from] package::Error),
}

impl Part {
    fn directory(self) -> &'static str {
        match self {
            Part::Kernel | Part::Drivers => "kernel",
            Part::Busybox => "busybox",
        }
    }

    /// The file without which the part is not there.
    fn main_file(self) -> &'static str {
        match self {
            Part::Kernel => "vmlinuz",
            Part::Busybox => "busybox",
            Part::Drivers => package::DRIVERS,
        }
    }
}

impl Guest {
    /// The default guest in the user's cache; the parts that are `needed` are fetched if they are
    /// not there. Where nothing is needed, nothing is asked for, not even a cache.
    pub fn provide(needed: &[Part]) -> Result<Guest, Error> {
        if needed.is_empty() {
            return Ok(Guest { cache: PathBuf::new() });
        }
        let guest = Guest { cache: trusted("")? };
        guest.provide_here(needed)?;
        guest.check_owner(needed)?;
        Ok(guest)
    }

    /// The same, with all that is `needed` fetched anew. What was there stays until it is replaced,
    /// and for good if it cannot be.
    pub fn renew(needed: &[Part]) -> Result<Guest, Error> {
        if needed.is_empty() {
            return Guest::provide(needed);
        }
        let guest = Guest { cache: trusted("")? };
        guest.fetch_locked(|| needed.to_vec())?;
        guest.check_owner(needed)?;
        Ok(guest)
    }

    /// Whether what is loaded is this user's.
    fn check_owner(&self, needed: &[Part]) -> Result<(), Error> {
        let main_file = |part: &Part| Path::new(part.directory()).join(part.main_file());
        let check = |part| cache::check_owner(&self.cache, &main_file(part)).map(drop);
        Ok(needed.iter().try_for_each(check)?)
    }

    fn provide_here(&self, needed: &[Part]) -> Result<(), Error> {
        if self.missing(needed).is_empty() {
            return Ok(());
        }
        // Another process may have fetched them while we waited.
        self.fetch_locked(|| self.missing(needed))
    }

    /// Fetch what is `wanted` when nobody else fetches.
    fn fetch_locked(&self, wanted: impl FnOnce() -> Vec<Part>) -> Result<(), Error> {
        let lock = Lock::take(&self.cache)?;
        match wanted() {
            wanted if wanted.is_empty() => Ok(()),
            wanted => fetch(&wanted, &lock.work()?),
        }
    }

    fn missing(&self, needed: &[Part]) -> Vec<Part> {
        let is_there = |part: &Part| match part {
            Part::Drivers => package::has_all_drivers(&self.cache.join(part.directory())),
            _ => self.path(*part).exists(),
        };
        needed.iter().copied().filter(|part| !is_there(part)).collect()
    }

    fn path(&self, part: Part) -> PathBuf {
        self.cache.join(part.directory()).join(part.main_file())
    }

    /// The kernel's bzImage.
    #[must_use]
    pub fn kernel(&self) -> PathBuf {
        self.path(Part::Kernel)
    }

    /// The packages that the parts in `cache` came from.
    #[must_use]
    pub fn packages(cache: &Path) -> Vec<String> {
        let name = |part: Part| fs::read_to_string(cache.join(part.directory()).join(NAME)).ok();
        [Part::Kernel, Part::Busybox].into_iter().filter_map(name).collect()
    }

    /// How long the oldest of the parts in `cache` has been there; `None` for those that are not.
    #[must_use]
    pub fn age(cache: &Path) -> Option<Duration> {
        let age = |part: Part| cache::age_of(&cache.join(part.directory()).join(NAME));
        [Part::Kernel, Part::Busybox].into_iter().filter_map(age).max()
    }

    /// Those of these drivers that are modules of the kernel, by name; the others are built in.
    #[must_use]
    pub fn drivers<'a>(&self, names: &[&'a str]) -> Vec<(&'a str, PathBuf)> {
        package::drivers_in(&self.cache.join(Part::Kernel.directory()), names)
    }

    /// Where all modules of the kernel are, as a system has them in `/lib/modules`, if it has any.
    #[must_use]
    pub fn modules(&self) -> Option<PathBuf> {
        package::modules_in(&self.cache.join(Part::Kernel.directory()))
    }

    /// What the kernel calls itself, if that is known.
    #[must_use]
    pub fn release(&self) -> Option<String> {
        let entry = fs::read_dir(self.modules()?).ok()?.next()?.ok()?;
        entry.file_name().into_string().ok()
    }

    /// The user space.
    pub fn busybox(&self) -> Result<Busybox, Error> {
        let path = self.cache.join(Part::Busybox.directory()).join(package::APPLETS);
        let applets = fs::read_to_string(&path).map_err(at(&path))?;
        Ok(Busybox { program: self.path(Part::Busybox), applets })
    }
}

/// Fetch parts.
fn fetch(wanted: &[Part], work: &Work) -> Result<(), Error> {
    let progress = progress::Progress::start();
    let mut packages = Packages::prepare(work.path())?;
    packages.update(&progress)?;
    let fetch = |packages: &Packages, names: &[String], part: Part, unpack: Unpack| {
        let fresh = work.path().join(part.directory());
        download(packages, names, unpack, &fresh, &progress)?;
        work.install(&fresh, part.directory())?;
        Ok::<_, Error>(())
    };
    if wanted.contains(&Part::Busybox) {
        let names = ["busybox-static".to_owned()];
        fetch(&packages, &names, Part::Busybox, package::unpack_busybox)?;
    }
    if wanted.contains(&Part::Kernel) || wanted.contains(&Part::Drivers) {
        let (packages, kernel) = recent::choose(packages, work.path(), &progress)?;
        let names = packages.parts_of_kernel(&kernel)?;
        fetch(&packages, &names, Part::Kernel, package::unpack_kernel)?;
    }
    Ok(())
}

type Unpack = fn(&[PathBuf], &Path) -> Result<(), package::Error>;

/// Download packages and unpack what is wanted of them into a new directory, which is called after the first.
fn download(
    packages: &Packages,
    names: &[String],
    unpack: Unpack,
    into: &Path,
    progress: &progress::Progress,
) -> Result<(), Error> {
    let files: Vec<_> =
        names.iter().map(|name| packages.download(name, progress)).collect::<Result<_, _>>()?;
    progress.say(&format!("unpacking {}", names.join(", ")));
    fs::create_dir(into).map_err(at(into))?;
    unpack(&files, into)?;
    let name = files.first().and_then(|file| file.file_name()).unwrap_or_default();
    let name = name.as_encoded_bytes();
    Ok(fs::write(into.join(NAME), name).map_err(at(into))?)
}

#[cfg(test)]
mod tests {
    use super::cache::remove;
    use super::*;

    fn guest(name: &str) -> Guest {
        let cache =
            std::env::temp_dir().join(format!("biv-provision-{name}-{}", std::process::id()));
        let _ = remove(&cache);
        Guest { cache }
    }

    #[test]
    fn what_is_there_is_not_fetched() {
        let guest = guest("there");
        for part in [Part::Kernel, Part::Busybox] {
            fs::create_dir_all(guest.cache.join(part.directory())).unwrap();
            fs::write(guest.path(part), "").unwrap();
        }
        fs::write(guest.cache.join("busybox").join(package::APPLETS), "/bin/ls\n").unwrap();
        guest.provide_here(&[Part::Kernel, Part::Busybox]).unwrap();
        assert_eq!(guest.busybox().unwrap().applets, "/bin/ls\n");
        assert!(!guest.cache.join("lock").exists(), "a full cache may be read-only");
        remove(&guest.cache).unwrap();
    }

    #[test]
    fn a_cache_that_cannot_be_written_is_an_error_that_helps() {
        let guest = Guest { cache: PathBuf::from("/proc/no/such/place") };
        let error = guest.provide_here(&[Part::Kernel]).unwrap_err().to_string();
        for word in ["/proc/no/such/place", "--kernel", "--initrd", "--root", "XDG_CACHE_HOME"] {
            assert!(error.contains(word), "{error:?} does not name {word}");
        }
        assert!(!error.contains('\n'));
    }
}
