//! The root that a description names, where that is files of the host's: a directory, or an image.
//!
//! How a guest comes to see it depends on its kernel and its machine: shared as a directory, mounted as a disk
//! ([`super::image_disk`]), or copied into its memory.

use std::path::PathBuf;

use provision::images::Image;
use spec::Spec;

use super::directories::Root;
use super::error::Error;
use super::given_kernel::described;
use super::image;
use super::image_disk::{self, ImageDisk};
use super::paravirtual::{self, is_paravirtual};

/// What a kernel needs for a root of which the file systems are on disks of a PC.
const ON_DISKS: &[&str] =
    &["virtio_pci", "virtio_blk", image_disk::FILE_SYSTEM, image_disk::OVERLAY];

/// The same, of this machine's.
pub fn on_disks(spec: &Spec) -> &'static [&'static str] {
    if is_paravirtual(spec) { paravirtual::ON_DISKS } else { ON_DISKS }
}

/// The directory of the host's that is the root, or would be if the guest could see it.
pub enum Given {
    /// One that the user names.
    Directory(spec::Directory),
    /// One that `biv image build` has made.
    Image(Image, PathBuf),
    /// None, but layers, the lowest first, of the image of this name.
    Layers(String, Vec<PathBuf>),
}

impl Given {
    /// What a description names, if that is one.
    ///
    /// # Errors
    ///
    /// There is no such image, or its layers cannot be had.
    pub fn find(spec: &Spec) -> Result<Option<Self>, Error> {
        match &spec.root {
            spec::Root::Directory(directory) => Ok(Some(Self::Directory(directory.clone()))),
            spec::Root::Image(name) => Ok(Some(match image::find(name)? {
                image::Found::Built(image) => {
                    let root = image.root();
                    Self::Image(image, root)
                }
                image::Found::Layered(found) => Self::Layers(name.clone(), image::layers(&found)?),
            })),
            spec::Root::Host(_) | spec::Root::Disk(_) | spec::Root::Busybox => Ok(None),
        }
    }

    /// How a guest sees it.
    pub fn root(&self) -> Root<'_> {
        match self {
            Self::Directory(directory) => Root::Here(directory),
            Self::Image(_, root) => Root::Image(root),
            Self::Layers(..) => Root::Layers,
        }
    }

    /// Whether a guest sees it as a disk, or not as the directory that it is.
    pub fn is_for_disk(&self, spec: &Spec) -> bool {
        match self {
            Self::Directory(_) => false,
            Self::Image(..) => is_paravirtual(spec),
            Self::Layers(..) => true,
        }
    }

    /// It as a disk of the machine's, whose kernel has, or has not, the file system; nothing if the guest is to have
    /// it otherwise.
    ///
    /// # Errors
    ///
    /// [`Error::Layers`], or that of whoever knows the kernel.
    pub fn disk(
        &self,
        spec: &Spec,
        is_known: impl FnOnce() -> Result<bool, Error>,
    ) -> Result<Option<ImageDisk>, Error> {
        let instead = match is_paravirtual(spec) {
            true => "copied into the guest's memory",
            false => "shared as a directory",
        };
        match self {
            Self::Directory(_) => Ok(None),
            Self::Image(image, _) => Ok(ImageDisk::choose(image, is_known()?, instead)),
            Self::Layers(name, layers) if is_known()? => {
                ImageDisk::of_layers(name, layers).map(Some)
            }
            Self::Layers(name, _) => {
                Err(Error::Layers(name.clone(), described(&[image_disk::FILE_SYSTEM])))
            }
        }
    }
}
