//! Whose turn it is.
//!
//! Ports that have something to send stand in a line. The first gets a turn, and goes to the end if it has more
//! then. What a turn took beyond its bytes is a debt that its port pays from its next turns, so that nobody gains
//! by sending large frames or broadcasts. A port with a rate leaves the line while its bucket is empty.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::address::PortId;
use crate::bucket::{Bucket, Rate, Time};
use crate::limits;

/// A port's turn: submit frames of its while there is room, and then end it.
#[derive(Debug)]
#[must_use = "a turn is to be ended"]
pub struct Turn {
    port: PortId,
    packets_left: u32,
    bytes_left: i64,
    tokens_left: u64,
}

impl Turn {
    /// Whose it is.
    pub fn port(&self) -> PortId {
        self.port
    }

    /// Whether another frame may be submitted. One that is submitted nevertheless is counted all the same.
    pub fn has_room(&self) -> bool {
        self.packets_left > 0 && self.bytes_left > 0 && self.tokens_left > 0
    }
}

/// What is to be done next.
#[derive(Debug)]
pub enum Next {
    /// This turn.
    Turn(Turn),
    /// Nothing before this time, unless a port is announced.
    Wait(Time),
    /// Nothing before a port is announced.
    Idle,
}

/// Where a port stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// It has nothing to send.
    Away,
    /// In the line.
    InLine,
    /// It has its turn; and was announced since.
    Served { again: bool },
    /// Its bucket is empty until then.
    Waits(Time),
}

#[derive(Debug)]
struct Sender {
    place: Place,
    debt: i64,
    bucket: Option<Bucket>,
}

/// All ports, as senders.
#[derive(Default, Debug)]
pub struct Turns {
    senders: BTreeMap<PortId, Sender>,
    line: VecDeque<PortId>,
    waiting: BTreeSet<(Time, PortId)>,
}

impl Turns {
    pub fn add(&mut self, port: PortId, rate: Option<Rate>, now: Time) {
        self.remove(port);
        let bucket = rate.map(|rate| Bucket::new(rate, now));
        self.senders.insert(port, Sender { place: Place::Away, debt: 0, bucket });
    }

    pub fn remove(&mut self, port: PortId) {
        if self.senders.remove(&port).is_some() {
            self.line.retain(|other| *other != port);
            self.waiting.retain(|(_, other)| *other != port);
        }
    }

    /// Another rate from now on.
    pub fn set_rate(&mut self, port: PortId, rate: Option<Rate>, now: Time) {
        let Some(sender) = self.senders.get_mut(&port) else { return };
        sender.bucket = rate.map(|rate| Bucket::new(rate, now));
        if let Place::Waits(until) = sender.place {
            sender.place = Place::InLine;
            self.waiting.remove(&(until, port));
            self.line.push_back(port);
        }
    }

    /// A port has something to send.
    pub fn announce(&mut self, port: PortId) {
        let Some(sender) = self.senders.get_mut(&port) else { return };
        match &mut sender.place {
            Place::Away => {
                sender.place = Place::InLine;
                self.line.push_back(port);
            }
            Place::Served { again } => *again = true,
            Place::InLine | Place::Waits(_) => {}
        }
    }

    /// Those whose buckets have filled go back to the line.
    fn wake(&mut self, now: Time) {
        while let Some((until, port)) = self.waiting.first().copied()
            && until <= now
        {
            self.waiting.pop_first();
            if let Some(sender) = self.senders.get_mut(&port) {
                sender.place = Place::InLine;
                self.line.push_back(port);
            }
        }
    }

    pub fn next(&mut self, now: Time) -> Next {
        const WHOLE: i64 = limits::TURN_BYTES as i64;
        self.wake(now);
        while let Some(port) = self.line.pop_front() {
            let is_alone = self.line.is_empty();
            let Some(sender) = self.senders.get_mut(&port) else { continue };
            let tokens_left = sender.bucket.as_mut().map_or(u64::MAX, |it| it.bytes(now));
            if let Some(bucket) = sender.bucket.as_mut()
                && tokens_left == 0
            {
                let until = bucket.ready(now);
                sender.place = Place::Waits(until);
                self.waiting.insert((until, port));
                continue;
            }
            if is_alone {
                sender.debt = 0;
            }
            if sender.debt >= WHOLE {
                sender.debt -= WHOLE;
                self.line.push_back(port);
                continue;
            }
            let bytes_left = WHOLE - std::mem::take(&mut sender.debt);
            sender.place = Place::Served { again: false };
            let packets_left = limits::TURN_PACKETS;
            return Next::Turn(Turn { port, packets_left, bytes_left, tokens_left });
        }
        self.waiting.first().map_or(Next::Idle, |(until, _)| Next::Wait(*until))
    }

    /// A frame was submitted, which is for so many.
    pub fn charge(&mut self, turn: &mut Turn, bytes: u32, copies: usize, now: Time) {
        let copies = i64::try_from(copies.max(1)).unwrap_or(i64::MAX);
        let work = i64::from(bytes).saturating_mul(copies);
        turn.packets_left = turn.packets_left.saturating_sub(1);
        turn.bytes_left = turn.bytes_left.saturating_sub(work);
        turn.tokens_left = turn.tokens_left.saturating_sub(bytes.into());
        let sender = self.senders.get_mut(&turn.port);
        if let Some(bucket) = sender.and_then(|sender| sender.bucket.as_mut()) {
            bucket.charge(bytes.into(), now);
            turn.tokens_left = turn.tokens_left.min(bucket.bytes(now));
        }
    }

    /// A turn is over; whether its port has more.
    pub fn end(&mut self, turn: Turn, has_more: bool) {
        let Some(sender) = self.senders.get_mut(&turn.port) else { return };
        let Place::Served { again } = sender.place else { return };
        sender.debt = turn.bytes_left.min(0).saturating_neg();
        sender.place = Place::Away;
        if has_more || again {
            sender.place = Place::InLine;
            self.line.push_back(turn.port);
        }
    }
}
