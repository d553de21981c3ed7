//! What plugs into a computer, one folder each: the registers and the logic behind them.
//!
//! What it is not: it knows no host. Where bytes go and come from, guest memory and interrupt lines
//! are handed to a device; none owns a thread or a descriptor.
//!
//! What rules it:
//!
//! 1. *A device sees its guest as an adversary.* Every sequence of accesses is an ordinary event:
//!    nothing panics, blocks, or takes memory or time that the guest can choose.
//! 2. *Every folder has the same files*: `mod.rs`, the register layout in `bits.rs`, `tests.rs`.
//! 3. *A lock is held for a few instructions*, and never while calling somebody who may wait.

#![forbid(unsafe_code)]

pub mod debug_console;
pub mod debug_exit;
pub mod flash;
pub mod fw_cfg;
pub mod limits;
pub mod post;
pub mod serial;
pub mod virtio;

pub use debug_console::DebugConsole;
pub use debug_exit::DebugExit;
pub use flash::Flash;
pub use fw_cfg::FwCfg;
pub use post::Post;
pub use serial::Serial;
