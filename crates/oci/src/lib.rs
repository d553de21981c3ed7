//! Images of containers, as the Open Container Initiative describes them (image-spec 1.1), and Docker before it: where
//! they come from, how they are kept, and what a guest mounts.
//!
//! - [`reference`]: what an image is called, and where one may come from; [`digest`]: what content is addressed by.
//! - [`store`]: the images of this user; [`image`]: one of them, with what it says of the command in it.
//! - [`entries`], [`compression`], [`layer`]: a layer, which is an archive, becomes a file system.
//! - [`bundle`], [`import`], [`export`]: images in directories and archives; `layout`: the words of both, and of the
//!   store.
//! - [`registry`]: images of registries (with the feature of that name).
//!
//! What it is not: a builder of images, or who runs them.
//!
//! What rules it:
//!
//! 1. *Nothing is believed that is not what its digest says.* Manifests, configurations and layers are addressed by
//!    their SHA-256, and are hashed as they come in. A layer is hashed again unpacked, against the configuration.
//! 2. *An image is hostile.* It is parsed here with the user's rights, by Rust without unsafe code, and each of its
//!    parts has a limit ([`limits`]). Nothing of it is ever unpacked into a directory of the host.
//! 3. *What is there is whole.* Files get their names when they are complete and on the disk, and an image is in the
//!    index when all of it is there. Who is killed leaves nothing that has a name.
//! 4. *A layer is kept once*, whatever images have it, and stays as it was published, so that an image that is pushed
//!    or saved is, byte for byte, the one that came.

#![forbid(unsafe_code)]

pub mod bundle;
pub mod compression;
pub mod digest;
pub mod entries;
mod error;
pub mod export;
pub mod image;
pub mod import;
pub mod layer;
mod layout;
pub mod limits;
pub mod reference;
#[cfg(feature = "registry")]
pub mod registry;
pub mod store;

pub use digest::Digest;
pub use error::Error;
pub use image::Image;
pub use reference::{Name, Source};
pub use store::Store;
