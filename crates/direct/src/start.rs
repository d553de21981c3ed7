//! Starting the zygote, trying out whether the host offers what helpers need, and address spaces for the taking.

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex};

use host::GuestMemory;

use crate::area::Area;
use crate::error::{Error, host};
use crate::helpers::{Helpers, Maker};
use crate::kick::Kick;
use crate::layout::{MAX_SPACES, PAGE_BYTES, SIGNAL_FRAME_MAX_BYTES};
use crate::linux::ARCH_SET_CPUID;
use crate::notify;
use crate::registers::{self, Components, EXTENDED_BYTES, Registers};
use crate::rights::{Protection, TimeStamp};
use crate::script;
use crate::space::Space;
use crate::stop::Stop;
use crate::zygote::fork_zygote;

/// `HWCAP2_FSGSBASE`.
const FSGSBASE: u64 = 1 << 1;

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

    /// Check that the host has everything that helpers need.
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

    /// A new address space with nothing mapped in it. The zygote always prepares the next one, so that
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
/// only for processes that have asked for it, which the domain does not.
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
