//! Credit: how much one end may send before the other has acknowledged it. [`Frame::Credit`]
//! itself is free, or both ends could wait for each other; there are few of them, because an
//! acknowledgement is sent for a quarter of a window at a time, or for a large frame.
//!
//! [`Frame::Credit`]: crate::Frame::Credit

/// What may still be sent.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    size: u32,
    left: u32,
}

impl Window {
    /// A window of `size` bytes, all of it free.
    #[must_use]
    pub fn new(size: u32) -> Window {
        Window { size, left: size }
    }

    /// A window of `size` bytes, of which `left` are free.
    #[must_use]
    pub fn with_left(size: u32, left: u32) -> Window {
        Window { size, left: left.min(size) }
    }

    /// Its size in bytes.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Bytes that are free.
    #[must_use]
    pub fn left(&self) -> u32 {
        self.left
    }

    /// Bytes of payload that fit beside a frame header, if `reserve` bytes are to stay free.
    #[must_use]
    pub fn payload_room(&self, reserve: u32) -> usize {
        let header = crate::HEADER_BYTES as u32;
        let room = self.left.saturating_sub(reserve).saturating_sub(header) as usize;
        room.min(crate::PAYLOAD_MAX_BYTES)
    }

    /// Takes `bytes` for a frame; says whether they fit, and takes nothing if not.
    pub fn take(&mut self, bytes: u32) -> bool {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }

    /// The other end has dealt with `bytes`. More than was sent is a lie and is not believed.
    pub fn give_back(&mut self, bytes: u32) {
        self.left = self.left.saturating_add(bytes).min(self.size);
    }
}

/// What was received and not yet acknowledged.
#[derive(Debug, Clone, Copy)]
pub struct Receipts {
    pending: u32,
    threshold: u32,
}

impl Receipts {
    /// Receipts for a window of `size` bytes.
    #[must_use]
    pub fn new(size: u32) -> Receipts {
        Receipts { pending: 0, threshold: (size / 4).min(crate::FRAME_MAX_BYTES as u32) }
    }

    /// Notes that `bytes` have been dealt with; returns what to acknowledge now, if anything.
    pub fn add(&mut self, bytes: u32) -> Option<u32> {
        self.pending = self.pending.saturating_add(bytes);
        (self.pending >= self.threshold).then(|| std::mem::take(&mut self.pending))
    }
}
