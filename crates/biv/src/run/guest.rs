//! What boots: a kernel, a user space and the drivers that they need, and how they are chosen.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use erofs::Identity;
use vmm::snapshot::Snapshot;
use vmm::{Configuration, Contents, Module};

use super::directories::{Directories, Root};
use super::image_disk::{self, ImageDisk};
use super::surroundings::Likeness;
use super::warm::{self, Key, Start};
use super::{Error, disk, files, restore};
use crate::cli::Run;
use crate::domain::hub::Conversation;
use crate::domain::{Domain, Plan};
use crate::initramfs;
use crate::network::{self, Net};
use crate::provision::images::{self, Image};
use crate::provision::{self, Part, kernels};
use crate::{unpack, vsock};

/// The kernel and the initial RAM disk, and what kind of guest they make.
pub struct Guest {
    kernel: Contents,
    /// Where it was found.
    pub kernel_path: PathBuf,
    modules: Vec<Module>,
    /// Nothing of ours runs in it.
    pub is_plain: bool,
    /// Whether it boots.
    pub start: Start,
    /// What kind of machine it is, if there are warm starts for it.
    pub key: Option<Key>,
    /// What of the host's files it sees.
    pub directories: Directories,
    /// One of them is its root.
    has_shared_root: bool,
    /// What runs in it, if another `biv run` has started that.
    pub known_command: Option<Vec<String>>,
}

/// What a machine that goes on from a snapshot sees, as far as its state does not tell.
pub struct Looks {
    /// It sees the directory in which it was started.
    pub sees_directory: bool,
    /// Its root is an image on a disk.
    pub image_disk: Option<[u8; 16]>,
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
        let Some(name) = version(path) else {
            return Ok(Self::Given(path.clone(), files::read_kernel(path)?));
        };
        if !name.starts_with(|first: char| first.is_ascii_digit()) {
            return Err(Error::NoKernelFile(name.to_owned()));
        }
        let found = kernels::find(name)?;
        found.map(Self::Pulled).ok_or_else(|| Error::NoKernel(name.to_owned()))
    }
}

/// The name of a kernel that is not a file: a version is not a path of more than one part.
fn version(kernel: &Path) -> Option<&str> {
    kernel.to_str().filter(|name| !name.contains('/') && !kernel.exists())
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
    let default =
        || if is_plain(arguments) { Net::None } else { Net::User(network::User::default()) };
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
pub fn is_plain(arguments: &Run) -> bool {
    let has_root = arguments.root.is_some() || arguments.image.is_some() || arguments.busybox;
    let wants_init = !arguments.command.is_empty() || has_root || arguments.root_disk.is_some();
    !wants_init && (arguments.initrd.is_some() || is_elf(arguments))
}

/// Whether a user space is named.
pub fn has_user_space(arguments: &Run) -> bool {
    let has_root = arguments.root.is_some() || arguments.image.is_some() || arguments.busybox;
    has_root || arguments.root_disk.is_some() || arguments.initrd.is_some()
}

fn is_elf(arguments: &Run) -> bool {
    arguments.kernel.as_deref().is_some_and(files::is_elf)
}

/// Whether the current directory is shown in a sandbox. A kernel of the user's own may lack what it takes to
/// see it.
fn sees_here(arguments: &Run, is_plain: bool) -> bool {
    let is_given = arguments.kernel.as_deref().is_some_and(|kernel| version(kernel).is_none());
    arguments.sandbox && !is_plain && !is_given
}

/// The image that `--image` names.
fn image(arguments: &Run) -> Result<Option<Image>, Error> {
    let Some(name) = &arguments.image else { return Ok(None) };
    images::find(name)?.ok_or_else(|| Error::NoImage(name.clone())).map(Some)
}

/// The directory that `--root` or `--image` names.
fn root(arguments: &Run, image: Option<&Image>) -> Option<PathBuf> {
    image.map(Image::root).or_else(|| arguments.root.clone())
}

/// What kind of directory it is.
fn given_root<'a>(arguments: &Run, root: &'a Path) -> Root<'a> {
    if arguments.image.is_some() { Root::Image(root) } else { Root::Here(root) }
}

impl Guest {
    /// What the options name. That is looked at before anything is downloaded.
    pub fn find(arguments: &Run) -> Result<Self, Error> {
        let kernel = Kernel::choose(arguments)?;
        let user_space = UserSpace::choose(arguments, &kernel);
        match user_space {
            UserSpace::Plain if !arguments.volume.is_empty() => return Err(Error::PlainVolume),
            UserSpace::Packed if arguments.root_rw => return Err(Error::PackedRoot),
            _ => {}
        }
        let image = image(arguments)?;
        let root = root(arguments, image.as_ref());
        let mut directories = match (user_space, &root) {
            (UserSpace::Plain, _) => Directories::default(),
            (UserSpace::Shared, Some(root)) => {
                Directories::open(arguments, given_root(arguments, root))?
            }
            (UserSpace::Shared, None) => Directories::open(arguments, Root::Host)?,
            _ => Directories::open(arguments, Root::Elsewhere)?,
        };
        if let Some(root) = &arguments.root_disk {
            directories.set_root_disk(root.device(), root.disk.read_only);
        }
        if sees_here(arguments, user_space == UserSpace::Plain) {
            directories.add_here_to_read()?;
        }
        let mut needed = Vec::new();
        if matches!(kernel, Kernel::Default) {
            needed.push(Part::Kernel);
            needed.extend((user_space != UserSpace::Plain).then_some(Part::Drivers));
        }
        needed.extend((user_space == UserSpace::Busybox).then_some(Part::Busybox));
        let guest = match arguments.refresh {
            true => provision::Guest::renew(&needed),
            false => provision::Guest::provide(&needed),
        }?;
        let drivers_of = |names: &[&'static str]| match &kernel {
            Kernel::Given(..) => Vec::new(),
            Kernel::Pulled(kernel) => kernel.drivers(names),
            Kernel::Default => guest.drivers(names),
        };
        if let Some(image) = image.filter(|_| user_space == UserSpace::Shared) {
            let is_known = !drivers_of(&[image_disk::FILE_SYSTEM]).is_empty();
            ImageDisk::choose(&image, is_known)
                .into_iter()
                .for_each(|disk| directories.set_image_disk(disk));
        }
        let drivers = match user_space {
            UserSpace::Plain => Vec::new(),
            _ => drivers_of(&drivers(arguments, &directories)),
        };
        let (kernel_path, given) = match kernel {
            Kernel::Given(path, contents) => (path, Some(contents)),
            Kernel::Pulled(kernel) => (kernel.image(), None),
            Kernel::Default => (guest.kernel(), None),
        };
        let is_usual = given.is_none() && user_space == UserSpace::Shared;
        let key = match is_usual && can_start_warm(arguments) {
            true => key(arguments, &kernel_path, &drivers, &directories).ok(),
            false => None,
        };
        let start = key.as_ref().map(warm::start).unwrap_or_default();
        let is_plain = user_space == UserSpace::Plain;
        let has_shared_root = user_space == UserSpace::Shared;
        if let Start::GoOn(..) = start {
            let (kernel, modules) = (Contents::default(), Vec::new());
            return Ok(Self {
                kernel,
                kernel_path,
                modules,
                is_plain,
                directories,
                start,
                key,
                has_shared_root,
                known_command: None,
            });
        }
        let mut modules = first_modules(arguments, user_space, root.as_deref())?;
        if user_space == UserSpace::Busybox {
            modules.push(module(initramfs::default_guest(&guest.busybox()?)?));
        }
        let kernel = match given {
            Some(contents) => contents,
            None => files::read_kernel(&kernel_path)?,
        };
        if !drivers.is_empty() {
            modules.push(module(initramfs::only_drivers(&drivers)?));
        }
        Ok(Self {
            kernel,
            kernel_path,
            modules,
            is_plain,
            directories,
            start,
            key,
            has_shared_root,
            known_command: None,
        })
    }

    /// What goes on from a snapshot, with the surroundings that the options name. Without another root, it has
    /// the host's if it sees a directory and names no other, and none that is shared otherwise.
    pub fn restored(
        arguments: &Run,
        snapshot: Snapshot,
        conversation: Option<Conversation>,
        looks: Looks,
    ) -> Result<Self, Error> {
        let Looks { sees_directory, image_disk } = looks;
        let image = image(arguments)?;
        let root = root(arguments, image.as_ref());
        let is_plain = conversation.is_none();
        let place = match &root {
            _ if is_plain || arguments.root_disk.is_some() => Root::Elsewhere,
            Some(root) => given_root(arguments, root),
            None if sees_directory && !arguments.sandbox => Root::Host,
            None => Root::Elsewhere,
        };
        let mut directories = Directories::open(arguments, place)?;
        let has_shared_root = !matches!(place, Root::Elsewhere);
        if let Some(root) = &arguments.root_disk {
            directories.set_root_disk(root.device(), root.disk.read_only);
        }
        if sees_directory && sees_here(arguments, is_plain) {
            directories.add_here_to_read()?;
        }
        if let Some(identity) = image_disk {
            let image = image.ok_or_else(|| disk::other_image("/"))?;
            directories.set_image_disk(ImageDisk::same(&image, Identity(identity))?);
        }
        let start = Start::GoOn(Box::new(snapshot), conversation);
        let kernel_path = arguments.kernel.clone().unwrap_or_default();
        Ok(Self {
            kernel: Contents::default(),
            kernel_path,
            modules: Vec::new(),
            is_plain,
            directories,
            start,
            key: None,
            has_shared_root,
            known_command: None,
        })
    }

    /// What its directories are like.
    pub fn likeness(&self) -> Likeness {
        let Directories { is_the_host, working_directory, .. } = &self.directories;
        let sees_directory = *is_the_host || working_directory.is_some();
        Likeness { has_shared_root: self.has_shared_root, sees_directory }
    }

    /// What is said to run in the machine: its kernel, if nothing in it is known.
    pub fn shown_command(&self, arguments: &Run) -> Vec<String> {
        if let Some(command) = &self.known_command {
            return command.clone();
        }
        let word = |word: &OsString| word.to_string_lossy().into_owned();
        match arguments.command.is_empty() {
            _ if self.is_plain => vec![self.kernel_path.to_string_lossy().into_owned()],
            true => super::SHELL.map(|word| String::from_utf8_lossy(word).into()).to_vec(),
            false => arguments.command.iter().map(word).collect(),
        }
    }

    /// What is said of the machine to whoever asks.
    pub fn plan(&self, arguments: &Run) -> Result<Plan, Error> {
        Ok(Plan {
            name: arguments.name.clone(),
            detached: arguments.detach,
            forgotten: arguments.rm,
            command: self.shown_command(arguments),
            has_init: !self.is_plain,
            has_terminal: super::is_on_terminal(arguments),
            memory: arguments.mem,
            processors: arguments.cpus,
            kernel: self.kernel_path.to_string_lossy().into_owned(),
            origin: restore::origin(arguments, self)?,
        })
    }

    /// A machine of these; command line, console, channel and reboot policy are the caller's.
    pub fn configuration(self, arguments: &Run) -> Result<Configuration, Error> {
        let mut directories = self.directories;
        // The user's own come before it, and have the names that they have without it.
        let image_disk = directories.image_disk.take().map(ImageDisk::into_disk).transpose()?;
        Ok(Configuration {
            disks: image_disk.into_iter().collect(),
            directories: directories.serve(!arguments.no_seccomp)?,
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
            cache: provision::trusted("unpacked").ok(),
            unpacker: unpack::unpacker(!arguments.no_seccomp),
            count_interpreted: arguments.stats,
            confine: !arguments.no_seccomp,
            ..Configuration::default()
        })
    }
}

/// Whether nothing is asked for that a machine can only have, or do, from its start.
fn can_start_warm(arguments: &Run) -> bool {
    let is_watched = arguments.console.is_some()
        || arguments.debug_console.is_some()
        || arguments.inspect.is_used()
        || arguments.verbose > 0;
    let is_measured = arguments.interpret || arguments.without.is_some() || arguments.stats;
    let has_disks = arguments.disks().next().is_some();
    let has_more = matches!(net(arguments), Net::Tap(_)) || arguments.vsock.is_some();
    let is_off = arguments.cold || warm::is_off();
    !(is_off || is_watched || is_measured || has_disks || has_more || arguments.debug_exit)
}

/// What tells such a machine from others.
fn key(
    arguments: &Run,
    kernel: &Path,
    drivers: &[(&str, PathBuf)],
    directories: &Directories,
) -> std::io::Result<Key> {
    let mut key = Key::default();
    key.add_file(&std::fs::read_link("/proc/self/exe")?)?;
    key.add_file(kernel)?;
    drivers.iter().try_for_each(|(_, path)| key.add_file(path))?;
    key.add(arguments.mem.to_le_bytes());
    // What has a name has a console.
    let is_known = Domain::is_wanted(arguments.name.as_ref(), arguments.detach);
    key.add([arguments.cpus, arguments.entropy.into(), is_known.into()]);
    key.add(arguments.append.as_deref().unwrap_or_default());
    key.add(format!("{:?}", net(arguments)));
    key.add(directories.count().to_le_bytes());
    // What its kernel has read of it is in the snapshot.
    key.add(directories.image_disk.as_ref().map(ImageDisk::serial).unwrap_or_default());
    Ok(key)
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
            let packed = match arguments.image {
                Some(_) => initramfs::from_image(root, memory)?,
                None => initramfs::from_directory(root, memory)?,
            };
            modules.push(module(packed));
        }
        _ => modules.push(module(initramfs::only_init()?)),
    }
    Ok(modules)
}

/// The modules that a kernel needs for the machine's devices, in the order in which they are to be
/// loaded.
fn drivers(arguments: &Run, directories: &Directories) -> Vec<&'static str> {
    let mut names = Vec::new();
    names.extend(directories.drivers());
    if arguments.entropy {
        names.push("virtio-rng");
    }
    if net(arguments) != Net::None {
        names.extend(["failover", "net_failover", "virtio_net"]);
    }
    if arguments.disks().next().is_some() || directories.image_disk.is_some() {
        names.extend(disk::DRIVERS);
    }
    if arguments.vsock.is_some() {
        names.extend(vsock::DRIVERS);
    }
    if Domain::is_wanted(arguments.name.as_ref(), arguments.detach) {
        names.push("virtio_balloon");
    }
    // The channel's port is one of a console.
    names.push("virtio_console");
    [provision::VIRTIO, &names].concat()
}

fn module(data: Vec<u8>) -> Module {
    Module { data: Contents::new(data), command_line: String::new() }
}
