//! Gives the system what it takes to load modules: the directory of them, nodes of devices whose drivers are loaded
//! when they are opened, and a `modprobe`.
//!
//! The kernel starts a `modprobe` whenever it lacks a file system, a protocol or a kind of interface that it could
//! have. That is init's own program, which has no path in a root of the host's but that of the process ([`PROGRAM`]).
//! So it works in every root, and leaves nothing in any. Only a system on a disk has its own, with its configuration.
//!
//! What can be done before the host says what is to be mounted is done then ([`begin`]): a machine that goes on from a
//! snapshot of that moment has it already.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use protocol::mounts::{Kind, Mount};
use rustix::fs::{Access, CWD, FileType, Mode, access, makedev, mknodat};
use rustix::io::Errno;
use rustix::mount::MountFlags;

use crate::layers::copy_owner;
use crate::root::{lift, mount_shared};

/// Where systems have them.
pub const PLACE: &str = "/lib/modules";

/// Where they are mounted in a root whose changes are kept in memory, with a link to here at the usual place. A pod
/// lays a directory in which something is mounted entry by entry, and that one has many.
const BESIDE: &str = "/.bivouac/modules";

/// Where a root has its libraries, and modules: at the one or, by a link, the other.
const LIBRARIES: [&str; 2] = ["lib", "usr/lib"];

/// The index by which a directory with a kernel's modules is known.
pub const DEPENDENCIES: &str = "modules.dep";

/// Init's program in any root.
const PROGRAM: &str = "/proc/1/exe";

/// Which program the kernel starts (proc(5)).
const SETTING: &str = "/proc/sys/kernel/modprobe";

/// Which it starts if nobody says another.
const USUAL: &str = "/sbin/modprobe";

/// The devices of the modules that the host has, as their index has them.
const DEVICES: &str = "/.bivouac/devices";

/// Its usual name, which users type.
const NAME: &str = "modprobe";

/// Where that is, and where its link comes.
const USUAL_PLACES: [&str; 4] = ["/sbin", "/usr/sbin", "/bin", "/usr/bin"];

/// Devices that all users may open: their drivers look who that is.
const FOR_ALL: [&str; 2] = ["fuse", "net/tun"];

/// Whether a program that was started by this name is to load modules.
pub fn is_modprobe(name: &str) -> bool {
    is_program(name) || Path::new(name).file_name().is_some_and(|file| file == NAME)
}

/// Whether this is [`PROGRAM`], or the same of a process beside a process 1 that is not ours.
fn is_program(path: &str) -> bool {
    let number = path.strip_prefix("/proc/").and_then(|path| path.strip_suffix("/exe"));
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Leaves loading modules to the root's own program, or, where it has none, to ours, which the process of that number
/// goes on executing when process 1 does not any more.
pub fn leave_to(agent: u32) {
    let program = format!("/proc/{agent}/exe");
    let has_own = access(USUAL, Access::EXEC_OK).is_ok() && !is_link_to(USUAL, PROGRAM);
    // A kernel without modules has no such setting.
    let _ = fs::write(SETTING, if has_own { USUAL } else { &program });
    let place = Path::new(USUAL_PLACES[0]).join(NAME);
    if is_link_to(USUAL, PROGRAM) && fs::remove_file(&place).is_ok() {
        let _ = symlink(program, place);
    }
}

fn is_link_to(link: &str, target: &str) -> bool {
    fs::read_link(link).is_ok_and(|found| found == Path::new(target))
}

/// Where this kernel's are.
pub fn directory() -> PathBuf {
    Path::new(PLACE).join(release())
}

/// What this kernel calls itself.
fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Has the usual place lead to [`BESIDE`] in a root that is about to be made of these layers, unless it has modules for
/// this kernel, or is unlike others: they are mounted at the usual place then.
pub fn lead(kind: Kind, lower: &Path, upper: &Path) -> io::Result<()> {
    let library = match fs::read_link(lower.join(LIBRARIES[0])) {
        Ok(target) if target.ends_with(LIBRARIES[1]) => LIBRARIES[1],
        Ok(_) => return Ok(()),
        Err(_) => LIBRARIES[0],
    };
    // The innermost is first, and the root itself last.
    let mut above: Vec<_> = Path::new(library).ancestors().collect();
    above.pop();
    let is_own =
        |path: &&Path| fs::symlink_metadata(lower.join(path)).is_ok_and(|found| found.is_dir());
    let modules = Path::new(library).join("modules");
    let has_some = lower.join(&modules).join(release()).join(DEPENDENCIES).is_file();
    if (kind == Kind::Modules && has_some) || !above.iter().all(is_own) {
        return Ok(());
    }
    for directory in above.into_iter().rev() {
        fs::create_dir(upper.join(directory))?;
        copy_owner(&lower.join(directory), &upper.join(directory))?;
    }
    symlink(BESIDE, upper.join(modules))
}

/// Mounts those that the host has for this kernel.
pub fn mount(what: &Mount) -> io::Result<()> {
    let own = directory();
    let is_led = fs::read_link(PLACE).is_ok_and(|target| target == Path::new(BESIDE));
    if what.kind == Kind::Modules && !is_led && own.join(DEPENDENCIES).is_file() {
        return Ok(());
    }
    let place = Path::new(if is_led { BESIDE } else { PLACE });
    fs::create_dir_all(place)?;
    if what.kind == Kind::Modules {
        return mount_shared(what, place);
    }
    if !is_led {
        // The root may be a directory of the host's, in which nothing is to be made.
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        lift(rustix::mount::mount("tmpfs", place, "tmpfs", flags, c"mode=0755,size=64k"))?;
    }
    fs::create_dir(&own)?;
    mount_shared(what, &own)
}

/// Makes what does not depend on the root.
pub fn begin() -> io::Result<()> {
    make_devices(Path::new(DEVICES));
    match fs::write(SETTING, PROGRAM) {
        // The kernel has no modules.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        written => written,
    }
}

/// Makes what does, where the root is of this kind and `is_shown` says that the host has shown modules.
pub fn prepare(root: Option<Kind>, is_shown: bool) -> io::Result<()> {
    let is_kept = matches!(root, Some(Kind::Root | Kind::DiskRoot));
    if !is_shown {
        let directory = directory();
        if !directory.join(DEPENDENCIES).is_file() {
            return Ok(());
        }
        make_devices(&directory.join("modules.devname"));
    }
    if !is_kept {
        make_program();
    }
    if root == Some(Kind::DiskRoot) && access(USUAL, Access::EXEC_OK).is_ok() {
        fs::write(SETTING, USUAL)?;
    }
    Ok(())
}

/// Makes the devices of such a list, if there is one.
fn make_devices(list: &Path) {
    if let Ok(devices) = fs::read_to_string(list) {
        devices.lines().filter_map(Node::parse).for_each(|node| node.make());
    }
}

/// Makes a `modprobe` for users where there is none.
fn make_program() {
    let has_it = |place: &str| fs::symlink_metadata(Path::new(place).join(NAME)).is_ok();
    if !USUAL_PLACES.iter().any(|place| has_it(place)) {
        // Whoever needs it complains.
        let _ = symlink(PROGRAM, Path::new(USUAL_PLACES[0]).join(NAME));
    }
}

/// A device whose driver may be loaded when it is opened.
#[derive(Debug, PartialEq, Eq)]
struct Node<'a> {
    name: &'a str,
    kind: FileType,
    number: (u32, u32),
}

impl<'a> Node<'a> {
    /// The one of a line of `modules.devname`: module, name, kind and number.
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (name, number) = (words.next()?, words.next()?);
        let (kind, number) = match number.split_at_checked(1)? {
            ("c", number) => (FileType::CharacterDevice, number),
            ("b", number) => (FileType::BlockDevice, number),
            _ => return None,
        };
        let (major, minor) = number.split_once(':')?;
        let number = (major.parse().ok()?, minor.parse().ok()?);
        let is_safe = !name.split('/').any(|part| part.is_empty() || part == "." || part == "..");
        is_safe.then_some(Self { name, kind, number })
    }

    /// A command that needs it complains if it could not be made.
    fn make(&self) {
        let path = Path::new("/dev").join(self.name);
        let mode = if FOR_ALL.contains(&self.name) { 0o666 } else { 0o600 };
        let make = || {
            let number = makedev(self.number.0, self.number.1);
            mknodat(CWD, &path, self.kind, Mode::from_raw_mode(mode), number)
        };
        let mut made = make();
        if made == Err(Errno::NOENT)
            && let Some(above) = path.parent()
            && fs::create_dir_all(above).is_ok()
        {
            made = make();
        }
        if made.is_ok() {
            // Not as our mask has it.
            let _ = fs::set_permissions(&path, fs::Permissions::from_mode(mode));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn init_is_modprobe_by_that_name_only() {
        for name in ["modprobe", "/sbin/modprobe", PROGRAM, "/proc/77/exe"] {
            assert!(is_modprobe(name), "{name}");
        }
        for name in
            ["init", "/.bivouac/init", "exe", "/proc/self/exe", "/proc//exe", "", "modprobe.sh"]
        {
            assert!(!is_modprobe(name), "{name}");
        }
    }

    #[test]
    fn modules_are_beside_a_root_of_the_usual_kind() {
        let place = std::env::temp_dir().join(format!("init-modules-{}", std::process::id()));
        let check = |make: &dyn Fn(&Path), kind: Kind, expected: Option<&str>| {
            let (lower, upper) = (place.join("lower"), place.join("upper"));
            fs::create_dir_all(&lower).unwrap();
            fs::create_dir_all(&upper).unwrap();
            make(&lower);
            lead(kind, &lower, &upper).unwrap();
            let made = fs::read_dir(&upper).unwrap().count();
            assert_eq!(made, expected.iter().count());
            if let Some(library) = expected {
                let link = fs::read_link(upper.join(library).join("modules")).unwrap();
                assert_eq!(link, Path::new(BESIDE));
                let mode = fs::metadata(upper.join(library)).unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o750);
            }
            fs::remove_dir_all(&place).unwrap();
        };
        let directory = |path: PathBuf| {
            fs::create_dir_all(&path).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o750)).unwrap();
        };
        let merged = |lower: &Path| {
            directory(lower.join("usr/lib"));
            symlink("usr/lib", lower.join("lib")).unwrap();
        };
        let with_modules = |lower: &Path| {
            merged(lower);
            directory(lower.join("lib/modules").join(release()));
            fs::write(lower.join("lib/modules").join(release()).join(DEPENDENCIES), "").unwrap();
        };
        check(&|lower| directory(lower.join("lib")), Kind::Modules, Some("lib"));
        check(&merged, Kind::Modules, Some("usr/lib"));
        check(&with_modules, Kind::Modules, None);
        check(&with_modules, Kind::OwnModules, Some("usr/lib"));
        check(&|lower| symlink("opt", lower.join("lib")).unwrap(), Kind::Modules, None);
        check(&|_| {}, Kind::Modules, None);
    }

    #[test]
    fn devices_have_a_name_below_dev_and_a_number() {
        let node = |name, kind, number| Some(Node { name, kind, number });
        let parse = Node::parse;
        let character = FileType::CharacterDevice;
        assert_eq!(parse("loop loop-control c10:237"), node("loop-control", character, (10, 237)));
        assert_eq!(parse("tun net/tun c10:200"), node("net/tun", character, (10, 200)));
        assert_eq!(parse("x x b7:0"), node("x", FileType::BlockDevice, (7, 0)));
        for line in ["# Device nodes", "", "a b", "a ../b c1:2", "a /b c1:2", "a b x1:2", "a b c1"]
        {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
