//! The modules of a kernel, as its package has them, with the indexes by which `modprobe` finds them.
//!
//! What it is not: something that loads modules. Debian's packages have modules and no indexes,
//! because `depmod` makes these where a package is installed; here nothing is installed.
//!
//! What rules it:
//!
//! 1. *A tree is as a system has it*, `RELEASE/` with `kernel/` and the indexes in it, so that a
//!    guest sees it at its usual place, and any `modprobe` can read it.
//! 2. *Modules stay packed as they were.* A kernel whose package has them packed unpacks them
//!    itself. They are unpacked here once, to read what they say of themselves ([`information`]).

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};

use crate::limits::{MAX_INDEX_BYTES, MAX_MODULES, MAX_MODULES_BYTES};
use indexes::{Indexes, Module};
use information::Information;
use packing::{bounded, canonical};

mod given;
mod indexes;
mod information;
mod packing;
mod trie;

pub use given::{Error as GivenError, Given};
pub use packing::Packing;

/// The directory beside the kernel that has them, below the kernel's release.
pub const DIRECTORY: &str = "modules";

/// What a package has of these indexes: which modules are built in, what these say, and the order of all.
const SHIPPED: [&str; 3] = ["modules.builtin", "modules.builtin.modinfo", "modules.order"];

/// A tree that is taken out of a package, file by file.
pub struct Unpacking {
    /// Where it comes.
    directory: PathBuf,
    /// The kernel's.
    release: Option<String>,
    modules: Vec<Module>,
    bytes: u64,
}

impl Unpacking {
    /// One that comes into this directory, which is made.
    pub fn new(directory: PathBuf) -> io::Result<Self> {
        fs::create_dir(&directory)?;
        Ok(Self { directory, release: None, modules: Vec::new(), bytes: 0 })
    }

    /// Takes a file of the package, which has this path below its root, if it belongs to the tree; the name of the
    /// module in it, and what that is unpacked, if it is one.
    pub fn take(
        &mut self,
        path: &[u8],
        entry: &mut dyn Read,
    ) -> io::Result<Option<(String, Vec<u8>)>> {
        let below =
            std::str::from_utf8(path).ok().and_then(|path| path.strip_prefix("lib/modules/"));
        let Some((release, below)) = below.and_then(|path| path.split_once('/')) else {
            return Ok(None);
        };
        let is_safe = |path: &str| {
            Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
        };
        let is_ours = self.release.as_deref().is_none_or(|ours| ours == release);
        if !is_ours || !is_safe(release) || !is_safe(below) {
            return Ok(None);
        }
        let file = below.rsplit('/').next().unwrap_or_default();
        let module = Packing::of(file);
        if module.is_none() && !SHIPPED.contains(&below) {
            return Ok(None);
        }
        let packed = bounded(entry)?;
        self.bytes += packed.len() as u64;
        if self.modules.len() >= MAX_MODULES || self.bytes > MAX_MODULES_BYTES {
            return Err(io::Error::other("it contains more modules than any kernel has"));
        }
        self.release = Some(release.to_owned());
        let place = self.directory.join(release).join(below);
        place.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(&place, &packed)?;
        let Some((name, packing)) = module else { return Ok(None) };
        let unpacked = packing.unpack(&packed[..])?;
        // As depmod does: such a file is there and says nothing.
        let information = information::read(&unpacked).unwrap_or_else(|error| {
            tracing::warn!("{below} is no module: {error}");
            Information::default()
        });
        let (name, path) = (name.to_owned(), below.to_owned());
        self.modules.push(Module { name: canonical(&name), path, information });
        Ok(Some((name, unpacked)))
    }

    /// Writes the indexes, when all files are there. A kernel without modules has none.
    pub fn finish(self) -> io::Result<()> {
        let Some(release) = self.release else { return Ok(()) };
        let directory = self.directory.join(release);
        let shipped = |name: &str| match File::open(directory.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            opened => {
                let mut bytes = Vec::new();
                opened?.take(MAX_INDEX_BYTES).read_to_end(&mut bytes)?;
                Ok::<_, io::Error>(bytes)
            }
        };
        let [built_in, of_built_in, order] = SHIPPED.map(shipped);
        let indexes = Indexes::new(self.modules, &order?, &built_in?, &of_built_in?);
        for (name, contents) in indexes.files() {
            File::create(directory.join(name))?.write_all(&contents)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_lead_elsewhere_are_not_taken() {
        let directory = std::env::temp_dir().join(format!("biv-modules-{}", std::process::id()));
        let mut unpacking = Unpacking::new(directory.clone()).unwrap();
        for path in [
            "lib/modules/../modules.order",
            "lib/modules/6.1/../modules.order",
            "lib/modules/6.1//modules.order",
            "boot/vmlinuz-6.1",
            "lib/modules/6.1/source/modules.order",
        ] {
            assert!(unpacking.take(path.as_bytes(), &mut io::empty()).unwrap().is_none());
            assert_eq!(fs::read_dir(&directory).unwrap().count(), 0, "{path}");
        }
        unpacking.take(b"lib/modules/6.1/modules.order", &mut io::empty()).unwrap();
        // Of another kernel.
        unpacking.take(b"lib/modules/6.2/modules.order", &mut io::empty()).unwrap();
        assert!(unpacking.take(b"lib/modules/6.1/kernel/a.ko.xz", &mut &b"no module"[..]).is_err());
        let file = unpacking.take(b"lib/modules/6.1/kernel/a.ko", &mut &b"no module"[..]).unwrap();
        assert_eq!(file, Some(("a".to_owned(), b"no module".to_vec())));
        unpacking.finish().unwrap();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        let index = fs::read_to_string(directory.join("6.1/modules.dep")).unwrap();
        assert_eq!(index, "kernel/a.ko:\n");
        fs::remove_dir_all(directory).unwrap();
    }
}
