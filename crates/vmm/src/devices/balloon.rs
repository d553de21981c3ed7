//! The balloon's back-end: how much memory the host asks of the guest, the guest's statistics, and the release of its
//! pages.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use devices::virtio::balloon::{self, ACTUAL, Host, PAGE_BYTES, Reason, Statistics};
use devices::virtio::{Doorbell, Shared};
use locks::Unpoisoned;
use machine::bus::Size;

use super::io_thread::Notifier;
use super::{Device, Slots};
use crate::device_memory::DeviceMemory;
use crate::outcome::Error;

/// The queue of the pages that the driver gives, and that of its statistics.
const QUEUES: [usize; 2] = [0, 2];

/// What the device's thread and others share.
#[derive(Default)]
struct Wishes {
    pages: AtomicU32,
    /// The statistics are wanted.
    asks: AtomicBool,
    told: Mutex<Option<Statistics>>,
    /// Bytes of pages that were free and went to the host.
    freed: AtomicU64,
}

/// See above, on the device's thread.
struct Taker {
    wishes: Arc<Wishes>,
    memory: DeviceMemory,
}

/// A virtio balloon.
#[derive(Debug)]
pub struct Balloon(BalloonHandle);

/// A balloon, by which memory is taken back from the guest. Clones are of the same one.
#[derive(Clone)]
pub struct BalloonHandle {
    wishes: Arc<Wishes>,
    notifier: Arc<Notifier>,
    /// The device, once it is plugged in.
    device: Arc<OnceLock<Arc<Shared>>>,
}

impl std::fmt::Debug for BalloonHandle {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("BalloonHandle")
    }
}

/// What a guest has given, and says of its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ballooned {
    /// Bytes that it is to give.
    pub wanted: u64,
    /// Bytes that it has given.
    pub given: u64,
    /// Bytes that were free and went to the host, all together; many times, perhaps.
    pub freed: u64,
    /// What it said when it was last asked, if it ever has.
    pub statistics: Option<Statistics>,
}

impl Balloon {
    /// A balloon, and the way to it.
    #[must_use]
    pub fn new() -> (Self, BalloonHandle) {
        let (wishes, notifier) = (Arc::default(), Arc::default());
        let handle = BalloonHandle { wishes, notifier, device: Arc::default() };
        (Self(handle.clone()), handle)
    }
}

impl Device for Balloon {
    fn kind(&self) -> &'static str {
        balloon::KIND.name
    }

    fn plug_in(self: Box<Self>, slots: &mut Slots<'_>) -> Result<(), Error> {
        let BalloonHandle { wishes, notifier, device: plugged } = self.0;
        let taker = Taker { wishes, memory: slots.memory.clone() };
        let device = Box::new(balloon::Balloon::new(Box::new(taker)));
        let device = slots.add_virtio_with_thread("balloon", device, notifier)?;
        // It is plugged in once.
        let _ = plugged.set(device);
        Ok(())
    }
}

impl Host for Taker {
    fn wanted_pages(&self) -> u32 {
        self.wishes.pages.load(Ordering::SeqCst)
    }

    fn want_pages(&mut self, pages: u32) {
        self.wishes.pages.store(pages, Ordering::SeqCst);
    }

    fn take(&mut self, addresses: Range<u64>, reason: Reason) {
        let bytes = addresses.end - addresses.start;
        if let Err(error) = self.memory.discard(addresses.start, bytes) {
            tracing::warn!("memory that the guest gives cannot be taken: {error}");
        } else if reason == Reason::Free {
            self.wishes.freed.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn wants_statistics(&mut self) -> bool {
        self.wishes.asks.swap(false, Ordering::SeqCst)
    }

    fn tell(&mut self, statistics: Statistics) {
        *self.wishes.told.lock().unpoisoned() = Some(statistics);
    }
}

impl BalloonHandle {
    /// Have the guest give so many bytes of its memory. It may take its time, and may have no driver.
    pub fn want(&self, bytes: u64) {
        let pages = u32::try_from(bytes / PAGE_BYTES).unwrap_or(u32::MAX);
        self.wishes.pages.store(pages, Ordering::SeqCst);
        self.notifier.ring(QUEUES[0]);
    }

    /// What it has given, and has said last; it is asked for more.
    #[must_use]
    pub fn look(&self) -> Ballooned {
        let wishes = &self.wishes;
        wishes.asks.store(true, Ordering::SeqCst);
        QUEUES.iter().for_each(|queue| self.notifier.ring(*queue));
        let bytes = |pages: u64| pages * PAGE_BYTES;
        Ballooned {
            wanted: bytes(wishes.pages.load(Ordering::SeqCst).into()),
            given: bytes(self.device.get().map_or(0, actual)),
            freed: wishes.freed.load(Ordering::Relaxed),
            statistics: *wishes.told.lock().unpoisoned(),
        }
    }
}

/// Pages that the guest says it has given.
fn actual(device: &Arc<Shared>) -> u64 {
    device.read_configuration(ACTUAL.start, Size::Dword)
}
