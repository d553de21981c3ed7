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
    /// It is away: all that comes is held.
    is_away: bool,
    /// What is held while it is away, or about to be.
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
        Port {
            name,
            lease,
            client,
            is_announced: false,
            frames,
            names,
            earlier: VecDeque::new(),
            is_away: false,
            held: None,
        }
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
            Some(_) if !self.is_away && !begins_connection(frame) => self.send_now(frame),
            Some(held) => has_room && held.keep(frame),
        }
    }

    fn send_now(&self, frame: &[u8]) -> bool {
        send(&self.frames, frame, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_ok()
    }

    /// It is about to be away: from now on what begins a connection is held.
    pub fn hold_beginnings(&mut self) {
        self.held.get_or_insert_default();
    }

    /// From now on it is away.
    pub fn hold(&mut self) {
        self.is_away = true;
        self.held.get_or_insert_default();
    }

    /// Whether it is away.
    pub fn is_away(&self) -> bool {
        self.is_away
    }

    /// It is there again, and gets what was held, unless that is too old.
    pub fn release(&mut self) {
        self.is_away = false;
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

/// Whether a frame with its header has the first segment of a TCP connection (RFC 9293, 3.1).
fn begins_connection(frame: &[u8]) -> bool {
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    const TCP: u8 = 6;
    let flags = || {
        let frame = frame.get(HEADER_BYTES..)?;
        let packet = frame.get(ETHERNET_BYTES..)?;
        let (protocol, header) = match frame.get(12..ETHERNET_BYTES)? {
            [0x08, 0x00] => (packet.get(9)?, usize::from(packet.first()? & 15) * 4),
            // Of one whose first header is not that of TCP nobody knows.
            [0x86, 0xdd] => (packet.get(6)?, 40),
            _ => return None,
        };
        (*protocol == TCP).then_some(*packet.get(header + 13)?)
    };
    flags().is_some_and(|flags| flags & (SYN | ACK) == SYN)
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

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    const SYN: u8 = 2;
    const ACK: u8 = 16;

    /// A frame with its header that holds a segment with these flags, in a packet of this version.
    fn segment(version: u8, flags: u8) -> Vec<u8> {
        let mut frame = vec![0; HEADER_BYTES + 12];
        let mut packet = match version {
            4 => {
                frame.extend([0x08, 0x00]);
                // With an option of four bytes.
                let mut packet = vec![0; 24];
                (packet[0], packet[9]) = (0x46, 6);
                packet
            }
            _ => {
                frame.extend([0x86, 0xdd]);
                let mut packet = vec![0; 40];
                (packet[0], packet[6]) = (0x60, 6);
                packet
            }
        };
        let mut header = [0; 20];
        header[13] = flags;
        packet.extend(header);
        frame.extend(packet);
        frame
    }

    #[test]
    fn what_begins_a_connection_is_known() {
        for version in [4, 6] {
            let whole = segment(version, SYN);
            assert!(begins_connection(&whole));
            // What is cut off before the flags begins nothing.
            (0..whole.len() - 6).for_each(|length| assert!(!begins_connection(&whole[..length])));
            for flags in [0, ACK, SYN | ACK] {
                assert!(!begins_connection(&segment(version, flags)));
            }
            let mut datagram = whole;
            datagram[HEADER_BYTES + ETHERNET_BYTES + if version == 4 { 9 } else { 6 }] = 17;
            assert!(!begins_connection(&datagram));
        }
    }

    #[test]
    fn what_has_begun_passes_until_the_pod_is_away() {
        let pair =
            || socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let ((frames, pod), (names, _)) = (pair().unwrap(), pair().unwrap());
        let mut port = Port::new("web".into(), "lease".into(), 1, frames, names);
        let taken = || {
            let mut room = [0; 100];
            let count =
                recv(&pod, &mut room[..], RecvFlags::DONTWAIT).map_or(0, |(count, _)| count);
            room[..count].to_vec()
        };
        port.hold_beginnings();
        assert!(!port.is_away());
        assert!(port.send(&segment(4, SYN), true));
        assert!(taken().is_empty());
        assert!(port.send(&segment(4, ACK), true));
        assert_eq!(taken(), segment(4, ACK));
        port.hold();
        assert!(port.is_away());
        assert!(port.send(&segment(6, ACK), true));
        assert!(taken().is_empty());
        port.release();
        assert_eq!((taken(), taken()), (segment(4, SYN), segment(6, ACK)));
        assert!(port.send(&segment(4, SYN), true));
        assert_eq!(taken(), segment(4, SYN));
    }
}
