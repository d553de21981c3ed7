//! ARP (RFC 826): answers for our own addresses.

use std::net::Ipv4Addr;

use crate::addresses::Addresses;
use crate::cable::Output;
use crate::wire::ETHERNET_BYTES;

/// The type of its frames.
pub const KIND: [u8; 2] = [0x08, 0x06];

/// Ethernet and IPv4, and a question.
const QUESTION: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 1];
const ANSWER: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 2];

/// Answer a frame with a question.
pub fn answer(frame: &[u8], ours: [u8; 6], addresses: &Addresses, output: &mut Output) {
    let Some(question) = frame.get(ETHERNET_BYTES..ETHERNET_BYTES + 28) else { return };
    let wanted = Ipv4Addr::new(question[24], question[25], question[26], question[27]);
    if question[..8] != QUESTION || !addresses.is_ours(wanted) {
        return;
    }
    output.add(KIND, 28, |answer| {
        answer[..8].copy_from_slice(&ANSWER);
        answer[8..14].copy_from_slice(&ours);
        answer[14..18].copy_from_slice(&wanted.octets());
        answer[18..28].copy_from_slice(&question[8..18]);
    });
}
