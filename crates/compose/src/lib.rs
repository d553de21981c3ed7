//! Compose files: several machines that belong together, in one YAML file, as Docker and podman-compose read them
//! (<https://compose-spec.io>).
//!
//! A project is read ([`Project::parse`]) and put in the order in which its services start. Each service becomes the
//! options of one `biv run` ([`Service::machine`]): so there is nothing that a service can have and a machine cannot,
//! and whoever wants to know what a service is starts it by hand.
//!
//! 1. *What is not understood is refused.* A word of the specification that means nothing here is an error, with the
//!    place in the file; a service that starts without what its file asks for would be found out too late.
//! 2. *Places are named from the file's own directory*, whatever the working directory of the caller. They may lie
//!    anywhere: who starts a project trusts its file.
//! 3. *Values are put into text after it has been parsed* ([`interpolate`]), so that no value of a variable changes
//!    what the file is.
//!
//! What it is not: who starts machines, or knows which of them run.

#![forbid(unsafe_code)]

mod health;
pub mod interpolate;
mod options;
mod order;
mod project;
mod words;

pub use health::Health;
pub use options::Machine;
pub use project::{Error, FILE_MAX_BYTES, Project, Service, When};

/// The label by which machines of a project are known: its name.
pub const PROJECT: &str = "bivouac.project";

/// The label with the name of a machine's service.
pub const SERVICE: &str = "bivouac.service";

/// The label that says what a machine was made from: two of the same are the same machine.
pub const CONFIGURATION: &str = "bivouac.configuration";
