//! Root file systems of Debian's, made by mmdebstrap as the user who asks, each a directory in the user's
//! cache: `images/NAME/`, which domains share.
//!
//! All files belong to who made them, and in a guest that is the superuser (`run/directories.rs`). What
//! mmdebstrap makes is therefore taken as an archive, and unpacked without owners and devices.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::cache::{self, Lock, at, cache_directory, trusted};
use super::progress::Progress;
use super::{Error, apt};
use crate::domain::is_plain;

/// Where they are in the cache.
const DIRECTORY: &str = "images";

/// In an image's directory: the root file system, and what it was made from.
const ROOT: &str = "root";
const RECIPE: &str = "recipe";

/// The longest name.
const NAME_MAX_BYTES: usize = 64;

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
}

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// Its name.
    #[error("an image is called by letters, digits and any of -_. after the first, not {0:?}")]
    Name(String),
    /// There is no mmdebstrap here.
    #[error("this host has no mmdebstrap, which makes images; Debian's package has that name")]
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
}

/// A name that is one of a file and of no option.
fn check(name: &str) -> Result<(), Error> {
    match is_plain(name) && name.len() <= NAME_MAX_BYTES {
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
    let line = format!("{} {}", recipe.suite, recipe.include.join(","));
    fs::write(fresh.join(RECIPE), line.trim_end()).map_err(at(&fresh))?;
    let place = work.install(&fresh, Path::new(DIRECTORY).join(name))?;
    Image::open(place.clone()).ok_or_else(|| at(&place)(io::ErrorKind::NotFound.into()))
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

/// Unpack all but devices, each with its permissions and times.
fn unpack(archive: impl Read, root: &Path) -> io::Result<()> {
    let mut archive = tar::Archive::new(archive);
    archive.set_preserve_permissions(true);
    archive.set_preserve_mtime(true);
    archive.set_overwrite(true);
    // Directories that may not be written get their permissions when everything is in them.
    let mut directories = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        if kind.is_character_special() || kind.is_block_special() || kind.is_fifo() {
            continue;
        }
        if kind.is_dir() {
            directories.push((root.join(entry.path()?), entry.header().mode()?));
        }
        // It refuses what would lie outside of the root.
        entry.unpack_in(root)?;
        if let Some((path, _)) = directories.last().filter(|_| kind.is_dir()) {
            set_mode(path, 0o755)?;
        }
    }
    for (path, mode) in directories.into_iter().rev() {
        set_mode(&path, mode)?;
    }
    // What no archive has to have, and every guest needs.
    for place in ["dev", "proc", "sys", "run", "tmp"] {
        fs::create_dir_all(root.join(place))?;
    }
    Ok(())
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => {
            fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o7777))
        }
        // A later entry has put something else there.
        _ => Ok(()),
    }
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
    fn an_archive_is_unpacked_without_devices_and_owners() {
        use std::os::unix::fs::PermissionsExt;
        let mut archive = tar::Builder::new(Vec::new());
        let mut add = |path: &str, kind: tar::EntryType, mode, data: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_mode(mode);
            header.set_uid(12345);
            header.set_size(data.len() as u64);
            archive.append_data(&mut header, path, data).unwrap();
        };
        add("usr", tar::EntryType::Directory, 0o555, b"");
        add("usr/file", tar::EntryType::Regular, 0o4755, b"contents");
        add("null", tar::EntryType::Char, 0o666, b"");
        let bytes = archive.into_inner().unwrap();
        let root = std::env::temp_dir().join(format!("biv-images-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        unpack(&bytes[..], &root).unwrap();
        let mode =
            |name: &str| fs::metadata(root.join(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("usr"), mode("usr/file")), (0o555, 0o4755));
        assert!(!root.join("null").exists() && root.join("proc").is_dir());
        set_mode(&root.join("usr"), 0o755).unwrap();
        fs::remove_dir_all(&root).unwrap();
    }
}
