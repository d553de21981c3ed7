//! A host for the balloon of the targets that drive devices: it wants something else each time, and looks at
//! what it is given.

use std::ops::Range;

use devices::virtio::balloon::{Host, PAGE_BYTES, Reason, Statistics};

/// The host.
#[derive(Default)]
pub struct Pages {
    taken: u32,
}

impl Host for Pages {
    fn wanted_pages(&self) -> u32 {
        self.taken
    }

    fn want_pages(&mut self, pages: u32) {
        self.taken = pages;
    }

    fn take(&mut self, addresses: Range<u64>, _: Reason) {
        assert!(addresses.start < addresses.end);
        assert!((addresses.start | addresses.end).is_multiple_of(PAGE_BYTES));
        self.taken = self.taken.wrapping_add(1);
    }

    fn wants_statistics(&mut self) -> bool {
        self.taken.is_multiple_of(2)
    }

    fn tell(&mut self, statistics: Statistics) {
        self.taken ^= statistics.free.unwrap_or(0) as u32;
    }
}
