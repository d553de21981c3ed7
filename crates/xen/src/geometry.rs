//! Where a domain's machine frames are.
//!
//! The numbering is private to the domain. Its memory begins at [`BASE`], which is not zero so that a kernel which
//! mixes up page frame numbers and machine frame numbers fails at once. Behind the most that the domain may ever
//! have lie the frames that the hypervisor shares with it:
//!
//! ```text
//! BASE                 BASE + maximum (rounded up to 2 MiB)
//! | memory             | shared_info | grant frames | status frames | machine-to-physical table |
//! ```
//!
//! A machine frame is the guest-physical page of the same number. So the machine has one range of RAM.

use xen_abi::{Mfn, PAGE_SHIFT};

/// The first machine frame, at 256 MiB.
pub const BASE: Mfn = Mfn(0x1_0000);

/// Frames of a grant table: 512 entries of version 1 each.
pub const GRANT_FRAMES: u64 = 64;

/// Frames with the status of version 2's entries.
pub const STATUS_FRAMES: u64 = 16;

/// Frames in 2 MiB.
const LARGE_PAGE: u64 = 512;

/// See above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Pages that the domain starts with.
    pub pages: u64,
    /// The most that it may have.
    pub maximum: u64,
}

impl Geometry {
    /// Of a domain that starts with so many pages, and may have so many at most.
    pub fn new(pages: u64, maximum: u64) -> Self {
        Self { pages, maximum: maximum.max(pages) }
    }

    /// The first of the frames that the hypervisor shares with the domain.
    fn special(&self) -> u64 {
        BASE.0 + self.maximum.next_multiple_of(LARGE_PAGE)
    }

    /// The page of [`xen_abi::shared::SharedInfo`].
    pub fn shared_info(&self) -> Mfn {
        Mfn(self.special())
    }

    /// A frame of the grant table, below [`GRANT_FRAMES`].
    pub fn grant_frame(&self, index: u64) -> Mfn {
        Mfn(self.special() + 1 + index)
    }

    /// A frame of the grants' status, below [`STATUS_FRAMES`].
    pub fn status_frame(&self, index: u64) -> Mfn {
        Mfn(self.special() + 1 + GRANT_FRAMES + index)
    }

    /// The first frame of the machine-to-physical table.
    pub fn machine_to_physical(&self) -> Mfn {
        Mfn(self.special() + 1 + GRANT_FRAMES + STATUS_FRAMES)
    }

    /// Frames of the machine-to-physical table, whose entries are 8 bytes and begin with machine frame 0.
    pub fn machine_to_physical_frames(&self) -> u64 {
        // It describes itself, too: one frame more for each 512 of its own is enough.
        let described = self.machine_to_physical().0;
        let frames = described.div_ceil(LARGE_PAGE);
        frames + frames.div_ceil(LARGE_PAGE)
    }

    /// The frame behind the last.
    pub fn end(&self) -> Mfn {
        Mfn(self.machine_to_physical().0 + self.machine_to_physical_frames())
    }

    /// Frames from [`BASE`] on that there are records of.
    pub fn records(&self) -> u64 {
        self.end().0 - BASE.0
    }

    /// The machine's RAM: address and bytes.
    pub fn ram(&self) -> (u64, u64) {
        (BASE.address(), self.records() << PAGE_SHIFT)
    }

    /// Whether a frame is of those that may be the domain's memory.
    pub fn is_memory(&self, frame: Mfn) -> bool {
        (BASE.0..BASE.0 + self.maximum).contains(&frame.0)
    }
}
