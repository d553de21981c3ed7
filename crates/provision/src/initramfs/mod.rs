//! The guest's first file system: an uncompressed cpio archive in memory, packed for each run.
//!
//! Our init is at [`INIT`] in all of them, a place that no distribution uses, so that a directory
//! that has an init of its own keeps it.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::modules::Packing;

use self::cpio::{Archive, Metadata, mode};
use self::tree::Owners;

pub mod cpio;
pub mod tree;

/// The guest's init, as built by `build.rs`.
const INIT_PROGRAM: &[u8] = include_bytes!(env!("BIV_GUEST_INIT"));

/// Where it is in the guest; a kernel is told by `rdinit=`.
pub const INIT: &str = "/.bivouac/init";

/// Where it finds modules to load.
const DRIVERS: &str = "/.bivouac/drivers";

/// Where it finds a list of devices whose drivers can be loaded.
const DEVICES: &str = "/.bivouac/devices";

/// Directories of the default guest, with their permissions.
const DIRECTORIES: &[(&str, u32)] = &[
    (".", 0o755),
    ("bin", 0o755),
    ("dev", 0o755),
    ("etc", 0o755),
    ("home", 0o755),
    ("mnt", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("sbin", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("usr", 0o755),
    ("usr/bin", 0o755),
    ("usr/sbin", 0o755),
    ("var", 0o755),
    ("var/tmp", 0o1777),
];

/// Files of the default guest.
const FILES: &[(&str, &str)] = &[
    ("etc/group", "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n"),
    ("etc/hostname", "bivouac\n"),
    ("etc/hosts", "127.0.0.1\tlocalhost bivouac\n::1\tlocalhost\n"),
    (
        "etc/passwd",
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
    ),
    ("etc/profile", "export PS1='bivouac:\\w# '\n"),
    ("etc/shells", "/bin/sh\n"),
];

/// Why there is no archive.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file does not fit the format.
    #[error("cannot pack the guest's initramfs: {0}")]
    Format(#[from] io::Error),
    /// The user's directory.
    #[error(transparent)]
    Tree(#[from] tree::Error),
    /// A file that goes into it.
    #[error("cannot read {path}: {error}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
}

/// A busybox and the paths under which it is to be found, such as `/bin/ls`.
#[derive(Debug, Clone)]
pub struct Busybox {
    /// The program on the host.
    pub program: PathBuf,
    /// One path a line, as `busybox --list-full` prints them.
    pub applets: String,
}

/// The default guest: busybox and a few files.
pub fn default_guest(busybox: &Busybox) -> Result<Vec<u8>, Error> {
    let mut archive = Archive::new(Vec::new());
    for (name, permissions) in DIRECTORIES {
        archive.add(name.as_bytes(), Metadata::new(mode::DIRECTORY | permissions), &[])?;
    }
    for (name, contents) in FILES {
        archive.add(name.as_bytes(), Metadata::new(mode::FILE | 0o644), contents.as_bytes())?;
    }
    let program = read(&busybox.program)?;
    archive.add(b"bin/busybox", Metadata::new(mode::FILE | 0o755), &program)?;
    for applet in busybox.applets.lines() {
        let name = applet.trim_start_matches('/');
        if !name.is_empty() && name != "bin/busybox" {
            let link = Metadata::new(mode::LINK | 0o777);
            archive.add(name.as_bytes(), link, b"/bin/busybox")?;
        }
    }
    add_init(archive)
}

/// A guest whose files are those of `root`, for a machine with so many bytes of memory. The kernel
/// frees the archive when all of it is unpacked, so that both are there at once.
pub fn from_directory(root: &Path, memory: u64) -> Result<Vec<u8>, Error> {
    pack(root, Owners::OfFiles, memory)
}

/// The same of a directory that `biv image build` has made.
pub fn from_image(root: &Path, memory: u64) -> Result<Vec<u8>, Error> {
    pack(root, Owners::Recorded, memory)
}

fn pack(root: &Path, owners: Owners, memory: u64) -> Result<Vec<u8>, Error> {
    let mut archive = Archive::new(Bounded { bytes: Vec::new(), limit: memory / 2 });
    tree::pack(&mut archive, root, owners)?;
    Ok(add_init(archive)?.bytes)
}

/// Nothing but our init, to go after a user's own archive. Linux unpacks archives that follow each
/// other, compressed or not, as one (buffer-format.rst).
pub fn only_init() -> Result<Vec<u8>, Error> {
    add_init(Archive::new(Vec::new()))
}

/// Drivers, by name, packed as modules are or not at all, for our init to load in this order, to go after an archive
/// that has it; and the list of `devices` whose drivers can be loaded later, if there is one (`modules.devname`).
pub fn only_drivers(
    drivers: &[(impl AsRef<str>, PathBuf)],
    devices: Option<&Path>,
) -> Result<Vec<u8>, Error> {
    let mut archive = Archive::new(Vec::new());
    if let Some(list) = devices.and_then(|path| std::fs::read(path).ok()) {
        let place = DEVICES.trim_start_matches('/');
        archive.add(place.as_bytes(), Metadata::new(mode::FILE | 0o644), &list)?;
    }
    let directory = DRIVERS.trim_start_matches('/');
    archive.add(directory.as_bytes(), Metadata::new(mode::DIRECTORY | 0o755), &[])?;
    for (number, (name, path)) in drivers.iter().enumerate() {
        let place = format!("{directory}/{number:02}-{}.ko", name.as_ref());
        let module = unpacked(path).map_err(|error| Error::Read { path: path.clone(), error })?;
        archive.add(place.as_bytes(), Metadata::new(mode::FILE | 0o644), &module)?;
    }
    Ok(archive.finish()?)
}

/// Bytes in memory, up to a limit.
struct Bounded {
    bytes: Vec<u8>,
    limit: u64,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if (self.bytes.len() + bytes.len()) as u64 > self.limit {
            let text = format!(
                "with it the directory has more than {} MiB, half of the machine's memory, which \
                 holds it twice while it boots; give a larger --mem or a smaller directory",
                self.limit >> 20
            );
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        self.bytes.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A module, whose file's name tells how it is packed.
fn unpacked(path: &Path) -> io::Result<Vec<u8>> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let packing = Packing::of(&name).map_or(Packing::None, |(_, packing)| packing);
    packing.unpack(File::open(path)?)
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|error| Error::Read { path: path.to_owned(), error })
}

fn add_init<W: Write>(mut archive: Archive<W>) -> Result<W, Error> {
    let directory = INIT.trim_start_matches('/').trim_end_matches("/init");
    archive.add(directory.as_bytes(), Metadata::new(mode::DIRECTORY | 0o755), &[])?;
    let init = INIT.trim_start_matches('/');
    archive.add(init.as_bytes(), Metadata::new(mode::FILE | 0o755), INIT_PROGRAM)?;
    // The kernel's own archive has a console too, but not every kernel's.
    let console = Metadata { device: (5, 1), ..Metadata::new(mode::CHARACTER_DEVICE | 0o600) };
    archive.add(b"dev", Metadata::new(mode::DIRECTORY | 0o755), &[])?;
    archive.add(b"dev/console", console, &[])?;
    Ok(archive.finish()?)
}
