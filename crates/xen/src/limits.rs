//! Every limit of the crate in one place.

/// Program headers of a kernel's ELF file; Linux has five, others fewer.
pub const MAX_PROGRAM_HEADERS: u16 = 128;

/// Notes of a kernel, Xen's and others'; Linux has about twenty.
pub const MAX_NOTES: usize = 1024;

/// Bytes of a command line without the zero that ends it.
pub const MAX_COMMAND_LINE_BYTES: usize = 1023;

/// Ports that one call may wait for (Xen: `sched_poll`, "overflow" beyond 128).
pub const MAX_POLLED: u32 = 128;

/// Bytes of the emergency console that one call writes.
pub const MAX_CONSOLE_BYTES: usize = 1024;

/// Structures of a list of `grant_table_op` that are looked at in one call.
pub const MAX_GRANT_OPERATIONS: u64 = 4096;

/// Turns of the store's ring at one notification. A domain that goes on for longer keeps another vCPU busy with it:
/// it is served when it notifies.
pub const MAX_EXCHANGES: usize = 1024;

/// Times at one notification that devices look at what their front-ends have done.
pub const MAX_LOOKS: usize = 16;

/// Attempts to change a word of a FIFO that the guest changes, too.
pub const MAX_WORD_ATTEMPTS: usize = 1000;

/// Those of the host who watch a domain's store at the same time.
pub const MAX_WATCHERS: usize = 16;

/// Events that one of them is told at once.
pub const MAX_EVENTS_TOLD: usize = 256;

/// For how long a watch lasts whose events nobody asks for.
pub const WATCHER_LIFE_SECONDS: u64 = 30;
