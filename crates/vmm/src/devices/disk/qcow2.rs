//! QEMU's format qcow2, by the crate `imago`: clusters that are allocated when they are first written, over a backing
//! image or nothing.
//!
//! 1. *An image does not choose which files are opened.* A file that an image refers to (a backing image, a file with
//!    its data) is used only if the user who gives the disk has named that very file, too ([`Named`]). Otherwise the
//!    image is refused with a message that says which file it wants. Else a program that can write to an image, such
//!    as a guest, could have the host's files read and written. `imago` opens nothing here.
//! 2. *All files are open before the machine runs*; the caller opens and locks them.
//! 3. *A backing image is only read, and has the format that the image above says*: its format is never probed from its
//!    bytes, which a guest may have written.
//! 4. *A cluster behind the end of its file is missing*, not zero: such an image is refused when it is opened. A file
//!    that is truncated later reads as zeroes, as it does with QEMU.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::RwLock;

use imago::file::File as Storage;
use imago::io_buffers::{IoVector, IoVectorMut};
use imago::qcow2::Qcow2 as Format;
use imago::raw::Raw;
use imago::storage::Storage as _;
use imago::{FormatAccess, Mapping, StorageOpenOptions};
use locks::Unpoisoned;
use vm_memory::{GuestAddress, GuestMemoryBackend, VolatileSlice};

use super::{Buffers, Image, SECTOR_BYTES};

/// Opens a file that an image refers to, to write or not.
pub type Open = fn(&Path, bool) -> io::Result<File>;

/// The files that an image may refer to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Named {
    /// Backing images, in any order.
    pub backing: Vec<PathBuf>,
    /// Files that have an image's data instead of the image itself.
    pub data: Vec<PathBuf>,
}

/// Why an image is not used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is damaged, or cannot be read.
    #[error("{0}")]
    Image(#[from] io::Error),
    /// A backing image that was not named.
    #[error(
        "{image} refers to {path} as its backing image; if the guest may read that file, add \
         ,backing={path}",
        image = .image.display(), path = .path.display()
    )]
    Backing {
        /// The image that refers to it.
        image: PathBuf,
        /// What it refers to.
        path: PathBuf,
    },
    /// A file with data that was not named.
    #[error(
        "{image} has its data in {path}; if the guest may read and write that file, add \
         ,data-file={path}",
        image = .image.display(), path = .path.display()
    )]
    Data {
        /// The image that refers to it.
        image: PathBuf,
        /// What it refers to.
        path: PathBuf,
    },
    /// A backing image whose format is not given.
    #[error(
        "{image} does not say what format its backing image has; \
         `qemu-img rebase -u -b FILE -F raw` \
         (or -F qcow2) has it do so",
        image = .0.display()
    )]
    Format(PathBuf),
    /// A file that was named for nothing.
    #[error("no image refers to {path}", path = .0.display())]
    Unused(PathBuf),
    /// A file that was named, and cannot be opened.
    #[error("cannot open {path}: {error}", path = path.display())]
    Open {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// See above.
pub struct Qcow2 {
    /// Discarding has it alone.
    image: RwLock<FormatAccess<Storage>>,
    /// The files with what is written once more, to be synchronised while others use the image.
    files: Vec<File>,
    bytes: u64,
}

impl Qcow2 {
    /// An open file at `path`, to be written or not; what it refers to, if it is `named`, is opened by `open`.
    ///
    /// # Errors
    ///
    /// What is wrong with it, or with what it refers to.
    pub fn new(
        file: File,
        path: &Path,
        writes: bool,
        named: Named,
        open: Open,
    ) -> Result<Self, Error> {
        let path = path.canonicalize()?;
        let mut chain = Chain { named, open, files: Vec::new() };
        let image = FormatAccess::new(chain.image(file, &path, writes)?);
        let Chain { named, files, .. } = chain;
        if let Some(unused) = named.backing.into_iter().chain(named.data).next() {
            return Err(Error::Unused(unused));
        }
        check_is_whole(&image)?;
        let bytes = image.size() / SECTOR_BYTES * SECTOR_BYTES;
        Ok(Self { image: RwLock::new(image), files, bytes })
    }

    fn image(&self) -> std::sync::RwLockReadGuard<'_, FormatAccess<Storage>> {
        self.image.read().unpoisoned()
    }
}

/// Every cluster has to begin in its file.
fn check_is_whole(image: &FormatAccess<Storage>) -> io::Result<()> {
    let (mut at, end) = (0, image.size());
    while at < end {
        let (mapping, length) = image.get_mapping(at, end - at)?;
        if let Mapping::Raw { storage, offset, .. } = mapping
            && offset >= storage.size()?
        {
            let name = storage.get_filename().unwrap_or_default();
            let text = format!("{} is truncated: what is at {at} is missing", name.display());
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        if length == 0 {
            break;
        }
        at += length;
    }
    Ok(())
}

/// An image and what is below it, as it is being opened.
struct Chain {
    /// What has not been referred to yet, so that no image is below itself.
    named: Named,
    open: Open,
    /// What is written.
    files: Vec<File>,
}

impl Chain {
    fn image(&mut self, file: File, path: &Path, writes: bool) -> Result<Format<Storage>, Error> {
        if writes {
            self.files.push(file.try_clone()?);
        }
        let mut image = Format::<Storage>::open_image(storage(file, path, writes)?, writes)?;
        let data = match image.requires_external_data_file() {
            true => Some(self.data(&image, path, writes)?),
            false => None,
        };
        image.set_data_file(data);
        let below = match image.implicit_backing_file().cloned() {
            Some(name) => Some(self.below(&image, path, &name)?),
            None => None,
        };
        image.set_backing(below);
        Ok(image)
    }

    /// The file that has the data of the image at `path`.
    fn data(
        &mut self,
        image: &Format<Storage>,
        path: &Path,
        writes: bool,
    ) -> Result<Storage, Error> {
        let name = image.implicit_external_data_file().cloned().unwrap_or_default();
        let wanted = beside(path, &name);
        let found = take(&mut self.named.data, &wanted);
        let found = found.ok_or_else(|| Error::Data { image: path.to_owned(), path: wanted })?;
        let file = self.open(&found, writes)?;
        if writes {
            self.files.push(file.try_clone()?);
        }
        Ok(storage(file, &found, writes)?)
    }

    /// What is below the image at `path`.
    fn below(
        &mut self,
        image: &Format<Storage>,
        path: &Path,
        name: &str,
    ) -> Result<FormatAccess<Storage>, Error> {
        let wanted = beside(path, name);
        let found = take(&mut self.named.backing, &wanted);
        let found = found.ok_or_else(|| Error::Backing { image: path.to_owned(), path: wanted })?;
        let format = image.implicit_backing_format().map(String::as_str);
        match format {
            Some("qcow2") => {
                let file = self.open(&found, false)?;
                Ok(FormatAccess::new(self.image(file, &found, false)?))
            }
            Some("raw") => {
                let storage = storage(self.open(&found, false)?, &found, false)?;
                Ok(FormatAccess::new(Raw::open_image(storage, false)?))
            }
            Some(other) => {
                let text = format!("there are no backing images of the format {other:?}");
                Err(io::Error::new(io::ErrorKind::Unsupported, text).into())
            }
            None => Err(Error::Format(path.to_owned())),
        }
    }

    fn open(&self, path: &Path, writes: bool) -> Result<File, Error> {
        (self.open)(path, writes).map_err(|error| Error::Open { path: path.to_owned(), error })
    }
}

fn storage(file: File, path: &Path, writes: bool) -> io::Result<Storage> {
    Storage::from_open_file(file, StorageOpenOptions::new().filename(path).write(writes))
}

/// What the image at `path` calls `name`: relative names are so to its directory.
fn beside(path: &Path, name: &str) -> PathBuf {
    path.parent().unwrap_or(Path::new("/")).join(name)
}

/// The one of these that is `wanted`, by its name without links, which is no more among them then.
fn take(named: &mut Vec<PathBuf>, wanted: &Path) -> Option<PathBuf> {
    let wanted = wanted.canonicalize().ok()?;
    let is_it = |path: &PathBuf| path.canonicalize().is_ok_and(|path| path == wanted);
    let place = named.iter().position(is_it)?;
    named.remove(place);
    Some(wanted)
}

/// The memory of some buffers.
fn slices<'a>(buffers: &Buffers<'a>) -> io::Result<Vec<VolatileSlice<'a>>> {
    let mut slices = Vec::new();
    for segment in buffers.segments() {
        let address = GuestAddress(segment.address);
        for slice in buffers.memory().get_slices(address, segment.length as usize) {
            slices.push(slice.map_err(|_| io::ErrorKind::InvalidInput)?);
        }
    }
    Ok(slices)
}

impl Image for Qcow2 {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn can_discard(&self) -> bool {
        true
    }

    fn read(&self, at: u64, into: &Buffers<'_>) -> io::Result<()> {
        let slices = slices(into)?;
        let (vector, _mapped) = IoVectorMut::from_volatile_slice(&slices);
        self.image().readv(vector, at)
    }

    fn write(&self, at: u64, from: &Buffers<'_>) -> io::Result<()> {
        let slices = slices(from)?;
        let (vector, _mapped) = IoVector::from_volatile_slice(&slices);
        self.image().writev(vector, at)
    }

    fn flush(&self) -> io::Result<()> {
        self.image().flush()?;
        self.files.iter().try_for_each(File::sync_data)
    }

    fn zero(&self, at: u64, bytes: u64, unmap: bool) -> io::Result<()> {
        if !unmap {
            return self.image().write_zeroes(at, bytes);
        }
        let mut image = self.image.write().unpoisoned();
        image.discard_to_zero(at, bytes)
    }
}
