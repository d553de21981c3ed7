//! Calls of System V IPC, and where in the kernel's structures what stands (`asm-generic/{ipc,shm,sem,msg}buf.h`).

/// What there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Segment,
    Semaphores,
    Queue,
}

/// Bytes of the longest of the structures, with room.
pub(crate) const STRUCTURE_BYTES: usize = 128;
/// Offsets in `struct ipc64_perm`, with which all begin.
pub(crate) const KEY: usize = 0;
pub(crate) const USER: usize = 4;
pub(crate) const GROUP: usize = 8;
pub(crate) const MODE: usize = 20;
/// Offset of a segment's size.
pub(crate) const SEGMENT_BYTES: usize = 48;
/// Offset of the number of semaphores.
pub(crate) const SEMAPHORE_COUNT: usize = 80;
/// Offsets in a queue's.
pub(crate) const QUEUE_COUNT: usize = 80;
pub(crate) const QUEUE_LIMIT: usize = 88;

/// `SHM_DEST`.
pub(crate) const REMOVED: u32 = 0o1000;
/// Who may use it.
pub(crate) const RIGHTS: u32 = 0o777;

impl Kind {
    /// What the file of /proc/sys/kernel says which number comes next.
    pub fn next_path(self) -> &'static str {
        match self {
            Self::Segment => "/proc/sys/kernel/shm_next_id",
            Self::Semaphores => "/proc/sys/kernel/sem_next_id",
            Self::Queue => "/proc/sys/kernel/msg_next_id",
        }
    }

    /// A control call: its number, and its arguments.
    pub fn control(self, id: u64, command: i32, buffer: u64) -> (i64, [u64; 4]) {
        let command = command.cast_unsigned().into();
        match self {
            Self::Segment => (libc::SYS_shmctl, [id, command, buffer, 0]),
            Self::Semaphores => (libc::SYS_semctl, [id, 0, command, buffer]),
            Self::Queue => (libc::SYS_msgctl, [id, command, buffer, 0]),
        }
    }

    /// `SHM_INFO`, ...: tells the highest place in use.
    pub fn highest(self) -> i32 {
        match self {
            Self::Segment => 14,
            Self::Semaphores => 19,
            Self::Queue => 12,
        }
    }

    /// `SHM_STAT_ANY`, ...: tells number and structure of a place, whoever asks.
    pub fn look(self) -> i32 {
        match self {
            Self::Segment => 15,
            Self::Semaphores => 20,
            Self::Queue => 13,
        }
    }
}

/// `SEM_UNDO`: an operation that is undone when the process ends.
pub(crate) const UNDONE: i16 = 0x1000;

/// A `struct sembuf`: an operation on the semaphore at a place, which does not wait.
pub(crate) fn operation(place: u16, change: i16, flags: i16) -> [u8; 6] {
    /// `IPC_NOWAIT`.
    const AT_ONCE: i16 = 0o4000;
    let mut bytes = [0; 6];
    bytes[..2].copy_from_slice(&place.to_le_bytes());
    bytes[2..4].copy_from_slice(&change.to_le_bytes());
    bytes[4..].copy_from_slice(&(flags | AT_ONCE).to_le_bytes());
    bytes
}
