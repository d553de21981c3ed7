//! Which streams the first command of a pod has, for the keeper: it writes the command down, or makes it again, and has
//! to know what leads to init.

/// Bytes of an encoded [`Streams`].
pub const STREAMS_BYTES: usize = 32;

/// Where there is no terminal.
const NO_TERMINAL: u32 = u32::MAX;

/// The standard streams of a command, of which init has the other ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Streams {
    /// The number of its process.
    pub process: u32,
    /// The inodes of the pipes that are its input, its output and its errors; 0 for none.
    pub pipes: [u64; 3],
    /// The number of its terminal, if it has one.
    pub terminal: Option<u32>,
}

impl Streams {
    /// As bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; STREAMS_BYTES] {
        let mut bytes = [0; STREAMS_BYTES];
        let (pipes, numbers) = bytes.split_at_mut(24);
        for (place, pipe) in pipes.chunks_mut(8).zip(self.pipes) {
            place.copy_from_slice(&pipe.to_le_bytes());
        }
        let (terminal, process) = numbers.split_at_mut(4);
        terminal.copy_from_slice(&self.terminal.unwrap_or(NO_TERMINAL).to_le_bytes());
        process.copy_from_slice(&self.process.to_le_bytes());
        bytes
    }

    /// The inverse.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; STREAMS_BYTES]) -> Streams {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|n| bytes[at + n]));
        let half = |at: usize| u32::from_le_bytes(std::array::from_fn(|n| bytes[at + n]));
        let terminal = half(24);
        Streams {
            process: half(28),
            pipes: [0, 8, 16].map(word),
            terminal: Some(terminal).filter(|terminal| *terminal != NO_TERMINAL),
        }
    }
}
