//! Gates: the page by which a domain's vCPUs and the keeper agree on who runs.
//!
//! Each vCPU has a gate. Its thread runs guest code only while the gate is open, and says whether it wants to. The
//! keeper opens and shuts. The page is a file in the domain's directory, so that a keeper that comes back finds it;
//! both have it mapped, and the domain's process has closed it before its guest runs.
//!
//! ```text
//!   vCPU's thread                                  keeper
//!     wants := 1, 0      -- (news, if attended) -->  looks
//!     looks at from, until                           from, until := ...
//!     waits for `go`     <------- go, wake --------  opens
//!     comes out          <----- orders, wake ------  shuts early
//! ```
//!
//! 1. *A gate is open unless a keeper has shut it*, and open again when there has been none for [`KEEPER_TIMEOUT`]
//!    (`heartbeat`): a domain needs no keeper to run.
//! 2. *Open gates cost two stores* for each time that a vCPU sleeps, and a load for each exit.
//! 3. *A permit ends by itself.* The vCPU's own alarm brings it out of the guest; the keeper need not do anything, nor
//!    be there.
//! 4. *Either says, and then looks.* A domain first writes that a vCPU wants to run, then looks whether it is attended;
//!    the keeper first attends, then looks at what is wanted (`SeqCst`): one of them sees the other.
//! 5. *The keeper believes nothing.* What a domain writes here is a wish; what it is charged is what the host counts. A
//!    domain that ignores its gates is stopped from outside.
//!
//! Times are nanoseconds of the host's monotonic clock.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use host::SharedPage;
use rustix::thread::futex;
use rustix::time::{ClockId, clock_gettime};

mod wait;

pub use wait::{Word, wait_for_any};

/// The name of the page in a domain's directory.
pub const FILE: &str = "gates";

/// Bytes of the file.
const FILE_BYTES: u64 = 4096;

/// vCPUs that there is room for.
pub const VCPUS_MAX: usize = 16;

/// For how long a domain waits for a keeper that does not say that it is there.
pub const KEEPER_TIMEOUT: Duration = Duration::from_millis(200);

/// What the page begins with: "BIVGATE" and the version of its layout.
const MAGIC: u64 = u64::from_le_bytes(*b"BIVGATE\x01");

/// Until when an open gate is open.
const FOREVER: u64 = u64::MAX;

/// Where words are, in bytes. What different sides write is in different cache lines.
mod at {
    pub const MAGIC: usize = 0;
    pub const VCPUS: usize = 8;
    /// Written by the keeper.
    pub const HEARTBEAT: usize = 64;
    pub const ATTENDED: usize = 72;
    pub const ORDERS: usize = 76;
    /// Written by the domain.
    pub const NEWS: usize = 128;
    /// The first vCPU's.
    pub const SLOTS: usize = 256;
    pub const SLOT_BYTES: usize = 192;
    /// In a slot, written by the keeper.
    pub const FROM: usize = 0;
    pub const UNTIL: usize = 8;
    pub const GO: usize = 16;
    /// In a slot, written by the domain.
    pub const WANTS: usize = 64;
    pub const WAITS: usize = 72;
    pub const WAITED: usize = 80;
    pub const LONGEST: usize = 88;
}

const _: () = assert!(at::SLOTS + VCPUS_MAX * at::SLOT_BYTES <= FILE_BYTES as usize);

const ORDER: Ordering = Ordering::SeqCst;

/// The host's monotonic clock, in nanoseconds.
#[must_use]
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::try_from(now).map_or(0, nanoseconds)
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

fn wake(word: &AtomicU32) {
    word.fetch_add(1, ORDER);
    // That nobody waits is as good.
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

/// How a gate is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Open until somebody shuts it.
    Open,
    /// Open until then.
    Until(u64),
    /// Shut; if it is known, until then.
    Shut(Option<u64>),
}

/// How much a vCPU has waited at its gate, by its own account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waits {
    /// How often.
    pub count: u64,
    /// In all.
    pub total: Duration,
    /// The longest.
    pub longest: Duration,
}

/// The gates of one domain. Clones are the same.
#[derive(Debug, Clone)]
pub struct Gates {
    page: Arc<SharedPage>,
    vcpus: usize,
}

impl Gates {
    /// In a new file, all open.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn create(file: &File, vcpus: usize) -> io::Result<Self> {
        file.set_len(FILE_BYTES)?;
        let gates = Self { page: Arc::new(SharedPage::map(file)?), vcpus: vcpus.min(VCPUS_MAX) };
        for vcpu in 0..gates.vcpus {
            gates.word(vcpu, at::UNTIL).store(FOREVER, ORDER);
        }
        gates.page.word(at::VCPUS).store(gates.vcpus as u64, ORDER);
        // Whoever finds it finds the rest.
        gates.page.word(at::MAGIC).store(MAGIC, ORDER);
        Ok(gates)
    }

    /// Those in a file that a domain has made.
    ///
    /// # Errors
    ///
    /// It is something else, or not finished; or the host's.
    pub fn open(file: &File) -> io::Result<Self> {
        let page = Arc::new(SharedPage::map(file)?);
        let vcpus = usize::try_from(page.word(at::VCPUS).load(ORDER)).unwrap_or(usize::MAX);
        let is_one = page.word(at::MAGIC).load(ORDER) == MAGIC && (1..=VCPUS_MAX).contains(&vcpus);
        is_one.then_some(Self { page, vcpus }).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// How many there are.
    #[must_use]
    pub fn vcpus(&self) -> usize {
        self.vcpus
    }

    fn place(&self, vcpu: usize, offset: usize) -> usize {
        assert!(vcpu < self.vcpus, "there is no such vCPU");
        at::SLOTS + vcpu * at::SLOT_BYTES + offset
    }

    fn word(&self, vcpu: usize, offset: usize) -> &AtomicU64 {
        self.page.word(self.place(vcpu, offset))
    }

    fn half(&self, vcpu: usize, offset: usize) -> &AtomicU32 {
        self.page.half(self.place(vcpu, offset))
    }

    /// Whether a vCPU wants to run.
    #[must_use]
    pub fn wants(&self, vcpu: usize) -> bool {
        self.half(vcpu, at::WANTS).load(ORDER) != 0
    }
}

/// The domain's side.
impl Gates {
    /// Whether a gate is without limit.
    #[inline]
    #[must_use]
    pub fn is_open(&self, vcpu: usize) -> bool {
        self.word(vcpu, at::UNTIL).load(Ordering::Relaxed) == FOREVER
    }

    /// How a gate is.
    #[must_use]
    pub fn look(&self, vcpu: usize) -> Gate {
        // The keeper writes `from` first: one that is too old shuts, and `go` comes later.
        let until = self.word(vcpu, at::UNTIL).load(ORDER);
        if until == FOREVER {
            return Gate::Open;
        }
        let (from, now) = (self.word(vcpu, at::FROM).load(ORDER), now());
        match (from..until).contains(&now) {
            true => Gate::Until(until),
            false => Gate::Shut((from > now).then_some(from)),
        }
    }

    /// Whether somebody shuts gates. If not, this one is opened.
    pub fn is_kept(&self, vcpu: usize) -> bool {
        let until = self.word(vcpu, at::UNTIL).load(ORDER);
        let heartbeat = self.page.word(at::HEARTBEAT).load(ORDER);
        let is_kept = now() < heartbeat.saturating_add(nanoseconds(KEEPER_TIMEOUT));
        if !is_kept {
            // A keeper that is just coming back has the last word.
            let _ = self.word(vcpu, at::UNTIL).compare_exchange(until, FOREVER, ORDER, ORDER);
        }
        is_kept
    }

    /// A vCPU wants to run, or does not.
    pub fn say(&self, vcpu: usize, wants: bool) {
        self.half(vcpu, at::WANTS).store(wants.into(), ORDER);
        if self.page.half(at::ATTENDED).load(ORDER) != 0 {
            wake(self.page.half(at::NEWS));
        }
    }

    /// Tell the keeper that a vCPU is at its gate.
    pub fn tell(&self) {
        wake(self.page.half(at::NEWS));
    }

    /// The word that changes when a vCPU's gate is opened. It is read before the gate is looked at.
    #[must_use]
    pub fn go(&self, vcpu: usize) -> &AtomicU32 {
        self.half(vcpu, at::GO)
    }

    /// A vCPU has waited at its gate. Only its own thread says so.
    pub fn has_waited(&self, vcpu: usize, span: Duration) {
        let add = |at, value: u64| {
            let word = self.word(vcpu, at);
            word.store(word.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
        };
        let span = nanoseconds(span);
        add(at::WAITS, 1);
        add(at::WAITED, span);
        self.word(vcpu, at::LONGEST).fetch_max(span, Ordering::Relaxed);
    }

    /// Wait for orders to look at the gates again, given how many there have been; how many there are now.
    pub fn wait_for_orders(&self, seen: u32) -> u32 {
        let orders = self.page.half(at::ORDERS);
        while orders.load(ORDER) == seen {
            let _ = futex::wait(orders, futex::Flags::empty(), seen, None);
        }
        orders.load(ORDER)
    }

    /// How many orders there have been.
    #[must_use]
    pub fn orders(&self) -> u32 {
        self.page.half(at::ORDERS).load(ORDER)
    }
}

/// The keeper's side.
impl Gates {
    /// Somebody keeps the gates now.
    pub fn beat(&self, now: u64) {
        self.page.word(at::HEARTBEAT).store(now, ORDER);
    }

    /// Whether the domain is to tell when a vCPU begins to want to run, and when it has nothing to do.
    pub fn attend(&self, is_attended: bool) {
        self.page.half(at::ATTENDED).store(is_attended.into(), ORDER);
    }

    /// The word that changes when the domain tells something.
    #[must_use]
    pub fn news(&self) -> &AtomicU32 {
        self.page.half(at::NEWS)
    }

    /// A vCPU may run from one time until another; none is for ever. Who waits is woken by [`Self::let_go`].
    pub fn permit(&self, vcpu: usize, span: Option<(u64, u64)>) {
        let (from, until) = span.unwrap_or((0, FOREVER));
        self.word(vcpu, at::FROM).store(from, ORDER);
        self.word(vcpu, at::UNTIL).store(until, ORDER);
    }

    /// A vCPU may not run.
    pub fn shut(&self, vcpu: usize) {
        self.word(vcpu, at::UNTIL).store(0, ORDER);
    }

    /// Wake a vCPU that waits at its gate.
    pub fn let_go(&self, vcpu: usize) {
        wake(self.half(vcpu, at::GO));
    }

    /// Have the domain look at its gates again: one has been shut early. The domain itself uses it to end who waits for
    /// orders.
    pub fn order(&self) {
        wake(self.page.half(at::ORDERS));
    }

    /// Whether a gate is as it was set last: the domain opens it when the keeper has been late, or because it has no
    /// right to and does so all the same.
    #[must_use]
    pub fn is_as_set(&self, vcpu: usize, span: Option<(u64, u64)>, is_shut: bool) -> bool {
        let until = if is_shut { 0 } else { span.map_or(FOREVER, |(_, until)| until) };
        self.word(vcpu, at::UNTIL).load(ORDER) == until
    }

    /// What a vCPU says that it has waited.
    #[must_use]
    pub fn waits(&self, vcpu: usize) -> Waits {
        let word = |at| self.word(vcpu, at).load(Ordering::Relaxed);
        Waits {
            count: word(at::WAITS),
            total: Duration::from_nanos(word(at::WAITED)),
            longest: Duration::from_nanos(word(at::LONGEST)),
        }
    }
}

#[cfg(test)]
mod tests;
