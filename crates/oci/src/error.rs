//! Why there is no image.

use std::io;
use std::path::{Path, PathBuf};

use crate::digest::{Digest, NoDigest};
use crate::layer;

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory of the store.
    #[error(
        "cannot use the store of images at {path}: {error}; set XDG_CACHE_HOME to a writable \
         directory",
        path = path.display()
    )]
    Store {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
    /// The cache that it is in.
    #[error(transparent)]
    Cache(#[from] provision::CacheError),
    /// A file or directory that the user named.
    #[error("cannot read {path}: {error}", path = path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
    /// One that is to be written.
    #[error("cannot write {path}: {error}", path = path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
    /// A text that is no name of an image.
    #[error("invalid image name {name:?}: {why}")]
    Name {
        /// The text.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// There is no such image here.
    #[error("no image {0}; pull it with `biv image pull {0}`, or see `biv image ls`")]
    NoImage(String),
    /// A text that several images begin with.
    #[error("{0} is the beginning of the digests of several images; give more of it")]
    Ambiguous(String),
    /// A directory or archive with more or fewer images than are wanted.
    #[error("{place} has {found}; name one")]
    WhichImage {
        /// The directory or archive.
        place: String,
        /// What is in it.
        found: String,
    },
    /// A digest that is none.
    #[error(transparent)]
    NoDigest(#[from] NoDigest),
    /// Content is not what it was to be.
    #[error(
        "{what} is not what it was to be: its digest is {found}, not {wanted}; it was damaged, or \
         replaced"
    )]
    Digest {
        /// What.
        what: String,
        /// What it was to be.
        wanted: Digest,
        /// What it is.
        found: Digest,
    },
    /// Content is longer than it may be, or shorter than was said.
    #[error("{what} has {found}, instead of {wanted}")]
    Size {
        /// What.
        what: String,
        /// How long it is, in words.
        found: String,
        /// How long it may be.
        wanted: String,
    },
    /// Something is not there that the image says it has.
    #[error("it has no {0}")]
    Missing(String),
    /// JSON that does not say what it is to say.
    #[error("its {what} makes no sense: {error}")]
    Json {
        /// What.
        what: &'static str,
        /// What is wrong with it.
        error: String,
    },
    /// An image that no machine of ours can run.
    #[error("it is for {0}, and a machine runs linux/amd64 and linux/386")]
    Platform(String),
    /// An image of another kind.
    #[error("it cannot be run: {0}")]
    Unsupported(String),
    /// A layer.
    #[error("layer {digest} cannot be used: {error}")]
    Layer {
        /// Which.
        digest: Digest,
        /// What is wrong with it.
        error: layer::Error,
    },
    /// A registry.
    #[error("{registry}: {why}")]
    Registry {
        /// Which.
        registry: String,
        /// What it says, or why it says nothing.
        why: String,
    },
}

impl Error {
    /// What is wrong with that file or directory of the store.
    pub(crate) fn store(path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |error| Self::Store { path, error }
    }

    /// The same, again and again.
    pub(crate) fn store_of(path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |error| Self::Store { path: path.clone(), error }
    }

    /// What is wrong with that file or directory of the user's.
    pub(crate) fn read(path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |error| Self::Read { path, error }
    }
}
