//! A ring that a front-end shares (public/io/ring.h), from the back-end's side.
//!
//! The front-end may write anything to it at any time. So each index of the front-end's is checked when it is read, an
//! entry is copied once, before anything of it is looked at, and the back-end's own indices are kept here, never read
//! back.
//!
//! A response takes the place of a request that was taken, so that there are never more than the ring has entries of
//! requests that are waiting or under way. A producer index that says otherwise is [`Broken::Index`].
//!
//! *Who notifies when.* Each side says in `..._event` at which index of the other's it wants an event. The back-end
//! that goes to sleep asks for the next request ([`Ring::asks_for_event`]) and looks once more, since that may have
//! come meanwhile. When it has published responses it looks whether the front-end wanted one of them
//! ([`Ring::publish`]). Both stores are followed by a barrier.

use std::mem::offset_of;
use std::sync::Arc;

use xen_abi::PAGE_BYTES;
use xen_abi::ring::{RingHeader, entries};

use crate::error::Broken;
use crate::grant::{Access, Grant, Grants};
use crate::limits::MAX_RING_PAGES;
use crate::memory::{MachineAddress, Range, load_index, store_index};

const REQUEST_PRODUCER: usize = offset_of!(RingHeader, request_producer);
const REQUEST_EVENT: usize = offset_of!(RingHeader, request_event);
const RESPONSE_PRODUCER: usize = offset_of!(RingHeader, response_producer);
const RESPONSE_EVENT: usize = offset_of!(RingHeader, response_event);

/// See above.
#[derive(Debug)]
pub struct Ring {
    grants: Arc<Grants>,
    pages: Vec<Grant>,
    entry_bytes: usize,
    entries: u32,
    /// Requests that were taken.
    consumed: u32,
    /// Responses that were put, and those of them that the front-end was told of.
    produced: u32,
    published: u32,
}

impl Ring {
    /// The ring in pages that a front-end has granted. It goes on behind the last response in it.
    ///
    /// # Errors
    ///
    /// [`Broken`] if they are none.
    pub fn open(
        grants: &Arc<Grants>,
        references: &[u32],
        entry_bytes: usize,
    ) -> Result<Self, Broken> {
        let count = references.len();
        if !count.is_power_of_two() || count > MAX_RING_PAGES {
            return Err(Broken::Pages(count));
        }
        let pages = references.iter().map(|reference| grants.take(*reference, Access::Write));
        let pages: Vec<_> = pages.collect::<Result<_, _>>()?;
        let entries = entries(count * PAGE_BYTES, entry_bytes) as u32;
        let grants = Arc::clone(grants);
        let [consumed, produced, published] = [0; 3];
        let mut ring = Self { grants, pages, entry_bytes, entries, consumed, produced, published };
        let last = ring.load(RESPONSE_PRODUCER)?;
        (ring.consumed, ring.produced, ring.published) = (last, last, last);
        ring.waiting()?;
        Ok(ring)
    }

    /// How many entries it has.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Requests that were taken and have no response.
    pub fn under_way(&self) -> u32 {
        self.consumed.wrapping_sub(self.produced)
    }

    /// Requests that wait to be taken.
    ///
    /// # Errors
    ///
    /// [`Broken`].
    pub fn waiting(&self) -> Result<u32, Broken> {
        let producer = self.load(REQUEST_PRODUCER)?;
        let waiting = producer.wrapping_sub(self.consumed);
        if waiting > self.entries - self.under_way() {
            let most = self.produced.wrapping_add(self.entries);
            return Err(Broken::Index { index: producer, most });
        }
        Ok(waiting)
    }

    /// Copy the request that is `ahead` of the next one; the caller knows that it waits.
    ///
    /// # Errors
    ///
    /// [`Broken`].
    pub fn peek(&self, ahead: u32, bytes: &mut [u8]) -> Result<(), Broken> {
        let bytes = &mut bytes[..self.entry_bytes];
        let place = self.place(self.consumed.wrapping_add(ahead));
        let mut done = 0;
        for range in self.pieces(place, bytes.len()) {
            let end = done + range.bytes as usize;
            self.grants.domain().read(range.at, &mut bytes[done..end])?;
            done = end;
        }
        Ok(())
    }

    /// Take `count` requests, which were looked at.
    pub fn consume(&mut self, count: u32) {
        self.consumed = self.consumed.wrapping_add(count);
    }

    /// Copy and take the next request; whether there was one.
    ///
    /// # Errors
    ///
    /// [`Broken`].
    pub fn pop(&mut self, bytes: &mut [u8]) -> Result<bool, Broken> {
        if self.waiting()? == 0 {
            return Ok(false);
        }
        self.peek(0, bytes)?;
        self.consume(1);
        Ok(true)
    }

    /// Put a response, for [`Self::publish`] to tell of.
    ///
    /// # Errors
    ///
    /// [`Broken`].
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        if self.under_way() == 0 || bytes.len() > self.entry_bytes {
            return Err(Broken::Responses);
        }
        let mut rest = bytes;
        for range in self.pieces(self.place(self.produced), bytes.len()) {
            let (now, later) = rest.split_at(range.bytes as usize);
            self.grants.domain().write(range.at, now)?;
            rest = later;
        }
        self.produced = self.produced.wrapping_add(1);
        Ok(())
    }

    /// Let the front-end see the responses; whether it wants an event for one of them.
    ///
    /// # Errors
    ///
    /// [`Broken`].
    pub fn publish(&mut self) -> Result<bool, Broken> {
        let new = self.produced.wrapping_sub(self.published);
        if new == 0 {
            return Ok(false);
        }
        self.store(RESPONSE_PRODUCER, self.produced)?;
        self.published = self.produced;
        let event = self.load(RESPONSE_EVENT)?;
        Ok(self.produced.wrapping_sub(event) < new)
    }

    /// Ask for an event when the next request is there. False: there is one by now.
    ///
    /// # Errors
    ///
    /// [`Broken`].
    pub fn asks_for_event(&mut self) -> Result<bool, Broken> {
        if self.waiting()? == 0 {
            self.store(REQUEST_EVENT, self.consumed.wrapping_add(1))?;
        }
        Ok(self.waiting()? == 0)
    }

    /// Ask for an event when so many requests wait. False: they do by now.
    ///
    /// # Errors
    ///
    /// [`Broken`].
    pub fn asks_for(&mut self, count: u32) -> Result<bool, Broken> {
        self.store(REQUEST_EVENT, self.consumed.wrapping_add(count))?;
        Ok(self.waiting()? < count)
    }

    /// Where in the ring's bytes an entry begins.
    fn place(&self, index: u32) -> usize {
        size_of::<RingHeader>() + (index % self.entries) as usize * self.entry_bytes
    }

    /// The bytes from a place on, by pages.
    fn pieces(&self, place: usize, bytes: usize) -> impl Iterator<Item = Range> + use<'_> {
        let (mut place, end) = (place, place + bytes);
        std::iter::from_fn(move || {
            let now = (end - place).min(PAGE_BYTES - place % PAGE_BYTES);
            let page = self.pages.get(place / PAGE_BYTES).filter(|_| now > 0)?;
            let range = page.range(place % PAGE_BYTES, now);
            place += now;
            range
        })
    }

    fn header(&self, offset: usize) -> MachineAddress {
        MachineAddress::in_frame(self.pages[0].frame(), offset as u64)
    }

    fn load(&self, offset: usize) -> Result<u32, Broken> {
        Ok(load_index(self.grants.domain(), self.header(offset))?)
    }

    fn store(&self, offset: usize, value: u32) -> Result<(), Broken> {
        Ok(store_index(self.grants.domain(), self.header(offset), value)?)
    }
}
