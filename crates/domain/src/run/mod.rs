//! From a description to a running machine, and on to the end of its command.
//!
//! - [`checked`]: a description that has been checked.
//! - [`start`]: starts it here or in a detached process, which reads [`launch`]'s file, and may be its [`supervisor`];
//!   [`restore`]: starts from a snapshot. Both call [`runner`], which makes the configuration that
//!   `vmm` builds a machine from.
//! - [`guest`]: what boots, with its [`given_root`], [`directories`], [`image_disk`] (and its [`partitions`]) and
//!   [`files`]; [`image`]: what the command gets from its image; [`warm`]: starts from a snapshot of
//!   a booted guest.
//! - [`disk`], [`firmware`], [`backends`], [`plugged`]: the devices and their back-ends; [`devices`], [`order`]:
//!   what init must find, and what it is to run.
//! - [`sandbox`], [`host_resources`]: the host resources that a machine may have; [`shares`]: how much of the
//!   processors.
//! - [`machine`]: its thread; [`statistics`], [`tail`]: reports at its end.

mod backends;
pub mod boot_disk;
mod caches;
mod checked;
mod devices;
pub mod directories;
pub mod disk;
mod error;
mod files;
mod firmware;
mod given_kernel;
mod given_root;
mod guest;
pub mod host_resources;
pub mod image;
pub mod image_disk;
pub mod launch;
mod machine;
mod modules;
mod order;
mod owners;
mod paravirtual;
mod partitions;
mod plugged;
pub mod ports;
pub mod restore;
mod runner;
pub mod sandbox;
mod shares;
mod start;
mod statistics;
mod supervisor;
mod tail;
mod warm;

pub use checked::CheckedSpec;
pub use error::Error;
pub use start::{carry_out, go_on, launch, serve_disk, start_again};
