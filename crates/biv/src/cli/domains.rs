//! The command line of the verbs about existing domains.

use std::ffi::OsString;
use std::str::FromStr;
use std::time::SystemTime;

use clap::{Args, ValueHint};
use clap_complete::ArgValueCandidates;
use session::signal_number;
use spec::Name;

use super::{Environment, Format};
use crate::candidates;

/// List domains: machines that are detached or have a name.
///
/// Only running domains are shown by default.
#[derive(Debug, Args)]
pub struct Ps {
    /// Show all domains, including those that have ended
    #[arg(short, long)]
    pub all: bool,

    /// Print names only
    #[arg(short, long, conflicts_with = "format")]
    pub quiet: bool,

    /// Show domains only of which this holds: name=TEXT, TEXT is in the name; state=STATE, it is in that state, such as
    /// running, paused, failed, killed or ended; label=NAME or label=NAME=VALUE, it has that label; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub filter: Vec<Filter>,

    /// Do not truncate commands to the width of the terminal
    #[arg(long)]
    pub no_trunc: bool,

    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// What is to hold of a domain that is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filter {
    /// It has this label, with this value if there is one.
    Label(String, Option<String>),
    /// Its name has this in it.
    Name(String),
    /// Its state is this, or begins with it.
    State(String),
}

impl FromStr for Filter {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('=') {
            Some(("name", name)) => Ok(Self::Name(name.to_owned())),
            Some(("state" | "status", state)) => Ok(Self::State(state.to_owned())),
            Some(("label", label)) => Ok(match label.split_once('=') {
                Some((name, value)) => Self::Label(name.to_owned(), Some(value.to_owned())),
                None => Self::Label(label.to_owned(), None),
            }),
            _ => Err("give name=TEXT, state=STATE, label=NAME or label=NAME=VALUE"),
        }
    }
}

/// Which domains a verb is for.
#[derive(Debug, Args)]
pub struct Which {
    /// All domains for which there is something to do
    #[arg(short, long, conflicts_with = "names")]
    pub all: bool,

    /// Names of the domains
    #[arg(required_unless_present = "all", value_name = "NAME",
        add = ArgValueCandidates::new(candidates::names))]
    pub names: Vec<String>,
}

/// Fetch the logs of a detached domain.
///
/// The command's standard output goes to standard output and its standard error to standard error, in the order in
/// which they were written. The last 4 to 8 MiB are kept. If the domain ended for another reason than its command's
/// exit, the reason is printed last, on standard error.
#[derive(Debug, Args)]
pub struct Logs {
    /// What of it.
    #[command(flatten)]
    pub view: LogView,

    /// Show the output of the domain's console instead of the command's
    #[arg(long)]
    pub console: bool,

    /// Name of the domain
    #[arg(add = ArgValueCandidates::new(candidates::names))]
    pub name: String,
}

/// What is shown of a log.
#[derive(Debug, Args)]
pub struct LogView {
    /// Follow the log output until the end
    #[arg(short, long)]
    pub follow: bool,

    /// Show only the last N lines
    #[arg(short = 'n', long, value_name = "N")]
    pub tail: Option<usize>,

    /// Show only what was written at TIME or later: a time such as 2026-01-31T10:20:30Z, or how long ago, such as 10m
    /// or 1h30m
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub since: Option<SystemTime>,

    /// Show only what was written before TIME, as with --since
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub until: Option<SystemTime>,

    /// Show a timestamp before each line
    #[arg(short, long)]
    pub timestamps: bool,
}

/// Display the description and the state of domains as JSON.
#[derive(Debug, Args)]
pub struct Inspect {
    /// Names of the domains
    #[arg(required = true, value_name = "NAME",
        add = ArgValueCandidates::new(candidates::names))]
    pub names: Vec<String>,
}

/// Stop domains: ask each to shut down, and end it if it does not in time.
///
/// In a guest that runs Bivouac's init, all commands get SIGTERM (on a terminal also SIGHUP), and the machine powers
/// off when the first command has ended. Any other guest gets an ACPI power-button event.
#[derive(Debug, Args)]
pub struct Stop {
    /// Seconds to wait before the domain is ended
    #[arg(short, long, value_name = "SECONDS", default_value = "10")]
    pub time: u64,

    /// Which
    #[command(flatten)]
    pub which: Which,
}

/// Start domains again that have ended.
///
/// A domain starts as it was started first: by its description, in the directory of that time. What was in its memory
/// is lost, which means all that its guest has written but what is in directories and on disks of the host. Its log
/// goes on. One that runs is left alone.
#[derive(Debug, Args)]
pub struct Start {
    /// Which
    #[command(flatten)]
    pub which: Which,
}

/// Stop domains, and start them again, as `biv stop` and `biv start` do.
///
/// Domains that have ended are started.
#[derive(Debug, Args)]
pub struct Restart {
    /// Seconds to wait before a domain is ended
    #[arg(short, long, value_name = "SECONDS", default_value = "10")]
    pub time: u64,

    /// Which
    #[command(flatten)]
    pub which: Which,
}

/// Rename a domain.
#[derive(Debug, Args)]
pub struct Rename {
    /// Name of the domain
    #[arg(add = ArgValueCandidates::new(candidates::names))]
    pub name: String,

    /// Its new name
    #[arg(value_name = "NEW")]
    pub new_name: Name,
}

/// List the processes of a domain's guest, by the guest's own ps(1).
#[derive(Debug, Args)]
pub struct Top {
    /// Name of the domain
    #[arg(add = ArgValueCandidates::new(candidates::names))]
    pub name: String,

    /// Options of ps
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTION")]
    pub options: Vec<OsString>,
}

/// Kill domains, or send a signal to their commands.
#[derive(Debug, Args)]
pub struct Kill {
    /// Signal to send to the command, by name or number; KILL ends the machine
    #[arg(short, long, value_name = "SIGNAL", default_value = "KILL", value_parser = parse_signal)]
    pub signal: u8,

    /// Which
    #[command(flatten)]
    pub which: Which,
}

/// Run a command in a running domain.
///
/// As with `biv run`, the command uses the standard streams of biv and receives its signals, and biv exits with the
/// command's status. Ctrl-] three times within a second hangs up.
#[derive(Debug, Args)]
pub struct Exec {
    /// Keep standard input open and forward it to the command
    #[arg(short, long)]
    pub interactive: bool,

    /// Allocate a pseudo-terminal for the command
    #[arg(short, long)]
    pub tty: bool,

    /// Run the command as USER or USER:GROUP, by name or number [default: as `biv run --user` or the domain's image
    /// says, or root]
    #[arg(short, long, value_name = "USER")]
    pub user: Option<String>,

    /// Working directory of the command [default: as `biv run --workdir` or the domain's image says, or /]
    #[arg(short, long, value_name = "DIR")]
    pub workdir: Option<OsString>,

    /// Its environment, beside what `biv run` and the domain's image say
    #[command(flatten)]
    pub environment: Environment,

    /// Name of the domain
    #[arg(add = ArgValueCandidates::new(candidates::names))]
    pub name: String,

    /// Command to run, and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub command: Vec<OsString>,
}

impl Exec {
    /// A command of root's in /, whatever the domain's command is told to be.
    pub fn of_root(name: String, command: Vec<OsString>) -> Self {
        Self {
            interactive: false,
            tty: false,
            user: Some("root".to_owned()),
            workdir: Some("/".into()),
            environment: Environment::default(),
            name,
            command,
        }
    }
}

/// Copy files between the host and a running domain.
///
/// One of FROM and TO is NAME:PATH, a path in the domain's guest. The other is a path on the host, or "-" for a tar
/// archive on standard input or output. As with cp -r, an existing directory TO receives the copy, and a TO that does
/// not exist is created; "DIR/." copies only the contents of DIR. Permissions, times and symbolic links are preserved.
/// Write "./" or "/" before a path on the host that contains a colon.
///
/// Files from a guest are not trusted: none is written outside TO, and devices are skipped. Without --archive,
/// set-user-ID and set-group-ID bits are cleared.
#[derive(Debug, Args)]
pub struct Cp {
    /// Preserve owners [default: files belong to the user of the command in the guest, and to you on the
    /// host]
    #[arg(short, long)]
    pub archive: bool,

    /// If FROM is a symbolic link, copy its target
    #[arg(short = 'L', long)]
    pub follow_link: bool,

    /// Source: NAME:PATH, PATH, or - for an archive, which is extracted into the directory TO
    #[arg(value_name = "FROM", value_hint = ValueHint::AnyPath)]
    pub from: OsString,

    /// Destination: PATH, - for an archive, or NAME:PATH
    #[arg(value_name = "TO", value_hint = ValueHint::AnyPath)]
    pub to: OsString,
}

/// Connect to the console of a running domain.
///
/// A guest that runs Bivouac's init starts a shell there; any other guest has whatever it runs on its console. The
/// console's last output is shown first. Several terminals can be connected at once. Ctrl-] disconnects.
#[derive(Debug, Args)]
pub struct Console {
    /// Name of the domain
    #[arg(add = ArgValueCandidates::new(candidates::names))]
    pub name: String,
}

/// Attach to the command that a domain was started for: its output and its exit status.
///
/// `biv logs` has the earlier output. On a terminal, Ctrl-] detaches, and the command goes on.
#[derive(Debug, Args)]
pub struct Attach {
    /// Do not forward standard input
    #[arg(long)]
    pub no_stdin: bool,

    /// Forward SIGINT (Ctrl-C) and SIGQUIT to the command; with false, they detach. Other signals always detach
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub sig_proxy: bool,

    /// Name of the domain
    #[arg(add = ArgValueCandidates::new(candidates::names))]
    pub name: String,
}

/// Set the target size of a domain's memory balloon.
///
/// A guest with a driver for the virtio balloon returns memory until it has SIZE left, as far as it can, and takes
/// memory back when it runs out. `biv stats` shows its size. Free pages are reported to the host in any case.
#[derive(Debug, Args)]
pub struct Balloon {
    /// Name of the domain
    #[arg(add = ArgValueCandidates::new(candidates::names))]
    pub name: String,

    /// Memory that the guest keeps, such as 512M; a larger size than the machine's gives it all
    #[arg(value_name = "SIZE", value_parser = spec::parse_size)]
    pub size: u64,
}

/// Pause the processors of domains, until `biv resume`.
///
/// The guest's clock goes on meanwhile, and the guest is told. Commands that need an answer from the guest (exec, cp,
/// attach, console, snapshot, a signal for its command) fail; stop and kill end the domain.
#[derive(Debug, Args)]
pub struct Pause {
    /// Which
    #[command(flatten)]
    pub which: Which,
}

/// Resume paused domains.
#[derive(Debug, Args)]
pub struct Resume {
    /// Which
    #[command(flatten)]
    pub which: Which,
}

/// Save a snapshot of a running domain to a file, for `biv restore`. The domain is paused for a moment only, and goes
/// on.
///
/// Shared directories and disks of the host are not part of the snapshot. The file contains all of the guest's memory,
/// keys and passwords included; only its owner can read it.
#[derive(Debug, Args)]
pub struct Snapshot {
    /// Compress the guest's memory
    #[arg(long)]
    pub compress: bool,

    /// Overwrite FILE if it exists
    #[arg(short, long)]
    pub force: bool,

    /// Format of the report; text reports only errors
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,

    /// Name of the domain
    #[arg(add = ArgValueCandidates::new(candidates::names))]
    pub name: String,

    /// File to write
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: std::path::PathBuf,
}

/// Display the resource usage of domains, every second until Ctrl-C.
#[derive(Debug, Args)]
pub struct Stats {
    /// Display the first result only
    #[arg(long)]
    pub once: bool,

    /// Output format; JSON is printed once
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,

    /// Names of the domains [default: all]
    #[arg(value_name = "NAME", add = ArgValueCandidates::new(candidates::names))]
    pub names: Vec<String>,
}

/// Wait until domains have ended, and print their exit statuses.
#[derive(Debug, Args)]
pub struct Wait {
    /// Which
    #[command(flatten)]
    pub which: Which,
}

/// Remove domains that have ended, with their logs.
#[derive(Debug, Args)]
pub struct Rm {
    /// Kill domains that still run, then remove them
    #[arg(short, long)]
    pub force: bool,

    /// Which
    #[command(flatten)]
    pub which: Which,
}

/// A time (RFC 3339, with or without "Z" and a time of day; in UTC), or a span before now.
fn parse_time(text: &str) -> Result<SystemTime, String> {
    if let Ok(span) = humantime::parse_duration(text) {
        let time = SystemTime::now().checked_sub(span);
        return time.ok_or_else(|| "that is too long ago".to_owned());
    }
    let day = format!("{text}T00:00:00");
    let full = if text.contains(['T', ' ']) { text } else { &day };
    humantime::parse_rfc3339_weak(full).map_err(|_| {
        "give a time, such as 2026-01-31T10:20:30Z or 2026-01-31, or a span, such as 10m".to_owned()
    })
}

/// A signal by name, with or without SIG, or by number.
pub(super) fn parse_signal(text: &str) -> Result<u8, String> {
    signal_number(text).ok_or_else(|| "there is no such signal".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_given_as_times_or_spans() {
        let at = |text| parse_time(text).unwrap().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        for text in
            ["2000-02-29T00:00:00Z", "2000-02-29T00:00:00", "2000-02-29 00:00:00", "2000-02-29"]
        {
            assert_eq!(at(text).as_secs(), 951_782_400, "{text}");
        }
        let then = parse_time("1h30m").unwrap();
        let ago = SystemTime::now().duration_since(then).unwrap();
        assert!((5400..5460).contains(&ago.as_secs()), "{ago:?}");
        for text in ["", "yesterday", "2000-02-30", "2000-02-29T25:00:00", "10", "-1m"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

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
