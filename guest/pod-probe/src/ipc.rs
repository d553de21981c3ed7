//! System V IPC (sysvipc(7)) and POSIX message queues (mq_overview(7)), which no safe crate has.
#![expect(unsafe_code, reason = "system calls that no safe crate has")]

use std::ffi::CString;
use std::io;

use crate::{Failure, failed};

/// The key that everybody uses.
pub const KEY: libc::key_t = 0x0b1_b0ac;

/// The longest tag, in bytes.
const TAG_MAX_BYTES: usize = 64;

/// The POSIX queue that everybody uses.
const QUEUE: &str = "/bivouac-probe";

fn answer(what: &str, answer: libc::c_int) -> Result<libc::c_int, Failure> {
    if answer == -1 { Err(failed(what)(io::Error::last_os_error())) } else { Ok(answer) }
}

/// One that nobody in this namespace has yet.
const NEW: libc::c_int = libc::IPC_CREAT | libc::IPC_EXCL | 0o600;

/// A shared-memory segment, attached; removed with this.
pub struct SharedMemory {
    /// Its number.
    pub id: libc::c_int,
    at: *mut u8,
}

impl SharedMemory {
    /// A new one with a key.
    pub fn make(key: libc::key_t) -> Result<SharedMemory, Failure> {
        // SAFETY: the call takes numbers.
        let id = answer("shmget", unsafe { libc::shmget(key, TAG_MAX_BYTES, NEW) })?;
        // SAFETY: the kernel chooses where it is.
        let at = unsafe { libc::shmat(id, std::ptr::null(), 0) };
        if at as isize == -1 {
            return Err(failed("shmat")(io::Error::last_os_error()));
        }
        Ok(SharedMemory { id, at: at.cast() })
    }

    /// Puts a tag there.
    pub fn write(&self, tag: &str) {
        for (index, byte) in tag.bytes().take(TAG_MAX_BYTES).enumerate() {
            // SAFETY: the segment is that long, and is attached as long as this lives.
            unsafe { self.at.add(index).write_volatile(byte) };
        }
    }

    /// The tag that is there.
    pub fn read(&self) -> String {
        // SAFETY: as above.
        let bytes = (0..TAG_MAX_BYTES).map(|index| unsafe { self.at.add(index).read_volatile() });
        let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the calls take a number, and the address of what was attached, which nobody uses any more.
        unsafe {
            libc::shmdt(self.at.cast());
            libc::shmctl(self.id, libc::IPC_RMID, std::ptr::null_mut());
        }
    }
}

/// A message as System V has it.
#[repr(C)]
struct Message {
    kind: libc::c_long,
    text: [u8; TAG_MAX_BYTES],
}

/// A message queue; removed with this.
pub struct Queue {
    /// Its number.
    pub id: libc::c_int,
}

impl Queue {
    /// A new one with a key.
    pub fn make(key: libc::key_t) -> Result<Queue, Failure> {
        // SAFETY: the call takes numbers.
        Ok(Queue { id: answer("msgget", unsafe { libc::msgget(key, NEW) })? })
    }

    /// Sends a tag.
    pub fn send(&self, tag: &str) -> Result<(), Failure> {
        let mut message = Message { kind: 1, text: [0; TAG_MAX_BYTES] };
        let tag = tag.as_bytes();
        message.text[..tag.len()].copy_from_slice(tag);
        // SAFETY: the message has so many bytes after its kind.
        let sent = unsafe { libc::msgsnd(self.id, (&raw const message).cast(), tag.len(), 0) };
        answer("msgsnd", sent).map(drop)
    }

    /// The next message, which there must be.
    pub fn receive(&self) -> Result<String, Failure> {
        let mut message = Message { kind: 0, text: [0; TAG_MAX_BYTES] };
        let room = TAG_MAX_BYTES;
        // SAFETY: the message has so much room after its kind.
        let count =
            unsafe { libc::msgrcv(self.id, (&raw mut message).cast(), room, 0, libc::IPC_NOWAIT) };
        if count < 0 {
            return Err(failed("msgrcv")(io::Error::last_os_error()));
        }
        let text = &message.text[..count.unsigned_abs().min(room)];
        Ok(String::from_utf8_lossy(text).into_owned())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: the call takes a number.
        unsafe { libc::msgctl(self.id, libc::IPC_RMID, std::ptr::null_mut()) };
    }
}

/// A set of one semaphore; removed with this.
pub struct Semaphores {
    /// Its number.
    pub id: libc::c_int,
}

impl Semaphores {
    /// A new one with a key.
    pub fn make(key: libc::key_t) -> Result<Semaphores, Failure> {
        // SAFETY: the call takes numbers.
        Ok(Semaphores { id: answer("semget", unsafe { libc::semget(key, 1, NEW) })? })
    }

    /// Gives it a value.
    pub fn set(&self, value: u16) -> Result<(), Failure> {
        // SAFETY: the command takes a number.
        let set = unsafe { libc::semctl(self.id, 0, libc::SETVAL, libc::c_int::from(value)) };
        answer("semctl", set).map(drop)
    }

    /// Its value.
    pub fn get(&self) -> Result<libc::c_int, Failure> {
        // SAFETY: the command takes nothing.
        answer("semctl", unsafe { libc::semctl(self.id, 0, libc::GETVAL) })
    }
}

impl Drop for Semaphores {
    fn drop(&mut self) {
        // SAFETY: the call takes numbers.
        unsafe { libc::semctl(self.id, 0, libc::IPC_RMID) };
    }
}

/// A POSIX message queue; removed with this.
pub struct PosixQueue {
    descriptor: libc::mqd_t,
    name: CString,
}

impl PosixQueue {
    /// A new one with the name that everybody uses.
    pub fn make() -> Result<PosixQueue, Failure> {
        let name = CString::new(QUEUE).unwrap_or_default();
        // SAFETY: a structure of numbers, which may all be zero.
        let mut limits: libc::mq_attr = unsafe { std::mem::zeroed() };
        (limits.mq_maxmsg, limits.mq_msgsize) = (2, TAG_MAX_BYTES as libc::c_long);
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NONBLOCK;
        let mode: libc::mode_t = 0o600;
        // SAFETY: the name is a string, the limits are what the call takes for a new queue.
        let descriptor = unsafe { libc::mq_open(name.as_ptr(), flags, mode, &raw mut limits) };
        Ok(PosixQueue { descriptor: answer("mq_open", descriptor)?, name })
    }

    /// Sends a tag.
    pub fn send(&self, tag: &str) -> Result<(), Failure> {
        // SAFETY: the tag has so many bytes.
        let sent = unsafe { libc::mq_send(self.descriptor, tag.as_ptr().cast(), tag.len(), 0) };
        answer("mq_send", sent).map(drop)
    }

    /// The next message, which there must be.
    pub fn receive(&self) -> Result<String, Failure> {
        let mut text = [0_u8; TAG_MAX_BYTES];
        let (room, no_priority) = (text.len(), std::ptr::null_mut());
        // SAFETY: there is so much room.
        let count = unsafe {
            libc::mq_receive(self.descriptor, text.as_mut_ptr().cast(), room, no_priority)
        };
        if count < 0 {
            return Err(failed("mq_receive")(io::Error::last_os_error()));
        }
        Ok(String::from_utf8_lossy(&text[..count.unsigned_abs().min(room)]).into_owned())
    }
}

impl Drop for PosixQueue {
    fn drop(&mut self) {
        // SAFETY: the descriptor is this value's own, and the name is a string.
        unsafe {
            libc::mq_close(self.descriptor);
            libc::mq_unlink(self.name.as_ptr());
        }
    }
}
