//! What processes are made of, in words that no host is in: no number of a process but those that it sees itself, no
//! inode, no address of the kernel. This is what an image says, in CBOR with named fields.
//!
//! Everything here is *claimed* until [`check`](crate::check::check) has looked at it: an image may come from anybody.

pub mod inet;
mod input;
mod ipc;
mod locks;
pub mod modes;
mod named_pipes;
mod notifications;
mod posix_queues;
pub mod sockets;
mod terminals;

use serde::{Deserialize, Serialize};

pub use self::input::InputSignal;
pub use self::ipc::{Ipc, IpcName, Message, MessageQueue, Segment, Semaphores, Undo};
pub use self::locks::{Lock, LockOwner, LockedBytes};
pub use self::named_pipes::NamedPipe;
pub use self::notifications::PathWatch;
pub use self::posix_queues::PosixQueue;
pub use self::terminals::{InputLine, Queues, Terminal, TerminalEnd};
pub use crate::bytes::Bytes;

/// A tree of processes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// BLAKE3 of the vDSO that they use.
    pub vdso: Bytes,
    /// It itself, for kernels that have another one.
    #[serde(default)]
    pub vdso_code: Bytes,
    /// What their processor had, of what programs rely on; see [`host::processes::features`].
    #[serde(default)]
    pub processor: Vec<String>,
    /// The processes, each after its parent.
    pub processes: Vec<Process>,
    /// What their descriptors refer to.
    pub descriptions: Vec<Description>,
    /// The pipes between them.
    pub pipes: Vec<Pipe>,
    /// Memory that they share and that is no file of the file system, and files that have no name any more.
    #[serde(default)]
    pub objects: Vec<Object>,
    /// Named pipes that are open.
    #[serde(default)]
    pub named_pipes: Vec<NamedPipe>,
    /// Locks on files.
    #[serde(default)]
    pub locks: Vec<Lock>,
    /// Who is told by a signal of input and output.
    #[serde(default)]
    pub input_signals: Vec<InputSignal>,
    /// Terminals, by their numbers.
    #[serde(default)]
    pub terminals: Vec<Terminal>,
    /// Their sockets.
    #[serde(default)]
    pub sockets: Vec<sockets::Socket>,
    /// System V IPC; none if they have no IPC namespace to themselves.
    #[serde(default)]
    pub ipc: Option<Ipc>,
    /// POSIX message queues of the namespace, and those without a name that are open.
    #[serde(default)]
    pub posix_queues: Vec<PosixQueue>,
}

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its parent's number; 0 if that is not in the tree.
    pub parent: u32,
    /// Its process group; 0 if that is not led by a process of the tree.
    pub group: u32,
    /// Its session; 0 if that is not led by a process of the tree.
    pub session: u32,
    /// The signal that its parent gets when it ends.
    pub exit_signal: u32,
    /// If it has ended and nobody has waited for it: how, as wait(2) says it. All else is empty then.
    pub ended: Option<i32>,
    /// Whether job control has stopped it, and by which signal.
    pub stopped: Option<u32>,
    /// Its memory.
    pub memory: Memory,
    /// Its descriptors, by number.
    pub descriptors: Vec<Descriptor>,
    /// Its working directory.
    pub directory: String,
    /// Its umask.
    pub umask: u32,
    /// What it does about signals, but for those with the default action.
    pub actions: Vec<Action>,
    /// Signals that wait for any of its threads (`siginfo_t`).
    pub pending: Vec<Bytes>,
    /// Its interval timers (setitimer(2)): microseconds of interval and of what remains, of the three kinds.
    pub intervals: [[u64; 2]; 3],
    /// Its POSIX timers.
    pub timers: Vec<Timer>,
    /// Its resource limits (soft, hard), by their numbers.
    pub limits: Vec<(u64, u64)>,
    /// Process-wide switches of prctl(2).
    pub switches: Switches,
    /// Its threads, the leader first.
    pub threads: Vec<Thread>,
    /// What its end changes of System V semaphores.
    #[serde(default)]
    pub undo: Vec<Undo>,
}

/// Switches of a process: those of prctl(2), and how soon it is killed where memory runs out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Switches {
    /// `PR_SET_DUMPABLE`.
    pub dumpable: u64,
    /// `PR_SET_CHILD_SUBREAPER`.
    pub subreaper: bool,
    /// `PR_SET_THP_DISABLE`.
    pub no_huge_pages: bool,
    /// `PR_SET_MDWE`.
    #[serde(default)]
    pub deny_write_execute: u64,
    /// `oom_score_adj` of proc(5).
    #[serde(default)]
    pub kill_score: i32,
}

/// The memory of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Memory {
    /// Its mappings, in order.
    pub mappings: Vec<Mapping>,
    /// `start_code`, `end_code`, `start_data`, `end_data`, `start_brk`, `brk`, `start_stack`, `arg_start`, `arg_end`,
    /// `env_start`, `env_end`, as `struct prctl_mm_map` has them.
    pub fields: [u64; 11],
    /// The auxiliary vector.
    pub auxiliary: Bytes,
    /// The path of the program.
    pub program: String,
}

/// A mapping.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// The first address.
    pub start: u64,
    /// The first address behind it.
    pub end: u64,
    /// `PROT_*`.
    pub protection: u32,
    /// Whether it is shared.
    pub shared: bool,
    /// What is mapped.
    pub source: Source,
    /// What else is asked for it: names of smaps' `VmFlags`, of [`crate::advice`].
    pub advice: Vec<String>,
    /// The name that the process gave it (`PR_SET_VMA_ANON_NAME`).
    pub name: Option<String>,
}

/// What is mapped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// Zeros, and what was written.
    Anonymous,
    /// A file of the file system.
    File {
        /// Its path.
        path: String,
        /// Offset of the first byte.
        offset: u64,
        /// Its bytes, at the time.
        bytes: u64,
        /// When it was last modified: seconds and nanoseconds.
        modified: (i64, i64),
        /// Whether the process may make the mapping writable, so that the file was opened for writing.
        writable: bool,
    },
    /// Memory of [`State::objects`].
    Object {
        /// Its place there.
        index: usize,
        /// Offset of the first byte.
        offset: u64,
    },
    /// System V memory, of [`State::ipc`].
    Segment {
        /// Its number.
        id: u32,
        /// Offset of the first byte.
        offset: u64,
        /// Whether the process may make the mapping writable.
        writable: bool,
    },
    /// The kernel's data for the vDSO.
    VdsoData,
    /// The vDSO.
    Vdso,
}

/// Memory that several share, or a file that has no name any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Its bytes.
    pub bytes: u64,
    /// Its name, of a memfd.
    pub name: String,
    /// Seals (`F_SEAL_*`), of a memfd.
    pub seals: u32,
    /// Where it was, of a file that is open and has no name any more.
    pub directory: Option<String>,
}

/// Whose pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Owner {
    /// The process with this number. The addresses are its own.
    Process(u32),
    /// The object at this place of [`State::objects`]. The addresses are offsets.
    Object(u32),
    /// The segment at this place of [`Ipc::segments`]. The addresses are offsets.
    Segment(u32),
    /// The archive of a pod's files ([`crate::pod`]). The addresses are offsets.
    Files,
}

/// A descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptor {
    /// Its number.
    pub number: u32,
    /// What it refers to: a place in [`State::descriptions`].
    pub description: usize,
    /// Whether it is closed when a program is executed.
    pub close_on_exec: bool,
}

/// An open file description.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// Its flags (`O_*`), as F_GETFL says them.
    pub flags: u32,
    /// What is open.
    pub file: OpenFile,
}

/// What is open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum OpenFile {
    /// A regular file, a directory, or one of the devices that every pod has.
    Path {
        /// Its path.
        path: String,
        /// The position.
        position: u64,
    },
    /// An end of a pipe.
    Pipe {
        /// Its place in [`State::pipes`].
        index: usize,
        /// Whether it is the end that is written to.
        writes: bool,
    },
    /// Changes of files (inotify(7)).
    Notifications {
        /// The process that adds what is watched: one that has it open.
        pid: u32,
        /// What is watched.
        watches: Vec<PathWatch>,
    },
    /// A named pipe, with the rights that the description's flags say.
    NamedPipe {
        /// Its place in [`State::named_pipes`].
        index: usize,
        /// Whether nobody has opened it for writing since it was opened to be read: it has no end yet.
        waits: bool,
    },
    /// A terminal.
    Terminal {
        /// Its number.
        index: u32,
        /// As what it is open.
        end: TerminalEnd,
    },
    /// A terminal that was hung up: its other side is no more.
    HungUp,
    /// Memory (memfd_create(2)), or a file that has no name any more.
    Object {
        /// Its place in [`State::objects`].
        index: usize,
        /// The position.
        position: u64,
    },
    /// A counter (eventfd(2)).
    Counter {
        /// Its value.
        value: u64,
        /// Whether it is read one by one.
        semaphore: bool,
    },
    /// A timer (timerfd_create(2)).
    Timer {
        /// The clock.
        clock: i32,
        /// How often it has expired since it was read.
        ticks: u64,
        /// Nanoseconds of interval and of what remains.
        nanoseconds: [u64; 2],
    },
    /// Signals as a file (signalfd(2)).
    Signals {
        /// Which, bit 0 for signal 1.
        mask: u64,
    },
    /// A set of files that are watched (epoll(7)).
    Watches {
        /// The process whose descriptors they are.
        pid: u32,
        /// The files.
        watches: Vec<Watch>,
    },
    /// A POSIX message queue.
    Queue {
        /// Its place in [`State::posix_queues`].
        index: usize,
    },
    /// A process or a thread (pidfd_open(2)).
    Process {
        /// Its number.
        task: u32,
    },
    /// A socket.
    Socket {
        /// Its place in [`State::sockets`].
        index: usize,
    },
    /// Something that whoever restarts provides.
    Slot {
        /// Its name.
        name: String,
    },
}

/// A file that is watched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// Its descriptor.
    pub number: u32,
    /// For what (`EPOLL*`), without what is always reported.
    pub events: u32,
    /// What is told with it.
    pub data: u64,
}

/// A pipe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pipe {
    /// How many bytes it can hold.
    pub capacity: u64,
    /// What is in it.
    pub content: Bytes,
}

/// What a process does about a signal: the kernel's `struct sigaction`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// The signal.
    pub signal: u32,
    /// The handler, 0 (default) or 1 (ignored).
    pub handler: u64,
    /// `SA_*`.
    pub flags: u64,
    /// Where the handler returns to.
    pub restorer: u64,
    /// Signals that it blocks, bit 0 for signal 1.
    pub mask: u64,
}

/// A POSIX timer (timer_create(2)).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timer {
    /// Its number.
    pub id: u32,
    /// The clock.
    pub clock: i32,
    /// How it tells: `SIGEV_*`.
    pub notify: u32,
    /// By which signal.
    pub signal: u32,
    /// With which value.
    pub value: u64,
    /// For which thread, of `SIGEV_THREAD_ID`; 0 else.
    pub thread: u32,
    /// Nanoseconds of interval and of what remains.
    pub nanoseconds: [u64; 2],
}

/// A thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its number.
    pub tid: u32,
    /// Its name.
    pub name: Bytes,
    /// The general registers, in the order of `struct user_regs_struct`.
    pub registers: [u64; 27],
    /// The extended state.
    pub extended: Extended,
    /// Signals that it blocks, bit 0 for signal 1.
    pub mask: u64,
    /// Signals that wait for it (`siginfo_t`).
    pub pending: Vec<Bytes>,
    /// Its alternate signal stack: address, flags, bytes.
    pub signal_stack: [u64; 3],
    /// What the kernel clears when it ends (set_tid_address(2)).
    pub clear_address: u64,
    /// The list of its robust futexes: address and bytes of the head.
    pub robust: (u64, u64),
    /// Its restartable sequences: address, bytes, signature.
    pub sequences: (u64, u32, u32),
    /// Who it is.
    pub credentials: Credentials,
    /// Its nice value.
    pub nice: i32,
    /// The signal that it gets when its parent ends.
    pub death_signal: u32,
    /// Its timer slack, in nanoseconds.
    pub timer_slack: u64,
    /// How it runs, where that is not as usual.
    #[serde(default)]
    pub modes: modes::Modes,
}

/// The extended state of a thread, by components (XSAVE), so that another processor's layout may differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extended {
    /// The components that are not in their initial configuration.
    pub in_use: u64,
    /// The legacy region: x87 and SSE.
    pub legacy: Bytes,
    /// The other components in use, by number.
    pub components: Vec<(u32, Bytes)>,
}

/// Who a thread is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    /// Real, effective, saved and file system user.
    pub users: [u32; 4],
    /// Real, effective, saved and file system group.
    pub groups: [u32; 4],
    /// Supplementary groups.
    pub supplementary: Vec<u32>,
    /// Inheritable, permitted, effective, bounding and ambient capabilities.
    pub capabilities: [u64; 5],
    /// `SECBIT_*`.
    pub secure_bits: u32,
    /// Whether programs that it executes give it no new privileges.
    pub no_new_privileges: bool,
}
