//! The level of the log on standard error of a machine's processes.

use std::io;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

/// Starts to say it: as much as `verbose` wants (0 to 3), or part by part as `RUST_LOG` has it. A program that has
/// a subscriber of its own keeps that.
pub fn start(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::ERROR,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let parts = std::env::var("RUST_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_target(false)
        .without_time()
        .with_filter(parts.unwrap_or_else(|| Targets::new().with_default(level)));
    let _ = tracing_subscriber::registry().with(lines).try_init();
}
