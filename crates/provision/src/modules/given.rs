//! The modules of a user's own kernel: a directory as `make modules_install` or a package makes it.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use super::packing::{Packing, canonical};
use crate::limits::MAX_INDEX_BYTES;

/// The index without which a directory is none of modules.
const DEPENDENCIES: &str = "modules.dep";

/// Why a directory is of no use.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Reading it failed.
    #[error("cannot read {path}: {error}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
    /// No module can be found there.
    #[error(
        "there is no modules.dep in {path} or below it; --modules takes the lib/modules/RELEASE \
         that `make modules_install` or a package makes, after depmod has been run on it",
        path = .0.display()
    )]
    NoModules(PathBuf),
    /// Modules of several kernels.
    #[error(
        "{path} has modules of several kernels ({found}) and none of this one; name one of its \
         directories with --modules",
        path = path.display()
    )]
    Several {
        /// The directory.
        path: PathBuf,
        /// Their releases.
        found: String,
    },
}

/// See above.
#[derive(Debug, Clone)]
pub struct Given {
    directory: PathBuf,
}

impl Given {
    /// The modules of a kernel in this directory, or in the one below that is called like its release, if that is
    /// known, or in the only one below.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub fn find(path: &Path, release: Option<&str>) -> Result<Self, Error> {
        let has_modules = |path: &Path| path.join(DEPENDENCIES).is_file();
        let is_name = |name: &&str| !name.contains('/') && *name != "." && *name != "..";
        let of_release = release.filter(is_name).map(|release| path.join(release));
        for directory in [Some(path.to_owned()), of_release].into_iter().flatten() {
            if has_modules(&directory) {
                return Ok(Self { directory });
            }
        }
        let entries = fs::read_dir(path)
            .map_err(|error| Error::Io { path: path.to_owned(), error })?
            .filter_map(|entry| Some(entry.ok()?.path()));
        let mut found: Vec<_> = entries.filter(|path| has_modules(path)).collect();
        found.sort();
        match &found[..] {
            [] => Err(Error::NoModules(path.to_owned())),
            [directory] => Ok(Self { directory: directory.clone() }),
            several => {
                let name = |path: &PathBuf| {
                    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
                };
                let found = several.iter().map(name).collect::<Vec<_>>().join(", ");
                Err(Error::Several { path: path.to_owned(), found })
            }
        }
    }

    /// Where they are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Those of these that are modules, and what they need, by name, in the order in which they can be loaded; the
    /// others are built in, or there are none.
    ///
    /// # Errors
    ///
    /// The index cannot be read.
    pub fn drivers(&self, names: &[&str]) -> Result<Vec<(String, PathBuf)>, Error> {
        let path = self.directory.join(DEPENDENCIES);
        let mut text = String::new();
        let opened = File::open(&path);
        let read = opened.and_then(|file| file.take(MAX_INDEX_BYTES).read_to_string(&mut text));
        read.map_err(|error| Error::Io { path, error })?;
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let by_name: HashMap<String, (&str, &str)> =
            lines.filter_map(|(path, needs)| Some((name_of(path)?, (path, needs)))).collect();
        let (mut seen, mut drivers) = (HashSet::new(), Vec::new());
        for (path, needs) in names.iter().filter_map(|name| by_name.get(&canonical(name))) {
            // What is needed first stands last.
            for path in needs.split_ascii_whitespace().rev().chain([*path]) {
                let is_below =
                    Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
                if let Some(name) = name_of(path).filter(|_| is_below)
                    && seen.insert(path)
                {
                    drivers.push((name, self.directory.join(path)));
                }
            }
        }
        Ok(drivers)
    }
}

/// The name of the module that has this path.
fn name_of(path: &str) -> Option<String> {
    Some(canonical(Packing::of(path.rsplit('/').next()?)?.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_found_in_the_directory_or_below() {
        let place = std::env::temp_dir().join(format!("biv-given-{}", std::process::id()));
        let make = |release: &str| {
            fs::create_dir_all(place.join(release)).unwrap();
            fs::write(place.join(release).join(DEPENDENCIES), "").unwrap();
        };
        fs::create_dir_all(place.join("empty")).unwrap();
        let find = |path: &Path, release| Given::find(path, release).map(|found| found.directory);
        assert!(matches!(find(&place, None), Err(Error::NoModules(_))));
        assert!(matches!(find(&place.join("none"), None), Err(Error::Io { .. })));
        make("6.1");
        assert_eq!(find(&place, None).unwrap(), place.join("6.1"));
        assert_eq!(find(&place, Some("6.2")).unwrap(), place.join("6.1"));
        make("6.2");
        assert_eq!(find(&place, Some("6.2")).unwrap(), place.join("6.2"));
        assert_eq!(find(&place.join("6.1"), Some("6.2")).unwrap(), place.join("6.1"));
        let error = find(&place, Some("../6.1")).unwrap_err().to_string();
        assert!(error.contains("6.1, 6.2") && error.contains("--modules"), "{error}");
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn drivers_come_after_what_they_need() {
        let directory = std::env::temp_dir().join(format!("biv-drivers-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let text = "kernel/virtio_blk.ko.zst: kernel/virtio.ko.zst kernel/virtio_ring.ko.zst\n\
            kernel/virtio-rng.ko: kernel/virtio.ko.zst ../../etc/x.ko\n\
            kernel/virtio.ko.zst: kernel/virtio_ring.ko.zst\nodd\nkernel/virtio_ring.ko.zst:\n";
        fs::write(directory.join(DEPENDENCIES), text).unwrap();
        let given = Given::find(&directory, None).unwrap();
        let drivers = given.drivers(&["virtio", "overlay", "virtio_blk", "virtio-rng"]).unwrap();
        let names: Vec<_> = drivers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["virtio_ring", "virtio", "virtio_blk", "virtio_rng"]);
        assert_eq!(drivers[2].1, directory.join("kernel/virtio_blk.ko.zst"));
        fs::remove_dir_all(directory).unwrap();
    }
}
