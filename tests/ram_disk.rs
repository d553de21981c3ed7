//! An initial RAM disk with busybox and a script for its first process, for kernels that `biv` does not start itself.

use std::fs;
use std::path::{Path, PathBuf};

use provision::initramfs::cpio::{Archive, Metadata, mode};
use provision::{Guest, Part};

/// Such a RAM disk in a file that goes away again.
pub struct RamDisk(PathBuf);

impl RamDisk {
    /// One whose first process is this script. It finds `/bin/busybox`, and empty directories for mounts.
    ///
    /// # Panics
    ///
    /// If busybox cannot be fetched, or there is no room.
    pub fn new(name: &str, init: &str) -> RamDisk {
        let guest = Guest::provide(&[Part::Busybox]).expect("busybox can be fetched");
        let busybox = fs::read(guest.busybox().expect("it is there").program).expect("likewise");
        let mut archive = Archive::new(Vec::new());
        for name in ["bin", "dev", "proc", "sys"] {
            let directory = Metadata::new(mode::DIRECTORY | 0o755);
            archive.add(name.as_bytes(), directory, &[]).expect("memory takes it");
        }
        for (name, contents) in [("bin/busybox", &busybox[..]), ("init", init.as_bytes())] {
            let program = Metadata::new(mode::FILE | 0o755);
            archive.add(name.as_bytes(), program, contents).expect("memory takes it");
        }
        let name = format!("biv-ram-disk-{}-{name}.cpio", std::process::id());
        let path = std::env::temp_dir().join(name);
        let bytes = archive.finish().expect("memory takes it");
        fs::write(&path, bytes).expect("there is room");
        RamDisk(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for RamDisk {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
