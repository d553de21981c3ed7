//! A kernel of the user's own: what of a machine's devices and directories it can use, as far as
//! its file and its modules tell.
//!
//! A machine with such a kernel shows its user's files as any other does, if the kernel can mount
//! them: over virtio's PCI bus, by virtio-fs or else by 9p, below an overlay. Whether it can is known before it
//! boots, because what runs in the machine depends on it: the user's command in the user's
//! directory, or busybox.
//!
//! 1. *What is built in is read from the unpacked kernel.* Each driver has a string that is in no
//!    kernel without it: a name by which it registers, or of an option that it parses. The bytes
//!    are only searched.
//! 2. *The kernel is unpacked as for its boot*, by a confined process, into the cache of unpacked
//!    kernels, so that its boot finds it there. One that cannot be unpacked is refused here as it
//!    would be there.
//! 3. *All else is a module*: in the directory of `--modules`, or in the host's own `/lib/modules`
//!    if that has some of a kernel of the same release.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use protocol::mounts::FileSystem;
use provision::modules::Given;
use spec::Spec;
use vmm::Contents;

use super::directories::NINE_DRIVERS;
use super::error::Error;
use super::{files, modules};
use crate::unpack;

/// Where the host's kernels have theirs.
const OF_THE_HOST: &str = "/lib/modules";

/// A driver that a kernel may have.
struct Driver {
    name: &'static str,
    /// What is in every kernel that has it built in, and in no other. A name includes its end, because others begin so.
    mark: &'static [u8],
    /// Under which option of a kernel's configuration its builder finds it (Linux, `make menuconfig`).
    option: &'static str,
}

const DRIVERS: [Driver; 9] = [
    Driver { name: "virtio_pci", mark: b"virtio-pci\0", option: "CONFIG_VIRTIO_PCI" },
    Driver { name: "virtiofs", mark: b"virtiofs\0", option: "CONFIG_VIRTIO_FS" },
    Driver { name: "9pnet", mark: b"9P2000.L", option: "CONFIG_NET_9P" },
    Driver { name: "9pnet_virtio", mark: b"9pnet_virtio\0", option: "CONFIG_NET_9P_VIRTIO" },
    Driver { name: "9p", mark: b"posixacl\0", option: "CONFIG_9P_FS" },
    Driver { name: "virtio_blk", mark: b"virtio_blk\0", option: "CONFIG_VIRTIO_BLK" },
    Driver { name: "xen-blkfront", mark: b"xen_blkfront\0", option: "CONFIG_XEN_BLKDEV_FRONTEND" },
    Driver { name: "overlay", mark: b"redirect_dir", option: "CONFIG_OVERLAY_FS" },
    Driver { name: "erofs", mark: b"erofs\0", option: "CONFIG_EROFS_FS" },
];

/// See above.
pub struct GivenKernel {
    /// Its file.
    pub path: PathBuf,
    /// What is in that.
    pub contents: Contents,
    /// What it calls itself.
    pub release: Option<String>,
    /// Where its modules are.
    pub modules: Option<Given>,
    /// Whether who unpacks it is confined.
    confine: bool,
    built_in: OnceCell<Vec<&'static str>>,
}

impl GivenKernel {
    /// The kernel in a file, with the modules that the description names.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or there are no modules where they are said to be.
    pub fn open(spec: &Spec, path: &Path) -> Result<Self, Error> {
        let contents = files::read_kernel(path)?;
        let release = files::release(&contents);
        let modules = match modules::given(spec, release.as_deref())? {
            Some(given) => Some(given),
            None => release.as_deref().and_then(of_the_host),
        };
        let (path, confine) = (path.to_owned(), !spec.engine.no_seccomp);
        Ok(Self { path, contents, release, modules, confine, built_in: OnceCell::new() })
    }

    /// Those of these drivers that it has neither built in nor as modules.
    ///
    /// # Errors
    ///
    /// The file is not a kernel's, or is damaged; or the index of its modules cannot be read.
    pub fn lacks(&self, names: &[&'static str]) -> Result<Vec<&'static str>, Error> {
        let built_in = match self.built_in.get() {
            Some(known) => known,
            None => {
                let found = self.find_built_in().map_err(|error| Error::Kernel {
                    path: self.path.clone(),
                    error: error.into(),
                })?;
                self.built_in.get_or_init(|| found)
            }
        };
        let mut missing = Vec::new();
        for name in names.iter().filter(|name| !built_in.contains(name)) {
            if self.drivers(&[name])?.is_empty() {
                missing.push(*name);
            }
        }
        Ok(missing)
    }

    /// By which file system it mounts directories: virtio-fs, unless it has nothing but 9p.
    ///
    /// # Errors
    ///
    /// As [`Self::lacks`].
    pub fn file_system(&self) -> Result<FileSystem, Error> {
        let knows_only_nine =
            !self.lacks(&["virtiofs"])?.is_empty() && self.lacks(NINE_DRIVERS)?.is_empty();
        Ok(if knows_only_nine { FileSystem::Nine } else { FileSystem::VirtioFs })
    }

    /// The modules among these drivers, and what they need, in the order in which they are loaded.
    ///
    /// # Errors
    ///
    /// Their index cannot be read.
    pub fn drivers(&self, names: &[&'static str]) -> Result<Vec<(String, PathBuf)>, Error> {
        let modules = self.modules.as_ref();
        Ok(modules.map(|modules| modules.drivers(names)).transpose()?.unwrap_or_default())
    }

    fn find_built_in(&self) -> Result<Vec<&'static str>, vmm::BootError> {
        vmm::kernel_protocol(&self.contents)?;
        let (unpacker, cache) = (unpack::unpacker(self.confine), unpack::cache());
        Ok(built_in(&unpacker.unpack_kernel(&self.contents, cache.as_deref())?))
    }
}

/// The modules that the host has for a kernel of this release.
fn of_the_host(release: &str) -> Option<Given> {
    let is_name = !release.contains('/') && release != "." && release != "..";
    let directory = is_name.then(|| Path::new(OF_THE_HOST).join(release))?;
    // Modules of others, in directories below it, are not its own.
    let given = Given::find(&directory, None).ok()?;
    (given.directory() == directory).then_some(given)
}

/// What an unpacked kernel has built in, of the drivers that are known here.
fn built_in(kernel: &[u8]) -> Vec<&'static str> {
    let has = |driver: &&Driver| memchr::memmem::find(kernel, driver.mark).is_some();
    DRIVERS.iter().filter(has).map(|driver| driver.name).collect()
}

/// Drivers as a text for somebody who builds kernels.
pub fn described(names: &[&str]) -> String {
    let known = |name: &str| DRIVERS.iter().find(|driver| driver.name == name);
    let texts = names.iter().map(|name| match known(name) {
        Some(Driver { option, .. }) => format!("{name} ({option})"),
        None => (*name).to_owned(),
    });
    texts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kernel: &[u8], expected: &[&str]) {
        assert_eq!(built_in(kernel), expected, "{}", String::from_utf8_lossy(kernel));
    }

    #[test]
    fn what_is_built_in_is_known_by_its_names() {
        check(b"", &[]);
        check(b"\0virtio-pci\0virtio-pci-modern\0", &["virtio_pci"]);
        check(b"\0virtio-pci-modern\0a virtiofs tag\0erofs: x\0", &[]);
        check(b"\0xen_blkfront.max\0", &[]);
        check(b"\0xen_blkfront\0", &["xen-blkfront"]);
        check(b"\x009p2000.L\x009p\0virtio_9pnet\0", &[]);
        check(b"\x009P2000.L\x009pnet_virtio\0posixacl\0", &["9pnet", "9pnet_virtio", "9p"]);
        check(b"\0virtiofs\0erofs\0redirect_dir\0", &["virtiofs", "overlay", "erofs"]);
    }

    #[test]
    fn drivers_are_described_by_their_options() {
        assert_eq!(
            described(&["virtiofs", "overlay"]),
            "virtiofs (CONFIG_VIRTIO_FS), overlay (CONFIG_OVERLAY_FS)"
        );
    }

    #[test]
    fn the_host_has_no_modules_of_kernels_with_odd_names() {
        for release in ["..", ".", "a/b", "", "no-such-release"] {
            assert!(of_the_host(release).is_none(), "{release}");
        }
    }
}
