//! `biv run`: its options, and the description that they become.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ArgGroup, Args, ValueEnum, ValueHint};
use clap_complete::ArgValueCandidates;
use spec::{
    Board, Boot, Cache, Device, Directory, Disk, DiskRoot, Engine, Life, Machine, Mount, Name, Net,
    Ports, Process, Restart, Root, Scheduling, Sockets, Spec, UserExecution, Vif,
};

use super::firmware::FirmwareOptions;
use super::gdb::GdbOptions;
use super::hardware::Hardware;
use super::networks::{networks, shared};
use super::{Environment, Options, Pull, root};
use crate::candidates;
use api::status;
use domain::CheckedSpec;
use domain::say::say;

/// Where the help puts what is for measuring.
const MEASURING: &str = "Measuring Bivouac";

/// Options beside which there is no directory of `--root`: clap does not ask for that where they exclude it.
const WITHOUT_ROOT: [&str; 7] =
    ["image", "busybox", "initrd", "root_disk", "here", "boot_disk", "firmware"];

/// Where the help puts what decides between domains.
const SCHEDULING: &str = "Scheduling among paravirtual domains (biv xen top)";

/// Boot a machine and run a command in it, or an interactive shell.
///
/// The machine looks like the host: it uses the host's root file system and keeps what it writes there in its own
/// memory. Only the current directory is written to (unless it is your home directory; see --here). The kernel is
/// Debian's for cloud machines (6.12 or later, if apt has it). It is downloaded once, by apt or, where there is none,
/// from Debian's archive, into $XDG_CACHE_HOME/bivouac (again with --refresh), and busybox for --busybox likewise. The
/// machine is discarded when the command ends. With --initrd and no COMMAND, or with a --kernel that is an ELF file and
/// neither a root nor a COMMAND, it is a plain machine: its serial console is on standard input and output.
///
/// Options that every machine is to have can stand in a file, $BIV_CONFIG or else $XDG_CONFIG_HOME/bivouac/run.conf:
/// one in each line ("--memory 2G"), before those of the command line.
///
/// On a terminal, Ctrl-] three times within a second ends the machine.
#[derive(Debug, Args)]
#[command(after_help = status::HELP, args_override_self = true)]
#[command(group(ArgGroup::new("domain").args(["name", "detach"]).multiple(true)))]
pub struct Run {
    /// Run the machine that FILE describes (JSON; "-": standard input). docs/spec.md explains the format, and
    /// `--print-spec` writes it. Cannot be combined with other options
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, exclusive = true)]
    pub spec: Option<PathBuf>,

    /// Print the description of this machine (JSON, for --spec) instead of running it
    #[arg(long)]
    pub print_spec: bool,

    /// Boot this kernel: a bzImage, an ELF file with a PVH note or a Multiboot header, or the version of
    /// one that `biv kernel` has fetched, such as 6.12. A bzImage that can mount the host's files (virtio's PCI bus,
    /// virtio-fs or 9p, overlayfs; built in or as modules) has the same user space as the default one, another busybox
    #[arg(long, value_name = "FILE|VERSION", value_hint = ValueHint::FilePath,
        add = ArgValueCandidates::new(candidates::kernels))]
    pub kernel: Option<PathBuf>,

    /// Boot the kernel that was built in DIR, a tree of Linux's source: DIR/arch/x86/boot/bzImage, with the modules in
    /// DIR/lib/modules if there are some (`make modules_install INSTALL_MOD_PATH=DIR`), or those of --modules
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "kernel")]
    pub kernel_dir: Option<PathBuf>,

    /// Load this initial RAM disk (for Multiboot kernels: modules, as "FILE ARG...,FILE ARG...")
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "root")]
    pub initrd: Option<PathBuf>,

    /// Let the guest load the kernel modules in DIR: lib/modules/RELEASE as `make modules_install` makes it, or the
    /// directory above. They are in the guest's /lib/modules, read-only [default: those of the kernel's package, for
    /// a kernel of Debian's; for a file those of the same release in the host's /lib/modules, if there are some]. With
    /// --xen only the drivers of its devices are loaded from there
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub modules: Option<PathBuf>,

    /// Run PATH, a program of the guest's root such as /sbin/init, as the guest's process 1 instead of Bivouac's init:
    /// a whole system. COMMAND is its arguments, and the machine's console is on standard input and output. biv exec,
    /// cp and stop work as ever. Needs a root (--root, --image, --root-disk) or --initrd
    #[arg(long, value_name = "PATH",
        conflicts_with_all = ["xen", "here", "user", "root_user", "workdir"])]
    pub init: Option<PathBuf>,

    /// Add STRING to the kernel's command line
    #[arg(long, value_name = "STRING", allow_hyphen_values = true)]
    pub append: Option<String>,

    /// Download the default guest again, to update it
    #[arg(long)]
    pub refresh: bool,

    #[command(flatten)]
    pub(super) hardware: Hardware,

    /// Share of the host's processors in proportion to the shares of others, while they want more than there are: 2 to
    /// 262144, of which an ordinary program has 1024. It is rounded to a nice value; more than 1024 take a privilege
    #[arg(long, value_name = "N", conflicts_with = "xen",
        value_parser = clap::value_parser!(u32).range(2..=262_144))]
    pub cpu_shares: Option<u32>,

    /// Run a paravirtual machine by Xen's interface instead of a PC: the kernel is entered by its Xen notes, and
    /// its disks and network card are Xen's (/dev/xvda, xen-netfront). Its root is busybox unless --root, --image,
    /// --root-disk or --initrd names another; --image is a disk of it, and --root is copied into its memory
    #[arg(long, conflicts_with_all =
        ["here", "volume", "cache", "vsock", "entropy", "debug_exit", "debug_console"])]
    pub xen: bool,

    /// Share of the host's processors that a domain of --xen gets in proportion to the weights of others, while they
    /// want more than there are: 1 to 65535
    #[arg(long, value_name = "N", default_value = "256", requires_all = ["xen", "domain"],
        value_parser = clap::value_parser!(u32).range(1..=65_535), help_heading = SCHEDULING)]
    pub weight: u32,

    /// The most that a domain of --xen gets, as a percentage of one processor
    #[arg(long, value_name = "PERCENT", requires_all = ["xen", "domain"],
        value_parser = clap::value_parser!(u32).range(1..=6400), help_heading = SCHEDULING)]
    pub cap: Option<u32>,

    /// Favour a domain of --xen by MS milliseconds of its time when it wakes up; it pays for that later
    #[arg(long, value_name = "MS", default_value = "0", requires_all = ["xen", "domain"],
        value_parser = clap::value_parser!(u32).range(0..=10_000), help_heading = SCHEDULING)]
    pub warp: u32,

    /// Use DIR as the guest's root file system; writes stay in the machine's memory unless --root-rw is given
    /// [default: /, with the current directory writable, and without keys, tokens and passwords in
    /// home directories, which --root / shows]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub root: Option<PathBuf>,

    /// Attach a virtio disk: /dev/vda is the first, /dev/vdb the second. FILE is a raw or qcow2 image, or a
    /// block device; ",ro": read-only; ",snapshot": discard what the guest writes; ",format=raw" or
    /// ",format=qcow2": do not detect the format; ",backing=OTHER" and ",data-file=OTHER": allow the image to
    /// refer to that file
    #[arg(long, value_name = "FILE[,ro][,snapshot]", value_hint = ValueHint::FilePath,
        value_parser = OsStringValueParser::new().try_map(Disk::parse))]
    pub disk: Vec<Disk>,

    /// Attach a virtual block device to a machine of Xen's interface: parts of a raw image or block device, which are
    /// one disk together, behind those of --disk. FILE and its options are as with --disk; ",extent=START+LENGTH"
    /// (repeatable; sizes of whole sectors, such as extent=64M+1G): a part, ":ro" behind it: read-only. Without
    /// extents: all of it. Domains may have parts of one FILE at the same time, as long as none may write to what
    /// another has
    #[arg(long, value_name = "FILE[,extent=START+LENGTH]", value_hint = ValueHint::FilePath,
        requires = "xen", value_parser = OsStringValueParser::new().try_map(Disk::parse_vbd))]
    pub vbd: Vec<Disk>,

    /// Use the file system on a disk, which becomes /dev/vda, as the guest's root. FILE and its options are as
    /// with --disk (with --xen: --vbd). ",part=N": use the Nth partition instead of the whole disk
    #[arg(long, value_name = "FILE[,part=N]", value_hint = ValueHint::FilePath,
        conflicts_with_all = ["root", "busybox", "initrd"],
        value_parser = OsStringValueParser::new().try_map(DiskRoot::parse))]
    pub root_disk: Option<DiskRoot>,

    /// Boot the system on a disk, which becomes /dev/vda, with the kernel, the initial RAM disk and the parameters that
    /// its own GRUB or systemd-boot would use (ext2, ext3, ext4 and FAT are read; xfs and btrfs, by another machine).
    /// FILE and its options are as with --disk. Nothing of Bivouac's runs in the guest; its console is on standard
    /// input and output
    #[arg(long, value_name = "FILE[,ro][,snapshot]", value_hint = ValueHint::FilePath,
        conflicts_with_all = ["kernel", "initrd", "modules", "init", "root", "root_disk", "image",
            "busybox", "here", "volume", "cache", "xen", "refresh", "command", "kernel_dir"],
        value_parser = OsStringValueParser::new().try_map(Disk::parse))]
    pub boot_disk: Option<Disk>,

    /// Whether it has firmware.
    #[command(flatten)]
    pub firmware: FirmwareOptions,

    /// Use an image as the guest's root, and run what it says unless a COMMAND is given: the root file system NAME of
    /// `biv image build`, or a container image such as debian:12 or quay.io/NAME, which is pulled if it is not there;
    /// or one in a file: oci:DIR[:TAG], oci-archive:FILE[:TAG], docker-archive:FILE[:NAME]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["root", "initrd", "busybox"],
        add = ArgValueCandidates::new(candidates::images))]
    pub image: Option<String>,

    /// Talk plain HTTP to a registry of --image that has nothing else, and accept any certificate, as biv image pull
    /// --insecure
    #[arg(long, requires = "image")]
    pub insecure: bool,

    /// When to pull the container image of --image
    #[arg(long, value_name = "WHEN", value_enum, default_value_t, requires = "image")]
    pub pull: Pull,

    /// Begin the command with this instead of the image's entry point: a program, or a JSON list of words; empty:
    /// nothing
    #[arg(long, value_name = "PROGRAM", value_parser = super::image::parse_entrypoint)]
    pub entrypoint: Option<super::image::Words>,

    /// Let the guest write to the directory of --root
    #[arg(long, requires = "root", conflicts_with_all = WITHOUT_ROOT)]
    pub root_rw: bool,

    /// Let the guest set set-user-ID and set-group-ID bits and `security.*` attributes in that directory, which
    /// take effect for users of the host as well
    #[arg(long, requires = "root_rw")]
    pub root_suid: bool,

    /// Let files in the directory of --root belong to the guest's users: as your subordinate users (/etc/subuid)
    /// where you have some, in extended attributes of the files (user.bivouac.owner) where not
    #[arg(long, requires = "root", conflicts_with_all = WITHOUT_ROOT)]
    pub root_owners: bool,

    /// Let the guest write to the current directory even if it is or contains your home directory
    #[arg(long, conflicts_with_all = ["root", "image", "busybox", "initrd", "root_disk"])]
    pub here: bool,

    /// Run untrusted code: busybox unless a root is named (--image, --root), no network, the current directory
    /// read-only, a timeout of 300 seconds, and no mirror of the guest kernel's memory in the machine's process
    /// (--without mirror). Other options, such as --net or --timeout, override these defaults
    #[arg(long, conflicts_with_all = ["here", "root_rw", "no_seccomp"])]
    pub sandbox: bool,

    /// Mount the host directory HOST in the guest at GUEST, writable unless ":ro" is added; may be repeated. If
    /// the guest cannot mount it, no command runs (status 125). ":suid": as --root-suid; ":anyfs": also show
    /// file systems of unknown types. Faster: ":exclusive": nothing else changes it while the machine runs;
    /// ":writeback": the same, and writes reach the host when files are closed; ":noxattr": no extended
    /// attributes. ":owners": as --root-owners. Separate several with commas. -v HOST:GUEST: the same, as podman's
    #[arg(long, value_name = "HOST:GUEST[:ro]")]
    pub volume: Vec<Mount>,

    /// Keep what the guest writes at PATH in the cache NAME, a directory of yours that later machines find again if
    /// they name it, and that machines may share; may be repeated. PATH is absolute, or ~/ and a path in the home
    /// directory of COMMAND's user. Without PATH: where the tool NAME looks, for cargo, ccache, go, npm and pip.
    /// ":ro": read-only, as it is with --sandbox unless ":rw" is added. biv cache lists and removes caches
    #[arg(long, value_name = "NAME[:PATH][:ro|rw]",
        add = ArgValueCandidates::new(candidates::caches_to_use))]
    pub cache: Vec<Cache>,

    /// Use a small root file system in memory that contains only busybox
    #[arg(long, conflicts_with_all = ["root", "initrd"])]
    pub busybox: bool,

    /// Attach a virtio entropy device, which supplies random numbers of the host
    #[arg(long)]
    pub entropy: bool,

    /// Network of the machine: none; user: whatever you can reach except this host, unprivileged (the default,
    /// except for plain machines); user,host: servers on this host as well, at 10.0.2.2;
    /// user,host,backend=passt: the same through passt; tap:NAME: a TAP interface of the host
    #[arg(long, value_name = "NETWORK")]
    pub net: Option<Net>,

    /// Share the network NAME (biv network create) with other machines and with pods: they find each other by name. The
    /// machine reaches what it would reach without, and --publish leads to it; --net user,host adds this host. NAME
    /// "none" is --net none
    #[arg(long, value_name = "NAME", conflicts_with = "vif",
        add = ArgValueCandidates::new(candidates::networks))]
    pub network: Option<Name>,

    /// Address of the machine in --network [default: one that follows from its name]
    #[arg(long, value_name = "ADDRESS", requires = "network")]
    pub ip: Option<Ipv4Addr>,

    /// Have the others of --network find the machine by this name [default: the machine's]
    #[arg(long, value_name = "NAME", requires = "network")]
    pub network_alias: Option<Name>,

    /// Connect the domain (--xen) to a network between domains by a virtual interface. BITS: those of the network's
    /// prefix, 24 by default, of which the first address is the gateway to the world. rate: bytes a second that the
    /// domain may send at most. The network's router, a process of its own, lets the domain send with its own
    /// addresses only; biv xen rules changes its rules
    #[arg(long, value_name = "ip=ADDRESS[/BITS][,mac=MAC][,net=NAME][,rate=BYTES]",
        conflicts_with_all = ["net", "publish"])]
    pub vif: Option<Vif>,

    /// Forward a port of the host to the guest: [IP:][HOSTPORT:]GUESTPORT[/udp], or a range of ports, such as
    /// 8000-8009:8000-8009. IP is the address to listen at,
    /// 127.0.0.1 by default; 0.0.0.0 listens at all addresses, [::] at those of IPv6
    #[arg(short, long, value_name = "PORTS")]
    pub publish: Vec<Ports>,

    /// Forward a free port of 127.0.0.1 to each port that the container image exposes
    #[arg(short = 'P', long, requires = "image", conflicts_with = "vif")]
    pub publish_all: bool,

    /// Connect the guest's virtio sockets (vsock) to Unix sockets. A program that connects to PATH and writes
    /// "CONNECT N" reads "OK" and is connected to port N of the guest. A guest that connects to port N of the
    /// host (CID 2) is connected to PATH_N. ",cid=N": CID of the guest [default: 3]
    #[arg(long, value_name = "PATH[,cid=N]", value_parser = Sockets::parse)]
    pub vsock: Option<Sockets>,

    /// End the machine after SECONDS, with status 124
    #[arg(long, value_name = "SECONDS", value_parser = super::parse_seconds)]
    pub timeout: Option<Duration>,

    /// Write the guest's serial console to FILE
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub console: Option<PathBuf>,

    /// Give the machine a debug console at port 0xe9, and write what is sent there to FILE
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub debug_console: Option<PathBuf>,

    /// Exit instead of rebooting
    #[arg(long)]
    pub no_reboot: bool,

    /// Give the machine a port at 0xf4 by which it ends with status (VALUE << 1) | 1
    #[arg(long)]
    pub debug_exit: bool,

    /// Run in the background: return when COMMAND has started, and print the domain's name (see biv ps, biv logs)
    #[arg(short, long)]
    pub detach: bool,

    /// Name of the domain, by which other commands find it [default: generated for a detached domain, none for
    /// others]
    #[arg(long, value_name = "NAME")]
    pub name: Option<Name>,

    /// Host name of the guest [default: what /etc/hostname says there]
    #[arg(long, value_name = "NAME", value_parser = spec::parse_hostname)]
    pub hostname: Option<String>,

    /// Label of the domain, by which `biv ps --filter label=NAME` finds it; may be repeated
    #[arg(short, long, value_name = "NAME[=VALUE]", value_parser = spec::parse_label,
        requires = "domain")]
    pub label: Vec<(String, String)>,

    /// Remove a detached domain when it has ended
    #[arg(long)]
    pub rm: bool,

    /// Start a detached domain again when it has ended, by a process that supervises it: no; on-failure, if its status
    /// is not 0, or on-failure:N, N times in a row at most; always. biv stop, kill and rm --force end that, and so does
    /// a reboot of the host. What was in its memory is lost each time
    #[arg(long, value_name = "POLICY", default_value = "no")]
    pub restart: Restart,

    /// Keep COMMAND's standard input open, for biv attach, in a detached domain. (Otherwise it is biv's in any case)
    #[arg(short, long)]
    pub interactive: bool,

    /// Allocate a pseudo-terminal for COMMAND in the guest
    #[arg(short, long)]
    pub tty: bool,

    /// Boot instead of starting from the snapshot that an earlier machine with the same configuration has left
    /// in $XDG_CACHE_HOME/bivouac
    #[arg(long)]
    pub cold: bool,

    /// How to execute the guest's user code
    #[arg(long, value_name = "HOW", value_enum, default_value_t, conflicts_with = "interpret")]
    pub user_exec: UserExec,

    /// Interpret every instruction instead of translating (slow; to find faults in the engine)
    #[arg(long, hide_short_help = true)]
    pub interpret: bool,

    /// Print statistics of the engine on standard error at the end
    #[arg(long, hide_short_help = true)]
    pub stats: bool,

    /// Let the machine's process make any system call (to debug Bivouac; not for guests that you
    /// do not trust)
    #[arg(long, hide_short_help = true)]
    pub no_seccomp: bool,

    /// Disable these techniques of the engine, to measure what each is worth:
    /// mirror, links, far-links, returns, handover, relocation, physical-jumps, spans, crossings,
    /// strings, inline, entries, assists, extended-state, batches, premap, copies, or all (slow;
    /// docs/measuring.md explains them)
    #[arg(long, value_name = "LIST", value_parser = vmm::Techniques::all_without,
        conflicts_with = "interpret", hide_short_help = true, help_heading = MEASURING)]
    pub without: Option<vmm::Techniques>,

    /// What is to be seen of the engine.
    #[command(flatten)]
    pub inspect: Options,

    /// Whether gdb may connect.
    #[command(flatten)]
    pub gdb: GdbOptions,

    /// Be verbose: show the kernel's messages and Bivouac's own (-vv: debug messages)
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,

    /// Run COMMAND as USER or USER:GROUP of the guest, by name or number [default: root or, in a machine that looks
    /// like the host, yourself]
    #[arg(short, long, value_name = "USER")]
    pub user: Option<String>,

    /// Run COMMAND as root, in a machine that looks like the host: the same as --user root. Files that you may not read
    /// are not for it either
    #[arg(long, conflicts_with = "user")]
    pub root_user: bool,

    /// Working directory of COMMAND in the guest [default: / or, in a machine that looks like the host, the current
    /// one]
    #[arg(short, long, value_name = "DIR")]
    pub workdir: Option<PathBuf>,

    /// Signal by which biv stop asks COMMAND to end, by name or number [default: what the container image says; TERM to
    /// all commands of the machine]
    #[arg(long, value_name = "SIGNAL", value_parser = super::domains::parse_signal,
        conflicts_with = "init")]
    pub stop_signal: Option<u8>,

    /// Its environment
    #[command(flatten)]
    pub environment: Environment,

    /// Command to run in the guest, and its arguments. Options of biv stand before it
    #[arg(trailing_var_arg = true, value_name = "COMMAND",
        value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
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

/// The longest description that is read, in bytes.
const SPEC_MAX_BYTES: u64 = 4 << 20;

impl Run {
    /// The machine that is meant.
    ///
    /// # Errors
    ///
    /// What is wrong with it, for people.
    pub fn into_spec(self) -> Result<CheckedSpec, String> {
        let spec = match &self.spec {
            None => CheckedSpec::new(self.described()?).map_err(|error| error.to_string())?,
            Some(path) => {
                let spec = read(path).and_then(|text| Ok(CheckedSpec::new(Spec::decode(&text)?)?));
                spec.map_err(|error| format!("cannot run {}: {error}", path.display()))?
            }
        };
        for name in spec.unknown() {
            say(&format!("ignoring {name}, which this version of biv does not know"));
        }
        Ok(spec)
    }

    fn machine(&self) -> Machine {
        let (weight, cap, warp) = (self.weight, self.cap, self.warp);
        Machine {
            memory: self.hardware.memory(),
            maximum_memory: self.hardware.max_mem,
            processors: self.hardware.processors(),
            shares: self.cpu_shares,
            board: if self.xen { Board::Xen } else { Board::Pc },
            scheduling: Scheduling { weight, cap, warp, ..Scheduling::default() },
            ..Machine::default()
        }
    }

    /// What the options say.
    fn described(self) -> Result<Spec, String> {
        let machine = self.machine();
        let (sockets, console) = (self.vsock.map(Device::Sockets), self.debug_console);
        let mut devices: Vec<_> = self.disk.into_iter().chain(self.vbd).map(Device::Disk).collect();
        let entropy = self.entropy.then(Device::entropy).into_iter();
        devices.extend(entropy.chain(sockets).chain(console.map(Device::debug_console)));
        devices.extend(self.debug_exit.then(Device::debug_exit));
        let net = shared(self.net, self.network, self.ip, self.network_alias)?;
        let networks = networks(net.or(self.vif.map(Net::Vif)), self.publish, self.publish_all)?;
        let mut watch = self.inspect.into_watch();
        (watch.verbose, watch.statistics) = (self.verbose, self.stats);
        (watch.console, watch.gdb) = (self.console, self.gdb.into_gdb());
        let (writable, suid, owners) = (self.root_rw, self.root_suid, self.root_owners);
        let of_path = |path| Directory { path, writable, suid, owners, ..Directory::default() };
        let root = root(self.root.map(of_path), self.image, self.root_disk, self.here);
        let root = if self.busybox { Root::Busybox } else { root };
        let (built, its_modules) = self.kernel_dir.map(built_in).unzip();
        Ok(Spec {
            machine,
            boot: Boot {
                kernel: self.kernel.or(built),
                initrd: self.initrd,
                modules: self.modules.or(its_modules.flatten()),
                append: self.append,
                disk: self.boot_disk,
                firmware: self.firmware.firmware,
                init: self.init,
                cold: self.cold,
                no_reboot: self.no_reboot,
                refresh: self.refresh,
                ..Boot::default()
            },
            root,
            devices,
            mounts: self.volume,
            caches: self.cache,
            networks,
            hostname: self.hostname,
            process: Process {
                args: self.command,
                entrypoint: self.entrypoint.map(|words| words.0),
                terminal: self.tty,
                interactive: self.interactive && self.detach,
                user: self.user.or(self.root_user.then(|| "root".to_owned())),
                directory: self.workdir,
                stop_signal: self.stop_signal,
                env: self.environment.variables()?,
                ..Process::default()
            },
            life: Life {
                name: self.name,
                detached: self.detach,
                remove: self.rm,
                restart: self.restart,
                labels: self.label.into_iter().collect(),
                timeout: self.timeout,
                ..Life::default()
            },
            sandbox: self.sandbox,
            engine: Engine {
                user_execution: self.user_exec.into(),
                interpret: self.interpret,
                without: self.without.map(left_out).unwrap_or_default(),
                no_seccomp: self.no_seccomp,
                ..Engine::default()
            },
            watch,
            ..Spec::default()
        })
    }
}

/// A description, as bytes.
fn read(path: &Path) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let mut text = Vec::new();
    let limit = SPEC_MAX_BYTES + 1;
    match path == Path::new("-") {
        true => io::stdin().take(limit).read_to_end(&mut text)?,
        false => File::open(path)?.take(limit).read_to_end(&mut text)?,
    };
    match text.len() as u64 == limit {
        true => Err(format!("it has more than {SPEC_MAX_BYTES} bytes").into()),
        false => Ok(text),
    }
}

/// The names of what is left out.
fn left_out(techniques: vmm::Techniques) -> Vec<String> {
    let all = vmm::Technique::ALL.into_iter();
    let left_out = all.filter(|(technique, _)| !techniques.has(*technique));
    left_out.map(|(_, name)| name.to_owned()).collect()
}

impl From<UserExec> for UserExecution {
    fn from(how: UserExec) -> Self {
        match how {
            UserExec::Translate => Self::Translate,
            UserExec::Direct => Self::Direct,
            UserExec::Auto => Self::Auto,
        }
    }
}

/// The kernel in a tree of Linux's source that has been built, and its modules if they are installed there.
fn built_in(directory: PathBuf) -> (PathBuf, Option<PathBuf>) {
    let modules = directory.join("lib/modules");
    (directory.join("arch/x86/boot/bzImage"), modules.is_dir().then_some(modules))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Verb};

    fn spec(options: &[&str]) -> Result<Spec, String> {
        let line = [&["biv", "run"], options].concat();
        let Verb::Run(run) = Cli::try_parse_from(line).unwrap().verb else { panic!("not run") };
        run.into_spec().map(CheckedSpec::into_inner)
    }

    #[test]
    fn what_is_not_said_is_not_described() {
        assert_eq!(spec(&["--cpus", "1", "--mem", "1G"]), Ok(Spec::default()));
        // But for what depends on the host.
        let of_host = Hardware::default();
        let (memory, processors) = (of_host.memory(), of_host.processors());
        let machine = Machine { memory, processors, ..Machine::default() };
        assert_eq!(spec(&[]), Ok(Spec { machine, ..Spec::default() }));
    }

    #[test]
    fn ports_that_cannot_be_had_are_refused() {
        let check = |options: &[&str], is_good| {
            assert_eq!(spec(options).is_ok(), is_good, "{options:?}");
        };
        check(&["-p", "80:80", "-p", "81:80"], true);
        check(&["--net", "user", "-p", "80:80", "-p", "80:80/udp"], true);
        check(&["--net", "none"], true);
        check(&["--net", "none", "-p", "80:80"], false);
        check(&["--net", "tap:a", "-p", "80:80"], false);
        check(&["-p", "80:80", "-p", "80:81"], false);
    }

    #[test]
    fn a_network_is_shared() {
        let shared = |options: &[&str]| spec(options).unwrap().networks.unwrap()[0].net();
        let check = |options: &[&str], expected: &str| {
            assert_eq!(shared(options).to_string(), expected, "{options:?}");
        };
        check(&["--network", "a"], "user,network=a");
        assert!(spec(&["--network", "none"]).unwrap().networks.is_some_and(|all| all.is_empty()));
        assert!(spec(&["--network", "host"]).unwrap_err().contains("--net user,host"));
        check(&["--network", "a", "--net", "user,host", "-p", "80:80"], "user,host,network=a");
        check(&["--network=a", "--ip=10.89.1.5"], "user,network=a,ip=10.89.1.5");
        check(&["--network=a", "--network-alias=db"], "user,network=a,alias=db");
        for net in ["none", "tap:a", "user,host,backend=passt"] {
            assert!(spec(&["--network", "a", "--net", net]).is_err(), "{net}");
        }
    }

    #[test]
    fn a_built_kernel_is_found_in_its_tree() {
        let tree = std::env::temp_dir().join(format!("biv-tree-{}", std::process::id()));
        let described = || spec(&["--kernel-dir", tree.to_str().unwrap()]).unwrap().boot;
        let kernel = Some(tree.join("arch/x86/boot/bzImage"));
        assert_eq!((described().kernel, described().modules), (kernel, None));
        let modules = tree.join("lib/modules");
        std::fs::create_dir_all(&modules).unwrap();
        assert_eq!(described().modules, Some(modules));
        let named = ["--kernel-dir", tree.to_str().unwrap(), "--modules", "/m"];
        assert_eq!(spec(&named).unwrap().boot.modules, Some("/m".into()));
        std::fs::remove_dir_all(tree).unwrap();
    }

    #[test]
    fn every_option_of_a_machine_is_in_its_description() {
        let options = "--kernel=k --append=a=b --refresh --mem=2G --cpus=3 --root=/r --root-rw \
            --root-suid --root-owners --disk=d,ro --volume=/a:/b:ro --cache=k:/c \
            --entropy --net=user,host --publish=1:2 --vsock=v,cid=9 --timeout=2.5 --console=c \
            --debug-console=e --no-reboot --debug-exit --detach --name=n --hostname=h --label=x=y \
            --rm --interactive --tty --stop-signal=3 --cold --user=u --workdir=/w --env=E=1 \
            --user-exec=direct --stats --no-seccomp --without=links,spans --perf-map \
            --symbols=s --history=7 --trace-blocks=t,from=1,count=2 --interpret-blocks=1-2 \
            --list-blocks=l,show=3 --plant-fault=4 --gdb=tcp:5 --freeze -vv -- ls -l";
        let options: Vec<_> = options.split(' ').collect();
        let described = spec(&options).unwrap();
        // What has a default has another value, and is written.
        let text = described.to_json();
        let words = "kernel append refresh memory processors writable suid owners disk mounts \
            caches entropy reaches_host publish sockets timeout console debug-console no_reboot \
            debug-exit detached name hostname labels user directory env remove \
            interactive terminal stop_signal cold direct statistics \
            no_seccomp spans perf_map symbols history trace_blocks interpret_blocks \
            list_blocks plant_fault gdb freeze verbose args";
        for word in words.split(' ') {
            assert!(text.contains(&format!("\"{word}\"")), "{word} is not in {text}");
        }
        assert_eq!(Spec::parse(text.as_bytes()).unwrap(), described);
    }
}
