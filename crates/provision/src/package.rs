//! Takes files out of a Debian package. `dpkg-deb`, which comes with apt, makes the package a tar
//! stream, from which single files are taken.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lzma_rust2::XzReader;
use ruzstd::decoding::StreamingDecoder;

use crate::limits::{MAX_DRIVER_BYTES, MAX_DRIVER_DICTIONARY_KIBIBYTES};

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

fn drivers_list() -> String {
    DRIVER_NAMES.join("\n")
}

/// Whether all drivers that we know of have been looked for in what was unpacked there: an older biv knew
/// fewer, and a newer one may know more.
pub fn has_all_drivers(directory: &Path) -> bool {
    let Ok(list) = fs::read_to_string(directory.join(DRIVERS_LIST)) else { return false };
    DRIVER_NAMES.iter().all(|name| list.lines().any(|line| line == *name))
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
    #[error("{path}: {error}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
    /// The file that we came for is not in it.
    #[error("{package} contains no {wanted}", package = .package.display())]
    Missing {
        /// The package.
        package: PathBuf,
        /// The file.
        wanted: &'static str,
    },
    /// dpkg-deb or the new busybox failed.
    #[error("{program} failed ({status})")]
    Program {
        /// Which.
        program: &'static str,
        /// How.
        status: std::process::ExitStatus,
    },
}

/// Takes `vmlinuz` and the drivers of virtio devices from a kernel's packages.
pub fn unpack_kernel(packages: &[PathBuf], into: &Path) -> Result<(), Error> {
    const IMAGE: &str = "boot/vmlinuz-";
    let drivers = into.join(DRIVERS);
    fs::create_dir(&drivers).map_err(|error| Error::Io { path: drivers.clone(), error })?;
    let mut found = false;
    let list = into.join(DRIVERS_LIST);
    fs::write(&list, drivers_list()).map_err(|error| Error::Io { path: list.clone(), error })?;
    let mut look = |path: &[u8], entry: &mut dyn io::Read| {
        if path.starts_with(IMAGE.as_bytes()) || is_image_of_modules(path) {
            found = true;
            copy(entry, &into.join("vmlinuz"))?;
        } else if let Some((name, packing)) = driver(path) {
            let to = drivers.join(name).with_extension("ko");
            match packing {
                Packing::None => copy_driver(entry, &to)?,
                Packing::Xz => copy_driver(unxz(entry), &to)?,
                Packing::Zstd => copy_driver(unzstd(entry)?, &to)?,
            }
        }
        Ok(false)
    };
    for package in packages {
        each_entry(package, &mut look)?;
    }
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

/// How a module is packed.
enum Packing {
    None,
    Xz,
    Zstd,
}

/// The name of a driver that we want, if this is one's path, and how it is packed.
fn driver(path: &[u8]) -> Option<(&str, Packing)> {
    let path = std::str::from_utf8(path).ok()?.strip_prefix("lib/modules/")?;
    let file = path.rsplit('/').next()?;
    let kinds = [(".ko", Packing::None), (".ko.xz", Packing::Xz), (".ko.zst", Packing::Zstd)];
    let mut found =
        kinds.into_iter().filter_map(|(end, kind)| Some((file.strip_suffix(end)?, kind)));
    found.next().filter(|(name, _)| DRIVER_NAMES.contains(name))
}

fn copy(entry: &mut dyn io::Read, to: &Path) -> io::Result<()> {
    io::copy(entry, &mut File::create(to)?).map(|_| ())
}

/// Both decompressors are in Rust without unsafe code: a package is foreign, and this process is not confined.
fn unxz(packed: impl Read) -> impl Read {
    XzReader::new_mem_limit(packed, true, MAX_DRIVER_DICTIONARY_KIBIBYTES)
}

fn unzstd(packed: impl Read) -> io::Result<impl Read> {
    StreamingDecoder::new(packed).map_err(io::Error::other)
}

/// Copies a driver that is not longer than any driver.
fn copy_driver(driver: impl Read, to: &Path) -> io::Result<()> {
    let mut file = File::create(to)?;
    match io::copy(&mut driver.take(MAX_DRIVER_BYTES + 1), &mut file)? {
        0..=MAX_DRIVER_BYTES => Ok(()),
        _ => Err(io::Error::other("it contains a driver that is too long")),
    }
}

/// Takes `busybox` from its package and asks it for its applets.
pub fn unpack_busybox(packages: &[PathBuf], into: &Path) -> Result<(), Error> {
    let program = into.join("busybox");
    // Its place moved from /bin to /usr/bin when Debian merged the two.
    extract(packages, "bin/busybox", &program)?;
    let at = |path: &Path| {
        let path = path.to_owned();
        move |error| Error::Io { path, error }
    };
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
    fs::write(&applets, listing.stdout).map_err(at(&applets))
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
    let at = |error| Error::Io { path: package.to_owned(), error };
    let mut dpkg = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(at)?;
    let stream = dpkg.stdout.take().ok_or_else(|| at(io::ErrorKind::BrokenPipe.into()))?;
    let found = look_at_entries(stream, look);
    // The rest of the archive is of no interest; dpkg-deb ends on the closed pipe.
    let status = dpkg.wait().map_err(at)?;
    match found {
        Ok(true) => Ok(true),
        Ok(false) if status.success() => Ok(false),
        Ok(false) => Err(Error::Program { program: "dpkg-deb", status }),
        Err(error) => Err(at(error)),
    }
}

fn look_at_entries(
    stream: impl io::Read,
    mut look: impl FnMut(&[u8], &mut dyn io::Read) -> io::Result<bool>,
) -> io::Result<bool> {
    for entry in tar::Archive::new(stream).entries()? {
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

    /// What a driver is like: code, and much that repeats.
    fn driver_bytes() -> Vec<u8> {
        let words = (0..200_000_u32).map(|n| n.wrapping_mul(0x9e37_79b9) >> (n % 31));
        words.flat_map(u32::to_le_bytes).collect()
    }

    /// As Linux's Makefile has modules compressed (`xz --check=crc32 --lzma2=dict=2MiB`), with the filter for x86
    /// or without it.
    fn xz(bytes: &[u8], filters_x86: bool) -> Vec<u8> {
        let mut options = liblzma::stream::LzmaOptions::new_preset(6).unwrap();
        options.dict_size(2 << 20);
        let mut filters = liblzma::stream::Filters::new();
        if filters_x86 {
            filters.x86();
        }
        filters.lzma2(&options);
        let check = liblzma::stream::Check::Crc32;
        let stream = liblzma::stream::Stream::new_stream_encoder(&filters, check).unwrap();
        let mut encoder = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn read(mut from: impl Read) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    #[test]
    fn drivers_come_out_as_they_went_in() {
        let driver = driver_bytes();
        for filters_x86 in [false, true] {
            assert!(read(unxz(&xz(&driver, filters_x86)[..])).unwrap() == driver);
        }
        let zstd = zstd::bulk::compress(&driver, 19).unwrap();
        assert!(read(unzstd(&zstd[..]).unwrap()).unwrap() == driver);
    }

    #[test]
    fn damaged_drivers_are_errors() {
        let (xz, zstd) = (xz(&driver_bytes(), false), zstd::bulk::compress(&driver_bytes(), 3));
        let zstd = zstd.unwrap();
        for length in [0, 5, 100, xz.len() / 2, xz.len() - 1] {
            assert!(read(unxz(&xz[..length])).is_err(), "{length}");
        }
        for length in [0, 3, 100, zstd.len() / 2, zstd.len() - 1] {
            assert!(unzstd(&zstd[..length]).and_then(read).is_err(), "{length}");
        }
        let mut flipped = xz.clone();
        flipped[xz.len() / 2] ^= 4;
        assert!(read(unxz(&flipped[..])).is_err());
    }

    #[test]
    fn a_driver_without_end_is_refused() {
        let to = std::env::temp_dir().join(format!("biv-driver-{}", std::process::id()));
        assert!(copy_driver(io::repeat(0), &to).is_err());
        assert!(copy_driver(io::repeat(0).take(MAX_DRIVER_BYTES), &to).is_ok());
        fs::remove_file(to).unwrap();
    }
}
