//! The domain's side of Xen's devices and of its store: a domain of a few frames, front-ends that put anything into
//! rings, and images in memory. The tests of `xen-io` and `xen-store` and the fuzzer drive back-ends with it.

#![forbid(unsafe_code)]

pub mod disk;
pub mod machine;
pub mod store;
