//! `biv completions SHELL`.

use std::io::{self, Write};

use clap::CommandFactory;

use crate::cli::{Cli, Completions};

/// Prints the completion script for a shell.
pub fn completions(arguments: &Completions) -> io::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "biv", &mut script);
    io::stdout().write_all(&script)
}
