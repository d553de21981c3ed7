//! All helpers of a domain: how they are made, and which slot belongs to which.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use locks::Unpoisoned;

use crate::area::Area;
use crate::error::{Error, host};
use crate::layout::MAX_SPACES;
use crate::notify::{self, Listener};
use crate::registers::Components;
use crate::reply::{Received, Reply};
use crate::rights::TimeStamp;
use crate::script;

/// All helpers of one guest, and the source of new ones.
#[derive(Debug)]
pub struct Helpers {
    pub(crate) area: Area,
    pub(crate) components: Components,
    pub(crate) memory_bytes: u64,
    pub(crate) zygote: u32,
    pub(crate) cpuid_faults: bool,
    /// Held while a helper is made: requests and replies are one conversation.
    pub(crate) makers: Mutex<Maker>,
    /// The file that the zygote and every mapper have open; held so that its number stays this file's.
    pub(crate) _memory: Arc<File>,
}

/// The source of helpers: the zygote, and the files that helpers get.
#[derive(Debug)]
pub(crate) struct Maker {
    pub(crate) socket: OwnedFd,
    pub(crate) free: Vec<usize>,
    /// Slots whose runners have been killed but may still be running for a moment.
    pub(crate) dying: Vec<(usize, Arc<OwnedFd>)>,
    /// The helper that the zygote is preparing.
    pub(crate) order: Option<Order>,
    pub(crate) broken: bool,
}

/// A helper that the zygote has been asked for.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) slot: usize,
    pub(crate) time_stamp: TimeStamp,
}

/// What comes back from a helper that has started.
#[derive(Debug)]
pub(crate) struct Descriptors {
    pub runner: Listener,
    pub mapper: Listener,
    pub process: OwnedFd,
}

impl Helpers {
    /// Whether CPUID faults in a helper. Where it does not, programs see the host's own leaves.
    pub fn cpuid_faults(&self) -> bool {
        self.cpuid_faults
    }

    /// The zygote's process number.
    pub fn zygote(&self) -> u32 {
        self.zygote
    }

    pub(crate) fn maker(&self) -> MutexGuard<'_, Maker> {
        self.makers.lock().unpoisoned()
    }

    /// Have a helper made.
    pub(crate) fn order(&self, maker: &mut Maker, time_stamp: TimeStamp) -> Result<Order, Error> {
        let slot = maker.free.pop().ok_or(Error::Full { count: MAX_SPACES })?;
        script::helper(&self.area, slot, self.zygote, time_stamp);
        let socket = maker.socket.as_raw_fd();
        // SAFETY: one byte of ours is read.
        let sent = unsafe { libc::send(socket, c"!".as_ptr().cast(), 1, libc::MSG_NOSIGNAL) };
        if sent != 1 {
            maker.broken = true;
            return Err(host("ask for a helper"));
        }
        Ok(Order { slot, time_stamp })
    }

    /// Wait for the helper that was ordered.
    pub(crate) fn fulfil(&self, maker: &mut Maker, slot: usize) -> Result<Descriptors, Error> {
        let error = match Reply::default().receive(maker.socket.as_raw_fd()) {
            // The mapper sends the runner's listener first, then its own, then the runner's pidfd.
            Ok(Received::Descriptors([runner, mapper, process])) => {
                let (runner, mapper) = (Listener(runner), Listener(mapper));
                return Ok(Descriptors { runner, mapper, process });
            }
            Ok(Received::Failure { step, result }) => {
                let source = io::Error::from_raw_os_error(i32::try_from(-result).unwrap_or(0));
                Error::Host { action: script::purpose(&self.area, slot, step), source }
            }
            Err(error) => error,
        };
        let number = match &error {
            Error::Host { source, .. } => source.raw_os_error(),
            _ => None,
        };
        match number {
            // No process was made.
            Some(libc::EAGAIN) => maker.free.push(slot),
            // The helper goes away by itself; its slot is not used again.
            Some(libc::EMFILE) => {}
            _ => maker.broken = true,
        }
        Err(error)
    }

    /// A slot whose runner has been killed. It is not used again before the runner is dead: until
    /// then, that could write into what the next one reports.
    pub(crate) fn give_back(&self, slot: usize, process: Arc<OwnedFd>) {
        self.maker().dying.push((slot, process));
    }

    /// Take back the slots of runners that are dead by now.
    pub(crate) fn collect(&self, maker: &mut Maker) {
        let (alive, dead) = maker.dying.drain(..).partition(|(_, process)| is_alive(process));
        maker.dying = alive;
        for (slot, _) in dead {
            self.area.clear(slot);
            maker.free.push(slot);
        }
    }
}

pub(crate) fn is_alive(process: &OwnedFd) -> bool {
    // Readable is what a process's descriptor becomes when it has ended (pidfd_open(2)).
    notify::poll(process.as_raw_fd(), Some(Duration::ZERO)).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter;
    use crate::layout::{AREA_FD, BASE, MEMORY_FD, PAGE_BYTES, SOCKET_FD, Step, step_address};
    use std::time::Instant;

    use host::GuestMemory;

    fn start() -> Arc<Helpers> {
        let memory = GuestMemory::new(&[(0, 1 << 20)]).unwrap();
        Helpers::start(&memory).unwrap()
    }

    fn lives(process: u32) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let state = status.rsplit(") ").next().and_then(|rest| rest.chars().next());
        state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
    }

    /// What a guest that has taken the domain's process over might order.
    fn wishes() -> Vec<(i64, [u64; 6])> {
        let mut wishes: Vec<_> = (0..480).map(|number| (number, [BASE; 6])).collect();
        wishes.extend([
            (libc::SYS_openat, [u64::MAX - 99, BASE + 0x2100, 0, 0, 0, 0]),
            (libc::SYS_socket, [libc::AF_INET as u64, libc::SOCK_STREAM as u64, 0, 0, 0, 0]),
            (libc::SYS_kill, [1, 0, 0, 0, 0, 0]),
            (libc::SYS_kill, [u64::MAX, 0, 0, 0, 0, 0]),
            (libc::SYS_clone, [libc::CLONE_NEWUSER as u64 | 17, 0, 0, 0, 0, 0]),
            (libc::SYS_clone, [libc::CLONE_FILES as u64 | 17, 0, 0, 0, 0, 0]),
            (libc::SYS_prctl, [libc::PR_SET_DUMPABLE as u64, 1, 0, 0, 0, 0]),
            (libc::SYS_prctl, [libc::PR_SET_NO_NEW_PRIVS as u64, 0, 0, 0, 0, 0]),
            (libc::SYS_ioctl, [SOCKET_FD, libc::TIOCSTI, BASE, 0, 0, 0]),
            (libc::SYS_arch_prctl, [0x1002, BASE, 0, 0, 0, 0]),
            (libc::SYS_openat | 0x4000_0000, [u64::MAX - 99, BASE + 0x2100, 0, 0, 0, 0]),
        ]);
        wishes
    }

    #[test]
    fn the_zygote_grants_no_wish() {
        // Linux exempts the last two from filters; they do nothing (see the head of the crate).
        let harmless =
            |number| filter::SET_UP_CALLS.contains(&number) || [335, 336].contains(&number);
        for (number, arguments) in wishes().into_iter().filter(|&(number, _)| !harmless(number)) {
            let helpers = start();
            let mut maker = helpers.maker();
            let order = maker.order.take().unwrap();
            helpers.fulfil(&mut maker, order.slot).unwrap();
            // Its first step waits for a request, its second forks.
            let (low, high, first) = (i64::MIN, i64::MAX, step_address(0));
            let number = number.cast_unsigned();
            let wish =
                Step { number, arguments, low, high, next: first, zero: first, failed: first };
            helpers.area.write(0, step_address(1), wish);
            let socket = maker.socket.as_raw_fd();
            // SAFETY: one byte of ours is read.
            assert_eq!(unsafe { libc::send(socket, c"!".as_ptr().cast(), 1, 0) }, 1);
            let since = Instant::now();
            while lives(helpers.zygote()) {
                assert!(since.elapsed() < Duration::from_secs(60), "{number} {arguments:x?}");
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }

    #[test]
    fn the_mapper_grants_no_wish() {
        let helpers = start();
        let fixed = (libc::MAP_SHARED | libc::MAP_FIXED) as u64;
        let mapping = |flags, file, protection| {
            (libc::SYS_mmap, [0x1_0000, PAGE_BYTES, protection, flags, file, 0])
        };
        let mut wishes = wishes();
        wishes.extend([
            mapping(fixed, AREA_FD, 3),
            mapping(fixed, SOCKET_FD, 3),
            mapping(fixed, MEMORY_FD | 1 << 32, 3),
            mapping(fixed, MEMORY_FD, 1 << 24),
            mapping(fixed | libc::MAP_ANONYMOUS as u64, MEMORY_FD, 3),
            mapping((libc::MAP_PRIVATE | libc::MAP_FIXED) as u64, MEMORY_FD, 3),
            mapping(libc::MAP_SHARED as u64, MEMORY_FD, 3),
        ]);
        let granted = [
            libc::SYS_munmap,
            libc::SYS_mprotect,
            libc::SYS_getppid,
            libc::SYS_exit_group,
            335,
            336,
        ];
        for (number, arguments) in
            wishes.into_iter().filter(|(number, _)| !granted.contains(number))
        {
            let mut space = helpers.space(TimeStamp::Native).unwrap();
            space.order(number, arguments).unwrap();
            let result = space.flush();
            assert!(matches!(result, Err(Error::Died)), "{number} {arguments:x?}: {result:?}");
        }
        // The rest still works.
        assert!(helpers.space(TimeStamp::Native).unwrap().unmap_all().is_ok());
    }
}
