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
