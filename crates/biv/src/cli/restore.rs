//! `biv restore`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueHint};
use spec::{Directory, Disk, DiskRoot, Mount, Name, Net, Published};

use super::{parse_seconds, root};
use api::status;
use domain::run::restore::GoOn;
use domain::run::surroundings::Surroundings;

/// Where the help puts what a machine has of the host.
const HEADING: &str = "What the machine has of the host (in the place of what it had)";

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
    pub of_the_host: HostOptions,

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

/// What a machine has of the host.
#[derive(Debug, Clone, Args)]
pub struct HostOptions {
    /// Use DIR as the guest's file system, as `biv run --root` does
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = HEADING)]
    pub root: Option<PathBuf>,

    /// Let the guest write to the directory that --root names
    #[arg(long, requires = "root", help_heading = HEADING)]
    pub root_rw: bool,

    /// Let the guest give files there set-user-ID bits, as `biv run --root-suid` does
    #[arg(long, requires = "root_rw", help_heading = HEADING)]
    pub root_suid: bool,

    /// Let the guest write to --directory also where that is your home directory, or has it in it
    #[arg(long, conflicts_with_all = ["root", "image", "root_disk"], help_heading = HEADING)]
    pub here: bool,

    /// Use the root file system that `biv image build` has made under that name
    #[arg(long, value_name = "NAME", conflicts_with = "root", help_heading = HEADING)]
    pub image: Option<String>,

    /// Be in DIR, as if the machine had been started there: one that looks like the host (without --root)
    /// has DIR as its current directory, and writes to it
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = HEADING)]
    pub directory: Option<PathBuf>,

    /// Show the directory HOST in the guest at GUEST, as `biv run --volume` does
    #[arg(long, value_name = "HOST:GUEST[:ro]", help_heading = HEADING)]
    pub volume: Vec<Mount>,

    /// Give the machine a disk, as `biv run --disk` does
    #[arg(long, value_name = "FILE[,ro]", value_hint = ValueHint::FilePath, help_heading = HEADING,
        value_parser = OsStringValueParser::new().try_map(Disk::parse))]
    pub disk: Vec<Disk>,

    /// Give it the disk that has its root file system
    #[arg(long, value_name = "FILE[,part=N]", value_hint = ValueHint::FilePath, help_heading = HEADING,
        conflicts_with_all = ["root", "image"],
        value_parser = OsStringValueParser::new().try_map(DiskRoot::parse))]
    pub root_disk: Option<DiskRoot>,

    /// Connect the machine: none, user, user,host, user,host,backend=passt, user,backend=builtin or tap:NAME
    #[arg(long, value_name = "NETWORK", help_heading = HEADING)]
    pub net: Option<Net>,

    /// Lead a port of the host's to one of the guest's: [IP:]HOSTPORT:GUESTPORT[/udp]
    #[arg(short, long, value_name = "PORTS", help_heading = HEADING)]
    pub publish: Vec<Published>,

    /// End the machine after SECONDS, with status 124
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, help_heading = HEADING)]
    pub timeout: Option<Duration>,
}

impl Restore {
    /// The machine that is meant.
    ///
    /// # Errors
    ///
    /// What makes no sense in it.
    pub fn into_order(self) -> Result<GoOn, String> {
        let surroundings = self.of_the_host.into_surroundings()?;
        Ok(GoOn {
            file: self.file,
            surroundings,
            name: self.name,
            detached: self.detach,
            remove: self.rm,
            no_publish: self.no_publish,
            no_verify: self.no_verify,
            no_seccomp: self.no_seccomp,
        })
    }
}

impl HostOptions {
    fn into_surroundings(self) -> Result<Surroundings, String> {
        // A network that is not named is the one that was recorded.
        let net = self.net.clone().unwrap_or(Net::User(spec::User::default()));
        net.networks(self.publish.clone())?;
        let (writable, suid) = (self.root_rw, self.root_suid);
        let named =
            self.root.map(|path| Directory { path, writable, suid, ..Directory::default() });
        let root = root(named, self.image, self.root_disk, self.here);
        Ok(Surroundings {
            root,
            directory: self.directory,
            mounts: self.volume,
            disks: self.disk,
            net: self.net,
            publish: self.publish,
            timeout: self.timeout,
        })
    }
}
