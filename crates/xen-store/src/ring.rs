//! The ring in a domain's memory (public/io/xs_wire.h): 1,024 bytes of requests, 1,024 of replies, and four indices
//! that either side may have set to anything.

use std::mem::offset_of;

use xen_abi::store::{StoreRing, feature, limit};

use crate::client::Broken;
use crate::store::{ClientId, Store};

/// Bytes of each direction.
pub const RING_BYTES: usize = limit::RING_BYTES as usize;

const REQUESTS: usize = offset_of!(StoreRing, requests);
const REPLIES: usize = offset_of!(StoreRing, answers);

/// Words behind the bytes: of the two directions, the consumer's and the producer's index.
const REQUEST_CONSUMER: usize = offset_of!(StoreRing, request_consumer);
const REQUEST_PRODUCER: usize = offset_of!(StoreRing, request_producer);
const REPLY_CONSUMER: usize = offset_of!(StoreRing, answer_consumer);
const REPLY_PRODUCER: usize = offset_of!(StoreRing, answer_producer);
const FEATURES: usize = offset_of!(StoreRing, features);
const ERROR: usize = offset_of!(StoreRing, error);

/// The page of the domain's that the ring is in. The domain may write to it at any time.
pub trait Page {
    /// Read a word, with acquire ordering.
    fn load(&self, offset: usize) -> u32;
    /// Write a word, with release ordering.
    fn store(&mut self, offset: usize, value: u32);
    /// Read bytes.
    fn read(&self, offset: usize, bytes: &mut [u8]);
    /// Write bytes.
    fn write(&mut self, offset: usize, bytes: &[u8]);
}

/// Why a ring is not served any more. The page says so, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RingError {
    /// More bytes are said to be in the ring than it has.
    #[error("the indices of the xenstore ring are wrong")]
    Index = 2,
    /// A message is too long.
    #[error("a message in the xenstore ring is longer than the protocol allows")]
    Protocol = 3,
}

/// Say in the page what this end can do, before the domain runs.
pub fn prepare(page: &mut impl Page) {
    page.store(FEATURES, feature::ERROR);
}

/// What an exchange comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Exchanged {
    /// Bytes were moved: the domain has to be notified.
    pub notifies: bool,
    /// The domain has been as busy as this end. It may not notify for what is there now: call again.
    pub is_unfinished: bool,
}

/// Turns of an exchange, each of at most a ring's contents in both directions.
const TURNS: usize = 4;

/// Take requests from the ring and put replies and events into it, as far as there is room. Call this whenever the
/// domain notifies, or an event may wait.
///
/// # Errors
///
/// [`RingError`]: the domain has to be disconnected.
pub fn exchange(
    page: &mut impl Page,
    store: &mut Store,
    client: ClientId,
) -> Result<Exchanged, RingError> {
    let result = exchange_bytes(page, store, client);
    if let Err(error) = result {
        page.store(ERROR, error as u32);
    }
    result
}

fn exchange_bytes(
    page: &mut impl Page,
    store: &mut Store,
    client: ClientId,
) -> Result<Exchanged, RingError> {
    let mut notifies = false;
    for _ in 0..TURNS {
        let received = receive(page, store, client)?;
        let sent = send(page, store, client)?;
        if received + sent == 0 {
            return Ok(Exchanged { notifies, is_unfinished: false });
        }
        notifies = true;
    }
    Ok(Exchanged { notifies, is_unfinished: true })
}

/// Take requests; how many bytes.
fn receive(page: &mut impl Page, store: &mut Store, client: ClientId) -> Result<usize, RingError> {
    let mut bytes = [0; RING_BYTES];
    let (consumer, producer) = (page.load(REQUEST_CONSUMER), page.load(REQUEST_PRODUCER));
    let waiting = distance(consumer, producer)?;
    let bytes = &mut bytes[..waiting];
    let (start, first) = place(consumer, waiting);
    let (head, tail) = bytes.split_at_mut(first);
    page.read(REQUESTS + start, head);
    page.read(REQUESTS, tail);
    let taken = store.receive(client, bytes).map_err(|Broken| RingError::Protocol)?;
    if taken > 0 {
        page.store(REQUEST_CONSUMER, consumer.wrapping_add(taken as u32));
    }
    Ok(taken)
}

/// Put replies and events; how many bytes.
fn send(page: &mut impl Page, store: &mut Store, client: ClientId) -> Result<usize, RingError> {
    let mut bytes = [0; RING_BYTES];
    let (consumer, producer) = (page.load(REPLY_CONSUMER), page.load(REPLY_PRODUCER));
    let room = RING_BYTES - distance(consumer, producer)?;
    let count = store.send(client, &mut bytes[..room]);
    let (start, first) = place(producer, count);
    page.write(REPLIES + start, &bytes[..first]);
    page.write(REPLIES, &bytes[first..count]);
    if count > 0 {
        page.store(REPLY_PRODUCER, producer.wrapping_add(count as u32));
    }
    Ok(count)
}

/// Bytes between two indices.
fn distance(consumer: u32, producer: u32) -> Result<usize, RingError> {
    let distance = producer.wrapping_sub(consumer) as usize;
    if distance <= RING_BYTES { Ok(distance) } else { Err(RingError::Index) }
}

/// Where an index is in the ring, and how many of `count` bytes come before the ring's end.
fn place(index: u32, count: usize) -> (usize, usize) {
    let start = index as usize % RING_BYTES;
    (start, count.min(RING_BYTES - start))
}
