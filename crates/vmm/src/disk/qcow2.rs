//! QEMU's format, by the crate `imago`: clusters that are there when they have been written, over a
//! backing image or nothing.
//!
//! 1. *A file that names others is not trusted with the choice.* What an image refers to (a backing
//!    image, a file with its data) has to be in the image's own directory or below it, after symbolic
//!    links; else it is refused, and named. A guest that could write such a reference would otherwise
//!    read any file of its host's.
//! 2. *All files are open before the machine runs*; who opens is the caller, with its own locks.
//! 3. *A cluster behind the end of its file is missing*, not zero: such an image is refused when it is
//!    opened. What is cut later reads as zeroes, as it does with QEMU.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use imago::file::File as Storage;
use imago::format::gate::ImplicitOpenGate;
use imago::io_buffers::{IoVector, IoVectorMut};
use imago::qcow2::Qcow2 as Format;
use imago::storage::Storage as _;
use imago::{FormatAccess, FormatDriverBuilder, Mapping, StorageOpenOptions};
use vm_memory::{GuestAddress, GuestMemoryBackend, VolatileSlice};

use super::{Buffers, Image, SECTOR_BYTES};

/// Opens a file that an image refers to, to write or not.
pub type Open = fn(&Path, bool) -> io::Result<File>;

/// See above.
pub struct Qcow2 {
    /// Discarding has it alone.
    image: RwLock<FormatAccess<Storage>>,
    /// The image's file once more, to be synchronised while others use it.
    file: File,
    bytes: u64,
}

impl Qcow2 {
    /// An open file at `path`, to be written or not; what it refers to is opened by `open`.
    ///
    /// # Errors
    ///
    /// What is wrong with it, or with what it refers to.
    pub fn new(file: File, path: &Path, writes: bool, open: Open) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let directory = path.parent().unwrap_or(Path::new("/")).to_owned();
        let own = file.try_clone()?;
        let options = StorageOpenOptions::new().filename(&path).write(writes);
        let storage = Storage::from_open_file(file, options)?;
        let gate = Gate { directory, open };
        let image = Format::<Storage>::builder(storage).write(writes).open(gate)?;
        let image = FormatAccess::new(image);
        check_is_whole(&image)?;
        let bytes = image.size() / SECTOR_BYTES * SECTOR_BYTES;
        Ok(Self { image: RwLock::new(image), file: own, bytes })
    }

    fn image(&self) -> std::sync::RwLockReadGuard<'_, FormatAccess<Storage>> {
        self.image.read().unwrap_or_else(PoisonError::into_inner)
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

/// Lets an image refer to what is in its directory.
#[derive(Clone)]
struct Gate {
    directory: PathBuf,
    open: Open,
}

impl ImplicitOpenGate<Storage> for Gate {
    fn open_format<F: FormatDriverBuilder<Storage>>(
        &mut self,
        builder: F,
    ) -> io::Result<FormatAccess<Storage>> {
        Ok(FormatAccess::new(builder.open(self.clone())?))
    }

    fn open_storage(&mut self, options: StorageOpenOptions) -> io::Result<Storage> {
        let named = options.get_filename().ok_or(io::ErrorKind::InvalidInput)?;
        let path = named.canonicalize()?;
        if !path.starts_with(&self.directory) {
            let text = format!(
                "the image refers to {}, which is outside of its directory {}; copy it there, or \
                 write both into one image (qemu-img convert)",
                named.display(),
                self.directory.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        let file = (self.open)(&path, options.get_writable())?;
        Storage::from_open_file(file, options.filename(&path))
    }
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
        self.file.sync_data()
    }

    fn zero(&self, at: u64, bytes: u64, unmap: bool) -> io::Result<()> {
        if !unmap {
            return self.image().write_zeroes(at, bytes);
        }
        let mut image = self.image.write().unwrap_or_else(PoisonError::into_inner);
        image.discard_to_zero(at, bytes)
    }
}
