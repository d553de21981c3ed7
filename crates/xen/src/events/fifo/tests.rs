//! FIFOs beside a sequential model of them, and with a guest that takes its events at the same time.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use fastrand::Rng;
use locks::Unpoisoned;
use xen_abi::{Mfn, PAGE_BYTES};

use super::{Fifo, HEADS, LINK_MASK, LINKED, MASKED, PENDING, Queue, Raised, Words};

const PORTS: u32 = 32;
const VCPUS: usize = 2;

/// The page of words is frame 1, the control block of a vCPU frame 2 and what follows.
const PAGE: Mfn = Mfn(1);

fn control(vcpu: usize) -> u64 {
    Mfn(2 + vcpu as u64).address()
}

fn word(port: u32) -> u64 {
    PAGE.address() + u64::from(port) * 4
}

struct Memory(Vec<AtomicU32>);

impl Memory {
    fn new() -> Self {
        let words = (2 + VCPUS) * PAGE_BYTES / 4;
        Self((0..words).map(|_| AtomicU32::new(0)).collect())
    }
}

impl Words for Memory {
    fn change(&self, at: u64, change: &mut dyn FnMut(u32) -> Option<u32>) -> u32 {
        let order = Ordering::SeqCst;
        let word = &self.0[at as usize / 4];
        word.fetch_update(order, order, change).unwrap_or_else(|unchanged| unchanged)
    }
}

/// A domain whose ports have words and whose vCPUs have control blocks.
fn fifo() -> Fifo {
    let mut fifo = Fifo::new(VCPUS);
    fifo.add_page(PAGE);
    (0..VCPUS).for_each(|vcpu| fifo.set_control(vcpu, control(vcpu)));
    fifo
}

/// The guest's side of a vCPU: takes events off its queues as the ABI says. Like Linux it takes all bits of queues that
/// are ready off the control block first: a bit cleared there after its queue was found empty could be that of a port
/// which came meanwhile.
struct Consumer {
    vcpu: usize,
    ready: u32,
    heads: [u32; 16],
}

impl Consumer {
    fn new(vcpu: usize) -> Self {
        Self { vcpu, ready: 0, heads: [0; 16] }
    }

    /// Take the next port of the first queue that is ready; whether it was pending and not masked, so that it is the
    /// kernel's to handle.
    fn take(&mut self, memory: &Memory) -> Option<(u32, bool)> {
        self.ready |= memory.clear(control(self.vcpu), u32::MAX);
        let queue = (self.ready != 0).then(|| self.ready.trailing_zeros())?;
        let head = &mut self.heads[queue as usize];
        if *head == 0 {
            *head = memory.get(control(self.vcpu) + HEADS + 4 * u64::from(queue));
        }
        let port = *head;
        let old = memory.clear(word(port), LINKED | LINK_MASK);
        *head = old & LINK_MASK;
        if *head == 0 {
            self.ready &= !(1 << queue);
        }
        let is_due = old & PENDING != 0 && old & MASKED == 0;
        if is_due {
            memory.clear(word(port), PENDING);
        }
        Some((port, is_due))
    }
}

/// What a sequential mind expects: queues of ports.
#[derive(Default)]
struct Model {
    queues: [[VecDeque<u32>; 16]; VCPUS],
    pending: [bool; PORTS as usize],
    masked: [bool; PORTS as usize],
}

impl Model {
    fn is_queued(&self, port: u32) -> bool {
        self.queues.iter().flatten().any(|queue| queue.contains(&port))
    }

    fn raise(&mut self, port: u32, queue: Queue) -> Raised {
        let is_new = !std::mem::replace(&mut self.pending[port as usize], true);
        if self.masked[port as usize] || self.is_queued(port) {
            return Raised { is_new, is_ready: false };
        }
        let queue = &mut self.queues[queue.vcpu][usize::from(queue.priority)];
        queue.push_back(port);
        Raised { is_new, is_ready: queue.len() == 1 }
    }

    fn take(&mut self, vcpu: usize) -> Option<(u32, bool)> {
        let queue = self.queues[vcpu].iter_mut().find(|queue| !queue.is_empty())?;
        let port = queue.pop_front()?;
        let is_due = self.pending[port as usize] && !self.masked[port as usize];
        self.pending[port as usize] &= !is_due;
        Some((port, is_due))
    }
}

#[test]
fn queues_are_those_of_the_model() {
    for seed in 1..=200 {
        let (memory, mut fifo, mut model) = (Memory::new(), fifo(), Model::default());
        let mut random = Rng::with_seed(seed);
        let mut places = [(Queue { vcpu: 0, priority: 7 }, Queue::default()); PORTS as usize];
        let mut guests: Vec<Consumer> = (0..VCPUS).map(Consumer::new).collect();
        for step in 0..2000 {
            let port = random.u32(1..PORTS);
            let context = format!("seed {seed}, step {step}, port {port}");
            let (queue, last) = &mut places[port as usize];
            let vcpu = random.usize(..VCPUS);
            match random.u8(..16) {
                0..=5 => {
                    let raised = fifo.raise(&memory, port, *queue, last);
                    assert_eq!(raised, Some(model.raise(port, *queue)), "{context}");
                }
                6..=10 => assert_eq!(guests[vcpu].take(&memory), model.take(vcpu), "{context}"),
                11 => queue.priority = random.u8(6..9),
                12 => queue.vcpu = vcpu,
                13 => {
                    memory.set(word(port), MASKED);
                    model.masked[port as usize] = true;
                }
                _ => {
                    model.masked[port as usize] = false;
                    let is_pending = fifo.unmask(&memory, port);
                    assert_eq!(is_pending, model.pending[port as usize], "{context}");
                    if is_pending {
                        let raised = fifo.raise(&memory, port, *queue, last);
                        assert_eq!(raised, Some(model.raise(port, *queue)), "{context}");
                    }
                }
            }
            assert_eq!(fifo.is_pending(&memory, port), model.pending[port as usize], "{context}");
            assert_eq!(fifo.is_linked(&memory, port), model.is_queued(port), "{context}");
        }
    }
}

/// Two threads raise ports that they move between priorities, and the guest takes them meanwhile: none is lost.
#[test]
fn nothing_is_lost_while_the_guest_takes() {
    const RAISES: u32 = 40_000;
    let (memory, fifo) = (Memory::new(), Mutex::new((fifo(), [Queue::default(); PORTS as usize])));
    let (raised, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
    let sent: Vec<AtomicU32> = (0..PORTS).map(|_| AtomicU32::new(0)).collect();
    let mut seen = [0; PORTS as usize];
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (memory, fifo, sent, raised, is_over) = (&memory, &fifo, &sent, &raised, &is_over);
            scope.spawn(move || {
                let mut random = Rng::with_seed(7 + thread);
                for _ in 0..RAISES {
                    let port = random.u32(1..PORTS);
                    sent[port as usize].fetch_add(1, Ordering::SeqCst);
                    let mut guard = fifo.lock().unpoisoned();
                    let (fifo, last) = &mut *guard;
                    let queue = Queue { vcpu: 0, priority: random.u8(6..9) };
                    let _ = fifo.raise(memory, port, queue, &mut last[port as usize]);
                }
                if raised.fetch_add(1, Ordering::SeqCst) == 1 {
                    is_over.store(true, Ordering::SeqCst);
                }
            });
        }
        let mut guest = Consumer::new(0);
        loop {
            let was_over = is_over.load(Ordering::SeqCst);
            match guest.take(&memory) {
                Some((port, true)) => {
                    seen[port as usize] = sent[port as usize].load(Ordering::SeqCst);
                }
                Some((_, false)) => {}
                None if was_over => break,
                None => std::thread::yield_now(),
            }
        }
    });
    for port in 1..PORTS as usize {
        // Whoever has sent last is seen by a take that came after it.
        assert_eq!(seen[port], sent[port].load(Ordering::SeqCst), "port {port}");
    }
}
