//! Every limit of this crate in one place: what an image may take of this host before it is refused.

use std::time::Duration;

/// A manifest, or an index of them. Registries take 4 MiB.
pub const MAX_MANIFEST_BYTES: u64 = 4 << 20;

/// The configuration of an image: ten times what anybody has seen.
pub const MAX_CONFIG_BYTES: u64 = 8 << 20;

/// Manifests in an index, and images in an archive.
pub const MAX_MANIFESTS: usize = 1000;

/// Indexes in indexes.
pub const MAX_INDEX_DEPTH: usize = 4;

/// Layers of an image, as Docker has it. Each is a partition of the guest's disk.
pub const MAX_LAYERS: usize = 127;

/// A layer as it is kept, compressed or not, and unpacked.
pub const MAX_LAYER_BYTES: u64 = 64 << 30;

/// Files of a layer: ten times what a large distribution has.
pub const MAX_ENTRIES: usize = 4_000_000;

/// Names, attributes and short files of a layer, which are in memory while it is converted.
pub const MAX_METADATA_BYTES: usize = 1 << 30;

/// What an entry takes of these besides what it says: its inode, and its place in a directory.
pub const ENTRY_BYTES: usize = 256;

/// What is said of one file in front of its header: paths, and attributes of 64 KiB each.
pub const MAX_EXTENSION_BYTES: u64 = 1 << 20;

/// A path (`PATH_MAX`).
pub const MAX_PATH_BYTES: usize = 4096;

/// Symbolic links on the way of one path, as Linux has it (`MAXSYMLINKS`).
pub const MAX_LINKS: usize = 40;

/// Members of an archive with images.
pub const MAX_MEMBERS: usize = 100_000;

/// Bytes that are copied at once.
pub const BUFFER_BYTES: usize = 256 << 10;

/// A registry that says nothing for so long is given up.
pub const REGISTRY_READ_TIMEOUT: Duration = Duration::from_secs(60);

/// The same for one that does not answer at all.
pub const REGISTRY_CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Layers that are downloaded at once.
pub const MAX_DOWNLOADS: usize = 3;

/// Who asks a registry for a token waits so long.
pub const REGISTRY_AUTHORISATION_TIMEOUT: Duration = Duration::from_secs(60);

/// So often a layer is tried to be had whose transfer breaks off.
pub const TRANSFER_ATTEMPTS: u32 = 3;

/// Pieces in which layers are sent.
pub const UPLOAD_BYTES: u64 = 4 << 20;
