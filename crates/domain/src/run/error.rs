//! Why a machine does not run.

use std::io;
use std::path::PathBuf;

use provision::initramfs;

use super::{disk, firmware, machine};
use crate::{domain, inspect, network, vsock};

/// Why there was no run, or none to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that the user named.
    #[error("cannot open {path}: {error}", path = path.display())]
    Open {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
    /// A directory that is no directory of files.
    #[error(
        "cannot share a directory at {place}: its file system {}", described(kind),
        place = place.display()
    )]
    FileSystem {
        /// Where it was to be in the guest.
        place: PathBuf,
        /// What it is.
        kind: files::kinds::Kind,
    },
    /// Files are to belong to subordinate users.
    #[error(
        "cannot have files belong to your subordinate users: {0} (without --root-owners and \
         \":owners\" they are not needed)"
    )]
    Users(#[source] io::Error),
    /// Where gdb is to connect.
    #[error("cannot wait for gdb: {0}; say where with --gdb unix:PATH or --gdb tcp:PORT")]
    Gdb(#[source] io::Error),
    /// More than an ordinary program's.
    #[error(
        "cannot have {shares} shares of the host's processors: {error} (more than {ordinary} take \
         a privilege, CAP_SYS_NICE)",
        ordinary = spec::ORDINARY_SHARES
    )]
    Shares {
        /// How many.
        shares: u32,
        /// Why not.
        error: io::Error,
    },
    /// The description contradicts itself.
    #[error("{0}")]
    Contradiction(String),
    /// A snapshot that the user named.
    #[error("cannot restore {path}: {error}", path = path.display())]
    Snapshot {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        error: vmm::snapshot::Error,
    },
    /// A snapshot of ours that does not say what it had.
    #[error(
        "cannot restore {path}: its record of the machine's host resources is missing, or this \
         version of biv does not support it; take the snapshot again",
        path = .0.display()
    )]
    NoOrigin(PathBuf),
    /// A snapshot without a valid signature needs host resources that no option names.
    #[error(
        "cannot restore {path}: it was taken elsewhere or modified since, so it gets only the host \
         resources that options of biv restore name; it needs {wanted} (name these or others; \
         --net none and --no-publish leave the network and the ports out)",
        path = path.display()
    )]
    Unnamed {
        /// Which.
        path: PathBuf,
        /// What it wants, as options.
        wanted: String,
    },
    /// A disk that is to be booted.
    #[error("cannot boot {path}: {reason}", path = path.display())]
    BootDisk {
        /// Which.
        path: PathBuf,
        /// What is there instead, or what is wrong.
        reason: String,
    },
    /// A kernel that the user named.
    #[error("no file {0} and no kernel of that version; download it with `biv kernel pull {0}`")]
    NoKernel(String),
    /// Directories for a machine in which nothing of ours could mount them.
    #[error(
        "{0} needs Bivouac's init in the guest, which this machine does not run; give a command \
         after --"
    )]
    Plain(&'static str),
    /// A cache.
    #[error(transparent)]
    Cache(#[from] provision::caches::Error),
    /// A cache below a home directory.
    #[error(
        "the cache {0} has no place: it is not known where the command's user is at home in the \
         guest; name an absolute path, {0}:PATH, or give --env HOME=PATH"
    )]
    NoHome(String),
    /// Modules that the user named.
    #[error(transparent)]
    Modules(#[from] provision::modules::GivenError),
    /// A directory that a guest gets a copy of.
    #[error(
        "--root-rw: the guest works on a copy of the directory in its memory, because its kernel \
         has no {0}; leave --root-rw out, or use --root-disk"
    )]
    PackedRoot(String),
    /// The same, where it is no version.
    #[error("no file {0}; name a file, or a version that `biv kernel ls` lists, such as 6.12")]
    NoKernelFile(String),
    /// An image that the user named.
    #[error(
        "no image {0}; pull it with `biv image pull {0}`, or build it with `biv image build {0}`"
    )]
    NoImage(String),
    /// An image with layers, for a kernel that cannot mount them for lack of these drivers.
    #[error(
        "the layers of the image {0} cannot be mounted: the kernel has no {1}; Debian's have \
         (leave --kernel out, or pull the kernel again), and --modules names those of your own"
    )]
    Layers(String, String),
    /// An image from elsewhere.
    #[error("cannot use the image {name}: {error}")]
    Image {
        /// What it is called.
        name: String,
        /// What is wrong with it.
        error: oci::Error,
    },
    /// A file that the user named, of which there is more than could be of use.
    #[error("cannot use {path}: {error}, which is too large for {whom}", path = path.display())]
    TooLarge {
        /// Which.
        path: PathBuf,
        /// How large it is.
        error: io::Error,
        /// For what it is too large, and what to do.
        whom: String,
    },
    /// The default guest.
    #[error(transparent)]
    Provision(#[from] provision::Error),
    /// The guest's first file system.
    #[error(transparent)]
    Initramfs(#[from] initramfs::Error),
    /// The network.
    #[error(transparent)]
    Network(#[from] network::Error),
    /// Its sockets.
    #[error(transparent)]
    Vsock(#[from] vsock::Error),
    /// Its place among other domains.
    #[error(transparent)]
    Domain(#[from] domain::Error),
    /// What is to be seen of the engine.
    #[error(transparent)]
    Inspect(#[from] inspect::Error),
    /// Streams and signals.
    #[error(transparent)]
    Session(#[from] session::Error),
    /// A disk.
    #[error(transparent)]
    Disk(#[from] disk::Error),
    /// The variables of the machine's firmware.
    #[error(transparent)]
    Variables(#[from] firmware::Error),
    /// The machine.
    #[error(transparent)]
    Machine(#[from] machine::Error),
    /// The kernel, or how it is to be started.
    #[error("cannot boot {path}: {error}", path = path.display())]
    Kernel {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        error: vmm::Error,
    },
    /// The order to the guest.
    #[error(transparent)]
    Order(#[from] protocol::OrderError),
    /// The uses of its frames were not counted as they are: a fault of ours.
    #[error("an audit of the domain's frames found differences; please report this: {0}")]
    Audit(String),
    /// A descriptor.
    #[error("cannot start the machine: {0}")]
    Io(#[from] io::Error),
}

/// Why a file system of that kind is not shown, and what to do.
fn described(kind: &files::kinds::Kind) -> String {
    use files::kinds::Kind;
    match kind {
        Kind::OfTheKernel(name) => {
            format!("is {name}, an interface to the host's kernel; name a directory with files")
        }
        Kind::Ordinary | Kind::Unknown(_) => {
            let number = match kind {
                Kind::Unknown(number) => *number,
                _ => 0,
            };
            format!(
                "is of a type that biv does not know ({number:#x}, statfs(2)); if it holds \
                 ordinary files, add anyfs: --volume HOST:GUEST:anyfs"
            )
        }
    }
}
