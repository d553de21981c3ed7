//! Every limit of this crate in one place.

use std::time::Duration;

/// apt-get that has written nothing new for so long is ended. By itself it gives up on a network that is silent
/// for 30 seconds, and tries again twice.
pub const APT_SILENCE_TIMEOUT: Duration = Duration::from_secs(180);

/// A server that does not begin to answer for so long is not waited for.
pub const DOWNLOAD_SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// One file takes no longer: the largest, by a slow network.
pub const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(3600);

/// What a suite says of itself: five times Debian's.
pub const MAX_RELEASE_BYTES: u64 = 1 << 20;

/// A suite's list of packages, packed: six times Debian's.
pub const MAX_INDEX_OF_PACKAGES_BYTES: u64 = 64 << 20;

/// The same, unpacked.
pub const MAX_UNPACKED_INDEX_BYTES: u64 = 512 << 20;

/// What the decompressor of such a list or of a package may take for its dictionary: what xz takes at most by itself
/// (`xz -9`).
pub const MAX_DICTIONARY_KIBIBYTES: u32 = 72 << 10;

/// What such a list says of one package.
pub const MAX_STANZA_BYTES: u64 = 1 << 20;

/// A package: ten times Debian's largest kernel.
pub const MAX_PACKAGE_BYTES: u64 = 1 << 30;

/// The same, unpacked.
pub const MAX_UNPACKED_PACKAGE_BYTES: u64 = 8 << 30;

/// A download that is shorter shows no progress bar.
pub const PROGRESS_DELAY: Duration = Duration::from_secs(1);

/// Packages that a kernel consists of.
pub const MAX_KERNEL_PACKAGES: usize = 8;

/// The longest name of an image.
pub const MAX_IMAGE_NAME_BYTES: usize = 64;

/// A driver, decompressed: ten times Debian's largest.
pub const MAX_DRIVER_BYTES: u64 = 64 << 20;

/// What the decompressor of a driver may take for its dictionary; Linux's Makefile gives xz 2 MiB.
pub const MAX_DRIVER_DICTIONARY_KIBIBYTES: u32 = 64 << 10;

/// Modules of a kernel: ten times Debian's.
pub const MAX_MODULES: usize = 50_000;

/// All of them together, as they are packed: Debian's have 500 MiB where they are not packed at all.
pub const MAX_MODULES_BYTES: u64 = 4 << 30;

/// An index of them: twenty times Debian's largest.
pub const MAX_INDEX_BYTES: u64 = 64 << 20;

/// Most unpacked kernels kept in the cache; the one that was not used for longest goes first.
pub const MAX_CACHED_KERNELS: usize = 16;

/// Most bytes that they may have together, unless the newest alone has more.
pub const MAX_CACHED_BYTES: u64 = 1 << 30;

/// How long an unfinished file may lie in the cache before it is taken for a leftover.
pub const STALE_SECONDS: u64 = 600;

/// How deep the size of a cache is counted: as many directories are open at once.
pub const MAX_COUNTED_DEPTH: usize = 128;

/// Names of a directory that is being removed which are kept at once.
pub const MAX_NAMES_AT_ONCE: usize = 4096;

/// Caches that one process puts aside to be removed.
pub const MAX_REMOVALS: usize = 1000;
