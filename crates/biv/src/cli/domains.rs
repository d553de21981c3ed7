//! The command line of the verbs about domains that exist.

use std::ffi::OsString;

use clap::{Args, ValueHint};

use super::Format;

/// List domains: machines that are detached or have a name.
///
/// Those that run, or with --all those too that have ended and are kept.
#[derive(Debug, Args)]
pub struct Ps {
    /// List those too that have ended
    #[arg(short, long)]
    pub all: bool,

    /// Show commands in full, though the terminal is not as wide
    #[arg(long)]
    pub no_trunc: bool,

    /// How to print it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Show what a detached domain's command has written.
///
/// What it wrote to standard output goes to standard output, the rest to standard error, in the order in which
/// it came. The last 4 to 8 MiB are kept. Why a domain ended, if its command did not end by itself, is said
/// last, on standard error.
#[derive(Debug, Args)]
pub struct Logs {
    /// Go on until the domain ends
    #[arg(short, long)]
    pub follow: bool,

    /// Show the last N lines only
    #[arg(short = 'n', long, value_name = "N")]
    pub tail: Option<usize>,

    /// Say when each line was written
    #[arg(short, long)]
    pub timestamps: bool,

    /// Show what the domain's console has shown, instead
    #[arg(long)]
    pub console: bool,

    /// Whose
    pub name: String,
}

/// Show all that is known of a domain, as JSON.
#[derive(Debug, Args)]
pub struct Inspect {
    /// Of which
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
}

/// Ask a domain to end, and end it if it does not.
///
/// In a guest with an init of ours, commands get SIGTERM (on a terminal also SIGHUP), and the machine
/// switches itself off when the first one has ended. Another guest finds its power button pressed.
#[derive(Debug, Args)]
pub struct Stop {
    /// How long it may take
    #[arg(short, long, value_name = "SECONDS", default_value = "10")]
    pub time: u64,

    /// Which
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
}

/// End a domain at once, or send its command a signal.
#[derive(Debug, Args)]
pub struct Kill {
    /// Send this signal to its command, by name or number; KILL ends the machine
    #[arg(short, long, value_name = "SIGNAL", default_value = "KILL", value_parser = parse_signal)]
    pub signal: u8,

    /// Which
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
}

/// Run a command in a domain that runs.
///
/// It is run as by `biv run`: its streams are ours, it gets our signals, and we end with its status. Ctrl-] three
/// times within a second hangs up on it.
#[derive(Debug, Args)]
pub struct Exec {
    /// Give it our standard input
    #[arg(short, long)]
    pub interactive: bool,

    /// Run it on a terminal of its own
    #[arg(short, long)]
    pub tty: bool,

    /// Run it as this user, USER or USER:GROUP, by name or number
    #[arg(short, long, value_name = "USER")]
    pub user: Option<String>,

    /// Run it in this directory
    #[arg(short, long, value_name = "DIR", default_value = "/")]
    pub workdir: OsString,

    /// Set a variable of its environment
    #[arg(short, long, value_name = "NAME=VALUE")]
    pub env: Vec<OsString>,

    /// In which domain
    pub name: String,

    /// What to run, and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub command: Vec<OsString>,
}

/// Copy files between the host and a domain that runs.
///
/// One of the two is NAME:PATH, a path in the domain's guest; the other a path here, or "-" for a tar archive
/// on standard input or output. Where things go is as with cp -r: a directory that is there gets what is
/// copied, what is not there becomes it; of "DIR/." only what is in it is copied. Permissions, times and
/// symbolic links are kept. A name that has a colon and is of this host begins with "./" or "/".
///
/// What comes from a guest is not trusted: nothing of it gets out of TO, devices are left out, and so is,
/// without --archive, that programs run as their owner.
#[derive(Debug, Args)]
pub struct Cp {
    /// Keep owners, too [default: in the guest, files belong to the user that its command was started as;
    /// here, to you]
    #[arg(short, long)]
    pub archive: bool,

    /// If FROM is a symbolic link, copy what it leads to
    #[arg(short = 'L', long)]
    pub follow_link: bool,

    /// What to copy: NAME:PATH, PATH, or - for an archive, which is unpacked in a directory
    #[arg(value_name = "FROM", value_hint = ValueHint::AnyPath)]
    pub from: OsString,

    /// Where to: PATH or - for an archive, or NAME:PATH
    #[arg(value_name = "TO", value_hint = ValueHint::AnyPath)]
    pub to: OsString,
}

/// Sit down at the console of a domain that runs.
///
/// In a guest with an init of ours there is a shell for who does; in another there is what the guest has
/// there. What the console has shown last is shown first. Ctrl-] leaves it. There may be several at it.
#[derive(Debug, Args)]
pub struct Console {
    /// Of which
    pub name: String,
}

/// Watch the command that a domain was started for: what it writes, and how it ends.
///
/// What it has written before is in `biv logs`. On a terminal, Ctrl-] leaves it, and it goes on.
#[derive(Debug, Args)]
pub struct Attach {
    /// Do not give it our standard input
    #[arg(long)]
    pub no_stdin: bool,

    /// Pass SIGINT (Ctrl-C) and SIGQUIT on to it; with false, they end us. Others always do, and leave it alone
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub sig_proxy: bool,

    /// In which domain
    pub name: String,
}

/// Have a domain's guest do with less memory than the machine has, or with all of it.
///
/// The guest gives memory back as it can, if it has a driver for a virtio balloon, and takes it back when it
/// runs out; `biv stats` shows what it has. What it has free goes back to the host without being asked for.
#[derive(Debug, Args)]
pub struct Balloon {
    /// Which
    pub name: String,

    /// What it is to do with, such as 512M; more than the machine has: all of it
    #[arg(value_name = "SIZE", value_parser = spec::parse_size)]
    pub size: u64,
}

/// Let a domain's processors stand still, until `biv resume`.
///
/// The guest's clock goes on meanwhile, and the guest is told. What needs an answer of the guest's (exec, cp,
/// attach, console, snapshot, a signal for its command) is refused; stop and kill end it.
#[derive(Debug, Args)]
pub struct Pause {
    /// Which
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
}

/// Let a domain go on that stands still.
#[derive(Debug, Args)]
pub struct Resume {
    /// Which
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
}

/// Write a domain into a file, from which `biv restore` goes on, any number of times. The domain goes on as
/// well; it stands still for a moment only.
///
/// A directory or disk of the host's is not part of it. The file holds all that the guest has in memory,
/// keys and passwords too; only its owner can read it.
#[derive(Debug, Args)]
pub struct Snapshot {
    /// Compress the guest's memory
    #[arg(long)]
    pub compress: bool,

    /// Replace FILE if there is one
    #[arg(short, long)]
    pub force: bool,

    /// How to say what it took: in text, only what went wrong
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,

    /// Of which domain
    pub name: String,

    /// Where to
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: std::path::PathBuf,
}

/// Show what domains use, again every second until Ctrl-C.
#[derive(Debug, Args)]
pub struct Stats {
    /// Show it once
    #[arg(long)]
    pub once: bool,

    /// How to print it; as JSON, once
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,

    /// Of which; of all without a name
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
}

/// Wait until a domain has ended, and print its status.
#[derive(Debug, Args)]
pub struct Wait {
    /// Which
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
}

/// Remove what is kept of domains that have ended.
#[derive(Debug, Args)]
pub struct Rm {
    /// End those first that have not
    #[arg(short, long)]
    pub force: bool,

    /// Which
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
}

/// A signal by name, with or without SIG, or by number.
fn parse_signal(text: &str) -> Result<u8, String> {
    if let Ok(number @ 1..=64) = text.parse() {
        return Ok(number);
    }
    let name = text.to_ascii_uppercase();
    let name = if name.starts_with("SIG") { name } else { format!("SIG{name}") };
    let signal: Result<nix::sys::signal::Signal, _> = name.parse();
    signal.map(|signal| signal as u8).map_err(|_| "there is no such signal".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names_and_numbers() {
        let check = |text, expected| assert_eq!(parse_signal(text).ok(), expected, "{text}");
        check("9", Some(9));
        check("KILL", Some(9));
        check("SIGTERM", Some(15));
        check("hup", Some(1));
        check("64", Some(64));
        check("0", None);
        check("65", None);
        check("-1", None);
        check("", None);
        check("TERMINATE", None);
    }
}
