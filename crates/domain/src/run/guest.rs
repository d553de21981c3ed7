//! Chooses what a machine boots: a kernel, a user space and the drivers that they need.

use std::io;
use std::path::{Path, PathBuf};

use api::Origin;
use erofs::Identity;
use spec::{Boot, Device, Machine, Net, Network, Other, Spec, User, UserExecution};
use vmm::snapshot::Snapshot;
use vmm::{Configuration, Contents, Devices, Module};

use super::boot_disk::{self, Bootable};
use super::directories::{Directories, Root};
use super::error::Error;
use super::given_kernel::{GivenKernel, described};
use super::given_root::{Given, on_disks};
use super::host_resources::{HostResources, Likeness};
use super::image_disk::{self, ImageDisk};
use super::modules::{self, Modules};
use super::order::{arguments, is_on_terminal};
use super::paravirtual::{self, is_paravirtual};
use super::warm::{self, Key, Start};
use super::{disk, files, plugged};
use crate::domain::{Beginning, Domain, Plan};
use crate::{unpack, vsock};
use hub::Conversation;
use protocol::mounts::FileSystem;
use provision::initramfs;
use provision::{self, Part, kernels};

/// The kernel and the initial RAM disk, and what kind of guest they make.
pub struct Guest {
    kernel: Contents,
    /// Firmware that finds a kernel itself.
    firmware: Option<Contents>,
    /// Where the one or the other was found.
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
    /// Parameters of the kernel's that come from the disk that it boots from.
    pub parameters: String,
    /// What runs in it, if another `biv run` has started that.
    pub known_command: Option<Vec<String>>,
    /// What its user is told of it, if it starts.
    pub remark: Option<String>,
}

/// What a machine that goes on from a snapshot sees, as far as its state does not tell.
pub struct Looks {
    /// It sees the directory in which it was started.
    pub sees_directory: bool,
    /// Its root is an image on a disk.
    pub image_disk: Option<[u8; 16]>,
    /// Its kernel has modules, in this directory if that is known for sure.
    pub modules: Option<Option<PathBuf>>,
}

/// Where a kernel comes from.
enum Kernel {
    /// The default guest.
    Default,
    /// `biv kernel pull`.
    Pulled(kernels::Kernel),
    /// The user's file.
    Given(GivenKernel),
    /// That of the disk with this name, with all that belongs to it.
    OnDisk(PathBuf, Box<Bootable>),
    /// That which this firmware finds, with all that belongs to it.
    Firmware(PathBuf, Contents),
}

impl Kernel {
    fn choose(spec: &Spec) -> Result<Self, Error> {
        if let Some(disk) = &spec.boot.disk {
            let bootable = boot_disk::find(disk, spec.machine.memory, !spec.engine.no_seccomp)?;
            return Ok(Self::OnDisk(disk.path.clone(), Box::new(bootable)));
        }
        if let Some(firmware) = &spec.boot.firmware {
            let contents = files::read_firmware(&firmware.path)?;
            return Ok(Self::Firmware(firmware.path.clone(), contents));
        }
        let Some(path) = &spec.boot.kernel else { return Ok(Self::Default) };
        let Some(name) = version(path) else {
            return Ok(Self::Given(GivenKernel::open(spec, path)?));
        };
        if !name.starts_with(|first: char| first.is_ascii_digit()) {
            return Err(Error::NoKernelFile(name.to_owned()));
        }
        let found = kernels::find(name)?;
        found.map(Self::Pulled).ok_or_else(|| Error::NoKernel(name.to_owned()))
    }

    /// Those of these drivers that it has in no way. Debian's have all that are asked for.
    fn lacks(&self, names: &[&'static str]) -> Result<Vec<&'static str>, Error> {
        match self {
            Self::Default | Self::Pulled(_) => Ok(Vec::new()),
            Self::Given(kernel) => kernel.lacks(names),
            // Its modules are on its disk.
            Self::OnDisk(..) | Self::Firmware(..) => Ok(names.to_vec()),
        }
    }

    /// By which file system it mounts directories of the host's.
    fn file_system(&self) -> Result<FileSystem, Error> {
        match self {
            Self::Given(kernel) => kernel.file_system(),
            _ => Ok(FileSystem::VirtioFs),
        }
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
    /// The user is told that the machine has busybox where it was to have the host's files: `remark` is what is said,
    /// once all that could be refused has been opened.
    fn choose(
        spec: &Spec,
        kernel: &Kernel,
        root: Option<&Given>,
        remark: &mut Option<String>,
    ) -> Result<Self, Error> {
        match () {
            () if is_plain(spec) => return Ok(Self::Plain),
            () if matches!(spec.root, spec::Root::Disk(_)) => return Ok(Self::Disk),
            () if spec.boot.initrd.is_some() => return Ok(Self::Initrd),
            () if spec.root == spec::Root::Busybox => return Ok(Self::Busybox),
            () if is_paravirtual(spec) && root.is_none() => return Ok(Self::Busybox),
            () => {}
        }
        let missing = match root {
            Some(root) if root.is_for_disk(spec) => described(&kernel.lacks(on_disks(spec))?),
            _ if is_paravirtual(spec) => "virtio (--xen)".to_owned(),
            _ => described(&match kernel.file_system()? {
                FileSystem::VirtioFs => kernel.lacks(&["virtio_pci", "virtiofs", "overlay"])?,
                FileSystem::Nine => kernel.lacks(&["virtio_pci", "overlay"])?,
            }),
        };
        match root {
            _ if missing.is_empty() => Ok(Self::Shared),
            Some(Given::Layers(name, _)) => Err(Error::Layers(name.clone(), missing)),
            Some(Given::Directory(root)) if root.writable => Err(Error::PackedRoot(missing)),
            Some(_) => Ok(Self::Packed),
            None => {
                *remark = Some(format!(
                    "this kernel cannot mount the host's files, and the machine has busybox \
                     instead: it has neither built in nor as modules {missing}; --modules DIR \
                     names its modules, --busybox asks for busybox"
                ));
                Ok(Self::Busybox)
            }
        }
    }
}

/// What the machine is connected to, said or not.
pub fn net(spec: &Spec) -> Net {
    match spec.networks.as_deref() {
        Some(networks) => networks.first().map_or(Net::None, Network::net),
        None if is_plain(spec) => Net::None,
        None => Net::User(User::default()),
    }
}

/// Whether a plain machine is to have a virtio console on its streams instead of a serial port: its kernel
/// is told so, and takes the last console that it is told of (the kernel's own parameters are before; `parameters` are
/// those of the disk that it boots from).
pub fn has_virtio_console(spec: &Spec, parameters: &str) -> bool {
    let append = spec.boot.append.as_deref().unwrap_or_default();
    let words = parameters.split_ascii_whitespace().chain(append.split_ascii_whitespace());
    let mut consoles = words.filter_map(|word| word.strip_prefix("console="));
    !is_paravirtual(spec) && consoles.next_back().is_some_and(|console| console.starts_with("hvc"))
}

/// Whether nothing of ours will run in the guest.
pub fn is_plain(spec: &Spec) -> bool {
    let wants_init = spec.boot.init.is_some()
        || !spec.process.args.is_empty()
        || !matches!(spec.root, spec::Root::Host(_));
    let brings_own = spec.boot.disk.is_some() || spec.boot.firmware.is_some();
    !wants_init && (spec.boot.initrd.is_some() || brings_own || is_elf(spec))
}

/// Whether a user space is named.
pub fn has_user_space(spec: &Spec) -> bool {
    !matches!(spec.root, spec::Root::Host(_)) || spec.boot.initrd.is_some()
}

fn is_elf(spec: &Spec) -> bool {
    spec.boot.kernel.as_deref().is_some_and(files::is_elf)
}

/// Whether the kernel is a file of the user's.
pub fn has_own_kernel(spec: &Spec) -> bool {
    spec.boot.kernel.as_deref().is_some_and(|kernel| version(kernel).is_none())
}

/// Whether the current directory is shown in a sandbox. A kernel of the user's own may lack what it takes to
/// see it.
fn sees_here(spec: &Spec, is_plain: bool) -> bool {
    spec.sandbox && !is_plain && !has_own_kernel(spec) && !is_paravirtual(spec)
}

/// The directories of a guest with such a user space.
fn open_directories(
    spec: &Spec,
    user_space: UserSpace,
    root: Option<&Given>,
) -> Result<Directories, Error> {
    match (user_space, root) {
        (UserSpace::Plain, _) => Ok(Directories::default()),
        (UserSpace::Shared, Some(root)) => Directories::open(spec, root.root()),
        (UserSpace::Shared, None) => Directories::open(spec, Root::Host),
        _ => Directories::open(spec, Root::Elsewhere),
    }
}

impl Guest {
    /// What the options name. That is looked at before anything is downloaded.
    pub fn find(spec: &Spec) -> Result<Self, Error> {
        let kernel = Kernel::choose(spec)?;
        let root = Given::find(spec)?;
        let mut remark = None;
        let mut user_space = UserSpace::choose(spec, &kernel, root.as_ref(), &mut remark)?;
        match (user_space, &root) {
            (UserSpace::Plain, _) if !spec.mounts.is_empty() => {
                return Err(Error::Plain("--volume"));
            }
            (UserSpace::Plain, _) if !spec.caches.is_empty() => {
                return Err(Error::Plain("--cache"));
            }
            (UserSpace::Plain, _) if spec.boot.modules.is_some() => {
                return Err(Error::Plain("--modules"));
            }
            _ => {}
        }
        let mut directories = open_directories(spec, user_space, root.as_ref())?;
        if let spec::Root::Disk(root) = &spec.root {
            directories.set_root_disk(paravirtual::root_device(spec, root), root.disk.read_only);
        }
        if sees_here(spec, user_space == UserSpace::Plain) {
            directories.add_here_to_read()?;
        }
        let mut needed = Vec::new();
        if matches!(kernel, Kernel::Default) {
            needed.push(Part::Kernel);
            needed.extend((user_space != UserSpace::Plain).then_some(Part::Drivers));
        }
        needed.extend((user_space == UserSpace::Busybox).then_some(Part::Busybox));
        let guest = match spec.boot.refresh {
            true => provision::Guest::renew(&needed),
            false => provision::Guest::provide(&needed),
        }?;
        let (of_package, release) = match &kernel {
            Kernel::Given(kernel) => (None, kernel.release.clone()),
            // It has its modules itself.
            Kernel::OnDisk(..) | Kernel::Firmware(..) => (None, None),
            Kernel::Pulled(kernel) => (kernel.modules(), Some(kernel.release.clone())),
            Kernel::Default => (guest.modules(), guest.release()),
        };
        let own = match &kernel {
            Kernel::Given(kernel) => kernel.modules.clone(),
            _ => modules::given(spec, release.as_deref())?,
        };
        let drivers_of = |names: &[&'static str]| match &kernel {
            Kernel::OnDisk(..) | Kernel::Firmware(..) => Ok(Vec::new()),
            Kernel::Given(kernel) => kernel.drivers(names),
            Kernel::Pulled(kernel) => Ok(owned(kernel.drivers(names))),
            Kernel::Default => Ok(owned(guest.drivers(names))),
        };
        let knows_images = || match &kernel {
            Kernel::Given(kernel) => Ok(kernel.lacks(on_disks(spec))?.is_empty()),
            _ => Ok::<_, Error>(!drivers_of(&[image_disk::FILE_SYSTEM])?.is_empty()),
        };
        let image_disk = match &root {
            Some(root) if user_space == UserSpace::Shared => root.disk(spec, knows_images)?,
            _ => None,
        };
        match image_disk {
            Some(disk) => directories.set_image_disk(disk, spec),
            // Nothing of the host's can be shared with it.
            None if user_space == UserSpace::Shared && is_paravirtual(spec) => {
                user_space = UserSpace::Packed;
                directories = open_directories(spec, user_space, root.as_ref())?;
            }
            None => {}
        }
        let has_modules = user_space != UserSpace::Plain && !is_paravirtual(spec);
        let of_package = of_package.filter(|_| has_modules).zip(release.as_deref());
        // A paravirtual machine's drivers come from there, and it sees no directory.
        let own = own.filter(|_| !is_paravirtual(spec));
        if let Some(modules) = Modules::choose(own.as_ref(), of_package)? {
            modules.show(&mut directories);
        }
        directories.file_system = kernel.file_system()?;
        let drivers = match user_space {
            UserSpace::Plain => Vec::new(),
            _ => drivers_of(&drivers(spec, &directories))?,
        };
        let (mut parameters, mut of_disk, mut firmware) = (String::new(), None, None);
        let (kernel_path, given) = match kernel {
            Kernel::OnDisk(path, found) => {
                let Bootable { kernel, initrd, command_line, .. } = *found;
                of_disk = Some(initrd).filter(|initrd| !initrd.is_empty());
                parameters = command_line;
                (path, Some(Contents::new(kernel)))
            }
            Kernel::Firmware(path, image) => {
                firmware = Some(image);
                (path, Some(Contents::default()))
            }
            Kernel::Given(kernel) => (kernel.path, Some(kernel.contents)),
            Kernel::Pulled(kernel) => (kernel.image(), None),
            Kernel::Default => (guest.kernel(), None),
        };
        let is_small = user_space == UserSpace::Busybox && is_paravirtual(spec);
        let is_usual = given.is_none() && (user_space == UserSpace::Shared || is_small);
        let kind = warm::kind(spec).filter(|_| is_usual);
        let key = kind.and_then(|kind| key(&kind, &kernel_path, &drivers, &directories).ok());
        let start = key.as_ref().map(warm::start).unwrap_or_default();
        let is_plain = user_space == UserSpace::Plain;
        let has_shared_root = user_space == UserSpace::Shared;
        let (kernel, modules) = match start {
            Start::GoOn(..) => (Contents::default(), Vec::new()),
            Start::Cold | Start::First(_) => {
                let mut modules = first_modules(spec, user_space, root.as_ref())?;
                modules.extend(of_disk.map(module));
                if user_space == UserSpace::Busybox {
                    modules.push(module(initramfs::default_guest(&guest.busybox()?)?));
                }
                let kernel = match given {
                    Some(contents) => contents,
                    None => files::read_kernel(&kernel_path)?,
                };
                if !drivers.is_empty() {
                    let devices = directories.devices.as_deref();
                    modules.push(module(initramfs::only_drivers(&drivers, devices)?));
                }
                (kernel, modules)
            }
        };
        Ok(Self {
            kernel,
            firmware,
            kernel_path,
            modules,
            is_plain,
            directories,
            start,
            key,
            has_shared_root,
            parameters,
            known_command: None,
            remark,
        })
    }

    /// What goes on from a snapshot, with the host resources that the options name. Without another root, it has
    /// the host's if it sees a directory and names no other, and none that is shared otherwise.
    pub fn restored(
        spec: &Spec,
        snapshot: Snapshot,
        conversation: Option<Conversation>,
        looks: Looks,
    ) -> Result<Self, Error> {
        let Looks { sees_directory, image_disk, modules } = looks;
        let root = Given::find(spec)?;
        let is_plain = conversation.is_none();
        let place = match &root {
            _ if is_plain || matches!(spec.root, spec::Root::Disk(_)) => Root::Elsewhere,
            Some(root) => root.root(),
            None if sees_directory && !spec.sandbox => Root::Host,
            None => Root::Elsewhere,
        };
        let mut directories = Directories::open(spec, place)?;
        let has_shared_root = !matches!(place, Root::Elsewhere);
        if let spec::Root::Disk(root) = &spec.root {
            directories.set_root_disk(paravirtual::root_device(spec, root), root.disk.read_only);
        }
        if sees_directory && sees_here(spec, is_plain) {
            directories.add_here_to_read()?;
        }
        if let Some(identity) = image_disk {
            let identity = Identity(identity);
            let disk = match &root {
                Some(Given::Image(image, _)) => ImageDisk::same(image, identity)?,
                Some(Given::Layers(name, layers)) => {
                    ImageDisk::same_layers(name, layers, identity)?
                }
                _ => return Err(disk::other_image("/").into()),
            };
            directories.set_image_disk(disk, spec);
        }
        if let Some(path) = modules {
            Modules::again(path)?.show(&mut directories);
        }
        let start = Start::GoOn(Box::new(snapshot), conversation);
        let kernel_path = spec.boot.kernel.clone().unwrap_or_default();
        Ok(Self {
            kernel: Contents::default(),
            firmware: None,
            kernel_path,
            modules: Vec::new(),
            is_plain,
            directories,
            start,
            key: None,
            has_shared_root,
            parameters: String::new(),
            known_command: None,
            remark: None,
        })
    }

    /// What its directories are like.
    pub fn likeness(&self) -> Likeness {
        let Directories { is_the_host, working_directory, .. } = &self.directories;
        let sees_directory = *is_the_host || working_directory.is_some();
        Likeness { has_shared_root: self.has_shared_root, sees_directory }
    }

    /// What is said to run in the machine: its kernel, if nothing in it is known.
    pub fn shown_command(&self, spec: &Spec) -> Vec<String> {
        if let Some(command) = &self.known_command {
            return command.clone();
        }
        if self.is_plain {
            return vec![self.kernel_path.to_string_lossy().into_owned()];
        }
        if let Some(init) = &spec.boot.init {
            let words = spec.process.args.iter().map(|word| word.to_string_lossy().into_owned());
            return [init.to_string_lossy().into_owned()].into_iter().chain(words).collect();
        }
        let words = arguments(spec, &self.directories);
        words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    /// The machine's properties in the registry.
    pub fn plan(&self, spec: &Spec) -> Result<Plan, Error> {
        Ok(Plan {
            spec: spec.clone(),
            command: self.shown_command(spec),
            has_init: !self.is_plain,
            has_terminal: is_on_terminal(spec),
            kernel: self.kernel_path.to_string_lossy().into_owned(),
            origin: recorded(spec, self)?,
            beginning: Beginning::New,
        })
    }

    /// A machine of these; command line, console, channel and reboot policy are the caller's.
    pub fn configuration(self, spec: &Spec) -> Result<Configuration, Error> {
        let (mut directories, confine) = (self.directories, !spec.engine.no_seccomp);
        // The user's own come before it, and have the names that they have without it.
        let image_disk = directories.image_disk.take().map(ImageDisk::into_disk).transpose()?;
        let mut list: Devices = plugged::plain(spec).collect();
        list.extend(image_disk.map(|disk| Box::new(disk) as _));
        list.extend(directories.serve(confine)?.map(|shared| Box::new(shared) as _));
        Ok(Configuration {
            devices: list,
            kernel: self.kernel,
            firmware: self.firmware,
            kernel_name: self.kernel_path.to_string_lossy().into_owned(),
            modules: self.modules,
            memory: spec.machine.memory,
            maximum_memory: spec.machine.maximum_memory.unwrap_or(0),
            processors: spec.machine.processors.into(),
            interpret: spec.engine.interpret,
            user_execution: user_execution(spec),
            techniques: techniques(spec)?,
            // Without a place to keep it, the kernel is unpacked each time.
            cache: unpack::cache(),
            unpacker: unpack::unpacker(confine),
            count_interpreted: spec.watch.statistics,
            confine,
            ..Configuration::default()
        })
    }
}

/// How user code is executed. A user who traces blocks wants to see it, unless the options say otherwise.
fn user_execution(spec: &Spec) -> vmm::UserExecution {
    match (spec.engine.user_execution, &spec.watch.trace_blocks) {
        (UserExecution::Auto, Some(_)) | (UserExecution::Translate, _) => {
            vmm::UserExecution::Translate
        }
        (UserExecution::Direct, _) => vmm::UserExecution::Direct,
        (UserExecution::Auto, None) => vmm::UserExecution::Auto,
    }
}

fn techniques(spec: &Spec) -> Result<vmm::Techniques, Error> {
    let without = &spec.engine.without;
    let names = (!without.is_empty()).then(|| without.join(","));
    let techniques = names.map(|names| vmm::Techniques::all_without(&names)).transpose();
    Ok(techniques.map_err(|unknown| Error::Contradiction(unknown.to_string()))?.unwrap_or_default())
}

/// Drivers with names of their own.
fn owned(drivers: Vec<(&str, PathBuf)>) -> Vec<(String, PathBuf)> {
    drivers.into_iter().map(|(name, path)| (name.to_owned(), path)).collect()
}

/// What tells machines of such a kind from others, of which each starts with this kernel, these drivers and that
/// many directories.
fn key(
    kind: &Spec,
    kernel: &Path,
    drivers: &[(String, PathBuf)],
    directories: &Directories,
) -> std::io::Result<Key> {
    let mut key = Key::default();
    key.add_file(&std::fs::read_link("/proc/self/exe")?)?;
    key.add_file(kernel)?;
    drivers.iter().try_for_each(|(_, path)| key.add_file(path))?;
    key.add(kind.to_json());
    key.add(directories.count().to_le_bytes());
    // Its init has made these before the snapshot.
    let devices = directories.devices.as_deref().filter(|list| list.is_file());
    devices.map_or(Ok(()), |list| key.add_file(list))?;
    // What its kernel has read of it is in the snapshot.
    key.add(directories.image_disk.as_ref().map(ImageDisk::serial).unwrap_or_default());
    Ok(key)
}

/// What the user gives for the initial RAM disk, and our init.
fn first_modules(
    spec: &Spec,
    user_space: UserSpace,
    given: Option<&Given>,
) -> Result<Vec<Module>, Error> {
    let memory = spec.machine.memory;
    let mut modules = Vec::new();
    if let Some(path) = &spec.boot.initrd {
        match user_space == UserSpace::Plain && is_elf(spec) {
            true => modules.extend(files::read_modules(path, memory)?),
            false => modules.push(files::read_module(path, memory, String::new())?),
        }
    }
    match (user_space, given) {
        (UserSpace::Plain | UserSpace::Busybox, _) => {}
        (UserSpace::Packed, Some(given)) => {
            let packed = match given {
                Given::Image(_, root) => initramfs::from_image(root, memory)?,
                Given::Layers(name, _) => {
                    return Err(Error::Layers(name.clone(), described(on_disks(spec))));
                }
                Given::Directory(root) => initramfs::from_directory(&root.path, memory)?,
            };
            modules.push(module(packed));
        }
        _ => modules.push(module(initramfs::only_init()?)),
    }
    Ok(modules)
}

/// The modules that a kernel needs for the machine's devices, in the order in which they are to be
/// loaded.
fn drivers(spec: &Spec, directories: &Directories) -> Vec<&'static str> {
    let mut names = Vec::new();
    names.extend(directories.drivers());
    names.extend(plugged::plain_drivers(spec));
    let has_disk = spec.disks().next().is_some() || directories.image_disk.is_some();
    if is_paravirtual(spec) {
        let has_network = net(spec) != Net::None;
        names.extend(paravirtual::NETWORK_DRIVERS.iter().filter(|_| has_network));
        names.extend(paravirtual::DISK_DRIVERS.iter().filter(|_| has_disk));
        return names;
    }
    if net(spec) != Net::None {
        names.extend(["failover", "net_failover", "virtio_net"]);
    }
    if has_disk {
        names.extend(disk::DRIVERS);
    }
    if spec.sockets().next().is_some() {
        names.extend(vsock::DRIVERS);
    }
    if Domain::is_wanted(&spec.life) {
        names.push("virtio_balloon");
    }
    // The channel's port is one of a console.
    names.push("virtio_console");
    [provision::VIRTIO, &names].concat()
}

fn module(data: Vec<u8>) -> Module {
    Module { data: Contents::new(data), command_line: String::new() }
}

/// Why a machine of this description cannot be given the same host resources again, if it cannot.
pub fn obstacle(spec: &Spec) -> Option<&'static str> {
    // What such a disk has is gone with its machine, and who is connected is not told. Two domains on a network do not
    // have one address.
    let is_connected = spec.sockets().next().is_some()
        || matches!(net(spec), Net::Vif(_))
        || spec.shared_network().is_some();
    // Its chips and its ROM are in no snapshot.
    let has_firmware = spec.boot.firmware.is_some();
    let cannot = has_firmware || is_connected || spec.disks().any(|disk| disk.snapshot);
    cannot.then_some("it has a device that a snapshot cannot contain")
}

/// The kernel's parameters as far as the machine itself depends on them: those of the user's, after the console that
/// those of its disk name. The last console is the machine's.
fn recorded_parameters(append: Option<&str>, of_disk: &str) -> Option<String> {
    let mut of_disk = of_disk.split_ascii_whitespace();
    let console = of_disk.rfind(|word| word.starts_with("console="));
    let words: Vec<&str> = console.into_iter().chain(append).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// What is recorded of a machine that is started so.
fn recorded(spec: &Spec, guest: &Guest) -> io::Result<Origin> {
    let Likeness { has_shared_root, sees_directory } = guest.likeness();
    let mut host_resources = HostResources::of(spec);
    host_resources.mounts = guest.directories.volumes.clone();
    // What is in its memory, it has.
    if !has_shared_root && !matches!(spec.root, spec::Root::Host(_) | spec::Root::Disk(_)) {
        host_resources.root = spec::Root::default();
    }
    host_resources.directory = sees_directory.then(std::env::current_dir).transpose()?;
    host_resources.net = Some(net(spec));
    let mut process = spec.process.clone();
    process.terminal = is_on_terminal(spec);
    let is_disk = |device: &Device| matches!(device, Device::Disk(_));
    let mut kept = Spec {
        machine: Machine { other: Other::default(), ..spec.machine.clone() },
        boot: Boot {
            append: recorded_parameters(spec.boot.append.as_deref(), &guest.parameters),
            init: spec.boot.init.clone(),
            ..Boot::default()
        },
        devices: spec.devices.iter().filter(|device| !is_disk(device)).cloned().collect(),
        process,
        sandbox: spec.sandbox,
        ..Spec::default()
    };
    let applied = host_resources.absolute()?.apply(&mut kept);
    applied.map_err(io::Error::other)?;
    let image_disk = guest.directories.image_disk.as_ref().map(|disk| disk.identity().0);
    let modules = guest.directories.modules.clone();
    Ok(Origin { spec: kept, command: guest.shown_command(spec), image_disk, modules })
}
