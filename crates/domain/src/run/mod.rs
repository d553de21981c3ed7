//! From a description to a running machine, and on to the end of its command.
//!
//! - [`checked`]: a description that has been checked, from which all begins.
//! - [`start`]: here, or in a process that goes on by itself, which is told by [`launch`]'s file; [`restore`]: from a
//!   snapshot. Both come to [`runner`], which makes the configuration that `vmm` builds a machine from.
//! - [`guest`]: what boots, with its [`directories`], [`image_disk`] and [`files`]; [`warm`]: a guest that has booted.
//! - [`disk`], [`backends`], [`plugged`]: the devices and what they have of the host; [`devices`], [`order`]: what
//!   init must find, and what it is to run.
//! - [`sandbox`], [`surroundings`], [`homes`]: what of the host's a machine may have.
//! - [`machine`]: its thread; [`statistics`], [`tail`]: what is told of it.

mod backends;
mod checked;
mod devices;
pub mod directories;
pub mod disk;
mod error;
mod files;
mod guest;
pub mod homes;
pub mod image_disk;
pub mod launch;
mod machine;
mod order;
mod plugged;
pub mod restore;
mod runner;
pub mod sandbox;
mod start;
mod statistics;
pub mod surroundings;
mod tail;
mod warm;

pub use checked::CheckedSpec;
pub use error::Error;
pub use order::PATH;
pub use start::{carry_out, go_on, launch};
