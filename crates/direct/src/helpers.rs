//! All the helpers of a domain: what the host must offer, making them, and which slot is whose.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use host::GuestMemory;

use crate::area::Area;
use crate::error::{Error, host};
use crate::kick::Kick;
use crate::layout::{MAX_SPACES, PAGE_BYTES, SIGNAL_FRAME_MAX_BYTES};
use crate::notify::{self, Listener};
use crate::registers::{self, Components, EXTENDED_BYTES, Registers};
use crate::reply::{Received, Reply};
use crate::script::{self, ARCH_SET_CPUID};
use crate::space::{Protection, Space, TimeStamp, is_alive};
use crate::stop::Stop;
use crate::zygote::fork_zygote;

/// `HWCAP2_FSGSBASE`.
const FSGSBASE: u64 = 1 << 1;

/// What makes address spaces for one guest.
#[derive(Debug)]
pub struct Helpers {
    pub(crate) area: Area,
    pub(crate) components: Components,
    pub(crate) memory_bytes: u64,
    zygote: u32,
    cpuid_faults: bool,
    /// Held while a helper is made: requests and replies are one conversation.
    makers: Mutex<Maker>,
    /// The file that the zygote and every mapper have open; kept so that it is not another's.
    _memory: Arc<File>,
}

#[derive(Debug)]
struct Maker {
    socket: OwnedFd,
    free: Vec<usize>,
    /// Slots whose runners have been killed but may still be running for a moment.
    dying: Vec<(usize, Arc<OwnedFd>)>,
    /// The helper that is in the making.
    order: Option<Order>,
    broken: bool,
}

/// A helper that the zygote has been asked for.
#[derive(Debug)]
struct Order {
    slot: usize,
    time_stamp: TimeStamp,
}

/// What comes back from a helper that has started.
#[derive(Debug)]
pub(crate) struct Descriptors {
    pub runner: Listener,
    pub mapper: Listener,
    pub process: OwnedFd,
}

impl Helpers {
    /// Start the zygote for a guest with this memory. To be called before the process confines
    /// itself: a filter that kills would also kill helpers, whose guests call what they like.
    ///
    /// # Errors
    ///
    /// [`Error`] that says what is missing; the guest's user code is to be translated then.
    pub fn start(memory: &GuestMemory) -> Result<Arc<Self>, Error> {
        check_host()?;
        let memory_bytes = memory
            .file()
            .metadata()
            .map_err(|source| Error::Host { action: "learn the size of guest memory", source })?;
        // Asks Linux what it is called, which a confined process may not.
        notify::death_ends_receiving();
        let area = Area::new()?;
        let (ours, theirs) = socket_pair()?;
        let first = script::zygote(&area);
        let zygote = fork_zygote(&theirs, &area.file, memory.file(), first)?;
        // SAFETY: touches no memory, and changes nothing: CPUID is enabled already.
        let cpuid_faults = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_CPUID, 1) } == 0;
        let free = (1..=MAX_SPACES).rev().collect();
        let makers =
            Mutex::new(Maker { socket: ours, free, dying: Vec::new(), order: None, broken: false });
        let components = Components::of_the_host();
        let (memory_bytes, _memory) = (memory_bytes.len(), Arc::clone(memory.file()));
        let helpers =
            Self { area, components, memory_bytes, zygote, cpuid_faults, makers, _memory };
        let helpers = Arc::new(helpers);
        helpers.try_out()?;
        Ok(helpers)
    }

    /// See that everything works here that will be needed.
    fn try_out(self: &Arc<Self>) -> Result<(), Error> {
        let mut space = self.space(TimeStamp::Native)?;
        if self.memory_bytes >= PAGE_BYTES {
            let protection = Protection { write: true, execute: true };
            space.map(0x1_0000, PAGE_BYTES, 0, protection, false)?;
            space.unmap_all()?;
        }
        let absent = 0x1_0000;
        let (mut registers, mut extended) = (Registers::at(absent), [0; EXTENDED_BYTES]);
        match space.run(&mut registers, &mut extended, &Kick::new()) {
            Stop::Refused => Err(Error::Missing { what: "memory files that can be executed" }),
            stop if stop == Stop::fetch_fault(absent) => Ok(()),
            _ => Err(Error::Missing { what: "signals of its own" }),
        }
    }

    /// A new address space with nothing mapped in it. There is always one in the making, so that
    /// the next call need not wait.
    ///
    /// # Errors
    ///
    /// [`Error`] that says what the host would not do.
    pub fn space(self: &Arc<Self>, time_stamp: TimeStamp) -> Result<Space, Error> {
        let mut maker = self.maker();
        if maker.broken {
            return Err(Error::Broken);
        }
        self.collect(&mut maker);
        let mut unwanted = None;
        let (slot, descriptors) = loop {
            let order = match maker.order.take() {
                Some(order) => order,
                None => self.order(&mut maker, time_stamp)?,
            };
            let descriptors = self.fulfil(&mut maker, order.slot)?;
            if order.time_stamp == time_stamp {
                break (order.slot, descriptors);
            }
            unwanted = Some((order.slot, descriptors));
        };
        // What goes wrong with it is said to who wants it.
        maker.order = self.order(&mut maker, time_stamp).ok();
        drop(maker);
        if let Some((slot, descriptors)) = unwanted {
            // One of the other kind. It ends in good order, as a space.
            drop(Space::new(Arc::clone(self), slot, descriptors));
        }
        // From here on the space owns the slot, and gives it back.
        Space::new(Arc::clone(self), slot, descriptors)
    }

    /// Whether CPUID faults in a helper. Where it does not, programs see the host's own leaves.
    pub fn cpuid_faults(&self) -> bool {
        self.cpuid_faults
    }

    /// The zygote's process number.
    pub fn zygote(&self) -> u32 {
        self.zygote
    }

    fn maker(&self) -> MutexGuard<'_, Maker> {
        self.makers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Have a helper made.
    fn order(&self, maker: &mut Maker, time_stamp: TimeStamp) -> Result<Order, Error> {
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
    fn fulfil(&self, maker: &mut Maker, slot: usize) -> Result<Descriptors, Error> {
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
    fn collect(&self, maker: &mut Maker) {
        let (alive, dead) = maker.dying.drain(..).partition(|(_, process)| is_alive(process));
        maker.dying = alive;
        for (slot, _) in dead {
            self.area.clear(slot);
            maker.free.push(slot);
        }
    }
}

fn check_host() -> Result<(), Error> {
    // SAFETY: reads the auxiliary vector.
    let features = unsafe { libc::getauxval(libc::AT_HWCAP2) };
    let needs = [
        (
            features & FSGSBASE != 0,
            "the FSGSBASE instructions (Linux 5.9 on a processor with them)",
        ),
        (std::is_x86_feature_detected!("xsave"), "XSAVE"),
        (signal_frame_bytes() <= SIGNAL_FRAME_MAX_BYTES, "small signal frames"),
        (std::is_x86_feature_detected!("sse2") && page_size() == 4096, "4 KiB pages"),
    ];
    match needs.iter().find(|(there, _)| !there) {
        Some(&(_, what)) => Err(Error::Missing { what }),
        None => Ok(()),
    }
}

/// What a signal frame takes. `AT_MINSIGSTKSZ` is no help: it includes AMX, whose state Linux saves
/// only for processes that have asked for it, which we do not.
fn signal_frame_bytes() -> u64 {
    /// `ARCH_GET_XCOMP_PERM` (Linux 5.16; before, there was no AMX).
    const PERMITTED: i64 = 0x1022;
    /// The red zone, what lies in front of the extended state, its alignment, the word behind it.
    const REST_BYTES: u64 = 128 + 512 + 64 + 8;
    let mut permitted = u64::MAX;
    // SAFETY: writes one word, ours.
    unsafe { libc::syscall(libc::SYS_arch_prctl, PERMITTED, &raw mut permitted) };
    REST_BYTES + registers::extended_state_bytes(permitted) as u64
}

fn page_size() -> i64 {
    // SAFETY: reads a constant.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) }
}

fn socket_pair() -> Result<(OwnedFd, OwnedFd), Error> {
    let mut pair = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: two integers of ours are written.
    if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) } < 0 {
        return Err(host("make a socket for the zygote"));
    }
    // SAFETY: the descriptors are new and nobody else's.
    Ok(unsafe { (OwnedFd::from_raw_fd(pair[0]), OwnedFd::from_raw_fd(pair[1])) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter;
    use crate::layout::{AREA_FD, BASE, MEMORY_FD, SOCKET_FD, Step, step_address};
    use std::time::{Duration, Instant};

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
