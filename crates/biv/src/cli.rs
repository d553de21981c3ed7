//! The command line, from which clap makes the help, the man pages and the completions.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::ArgValueCandidates;
use spec::{Directory, DiskRoot, HostRoot, Root};

use crate::candidates;
use api::status;
use domain::say::say;
use provision::kernels::Flavour;

mod cache;
mod compose;
mod configuration;
pub mod domains;
mod environment;
mod firmware;
mod format;
mod gdb;
mod habits;
mod hardware;
mod image;
mod networks;
pub mod pod;
pub mod pod_network;
mod ports;
mod restore;
mod run;
mod serve;
mod watch;
pub mod xen;

pub use self::cache::{Cache, CacheAction};
pub use self::compose::{Down, Up, Which};
use self::configuration::Arguments;
use self::domains as life;
pub use self::environment::Environment;
pub use self::format::Format;
pub use self::image::{ContainerImageAction, Pull};
use self::pod_network::PodNetwork;
pub use self::restore::Restore;
pub use self::run::{Run, UserExec};
pub use self::serve::Serve;
pub use self::watch::Options;

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
    Start(life::Start),
    Restart(life::Restart),
    Rename(life::Rename),
    Top(life::Top),
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
    Up(Up),
    Down(Down),
    Pod(pod::Pod),
    Network(PodNetwork),
    Xen(xen::Xen),
    Serve(Serve),
    Kernel(Kernel),
    Image(Image),
    Cache(Cache),
    Doctor(Doctor),
    Debug(Debug),
    Completions(Completions),
    Man(Man),
}

impl Cli {
    /// The command line, or the end of this process with what is wrong with it.
    #[must_use]
    pub fn of_process() -> Cli {
        let arguments = match Arguments::of_process() {
            Ok(arguments) => arguments,
            Err(reason) => Cli::command().error(ErrorKind::InvalidValue, reason).exit(),
        };
        Cli::of(arguments.all).unwrap_or_else(|error| {
            if let Some(file) = arguments.file.filter(|_| error.use_stderr()) {
                say(&format!(
                    "options of {} come before those of the command line",
                    file.display()
                ));
            }
            error.exit()
        })
    }

    /// A command line, with what is typed out of habit as it is meant.
    fn of(mut arguments: Vec<OsString>) -> Result<Cli, clap::Error> {
        loop {
            let cli = Cli::try_parse_from(&arguments)?;
            let Verb::Run(run) = &cli.verb else { return Ok(cli) };
            match habits::volume(&arguments, &run.command) {
                Some(place) => arguments[place] = "--volume".into(),
                None => return Ok(cli),
            }
        }
    }

    /// The end of this process: what was said makes no sense.
    pub fn refuse(reason: &str) -> ! {
        Cli::command().error(ErrorKind::ArgumentConflict, reason).exit()
    }
}

/// List, fetch and remove Debian's kernels, for `biv run --kernel VERSION`.
///
/// Kernels are kept in $XDG_CACHE_HOME/bivouac with the drivers for the machine's devices. The host's apt downloads
/// them and verifies Debian's signatures; where there is no apt, biv does.
#[derive(Debug, Args)]
pub struct Kernel {
    /// What
    #[command(subcommand)]
    pub action: KernelAction,
}

/// What is done with kernels.
#[derive(Debug, Subcommand)]
pub enum KernelAction {
    /// List downloaded kernels
    Ls {
        /// Output format
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Download a kernel
    Pull {
        /// Version, such as 6.12 [default: the newest of the suite]
        version: Option<String>,

        /// Debian's suite, such as trixie [default: that of apt's sources, then its backports]
        #[arg(long, value_name = "NAME")]
        suite: Option<String>,

        /// Type of machines that the kernel is built for
        #[arg(long, value_enum, default_value_t)]
        flavour: ForMachines,
    },
    /// Remove kernels
    Rm {
        /// Versions, or unambiguous prefixes of versions
        #[arg(required = true, add = ArgValueCandidates::new(candidates::kernels))]
        version: Vec<String>,
    },
}

/// For which machines a kernel is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ForMachines {
    /// Virtual machines
    #[default]
    Cloud,
    /// All machines
    Generic,
}

impl From<ForMachines> for Flavour {
    fn from(machines: ForMachines) -> Self {
        match machines {
            ForMachines::Cloud => Self::Cloud,
            ForMachines::Generic => Self::Generic,
        }
    }
}

/// Manage images for `biv run --image NAME`: container images of registries, and Debian root file systems.
///
/// `biv image pull` and `biv image load` get container images (OCI and Docker), and `biv image build` makes a root file
/// system with mmdebstrap, without privileges where the host allows that. They are in $XDG_CACHE_HOME/bivouac. Machines
/// share an image; what a machine writes stays in its memory. In the guest, files have the owners that the image gives
/// them; on the host they are yours.
#[derive(Debug, Args)]
pub struct Image {
    /// What
    #[command(subcommand)]
    pub action: ImageAction,
}

/// What is done with images.
#[derive(Debug, Subcommand)]
pub enum ImageAction {
    /// List images
    Ls {
        /// Output format
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Build an image, replacing one of the same name
    Build {
        /// Name of the image
        name: String,

        /// Debian's suite
        #[arg(long, value_name = "NAME", default_value = "bookworm")]
        suite: String,

        /// Packages to install besides the essential ones
        #[arg(long, value_name = "PACKAGE,...", value_delimiter = ',')]
        include: Vec<String>,
    },
    /// Remove images: a name of one, and the image with its last
    Rm {
        /// Names of the images, or digests as `biv image ls` shows them
        #[arg(required = true, add = ArgValueCandidates::new(candidates::images))]
        name: Vec<String>,
    },
    /// What is done with images of containers.
    #[command(flatten)]
    Container(ContainerImageAction),
}

/// Check what this host offers and what Bivouac uses of it.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Debug Bivouac itself.
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

/// Find the block that is mistranslated, by bisection.
///
/// Runs COMMAND many times, each time with other blocks of the guest's code interpreted instead of translated, until
/// it is known which blocks must be interpreted for COMMAND to succeed. COMMAND must execute `biv run` exactly once,
/// must terminate (--timeout), and must fail the same way each time. Its standard input is empty, and its output is
/// discarded.
#[derive(Debug, Args)]
pub struct Bisect {
    /// Exit status of COMMAND that means success
    #[arg(long, value_name = "STATUS", default_value = "0")]
    pub success: u8,

    /// Translate the blocks in FILE always: the list (--list-blocks) of a run that succeeds
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub except: Option<PathBuf>,

    /// Give up after N runs
    #[arg(long, value_name = "N", default_value = "200")]
    pub runs: usize,

    /// Command to run, and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND",
        value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// Print a completion script for a shell.
///
/// For bash: source <(biv completions bash). It completes options and the names of domains, pods, kernels, images and
/// caches, for which it executes `biv`.
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

/// The root that options name, of which none goes with another.
fn root(
    directory: Option<Directory>,
    image: Option<String>,
    disk: Option<DiskRoot>,
    here: bool,
) -> Root {
    let named = directory.map(Root::Directory).or(image.map(Root::Image)).or(disk.map(Root::Disk));
    named.unwrap_or(Root::Host(HostRoot { here, ..HostRoot::default() }))
}

pub(crate) fn parse_seconds(text: &str) -> Result<std::time::Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    match std::time::Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("not a positive number of seconds, or too large".to_owned()),
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
    fn a_command_keeps_its_options() {
        let cli = Cli::try_parse_from(["biv", "run", "--mem", "2G", "--", "ls", "-l", "--", "-x"]);
        let Verb::Run(run) = cli.unwrap().verb else { panic!("not run") };
        assert_eq!(run.hardware.memory(), 2 << 30);
        assert_eq!(run.command, ["ls", "-l", "--", "-x"]);
        // As podman has it, too.
        let cli = Cli::try_parse_from(["biv", "run", "-it", "-w", "/", "ls", "--mem", "-x"]);
        let Verb::Run(run) = cli.unwrap().verb else { panic!("not run") };
        assert!(run.interactive && run.tty);
        assert_eq!(run.command, ["ls", "--mem", "-x"]);
        let line = "biv run -v /a:/b -m 1G -v /c:/d:ro -v ls -v /e:/f";
        let Verb::Run(run) = Cli::of(line.split(' ').map(Into::into).collect()).unwrap().verb
        else {
            panic!("not run")
        };
        assert_eq!((run.volume.len(), run.verbose, run.hardware.memory()), (2, 1, 1 << 30));
        assert_eq!(run.command, ["ls", "-v", "/e:/f"]);
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
        check(&["--xen", "--vif", "ip=10.77.0.1"]);
        check(&["--xen", "--vif", "ip=10.77.0.2", "--net", "none"]);
        check(&["--vsock", "a,cid=1"]);
        check(&["--publish", "80-70"]);
        check(&["--publish", "80-81:80"]);
        check(&["--publish", "80:80/icmp"]);
        check(&["--timeout", "nan"]);
        check(&["--initrd", "a", "--root", "b"]);
        check(&["--user", "games", "--root-user", "ls"]);
        check(&["--env", "=b", "ls"]);
        check(&["--no-such-option"]);
    }
}
