//! Carries interrupt messages to the processors' mailboxes, from any thread and without a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::lines::Wake;
use super::mailbox::{Mailbox, Signals};
use super::message::{DeliveryMode, Destination, Message};

/// The mailboxes of all processors.
pub struct Router {
    mailboxes: Vec<Arc<Mailbox>>,
    wake: Arc<dyn Wake>,
    /// The vCPU that was last given a lowest-priority message.
    favoured: AtomicUsize,
    /// INTR of the 8259 pair.
    intr: AtomicBool,
}

impl Router {
    /// To so many processors.
    pub fn new(processors: usize, wake: Arc<dyn Wake>) -> Self {
        Self {
            mailboxes: (0..processors as u32).map(|id| Arc::new(Mailbox::new(id))).collect(),
            wake,
            favoured: AtomicUsize::new(0),
            intr: AtomicBool::new(false),
        }
    }

    /// The mailbox of a processor.
    pub fn mailbox(&self, processor: usize) -> &Arc<Mailbox> {
        &self.mailboxes[processor]
    }

    /// Have a processor look at the machine.
    pub fn wake(&self, processor: usize) {
        self.wake.wake(processor);
    }

    /// Deliver a message. `sender` is the processor whose thread this is, if it is one's: it looks
    /// by itself before it goes on.
    pub fn send(&self, message: &Message, sender: Option<usize>) {
        if let Destination::Physical(id) = message.destination {
            return self.deliver(id as usize, message, sender);
        }
        if message.mode == DeliveryMode::LowestPriority {
            if let Some(processor) = self.lowest_priority(message.destination) {
                self.deliver(processor, message, sender);
            }
            return;
        }
        for processor in 0..self.mailboxes.len() {
            if self.is_addressed(processor, message.destination) {
                self.deliver(processor, message, sender);
            }
        }
    }

    /// End a halt of the processor with an APIC id, now or when it comes to one; false if there is
    /// no such processor.
    pub fn unhalt(&self, id: u32, sender: usize) -> bool {
        let Some(mailbox) = self.mailboxes.get(id as usize) else { return false };
        if mailbox.signal(Signals::UNHALT) && id as usize != sender {
            self.wake.wake(id as usize);
        }
        true
    }

    /// Whether there is a processor with this APIC id.
    pub fn has(&self, id: u32) -> bool {
        (id as usize) < self.mailboxes.len()
    }

    /// INTR of the 8259 pair.
    #[inline]
    pub fn intr(&self) -> bool {
        self.intr.load(Ordering::Acquire)
    }

    /// INTR of the 8259 pair is now like this.
    pub fn set_intr(&self, level: bool, sender: Option<usize>) {
        if self.intr.swap(level, Ordering::SeqCst) || !level {
            return;
        }
        for (processor, mailbox) in self.mailboxes.iter().enumerate() {
            if mailbox.raise_lint0() && sender != Some(processor) {
                self.wake.wake(processor);
            }
        }
    }

    /// INTR was like this, and everybody knows.
    pub fn restore_intr(&self, level: bool) {
        self.intr.store(level, Ordering::SeqCst);
    }

    fn deliver(&self, processor: usize, message: &Message, sender: Option<usize>) {
        let Some(mailbox) = self.mailboxes.get(processor) else { return };
        if mailbox.accept(message) && sender != Some(processor) {
            self.wake.wake(processor);
        }
    }

    fn is_addressed(&self, processor: usize, destination: Destination) -> bool {
        match destination {
            Destination::All => true,
            Destination::AllBut(sender) => processor != sender,
            Destination::Processor(only) => processor == only,
            Destination::Physical(id) => self.mailboxes[processor].id() == id,
            Destination::Logical(address) => self.mailboxes[processor].matches_logical(address),
        }
    }

    /// Among equals they take turns.
    fn lowest_priority(&self, destination: Destination) -> Option<usize> {
        let count = self.mailboxes.len();
        let favoured = self.favoured.load(Ordering::Relaxed);
        let turns = (1..=count).map(|step| (favoured + step) % count);
        let addressed = turns.filter(|&processor| self.is_addressed(processor, destination));
        let ranked = addressed.filter_map(|p| Some((self.mailboxes[p].arbitration()?, p)));
        let chosen = ranked.min_by_key(|&(priority, _)| priority)?.1;
        self.favoured.store(chosen, Ordering::Relaxed);
        Some(chosen)
    }
}
