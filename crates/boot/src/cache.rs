//! Unpacked kernels that are kept from one boot to the next, so that a kernel is unpacked once. The
//! caller decides where they are kept: the loader opens no file.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// A store of unpacked kernels. Machines of several processes may use the same one at the same time.
pub trait KernelCache: fmt::Debug + Send + Sync {
    /// The unpacked form of the kernel file `packed`, if the cache has it intact. Whoever implements this decides by
    /// the file's contents, not by its name: a changed file must not find the entry of the old one.
    ///
    /// # Errors
    ///
    /// The cache cannot be read, as a text for the user.
    fn get(&self, packed: &[u8]) -> Result<Option<CachedKernel>, String>;

    /// Keep the unpacked form of the kernel file `packed`.
    ///
    /// # Errors
    ///
    /// The cache cannot be written, as a text for the user.
    fn put(&self, packed: &[u8], unpacked: &[u8]) -> Result<(), String>;
}

/// The bytes of a kernel that a [`KernelCache`] had.
pub type CachedKernel = Box<dyn DerefMut<Target = [u8]>>;

/// An unpacked kernel, wherever its bytes are.
pub enum Unpacked<'a> {
    /// It was never packed.
    Borrowed(&'a [u8]),
    /// Just unpacked.
    Owned(Vec<u8>),
    /// From the cache.
    Cached(CachedKernel),
}

impl Unpacked<'_> {
    /// The bytes, to be changed; a copy if they are somebody else's.
    pub fn to_mut(&mut self) -> &mut [u8] {
        if let Self::Borrowed(bytes) = self {
            *self = Self::Owned(bytes.to_vec());
        }
        match self {
            Self::Borrowed(_) => &mut [],
            Self::Owned(bytes) => bytes,
            Self::Cached(bytes) => bytes,
        }
    }
}

impl Deref for Unpacked<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Owned(bytes) => bytes,
            Self::Cached(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Unpacked<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} bytes", self.len())
    }
}
