//! Every limit of this crate in one place. Those of a domain are xenstored's defaults.

use xen_abi::store::limit;

/// Bytes of a message after its header, in both directions.
pub const PAYLOAD_BYTES: usize = limit::PAYLOAD_BYTES as usize;

/// Bytes of a path from the root.
pub const ABSOLUTE_PATH_BYTES: usize = limit::ABSOLUTE_PATH_BYTES as usize;

/// Bytes of a path below a domain's own directory, and of any that is not below such a directory.
pub const RELATIVE_PATH_BYTES: usize = limit::RELATIVE_PATH_BYTES as usize;

/// Nodes that a domain owns.
pub const MAX_NODES: usize = 1000;

/// Bytes of a node of a domain's: its value, its permissions and its children's names.
pub const NODE_BYTES: usize = 2048;

/// Permissions of a node.
pub const MAX_PERMISSIONS: usize = 5;

/// Watches of a client.
pub const MAX_WATCHES: usize = 128;

/// Transactions of a client at the same time.
pub const MAX_TRANSACTIONS: usize = 10;

/// Nodes that a transaction uses.
pub const MAX_TRANSACTION_NODES: usize = 1024;

/// Changes that a transaction makes; one request makes several where it makes parents.
pub const MAX_TRANSACTION_CHANGES: usize = 1024;

/// Bytes of replies that wait for a client. Beyond that, its requests wait.
pub const REPLY_BYTES: usize = 16 << 10;

/// Events that wait for a client. Beyond that, those of a watch become one, for the watch's own path.
pub const MAX_EVENTS: usize = 256;

/// Bytes of the names and values that a transaction remembers.
pub const TRANSACTION_BYTES: usize = 256 << 10;
