//! `biv man [DIR]`.

use std::io::{self, Write};

use clap::CommandFactory;

use crate::cli::{Cli, Man};

/// Prints biv(1), or writes it and a page for each verb into a directory.
pub fn man(arguments: &Man) -> io::Result<()> {
    match &arguments.directory {
        Some(directory) => {
            let write = || {
                std::fs::create_dir_all(directory)?;
                clap_mangen::generate_to(Cli::command(), directory)
            };
            write().map_err(|error| {
                let place = directory.display();
                io::Error::new(error.kind(), format!("cannot write pages to {place}: {error}"))
            })
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut page)?;
            io::stdout().write_all(&page)
        }
    }
}
