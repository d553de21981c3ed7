//! The store as its clients have it: the protocol, transactions, and what means harm.

mod hostile;
mod protocol;
mod support;
mod transactions;
