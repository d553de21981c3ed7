//! Files that appear when they are whole: snapshots, images of pods, archives of images.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, OFlags, linkat};
use rustix::io::Errno;

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
    /// In the same directory, with this mode, less what the process's umask takes.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn beside(path: &Path, mode: u32) -> io::Result<Self> {
        Self::nameless(path, mode).or_else(|_| Self::named(path, mode))
    }

    fn nameless(path: &Path, mode: u32) -> io::Result<Self> {
        path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let flags = OFlags::TMPFILE.bits().cast_signed();
        let file = options(mode).custom_flags(flags).open(directory.unwrap_or(Path::new(".")))?;
        Ok(Self { file, hidden: None })
    }

    fn named(path: &Path, mode: u32) -> io::Result<Self> {
        let hidden = hidden(path)?;
        let file = options(mode).create_new(true).open(&hidden)?;
        Ok(Self { file, hidden: Some(hidden) })
    }

    /// It is whole, and takes its name.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn becomes(mut self, path: &Path) -> io::Result<()> {
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

fn options(mode: u32) -> OpenOptions {
    let mut options = File::options();
    options.read(true).write(true).mode(mode);
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
    fn check(make: fn(&Path, u32) -> io::Result<Unfinished>) -> io::Result<bool> {
        let directory = Directory::new();
        // As long as a name may be.
        let path = directory.0.join("n".repeat(255));
        drop(make(&path, 0o600)?);
        assert!(directory.names().is_empty(), "it goes with whoever makes it");
        let mut has_name = false;
        for content in ["first", "second"] {
            let mut unfinished = make(&path, 0o600)?;
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
            let Ok(unfinished) = make(&path, 0o600) else { continue };
            assert!(unfinished.becomes(&path).is_err());
            assert_eq!(directory.names(), ["directory"]);
        }
        assert!(Unfinished::beside(Path::new("/"), 0o600).is_err());
        assert!(Unfinished::beside(Path::new("/no/such/directory/file"), 0o600).is_err());
    }
}
