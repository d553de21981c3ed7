//! Stopping translated code from a signal handler.
//!
//! A *gate* is a place where control leaves a block. Open, it lets control through to the next
//! block (or, not linked yet, out to Rust); closed, it leads out to Rust with precise state. The
//! handler closes all gates of the block it interrupted. It allocates nothing and touches only the
//! tables here, which nobody changes while translated code runs, and the code itself.

/// A place that can be closed, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Closing {
    /// A `jmp rel32`: address of the displacement, and the displacement that leads out.
    Jump { at: u64, displacement: i32 },
    /// A five-byte `nop` that becomes `jmp rel32`.
    Nop { at: u64, displacement: i32 },
}

/// The five-byte `nop` (SDM 2B "NOP").
pub(crate) const NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

/// One block's share of the code cache.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: u64,
    end: u64,
    first: u32,
    count: u32,
}

/// Gates that can be closed before they must be opened again.
const MAX_CLOSED: usize = 64;

/// The handler's tables.
pub(crate) struct Stopper {
    spans: Vec<Span>,
    closings: Vec<Closing>,
    closed: [u64; MAX_CLOSED],
    closed_count: usize,
}

impl Stopper {
    pub(crate) fn new() -> Box<Self> {
        Box::new(Self {
            spans: Vec::new(),
            closings: Vec::new(),
            closed: [0; MAX_CLOSED],
            closed_count: 0,
        })
    }

    /// Add a block, which lies after all others.
    pub(crate) fn add(&mut self, start: u64, end: u64, closings: &[Closing]) {
        let first = self.closings.len() as u32;
        self.closings.extend_from_slice(closings);
        self.spans.push(Span { start, end, first, count: closings.len() as u32 });
    }

    /// Forget everything: the code cache was dropped.
    pub(crate) fn clear(&mut self) {
        self.spans.clear();
        self.closings.clear();
        self.closed_count = 0;
    }

    /// Close the gates of the block that contains host address `rip`. Async-signal-safe.
    pub(crate) fn close_gates(&mut self, rip: u64) {
        let after = self.spans.partition_point(|span| span.start <= rip);
        let Some(span) = after.checked_sub(1).and_then(|index| self.spans.get(index)) else {
            return;
        };
        if rip >= span.end {
            return;
        }
        let range = span.first as usize..(span.first + span.count) as usize;
        for closing in self.closings.get(range).unwrap_or(&[]) {
            // SAFETY: the addresses are in the code cache, of code that this thread is executing
            // or about to; the processor sees its own stores to code (SDM 3A 11.6) after the
            // return from the signal handler.
            unsafe {
                match *closing {
                    Closing::Jump { at, displacement } => {
                        (at as *mut i32).write_unaligned(displacement);
                    }
                    Closing::Nop { at, displacement } => {
                        if self.closed_count == MAX_CLOSED {
                            continue;
                        }
                        self.closed[self.closed_count] = at;
                        self.closed_count += 1;
                        (at as *mut u8).write(0xe9);
                        ((at + 1) as *mut i32).write_unaligned(displacement);
                    }
                }
            }
        }
    }

    /// Whether there is something for [`Self::take_closed`].
    pub(crate) fn has_closed(&self) -> bool {
        self.closed_count != 0
    }

    /// The `nop`s that were closed, to be put back.
    pub(crate) fn take_closed(&mut self) -> Vec<u64> {
        let closed = self.closed[..self.closed_count].to_vec();
        self.closed_count = 0;
        closed
    }
}
