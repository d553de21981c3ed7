//! What a network card asks of the host.

use super::bits::Features;
use crate::virtio::Segment;

/// Why a backend takes or gives nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The other end has gone, for good.
    #[error("the other end of the network cable has gone")]
    Pulled,
    /// The driver's segments are not memory, or too many.
    #[error("a frame is not in memory")]
    NoMemory,
}

/// The way that frames go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// To the guest.
    In,
    /// From the guest.
    Out,
}

/// A frame of the driver's, with its header: where it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frame {
    /// Header and frame.
    pub segments: Vec<Segment>,
    /// Bytes of both.
    pub bytes: u64,
    /// The chain it came in.
    pub(super) head: u16,
}

/// What the host has to offer to a card: where frames go and come from, a cable. No method blocks. All frames have the
/// virtio header before them.
pub trait NetworkBackend: Send {
    /// What it can do of [`Features::HOST`] and [`Features::GUEST`].
    fn features(&self) -> Features;

    /// The driver has accepted these, and of [`Features::GUEST`] it wants these now.
    fn set_features(&mut self, features: Features);

    /// So many pairs of queues are in use.
    fn set_pairs(&mut self, pairs: usize);

    /// How many bytes the next frame has at most, with its header.
    ///
    /// # Errors
    ///
    /// [`Fault`].
    fn next_bytes(&mut self, pair: usize) -> Result<Option<u64>, Fault>;

    /// Receive a frame; how many bytes it has with its header, and `None` if there is none yet, or
    /// not all of it. In that case the next call has the same room. If it does not fit, it is lost
    /// and has no bytes. The back-end reports what it writes to guest memory.
    ///
    /// # Errors
    ///
    /// [`Fault`].
    fn receive(&mut self, pair: usize, room: &[Segment]) -> Result<Option<u64>, Fault>;

    /// Send frames, which are at least as long as header and addresses; how many are done with.
    ///
    /// # Errors
    ///
    /// [`Fault`].
    fn send(&mut self, pair: usize, frames: &[Frame]) -> Result<usize, Fault>;

    /// Notify the queue once, when frames can go this way.
    fn call_when_ready(&mut self, pair: usize, way: Way);

    /// Forget the room for frames: it is no longer ours.
    fn reset(&mut self);
}
