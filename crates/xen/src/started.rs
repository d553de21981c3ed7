//! The pages that a domain shares with its services from its start.

use xen_abi::Mfn;

/// What a started domain has of pages that it shares with services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Started {
    /// The page of the store's rings.
    pub(crate) store: Mfn,
    /// The page of the console's rings.
    pub(crate) console: Mfn,
}
