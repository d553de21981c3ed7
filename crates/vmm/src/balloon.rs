//! The balloon's end at the host: what is wanted of the guest, what it says, and where its pages go.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use devices::virtio::balloon::{ACTUAL, Host, PAGE_BYTES, Reason, Statistics};
use devices::virtio::{Doorbell, Shared};
use machine::bus::Size;

use crate::device_memory::DeviceMemory;
use crate::io_thread::Bell;

/// The queue of the pages that the driver gives, and that of its statistics.
const QUEUES: [usize; 2] = [0, 2];

/// What the device's thread and others share.
#[derive(Default)]
struct Wishes {
    pages: AtomicU32,
    /// Somebody wants to know the statistics.
    asks: AtomicBool,
    told: Mutex<Option<Statistics>>,
    /// Bytes of pages that were free and went to the host.
    freed: AtomicU64,
}

/// See above, on the device's thread.
pub(crate) struct Taker {
    wishes: Arc<Wishes>,
    memory: DeviceMemory,
}

/// A balloon, for whoever wants something of the guest. Clones are of the same one.
#[derive(Clone)]
pub(crate) struct Balloon {
    wishes: Arc<Wishes>,
    bell: Arc<Bell>,
    device: Arc<Shared>,
}

impl std::fmt::Debug for Balloon {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Balloon")
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

/// The end of the device, and the way to the balloon that it will be.
pub(crate) fn taker(
    memory: &DeviceMemory,
) -> (Taker, impl FnOnce(Arc<Bell>, Arc<Shared>) -> Balloon) {
    let wishes = Arc::new(Wishes::default());
    let taker = Taker { wishes: Arc::clone(&wishes), memory: memory.clone() };
    (taker, move |bell, device| Balloon { wishes, bell, device })
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
        *self.wishes.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(statistics);
    }
}

impl Balloon {
    /// Have the guest give so much.
    pub(crate) fn want(&self, bytes: u64) {
        let pages = u32::try_from(bytes / PAGE_BYTES).unwrap_or(u32::MAX);
        self.wishes.pages.store(pages, Ordering::SeqCst);
        self.bell.ring(QUEUES[0]);
    }

    /// What it has given, and has said last; it is asked for more.
    pub(crate) fn look(&self) -> Ballooned {
        let wishes = &self.wishes;
        wishes.asks.store(true, Ordering::SeqCst);
        QUEUES.iter().for_each(|queue| self.bell.ring(*queue));
        let bytes = |pages: u64| pages * PAGE_BYTES;
        Ballooned {
            wanted: bytes(wishes.pages.load(Ordering::SeqCst).into()),
            given: bytes(self.device.read_configuration(ACTUAL.start, Size::Dword)),
            freed: wishes.freed.load(Ordering::Relaxed),
            statistics: *wishes.told.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}
