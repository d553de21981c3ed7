//! The back-end of a network card, for stock front-ends (`xen-netfront`), whose other end is a process that takes
//! frames on a stream socket, each after its length.
//!
//! 1. *The thread that is notified sends.* The vCPU's thread takes packets from the ring and writes them to the socket,
//!    several at once. What the socket does not take, and what is more than a turn, is left to the card's thread.
//! 2. *The card's thread receives.* It reads as many frames as the socket has and gives them to the front-end. When
//!    that has no room it reads no more, so that the sender waits: no packet is lost.
//! 3. *One thread at a time has a ring*, under its lock; who is notified meanwhile leaves a note.
//! 4. *There is no wire.* Nobody looks at checksums on either side, and a packet may be as large as it likes.
//! 5. *A link may be made again.* When the other end goes, what the front-end transmits is lost and nothing comes. Who
//!    connects to the card's listening socket, and is this user or root, is the other end from then on: a router that
//!    was started again. The front-end sees only that packets were lost: Xen's protocol has no word for a link that is
//!    down.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::thread::JoinHandle;

use host::poll::{PollFlags, Poller};
use locks::Unpoisoned;
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Uid, geteuid};
use xen_io::Broken;
use xen_io::bus::{Handshake, Key, Tree, Unwritable};
use xen_io::device::{self, BackEnd, Connect, Link, Places};
use xen_io::network::{Checksum, Given, Offload, Receiver, Transmitter, VifSettings, offers};

/// Bytes of a frame's length on the socket.
const PREFIX_BYTES: usize = 4;

/// Bytes that are written at once, and bytes of a turn.
const BATCH_BYTES: usize = 64 << 10;
const TURN_BYTES: usize = 256 << 10;

/// What a look at the ring counts for at least.
const LEAST_BYTES: usize = 4 << 10;

/// Bytes that are read at once: two of the largest frames.
const READ_BYTES: usize = 2 * (PREFIX_BYTES + MAX_FRAME_BYTES);

/// The largest frame, with its header and two tags.
const MAX_FRAME_BYTES: usize = 65535 + 22;

/// What is known of frames that come: no wire could have damaged them.
const UNDAMAGED: Offload = Offload { checksum: Checksum::Valid, segmentation: None };

/// The ring that the front-end transmits by.
struct Sending {
    ring: Transmitter,
    port: u32,
    link: Arc<dyn Link>,
    /// What the socket has not taken yet.
    rest: Vec<u8>,
    packet: Vec<u8>,
}

/// The ring that it receives by.
struct Receiving {
    ring: Receiver,
    port: u32,
    link: Arc<dyn Link>,
}

/// What the card's thread shares with the vCPUs'. Who wants both locks takes that of `sending` first.
struct Shared {
    /// The link, of which `sending` may have half a frame still to send.
    socket: Mutex<Arc<UnixStream>>,
    /// Where who makes the link again connects.
    listener: Option<UnixListener>,
    /// Who may.
    owner: Uid,
    sending: Mutex<Option<Sending>>,
    receiving: Mutex<Option<Receiving>>,
    /// The front-end has transmitted since its ring was looked at.
    is_sending_wanted: AtomicBool,
    /// The socket is full, and the thread waits for it.
    is_full: AtomicBool,
    /// Neither ring is looked at.
    is_frozen: AtomicBool,
    /// Calls the thread.
    call: OwnedFd,
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
    fn send(&mut self, socket: &UnixStream) -> Result<Sent, Broken> {
        let mut total = 0;
        loop {
            if !flush(socket, &mut self.rest) {
                return Ok(Sent::Full);
            }
            if total >= TURN_BYTES {
                return Ok(Sent::Turn);
            }
            while self.rest.len() < BATCH_BYTES {
                // Nothing is segmented or summed up here: nobody on the way wants that.
                if self.ring.next(&mut self.packet)?.is_none() {
                    break;
                }
                self.rest.extend_from_slice(&(self.packet.len() as u32).to_be_bytes());
                self.rest.extend_from_slice(&self.packet);
            }
            // Packets that make no sense take time as well.
            total += self.rest.len().max(LEAST_BYTES);
            if self.ring.publish()? {
                self.link.notify(self.port);
            }
            if self.rest.is_empty() && self.ring.sleep()? {
                return Ok(Sent::All);
            }
        }
    }
}

/// Write what waits; whether that was all. What a socket does not take that has nobody at its end is lost.
fn flush(mut socket: &UnixStream, rest: &mut Vec<u8>) -> bool {
    let mut sent = 0;
    while sent < rest.len() {
        match socket.write(&rest[sent..]) {
            Ok(count) => sent += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(_) => sent = rest.len(),
        }
    }
    rest.drain(..sent);
    rest.is_empty()
}

impl Shared {
    fn socket(&self) -> Arc<UnixStream> {
        Arc::clone(&self.socket.lock().unpoisoned())
    }

    /// Somebody makes the link again; whether he may.
    fn relink(&self) -> bool {
        let Some(Ok((socket, _))) = self.listener.as_ref().map(UnixListener::accept) else {
            return false;
        };
        if !host::peer::is_of(&socket, self.owner) || socket.set_nonblocking(true).is_err() {
            return false;
        }
        let mut sending = self.sending.lock().unpoisoned();
        // The rest of a frame is nothing to begin with.
        sending.iter_mut().for_each(|sending| sending.rest.clear());
        *self.socket.lock().unpoisoned() = Arc::new(socket);
        true
    }

    /// Have the thread look.
    fn call(&self) {
        // It cannot be full as long as the thread reads it.
        let _ = rustix::io::write(&self.call, &1u64.to_ne_bytes());
    }

    /// Send what the front-end transmits, unless another thread does, which then looks again. What is left is the
    /// card's thread's.
    fn send(&self) {
        self.is_sending_wanted.store(true, Ordering::SeqCst);
        while self.is_sending_wanted.load(Ordering::SeqCst) {
            let mut sending = match self.sending.try_lock() {
                Ok(sending) => sending,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            if self.is_frozen.load(Ordering::SeqCst) {
                return;
            }
            self.is_sending_wanted.store(false, Ordering::SeqCst);
            let Some(ring) = &mut *sending else { return };
            match ring.send(&self.socket()) {
                Ok(Sent::All) => {}
                Ok(Sent::Full) => {
                    self.is_full.store(true, Ordering::SeqCst);
                    return self.call();
                }
                Ok(Sent::Turn) => return self.call(),
                // It is sent no more; the front-end may connect again.
                Err(_) => *sending = None,
            }
        }
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
    fn work(&self) {
        let mut waiting = Waiting::default();
        while !self.is_over.load(Ordering::SeqCst) {
            self.send();
            let has_room = self.give(&mut waiting);
            let mut interest = PollFlags::empty();
            interest.set(PollFlags::IN, has_room && !waiting.is_over);
            interest.set(PollFlags::OUT, self.is_full.swap(false, Ordering::SeqCst));
            let mut poller = Poller::new();
            poller.register(Token::Call, self.call.as_fd(), PollFlags::IN);
            let socket = self.socket();
            if !interest.is_empty() {
                poller.register(Token::Socket, socket.as_fd(), interest);
            }
            if let Some(listener) = &self.listener {
                poller.register(Token::Listener, listener.as_fd(), PollFlags::IN);
            }
            if poller.wait(None).is_err() {
                return;
            }
            let (mut reads, mut is_new) = (false, false);
            for (token, ready) in poller.ready() {
                match token {
                    Token::Call => drop(rustix::io::read(&self.call, &mut [0u8; 8])),
                    Token::Socket => reads |= ready.intersects(!PollFlags::OUT),
                    Token::Listener => is_new |= self.relink(),
                }
            }
            if is_new {
                waiting = Waiting::default();
            } else if reads {
                waiting.read(&socket);
            }
        }
    }
}

/// What the card's thread polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Call,
    Socket,
    Listener,
}

/// Bytes of frames that have come.
#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// Bytes that were given.
    start: usize,
    /// Nobody sends any more, or what is no frame.
    is_over: bool,
}

impl Waiting {
    /// The first frame, if it is whole.
    fn frame(&mut self) -> Option<&[u8]> {
        let (prefix, rest) = self.bytes[self.start..].split_first_chunk::<PREFIX_BYTES>()?;
        let length = u32::from_be_bytes(*prefix) as usize;
        if length > MAX_FRAME_BYTES {
            tracing::error!("the network's other end sends what is no frame, of {length} bytes");
            self.is_over = true;
            return None;
        }
        rest.get(..length)
    }

    /// The first frame was given.
    fn pass(&mut self) {
        let length = self.frame().map_or(0, <[u8]>::len);
        self.start += PREFIX_BYTES + length;
    }

    /// Read what there is, behind what is not given yet.
    fn read(&mut self, mut socket: &UnixStream) {
        let was_over = self.is_over;
        self.bytes.drain(..std::mem::take(&mut self.start));
        let have = self.bytes.len();
        self.bytes.resize(have + READ_BYTES, 0);
        let count = match socket.read(&mut self.bytes[have..]) {
            Ok(0) => {
                self.is_over = true;
                0
            }
            Ok(count) => count,
            Err(error) => {
                let passes = matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock);
                self.is_over |= !passes;
                0
            }
        };
        self.bytes.truncate(have + count);
        if self.is_over && !was_over {
            tracing::error!(
                "the other end of the network cable has gone; the guest's network is down"
            );
        }
    }
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
    pub fn new(
        socket: OwnedFd,
        listener: Option<OwnedFd>,
        address: [u8; 6],
    ) -> std::io::Result<Self> {
        let socket = UnixStream::from(socket);
        socket.set_nonblocking(true)?;
        let listener = listener.map(UnixListener::from);
        listener.iter().try_for_each(|listener| listener.set_nonblocking(true))?;
        let shared = Arc::new(Shared {
            socket: Mutex::new(Arc::new(socket)),
            listener,
            owner: geteuid(),
            sending: Mutex::default(),
            receiving: Mutex::default(),
            is_sending_wanted: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            is_frozen: AtomicBool::new(false),
            call: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            is_over: AtomicBool::new(false),
        });
        let its_own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("network".into());
        let thread = Some(thread.spawn(move || its_own.work())?);
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
        let (rest, packet) = (Vec::new(), Vec::new());
        let its_link = || Arc::clone(link);
        let sending = Sending { ring, port: ports.transmit, link: its_link(), rest, packet };
        let ring = Receiver::new(link.grants(), *receive, *takes).map_err(text)?;
        let receiving = Receiving { ring, port: ports.receive, link: its_link() };
        *self.shared.sending.lock().unpoisoned() = Some(sending);
        *self.shared.receiving.lock().unpoisoned() = Some(receiving);
        let bind = |port, receives: bool, sends: bool| {
            let shared = Arc::clone(&self.shared);
            let notify = move || {
                if sends {
                    shared.send();
                }
                if receives {
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
