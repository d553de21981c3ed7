//! A client: what it has sent and not been answered yet, what waits for it, its watches and transactions.

use std::collections::{BTreeMap, VecDeque};

use xen_abi::Wire;

use crate::error::Error;
use crate::limits::{MAX_EVENTS, PAYLOAD_BYTES, REPLY_BYTES};
use crate::path::DomainId;
use crate::saved_client::SavedClient;
use crate::transaction::Transaction;
use crate::watch::Watch;
use crate::wire::{HEADER_BYTES, Header, Kind, message};

/// A client has sent what is no message: it is not listened to any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a message is longer than the protocol allows")]
pub struct Broken;

/// A whole message: its header and its payload.
type Message = (Header, Vec<u8>);

/// What waits for a client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Packet {
    Reply(Vec<u8>),
    Event { path: String, token: String },
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub domain: DomainId,
    /// The beginning of a message.
    input: Vec<u8>,
    is_broken: bool,
    output: VecDeque<Packet>,
    /// The rest of a packet that has been sent in part.
    rest: VecDeque<u8>,
    reply_bytes: usize,
    events: usize,
    pub watches: Vec<Watch>,
    pub transactions: BTreeMap<u32, Transaction>,
    pub last_transaction: u32,
}

impl Client {
    pub fn new(domain: DomainId) -> Self {
        Self {
            domain,
            input: Vec::new(),
            is_broken: false,
            output: VecDeque::new(),
            rest: VecDeque::new(),
            reply_bytes: 0,
            events: 0,
            watches: Vec::new(),
            transactions: BTreeMap::new(),
            last_transaction: 0,
        }
    }

    /// Take bytes up to the end of one message: how many, and the message if it is whole. No bytes are taken while
    /// too many replies wait.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(usize, Option<Message>), Broken> {
        if self.is_broken {
            return Err(Broken);
        }
        if self.reply_bytes >= REPLY_BYTES {
            return Ok((0, None));
        }
        let mut taken = self.fill(bytes, HEADER_BYTES);
        let Some(header) = Header::read(&self.input, 0) else {
            return Ok((taken, None));
        };
        let length = header.length as usize;
        if length > PAYLOAD_BYTES {
            self.is_broken = true;
            return Err(Broken);
        }
        taken += self.fill(&bytes[taken..], HEADER_BYTES + length);
        if self.input.len() < HEADER_BYTES + length {
            return Ok((taken, None));
        }
        let payload = self.input.split_off(HEADER_BYTES);
        self.input.clear();
        Ok((taken, Some((header, payload))))
    }

    /// Add to the beginning of a message until it is so long; how many bytes that took.
    fn fill(&mut self, bytes: &[u8], length: usize) -> usize {
        let taken = length.saturating_sub(self.input.len()).min(bytes.len());
        self.input.extend_from_slice(&bytes[..taken]);
        taken
    }

    pub fn reply(&mut self, kind: Kind, to: Header, payload: &[u8]) {
        let message = message(kind, to.request, to.transaction, payload);
        self.reply_bytes += message.len();
        self.output.push_back(Packet::Reply(message));
    }

    /// Tell the client of a change. `own` is what the watch is for, which stands for everything below it.
    pub fn tell(&mut self, path: String, own: String, token: &str) {
        let is_long = path.len() + token.len() + 2 > PAYLOAD_BYTES;
        let is_full = self.events >= MAX_EVENTS;
        let path = if is_long || is_full { own } else { path };
        let event = Packet::Event { path, token: token.to_owned() };
        if is_full && self.output.contains(&event) {
            return;
        }
        self.events += 1;
        self.output.push_back(event);
    }

    /// Move bytes of what waits to `bytes`; how many.
    pub fn send(&mut self, bytes: &mut [u8]) -> usize {
        let mut sent = 0;
        while sent < bytes.len() {
            if self.rest.is_empty() {
                let Some(packet) = self.output.pop_front() else { break };
                self.rest = self.encode(packet).into();
            }
            let count = self.rest.len().min(bytes.len() - sent);
            for (to, from) in bytes[sent..].iter_mut().zip(self.rest.drain(..count)) {
                *to = from;
            }
            sent += count;
        }
        sent
    }

    /// The packet leaves the queue as these bytes.
    fn encode(&mut self, packet: Packet) -> Vec<u8> {
        match packet {
            Packet::Reply(message) => {
                self.reply_bytes -= message.len();
                message
            }
            Packet::Event { path, token } => {
                self.events -= 1;
                event(&path, &token)
            }
        }
    }

    /// Take the first event that waits, past replies.
    pub fn take_event(&mut self) -> Option<(String, String)> {
        let is_event = |packet: &Packet| matches!(packet, Packet::Event { .. });
        let position = self.output.iter().position(is_event)?;
        match self.output.remove(position)? {
            Packet::Event { path, token } => {
                self.events -= 1;
                Some((path, token))
            }
            Packet::Reply(_) => None,
        }
    }

    /// The beginning of a message.
    pub fn input(&self) -> &[u8] {
        &self.input
    }

    /// Whether it is not listened to any more.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// All bytes that wait for it, as they would be sent.
    pub fn waiting(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.rest.iter().copied().collect();
        for packet in &self.output {
            match packet {
                Packet::Reply(message) => bytes.extend_from_slice(message),
                Packet::Event { path, token } => bytes.extend(event(path, token)),
            }
        }
        bytes
    }

    /// Go on from there, with these transactions.
    ///
    /// # Errors
    ///
    /// More waits than could, or a message has begun that is none.
    pub fn restore(
        &mut self,
        saved: SavedClient,
        transactions: BTreeMap<u32, Transaction>,
    ) -> Result<(), Error> {
        let most = REPLY_BYTES + PAYLOAD_BYTES + MAX_EVENTS * (HEADER_BYTES + PAYLOAD_BYTES);
        let is_sane = saved.input.len() < HEADER_BYTES + PAYLOAD_BYTES
            && saved.output.len() <= 2 * most
            && Header::read(&saved.input, 0)
                .is_none_or(|header| header.length as usize <= PAYLOAD_BYTES);
        if !is_sane {
            return Err(Error::Inval);
        }
        (self.input, self.is_broken) = (saved.input, saved.is_broken);
        self.rest = saved.output.into();
        (self.transactions, self.last_transaction) = (transactions, saved.last_transaction);
        Ok(())
    }

    /// Nothing waits.
    pub fn is_idle(&self) -> bool {
        self.rest.is_empty() && self.output.is_empty()
    }

    /// Bytes that it makes the store hold, without those of nodes.
    pub fn held_bytes(&self) -> usize {
        let packets: usize = self
            .output
            .iter()
            .map(|packet| match packet {
                Packet::Reply(message) => message.len(),
                Packet::Event { path, token } => path.len() + token.len(),
            })
            .sum();
        packets + self.input.len() + self.rest.len()
    }
}

/// The message that says that something watched has changed.
fn event(path: &str, token: &str) -> Vec<u8> {
    message(Kind::WatchEvent, 0, 0, format!("{path}\0{token}\0").as_bytes())
}
