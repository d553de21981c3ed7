//! Every limit of the devices in one place.

/// Most files of a fw_cfg device: selectors 0x20 to 0x3fff could name more.
pub const MAX_FW_CFG_FILES: usize = 64;

/// Most bytes of one fw_cfg item.
pub const MAX_FW_CFG_ITEM_BYTES: usize = 256 << 20;

/// Most bytes that one fw_cfg DMA operation moves; a longer one fails.
pub const MAX_FW_CFG_DMA_BYTES: u32 = 16 << 20;

/// Reads of the line status without anything between them after which a guest is taken to wait for
/// input by polling.
pub const POLLS_BEFORE_INPUT: u32 = 16;

/// Random bytes for one request.
pub const MAX_ENTROPY_BYTES: usize = 4096;

/// Requests that a block device looks at together.
pub const MAX_BLOCK_BATCH: usize = 64;

/// Queues of a block device; each has [`MAX_BLOCK_REQUESTS`].
pub const MAX_BLOCK_QUEUES: usize = 16;

/// Queues for requests of a file system device.
pub const MAX_REQUEST_QUEUES: usize = 16;

/// Requests that a queue of a block device has under way, which is what it holds.
pub const MAX_BLOCK_REQUESTS: usize = 256;

/// Requests that a block device takes from a queue before another has its turn.
pub const MAX_BLOCK_SHARE: usize = 256;

/// Pieces of guest memory that one transfer of a block device has.
pub const MAX_BLOCK_SEGMENTS: usize = 512;

/// Bytes of several requests that are one transfer: more would keep one thread busy that could be two's.
pub const MAX_BLOCK_TRANSFER_BYTES: u64 = 1 << 20;

/// Bytes that one discard or write-zeroes request names.
pub const MAX_BLOCK_DISCARD_BYTES: u64 = 1 << 30;

/// Bytes that a console takes from the guest, or from its input, at once.
pub const MAX_CONSOLE_PIECE_BYTES: usize = 4096;

/// Bytes that a port moves at once: what Linux sends as one request.
pub const MAX_PORT_PIECE_BYTES: usize = 32 << 10;

/// Chains of a port's queue after which the driver sees what is done, though there is more to do.
pub const MAX_PORT_BATCH: usize = 16;

/// Messages for a port's driver that have found no buffer; more are dropped.
pub const MAX_PORT_MESSAGES: usize = 16;

/// Pages that a balloon looks at together; Linux gives 256.
pub const MAX_BALLOON_PAGES: usize = 4096;

/// Entries of a balloon's statistics, of which there are 16.
pub const MAX_BALLOON_STATISTICS: usize = 64;

/// Bytes of a packet between sockets, besides its header; Linux sends no more.
pub const MAX_SOCKET_PACKET_BYTES: usize = 64 << 10;
