//! The pod's network: another process ([`uplink`]) has the other end of the pod's interface, and what the pod sends
//! goes out through that process's sockets. It is a child of the keeper, and ends with it.
//!
//! The keeper does not look at a frame. It has a socket for requests about that other end ([`Link`]), by which it sets
//! it down: then frames are lost in both directions, and TCP repeats them later. It does so while the pod is
//! checkpointed, and when the network's process has ended before the pod.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::Instant;

use api::pod::{Member, Network};
use api::{Name, networks};
use host::poll::{PollFlags, wait_for};
use host::processes::identity::open_process;
use netlink::Conversation;
use pod_protocol::PEER_INDEX;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Signal, pidfd_send_signal};
use uplink::{Neighbours, Ports};

use crate::limits::HANG_UP_PATIENCE;
use crate::member::{self, Port};
use crate::names::Peer;

/// What a pod is told of its network: what a machine is, if it is alone.
#[must_use]
pub fn addresses(member: Option<&Member>) -> pod_protocol::Network {
    let alone = pod_protocol::Network {
        card: uplink::CARD,
        address: uplink::GUEST,
        prefix_bits: uplink::PREFIX_BITS,
        gateway: uplink::GATEWAY,
        nameserver: uplink::NAMESERVER,
        mtu: uplink::MTU,
        gateway_card: None,
    };
    let Some(Member { address, subnet, .. }) = member else { return alone };
    pod_protocol::Network {
        card: switch::card_of(*address),
        address: *address,
        prefix_bits: subnet.bits(),
        gateway: subnet.gateway(),
        nameserver: subnet.gateway(),
        gateway_card: Some(uplink::GATEWAY_CARD),
        ..alone
    }
}

/// The process of a pod's network.
#[derive(Debug)]
pub struct Uplink {
    child: Child,
    process: OwnedFd,
    /// It ends when this is closed.
    line: Option<UnixStream>,
}

/// The ways of a pod that has neighbours: to them, and to the network's process.
#[derive(Debug)]
struct Ways {
    port: Port,
    line: UnixStream,
}

/// The other end of a pod's interface.
#[derive(Debug)]
pub struct Link {
    requests: Conversation,
    /// The network's process.
    process: OwnedFd,
    /// The ways of a pod that has neighbours.
    ways: Option<Ways>,
    /// Somebody has locked it.
    is_locked: bool,
    /// The process has ended.
    is_over: bool,
}

impl Uplink {
    /// Starts it at the other end of a pod's interface, with the ports that lead to the pod.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn start(
        peer: Peer,
        network: &Network,
        ports: Ports,
        joined: Option<(&Name, networks::Network)>,
    ) -> io::Result<(Uplink, Link)> {
        let (ours, theirs) = UnixStream::pair()?;
        let theirs = OwnedFd::from(theirs);
        let flags = SocketFlags::CLOEXEC;
        let (tells, hears) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let neighbours = network.member.as_ref().map(|member| (neighbours_of(member), &hears));
        let (socket, reaches_host) = (&peer.socket, network.reaches_host);
        let child = uplink::start_at_interface(socket, &theirs, ports, reaches_host, neighbours)?;
        let process = open_process(child.id())?;
        let ways = match (joined, &network.member, peer.neighbours) {
            (Some((name, joined)), Some(member), Some(frames)) => {
                uplink::widen(&frames)?;
                let port = Port::new(name, (joined, member), frames, tells);
                Some(Ways { port, line: ours.try_clone()? })
            }
            (Some(_), Some(_), None) => return Err(io::ErrorKind::InvalidData.into()),
            _ => None,
        };
        let link = Link {
            requests: peer.requests.into(),
            process: process.try_clone()?,
            ways,
            is_locked: false,
            is_over: false,
        };
        Ok((Uplink { child, process, line: Some(ours) }, link))
    }

    /// Has it end, with what the pod has sent already. Nobody waits for that.
    pub fn hang_up(&mut self) {
        if let Some(line) = self.line.take() {
            // Another thread may have it, too.
            let _ = line.shutdown(std::net::Shutdown::Both);
        }
    }
}

impl Drop for Uplink {
    fn drop(&mut self) {
        self.hang_up();
        let ended =
            wait_for(self.process.as_fd(), PollFlags::IN, Some(Instant::now() + HANG_UP_PATIENCE));
        if !ended.is_ok_and(|ready| !ready.is_empty()) {
            // It may have been reaped, but its descriptor is nobody else's.
            let _ = pidfd_send_signal(&self.process, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

impl Link {
    /// Attaches the pod to its network, if it is in one.
    ///
    /// # Errors
    ///
    /// It cannot be.
    pub fn attach(&mut self) -> Result<(), member::Error> {
        self.ways.as_mut().map_or(Ok(()), |ways| ways.port.attach())
    }

    /// Has frames be lost in both directions. If the pod has neighbours, they are held: its interface stays as it is,
    /// because the kernel would forget the neighbours, and ask for them again only after a second.
    ///
    /// # Errors
    ///
    /// The kernel's, or one of those at the other end does not answer.
    pub fn lock(&mut self) -> io::Result<()> {
        self.is_locked = true;
        let Some(ways) = &mut self.ways else { return self.requests.lower(PEER_INDEX) };
        let held = ways.port.hold();
        if !self.is_over {
            uplink::pause(&ways.line)?;
        }
        held.map_err(io::Error::other)
    }

    /// Has them pass again.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn unlock(&mut self) -> io::Result<()> {
        self.is_locked = false;
        match &mut self.ways {
            Some(ways) => {
                if !self.is_over {
                    // Whether it has ended is heard of otherwise.
                    let _ = uplink::resume(&ways.line);
                }
                ways.port.release().map_err(io::Error::other)
            }
            None if self.is_over => Ok(()),
            None => self.requests.raise(PEER_INDEX),
        }
    }

    /// What can be read when the switch of the pod's network has gone; none when that is known.
    #[must_use]
    pub fn watched_switch(&self) -> Option<BorrowedFd<'_>> {
        self.ways.as_ref().and_then(|ways| ways.port.watched())
    }

    /// The switch has gone, or has given the pod's place to itself elsewhere: then this one is locked.
    ///
    /// # Errors
    ///
    /// There is no other switch.
    pub fn lose_switch(&mut self) -> Result<(), member::Error> {
        match &mut self.ways {
            Some(ways) if self.is_locked => {
                ways.port.lose();
                Ok(())
            }
            Some(ways) => ways.port.attach(),
            None => Ok(()),
        }
    }

    /// What can be read when the network's process has ended; none when that is known.
    #[must_use]
    pub fn watched(&self) -> Option<BorrowedFd<'_>> {
        (!self.is_over).then(|| self.process.as_fd())
    }

    /// The network's process has ended: the pod's interface has no carrier any more, unless there are others to reach.
    pub fn end(&mut self) {
        self.is_over = true;
        if !self.is_locked && self.ways.is_none() {
            // If the pod has ended before it, there is no interface.
            let _ = self.requests.lower(PEER_INDEX);
        }
    }
}

/// What the process of its network is told of a pod that has neighbours.
fn neighbours_of(member: &Member) -> Neighbours {
    let Member { address, subnet, .. } = member;
    let (gateway, bits) = (subnet.gateway(), subnet.bits());
    Neighbours { guest: *address, card: switch::card_of(*address), gateway, bits }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pod_protocol::{Root, Setup};
    use rustix::net::{RecvFlags, SendFlags, recv, send};

    use super::*;
    use crate::names::{self, Users};

    /// How long the pod's kernel may take to answer.
    const PATIENCE: Duration = Duration::from_secs(60);
    const PAUSE: Duration = Duration::from_millis(10);

    /// Bytes of the header before each frame.
    const HEADER_BYTES: usize = 10;

    /// Who has the pod's address? (RFC 826)
    fn question() -> Vec<u8> {
        let mut frame = vec![0; HEADER_BYTES];
        frame.extend([0xff; 6]);
        frame.extend([2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1]);
        frame.extend(uplink::GATEWAY.octets());
        frame.extend([0; 6]);
        frame.extend(uplink::GUEST.octets());
        frame
    }

    /// Whether the pod's kernel answers within this time. What is lost is asked again.
    fn answers(socket: &OwnedFd, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut frame = [0; 256];
        while Instant::now() < deadline {
            // While the interface is down, the host says so.
            let _ = send(socket, &question(), SendFlags::DONTWAIT);
            std::thread::sleep(PAUSE);
            while let Ok((count, _)) = recv(socket, &mut frame, RecvFlags::DONTWAIT) {
                let kind = frame[..count].get(HEADER_BYTES + 12..HEADER_BYTES + 22);
                if kind == Some(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 2]) {
                    return true;
                }
            }
        }
        false
    }

    #[test]
    fn frames_are_lost_while_the_link_is_locked() {
        if let Err(error) = names::probe() {
            println!("skipped: this host has no pods: {error}");
            return;
        }
        let root = Root { path: b"/".to_vec(), is_writable: false, is_host: true };
        let setup = Setup {
            keeper: std::process::id(),
            hostname: b"link".to_vec(),
            root,
            shared: Vec::new(),
            hidden: Vec::new(),
            has_groups: false,
            network: Some(addresses(None)),
        };
        // The line is what the pod lives by.
        let users = if rustix::process::geteuid().is_root() { Users::OfRoot } else { Users::One };
        let (mut first, _line) = names::start(&setup, &users, None).unwrap();
        let Peer { socket, requests, .. } = first.peer.take().unwrap();
        let own = open_process(std::process::id()).unwrap();
        let mut link = Link {
            requests: requests.into(),
            process: own,
            ways: None,
            is_locked: false,
            is_over: false,
        };
        assert!(answers(&socket, PATIENCE));
        for _ in 0..3 {
            link.lock().unwrap();
            link.lock().unwrap();
            // What has come before is thrown away.
            let _ = answers(&socket, PAUSE);
            assert!(!answers(&socket, PAUSE * 5));
            link.unlock().unwrap();
            assert!(answers(&socket, PATIENCE));
        }
        // With its network's process it is down for good.
        link.end();
        assert!(link.watched().is_none());
        link.unlock().unwrap();
        let _ = answers(&socket, PAUSE);
        assert!(!answers(&socket, PAUSE * 5));
        first.kill();
        first.end();
    }
}
