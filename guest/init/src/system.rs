//! Prepares what a Linux user space expects: file systems, devices, the network, a host name. And
//! switches the machine off.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::root::lift;
use crate::{devices, disk, hostname, modules, root};
use protocol::devices::{Devices, Kind};
use protocol::mounts::Kind as MountKind;
use rustix::mount::{MountFlags, mount};
use rustix::process::{Pid, Signal};
use rustix::system::{RebootCommand, reboot};

/// What people call what commands run in.
pub const PLACE: &str = "guest";

/// Whose the system is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Life {
    /// It runs the host's commands, and nothing else.
    #[default]
    Ours,
    /// It has a process 1 of its own.
    ItsOwn,
}

/// What a process 1 of the system's own mounts as it wants.
const ITS_OWN_MOUNTS: [&str; 2] = ["/tmp", "/sys/fs/cgroup"];

/// Type, place and options of what is mounted, in order.
const MOUNTS: &[(&str, &str, &std::ffi::CStr)] = &[
    ("proc", "/proc", c""),
    ("sysfs", "/sys", c""),
    ("devtmpfs", "/dev", c"mode=0755"),
    ("devpts", "/dev/pts", c"mode=0620,gid=5,ptmxmode=0666"),
    ("tmpfs", "/dev/shm", c"mode=1777"),
    ("tmpfs", "/run", c"mode=0755"),
    ("tmpfs", "/tmp", c"mode=1777"),
    ("cgroup2", "/sys/fs/cgroup", c""),
];

/// What is needed before there is a root: type and place.
const FIRST_MOUNTS: [(&str, &str); 3] =
    [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")];

/// Links that programs expect in `/dev`.
const LINKS: &[(&str, &str)] = &[
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
    ("pts/ptmx", "/dev/ptmx"),
];

/// The program of process 1; nothing if there is none that can be named.
pub fn first_program() -> PathBuf {
    fs::read_link("/proc/1/exe").unwrap_or_default()
}

/// What it takes to talk to the host: drivers, devices, and what the kernel was told. Returns what could not be
/// done.
pub fn begin() -> Vec<String> {
    let drivers = ("drivers", load_drivers());
    let mounts = FIRST_MOUNTS.map(|(kind, place)| (place, mount_one(kind, place, c"", false)));
    let modules = ("modules", modules::begin());
    let all = [drivers].into_iter().chain(mounts).chain([modules]);
    all.filter_map(|(what, result)| Some(format!("{what}: {}", result.err()?))).collect()
}

/// What could not be done.
#[derive(Debug, Default)]
pub struct Trouble {
    /// What a command can do without, or will complain of itself: for the console.
    pub remarks: Vec<String>,
    /// What the host wants the system to have. No command may run without: what it writes there would be
    /// lost, with nobody to notice.
    pub failures: Vec<String>,
}

/// What the host wants the system to have.
#[derive(Debug, Default)]
pub struct Wanted {
    /// What is to be mounted: a list of [`protocol::mounts`].
    pub mounts: Vec<u8>,
    /// What is to have a driver: a list of [`protocol::devices`].
    pub devices: Vec<u8>,
    /// Its host name, if not that of the root.
    pub hostname: Option<Vec<u8>>,
    /// Whose it is.
    pub life: Life,
}

/// Prepares the system, with what is wanted.
pub fn prepare(wanted: &Wanted) -> Trouble {
    let mut trouble = Trouble::default();
    let devices = match Devices::decode_all(&wanted.devices) {
        Ok(devices) => devices,
        Err(error) => {
            trouble.failures.push(error.to_string());
            return trouble;
        }
    };
    let missing = devices::missing(&devices);
    (trouble.remarks, trouble.failures) = (missing.optional, missing.needed);
    // A root on a disk without a driver would be looked for in vain.
    if trouble.failures.is_empty() {
        prepare_files(wanted, &mut trouble);
        prepare_network(&devices, &mut trouble);
    }
    trouble
}

/// Mounts what there is, and what the host wants to be there.
fn prepare_files(wanted: &Wanted, trouble: &mut Trouble) {
    let Trouble { remarks, failures } = trouble;
    let mut note = |what: &str, result: io::Result<()>| {
        if let Err(error) = result {
            remarks.push(format!("{what}: {error}"));
        }
    };
    let (mounts, root) = match root::enter(&wanted.mounts, modules::lead) {
        Ok(found) => found,
        Err(error) => {
            failures.push(format!("no root file system: {error}"));
            return;
        }
    };
    let (volumes, modules): (Vec<_>, Vec<_>) =
        mounts.into_iter().partition(|mount| mount.kind == MountKind::Directory);
    let is_left = |place: &str| wanted.life == Life::ItsOwn && ITS_OWN_MOUNTS.contains(&place);
    for (kind, place, options) in MOUNTS.iter().filter(|(_, place, _)| !is_left(place)) {
        // What the root's own system has there while it runs is not in this one.
        let is_ours = root.is_some() && *place == "/run";
        note(place, mount_one(kind, place, options, is_ours));
    }
    for what in &modules {
        match modules::mount(what) {
            Err(error) if what.kind == MountKind::OwnModules => {
                failures.push(format!("no modules: {error}"));
            }
            result => note("modules", result),
        }
    }
    failures.extend(root::mount_volumes(&volumes));
    for (target, link) in LINKS {
        if fs::symlink_metadata(link).is_err() {
            note(link, std::os::unix::fs::symlink(target, link));
        }
    }
    // The user may have mounted some there.
    note("modules", modules::prepare(root, !modules.is_empty()));
    note("hostname", hostname::set(wanted.hostname.as_deref()));
}

/// Sets the network up. Where nobody has asked for one, a command can do without.
fn prepare_network(wanted: &[Devices], trouble: &mut Trouble) {
    let is_needed =
        wanted.iter().any(|devices| devices.kind == Kind::Network && !devices.is_optional);
    if let Err(error) = crate::network::bring_up() {
        let list = if is_needed { &mut trouble.failures } else { &mut trouble.remarks };
        list.push(format!("network: {error}"));
    }
}

fn mount_one(kind: &str, place: &str, options: &std::ffi::CStr, always: bool) -> io::Result<()> {
    if !Path::new(place).is_dir() {
        fs::create_dir_all(place)?;
    } else if kind == "tmpfs" && !always && fs::read_dir(place)?.next().is_some() {
        // The image brought files to this place, which a mount would hide.
        return Ok(());
    }
    let flags = match kind {
        "devtmpfs" => MountFlags::NOSUID,
        "devpts" => MountFlags::NOSUID | MountFlags::NOEXEC,
        "tmpfs" => MountFlags::NOSUID | MountFlags::NODEV,
        _ => MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC,
    };
    match mount(kind, place, kind, flags, options) {
        // The kernel may have mounted devtmpfs itself, and may lack cgroups.
        Err(rustix::io::Errno::BUSY) => Ok(()),
        Err(rustix::io::Errno::NODEV | rustix::io::Errno::NOENT) if kind == "cgroup2" => Ok(()),
        other => lift(other),
    }
}

/// Loads what the host has put there, in the order of its names. One that is there already, or built
/// in, is no trouble.
fn load_drivers() -> io::Result<()> {
    let Ok(directory) = fs::read_dir("/.bivouac/drivers") else { return Ok(()) };
    let mut paths: Vec<_> = directory.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    for path in paths {
        let module = fs::read(&path)?;
        match rustix::system::init_module(&module, c"") {
            Err(rustix::io::Errno::EXIST) => {}
            other => lift(other)?,
        }
    }
    Ok(())
}

/// Ends whoever is left, writes back what is written, and switches the machine off. Returns only if the kernel refuses.
pub fn power_off() {
    // The group of the first process stands for all others (kill(2)).
    let _ = rustix::process::kill_process_group(Pid::INIT, Signal::KILL);
    rustix::fs::sync();
    disk::settle();
    if let Err(error) = reboot(RebootCommand::PowerOff) {
        eprintln!("init: cannot switch the machine off: {error}");
        let _ = reboot(RebootCommand::Restart);
    }
}
