//! What the processors' threads and the device's own share.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use locks::Unpoisoned;
use machine::bus::Size;
use machine::memory::Memory;
use machine::pci::Vectors;
use machine::saved::{self, Busy, Part, Unfit};
use serde::{Deserialize, Serialize};

use super::bits::{Features, Isr, NO_VECTOR, Status};
use crate::virtio::queue::{Position, Queue, Settings};
use crate::virtio::{Broken, Chain, Device};

/// How long a reset of the machine waits before it asks the device again whether it is idle.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// How long a device may take to come to rest.
const PATIENCE: Duration = Duration::from_secs(5);

/// The state of a device.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedDevice {
    kind: u16,
    status: u8,
    isr: u8,
    configuration: Vec<u8>,
    generation: u8,
    configuration_vector: u16,
    queue_vectors: Vec<u16>,
    positions: Vec<Position>,
}

/// The device's own state.
pub(super) struct Own {
    pub version: u32,
    pub bytes: Vec<u8>,
}

/// The device and its queues. The thread that has locked it may write guest memory.
struct Engine {
    device: Box<dyn Device>,
    queues: Vec<Queue>,
}

/// The device's configuration space, and how often it has changed.
struct Space {
    bytes: Vec<u8>,
    /// What of it the driver may write.
    writable: Range<usize>,
    generation: u8,
}

impl Space {
    /// What the driver may write is as it was.
    fn go_on_from(&mut self, bytes: &[u8], generation: u8) {
        self.generation = generation;
        let writable = self.writable.clone();
        if let (Some(place), Some(was)) =
            (self.bytes.get_mut(writable.clone()), bytes.get(writable))
        {
            place.copy_from_slice(was);
        }
    }
}

/// What the processors' threads and the device's own share. Lock order: the chip set's lock, then the
/// engine, then the configuration space or the table of messages.
pub struct Shared {
    memory: Arc<dyn Memory>,
    engine: Mutex<Engine>,
    /// The device may have become idle.
    settled: Condvar,
    space: Mutex<Space>,
    status: AtomicU8,
    isr: AtomicU8,
    /// The driver wants a reset, which is not done yet: no queue gives anything any more.
    stopping: AtomicBool,
    /// Nothing is served; it changes while the engine is locked.
    frozen: AtomicBool,
    vectors: Vectors,
    configuration_vector: AtomicU16,
    queue_vectors: Vec<AtomicU16>,
}

impl Shared {
    pub(super) fn new(device: Box<dyn Device>, memory: Arc<dyn Memory>, vectors: Vectors) -> Self {
        let queue_vectors = device.queue_sizes().iter().map(|_| AtomicU16::new(NO_VECTOR));
        let (bytes, writable) = (device.configuration(), device.writable_configuration());
        let space = Mutex::new(Space { bytes, writable, generation: 0 });
        Self {
            memory,
            space,
            status: AtomicU8::new(0),
            isr: AtomicU8::new(0),
            stopping: AtomicBool::new(false),
            frozen: AtomicBool::new(false),
            vectors,
            configuration_vector: AtomicU16::new(NO_VECTOR),
            queue_vectors: queue_vectors.collect(),
            settled: Condvar::new(),
            engine: Mutex::new(Engine { device, queues: Vec::new() }),
        }
    }

    /// Do what there is to do in these queues, a bit for each. For the device's thread; it returns
    /// when there is nothing left, or when the device is stopped.
    pub fn serve(&self, queues: u64) {
        self.serve_with(&mut self.engine(), queues);
    }

    /// The same on a thread that must not wait for another that serves: which queues is asked for when it has
    /// turned out that nobody does. Whether it was so.
    pub fn try_serve(&self, queues: impl FnOnce() -> u64) -> bool {
        let Some(mut engine) = self.engine.try_lock().unpoisoned() else { return false };
        self.serve_with(&mut engine, queues());
        true
    }

    fn serve_with(&self, engine: &mut Engine, queues: u64) {
        let Engine { device, queues: all } = engine;
        for (number, queue) in all.iter_mut().enumerate() {
            if queues >> number & 1 == 0 || !self.is_running() {
                continue;
            }
            let mut serving = Serving { queue, number, shared: self };
            let served = serving.begin().and_then(|()| device.serve(number, &mut serving));
            if let Err(error) = served.and_then(|()| serving.publish()) {
                tracing::warn!("a virtio device stops: {error}");
                self.break_down();
            }
        }
    }

    fn is_running(&self) -> bool {
        let status = self.status();
        !self.frozen.load(Ordering::SeqCst)
            && status.contains(Status::DRIVER_OK)
            && !status.contains(Status::NEEDS_RESET)
            && !self.stopping.load(Ordering::SeqCst)
    }

    /// The driver has broken the rules (2.1.2).
    fn break_down(&self) {
        self.add_status(Status::NEEDS_RESET);
        self.tell_of_change();
    }

    fn tell_of_change(&self) {
        self.isr.fetch_or(Isr::CONFIGURATION.bits(), Ordering::SeqCst);
        self.vectors.trigger(self.configuration_vector());
    }

    fn space(&self) -> MutexGuard<'_, Space> {
        self.space.lock().unpoisoned()
    }

    pub(super) fn generation(&self) -> u8 {
        self.space().generation
    }

    /// A register of the configuration space.
    pub fn read_configuration(&self, at: usize, size: Size) -> u64 {
        let space = self.space();
        let bytes = space.bytes.get(at..).unwrap_or(&[]).iter().take(size.bytes().into());
        bytes.rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
    }

    /// The driver writes a register of the configuration space, if it may.
    pub(super) fn write_configuration(&self, at: usize, size: Size, value: u64) {
        let mut space = self.space();
        let range = at..at.saturating_add(size.bytes().into());
        if space.writable.start <= range.start && range.end <= space.writable.end {
            let bytes = value.to_le_bytes();
            space.bytes[range.clone()].copy_from_slice(&bytes[..range.len()]);
        }
    }

    fn interrupt(&self, queue: usize) {
        self.isr.fetch_or(Isr::QUEUE.bits(), Ordering::SeqCst);
        self.vectors.trigger(self.queue_vector(queue));
    }

    /// The driver is ready.
    pub(super) fn activate(&self, settings: &[Settings], features: u64) {
        self.start(&mut self.engine(), settings, features);
        self.add_status(Status::DRIVER_OK);
    }

    fn start(&self, engine: &mut Engine, settings: &[Settings], features: u64) {
        let event_index = features & Features::EVENT_INDEX.bits() != 0;
        let queues = settings
            .iter()
            .map(|&settings| Queue::new(Arc::clone(&self.memory), settings, event_index));
        engine.queues = queues.collect();
        engine.device.activate(features);
    }

    /// The driver wants a reset; whether it is done. If not, [`Self::goes_on_stopping`] does it.
    pub(super) fn stop(&self) -> bool {
        self.stopping.store(true, Ordering::SeqCst);
        !self.goes_on_stopping()
    }

    /// Whether a reset is waiting for the device's thread; it is carried out if that is at rest.
    pub(super) fn goes_on_stopping(&self) -> bool {
        if !self.stopping.load(Ordering::SeqCst) {
            return false;
        }
        let Some(mut engine) = self.engine.try_lock().unpoisoned() else { return true };
        let is_idle = engine.device.is_idle();
        if is_idle {
            self.clear(engine);
        }
        !is_idle
    }

    /// Reset, after what the device is doing. Not for a processor's thread.
    pub(super) fn reset(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        loop {
            let mut engine = self.engine();
            if engine.device.is_idle() {
                return self.clear(engine);
            }
            let settled = self.settled.wait_timeout(engine, LOOK_AGAIN);
            drop(settled.unpoisoned());
        }
    }

    /// Work outside of [`Device::serve`] has come to an end: a thread that waits for that looks again.
    pub fn settle(&self) {
        self.settled.notify_all();
    }

    fn clear(&self, mut engine: MutexGuard<'_, Engine>) {
        engine.queues.clear();
        engine.device.reset();
        self.status.store(0, Ordering::SeqCst);
        self.isr.store(0, Ordering::SeqCst);
        self.set_configuration_vector(NO_VECTOR);
        (0..self.queue_vectors.len()).for_each(|queue| self.set_queue_vector(queue, NO_VECTOR));
        self.stopping.store(false, Ordering::SeqCst);
    }

    /// Go on after [`Self::save`]. What was rung for meanwhile has not been served.
    pub(super) fn thaw(&self) {
        self.frozen.store(false, Ordering::SeqCst);
    }

    /// Come to rest until [`Self::thaw`], and say what a device that goes on from here has to know. Nobody rings.
    ///
    /// # Errors
    ///
    /// [`Busy`] when it does not come to rest.
    pub(super) fn save(&self) -> Result<(SavedDevice, Own), Busy> {
        let deadline = Instant::now() + PATIENCE;
        let mut engine = loop {
            self.serve(u64::MAX);
            let mut engine = self.engine();
            if !engine.device.is_at_work() || !self.is_running() && engine.device.is_idle() {
                break engine;
            }
            if Instant::now() >= deadline {
                return Err(Busy);
            }
            let settled = self.settled.wait_timeout(engine, LOOK_AGAIN);
            drop(settled.unpoisoned());
        };
        self.frozen.store(true, Ordering::SeqCst);
        let Engine { device, queues } = &mut *engine;
        let positions = queues.iter().enumerate();
        let space = self.space();
        let saved = SavedDevice {
            kind: device.kind().number,
            status: self.status().bits(),
            isr: self.isr.load(Ordering::SeqCst),
            configuration: space.bytes.clone(),
            generation: space.generation,
            configuration_vector: self.configuration_vector(),
            queue_vectors: (0..self.queue_vectors.len()).map(|at| self.queue_vector(at)).collect(),
            positions: positions.map(|(at, queue)| queue.position(device.taken(at))).collect(),
        };
        Ok((saved, Own { version: device.version(), bytes: device.save() }))
    }

    /// The newest version of the device's own state.
    pub(super) fn version(&self) -> u32 {
        self.engine().device.version()
    }

    /// Go on from there, with what driver and device have agreed on. No thread serves it yet.
    ///
    /// # Errors
    ///
    /// [`Unfit`] when that is no state of such a device.
    pub(super) fn restore(
        &self,
        saved: &SavedDevice,
        own: &Part,
        (features, settings): (u64, &[Settings]),
    ) -> Result<(), Unfit> {
        let mut engine = self.engine();
        let fits = saved.kind == engine.device.kind().number
            && engine.device.accepts(&saved.configuration)
            && saved.queue_vectors.len() == self.queue_vectors.len();
        saved::check(fits, "a virtio device")?;
        let status = Status::from_bits_truncate(saved.status);
        if status.contains(Status::DRIVER_OK) {
            saved::check(saved.positions.len() == settings.len(), "a virtio device's queues")?;
            self.start(&mut engine, settings, features);
            for (queue, &position) in engine.queues.iter_mut().zip(&saved.positions) {
                queue.go_on(position);
            }
            engine.device.restore(own.version, &own.bytes)?;
        }
        drop(engine);
        self.space().go_on_from(&saved.configuration, saved.generation);
        self.status.store(status.bits(), Ordering::SeqCst);
        self.isr.store(saved.isr, Ordering::SeqCst);
        self.set_configuration_vector(saved.configuration_vector);
        let vectors = saved.queue_vectors.iter().enumerate();
        vectors.for_each(|(queue, &vector)| self.set_queue_vector(queue, vector));
        Ok(())
    }

    pub(super) fn status(&self) -> Status {
        Status::from_bits_retain(self.status.load(Ordering::SeqCst))
    }

    pub(super) fn add_status(&self, status: Status) {
        self.status.fetch_or(status.bits(), Ordering::SeqCst);
    }

    /// Why it has interrupted, once.
    pub(super) fn take_isr(&self) -> u8 {
        self.isr.swap(0, Ordering::SeqCst)
    }

    pub(super) fn configuration_vector(&self) -> u16 {
        self.configuration_vector.load(Ordering::SeqCst)
    }

    pub(super) fn set_configuration_vector(&self, vector: u16) {
        self.configuration_vector.store(self.usable(vector), Ordering::SeqCst);
    }

    pub(super) fn queue_vector(&self, queue: usize) -> u16 {
        self.queue_vectors.get(queue).map_or(NO_VECTOR, |vector| vector.load(Ordering::SeqCst))
    }

    pub(super) fn set_queue_vector(&self, queue: usize, vector: u16) {
        if let Some(place) = self.queue_vectors.get(queue) {
            place.store(self.usable(vector), Ordering::SeqCst);
        }
    }

    /// A message that is not there cannot be chosen (4.1.5.1.2.1).
    fn usable(&self, vector: u16) -> u16 {
        if vector < self.vectors.count() { vector } else { NO_VECTOR }
    }

    fn engine(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unpoisoned()
    }
}

/// A queue that is being served.
pub struct Serving<'a> {
    queue: &'a mut Queue,
    number: usize,
    shared: &'a Shared,
}

impl Serving<'_> {
    fn begin(&mut self) -> Result<(), Broken> {
        self.queue.disarm()
    }

    /// Guest memory.
    pub fn memory(&self) -> &dyn Memory {
        self.queue.memory()
    }

    /// Take the next chain; false if there is none now. What was finished is published before the
    /// queue is left to rest.
    ///
    /// # Errors
    ///
    /// [`Broken`] when the queue makes no sense.
    pub fn pop(&mut self, chain: &mut Chain) -> Result<bool, Broken> {
        if self.take(chain)? {
            return Ok(true);
        }
        self.publish()?;
        while self.is_wanted() && self.queue.arm()? {
            self.queue.disarm()?;
            if self.take(chain)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Take the next chain if there is one at hand, to look at several together.
    ///
    /// # Errors
    ///
    /// [`Broken`] when the queue makes no sense.
    pub fn take(&mut self, chain: &mut Chain) -> Result<bool, Broken> {
        Ok(self.is_wanted() && self.queue.pop(chain)?)
    }

    /// Say that a chain is done, and how many bytes of it were written.
    ///
    /// # Errors
    ///
    /// [`Broken`] when there is no ring to say it in.
    pub fn finish(&mut self, head: u16, length: u32) -> Result<(), Broken> {
        self.queue.put_used(head, length)
    }

    /// Let the driver see what is done, and interrupt it if it wants that.
    ///
    /// # Errors
    ///
    /// [`Broken`] when there is no ring.
    pub fn publish(&mut self) -> Result<(), Broken> {
        if self.queue.publish()? {
            self.shared.interrupt(self.number);
        }
        Ok(())
    }

    /// The queue's descriptors.
    pub fn size(&self) -> u16 {
        self.queue.size()
    }

    /// Change the configuration space, and tell the driver if that is a change; whether it is.
    pub fn configure(&mut self, at: usize, bytes: &[u8]) -> bool {
        let mut space = self.shared.space();
        let Some(place) = space.bytes.get_mut(at..at + bytes.len()) else { return false };
        if place == bytes {
            return false;
        }
        place.copy_from_slice(bytes);
        space.generation = space.generation.wrapping_add(1);
        drop(space);
        self.shared.tell_of_change();
        true
    }

    /// Tell the driver that the configuration space has changed.
    pub fn tell_of_change(&mut self) {
        self.shared.tell_of_change();
    }

    fn is_wanted(&self) -> bool {
        !self.shared.stopping.load(Ordering::SeqCst)
    }
}
