//! Names of the guest's neighbours: questions for their addresses (RFC 1035) are answered here, and are not passed on.
//!
//! Who they are is told over a socket, always all of them: lines with an address and a name.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{RecvFlags, recv};

use crate::limits::{MAX_NAMES, NAMES_BYTES};

/// Bytes of a header.
const HEADER_BYTES: usize = 12;

/// The flags of a header, in two bytes: an answer, from who knows; the same that was asked for is kept of the others.
const IS_ANSWER: u8 = 0x80;
const IS_KNOWN: u8 = 0x04;
const OPERATION: u8 = 0x78;
const RECURSES: u8 = 0x80;

/// Types of records, and the class of all.
const OF_IPV4: u16 = 1;
const ANY: u16 = 255;
const INTERNET: u16 = 1;

/// How long an answer holds, in seconds: a pod may come back with another address at any time.
const LIFE_SECONDS: u32 = 0;

/// The guest's neighbours.
#[derive(Debug, Default)]
pub struct Names {
    socket: Option<OwnedFd>,
    /// In small letters.
    addresses: HashMap<Vec<u8>, Ipv4Addr>,
}

impl Names {
    /// Those that this socket tells of; none: there are none.
    pub fn new(socket: Option<OwnedFd>) -> Names {
        Names { socket, addresses: HashMap::new() }
    }

    /// What can be read when there is something to be told.
    pub fn watched(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// Hear what there is.
    pub fn hear(&mut self) {
        let Some(socket) = &self.socket else { return };
        let mut room = vec![0; NAMES_BYTES];
        let mut last = None;
        while let Ok((count, _)) = recv(socket, &mut room[..], RecvFlags::DONTWAIT) {
            // At the end of the line there is nothing any more.
            if count == 0 {
                break;
            }
            last = Some(String::from_utf8_lossy(&room[..count]).into_owned());
        }
        if let Some(text) = last {
            self.take(&text);
        }
    }

    /// From now on they are these.
    fn take(&mut self, text: &str) {
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        let known = pairs.filter_map(|(address, name)| {
            Some((name.to_ascii_lowercase().into_bytes(), address.parse().ok()?))
        });
        self.addresses = known.take(MAX_NAMES).collect();
    }

    /// The answer to a question for a neighbour; none to any other.
    pub fn answer(&self, question: &[u8]) -> Option<Vec<u8>> {
        let header = question.first_chunk::<HEADER_BYTES>()?;
        let [_, _, flags, more_flags, count, ..] = *header;
        let is_one = [count, header[5]] == [0, 1] && header[6..10] == [0; 4];
        if flags & (IS_ANSWER | OPERATION) != 0 || !is_one {
            return None;
        }
        let (name, rest) = label(&question[HEADER_BYTES..])?;
        let [kind, class] = [rest.first_chunk::<2>()?, rest.get(2..)?.first_chunk::<2>()?];
        let (kind, class) = (u16::from_be_bytes(*kind), u16::from_be_bytes(*class));
        let address = self.addresses.get(&name).filter(|_| class == INTERNET)?;
        // Without additional records, of which the question may have one (RFC 6891).
        let asked = question.len() - rest.len() + 4;
        let mut answer = question[..asked].to_vec();
        answer[2] = IS_ANSWER | IS_KNOWN | flags & !IS_KNOWN;
        answer[3] = RECURSES | more_flags & 0x10;
        answer[10..12].fill(0);
        if matches!(kind, OF_IPV4 | ANY) {
            answer[7] = 1;
            // The name is that at the beginning of the question.
            answer.extend([0xc0, HEADER_BYTES as u8]);
            answer.extend(OF_IPV4.to_be_bytes());
            answer.extend(INTERNET.to_be_bytes());
            answer.extend(LIFE_SECONDS.to_be_bytes());
            answer.extend(4u16.to_be_bytes());
            answer.extend(address.octets());
        }
        Some(answer)
    }
}

/// A name of one label or several, in small letters and with dots, and what follows it.
fn label(mut bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    const LABEL_BYTES: usize = 63;
    const NAME_BYTES: usize = 255;
    let mut name = Vec::new();
    loop {
        let (length, rest) = bytes.split_first()?;
        let length = usize::from(*length);
        if length == 0 {
            return Some((name, rest));
        }
        if length > LABEL_BYTES || name.len() + length > NAME_BYTES {
            return None;
        }
        if !name.is_empty() {
            name.push(b'.');
        }
        name.extend(rest.get(..length)?.to_ascii_lowercase());
        bytes = &rest[length..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let mut names = Names::default();
        names.take("10.89.1.5 web\n10.89.1.6 Db.one\nnonsense\nx y\n");
        names
    }

    fn question(labels: &[&str], kind: u16) -> Vec<u8> {
        let mut bytes = vec![0x12, 0x34, 1, 0x20, 0, 1, 0, 0, 0, 0, 0, 1];
        for label in labels {
            bytes.push(label.len() as u8);
            bytes.extend(label.bytes());
        }
        bytes.push(0);
        bytes.extend(kind.to_be_bytes());
        bytes.extend([0, 1]);
        // EDNS.
        bytes.extend([0, 0, 41, 4, 0xb0, 0, 0, 0, 0, 0, 0]);
        bytes
    }

    #[test]
    fn neighbours_are_known_and_others_are_not() {
        let names = names();
        let answer = names.answer(&question(&["WEB"], 1)).unwrap();
        assert_eq!(answer[..12], [0x12, 0x34, 0x85, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(answer[12..21], *b"\x03WEB\x00\x00\x01\x00\x01");
        assert_eq!(answer[21..], [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 10, 89, 1, 5]);
        assert!(names.answer(&question(&["db", "one"], 1)).is_some());
        // It has no address of IPv6, but it is there.
        let answer = names.answer(&question(&["web"], 28)).unwrap();
        assert_eq!((answer.len(), answer[7]), (21, 0));
        for other in [&["example", "org"][..], &["web", "org"], &[], &["y"]] {
            assert_eq!(names.answer(&question(other, 1)), None, "{other:?}");
        }
    }

    #[test]
    fn what_is_no_question_is_not_answered() {
        let names = names();
        let whole = question(&["web"], 1);
        for length in 0..21 {
            assert_eq!(names.answer(&whole[..length]), None, "{length}");
        }
        let changed = |place: usize, byte: u8| {
            let mut bytes = whole.clone();
            bytes[place] = byte;
            names.answer(&bytes)
        };
        assert!(changed(2, 0x81).is_none(), "an answer");
        assert!(changed(2, 0x29).is_none(), "an update");
        assert!(changed(5, 2).is_none(), "two questions");
        assert!(changed(12, 0xc0).is_none(), "compressed");
        assert!(changed(20, 3).is_none(), "another class");
    }

    #[test]
    fn the_last_that_is_told_counts() {
        use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (ours, theirs) = socketpair(kind.0, kind.1, SocketFlags::CLOEXEC, None).unwrap();
        let mut names = Names::new(Some(theirs));
        for text in ["10.89.1.5 web\n", "10.89.1.7 web\n"] {
            send(&ours, text.as_bytes(), SendFlags::empty()).unwrap();
        }
        names.hear();
        names.hear();
        let answer = names.answer(&question(&["web"], 1)).unwrap();
        assert!(answer.ends_with(&[10, 89, 1, 7]));
        drop(ours);
        names.hear();
        assert!(names.answer(&question(&["web"], 1)).is_some());
    }
}
