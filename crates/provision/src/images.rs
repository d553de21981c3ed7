//! Root file systems of Debian, made by mmdebstrap as the user who asks. Each is a directory in the
//! user's cache, `images/NAME/`, which domains share.
//!
//! mmdebstrap hands its result over as an archive, because only root could keep the owners of its
//! files. On the host all files belong to the user who made the image. Extended attributes record
//! their owners in a guest ([`files::owner`]); the file server reads them, and so does the code
//! that packs an image for a kernel without a file server. Devices are left out: a guest has its
//! own.
//!
//! Beside the directory is the same image as a disk ([`disk`]), which a guest reads faster.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use files::owner::Owner;

use super::cache::{self, Lock, at, cache_directory, trusted};
use super::limits::MAX_IMAGE_NAME_BYTES;
use super::progress::Progress;
use spec::is_plain;

use super::{Error, apt};

mod disk;

/// Where they are in the cache.
const DIRECTORY: &str = "images";

/// In an image's directory: the root file system, and what it was made from.
const ROOT: &str = "root";
const RECIPE: &str = "recipe";

/// The bits of a mode that chmod(2) sets.
const PERMISSIONS: u32 = 0o7777;

/// Why whose files are what cannot be kept.
const NO_ATTRIBUTES: &str = "the file system of the cache directory keeps no extended attributes \
                             of \
                             users, which say to whom an image's files belong; set XDG_CACHE_HOME \
                             to a directory on ext4, xfs or btrfs";

/// Lines of a failure that are worth showing.
const LAST_LINES: usize = 3;

/// What an image is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// Debian's suite.
    pub suite: String,
    /// Packages besides the essential ones.
    pub include: Vec<String>,
}

/// An image in the cache.
#[derive(Debug, Clone)]
pub struct Image {
    /// What the user calls it.
    pub name: String,
    /// Suite and packages, in one line.
    pub recipe: String,
    /// Since when it is there.
    pub age: Duration,
    directory: PathBuf,
}

impl Image {
    fn open(directory: PathBuf) -> Option<Self> {
        let name = directory.file_name()?.to_str()?.to_owned();
        let recipe = fs::read_to_string(directory.join(RECIPE)).ok()?;
        let age = cache::age_of(&directory.join(RECIPE)).unwrap_or_default();
        Some(Self { name, recipe, age, directory })
    }

    /// Its root file system.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.directory.join(ROOT)
    }

    /// The same as a file with a read-only file system, which is made if it is not there: an older `biv` has made
    /// the image, or its file system has another form now.
    ///
    /// # Errors
    ///
    /// It is somebody else's, or cannot be made: the disk is full, or something changes the image. A guest can have
    /// [`Self::root`] then.
    pub fn disk(&self) -> Result<PathBuf, Error> {
        let place = trusted(Path::new(DIRECTORY).join(&self.name).join(disk::NAME))?;
        if place.exists() {
            return Ok(place);
        }
        let work = Lock::take(&cache_directory()?)?.work()?;
        // Another process may have made it while we waited.
        if !place.exists() {
            let fresh = work.path().join(disk::NAME);
            Progress::start().say(&format!("making a disk of the image {}", self.name));
            disk::write(&self.root(), &fresh)?;
            fs::rename(&fresh, &place).map_err(at(&place))?;
        }
        Ok(place)
    }
}

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// Its name.
    #[error(
        "invalid image name {0:?}: use letters, digits, \"-\", \"_\" and \".\", and begin with a \
         letter or a digit"
    )]
    Name(String),
    /// There is no mmdebstrap here.
    #[error(
        "mmdebstrap, which builds images, is not installed; install Debian's package mmdebstrap"
    )]
    NoProgram,
    /// It failed.
    #[error("mmdebstrap failed ({status}): {said}")]
    Program {
        /// How.
        status: std::process::ExitStatus,
        /// The last that it said.
        said: String,
    },
    /// What it made.
    #[error("cannot unpack the image: {0}")]
    Unpack(io::Error),
    /// The same as a disk.
    #[error("cannot build the disk of the image: {0}")]
    Disk(#[from] erofs::Error),
}

/// Whether an image of ours can have that name: it is one of a file and of no option.
#[must_use]
pub fn is_name(name: &str) -> bool {
    is_plain(name) && name.len() <= MAX_IMAGE_NAME_BYTES
}

fn check(name: &str) -> Result<(), Error> {
    match is_name(name) {
        true => Ok(()),
        false => Err(Trouble::Name(name.to_owned()).into()),
    }
}

/// All images, by name.
pub fn list() -> Result<Vec<Image>, Error> {
    let mut images: Vec<_> =
        cache::entries(DIRECTORY)?.into_iter().filter_map(Image::open).collect();
    images.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(images)
}

/// The image of that name.
pub fn find(name: &str) -> Result<Option<Image>, Error> {
    check(name)?;
    Ok(Image::open(trusted(Path::new(DIRECTORY).join(name))?))
}

/// Remove an image; whether there was one.
pub fn remove_called(name: &str) -> Result<bool, Error> {
    let _lock = Lock::take(&cache_directory()?)?;
    let Some(image) = find(name)? else { return Ok(false) };
    cache::remove(&image.directory).map_err(at(&image.directory))?;
    Ok(true)
}

/// Make an image, in the place of one of that name.
pub fn build(name: &str, recipe: &Recipe) -> Result<Image, Error> {
    check(name)?;
    let work = Lock::take(&cache_directory()?)?.work()?;
    let fresh = work.path().join(name);
    fs::create_dir_all(fresh.join(ROOT)).map_err(at(&fresh))?;
    make(recipe, &fresh.join(ROOT))?;
    disk::write(&fresh.join(ROOT), &fresh.join(disk::NAME))?;
    let line = format!("{} {}", recipe.suite, recipe.include.join(","));
    fs::write(fresh.join(RECIPE), line.trim_end()).map_err(at(&fresh))?;
    let place = work.install(&fresh, Path::new(DIRECTORY).join(name))?;
    Image::open(place.clone()).ok_or_else(|| at(&place)(io::ErrorKind::NotFound.into()).into())
}

fn make(recipe: &Recipe, root: &Path) -> Result<(), Error> {
    let progress = Progress::start();
    progress.say(&format!("making an image of {}", recipe.suite));
    let mut command = Command::new("mmdebstrap");
    command.args(["--variant=minbase", "--format=tar"]);
    if !recipe.include.is_empty() {
        command.arg(format!("--include={}", recipe.include.join(",")));
    }
    command.args(["--", &recipe.suite, "-"]);
    if let Some(site) = apt::site() {
        command.arg(site);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::from(Trouble::NoProgram),
        _ => Trouble::Unpack(error).into(),
    })?;
    let missing = || Trouble::Unpack(io::ErrorKind::BrokenPipe.into());
    let (archive, complaints) =
        (child.stdout.take().ok_or_else(missing)?, child.stderr.take().ok_or_else(missing)?);
    let listener = std::thread::spawn(move || {
        let mut last = Vec::new();
        for line in BufReader::new(complaints).lines().map_while(Result::ok) {
            match line.strip_prefix("I: ") {
                Some(step) => progress.say(step),
                None => last.push(line),
            }
            last.drain(..last.len().saturating_sub(LAST_LINES));
        }
        last.join("; ")
    });
    let unpacked = unpack(archive, root);
    let status = child.wait().map_err(Trouble::Unpack)?;
    let said = listener.join().unwrap_or_default();
    match (status.success(), unpacked) {
        (true, unpacked) => Ok(unpacked.map_err(Trouble::Unpack)?),
        (false, _) => Err(Trouble::Program { status, said }.into()),
    }
}

/// Unpacks all but devices, with times, and with whose each file is in its attributes ([`files::owner`]).
fn unpack(archive: impl Read, root: &Path) -> io::Result<()> {
    let mut archive = tar::Archive::new(archive);
    archive.set_preserve_mtime(true);
    archive.set_overwrite(true);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        if kind.is_character_special() || kind.is_block_special() || kind.is_fifo() {
            continue;
        }
        let capability = capability(&mut entry)?;
        // It refuses what would lie outside of the root.
        let is_unpacked = entry.unpack_in(root)?;
        // A further name of a file has nothing of its own, and a symbolic link has no attributes.
        if is_unpacked && (kind.is_dir() || kind.is_file()) {
            let header = entry.header();
            let (user, group) = (number(header.uid()?)?, number(header.gid()?)?);
            let owner = Owner { user, group, mode: header.mode()? & PERMISSIONS };
            let path = root.join(entry.path()?);
            settle(&path, owner, kind.is_dir(), capability.as_deref())?;
        }
    }
    // What no archive has to have, and every guest needs.
    for place in ["dev", "proc", "sys", "run", "tmp"] {
        fs::create_dir_all(root.join(place))?;
    }
    Ok(())
}

/// What a program may do, if the archive says so (pax headers, as GNU tar has them).
fn capability(entry: &mut tar::Entry<'_, impl Read>) -> io::Result<Option<Vec<u8>>> {
    let Some(extensions) = entry.pax_extensions()? else { return Ok(None) };
    for extension in extensions {
        let extension = extension?;
        if extension.key_bytes() == b"SCHILY.xattr.security.capability" {
            return Ok(Some(extension.value_bytes().to_vec()));
        }
    }
    Ok(None)
}

fn number(id: u64) -> io::Result<u32> {
    u32::try_from(id).map_err(|_| io::Error::other(format!("there is no user or group {id}")))
}

/// Makes a file harmless on the host, and notes what it is in a guest.
fn settle(path: &Path, owner: Owner, is_dir: bool, capability: Option<&[u8]>) -> io::Result<()> {
    let mode = Owner::mode_on_host(owner.mode, is_dir);
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    let noted = owner.record(path).and_then(|()| match capability {
        Some(value) => files::owner::record_capability(path, value),
        None => Ok(()),
    });
    noted.map_err(|error| match error.kind() {
        io::ErrorKind::Unsupported => io::Error::new(error.kind(), NO_ATTRIBUTES),
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_names_of_files_and_of_no_options() {
        for name in ["build", "debian-12", "a.b_c", "0"] {
            assert!(check(name).is_ok(), "{name}");
        }
        for name in ["", "-x", ".", "..", "a/b", "a b", "ä", &"x".repeat(65)] {
            assert!(check(name).is_err(), "{name}");
        }
    }

    #[test]
    fn an_archive_is_unpacked_with_its_owners_and_without_devices() {
        let mut archive = tar::Builder::new(Vec::new());
        let mut add = |path: &str, kind: tar::EntryType, mode, owner: (u64, u64), data: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_mode(mode);
            header.set_uid(owner.0);
            header.set_gid(owner.1);
            header.set_size(data.len() as u64);
            archive.append_data(&mut header, path, data).unwrap();
        };
        add("usr", tar::EntryType::Directory, 0o555, (0, 0), b"");
        add("usr/file", tar::EntryType::Regular, 0o4755, (12345, 8), b"contents");
        add("usr/secret", tar::EntryType::Regular, 0, (0, 42), b"");
        add("null", tar::EntryType::Char, 0o666, (0, 0), b"");
        archive
            .append_pax_extensions([("SCHILY.xattr.security.capability", &b"\x01\0\xff"[..])])
            .unwrap();
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o755);
        header.set_size(0);
        header.set_uid(0);
        header.set_gid(0);
        archive.append_data(&mut header, "ping", &b""[..]).unwrap();
        let bytes = archive.into_inner().unwrap();
        let root = std::env::temp_dir().join(format!("biv-images-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        unpack(&bytes[..], &root).unwrap();
        let mode =
            |name: &str| fs::metadata(root.join(name)).unwrap().permissions().mode() & 0o7777;
        // Nothing runs as somebody else on the host, and all can be read and removed by who made it.
        assert_eq!((mode("usr"), mode("usr/file"), mode("usr/secret")), (0o755, 0o755, 0o600));
        let check = |name: &str, user, group, mode| {
            let found = Owner::recorded(root.join(name));
            assert_eq!(found, Some(Owner { user, group, mode }), "{name}");
        };
        check("usr", 0, 0, 0o555);
        check("usr/file", 12345, 8, 0o4755);
        check("usr/secret", 0, 42, 0);
        let mut value = [0; 16];
        let ping = root.join("ping");
        let length = rustix::fs::getxattr(&ping, files::owner::CAPABILITY, &mut value).unwrap();
        assert_eq!(value[..length], *b"\x01\0\xff");
        assert!(!root.join("null").exists() && root.join("proc").is_dir());
        fs::remove_dir_all(&root).unwrap();
    }
}
