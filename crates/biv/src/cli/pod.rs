//! The command line of `biv pod`: the verbs about pods. Most have the words of those about domains.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use api::pod::Network;
use clap::{Arg, Args, Subcommand, ValueHint};
use clap_complete::ArgValueCandidates;
use pods::PodSpec;
use pods::member::Join;
use spec::{Backend, Name, Net, Ports, User, check_published};

use super::domains as life;
use super::pod_network::PodNetwork;
use super::ports::published;
use super::{Environment, Format};
use crate::candidates;
use api::status;

/// Run pods: processes of the host with private names, without a machine.
///
/// A pod has process numbers, a root file system, IPC, sockets, terminals and a host name of its own, and its processes
/// are ordinary processes of the host. It takes no privileges, but user namespaces; `biv doctor` says whether the host
/// allows them.
#[derive(Debug, Args)]
pub struct Pod {
    /// Do it in the running domain MACHINE instead of on the host; paths are the machine's
    #[arg(long = "in", value_name = "MACHINE", global = true)]
    pub machine: Option<String>,

    /// What
    #[command(subcommand)]
    pub action: PodAction,
}

/// What is done with pods. Verbs with the options of those about domains say only what pods are called.
#[expect(missing_docs, reason = "what is said here would replace what is said of the arguments")]
#[derive(Debug, Subcommand)]
pub enum PodAction {
    Run(Box<Run>),
    Restart(Box<Restart>),
    /// List pods.
    ///
    /// Only running pods are shown by default.
    #[command(mut_arg("all", |all| all.help("Show all pods, including those that have ended")))]
    Ps(life::Ps),
    Logs(Logs),
    /// Display the properties and the state of pods as JSON.
    #[command(mut_arg("names", of_pods))]
    Inspect(life::Inspect),
    /// Stop pods: ask each to end, and end it if it does not in time.
    ///
    /// The commands of the pod get SIGTERM (on a terminal also SIGHUP); the pod ends when the first command has.
    #[command(mut_arg("time", |time| time.help("Seconds to wait before the pod is ended")))]
    #[command(mut_arg("names", of_pods))]
    Stop(life::Stop),
    /// Kill pods, or send a signal to their commands.
    #[command(mut_arg("signal", |signal| {
        signal.help("Signal to send to the command, by name or number; KILL ends the pod")
    }))]
    #[command(mut_arg("names", of_pods))]
    Kill(life::Kill),
    Checkpoint(Checkpoint),
    Migrate(Migrate),
    Receive(Box<Receive>),
    Network(PodNetwork),
    /// Freeze pods: stop all their processes, where they are.
    ///
    /// They do nothing until `biv pod thaw`, and do not notice but by the clock.
    #[command(mut_arg("names", of_pods))]
    Freeze(life::Pause),
    /// Let frozen pods go on.
    #[command(mut_arg("names", of_pods))]
    Thaw(life::Resume),
    Exec(Exec),
    /// Attach to the command that a pod was started for: its output and its exit status.
    ///
    /// `biv pod logs` has the earlier output. On a terminal, Ctrl-] detaches, and the command goes on.
    #[command(mut_arg("name", |name| name.help("Name of the pod")))]
    Attach(life::Attach),
    /// Wait until pods have ended, and print their exit statuses.
    #[command(mut_arg("names", of_pods))]
    Wait(life::Wait),
    /// Remove pods that have ended, with their logs.
    #[command(mut_arg("force", |force| force.help("Kill pods that still run, then remove them")))]
    #[command(mut_arg("names", of_pods))]
    Rm(life::Rm),
}

/// The names that a verb takes, as those of pods.
fn of_pods(names: Arg) -> Arg {
    names.help("Names of the pods")
}

/// Start a pod and run a command in it, or an interactive shell.
///
/// The pod uses the host's root file system and keeps what it writes there in a layer of its own. Only the current
/// directory is written to, unless it is or contains your home directory. Keys, tokens and passwords in home
/// directories are not there. The pod ends with the command, and its layer with it.
///
/// You are the superuser in the pod, and nobody else is there, unless /etc/subuid and /etc/subgid give you more users
/// and groups. Root's pods have users that are nobody on the host.
///
/// On a terminal, Ctrl-] three times within a second ends the pod.
#[derive(Debug, Args)]
#[command(after_help = status::HELP)]
pub struct Run {
    /// What every pod has
    #[command(flatten)]
    pub start: Start,

    /// Allocate a pseudo-terminal for the command
    #[arg(short, long)]
    pub tty: bool,

    /// Its environment
    #[command(flatten)]
    pub environment: Environment,

    /// Working directory of the command [default: the current one if the pod shares it, or /]
    #[arg(short, long, value_name = "DIR")]
    pub workdir: Option<PathBuf>,

    /// Command to run, and its arguments [default: a shell]
    #[arg(trailing_var_arg = true, value_name = "COMMAND",
        value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// Options of every verb that starts a pod.
#[derive(Debug, Args)]
pub struct Start {
    /// Run the pod in the background, print its name, and keep its output for `biv pod logs`
    #[arg(short, long)]
    pub detach: bool,

    /// Name of the pod [default: a generated one]
    #[arg(long, value_name = "NAME")]
    pub name: Option<Name>,

    /// Remove a detached pod, with its logs, when it has ended
    #[arg(long)]
    pub rm: bool,

    /// Keep standard input open, also of a detached pod
    #[arg(short, long)]
    pub interactive: bool,

    /// Use DIR as the root file system; what the pod writes stays in a layer of its own unless --rw is given
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub root: Option<PathBuf>,

    /// Let the pod write to the directory of --root
    #[arg(long, requires = "root")]
    pub rw: bool,

    /// Use the root file system NAME of `biv image build`; what the pod writes stays in a layer of its own
    #[arg(long = "image", value_name = "NAME", conflicts_with = "root")]
    pub root_image: Option<String>,

    /// Network of the pod: none: a loopback interface of its own only; user: whatever you can reach except this host;
    /// user,host: servers on this host as well, at 10.0.2.2
    #[arg(long, value_name = "NETWORK", default_value = "user", value_parser = parse_net)]
    pub net: PodNet,

    /// Share the network NETWORK with other pods, which reach each other by address and by name; `biv pod network
    /// create` makes one [default: none, or what the pod was in when its image was written]
    #[arg(long, value_name = "NETWORK")]
    pub network: Option<Name>,

    /// Address of the pod in its network [default: a free one, or that of the image]
    #[arg(long, value_name = "ADDRESS")]
    pub ip: Option<Ipv4Addr>,

    /// Forward a port of the host to the pod: [IP:][HOSTPORT:]PODPORT[/udp], or a range of ports, such as
    /// 8000-8009:8000-8009. IP is the address to listen at, 127.0.0.1 by default; 0.0.0.0 listens at all addresses,
    /// [::] at those of IPv6. Without HOSTPORT a free one is chosen, and printed
    #[arg(short, long, value_name = "PORTS")]
    pub publish: Vec<Ports>,

    /// Host name in the pod [default: the pod's name, or what it was in the image]
    #[arg(long, value_name = "NAME", value_parser = spec::parse_hostname)]
    pub hostname: Option<String>,

    /// End the pod after SECONDS, with status 124
    #[arg(long, value_name = "SECONDS", value_parser = super::parse_seconds)]
    pub timeout: Option<Duration>,
}

/// What a pod reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodNet {
    /// Itself.
    None,
    /// What the user may reach.
    User {
        /// This host as well.
        reaches_host: bool,
    },
}

impl Start {
    /// The pod that is meant, but for what runs in it.
    fn into_spec(self) -> Result<PodSpec, String> {
        let network = match self.net {
            PodNet::None if !self.publish.is_empty() => {
                return Err("--publish requires --net user".to_owned());
            }
            PodNet::None if self.network.is_some() || self.ip.is_some() => {
                return Err("--network and --ip require --net user".to_owned());
            }
            PodNet::None => None,
            PodNet::User { reaches_host } => {
                let publish = published(self.publish)?;
                check_published(&publish)?;
                Some(Network { reaches_host, publish, member: None })
            }
        };
        let is_joining = self.network.is_some() || self.ip.is_some();
        let join = Join { network: self.network, address: self.ip, lease: None };
        Ok(PodSpec {
            name: self.name,
            args: Vec::new(),
            env: Vec::new(),
            directory: None,
            hostname: self.hostname,
            root: match self.root_image {
                Some(name) => Some(image(&name)?),
                None => self.root,
            },
            is_writable: self.rw,
            terminal: false,
            interactive: self.interactive,
            detached: self.detach,
            remove: self.rm,
            network,
            join: is_joining.then_some(join),
            image: None,
            parents: Vec::new(),
            frozen: false,
            guard: None,
            timeout: self.timeout,
        })
    }
}

impl Run {
    /// The pod that is meant.
    ///
    /// # Errors
    ///
    /// Ports that cannot be had.
    pub fn into_spec(self) -> Result<PodSpec, String> {
        Ok(PodSpec {
            args: self.command,
            env: self.environment.variables()?,
            directory: self.workdir,
            terminal: self.tty,
            ..self.start.into_spec()?
        })
    }
}

/// The networks that a pod can have, in the words of those of machines.
fn parse_net(text: &str) -> Result<PodNet, String> {
    match text.parse() {
        Ok(Net::None) => Ok(PodNet::None),
        Ok(Net::User(User {
            reaches_host,
            backend: None | Some(Backend::Builtin),
            network: None,
            address: None,
            alias: None,
        })) => Ok(PodNet::User { reaches_host }),
        _ => Err("a pod has none, user or user,host".to_owned()),
    }
}

/// Restart a pod from an image that `biv pod checkpoint` has written.
///
/// All its processes are there again, with the numbers, memory and open files that they had, and the pod's own files,
/// clocks and host name are what they were. An image is a program with its data: whoever restarts it runs it, in a pod
/// that is made as `biv pod run` makes it here. It gets at no file of the host that such a pod does not get at.
#[derive(Debug, Args)]
#[command(after_help = status::HELP)]
pub struct Restart {
    /// What every pod has
    #[command(flatten)]
    pub start: Start,

    /// Leave the pod frozen, until `biv pod thaw`
    #[arg(long)]
    pub frozen: bool,

    /// End the pod with the process PID, until it is thawed
    #[arg(long, value_name = "PID", requires = "frozen", hide = true)]
    pub guard: Option<u32>,

    /// Image that FILE, an increment, goes on from; those beside FILE are found without it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub parent: Vec<PathBuf>,

    /// Image of the pod
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub image: PathBuf,
}

impl Restart {
    /// The pod that is meant.
    ///
    /// # Errors
    ///
    /// Ports that cannot be had.
    pub fn into_spec(self) -> Result<PodSpec, String> {
        Ok(PodSpec {
            image: Some(self.image),
            parents: self.parent,
            frozen: self.frozen,
            guard: self.guard,
            ..self.start.into_spec()?
        })
    }
}

/// Write an image of a running pod into a file, from which `biv pod restart` makes it again, also elsewhere.
///
/// Most of a large pod's memory is written while it runs; then it is frozen while the rest is, and goes on. What cannot
/// be written down is named, and the pod goes on.
#[derive(Debug, Args)]
pub struct Checkpoint {
    /// File to write to
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,

    /// End the pod when the image is written
    #[arg(long)]
    pub stop: bool,

    /// Compress the image (Zstandard)
    #[arg(long)]
    pub compress: bool,

    /// Know from now on which memory the pod writes, for --incremental
    #[arg(long)]
    pub track: bool,

    /// Write only the memory that the pod has written since its last image with --track or --incremental; that image is
    /// needed to restart this one
    #[arg(long)]
    pub incremental: bool,

    /// Overwrite FILE if it exists
    #[arg(short, long)]
    pub force: bool,

    /// Format of the report; text reports only errors
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,

    /// Name of the pod
    #[arg(add = ArgValueCandidates::new(candidates::names))]
    pub name: String,
}

/// Move a running pod to another host, or to another place on this one, where `biv pod receive` waits for it.
///
/// Most of a large pod's memory is sent while it runs. Then it is frozen, the rest is sent, and it is made again over
/// there; it runs there when all of it is there, and is ended here then. If that fails before, it goes on here. If the
/// line is lost in the moment in between, it stays frozen here, and biv says what to do: it never runs twice.
#[derive(Debug, Args)]
pub struct Migrate {
    /// Compress what is sent (Zstandard)
    #[arg(long)]
    pub compress: bool,

    /// Format of the report; text reports only errors
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,

    /// Network of the pod in a machine, as of `biv pod run` [default: user]
    #[arg(long, value_name = "NETWORK")]
    pub net: Option<String>,

    /// Name of the pod
    #[arg(add = ArgValueCandidates::new(candidates::names))]
    pub name: String,

    /// Where to: unix:PATH, a socket at which `biv pod receive` listens; ssh:HOST, where `biv pod receive -` is run;
    /// machine:DOMAIN, a running domain; "-", the standard streams; with --in, "here" is the host
    #[arg(value_name = "DESTINATION")]
    pub to: String,
}

/// Receive a pod that `biv pod migrate` sends, and have it go on here.
#[derive(Debug, Default, Args)]
#[command(after_help = status::HELP)]
pub struct Receive {
    /// Name of the pod [default: the one that it had]
    #[arg(long, value_name = "NAME")]
    pub name: Option<Name>,

    /// Remove the pod, with its logs, when it has ended
    #[arg(long)]
    pub rm: bool,

    /// Use DIR as the root file system, as the pod did where it was
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub root: Option<PathBuf>,

    /// Let the pod write to the directory of --root
    #[arg(long, requires = "root")]
    pub rw: bool,

    /// Use the root file system NAME of `biv image build`, as the pod did where it was
    #[arg(long, value_name = "NAME", conflicts_with = "root")]
    pub image: Option<String>,

    /// Network of the pod, as of `biv pod run`
    #[arg(long, value_name = "NETWORK")]
    pub net: Option<String>,

    /// Network of pods, as of `biv pod restart`
    #[arg(long, value_name = "NETWORK")]
    pub network: Option<Name>,

    /// Address of the pod in it, as of `biv pod restart`
    #[arg(long, value_name = "ADDRESS")]
    pub ip: Option<Ipv4Addr>,

    /// Forward a port of the host to the pod, as of `biv pod run`
    #[arg(short, long, value_name = "PORTS")]
    pub publish: Vec<String>,

    /// Where from: unix:PATH, a socket that is made and at which one pod is awaited; or -, the standard streams
    #[arg(value_name = "SOURCE")]
    pub from: String,
}

/// The directory of an image.
fn image(name: &str) -> Result<PathBuf, String> {
    let found = provision::images::find(name).map_err(|error| error.to_string())?;
    let unknown = || format!("no image {name}; `biv image ls` lists the images");
    Ok(found.ok_or_else(unknown)?.root())
}

/// Fetch the logs of a detached pod.
///
/// The command's standard output goes to standard output and its standard error to standard error, in the order in
/// which they were written. The last 4 to 8 MiB are kept.
#[derive(Debug, Args)]
pub struct Logs {
    /// What of it.
    #[command(flatten)]
    pub view: life::LogView,

    /// Name of the pod
    #[arg(add = ArgValueCandidates::new(candidates::names))]
    pub name: String,
}

impl From<Logs> for life::Logs {
    fn from(logs: Logs) -> life::Logs {
        let Logs { view, name } = logs;
        life::Logs { view, console: false, name }
    }
}

/// Run a command in a running pod.
///
/// As with `biv pod run`, the command uses the standard streams of biv and receives its signals, and biv exits with the
/// command's status. Ctrl-] three times within a second hangs up.
#[derive(Debug, Args)]
pub struct Exec {
    /// Keep standard input open and forward it to the command
    #[arg(short, long)]
    pub interactive: bool,

    /// Allocate a pseudo-terminal for the command
    #[arg(short, long)]
    pub tty: bool,

    /// Working directory of the command
    #[arg(short, long, value_name = "DIR", default_value = "/")]
    pub workdir: OsString,

    /// Its environment
    #[command(flatten)]
    pub environment: Environment,

    /// Name of the pod
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

impl From<Exec> for life::Exec {
    fn from(exec: Exec) -> life::Exec {
        let Exec { interactive, tty, workdir, environment, name, command } = exec;
        let workdir = Some(workdir);
        life::Exec { interactive, tty, user: None, workdir, environment, name, command }
    }
}

#[cfg(test)]
mod tests {
    use spec::Published;

    use super::*;

    #[test]
    fn networks_are_those_of_machines_that_a_pod_can_have() {
        let check = |text: &str, expected| assert_eq!(parse_net(text).ok(), expected, "{text}");
        check("none", Some(PodNet::None));
        check("user", Some(PodNet::User { reaches_host: false }));
        check("user,host", Some(PodNet::User { reaches_host: true }));
        for other in ["", "tap:t", "vif,ip=10.77.0.2", "user,host,backend=passt", "pod"] {
            check(other, None);
        }
    }

    #[test]
    fn a_port_is_published_once() {
        let ports: Vec<Published> =
            ["80:80", "80:81/udp", "0.0.0.0:80:1"].map(|port| port.parse().unwrap()).to_vec();
        assert_eq!(check_published(&ports[..2]), Ok(()));
        assert!(check_published(&ports).unwrap_err().contains("want the same port"));
    }
}
