//! `biv man [DIR]`: the man pages, from what clap knows of the command line and from the tables
//! here.

use std::io::{self, Write};
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_mangen::Man as Page;
use clap_mangen::roff::{Roff, bold, roman};

use crate::cli::{Cli, Man};
use api::status;

/// Examples of biv(1): what a line does, and the line.
const EXAMPLES: [(&str, &str); 8] = [
    ("One command in a fresh machine, with the files of the host:", "biv run -- uname -a"),
    (
        "The current directory is the host's; everything else stays in the guest:",
        "biv run -- make -j2",
    ),
    ("A shell:", "biv run"),
    ("Streams go in and out:", "tar c src | biv run -- sh -c 'tar x && wc -l src/*' >lines"),
    (
        "A server in the background, with a port of the host's:",
        "biv run -d --name web --publish 8080:80 --image web -- nginx -g 'daemon off;'",
    ),
    ("Another command in it, and what it has written:", "biv exec -it web sh; biv logs -f web"),
    (
        "All of it in a file, from which others go on:",
        "biv snapshot web web.snapshot; biv restore -d --name web2 web.snapshot",
    ),
    ("A kernel of one's own:", "biv run --kernel vmlinuz --initrd initrd.img --append 'ro quiet'"),
];

/// Files and directories.
const FILES: [(&str, &str); 6] = [
    (
        "$XDG_CACHE_HOME/bivouac",
        "The default guest, kernels, images, and snapshots for warm starts; ~/.cache/bivouac \
         without the \
         variable. It may be removed while no machine runs.",
    ),
    (
        "$XDG_CONFIG_HOME/bivouac/run.conf",
        "Options of biv run that every machine is to have, one in each line, before those of the \
         command line; below ~/.config without the variable.",
    ),
    (
        "$XDG_RUNTIME_DIR/bivouac/NAME",
        "A domain: its lock, record, log and control socket. Without the variable \
         /run/user/UID/bivouac, \
         for the superuser /run/bivouac, else /tmp/bivouac-UID.",
    ),
    (
        "$XDG_RUNTIME_DIR/bivouac/.pods/NAME",
        "A pod: the same. What it writes is in memory that only the pod has.",
    ),
    ("$XDG_RUNTIME_DIR/bivouac/.serve", "The socket of biv serve."),
    ("/tmp/perf-PID.map", "Names of translated code for perf(1), with --perf-map."),
];

/// Variables.
const ENVIRONMENT: [(&str, &str); 7] = [
    ("XDG_CACHE_HOME, HOME", "Where the cache is."),
    ("XDG_RUNTIME_DIR", "Where domains are."),
    ("BIV_CONFIG", "The file with options of biv run; if it is empty, there is none."),
    ("TERM", "The kind of terminal that a command on a terminal is told of."),
    (
        "BIVOUAC_COLD",
        "If it is set, machines boot, and do not go on from a snapshot (as with --cold).",
    ),
    (
        "BIVOUAC_DEBIAN_MIRROR",
        "A mirror of Debian's archive, by HTTPS or HTTP, for hosts without apt; \
         https://deb.debian.org/debian without the variable. Debian's signatures are verified.",
    ),
    ("RUST_LOG", "What biv says of its own work on standard error, such as cpu=trace."),
];

/// Other manuals.
const SEE_ALSO: &str = "perf(1), passt(1), mmdebstrap(1), apt-get(8), tar(1), timeout(1), vsock(7)";

/// Prints biv(1), or writes it and a page for each verb into a directory.
pub fn man(arguments: &Man) -> io::Result<()> {
    let mut command = complete(Cli::command());
    command.build();
    match &arguments.directory {
        Some(directory) => {
            let write = || {
                std::fs::create_dir_all(directory)?;
                write_all(&command, directory)
            };
            write().map_err(|error| {
                let place = directory.display();
                io::Error::new(error.kind(), format!("cannot write pages to {place}: {error}"))
            })
        }
        None => io::stdout().write_all(&page(&command)?),
    }
}

/// The pages of a command and of what is below it.
fn write_all(command: &Command, directory: &Path) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    std::fs::write(directory.join(format!("{name}.1")), page(command)?)?;
    let mut shown = command.get_subcommands().filter(|verb| is_shown(verb));
    shown.try_for_each(|verb| write_all(verb, directory))
}

fn is_shown(verb: &Command) -> bool {
    !verb.is_hide_set() && verb.get_name() != "help"
}

/// A page has what `--help` has, also of what `-h` leaves out.
fn complete(command: Command) -> Command {
    let command = command.mut_args(|argument| argument.hide_short_help(false));
    command.mut_subcommands(complete)
}

/// The page of a command.
fn page(command: &Command) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let page = Page::new(command.clone());
    page.render_title(&mut out)?;
    page.render_name_section(&mut out)?;
    page.render_synopsis_section(&mut out)?;
    page.render_description_section(&mut out)?;
    page.render_options_section(&mut out)?;
    let verbs: Vec<_> = command.get_subcommands().filter(|verb| is_shown(verb)).collect();
    if !verbs.is_empty() {
        page.render_subcommands_section(&mut out)?;
    }
    if command.get_after_help().is_some() {
        exit_status().to_writer(&mut out)?;
    }
    let is_first = command.get_name() == "biv";
    if is_first {
        let mut roff = Roff::new();
        section(&mut roff, "EXAMPLES");
        for (what, line) in EXAMPLES {
            roff.control("PP", []).text([roman(what)]);
            roff.control("PP", []).control("RS", ["4"]).text([bold(line)]).control("RE", []);
        }
        list(&mut roff, "FILES", &FILES);
        list(&mut roff, "ENVIRONMENT", &ENVIRONMENT);
        roff.to_writer(&mut out)?;
    }
    see_also(is_first.then_some(&verbs[..]), command).to_writer(&mut out)?;
    page.render_version_section(&mut out)?;
    Ok(out)
}

fn section(roff: &mut Roff, name: &str) {
    roff.control("SH", [name]);
}

/// Names, each with what is to be said of it.
fn list(roff: &mut Roff, name: &str, items: &[(&str, &str)]) {
    section(roff, name);
    for (item, what) in items {
        roff.control("TP", []).text([bold(*item)]).text([roman(*what)]);
    }
}

/// [`status::HELP`] as a list.
fn exit_status() -> Roff {
    let mut roff = Roff::new();
    let lines = status::HELP.lines().skip(1).filter_map(|line| line.trim().split_once(' '));
    let items: Vec<_> = lines.map(|(status, what)| (status, what.trim())).collect();
    list(&mut roff, "EXIT STATUS", &items);
    roff
}

/// The pages of the verbs, or the first page.
fn see_also(verbs: Option<&[&Command]>, command: &Command) -> Roff {
    let mut roff = Roff::new();
    section(&mut roff, "SEE ALSO");
    let pages = match verbs {
        Some(verbs) => {
            let pages = verbs.iter().map(|verb| format!("biv-{}(1)", verb.get_name()));
            pages.collect::<Vec<_>>().join(", ")
        }
        None => {
            let below = command.get_subcommands().filter(|verb| is_shown(verb));
            let name = command.get_display_name().unwrap_or_default();
            let below = below.map(|verb| format!(", {name}-{}(1)", verb.get_name()));
            format!("biv(1){}", below.collect::<String>())
        }
    };
    roff.text([roman(format!("{pages}, {SEE_ALSO}"))]);
    roff
}
