//! A thread for each device that does I/O: the guest computes while it works. The doorbell is a word
//! with a bit for each queue; a thread that works finds new bits by itself, one that sleeps is called.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};

use devices::virtio::{Doorbell, Shared};

/// The thread is to end.
const END: u64 = 1 << 63;

/// What the processors' threads ring.
#[derive(Default)]
pub(crate) struct Bell {
    wanted: AtomicU64,
    sleeper: OnceLock<Thread>,
}

impl Bell {
    fn raise(&self, bit: u64) {
        if self.wanted.fetch_or(bit, Ordering::SeqCst) == 0
            && let Some(sleeper) = self.sleeper.get()
        {
            sleeper.unpark();
        }
    }

    fn wait(&self) -> u64 {
        loop {
            match self.wanted.swap(0, Ordering::SeqCst) {
                0 => std::thread::park(),
                wanted => return wanted,
            }
        }
    }
}

impl Doorbell for Bell {
    fn ring(&self, queue: usize) {
        self.raise(1 << (queue & 31));
    }
}

/// A device's thread; it ends with this.
pub(crate) struct IoThread {
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

impl IoThread {
    /// Serve `device` when `bell` says so.
    ///
    /// # Errors
    ///
    /// The host has no thread.
    pub(crate) fn start(
        name: &str,
        bell: Arc<Bell>,
        device: Arc<Shared>,
    ) -> Result<Self, std::io::Error> {
        let its_bell = Arc::clone(&bell);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            loop {
                let wanted = its_bell.wait();
                if wanted & END != 0 {
                    return;
                }
                device.serve(wanted);
            }
        })?;
        // Who has rung before this is heard now.
        let _ = bell.sleeper.set(thread.thread().clone());
        thread.thread().unpark();
        Ok(Self { bell, thread: Some(thread) })
    }
}

impl Drop for IoThread {
    fn drop(&mut self) {
        self.bell.raise(END);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // What it panicked with has been said.
            let _ = thread.join();
        }
    }
}
