//! The command line, from which the help, the man pages and the completions are made.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum, ValueHint};

use crate::domain::Name;
use crate::life::cli as life;
use crate::network::{Net, Published};
use crate::provision::kernels::Flavour;
use crate::run::directories::Volume;
use crate::run::disk;
use crate::run::surroundings::Surroundings;
use crate::{inspect, size, status};

mod processes;

pub use self::processes::{
    BoundPort, NetworkProcess, SealProcess, ServeFiles, SocketsProcess, UnpackProcess,
};

/// Run virtual machines anywhere a Linux process can run.
///
/// Bivouac boots an unmodified x86-64 kernel in an ordinary process: no hardware virtualization,
/// no kernel module, no root. Where hardware KVM is at hand, use that instead.
#[derive(Debug, Parser)]
#[command(name = "biv", version, propagate_version = true, after_help = status::HELP)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[expect(missing_docs, reason = "what is said here would replace what is said of the arguments")]
#[derive(Debug, Subcommand)]
pub enum Verb {
    Run(Box<Run>),
    Restore(Box<Restore>),
    Ps(life::Ps),
    Logs(life::Logs),
    Inspect(life::Inspect),
    Stop(life::Stop),
    Kill(life::Kill),
    Exec(life::Exec),
    Cp(life::Cp),
    Console(life::Console),
    Attach(life::Attach),
    Balloon(life::Balloon),
    Pause(life::Pause),
    Resume(life::Resume),
    Snapshot(life::Snapshot),
    Stats(life::Stats),
    Wait(life::Wait),
    Rm(life::Rm),
    Kernel(Kernel),
    Image(Image),
    Doctor(Doctor),
    Debug(Debug),
    #[command(hide = true)]
    ServeFiles(ServeFiles),
    #[command(hide = true)]
    Network(NetworkProcess),
    #[command(hide = true)]
    Sockets(SocketsProcess),
    #[command(hide = true)]
    Seal(SealProcess),
    #[command(hide = true)]
    Unpack(UnpackProcess),
    Completions(Completions),
    Man(Man),
}

/// Where the help puts what is for measuring.
const MEASURING: &str = "Measuring Bivouac";

/// Boot a machine and run a command in it, or an interactive shell.
///
/// The machine looks like the host: its root is the host's, what is written there stays in the machine's
/// memory, and only the current directory is written to (not your home directory; see --here). Its kernel is
/// Debian's for cloud machines (6.12 or later, where apt has that), which apt downloads once, into
/// $XDG_CACHE_HOME/bivouac (--refresh: again), as it does busybox for --busybox. The machine disappears with the command; nothing is kept. With --initrd and no COMMAND, and with a --kernel
/// that is an ELF file and neither a root nor COMMAND, it is a plain machine: its serial console is on
/// standard input and output.
///
/// On a terminal, Ctrl-] three times within a second ends the machine.
#[derive(Debug, Args)]
#[command(after_help = status::HELP)]
pub struct Run {
    /// Boot this kernel: a bzImage, an ELF file with a PVH note or a Multiboot header, or the version of
    /// one that `biv kernel` has fetched, such as 6.12
    #[arg(long, value_name = "FILE|VERSION", value_hint = ValueHint::FilePath)]
    pub kernel: Option<PathBuf>,

    /// Load this initial RAM disk (for Multiboot kernels: modules, as "FILE ARG...,FILE ARG...")
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "root")]
    pub initrd: Option<PathBuf>,

    /// Add STRING to the kernel's command line
    #[arg(long, value_name = "STRING", allow_hyphen_values = true)]
    pub append: Option<String>,

    /// Fetch what is used of the default guest again, for a newer one
    #[arg(long)]
    pub refresh: bool,

    /// Give the machine SIZE of memory, such as 512M or 8G
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size::parse)]
    pub mem: u64,

    /// Give the machine N processors, 1 to 16
    #[arg(long, value_name = "N", default_value = "1",
        value_parser = clap::value_parser!(u8).range(1..=vmm::MAX_PROCESSORS as i64))]
    pub cpus: u8,

    /// Use DIR as the guest's file system; what is written there stays in memory, unless --root-rw is
    /// given [default: /, with the current directory writable, and without keys, tokens and passwords in
    /// home directories, which --root / shows]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub root: Option<PathBuf>,

    /// Give the machine a disk (virtio): /dev/vda is the first, /dev/vdb the second. FILE is a raw or
    /// qcow2 image, or a block device; ",ro": it cannot be written; ",snapshot": what the guest writes
    /// vanishes with it; ",format=raw" or ",format=qcow2": FILE is that, whatever it looks like;
    /// ",backing=OTHER" and ",data-file=OTHER": the image may refer to that file
    #[arg(long, value_name = "FILE[,ro][,snapshot]", value_hint = ValueHint::FilePath,
        value_parser = OsStringValueParser::new().try_map(disk::parse_disk))]
    pub disk: Vec<disk::Argument>,

    /// Use the file system on a disk as the guest's, which is /dev/vda then; what FILE can be, and what
    /// can be said of it, is as with --disk. ",part=N": the Nth partition instead of all of it
    #[arg(long, value_name = "FILE[,part=N]", value_hint = ValueHint::FilePath,
        conflicts_with_all = ["root", "busybox", "initrd"],
        value_parser = OsStringValueParser::new().try_map(disk::parse_root))]
    pub root_disk: Option<disk::Root>,

    /// Use the root file system that `biv image build` has made under that name
    #[arg(long, value_name = "NAME", conflicts_with_all = ["root", "initrd", "busybox"])]
    pub image: Option<String>,

    /// Let the guest write to the directory that --root names
    #[arg(long, requires = "root")]
    pub root_rw: bool,

    /// Let the guest give files in that directory set-user-ID and set-group-ID bits and `security.*`
    /// attributes, which hold for the users of the host as well
    #[arg(long, requires = "root_rw")]
    pub root_suid: bool,

    /// Let the guest write to the current directory also where that is your home directory, or has it in it
    #[arg(long, conflicts_with_all = ["root", "image", "busybox", "initrd", "root_disk"])]
    pub here: bool,

    /// Run what you do not trust: with busybox unless a root is named (--image, --root), no network, the
    /// current directory only to be read, for 300 seconds, and without what makes the guest's kernel fast at
    /// the price of having it closer (--without mirror). What else is said holds, such as --net or --timeout
    #[arg(long, conflicts_with_all = ["here", "root_rw", "no_seccomp"])]
    pub sandbox: bool,

    /// Show the directory HOST in the guest at GUEST, writable unless ":ro" is added; may be repeated. A guest
    /// that cannot have it runs no command (status 125). ":suid": as --root-suid; ":anyfs": also file systems of
    /// kinds that biv does not know. Faster: ":exclusive", nobody else changes it while the machine runs;
    /// ":writeback", the same, and what is written comes when files are closed; ":noxattr", without extended
    /// attributes. Several have commas between them
    #[arg(long, value_name = "HOST:GUEST[:ro]")]
    pub volume: Vec<Volume>,

    /// Use a small file system with nothing but busybox, in memory
    #[arg(long, conflicts_with_all = ["root", "initrd"])]
    pub busybox: bool,

    /// Give the machine an entropy device (virtio), which gives the host's randomness
    #[arg(long)]
    pub entropy: bool,

    /// Connect the machine: none; user, to what you may reach but this host, without any privilege (the
    /// default, but for plain machines); user,host, to servers on this host, too, at 10.0.2.2;
    /// user,host,backend=passt, by passt; tap:NAME, to an interface of the host's
    #[arg(long, value_name = "NETWORK")]
    pub net: Option<Net>,

    /// Lead a port of the host's to one of the guest's: [IP:]HOSTPORT:GUESTPORT[/udp]. Only this host
    /// reaches it, unless IP is another address than 127.0.0.1; 0.0.0.0 stands for all
    #[arg(short, long, value_name = "PORTS")]
    pub publish: Vec<Published>,

    /// Connect the machine's virtio sockets (vsock) to Unix sockets: a program that connects to PATH and says
    /// "CONNECT N" hears "OK" and is connected to the guest's port N; a guest that connects to port N of the
    /// host's (address 2) is connected to PATH_N. ",cid=N": the guest's address is N, not 3
    #[arg(long, value_name = "PATH[,cid=N]", value_parser = crate::vsock::parse)]
    pub vsock: Option<crate::vsock::Vsock>,

    /// End the machine after SECONDS, with status 124
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub timeout: Option<std::time::Duration>,

    /// Write the guest's serial console to FILE
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub console: Option<PathBuf>,

    /// Give the machine a debug console at port 0xe9, and write what is sent there to FILE
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub debug_console: Option<PathBuf>,

    /// End when the guest reboots, instead of rebooting it
    #[arg(long)]
    pub no_reboot: bool,

    /// Give the machine a port at 0xf4 by which it ends with status (VALUE << 1) | 1
    #[arg(long)]
    pub debug_exit: bool,

    /// Go on without us: return when COMMAND runs, and print the domain's name (see biv ps, biv logs)
    #[arg(short, long)]
    pub detach: bool,

    /// Call the domain NAME; without a name, a detached one gets one that is made up, and another is nothing
    /// that other commands know
    #[arg(long, value_name = "NAME")]
    pub name: Option<Name>,

    /// Keep nothing of a detached domain when it has ended
    #[arg(long)]
    pub rm: bool,

    /// Leave COMMAND's standard input open, for biv attach, if the domain is detached
    #[arg(short, long, requires = "detach")]
    pub interactive: bool,

    /// Run COMMAND on a terminal of its own in the guest
    #[arg(short, long)]
    pub tty: bool,

    /// Boot, instead of going on from a snapshot that an earlier machine of the same kind has left in
    /// $XDG_CACHE_HOME/bivouac
    #[arg(long)]
    pub cold: bool,

    /// Execute the guest's user code this way
    #[arg(long, value_name = "HOW", value_enum, default_value_t, conflicts_with = "interpret")]
    pub user_exec: UserExec,

    /// Interpret every instruction instead of translating (slow; to find faults in the engine)
    #[arg(long, hide_short_help = true)]
    pub interpret: bool,

    /// Say on standard error, at the end, what the engine did
    #[arg(long, hide_short_help = true)]
    pub stats: bool,

    /// Let the machine's process make any system call (to debug Bivouac; not for guests that you
    /// do not trust)
    #[arg(long, hide_short_help = true)]
    pub no_seccomp: bool,

    /// Do without these techniques, which make guest code fast, to measure what each is worth:
    /// mirror, links, far-links, returns, handover, relocation, physical-jumps, spans, crossings,
    /// strings, inline, entries, assists, extended-state, batches, premap, copies, or all (slow;
    /// docs/measuring.md explains them)
    #[arg(long, value_name = "LIST", value_parser = vmm::Techniques::all_without,
        conflicts_with = "interpret", hide_short_help = true, help_heading = MEASURING)]
    pub without: Option<vmm::Techniques>,

    /// What is to be seen of the engine.
    #[command(flatten)]
    pub inspect: inspect::Options,

    /// Say more: the kernel's messages and Bivouac's own (-vv: its details)
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,

    /// What to run in the guest, and its arguments
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// Go on from a snapshot that `biv snapshot` has taken: the same processors, devices and memory, and all that
/// runs in it.
///
/// What it has of the host is what `biv run` gave it then (directories, disks, which must be as the guest
/// remembers them, network, ports), unless something else is said here. That holds for a snapshot that you have
/// taken, with the key in $XDG_STATE_HOME/bivouac. One that was made elsewhere, or changed, has nothing of the
/// host but what is named here; biv says what it wants. Connections are lost. Any number of domains can go on
/// from one file; what they do not write, they share. The file must stay as it is while they run.
#[derive(Debug, Args)]
#[command(after_help = status::HELP)]
pub struct Restore {
    /// Go on without us: print the domain's name and return
    #[arg(short, long)]
    pub detach: bool,

    /// Call the domain NAME, instead of something made up
    #[arg(long, value_name = "NAME")]
    pub name: Option<Name>,

    /// Keep nothing of a detached domain when it has ended
    #[arg(long)]
    pub rm: bool,

    /// What the machine has of the host.
    #[command(flatten)]
    pub surroundings: Surroundings,

    /// Pass on nothing, whatever it was then
    #[arg(long, conflicts_with = "publish")]
    pub no_publish: bool,

    /// Look at the guest's memory only as it is needed, not before it starts
    #[arg(long)]
    pub no_verify: bool,

    /// Let the machine's process make any system call (to debug Bivouac; not for guests that you
    /// do not trust)
    #[arg(long, hide_short_help = true)]
    pub no_seccomp: bool,

    /// The snapshot
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
}

/// How user code is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum UserExec {
    /// Translated, always
    Translate,
    /// Natively, in helper processes; an error where that is impossible
    Direct,
    /// As suits each thread: natively if it computes, translated if it often calls its kernel
    #[default]
    Auto,
}

impl Cli {
    /// The command line, or the end of this process with what is wrong with it.
    #[must_use]
    pub fn of_process() -> Cli {
        let mut cli = Cli::parse();
        if let Verb::Run(run) = &mut cli.verb {
            crate::run::sandbox::settle(run);
        }
        let publish = match &cli.verb {
            Verb::Run(run) => check_ports(run.net.as_ref(), &run.publish),
            Verb::Restore(restore) => {
                check_ports(restore.surroundings.net.as_ref(), &restore.surroundings.publish)
            }
            _ => Ok(()),
        };
        if let Err(reason) = publish {
            Cli::command().error(ErrorKind::ArgumentConflict, reason).exit();
        }
        cli
    }
}

/// What is wrong with the ports that are to be published, whatever the machine is.
fn check_ports(net: Option<&Net>, ports: &[Published]) -> Result<(), String> {
    if let (Some(Net::None | Net::Tap(_)), [_, ..]) = (net, ports) {
        return Err("--publish needs a network of the user's own; give --net user".to_owned());
    }
    for (number, port) in ports.iter().enumerate() {
        if let Some(other) = ports[..number].iter().find(|other| other.collides_with(port)) {
            return Err(format!(
                "--publish {other} and --publish {port} want the same port of the host"
            ));
        }
    }
    Ok(())
}

impl Run {
    /// All disks, in order.
    pub(crate) fn disks(&self) -> impl Iterator<Item = &disk::Argument> {
        self.root_disk.iter().map(|root| &root.disk).chain(&self.disk)
    }

    /// How user code is executed. Who traces blocks wants to see it, unless told otherwise.
    pub(crate) fn user_execution(&self) -> vmm::UserExecution {
        match (self.user_exec, &self.inspect.trace_blocks) {
            (UserExec::Auto, Some(_)) => vmm::UserExecution::Translate,
            (how, _) => how.into(),
        }
    }
}

impl From<UserExec> for vmm::UserExecution {
    fn from(how: UserExec) -> Self {
        match how {
            UserExec::Translate => Self::Translate,
            UserExec::Direct => Self::Direct,
            UserExec::Auto => Self::Auto,
        }
    }
}

/// List, fetch and remove Debian's kernels, for `biv run --kernel VERSION`.
///
/// They are kept in $XDG_CACHE_HOME/bivouac, beside the default one, with the drivers of the machine's
/// devices. The host's apt fetches them, and checks them against Debian's signatures.
#[derive(Debug, Args)]
pub struct Kernel {
    /// What
    #[command(subcommand)]
    pub action: KernelAction,
}

/// What is done with kernels.
#[derive(Debug, Subcommand)]
pub enum KernelAction {
    /// List the kernels that are there
    Ls {
        /// How to print it
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Fetch a kernel
    Pull {
        /// Its version, such as 6.12 [default: the newest of the suite]
        version: Option<String>,

        /// Debian's suite, such as trixie [default: that of apt's sources, then its backports]
        #[arg(long, value_name = "NAME")]
        suite: Option<String>,

        /// For what it is built
        #[arg(long, value_enum, default_value_t)]
        flavour: Flavour,
    },
    /// Remove kernels, one for each VERSION
    Rm {
        /// Their versions, or as much of one as only one kernel begins with
        #[arg(required = true)]
        version: Vec<String>,
    },
}

/// List, make and remove root file systems of Debian's, for `biv run --image NAME`.
///
/// They are made by mmdebstrap, without privileges where the host allows that, and kept in
/// $XDG_CACHE_HOME/bivouac. Machines share them; what one writes stays in its memory. Files belong to whom they
/// belong to in Debian, in the guest; on the host they are yours.
#[derive(Debug, Args)]
pub struct Image {
    /// What
    #[command(subcommand)]
    pub action: ImageAction,
}

/// What is done with images.
#[derive(Debug, Subcommand)]
pub enum ImageAction {
    /// List the images that are there
    Ls {
        /// How to print it
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Make an image, in the place of one of that name
    Build {
        /// What it is to be called
        name: String,

        /// Debian's suite
        #[arg(long, value_name = "NAME", default_value = "bookworm")]
        suite: String,

        /// Packages besides the essential ones
        #[arg(long, value_name = "PACKAGE,...", value_delimiter = ',')]
        include: Vec<String>,
    },
    /// Remove images
    Rm {
        /// What they are called
        #[arg(required = true)]
        name: Vec<String>,
    },
}

/// Say what this host offers and what Bivouac uses of it.
#[derive(Debug, Args)]
pub struct Doctor {
    /// How to print it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Find faults of Bivouac itself.
#[derive(Debug, Args)]
pub struct Debug {
    /// How
    #[command(subcommand)]
    pub tool: DebugTool,
}

/// The tools.
#[expect(missing_docs, reason = "what is said here would replace what is said of the arguments")]
#[derive(Debug, Subcommand)]
pub enum DebugTool {
    Bisect(Bisect),
}

/// Find the block that is translated wrongly.
///
/// COMMAND is run many times, each time with other blocks of the guest's code interpreted instead of
/// translated, until it is known which have to be for it to succeed. It must run `biv run`, once, and
/// come to its end (--timeout), and it must fail the same way each time. Its input is empty, and what
/// it says is not shown.
#[derive(Debug, Args)]
pub struct Bisect {
    /// The exit status of COMMAND that is success
    #[arg(long, value_name = "STATUS", default_value = "0")]
    pub success: u8,

    /// Translate the blocks in FILE always: the list (--list-blocks) of a run that succeeds
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub except: Option<PathBuf>,

    /// Give up after N runs
    #[arg(long, value_name = "N", default_value = "200")]
    pub runs: usize,

    /// What to run, and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND",
        value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// Forms of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

/// Print a completion script for a shell.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// Print the man page, or write one for each verb into a directory.
#[derive(Debug, Args)]
pub struct Man {
    /// Write biv.1, biv-run.1 and so on here
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub directory: Option<PathBuf>,
}

pub(crate) fn parse_seconds(text: &str) -> Result<std::time::Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    match std::time::Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("not a time that could expire".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_help_names_every_technique() {
        let mut command = Cli::command();
        let run = command.find_subcommand_mut("run").expect("there is `run`");
        let help = run.render_long_help().to_string();
        for (_, name) in vmm::Technique::ALL {
            let names = help.split([' ', ',', '\n']).any(|word| word == name);
            assert!(names, "the help does not name {name}");
        }
    }

    #[test]
    fn ports_that_cannot_be_had_are_refused() {
        let check = |net: Option<&str>, ports: &[&str], is_good| {
            let net: Option<Net> = net.map(|text| text.parse().unwrap());
            let ports: Vec<Published> = ports.iter().map(|text| text.parse().unwrap()).collect();
            assert_eq!(check_ports(net.as_ref(), &ports).is_ok(), is_good, "{net:?} {ports:?}");
        };
        check(None, &["80:80", "81:80"], true);
        check(Some("user"), &["80:80", "80:80/udp"], true);
        check(Some("none"), &[], true);
        check(Some("none"), &["80:80"], false);
        check(Some("tap:a"), &["80:80"], false);
        check(None, &["80:80", "80:81"], false);
    }

    #[test]
    fn a_command_keeps_its_options() {
        let cli = Cli::try_parse_from(["biv", "run", "--mem", "2G", "--", "ls", "-l", "--", "-x"]);
        let Verb::Run(run) = cli.unwrap().verb else { panic!("not run") };
        assert_eq!(run.mem, 2 << 30);
        assert_eq!(run.command, ["ls", "-l", "--", "-x"]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let check = |arguments: &[&str]| {
            let line = ["biv", "run"].iter().chain(arguments);
            let error = Cli::try_parse_from(line).expect_err("accepted");
            assert_eq!(error.exit_code(), i32::from(status::USAGE), "{arguments:?}");
        };
        check(&["--mem", "lots"]);
        check(&["--timeout", "0"]);
        check(&["--cpus", "0"]);
        check(&["--cpus", "17"]);
        check(&["--cpus", "two"]);
        check(&["--user-exec", "fast"]);
        check(&["--user-exec", "direct", "--interpret"]);
        check(&["--without", "mirrors"]);
        check(&["--without", ""]);
        check(&["--without", "mirror", "--interpret"]);
        check(&["--disk", "a,rw"]);
        check(&["--disk", "a,part=1"]);
        check(&["--root-disk", "a,part=0"]);
        check(&["--root-disk", "a", "--root", "b"]);
        check(&["--timeout", "-1"]);
        check(&["--net", "bridge"]);
        check(&["--net", "tap:"]);
        check(&["--vsock", "a,cid=1"]);
        check(&["--publish", "80"]);
        check(&["--publish", "80:80/icmp"]);
        check(&["--timeout", "nan"]);
        check(&["--initrd", "a", "--root", "b"]);
        check(&["ls"]);
        check(&["--no-such-option"]);
    }
}
