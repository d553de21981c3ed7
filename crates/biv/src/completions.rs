//! `biv completions SHELL`, and what these scripts ask for when somebody completes a command line: `biv` itself, with
//! [`VARIABLE`] in its environment, which knows the options as well as the names that there are
//! ([`crate::candidates`]).

use std::io::{self, Write};

use clap::{CommandFactory, ValueEnum};
use clap_complete::env::{CompleteEnv, Shells};

use crate::cli::{Cli, Completions};

/// What is in the environment of a `biv` that completes. The usual name is somebody else's, too.
const VARIABLE: &str = "BIVOUAC_COMPLETE";

/// Completes a command line, if this process is to, and ends.
pub fn complete_if_asked() {
    CompleteEnv::with_factory(Cli::command).var(VARIABLE).complete();
}

/// Prints the completion script for a shell.
pub fn completions(arguments: &Completions) -> io::Result<()> {
    let mut script = Vec::new();
    let (shells, name) = (Shells::builtins(), arguments.shell.to_possible_value());
    let shell = name.as_ref().and_then(|name| shells.completer(name.get_name()));
    let shell = shell.ok_or_else(|| io::Error::other("no completions for this shell"))?;
    shell.write_registration(VARIABLE, "biv", "biv", "biv", &mut script)?;
    io::stdout().write_all(&script)
}
