//! The back-end of a network card, for stock front-ends (`xen-netfront`), whose other end is a process that takes
//! frames by a cable ([`super::cable`]).
//!
//! 1. *The thread that is notified sends.* The vCPU's thread takes packets from the ring and writes them to the cable,
//!    several at once. What the cable does not take, and what is more than a turn, is left to the card's thread.
//! 2. *The card's thread receives.* It reads as many frames as the cable has and gives them to the front-end. When
//!    that has no room it reads no more, so that the sender waits: no packet is lost.
//! 3. *One thread at a time has a ring*, under its lock; who is notified meanwhile leaves a note.
//! 4. *There is no wire.* Nobody looks at checksums on either side, and a packet may be as large as it likes.
//! 5. *A link may be made again.* When the other end goes, what the front-end transmits is lost and nothing comes. Who
//!    connects to the card's listening socket, and is this user or root, is the other end from then on: a router that
//!    was started again. The front-end sees only that packets were lost: Xen's protocol has no word for a link that is
//!    down.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::thread::JoinHandle;

use host::Patience;
use host::poll::{PollFlags, Poller};
use locks::Unpoisoned;
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Uid, geteuid};
use xen_io::Broken;
use xen_io::bus::{Handshake, Key, Tree, Unwritable};
use xen_io::device::{self, BackEnd, Connect, Link, Places};
use xen_io::network::{Checksum, Given, Offload, Receiver, Transmitter, VifSettings, offers};

use super::cable::{Cable, Inlet, MAX_FRAME_BYTES, Noted, Outlet, PREFIX_BYTES, Waiting};

/// Bytes that are written at once, and bytes of a turn.
const BATCH_BYTES: usize = 64 << 10;
const TURN_BYTES: usize = 256 << 10;

/// What a look at the ring counts for at least.
const LEAST_BYTES: usize = 4 << 10;

/// What is known of frames that come: no wire could have damaged them.
const UNDAMAGED: Offload = Offload { checksum: Checksum::Valid, segmentation: None };

/// The ring that the front-end transmits by.
struct Sending {
    ring: Transmitter,
    port: u32,
    link: Arc<dyn Link>,
    batch: Batch,
}

/// Frames that go over the cable together.
struct Batch {
    bytes: Box<[u8]>,
    /// What the cable has taken.
    start: usize,
    end: usize,
}

impl Default for Batch {
    fn default() -> Self {
        // There is room behind one that is not full.
        let bytes = vec![0; BATCH_BYTES + PREFIX_BYTES + MAX_FRAME_BYTES].into();
        Self { bytes, start: 0, end: 0 }
    }
}

impl Batch {
    /// Take packets from the ring.
    fn fill(&mut self, ring: &mut Transmitter) -> Result<(), Broken> {
        while self.end < BATCH_BYTES {
            let (prefix, room) = self.bytes[self.end..].split_at_mut(PREFIX_BYTES);
            // Nothing is segmented or summed up here: nobody on the way wants that.
            let Some((length, _)) = ring.next(room)? else { break };
            prefix.copy_from_slice(&(length as u32).to_be_bytes());
            self.end += PREFIX_BYTES + length;
        }
        Ok(())
    }

    /// Write what waits; whether that was all.
    fn flush(&mut self, outlet: &mut Outlet) -> bool {
        while self.start < self.end {
            match outlet.write(&self.bytes[self.start..self.end]) {
                0 => return false,
                count => self.start += count,
            }
        }
        (self.start, self.end) = (0, 0);
        true
    }
}

/// The ring that it receives by.
struct Receiving {
    ring: Receiver,
    port: u32,
    link: Arc<dyn Link>,
}

/// What the card's thread shares with the vCPUs'. Who wants the locks of `sending` and `outlet` takes them in this
/// order.
struct Shared {
    /// Where frames go, of which `sending` may have half a one still to send.
    outlet: Mutex<Outlet>,
    /// Where who makes the link again connects.
    listener: Option<UnixListener>,
    /// Who may.
    owner: Uid,
    sending: Mutex<Option<Sending>>,
    receiving: Mutex<Option<Receiving>>,
    /// The front-end has transmitted since its ring was looked at.
    is_sending_wanted: AtomicBool,
    /// Neither ring is looked at.
    is_frozen: AtomicBool,
    /// Calls the thread where it sleeps.
    call: OwnedFd,
    is_called: AtomicBool,
    is_asleep: AtomicBool,
    is_over: AtomicBool,
}

/// How sending went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// There is nothing left.
    All,
    /// The socket takes no more now.
    Full,
    /// The turn is over.
    Turn,
}

impl Sending {
    /// Send what there is, for a turn.
    fn send(&mut self, outlet: &mut Outlet) -> Result<Sent, Broken> {
        let mut total = 0;
        loop {
            if !self.batch.flush(outlet) {
                return Ok(Sent::Full);
            }
            if total >= TURN_BYTES {
                return Ok(Sent::Turn);
            }
            self.batch.fill(&mut self.ring)?;
            // Packets that make no sense take time as well.
            total += self.batch.end.max(LEAST_BYTES);
            if self.ring.publish()? {
                self.link.notify(self.port);
            }
            if self.batch.end == 0 && self.ring.sleep()? {
                return Ok(Sent::All);
            }
        }
    }
}

impl Shared {
    /// Somebody makes the link again: what comes by it, if he may.
    fn relink(&self) -> Option<Inlet> {
        let (socket, _) = self.listener.as_ref()?.accept().ok()?;
        if !host::peer::is_of(&socket, self.owner) {
            return None;
        }
        let Cable { outlet, inlet } = Cable::accepted(socket)?;
        let mut sending = self.sending.lock().unpoisoned();
        // The rest of a frame is nothing to begin with.
        sending.iter_mut().for_each(|sending| sending.batch = Batch::default());
        *self.outlet.lock().unpoisoned() = outlet;
        Some(inlet)
    }

    /// Have the thread look.
    fn call(&self) {
        self.is_called.store(true, Ordering::SeqCst);
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            // It cannot be full as long as the thread reads it.
            let _ = rustix::io::write(&self.call, &1u64.to_ne_bytes());
        }
    }

    fn is_called(&self) -> bool {
        self.is_called.load(Ordering::SeqCst)
    }

    /// Send what the front-end transmits, unless another thread does, which then looks again. What is left is the
    /// card's thread's.
    fn send(&self) -> Sent {
        self.is_sending_wanted.store(true, Ordering::SeqCst);
        while self.is_sending_wanted.load(Ordering::SeqCst) {
            let mut sending = match self.sending.try_lock() {
                Ok(sending) => sending,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => break,
            };
            if self.is_frozen.load(Ordering::SeqCst) {
                break;
            }
            self.is_sending_wanted.store(false, Ordering::SeqCst);
            let Some(ring) = &mut *sending else { break };
            match ring.send(&mut self.outlet.lock().unpoisoned()) {
                Ok(Sent::All) => {}
                Ok(left) => return left,
                // It is sent no more; the front-end may connect again.
                Err(_) => *sending = None,
            }
        }
        Sent::All
    }

    /// Give the front-end frames that have come, of which `waiting` has the bytes; whether it has room for more.
    fn give(&self, waiting: &mut Waiting) -> bool {
        let mut receiving = self.receiving.lock().unpoisoned();
        if self.is_frozen.load(Ordering::SeqCst) {
            return false;
        }
        let Some(Receiving { ring, port, link }) = &mut *receiving else { return false };
        let mut has_room = true;
        let given = loop {
            let Some(frame) = waiting.frame() else { break Ok(()) };
            match ring.give(frame, UNDAMAGED) {
                Ok(Given::Taken | Given::Lost) => waiting.pass(),
                Ok(Given::NoRoom) => {
                    has_room = false;
                    break Ok(());
                }
                Err(broken) => break Err(broken),
            }
        };
        match given.and_then(|()| ring.publish()) {
            Ok(true) => link.notify(*port),
            Ok(false) => {}
            Err(_) => {
                *receiving = None;
                return false;
            }
        }
        has_room
    }

    /// What the thread does.
    fn work(&self, mut inlet: Inlet) {
        let (mut waiting, mut patience) = (Waiting::default(), Patience::default());
        while !self.is_over.load(Ordering::SeqCst) {
            self.is_called.store(false, Ordering::SeqCst);
            let sent = self.send();
            let reads = self.give(&mut waiting) && waiting.may_come();
            let is_ready = || self.is_called() || (reads && inlet.has_come());
            let can_watch = sent == Sent::All && inlet.can_be_watched();
            let interest = match can_watch && patience.watch(is_ready) {
                true => None,
                false => self.interest(sent, reads.then_some(&inlet)),
            };
            let Some(interest) = interest else {
                if reads {
                    waiting.read(&mut inlet);
                }
                continue;
            };
            let mut poller = Poller::new();
            poller.register(Token::Call, self.call.as_fd(), PollFlags::IN);
            if !interest.is_empty() {
                poller.register(Token::Cable, inlet.as_fd(), interest);
            }
            if let Some(listener) = &self.listener {
                poller.register(Token::Listener, listener.as_fd(), PollFlags::IN);
            }
            self.is_asleep.store(true, Ordering::SeqCst);
            let waited = if self.is_called() { poller.look() } else { poller.wait(None) };
            self.is_asleep.store(false, Ordering::SeqCst);
            if waited.is_err() {
                return;
            }
            patience.woken();
            inlet.wakes();
            let (mut reads, mut new) = (false, None);
            for (token, ready) in poller.ready() {
                match token {
                    Token::Call => drop(rustix::io::read(&self.call, &mut [0u8; 8])),
                    Token::Cable => {
                        let Noted { may_read, is_over } = inlet.note(ready);
                        reads |= may_read;
                        if is_over {
                            *self.outlet.lock().unpoisoned() = Outlet::Nowhere;
                        }
                    }
                    Token::Listener => new = self.relink(),
                }
            }
            if let Some(new) = new {
                (inlet, waiting) = (new, Waiting::default());
            } else if reads {
                waiting.read(&mut inlet);
            }
        }
    }

    /// What to poll the cable for where sending went so, and what comes is wanted from this inlet; `None` if there is
    /// more to do now.
    fn interest(&self, sent: Sent, wanted: Option<&Inlet>) -> Option<PollFlags> {
        let arrives = wanted.map_or(Some(PollFlags::empty()), Inlet::waits)?;
        let leaves = match sent {
            Sent::All => PollFlags::empty(),
            Sent::Full => self.outlet.lock().unpoisoned().waits()?,
            Sent::Turn => return None,
        };
        Some(arrives | leaves)
    }
}

/// What the card's thread polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Call,
    Cable,
    Listener,
}

/// A card on the bus; its thread ends with it.
pub struct SplitNetwork {
    shared: Arc<Shared>,
    address: [u8; 6],
    handshake: Option<Handshake>,
    thread: Option<JoinHandle<()>>,
}

impl SplitNetwork {
    /// A card with this Ethernet address, whose link is made again by who connects to `listener`.
    ///
    /// # Errors
    ///
    /// The host has no thread, or no descriptor.
    pub fn new(cable: Cable, listener: Option<OwnedFd>, address: [u8; 6]) -> std::io::Result<Self> {
        let Cable { outlet, inlet } = cable;
        let listener = listener.map(UnixListener::from);
        listener.iter().try_for_each(|listener| listener.set_nonblocking(true))?;
        let shared = Arc::new(Shared {
            outlet: Mutex::new(outlet),
            listener,
            owner: geteuid(),
            sending: Mutex::default(),
            receiving: Mutex::default(),
            is_sending_wanted: AtomicBool::new(false),
            is_frozen: AtomicBool::new(false),
            call: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            is_called: AtomicBool::new(false),
            is_asleep: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let its_own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("network".into());
        let thread = Some(thread.spawn(move || its_own.work(inlet))?);
        Ok(Self { shared, address, handshake: None, thread })
    }

    /// Look at no ring until [`Self::thaw`]: who did has let go.
    fn freeze(&self) {
        self.shared.is_frozen.store(true, Ordering::SeqCst);
        drop(self.shared.sending.lock().unpoisoned());
        drop(self.shared.receiving.lock().unpoisoned());
    }

    /// Go on.
    fn thaw(&self) {
        self.shared.is_frozen.store(false, Ordering::SeqCst);
        self.shared.is_sending_wanted.store(true, Ordering::SeqCst);
        self.shared.call();
    }

    /// Serve no rings any more.
    fn stop(&self) {
        let sending = self.shared.sending.lock().unpoisoned().take();
        sending.iter().for_each(|sending| sending.link.leave(sending.port));
        let receiving = self.shared.receiving.lock().unpoisoned().take();
        receiving.iter().for_each(|receiving| receiving.link.leave(receiving.port));
    }
}

impl Connect for SplitNetwork {
    type Settings = VifSettings;

    fn handshake(&mut self) -> &mut Option<Handshake> {
        &mut self.handshake
    }

    /// Serve the rings that the front-end has made.
    fn connect(
        &mut self,
        link: &Arc<dyn Link>,
        settings: &VifSettings,
    ) -> Result<Vec<Key>, String> {
        let text = |broken: Broken| broken.to_string();
        let VifSettings { transmit, receive, ports, takes } = settings;
        let ring = Transmitter::new(link.grants(), *transmit).map_err(text)?;
        let its_link = || Arc::clone(link);
        let batch = Batch::default();
        let sending = Sending { ring, port: ports.transmit, link: its_link(), batch };
        let ring = Receiver::new(link.grants(), *receive, *takes).map_err(text)?;
        let receiving = Receiving { ring, port: ports.receive, link: its_link() };
        *self.shared.sending.lock().unpoisoned() = Some(sending);
        *self.shared.receiving.lock().unpoisoned() = Some(receiving);
        let bind = |port, receives: bool, sends: bool| {
            let shared = Arc::clone(&self.shared);
            let notify = move || {
                if (sends && shared.send() != Sent::All) || receives {
                    shared.call();
                }
            };
            link.bind(port, Arc::new(notify)).map_err(|error| error.to_string())
        };
        if ports.transmit == ports.receive {
            bind(ports.transmit, true, true)?;
        } else {
            bind(ports.transmit, false, true)?;
            bind(ports.receive, true, false)?;
        }
        // What the front-end has put into the rings meanwhile.
        self.shared.call();
        Ok(Vec::new())
    }

    fn disconnect(&mut self) {
        self.stop();
    }
}

impl BackEnd for SplitNetwork {
    fn kind(&self) -> &'static str {
        "vif"
    }

    fn number(&self) -> u32 {
        0
    }

    fn begin(&mut self, places: &Places, tree: &mut dyn Tree) -> Result<(), Unwritable> {
        let Places { back, front } = places;
        let address = self.address.map(|byte| format!("{byte:02x}")).join(":");
        for directory in [front, back] {
            tree.write(&format!("{directory}/mac"), &address)?;
            tree.write(&format!("{directory}/handle"), &self.number().to_string())?;
        }
        self.handshake = Some(Handshake::begin(tree, back, front, &offers())?);
        Ok(())
    }

    fn look(&mut self, link: &Arc<dyn Link>, tree: &mut dyn Tree) -> Result<(), Unwritable> {
        device::look(self, link, tree)
    }

    fn freeze(&mut self) -> bool {
        Self::freeze(self);
        true
    }

    fn thaw(&mut self) {
        Self::thaw(self);
    }

    fn resume(
        &mut self,
        places: &Places,
        link: &Arc<dyn Link>,
        tree: &mut dyn Tree,
    ) -> Result<(), String> {
        device::resume(self, places, link, tree)
    }

    fn end(&mut self) {
        self.stop();
        self.handshake = None;
    }
}

impl Drop for SplitNetwork {
    fn drop(&mut self) {
        self.stop();
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.shared.call();
        if let Some(thread) = self.thread.take() {
            // One that has panicked has said so.
            let _ = thread.join();
        }
    }
}
