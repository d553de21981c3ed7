//! `biv snapshot`: a domain writes its state into a file that `biv` opens for it, because the
//! domain can open none. `biv` adds the host resources that were recorded when the domain was
//! started, and signs both ([`domain::seal`]), because the guest may own the domain's process.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, OFlags, linkat};
use rustix::io::Errno;

use super::Error;
use crate::cli::Format;
use crate::cli::domains::Snapshot;
use crate::print;
use api::client::Client;
use api::v1::{self, Take};
use api::{Origin, Registry};
use domain::seal::{self, Purpose};

/// `biv snapshot`.
pub fn snapshot(arguments: &Snapshot) -> Result<(), Error> {
    let entry = Registry::open()?.find(&arguments.name)?;
    let path = &arguments.file;
    let failed = |error| Error::File { path: path.clone(), error };
    must_be_free(path, arguments.force)?;
    // Before anything is written: a snapshot that nobody vouches for is of little use.
    let (state, origin) = (seal::state_directory()?, Origin::of_domain(&entry.directory)?);
    let unfinished = Unfinished::beside(path)?;
    let take = Take { compress: arguments.compress };
    let client = Client::connect(&entry)?;
    let mut written: v1::Snapshot =
        client.post_with_file("/v1/domain/snapshot", &take, unfinished.file.as_fd())?;
    seal::seal(&unfinished.file, &state, Purpose::Restore, &origin.text())?;
    unfinished.file.sync_all().map_err(failed)?;
    written.file = unfinished.file.metadata().map_err(failed)?.len();
    unfinished.becomes(path)?;
    match arguments.format {
        Format::Text => Ok(()),
        Format::Json => Ok(print::json(&written)?),
    }
}

/// Whether a snapshot may be written there.
pub(crate) fn must_be_free(path: &Path, force: bool) -> Result<(), Error> {
    // Elsewhere that is a stream, which a snapshot cannot go to: what is written last comes first in it.
    if path.as_os_str() == "-" {
        return Err(Error::NoStream);
    }
    if !force && path.symlink_metadata().is_ok() {
        let error =
            io::Error::new(io::ErrorKind::AlreadyExists, "there is one; --force replaces it");
        return Err(Error::File { path: path.to_owned(), error });
    }
    Ok(())
}

/// How much of its later name a file's hidden name has: with the rest, no more than a name may have.
const NAME_KEPT_BYTES: usize = 128;

/// A file that is not what it is to be yet; with this it goes.
///
/// It has no name until it is whole (open(2), `O_TMPFILE`), so that nothing is left of it, however this process ends.
/// Where the file system has no such files, it has a hidden name beside its place, which is left if this process is
/// killed. So it has for the moment in which it replaces another file: no system call does that at once.
pub(crate) struct Unfinished {
    pub file: File,
    /// The name that it has meanwhile, if it needs one.
    hidden: Option<PathBuf>,
}

impl Unfinished {
    /// In the same directory, which only its owner can read.
    pub fn beside(path: &Path) -> Result<Self, Error> {
        Self::nameless(path)
            .or_else(|_| Self::named(path))
            .map_err(|error| Error::File { path: path.to_owned(), error })
    }

    fn nameless(path: &Path) -> io::Result<Self> {
        path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let flags = OFlags::TMPFILE.bits().cast_signed();
        let file = options().custom_flags(flags).open(directory.unwrap_or(Path::new(".")))?;
        Ok(Self { file, hidden: None })
    }

    fn named(path: &Path) -> io::Result<Self> {
        let hidden = hidden(path)?;
        let file = options().create_new(true).open(&hidden)?;
        Ok(Self { file, hidden: Some(hidden) })
    }

    /// It is whole, and takes its name.
    pub fn becomes(mut self, path: &Path) -> Result<(), Error> {
        self.take_name(path).map_err(|error| Error::File { path: path.to_owned(), error })
    }

    fn take_name(&mut self, path: &Path) -> io::Result<()> {
        if self.hidden.is_none() {
            match self.link(path) {
                Err(Errno::EXIST) => {}
                linked => return Ok(linked?),
            }
            // What is there is replaced.
            let hidden = hidden(path)?;
            self.link(&hidden)?;
            self.hidden = Some(hidden);
        }
        if let Some(hidden) = &self.hidden {
            fs::rename(hidden, path)?;
        }
        self.hidden = None;
        Ok(())
    }

    /// Gives it its first name.
    fn link(&self, path: &Path) -> rustix::io::Result<()> {
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        linkat(CWD, own, CWD, path, AtFlags::SYMLINK_FOLLOW)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(hidden) = &self.hidden {
            // Nobody is left who could be told.
            let _ = fs::remove_file(hidden);
        }
    }
}

fn options() -> OpenOptions {
    let mut options = File::options();
    options.read(true).write(true).mode(0o600);
    options
}

/// A name beside a place that nobody else has.
fn hidden(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.as_bytes();
    let mut hidden = OsString::from(".");
    hidden.push(OsStr::from_bytes(&name[..name.len().min(NAME_KEPT_BYTES)]));
    hidden.push(format!(".{:016x}", api::files::random()));
    Ok(path.with_file_name(hidden))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A directory that disappears.
    struct Directory(PathBuf);

    impl Directory {
        fn new() -> Self {
            static NUMBER: AtomicU32 = AtomicU32::new(0);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("biv-unfinished-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> Vec<OsString> {
            fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name()).collect()
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Whether one that is made so has a name before it is whole, and that it becomes a file, and replaces one.
    fn check(make: fn(&Path) -> io::Result<Unfinished>) -> io::Result<bool> {
        let directory = Directory::new();
        // As long as a name may be.
        let path = directory.0.join("n".repeat(255));
        drop(make(&path)?);
        assert!(directory.names().is_empty(), "it goes with whoever makes it");
        let mut has_name = false;
        for content in ["first", "second"] {
            let mut unfinished = make(&path)?;
            let before = directory.names();
            has_name = before.iter().any(|name| name.as_bytes().starts_with(b".nnn"));
            assert_eq!(before.len(), usize::from(has_name) + usize::from(content == "second"));
            unfinished.file.write_all(content.as_bytes())?;
            unfinished.becomes(&path).unwrap();
            assert_eq!(directory.names(), [path.file_name().unwrap()]);
            assert_eq!(fs::read(&path)?, content.as_bytes());
            assert_eq!(fs::metadata(&path)?.permissions().mode() & 0o777, 0o600);
        }
        Ok(has_name)
    }

    #[test]
    fn a_file_has_no_name_until_it_is_whole() {
        match check(Unfinished::nameless) {
            Ok(has_name) => assert!(!has_name),
            Err(error) => println!("skipped: no files without names in temporary files: {error}"),
        }
    }

    #[test]
    fn a_file_that_needs_a_name_has_a_hidden_one() {
        assert!(check(Unfinished::named).unwrap());
    }

    #[test]
    fn what_cannot_be_replaced_stays_and_nothing_is_left() {
        for make in [Unfinished::nameless, Unfinished::named] {
            let directory = Directory::new();
            let path = directory.0.join("directory");
            fs::create_dir(&path).unwrap();
            // Not everywhere there are files without names.
            let Ok(unfinished) = make(&path) else { continue };
            assert!(unfinished.becomes(&path).is_err());
            assert_eq!(directory.names(), ["directory"]);
        }
        assert!(Unfinished::beside(Path::new("/")).is_err());
        assert!(Unfinished::beside(Path::new("/no/such/directory/file")).is_err());
    }
}
