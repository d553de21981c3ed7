//! Event channels in FIFOs (public/event_channel.h, "FIFO ABI"; Vrabel, "FIFO-based event channel ABI").
//!
//! Each vCPU has 16 queues, one for each priority, in a *control block*: a word with a bit for each queue that is
//! ready, and the head of each queue. Each port has a *word* in an array of pages: PENDING, MASKED, LINKED, BUSY, and
//! the number of the port that is behind it in its queue (LINK). All of it is the guest's memory, which it changes at
//! the same time:
//!
//! ```text
//! control block: ready 0000...1, heads[0] = 5       word 5: PENDING LINKED 9   word 9: PENDING LINKED 0
//!                                                                 \____________________^
//! ours:          tails[0] = 9
//! ```
//!
//! 1. *Two sides, one word.* We link, the guest unlinks. It changes LINKED and LINK of a word only by clearing both at
//!    once, when it has taken the port from the head of its queue. So LINKED in our tail's word says whether the queue
//!    still has it: if so the new port is put behind it by compare-and-exchange, else the queue is empty and the new
//!    port is its head.
//! 2. *Pending before linked, linked before ready.* The guest that finds a queue ready finds its head, and finds the
//!    head pending.
//! 3. *The tail is ours.* It is a number of a port that we linked, whatever the guest writes; a link or head that the
//!    guest has written is never followed.
//! 4. *A port is in one queue.* One that moves (another vCPU, another priority) while it is linked stays where it is.
//!    If it was the tail of its last queue when it is linked into another, then that queue is empty: its tail is
//!    forgotten, or a later port would be linked behind a word of another queue.
//!
//! A guest that breaks the rules of its side loses its own events.

use serde::{Deserialize, Serialize};
use xen_abi::event::FifoControlBlock;
use xen_abi::event::fifo::{BUSY_BIT, LINK_MASK, LINKED_BIT, MASKED_BIT, PENDING_BIT};
use xen_abi::event::limit::{FIFO_PORTS, FIFO_QUEUES};
use xen_abi::{Mfn, PAGE_BYTES, PAGE_SHIFT, Wire};

const PENDING: u32 = 1 << PENDING_BIT;
const MASKED: u32 = 1 << MASKED_BIT;
const LINKED: u32 = 1 << LINKED_BIT;
const BUSY: u32 = 1 << BUSY_BIT;

/// Ports whose words are on a page.
const WORDS_OF_PAGE: usize = 1024;

/// Most pages of words.
const MAX_PAGES: usize = FIFO_PORTS as usize / WORDS_OF_PAGE;

/// Where the heads are in a control block.
const HEADS: u64 = 8;

/// The guest's memory in words of four bytes, by machine address.
pub(super) trait Words {
    /// Change a word in one step by what `change` makes of it, if it makes something; what it was.
    fn change(&self, at: u64, change: &mut dyn FnMut(u32) -> Option<u32>) -> u32;

    /// Set bits; what the word was.
    fn set(&self, at: u64, bits: u32) -> u32 {
        self.change(at, &mut |word| Some(word | bits))
    }

    /// Clear bits; what the word was.
    fn clear(&self, at: u64, bits: u32) -> u32 {
        self.change(at, &mut |word| Some(word & !bits))
    }

    /// The word.
    fn get(&self, at: u64) -> u32 {
        self.change(at, &mut |_| None)
    }
}

/// Whether a control block can be at an address: aligned, and within a page.
pub(super) fn is_place_of_control(at: u64) -> bool {
    let last = (PAGE_BYTES - FifoControlBlock::BYTES) as u64;
    at.is_multiple_of(8) && at % PAGE_BYTES as u64 <= last
}

/// One of a vCPU's queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Queue {
    pub(super) vcpu: usize,
    pub(super) priority: u8,
}

/// Of a vCPU.
#[derive(Debug, Clone, Default)]
struct Queues {
    /// The machine address of the control block.
    control: Option<u64>,
    /// The port that was linked last, or 0.
    tails: [u32; FIFO_QUEUES as usize],
}

/// What follows from raising a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Raised {
    /// It was not pending: who polls is to know.
    pub(super) is_new: bool,
    /// The vCPU has a queue that it did not know of.
    pub(super) is_ready: bool,
}

/// There are as many pages of words as there can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

/// See above.
#[derive(Debug)]
pub(super) struct Fifo {
    pages: Vec<Mfn>,
    vcpus: Vec<Queues>,
}

/// Its saved state: the frames of pages, and of each vCPU the address of its control block, and its tails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SavedFifo {
    pub(super) pages: Vec<u64>,
    pub(super) vcpus: Vec<(Option<u64>, Vec<u32>)>,
}

impl Fifo {
    /// Without a page or a control block.
    pub(super) fn new(vcpus: usize) -> Self {
        Self { pages: Vec::new(), vcpus: vec![Queues::default(); vcpus] }
    }

    /// What it is, but for what is in its frames.
    pub(super) fn save(&self) -> SavedFifo {
        let vcpus = self.vcpus.iter().map(|queues| (queues.control, queues.tails.to_vec()));
        SavedFifo { pages: self.pages.iter().map(|page| page.0).collect(), vcpus: vcpus.collect() }
    }

    /// Go on from there, if so many vCPUs can have such. The frames may be anybody's.
    pub(super) fn restored(saved: &SavedFifo, vcpus: usize) -> Option<Self> {
        let is_frame = |frame: &u64| *frame <= u64::MAX >> PAGE_SHIFT;
        let SavedFifo { pages, vcpus: queues } = saved;
        if pages.len() > MAX_PAGES || queues.len() != vcpus || !pages.iter().all(is_frame) {
            return None;
        }
        let restored = |(control, tails): &(Option<u64>, Vec<u32>)| {
            let tails = tails.as_slice().try_into().ok()?;
            control.is_none_or(is_place_of_control).then_some(Queues { control: *control, tails })
        };
        let vcpus = queues.iter().map(restored).collect::<Option<_>>()?;
        Some(Self { pages: pages.iter().copied().map(Mfn).collect(), vcpus })
    }

    /// All frames that it uses: pages, and those of control blocks.
    pub(super) fn frames(&self) -> impl Iterator<Item = Mfn> + use<'_> {
        let controls = self.vcpus.iter().filter_map(|queues| queues.control);
        self.pages.iter().copied().chain(controls.map(Mfn::of_address))
    }

    /// Whether a vCPU has a control block.
    pub(super) fn has_control(&self, vcpu: usize) -> bool {
        self.vcpus.get(vcpu).is_some_and(|queues| queues.control.is_some())
    }

    /// A vCPU's control block is here.
    pub(super) fn set_control(&mut self, vcpu: usize, at: u64) {
        if let Some(queues) = self.vcpus.get_mut(vcpu) {
            queues.control = Some(at);
        }
    }

    /// Whether there may be another page of words.
    ///
    /// # Errors
    ///
    /// [`Full`].
    pub(super) fn check_room(&self) -> Result<(), Full> {
        if self.pages.len() < MAX_PAGES { Ok(()) } else { Err(Full) }
    }

    /// Add a page of words; the ports that have one now.
    pub(super) fn add_page(&mut self, page: Mfn) -> std::ops::Range<u32> {
        let first = self.pages.len() * WORDS_OF_PAGE;
        self.pages.push(page);
        first as u32..(first + WORDS_OF_PAGE) as u32
    }

    /// Where a port's word is.
    fn word(&self, port: u32) -> Option<u64> {
        let page = self.pages.get(port as usize / WORDS_OF_PAGE)?;
        Some(page.address() + port as u64 % WORDS_OF_PAGE as u64 * 4)
    }

    /// Whether a port is pending.
    pub(super) fn is_pending(&self, words: &impl Words, port: u32) -> bool {
        self.word(port).is_some_and(|at| words.get(at) & PENDING != 0)
    }

    /// Whether a port is in a queue still.
    pub(super) fn is_linked(&self, words: &impl Words, port: u32) -> bool {
        self.word(port).is_some_and(|at| words.get(at) & LINKED != 0)
    }

    /// A port is not pending any more. It stays in its queue, and who takes it finds that.
    pub(super) fn clear_pending(&self, words: &impl Words, port: u32) {
        if let Some(at) = self.word(port) {
            words.clear(at, PENDING);
        }
    }

    /// Unmask a port; whether it is pending.
    pub(super) fn unmask(&self, words: &impl Words, port: u32) -> bool {
        self.word(port).is_some_and(|at| words.clear(at, MASKED) & PENDING != 0)
    }

    /// Make a port pending, and link it into this queue unless it is masked, or linked already. `last` is the queue
    /// that it was linked into last. `None` if there is no word for it.
    pub(super) fn raise(
        &mut self,
        words: &impl Words,
        port: u32,
        queue: Queue,
        last: &mut Queue,
    ) -> Option<Raised> {
        let at = self.word(port)?;
        let Some(control) = self.vcpus.get(queue.vcpu).and_then(|queues| queues.control) else {
            return Some(Raised::default());
        };
        let old = words.set(at, PENDING);
        let is_new = old & PENDING == 0;
        if old & MASKED != 0 || words.set(at, LINKED) & LINKED != 0 {
            return Some(Raised { is_new, is_ready: false });
        }
        self.forget_tail(*last, port);
        *last = queue;
        let slot = usize::from(queue.priority) % FIFO_QUEUES as usize;
        let tail = std::mem::replace(&mut self.vcpus[queue.vcpu].tails[slot], port);
        if tail != 0 && self.link(words, tail, port) {
            return Some(Raised { is_new, is_ready: false });
        }
        words.change(control + HEADS + 4 * slot as u64, &mut |_| Some(port));
        let is_ready = words.set(control, 1 << slot) >> slot & 1 == 0;
        Some(Raised { is_new, is_ready })
    }

    /// A queue whose tail is this port is empty: the port was not linked.
    fn forget_tail(&mut self, queue: Queue, port: u32) {
        let tails = self.vcpus.get_mut(queue.vcpu).map(|queues| &mut queues.tails);
        let tail = tails.and_then(|tails| tails.get_mut(usize::from(queue.priority)));
        if let Some(tail) = tail.filter(|tail| **tail == port) {
            *tail = 0;
        }
    }

    /// Put a port behind another, if that is still linked.
    fn link(&self, words: &impl Words, tail: u32, port: u32) -> bool {
        let Some(at) = self.word(tail) else { return false };
        let behind = |word: u32| word & !(BUSY | LINK_MASK) | port;
        let change = &mut |word| (word & LINKED != 0).then(|| behind(word));
        words.change(at, change) & LINKED != 0
    }
}

#[cfg(test)]
mod tests;
