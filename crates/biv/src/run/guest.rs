//! What boots: a kernel, a user space and the drivers that they need, and how they are chosen.

use std::path::{Path, PathBuf};

use vmm::{Configuration, Contents, Module};

use super::directories::{self, Directories, Root};
use super::{Error, disk, files};
use crate::cli::Run;
use crate::domain::{Domain, Plan};
use crate::initramfs;
use crate::network::Net;
use crate::provision::{self, Part, images, kernels};
use crate::vsock;

/// The kernel and the initial RAM disk, and what kind of guest they make.
pub struct Guest {
    kernel: Contents,
    /// Where it was found.
    pub kernel_path: PathBuf,
    modules: Vec<Module>,
    /// Nothing of ours runs in it.
    pub is_plain: bool,
    /// What of the host's files it sees.
    pub directories: Directories,
}

/// Where a kernel comes from.
enum Kernel {
    /// The default guest.
    Default,
    /// `biv kernel pull`.
    Pulled(kernels::Kernel),
    /// The user's file, whose modules are not at hand, and which may lack what these are.
    Given(PathBuf, Contents),
}

impl Kernel {
    fn choose(arguments: &Run) -> Result<Self, Error> {
        let Some(path) = &arguments.kernel else { return Ok(Self::Default) };
        // A version is not a path of more than one part.
        let name = path.to_str().filter(|name| !name.contains('/') && !path.exists());
        let Some(name) = name else {
            return Ok(Self::Given(path.clone(), files::read_kernel(path)?));
        };
        let found = kernels::find(name)?;
        found.map(Self::Pulled).ok_or_else(|| Error::NoKernel(name.to_owned()))
    }
}

/// Where a user space comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UserSpace {
    /// The initial RAM disk, or the kernel itself, with nothing of ours.
    Plain,
    /// The initial RAM disk.
    Initrd,
    /// A disk.
    Disk,
    /// A directory of the host's.
    Shared,
    /// A directory of the host's, packed into the guest's memory.
    Packed,
    /// Busybox, packed likewise.
    Busybox,
}

impl UserSpace {
    fn choose(arguments: &Run, kernel: &Kernel) -> Self {
        let is_given = matches!(kernel, Kernel::Given(..));
        match () {
            () if is_plain(arguments) => Self::Plain,
            () if arguments.root_disk.is_some() => Self::Disk,
            () if arguments.initrd.is_some() => Self::Initrd,
            () if arguments.busybox => Self::Busybox,
            () if !is_given => Self::Shared,
            () if arguments.root.is_some() || arguments.image.is_some() => Self::Packed,
            () => Self::Busybox,
        }
    }
}

/// What the machine is connected to, said or not.
pub fn net(arguments: &Run) -> Net {
    let default = || if is_plain(arguments) { Net::None } else { Net::User(None) };
    arguments.net.clone().unwrap_or_else(default)
}

/// Whether a plain machine is to have a virtio console on its streams instead of a serial port: its kernel
/// is told so, and takes the last console that it is told of (the kernel's own parameters are before).
pub fn has_virtio_console(arguments: &Run) -> bool {
    let append = arguments.append.as_deref().unwrap_or_default();
    let mut consoles =
        append.split_ascii_whitespace().filter_map(|word| word.strip_prefix("console="));
    consoles.next_back().is_some_and(|console| console.starts_with("hvc"))
}

/// Whether nothing of ours will run in the guest.
fn is_plain(arguments: &Run) -> bool {
    let has_root = arguments.root.is_some() || arguments.image.is_some() || arguments.busybox;
    let wants_init = !arguments.command.is_empty() || has_root || arguments.root_disk.is_some();
    !wants_init && (arguments.initrd.is_some() || is_elf(arguments))
}

fn is_elf(arguments: &Run) -> bool {
    arguments.kernel.as_deref().is_some_and(files::is_elf)
}

/// The directory that `--root` or `--image` names.
fn root(arguments: &Run) -> Result<Option<PathBuf>, Error> {
    let Some(name) = &arguments.image else { return Ok(arguments.root.clone()) };
    let image = images::find(name)?.ok_or_else(|| Error::NoImage(name.clone()))?;
    Ok(Some(image.root()))
}

impl Guest {
    /// What the options name. That is looked at before anything is downloaded.
    pub fn find(arguments: &Run) -> Result<Self, Error> {
        let kernel = Kernel::choose(arguments)?;
        let user_space = UserSpace::choose(arguments, &kernel);
        let root = root(arguments)?;
        let mut directories = match (user_space, &root) {
            (UserSpace::Plain, _) => Directories::default(),
            (UserSpace::Shared, Some(root)) => Directories::open(arguments, Root::Here(root))?,
            (UserSpace::Shared, None) => Directories::open(arguments, Root::Host)?,
            _ => Directories::open(arguments, Root::Elsewhere)?,
        };
        if let Some(root) = &arguments.root_disk {
            directories.set_root_disk(root.device(), root.disk.read_only);
        }
        let mut modules = first_modules(arguments, user_space, root.as_deref())?;
        let drivers = match (user_space, &kernel) {
            (UserSpace::Plain, _) | (_, Kernel::Given(..)) => Vec::new(),
            _ => drivers(arguments, &directories),
        };
        let mut needed = Vec::new();
        if matches!(kernel, Kernel::Default) {
            needed.push(Part::Kernel);
            needed.extend((!drivers.is_empty()).then_some(Part::Drivers));
        }
        needed.extend((user_space == UserSpace::Busybox).then_some(Part::Busybox));
        let guest = match arguments.refresh {
            true => provision::Guest::renew(&needed),
            false => provision::Guest::provide(&needed),
        }?;
        if user_space == UserSpace::Busybox {
            modules.push(module(initramfs::default_guest(&guest.busybox()?)?));
        }
        let (path, contents, drivers) = match kernel {
            Kernel::Given(path, contents) => (path, contents, Vec::new()),
            Kernel::Pulled(kernel) => {
                (kernel.image(), files::read_kernel(&kernel.image())?, kernel.drivers(&drivers))
            }
            Kernel::Default => {
                (guest.kernel(), files::read_kernel(&guest.kernel())?, guest.drivers(&drivers)?)
            }
        };
        if !drivers.is_empty() {
            modules.push(module(initramfs::only_drivers(&drivers)?));
        }
        let mounts = directories.list();
        if !mounts.is_empty() {
            modules.push(module(initramfs::only_mounts(&mounts)?));
        }
        let is_plain = user_space == UserSpace::Plain;
        Ok(Self { kernel: contents, kernel_path: path, modules, is_plain, directories })
    }

    /// What is said of the machine to whoever asks.
    pub fn plan(&self, arguments: &Run) -> Plan {
        let words = std::env::args_os().skip(2);
        Plan {
            name: arguments.name.clone(),
            detached: arguments.detach,
            forgotten: arguments.rm,
            command: words.map(|word| word.to_string_lossy().into_owned()).collect(),
            has_init: !self.is_plain,
            has_terminal: super::is_on_terminal(arguments),
            memory: arguments.mem,
            processors: arguments.cpus,
            kernel: self.kernel_path.to_string_lossy().into_owned(),
        }
    }

    /// A machine of these; command line, console, channel and reboot policy are the caller's.
    pub fn configuration(self, arguments: &Run) -> Result<Configuration, Error> {
        Ok(Configuration {
            directories: self.directories.serve(!arguments.no_seccomp)?,
            kernel: self.kernel,
            kernel_name: self.kernel_path.to_string_lossy().into_owned(),
            modules: self.modules,
            memory: arguments.mem,
            processors: arguments.cpus.into(),
            balloon: Domain::is_wanted(arguments.name.as_ref(), arguments.detach),
            entropy: arguments.entropy,
            debug_exit: arguments.debug_exit,
            interpret: arguments.interpret,
            user_execution: arguments.user_execution(),
            techniques: arguments.without.unwrap_or_default(),
            // Without a place to keep it, the kernel is unpacked each time.
            cache: provision::cache_directory().ok().map(|cache| cache.join("unpacked")),
            count_interpreted: arguments.stats,
            confine: !arguments.no_seccomp,
            ..Configuration::default()
        })
    }
}

/// What the user gives for the initial RAM disk, and our init.
fn first_modules(
    arguments: &Run,
    user_space: UserSpace,
    root: Option<&Path>,
) -> Result<Vec<Module>, Error> {
    let memory = arguments.mem;
    let mut modules = Vec::new();
    if let Some(path) = &arguments.initrd {
        match user_space == UserSpace::Plain && is_elf(arguments) {
            true => modules.extend(files::read_modules(path, memory)?),
            false => modules.push(files::read_module(path, memory, String::new())?),
        }
    }
    match (user_space, root) {
        (UserSpace::Plain | UserSpace::Busybox, _) => {}
        (UserSpace::Packed, Some(root)) => {
            modules.push(module(initramfs::from_directory(root, memory)?));
        }
        _ => modules.push(module(initramfs::only_init()?)),
    }
    Ok(modules)
}

/// The modules that a kernel needs for the machine's devices, in the order in which they are to be
/// loaded.
fn drivers(arguments: &Run, directories: &Directories) -> Vec<&'static str> {
    let mut names = Vec::new();
    if !directories.is_empty() {
        names.extend(directories::DRIVERS);
    }
    if arguments.entropy {
        names.push("virtio-rng");
    }
    if net(arguments) != Net::None {
        names.extend(["failover", "net_failover", "virtio_net"]);
    }
    if arguments.disks().next().is_some() {
        names.extend(disk::DRIVERS);
    }
    if arguments.vsock.is_some() {
        names.extend(vsock::DRIVERS);
    }
    if Domain::is_wanted(arguments.name.as_ref(), arguments.detach) {
        names.extend(["virtio_balloon", "virtio_console"]);
    }
    if names.is_empty() { names } else { [provision::VIRTIO, &names].concat() }
}

fn module(data: Vec<u8>) -> Module {
    Module { data: Contents::new(data), command_line: String::new() }
}
