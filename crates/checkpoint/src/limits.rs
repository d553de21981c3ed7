//! Every limit of this crate: what an image may say, and how long things may take.

use std::time::Duration;

/// Processes and threads of an image.
pub const MAX_TASKS: usize = 65_536;
/// Open file descriptions of an image.
pub const MAX_DESCRIPTIONS: usize = 1_000_000;
/// Descriptors of one process.
pub const MAX_DESCRIPTORS: usize = 1_048_576;
/// The highest number of a descriptor, and one more.
pub const MAX_DESCRIPTOR_NUMBER: u32 = 1 << 30;
/// Mappings of one process (the kernel's own usual limit is 65,530).
pub const MAX_MAPPINGS: usize = 1 << 20;
/// Runs of pages of an image.
pub const MAX_EXTENTS: usize = 1 << 24;
/// Signals that wait for one task, or one process.
pub const MAX_PENDING: usize = 65_536;
/// POSIX timers of one process.
pub const MAX_TIMERS: usize = 65_536;
/// Supplementary groups of a task (the kernel's limit).
pub const MAX_GROUPS: usize = 65_536;
/// Bytes of a path or another name.
pub const MAX_NAME_BYTES: usize = 4096;
/// Bytes that a pipe holds.
pub const MAX_PIPE_BYTES: usize = 64 << 20;
/// Locks on files.
pub const MAX_LOCKS: usize = 1 << 20;
/// Terminals, and the highest number of one, and one more.
pub const MAX_TERMINALS: u32 = 1 << 16;
/// Bytes that wait in one direction of a terminal: the kernel's buffers have 64 KiB and 4 KiB.
pub const MAX_TERMINAL_BYTES: usize = 256 << 10;
/// Bytes that are in a socket's queue.
pub const MAX_SOCKET_BYTES: usize = 64 << 20;
/// Bytes of a message that is kept in one piece, with who has sent it or descriptors that go with it; or of one of
/// System V IPC, which is read through the area that a process is lent.
pub const MAX_MESSAGE_BYTES: usize = 64 << 10;
/// Bytes of a datagram of UDP.
pub const MAX_DATAGRAM_BYTES: usize = 65_535;
/// Multicast groups that a socket has joined, and senders that are named for one of them (the kernel's usual limits are
/// 20, and 10 or 64).
pub const MAX_GROUPS_OF_SOCKET: usize = 4096;
/// See [`MAX_GROUPS_OF_SOCKET`].
pub const MAX_GROUP_SOURCES: usize = 1024;
/// Bytes of the name of a network interface (the kernel's `IFNAMSIZ`, less one).
pub const MAX_INTERFACE_NAME_BYTES: usize = 15;
/// Messages that are in a socket's queue, or in one of System V IPC.
pub const MAX_MESSAGES: usize = 65_536;
/// Descriptors that go with a message (the kernel's `SCM_MAX_FD`).
pub const MAX_MESSAGE_FILES: usize = 253;
/// POSIX message queues of a namespace.
pub const MAX_POSIX_QUEUES: usize = 4096;
/// Bytes of the name of one (`NAME_MAX`), and of a message (the kernel's limit).
pub const MAX_QUEUE_NAME_BYTES: usize = 255;
/// See [`MAX_QUEUE_NAME_BYTES`].
pub const MAX_QUEUE_MESSAGE_BYTES: usize = 16 << 20;
/// The highest priority of a message, and one more (the kernel's `MQ_PRIO_MAX`).
pub const MAX_PRIORITY: u32 = 32_768;
/// Connections that may wait to be accepted.
pub const MAX_BACKLOG: u32 = 65_535;
/// Bytes of the name of a Unix socket.
pub const MAX_UNIX_NAME_BYTES: usize = 108;
/// Sockets of a network namespace that are looked at.
pub const MAX_SOCKETS_OF_NAMESPACE: usize = 1_000_000;
/// Segments, sets of semaphores or message queues of a namespace (the kernel's limit).
pub const MAX_IPC: usize = 32_768;
/// Semaphores of a set.
pub const MAX_SEMAPHORES: usize = 32_000;
/// Files whose changes are told to one descriptor.
pub const MAX_PATH_WATCHES: usize = 65_536;
/// Names that are looked at, at the most, to find a file that is watched.
pub const MAX_LOOKED_AT: usize = 200_000;
/// What a processor may have that programs rely on.
pub const MAX_FEATURES: usize = 1024;
/// Instructions that a task carries out, at the most, to leave the vDSO.
pub const MAX_VDSO_STEPS: usize = 10_000;
/// Bytes of a vDSO.
pub const MAX_VDSO_BYTES: usize = 1 << 20;
/// Functions of a vDSO, and bytes of the name of one.
pub const MAX_VDSO_FUNCTIONS: usize = 1024;
/// See [`MAX_VDSO_FUNCTIONS`].
pub const MAX_VDSO_NAME_BYTES: usize = 255;
/// Bytes of the auxiliary vector.
pub const MAX_AUXILIARY_BYTES: usize = 4096;
/// Bytes of the description of all processes, without their pages.
pub const MAX_STATE_BYTES: usize = 1 << 30;
/// Depth of the description's encoding.
pub const MAX_STATE_DEPTH: usize = 32;
/// Bytes of a piece of pages in the image.
pub const PIECE_BYTES: usize = 64 << 10;
/// Bytes of memory that are read at once.
pub const READ_BYTES: usize = 16 * PIECE_BYTES;
/// Generations of images that an image may go on from.
pub const MAX_PARENTS: usize = 64;
/// How long it is waited, at the most, for who reads an image: so long for each answer, and a second more for so
/// many bytes of it.
pub const READER_PATIENCE: Duration = Duration::from_secs(60);
/// See [`READER_PATIENCE`].
pub const READER_BYTES_PER_SECOND: u32 = 1 << 20;
/// Runs of pages that who reads an image is asked for at once.
pub const READER_RUNS: usize = 16;
/// Bytes of the reason that who reads an image gives.
pub const MAX_REASON_BYTES: usize = 1024;
/// Bytes on their way from who reads an image.
pub const READER_PIPE_BYTES: usize = 1 << 20;
/// Bytes of pages that are kept in memory while processes stand still, to be written when they go on.
pub const MAX_HELD_BYTES: usize = 64 << 20;
/// The first address that no process may have.
pub const END_OF_MEMORY: u64 = 0x7fff_ffff_f000;
/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;

/// How long all tasks of a tree may take to stop.
pub const FREEZE_PATIENCE: Duration = Duration::from_secs(5);
/// How long one task may take to stop before it is asked what keeps it.
pub const STOP_PATIENCE: Duration = Duration::from_millis(200);
/// How long it may wait for its child in vfork(2), which executes a program as soon as it has a processor. On a host
/// that others keep busy it may wait for one for some tenths of a second.
pub const CHILD_PATIENCE: Duration = Duration::from_secs(2);
/// How long a terminal may take to handle what is written to it.
pub const TERMINAL_PATIENCE: Duration = Duration::from_secs(2);
/// How long a socket may take to become what it was, in a network that is the processes' own.
pub const SOCKET_PATIENCE: Duration = Duration::from_secs(5);
/// Times that the tree is walked, at the most, before it counts as one that outruns us.
pub const MAX_WALKS: usize = 10_000;
