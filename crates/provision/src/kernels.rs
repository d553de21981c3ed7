//! Debian's kernels by version, suite and flavour, each with its drivers, in the user's cache:
//! `kernels/RELEASE/`, beside the default kernel. They are downloaded and verified as the default
//! is.

use std::cmp::Ordering;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::cache::{self, Lock, at, cache_directory};
use super::packages::{self, Packages};
use super::progress::Progress;
use super::{Error, NAME, download, package};

/// Where they are in the cache.
const DIRECTORY: &str = "kernels";

/// For what a kernel is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Flavour {
    /// Virtual machines.
    #[default]
    Cloud,
    /// All machines.
    Generic,
}

impl Flavour {
    /// The package that depends on the current kernel.
    fn meta_package(self) -> &'static str {
        match self {
            Flavour::Cloud => "linux-image-cloud-amd64",
            Flavour::Generic => "linux-image-amd64",
        }
    }
}

/// Which kernel is wanted.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// How its release begins, such as `6.12`.
    pub version: Option<String>,
    /// Debian's suite; what apt's sources have, and then their backports, if none is named.
    pub suite: Option<String>,
    /// For what it is built.
    pub flavour: Flavour,
}

/// A kernel in the cache.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// As it calls itself, such as `6.12.48+deb12-cloud-amd64`.
    pub release: String,
    /// The name of the package file that it came from.
    pub package: String,
    /// The image and its drivers.
    pub bytes: u64,
    /// Since when it is there.
    pub age: Duration,
    directory: PathBuf,
}

impl Kernel {
    fn open(directory: PathBuf) -> Option<Self> {
        let release = directory.file_name()?.to_str()?.to_owned();
        let package = fs::read_to_string(directory.join(NAME)).ok()?;
        let age = cache::age_of(&directory.join(NAME)).unwrap_or_default();
        let bytes = bytes_below(&directory);
        Some(Self { release, package, bytes, age, directory })
    }

    /// The image.
    #[must_use]
    pub fn image(&self) -> PathBuf {
        self.directory.join("vmlinuz")
    }

    /// Those of these drivers that are modules of it; the others are built in, or it has none.
    pub fn drivers<'a>(&self, names: &[&'a str]) -> Vec<(&'a str, PathBuf)> {
        package::drivers_in(&self.directory, names)
    }

    /// Where all of its modules are, as a system has them in `/lib/modules`; none if it has none, or an older `biv` has
    /// fetched it.
    #[must_use]
    pub fn modules(&self) -> Option<PathBuf> {
        package::modules_in(&self.directory)
    }

    /// Whether it may be called so: its release begins with that, up to where a part of it ends.
    fn is_called(&self, name: &str) -> bool {
        begins(&self.release, name)
    }
}

/// All kernels in the cache, the newest first.
pub fn list() -> Result<Vec<Kernel>, Error> {
    let mut kernels: Vec<_> =
        cache::entries(DIRECTORY)?.into_iter().filter_map(Kernel::open).collect();
    kernels.sort_by(|one, other| compare(&other.release, &one.release));
    Ok(kernels)
}

/// The newest kernel that may be called so.
pub fn find(name: &str) -> Result<Option<Kernel>, Error> {
    Ok(list()?.into_iter().find(|kernel| kernel.is_called(name)))
}

/// Remove the one that is called so, or the only one that may be; its release, if there is one.
pub fn remove_called(name: &str) -> Result<Option<String>, Error> {
    let _lock = Lock::take(&cache_directory()?)?;
    let Some(kernel) = only_one(list()?, name)? else { return Ok(None) };
    cache::remove(&kernel.directory).map_err(at(&kernel.directory))?;
    Ok(Some(kernel.release))
}

/// The one that has this name, or the only one whose name begins so.
fn only_one(kernels: Vec<Kernel>, name: &str) -> Result<Option<Kernel>, Error> {
    let mut found: Vec<_> = kernels.into_iter().filter(|kernel| kernel.is_called(name)).collect();
    if let Some(exact) = found.iter().position(|kernel| kernel.release == name) {
        return Ok(Some(found.swap_remove(exact)));
    }
    if found.len() > 1 {
        let releases: Vec<_> = found.iter().map(|kernel| kernel.release.as_str()).collect();
        let (name, found) = (name.to_owned(), releases.join(", "));
        return Err(Error::SeveralKernels { name, found });
    }
    Ok(found.pop())
}

/// Fetch a kernel; one that is there is fetched again.
pub fn pull(wanted: &Wanted) -> Result<Kernel, Error> {
    let work = Lock::take(&cache_directory()?)?.work()?;
    let progress = Progress::start();
    let (packages, package) = choose(wanted, work.path(), &progress)?;
    let release = package.trim_start_matches("linux-image-");
    let fresh = work.path().join(release);
    let parts = packages.parts_of_kernel(&package)?;
    download(&packages, &parts, package::unpack_kernel, &fresh, &progress)?;
    let place = work.install(&fresh, Path::new(DIRECTORY).join(release))?;
    Kernel::open(place.clone()).ok_or_else(|| at(&place)(io::ErrorKind::NotFound.into()).into())
}

/// The first of the suites that may have it that does.
fn choose(wanted: &Wanted, work: &Path, progress: &Progress) -> Result<(Packages, String), Error> {
    let meta_package = wanted.flavour.meta_package();
    let mut suites = vec![wanted.suite.clone()];
    if wanted.suite.is_none() && wanted.version.is_some() {
        suites.extend(packages::backports().map(Some));
    }
    let mut found = Vec::new();
    for (number, suite) in suites.iter().enumerate() {
        let mut packages = Packages::prepare(&work.join(number.to_string()))?;
        if let Some(suite) = suite {
            packages.use_suite(suite)?;
        }
        packages.update(progress)?;
        let package = packages.kernel_of(meta_package)?;
        let release = package.trim_start_matches("linux-image-");
        let version = wanted.version.as_deref().unwrap_or_default();
        if version.is_empty() || begins(release, version) {
            return Ok((packages, package));
        }
        found.push(release.to_owned());
    }
    let version = wanted.version.clone().unwrap_or_default();
    Err(Error::NoKernel { version, found: found.join(" and ") })
}

/// Whether a release begins with a version, up to where a part of it ends.
fn begins(release: &str, version: &str) -> bool {
    let rest = release.strip_prefix(version);
    rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_alphanumeric()))
}

/// Releases by their numbers: 6.12 is after 6.9.
pub(super) fn compare(one: &str, other: &str) -> Ordering {
    let numbers = |release: &str| -> Vec<u64> {
        let parts = release.split(|character: char| !character.is_ascii_digit());
        parts.filter_map(|part| part.parse().ok()).collect()
    };
    numbers(one).cmp(&numbers(other)).then_with(|| one.cmp(other))
}

fn bytes_below(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    bytes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(release: &str) -> Kernel {
        Kernel {
            release: release.to_owned(),
            package: String::new(),
            bytes: 0,
            age: Duration::ZERO,
            directory: PathBuf::new(),
        }
    }

    #[test]
    fn a_name_is_the_beginning_of_a_release() {
        let kernel = kernel("6.12.48+deb12-cloud-amd64");
        for name in ["6", "6.12", "6.12.48", "6.12.48+deb12", "6.12.48+deb12-cloud-amd64"] {
            assert!(kernel.is_called(name), "{name}");
        }
        for name in ["6.1", "6.12.4", "6.13", "12", "6.12.48+deb12-cloud-amd64-more"] {
            assert!(!kernel.is_called(name), "{name}");
        }
    }

    #[test]
    fn only_one_kernel_is_removed_by_a_name() {
        let kernels = ["6.12.95", "6.12.95+deb12", "6.9.1"].map(kernel);
        let check = |name: &str, expected: Option<&str>| {
            let found = only_one(kernels.to_vec(), name).unwrap();
            assert_eq!(found.map(|kernel| kernel.release).as_deref(), expected, "{name}");
        };
        check("6.12.95", Some("6.12.95"));
        check("6.9", Some("6.9.1"));
        check("6.8", None);
        let error = only_one(kernels.to_vec(), "6.12").unwrap_err().to_string();
        assert!(error.contains("6.12.95, 6.12.95+deb12"), "{error}");
    }

    #[test]
    fn releases_are_compared_as_numbers() {
        assert_eq!(compare("6.9.1-1", "6.12.1-1"), Ordering::Less);
        assert_eq!(compare("6.12.10", "6.12.9"), Ordering::Greater);
        assert_eq!(compare("6.1.0-37-amd64", "6.1.0-37-cloud-amd64"), Ordering::Less);
    }
}
