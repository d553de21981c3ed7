//! Domains that a kernel knows to be virtual: Xen's paravirtual interface, as `xen-abi` declares it.
//!
//! So far there is the [`builder`], which makes a domain's first memory from its kernel. It knows neither a
//! processor nor the host: memory and the numbers of its frames are handed to it.

#![forbid(unsafe_code)]

pub mod builder;
pub mod limits;
