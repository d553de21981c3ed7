//! `biv restore`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueHint};
use spec::{Directory, Disk, DiskRoot, Mount, Name, Net, Ports};

use super::ports::published;
use super::{parse_seconds, root};
use api::status;
use domain::run::host_resources::HostResources;
use domain::run::restore::GoOn;

/// Where the help puts what a machine has of the host.
const HEADING: &str = "What the machine has of the host (in the place of what it had)";

/// Options beside which there is no directory of `--root`, as those of `biv run`.
const WITHOUT_ROOT: [&str; 3] = ["image", "root_disk", "here"];

/// Restore a machine from a snapshot of `biv snapshot`: its processors, devices and memory, and all that runs in
/// it.
///
/// The machine gets the host resources that `biv run` gave it (directories, disks, network, ports), unless options
/// here replace them. Disks and directories must be as the guest remembers them. This holds for snapshots that you took
/// yourself, which are signed with the key in $XDG_STATE_HOME/bivouac. A snapshot that was taken elsewhere or modified
/// gets only what the options here name; biv reports what is missing. Network connections are lost. Any number of
/// domains can be restored from one file, and share the memory that they do not write. Do not modify the file while
/// they run.
#[derive(Debug, Args)]
#[command(after_help = status::HELP)]
pub struct Restore {
    /// Run in the background: print the domain's name and return
    #[arg(short, long)]
    pub detach: bool,

    /// Name of the domain [default: generated]
    #[arg(long, value_name = "NAME")]
    pub name: Option<Name>,

    /// Remove the domain when it has ended
    #[arg(long)]
    pub rm: bool,

    /// What the machine has of the host.
    #[command(flatten)]
    pub of_the_host: HostOptions,

    /// Publish no ports, not even those of the snapshot
    #[arg(long, conflicts_with = "publish")]
    pub no_publish: bool,

    /// Verify the guest's memory piece by piece when it is loaded, not all of it before the start
    #[arg(long)]
    pub no_verify: bool,

    /// Let the machine's process make any system call (to debug Bivouac; not for guests that you
    /// do not trust)
    #[arg(long, hide_short_help = true)]
    pub no_seccomp: bool,

    /// Snapshot file
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
}

/// What a machine has of the host.
#[derive(Debug, Clone, Args)]
pub struct HostOptions {
    /// Use DIR as the guest's file system, as `biv run --root` does
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = HEADING)]
    pub root: Option<PathBuf>,

    /// Let the guest write to the directory of --root
    #[arg(long, requires = "root", conflicts_with_all = WITHOUT_ROOT, help_heading = HEADING)]
    pub root_rw: bool,

    /// Let the guest set set-user-ID bits there, as `biv run --root-suid` does
    #[arg(long, requires = "root_rw", help_heading = HEADING)]
    pub root_suid: bool,

    /// Keep the owners of files there, as `biv run --root-owners` does
    #[arg(long, requires = "root", conflicts_with_all = WITHOUT_ROOT, help_heading = HEADING)]
    pub root_owners: bool,

    /// Let the guest write to --directory even if it is or contains your home directory
    #[arg(long, conflicts_with_all = ["root", "image", "root_disk"], help_heading = HEADING)]
    pub here: bool,

    /// Use the root file system NAME of `biv image build`
    #[arg(long, value_name = "NAME", conflicts_with = "root", help_heading = HEADING)]
    pub image: Option<String>,

    /// Start in DIR: a machine that looks like the host (without --root) has DIR as its current directory, and
    /// writes to it
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = HEADING)]
    pub directory: Option<PathBuf>,

    /// Mount the host directory HOST in the guest at GUEST, as `biv run --volume` does
    #[arg(long, value_name = "HOST:GUEST[:ro]", help_heading = HEADING)]
    pub volume: Vec<Mount>,

    /// Attach a disk, as `biv run --disk` does
    #[arg(long, value_name = "FILE[,ro]", value_hint = ValueHint::FilePath, help_heading = HEADING,
        value_parser = OsStringValueParser::new().try_map(Disk::parse_vbd))]
    pub disk: Vec<Disk>,

    /// Attach the disk that holds the guest's root file system
    #[arg(long, value_name = "FILE[,part=N]", value_hint = ValueHint::FilePath,
        help_heading = HEADING,
        conflicts_with_all = ["root", "image"],
        value_parser = OsStringValueParser::new().try_map(DiskRoot::parse))]
    pub root_disk: Option<DiskRoot>,

    /// Network: none, user, user,host, user,host,backend=passt, user,backend=builtin or tap:NAME
    #[arg(long, value_name = "NETWORK", help_heading = HEADING)]
    pub net: Option<Net>,

    /// Forward a port of the host to the guest: [IP:][HOSTPORT:]GUESTPORT[/udp], or a range of ports
    #[arg(short, long, value_name = "PORTS", help_heading = HEADING)]
    pub publish: Vec<Ports>,

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
        let host_resources = self.of_the_host.into_host_resources()?;
        Ok(GoOn {
            file: self.file,
            host_resources,
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
    fn into_host_resources(self) -> Result<HostResources, String> {
        // A network that is not named is the one that was recorded.
        let net = self.net.clone().unwrap_or(Net::User(spec::User::default()));
        let publish = published(self.publish)?;
        net.networks(publish.clone())?;
        let (writable, suid, owners) = (self.root_rw, self.root_suid, self.root_owners);
        let named = self.root.map(|path| Directory {
            path,
            writable,
            suid,
            owners,
            ..Directory::default()
        });
        let root = root(named, self.image, self.root_disk, self.here);
        Ok(HostResources {
            root,
            directory: self.directory,
            mounts: self.volume,
            disks: self.disk,
            net: self.net,
            publish,
            timeout: self.timeout,
        })
    }
}
