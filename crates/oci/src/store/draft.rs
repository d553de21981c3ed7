//! A file of the store that is being written, and has no name before it is whole.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat};
use rustix::io::Errno;

use crate::digest::{Digest, Hashing};

/// See above. What was written is hashed.
pub struct Draft {
    file: Hashing<File>,
    /// Its name, where the file system has no files without one.
    name: Option<Unfinished>,
}

/// The name of what is unfinished, which goes with this: the file has another by then, or is of no use.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Draft {
    /// An empty one, below the store's directory `root` on the file system of the directory `beside`.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn new(root: &Path, beside: &Path) -> io::Result<Self> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        // A layer holds what only the guest's root may read.
        match openat(CWD, beside, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => Ok(Self { file: Hashing::new(file.into()), name: None }),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                Self::with_name(&root.join(super::WORK))
            }
            Err(errno) => Err(errno.into()),
        }
    }

    fn with_name(work: &Path) -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        fs::create_dir_all(work)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = work.join(format!("{}-{number}", std::process::id()));
        // Whoever had that number before is gone.
        let _ = fs::remove_file(&path);
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Self { file: Hashing::new(file), name: Some(Unfinished(path)) })
    }

    /// The file itself, for who does not write to it in order: that is not hashed.
    pub fn file(&self) -> &File {
        self.file.inner()
    }

    /// The digest of what was written, how many bytes that is, and the file to be kept.
    #[must_use]
    pub fn finish(self) -> (Digest, u64, Finished) {
        let Self { file, name } = self;
        let (file, digest, bytes) = file.into_parts();
        (digest, bytes, Finished { file, name })
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// One that is whole. It is gone with this, unless it is kept.
pub struct Finished {
    file: File,
    name: Option<Unfinished>,
}

impl Finished {
    /// Gives it a name, when the disk has it. One that is there already is the same.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn keep(self, place: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        self.file.set_permissions(Permissions::from_mode(0o600))?;
        let own = PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        let source = self.name.as_ref().map_or(&own, |Unfinished(path)| path);
        match linkat(CWD, source, CWD, place, AtFlags::SYMLINK_FOLLOW) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}
