//! A pod's port: frames of its packet socket, which come and go with a header of virtio's as the kernel has made it
//! (`PACKET_VNET_HDR`), and what is held for it while it is away.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::limits::{HEADER_BYTES, HELD_BYTES, HELD_COST_BYTES, HOLD_TIMEOUT};

/// Bytes of an Ethernet header.
const ETHERNET_BYTES: usize = 14;

/// A pod that is attached.
#[derive(Debug)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// By what it is known to be the same.
    pub lease: String,
    /// Whose connection it lasts by.
    pub client: u64,
    /// What it has something to send is known of.
    pub is_announced: bool,
    frames: OwnedFd,
    names: OwnedFd,
    /// What it has sent where it was before.
    earlier: VecDeque<Box<[u8]>>,
    /// What is held while it is away.
    held: Option<Held>,
}

/// What came of receiving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// So many bytes: a header and a frame.
    Frame(usize),
    /// No frame: word that the interface was set down, for one. There may be more.
    Nonsense,
    /// Nothing is there now.
    Nothing,
}

/// Frames for a pod that is away, in their order, and when each came.
#[derive(Debug, Default)]
pub struct Held {
    frames: VecDeque<(Instant, Box<[u8]>)>,
    bytes: usize,
}

impl Held {
    /// Keeps a frame, if there is room.
    fn keep(&mut self, frame: &[u8]) -> bool {
        let cost = frame.len() + HELD_COST_BYTES;
        if self.bytes + cost > HELD_BYTES {
            return false;
        }
        self.bytes += cost;
        self.frames.push_back((Instant::now(), frame.into()));
        true
    }
}

impl Port {
    /// One with these sockets.
    pub fn new(name: String, lease: String, client: u64, frames: OwnedFd, names: OwnedFd) -> Port {
        let earlier = VecDeque::new();
        Port { name, lease, client, is_announced: false, frames, names, earlier, held: None }
    }

    /// Receives a frame, with its header. Whoever is away has none.
    pub fn receive(&mut self, room: &mut [u8]) -> Received {
        if self.is_away() {
            return Received::Nothing;
        }
        match self.earlier.pop_front() {
            Some(frame) => {
                room[..frame.len()].copy_from_slice(&frame);
                Received::Frame(frame.len())
            }
            None => self.receive_now(room),
        }
    }

    fn receive_now(&self, room: &mut [u8]) -> Received {
        let most = room.len();
        match recv(&self.frames, room, RecvFlags::DONTWAIT) {
            // Whoever fills all the room may have more.
            Ok((count, _)) if count >= HEADER_BYTES + ETHERNET_BYTES && count < most => {
                Received::Frame(count)
            }
            Err(Errno::AGAIN) => Received::Nothing,
            Ok(_) | Err(_) => Received::Nonsense,
        }
    }

    /// Sends a frame with its header, or holds it, if any more may be held; false if it is lost.
    pub fn send(&mut self, frame: &[u8], has_room: bool) -> bool {
        match &mut self.held {
            None => self.send_now(frame),
            Some(held) => has_room && held.keep(frame),
        }
    }

    fn send_now(&self, frame: &[u8]) -> bool {
        send(&self.frames, frame, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_ok()
    }

    /// From now on it is away.
    pub fn hold(&mut self) {
        self.held.get_or_insert_default();
    }

    /// Whether it is away.
    pub fn is_away(&self) -> bool {
        self.held.is_some()
    }

    /// It is there again, and gets what was held, unless that is too old.
    pub fn release(&mut self) {
        for (came, frame) in self.held.take().unwrap_or_default().frames {
            if came.elapsed() < HOLD_TIMEOUT {
                // Whoever does not take it now has lost it.
                self.send_now(&frame);
            }
        }
    }

    /// Goes on where `before` has stopped, which was the port of the same pod: with what that pod has sent last, as far
    /// as it fits, and with what was held for it.
    pub fn follow(&mut self, mut before: Port, room: &mut [u8]) {
        let mut bytes = 0;
        self.earlier = std::mem::take(&mut before.earlier);
        while bytes < HELD_BYTES {
            match before.receive_now(room) {
                Received::Frame(count) => {
                    bytes += count + HELD_COST_BYTES;
                    self.earlier.push_back(room[..count].into());
                }
                Received::Nonsense => bytes += HELD_COST_BYTES,
                Received::Nothing => break,
            }
        }
        self.held = before.held.take();
        self.release();
    }

    /// Whether there is something that it has sent before.
    pub fn has_earlier(&self) -> bool {
        !self.earlier.is_empty()
    }

    /// What is held and not too old.
    pub fn held(self) -> impl Iterator<Item = Box<[u8]>> {
        let held = self.held.unwrap_or_default().frames.into_iter();
        held.filter(|(came, _)| came.elapsed() < HOLD_TIMEOUT).map(|(_, frame)| frame)
    }

    /// Bytes that are held.
    pub fn held_bytes(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.bytes)
    }

    /// Tells whoever answers its questions about names.
    pub fn tell_names(&self, names: &[u8]) {
        // Whoever does not listen is told the next time.
        let _ = send(&self.names, names, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.frames.as_fd()
    }
}

/// A pod's word to all that it is there (RFC 5227, 3): a header, and a frame.
pub fn announcement(card: [u8; 6], address: std::net::Ipv4Addr) -> Vec<u8> {
    /// Ethernet and IPv4, with the lengths of their addresses; a request.
    const ARP: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 1];
    let mut frame = vec![0; HEADER_BYTES];
    frame.extend([0xff; 6]);
    frame.extend(card);
    frame.extend([8, 6]);
    frame.extend(ARP);
    frame.extend(card);
    frame.extend(address.octets());
    frame.extend([0; 6]);
    frame.extend(address.octets());
    frame
}

/// The time since some beginning as the router has it.
pub fn time_of(span: Duration) -> router::Time {
    router::Time(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}
