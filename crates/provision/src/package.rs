//! Takes files out of a Debian package (deb(5)): an ar archive with a tar stream in it, from which single files are
//! taken.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flate2::read::MultiGzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::StreamingDecoder;

use crate::file::{FileError, at};
use crate::limits::{MAX_DICTIONARY_KIBIBYTES, MAX_UNPACKED_PACKAGE_BYTES};
use crate::modules::{self, Unpacking};

/// The file beside busybox that lists its applets.
pub const APPLETS: &str = "applets";

/// The directory beside the kernel that has drivers.
pub const DRIVERS: &str = "drivers";

/// Which. A kernel that has one built in has no module of it.
const DRIVER_NAMES: [&str; 23] = [
    "erofs",
    "failover",
    "fuse",
    "libcrc32c",
    "net_failover",
    "overlay",
    "virtio",
    "virtio-rng",
    "virtio_balloon",
    "virtio_blk",
    "virtio_console",
    "virtio_net",
    "virtio_pci",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_ring",
    "virtiofs",
    "vmw_vsock_virtio_transport",
    "vmw_vsock_virtio_transport_common",
    "vsock",
    "vsock_diag",
    "xen-blkfront",
    "xen-netfront",
];

/// The file beside the drivers that says which were looked for.
const DRIVERS_LIST: &str = "drivers.list";

/// What it says where all modules are, with their indexes. The number is that of the form.
const ALL_MODULES: &str = "modules:1";

fn drivers_list() -> String {
    format!("{}\n{ALL_MODULES}", DRIVER_NAMES.join("\n"))
}

/// Whether all drivers that we know of have been looked for in what was unpacked there, and all modules have been
/// kept: an older biv knew fewer, and a newer one may know more.
pub fn has_all_drivers(directory: &Path) -> bool {
    let Ok(list) = fs::read_to_string(directory.join(DRIVERS_LIST)) else { return false };
    let mut wanted = DRIVER_NAMES.iter().chain([&ALL_MODULES]);
    wanted.all(|name| list.lines().any(|line| line == *name))
}

/// Where the kernel's modules are that was unpacked there, below its release; none if it has none.
pub fn modules_in(directory: &Path) -> Option<PathBuf> {
    let modules = directory.join(modules::DIRECTORY);
    let mut entries = fs::read_dir(&modules).ok()?;
    entries.any(|entry| entry.is_ok()).then_some(modules)
}

/// Those of these drivers that are in what was unpacked there; the others are built in, or there are none.
pub fn drivers_in<'a>(directory: &Path, names: &[&'a str]) -> Vec<(&'a str, PathBuf)> {
    let path = |name: &str| directory.join(DRIVERS).join(format!("{name}.ko"));
    let found = names.iter().map(|&name| (name, path(name)));
    found.filter(|(_, path)| path.is_file()).collect()
}

/// Why a package is of no use.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Reading or writing failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file that we came for is not in it.
    #[error("{package} contains no {wanted}", package = .package.display())]
    Missing {
        /// The package.
        package: PathBuf,
        /// The file.
        wanted: &'static str,
    },
    /// The new busybox failed.
    #[error("{program} failed ({status})")]
    Program {
        /// Which.
        program: &'static str,
        /// How.
        status: std::process::ExitStatus,
    },
}

/// Takes `vmlinuz` and the modules from a kernel's packages; the drivers of virtio devices besides, unpacked.
pub fn unpack_kernel(packages: &[PathBuf], into: &Path) -> Result<(), Error> {
    const IMAGE: &str = "boot/vmlinuz-";
    let (drivers, list) = (into.join(DRIVERS), into.join(DRIVERS_LIST));
    fs::create_dir(&drivers).map_err(at(&drivers))?;
    fs::write(&list, drivers_list()).map_err(at(&list))?;
    let modules = into.join(modules::DIRECTORY);
    let mut unpacking = Unpacking::new(modules.clone()).map_err(at(&modules))?;
    let mut found = false;
    let mut look = |path: &[u8], entry: &mut dyn io::Read| {
        if path.starts_with(IMAGE.as_bytes()) || is_image_of_modules(path) {
            found = true;
            copy(entry, &into.join("vmlinuz"))?;
        } else if let Some((name, module)) = unpacking.take(path, entry)?
            && DRIVER_NAMES.contains(&name.as_str())
        {
            fs::write(drivers.join(name).with_extension("ko"), module)?;
        }
        Ok(false)
    };
    for package in packages {
        each_entry(package, &mut look)?;
    }
    unpacking.finish().map_err(at(&modules))?;
    if found { Ok(()) } else { Err(missing(packages, IMAGE)) }
}

/// Whether this is the image beside its modules, `lib/modules/RELEASE/vmlinuz`, where Debian has it since 14.
fn is_image_of_modules(path: &[u8]) -> bool {
    let release =
        path.strip_prefix(b"lib/modules/").and_then(|path| path.strip_suffix(b"/vmlinuz"));
    release.is_some_and(|release| !release.contains(&b'/'))
}

fn missing(packages: &[PathBuf], wanted: &'static str) -> Error {
    Error::Missing { package: packages.first().cloned().unwrap_or_default(), wanted }
}

fn copy(entry: &mut dyn io::Read, to: &Path) -> io::Result<()> {
    io::copy(entry, &mut File::create(to)?).map(|_| ())
}

/// Takes `busybox` from its package and asks it for its applets.
pub fn unpack_busybox(packages: &[PathBuf], into: &Path) -> Result<(), Error> {
    let program = into.join("busybox");
    // Its place moved from /bin to /usr/bin when Debian merged the two.
    extract(packages, "bin/busybox", &program)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).map_err(at(&program))?;
    let listing = Command::new(&program)
        .arg("--list-full")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .map_err(at(&program))?;
    if !listing.status.success() {
        return Err(Error::Program { program: "busybox", status: listing.status });
    }
    let applets = into.join(APPLETS);
    Ok(fs::write(&applets, listing.stdout).map_err(at(&applets))?)
}

/// Copies the first regular file whose path contains `wanted` after `./` or `./usr/`.
fn extract(packages: &[PathBuf], wanted: &'static str, to: &Path) -> Result<(), Error> {
    for package in packages {
        let found = each_entry(package, |path, entry| {
            let is_it = path.starts_with(wanted.as_bytes());
            if is_it {
                copy(entry, to)?;
            }
            Ok(is_it)
        })?;
        if found {
            return Ok(());
        }
    }
    Err(missing(packages, wanted))
}

/// Has `look` see the regular files, with their paths after `./` or `./usr/`, until it has found what it
/// looks for; whether it has.
fn each_entry(
    package: &Path,
    look: impl FnMut(&[u8], &mut dyn io::Read) -> io::Result<bool>,
) -> Result<bool, Error> {
    Ok(contents(package, look).map_err(at(package))?)
}

fn contents(
    package: &Path,
    look: impl FnMut(&[u8], &mut dyn io::Read) -> io::Result<bool>,
) -> io::Result<bool> {
    let mut archive = ar::Archive::new(BufReader::new(File::open(package)?));
    while let Some(member) = archive.next_entry() {
        let member = member?;
        match member.header().identifier() {
            b"data.tar" => return look_at_entries(member, look),
            b"data.tar.gz" => return look_at_entries(MultiGzDecoder::new(member), look),
            b"data.tar.xz" => {
                let unpacked = XzReader::new_mem_limit(member, true, MAX_DICTIONARY_KIBIBYTES);
                return look_at_entries(unpacked, look);
            }
            b"data.tar.zst" => {
                let unpacked = StreamingDecoder::new(member).map_err(io::Error::other)?;
                return look_at_entries(unpacked, look);
            }
            _ => {}
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "it is no Debian package"))
}

fn look_at_entries(
    stream: impl io::Read,
    mut look: impl FnMut(&[u8], &mut dyn io::Read) -> io::Result<bool>,
) -> io::Result<bool> {
    for entry in tar::Archive::new(stream.take(MAX_UNPACKED_PACKAGE_BYTES)).entries()? {
        let mut entry = entry?;
        let path = entry.path_bytes().into_owned();
        let path = path.strip_prefix(b"./").unwrap_or(&path);
        let path = path.strip_prefix(b"usr/").unwrap_or(path);
        if entry.header().entry_type().is_file() && look(path, &mut entry)? {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A package with one file, packed so.
    fn package(name: &str, packed: &[u8]) -> PathBuf {
        let path = std::env::temp_dir().join(format!("biv-{}-{name}.deb", std::process::id()));
        let mut archive = ar::Builder::new(File::create(&path).unwrap());
        let mut add = |name: &str, bytes: &[u8]| {
            let header = ar::Header::new(name.as_bytes().to_vec(), bytes.len() as u64);
            archive.append(&header, bytes).unwrap();
        };
        add("debian-binary", b"2.0\n");
        add("control.tar", b"");
        add(name, packed);
        path
    }

    fn tar() -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(5);
        archive.append_data(&mut header, "./usr/bin/busybox", &b"hello"[..]).unwrap();
        archive.into_inner().unwrap()
    }

    /// What comes of looking for busybox in a package.
    fn found(name: &str, packed: &[u8]) -> Result<Vec<u8>, Error> {
        let path = package(name, packed);
        let mut bytes = Vec::new();
        let found = each_entry(&path, |path, entry| {
            assert_eq!(path, b"bin/busybox");
            entry.read_to_end(&mut bytes).map(|_| true)
        });
        fs::remove_file(path).unwrap();
        found.map(|found| if found { bytes } else { Vec::new() })
    }

    #[test]
    fn files_come_out_of_packages_however_these_are_packed() {
        let tar = tar();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&tar).unwrap();
        let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 6);
        xz.write_all(&tar).unwrap();
        let packed = [
            ("data.tar.gz", gzip.finish().unwrap()),
            ("data.tar.xz", xz.finish().unwrap()),
            ("data.tar.zst", zstd::bulk::compress(&tar, 3).unwrap()),
            ("data.tar", tar),
        ];
        for (name, bytes) in packed {
            assert_eq!(found(name, &bytes).unwrap(), b"hello", "{name}");
            // What ends too soon is no package without files. A tar that is not packed does not tell.
            let part = &bytes[..bytes.len() / 4];
            assert!(name == "data.tar" || found(name, part).is_err(), "{name}");
        }
        let error = found("other.tar", b"").unwrap_err().to_string();
        assert!(error.contains("it is no Debian package"), "{error}");
    }
}
