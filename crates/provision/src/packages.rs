//! Where packages come from: the host's apt or, on a host that has none, Debian's archive; and which of them have a
//! kernel.

use std::path::{Path, PathBuf};

use super::apt::{self, Apt};
use super::archive::{self, Archive};
use super::limits::MAX_KERNEL_PACKAGES;
use super::progress::Progress;

/// Packages that depend on the current kernel package, best first: Debian's for virtual machines,
/// Debian's for all machines, Ubuntu's for virtual machines.
const KERNEL_PACKAGES: &[&str] =
    &["linux-image-cloud-amd64", "linux-image-amd64", "linux-image-virtual"];

/// How packages begin that have files of a kernel: its image and its modules.
const KERNEL_PARTS: [&str; 3] = ["linux-image-", "linux-binary-", "linux-modules-"];

/// Why there is no package.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// apt's reasons.
    #[error(transparent)]
    Apt(#[from] apt::Error),
    /// Those of the archive.
    #[error(transparent)]
    Archive(#[from] archive::Error),
    /// The archive's list has none of this name.
    #[error("Debian's archive has no package {0}")]
    NoPackage(String),
}

/// Who has packages.
#[derive(Debug)]
pub enum Packages {
    /// The host's apt.
    Apt(Apt),
    /// Debian's archive.
    Archive(Box<Archive>),
}

/// The suite with newer packages for the release that packages come from, if it is Debian's.
pub fn backports() -> Option<String> {
    match apt::backports() {
        Err(apt::Error::NoApt(_)) => Some(archive::BACKPORTS.to_owned()),
        suite => suite.ok().flatten(),
    }
}

impl Packages {
    /// Prepares directories under `work`.
    pub fn prepare(work: &Path) -> Result<Self, Error> {
        match Apt::prepare(work) {
            Err(apt::Error::NoApt(program)) => {
                tracing::info!("{program} is not installed: packages come from Debian's archive");
                Ok(Self::Archive(Box::new(Archive::prepare(work)?)))
            }
            apt => Ok(Self::Apt(apt?)),
        }
    }

    /// Fetches the lists of packages.
    pub fn update(&mut self, progress: &Progress) -> Result<(), Error> {
        match self {
            Self::Apt(apt) => Ok(apt.update(progress)?),
            Self::Archive(archive) => Ok(archive.update(progress)?),
        }
    }

    /// Uses one suite of Debian's.
    pub fn use_suite(&mut self, suite: &str) -> Result<(), Error> {
        match self {
            Self::Apt(apt) => Ok(apt.use_suite(suite)?),
            Self::Archive(archive) => Ok(archive.use_suite(suite)?),
        }
    }

    /// What the lists say of a package, in stanzas of fields (deb822(5)); nothing if they have none of that name.
    fn show(&self, package: &str) -> Result<String, Error> {
        match self {
            Self::Apt(apt) => Ok(apt.show(package)?),
            Self::Archive(archive) => Ok(archive.show(package).to_owned()),
        }
    }

    /// Downloads a package, which is checked to be what the signed lists say.
    pub fn download(&self, package: &str, progress: &Progress) -> Result<PathBuf, Error> {
        match self {
            Self::Apt(apt) => Ok(apt.download(package, progress)?),
            Self::Archive(archive) => {
                archive.download(package, progress)?.ok_or_else(|| self.no_package(package))
            }
        }
    }

    fn no_package(&self, name: &str) -> Error {
        match self {
            Self::Apt(apt) => apt.no_package(name).into(),
            Self::Archive(_) => Error::NoPackage(name.to_owned()),
        }
    }

    /// The name of the package that contains the current kernel.
    pub fn kernel_package(&self) -> Result<String, Error> {
        for package in KERNEL_PACKAGES {
            if let Some(kernel) = dependency_on_kernel(&self.show(package)?) {
                return Ok(kernel);
            }
        }
        Err(self.no_package(KERNEL_PACKAGES[0]))
    }

    /// The name of the kernel's package on which another one depends.
    pub fn kernel_of(&self, meta_package: &str) -> Result<String, Error> {
        let kernel = dependency_on_kernel(&self.show(meta_package)?);
        kernel.ok_or_else(|| self.no_package(meta_package))
    }

    /// The packages that have the files of the kernel in `package`, which is the first: since Debian 14 that has
    /// neither image nor modules, and depends on those that have; Ubuntu's has no modules.
    pub fn parts_of_kernel(&self, package: &str) -> Result<Vec<String>, Error> {
        let mut parts = vec![package.to_owned()];
        let mut next = 0;
        while next < parts.len() && parts.len() < MAX_KERNEL_PACKAGES {
            for name in dependencies(&self.show(&parts[next])?) {
                let is_part = KERNEL_PARTS.iter().any(|part| name.starts_with(part));
                if is_part && !parts.contains(&name) && parts.len() < MAX_KERNEL_PACKAGES {
                    parts.push(name);
                }
            }
            next += 1;
        }
        Ok(parts)
    }
}

/// The kernel that the first `Depends:` names.
fn dependency_on_kernel(shown: &str) -> Option<String> {
    dependencies(shown).into_iter().find(|name| name.starts_with("linux-image-"))
}

/// All packages that it names.
fn dependencies(shown: &str) -> Vec<String> {
    let depends = archive::field(shown, "Depends").unwrap_or_default();
    let names = depends.split([',', '|']).filter_map(|item| item.split_whitespace().next());
    let is_name = |name: &str| {
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    names.filter(|name| is_name(name)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_found_behind_its_meta_package() {
        let shown = "Package: linux-image-cloud-amd64\nSource: linux-signed-amd64\n\
            Depends: linux-image-6.1.0-37-cloud-amd64 (= 6.1.140-1)\nSection: kernel\n";
        let found = dependency_on_kernel(shown);
        assert_eq!(found.as_deref(), Some("linux-image-6.1.0-37-cloud-amd64"));
        let ubuntu = "Depends: linux-image-6.8.0-60-generic, linux-modules-extra\n";
        assert_eq!(dependency_on_kernel(ubuntu).as_deref(), Some("linux-image-6.8.0-60-generic"));
        assert_eq!(dependency_on_kernel(""), None);
        assert_eq!(dependency_on_kernel("Depends: linux-image-$(reboot)\n"), None);
    }
}
