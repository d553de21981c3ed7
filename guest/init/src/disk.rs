//! The root file system on a disk: any file system that the kernel knows.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};

/// Where devices and the kernel's list are while there is no root.
const DEVICES: &str = "/dev";
const KERNEL: &str = "/proc";

/// Where all disks are, with what they say of themselves.
const DISKS: &str = "/sys/block";

/// The file system of an image.
const IMAGE: &str = "erofs";

/// Why a file system that was not left in order cannot be mounted to be read only.
const JOURNAL_HINT: &str =
    "; its journal is to be written back first: use it once without ,ro, or with ,snapshot";

/// How long a disk, or a partition of it, may take to appear.
const PATIENCE: u32 = 200;
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Mounts the device of that name (`vda1`) at `place`.
pub fn mount_disk(name: &str, is_read_only: bool, place: &Path) -> io::Result<()> {
    let device = Path::new(DEVICES).join(name);
    for _ in 0..PATIENCE {
        if device.exists() {
            break;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    if !device.exists() {
        let text = format!("there is no /dev/{name}; the disk has: {}", partitions()?);
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    }
    let list = fs::read_to_string(Path::new(KERNEL).join("filesystems"))?;
    let kinds: Vec<_> = file_systems(&list).collect();
    let flags = if is_read_only { MountFlags::RDONLY } else { MountFlags::empty() };
    for kind in &kinds {
        match mount(&device, place, *kind, flags, None) {
            Ok(()) => return Ok(()),
            // It is something else, and the next may know it.
            Err(Errno::INVAL | Errno::NODEV) => {}
            Err(errno) => {
                let error = io::Error::from(errno);
                let hint = if errno == Errno::ROFS && is_read_only { JOURNAL_HINT } else { "" };
                let text = format!("cannot mount /dev/{name} as {kind}: {error}{hint}");
                return Err(io::Error::new(error.kind(), text));
            }
        }
    }
    let text = format!(
        "/dev/{name} has no file system that this kernel knows, which are {}; the disk has: {}",
        kinds.join(", "),
        partitions()?
    );
    Err(io::Error::new(io::ErrorKind::InvalidData, text))
}

/// Mounts the image of a root that is on a disk, or on a partition of it. `disk` is its serial number, whatever it is
/// called: others were named by the user, and come before it. A disk of a Xen domain has none; of that it is the name.
pub fn mount_image(disk: &[u8], partition: Option<u8>, place: &Path) -> io::Result<()> {
    for _ in 0..PATIENCE {
        let name = find_disk(Path::new(DISKS), disk).map(|name| part_of(name, partition));
        let device = name.map(|name| Path::new(DEVICES).join(name));
        if let Some(device) = device.filter(|device| device.exists()) {
            let mounted = mount(&device, place, IMAGE, MountFlags::RDONLY, None);
            return mounted.map_err(|errno| {
                let error = io::Error::from(errno);
                let text = format!("cannot mount {} as {IMAGE}: {error}", device.display());
                io::Error::new(error.kind(), text)
            });
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    let text = format!("there is no disk {}", String::from_utf8_lossy(disk));
    Err(io::Error::new(io::ErrorKind::NotFound, text))
}

/// What a partition is called.
fn part_of(mut disk: OsString, partition: Option<u8>) -> OsString {
    if let Some(partition) = partition {
        disk.push(partition.to_string());
    }
    disk
}

/// The disk with that serial number, or of that name, of those in the kernel's list. No name is a serial number that is
/// looked for, which have a slash.
fn find_disk(disks: &Path, wanted: &[u8]) -> Option<OsString> {
    let mut names = fs::read_dir(disks).ok()?.filter_map(|entry| Some(entry.ok()?.file_name()));
    let is_it = |name: &OsString| {
        let found = fs::read(disks.join(name).join("serial"));
        name.as_bytes() == wanted || found.is_ok_and(|found| found.trim_ascii_end() == wanted)
    };
    names.find(is_it)
}

/// Those that are on disks, of the kernel's list (proc(5)).
fn file_systems(list: &str) -> impl Iterator<Item = &str> {
    list.lines().filter(|line| !line.starts_with("nodev")).map(str::trim)
}

/// The disks and partitions that there are, for a message.
fn partitions() -> io::Result<String> {
    let list = fs::read_to_string(Path::new(KERNEL).join("partitions"))?;
    let names: Vec<_> = list.lines().filter_map(|line| line.split_whitespace().nth(3)).collect();
    Ok(names.iter().skip(1).copied().collect::<Vec<_>>().join(", "))
}

/// Has every disk that is mounted hold nothing back, so that none has to be repaired when it is mounted
/// again. Nobody may be left who writes.
pub fn settle() {
    let Ok(mounts) = fs::read_to_string("/proc/self/mounts") else { return };
    // What was mounted last may lie in what was before.
    for line in mounts.lines().rev() {
        let mut words = line.split(' ');
        let (Some(source), Some(place)) = (words.next(), words.next()) else { continue };
        if !source.starts_with("/dev/") {
            continue;
        }
        for _ in 0..PATIENCE {
            let flags = MountFlags::RDONLY;
            match rustix::mount::mount_remount(place, flags, c"") {
                Err(Errno::BUSY) => std::thread::sleep(LOOK_AGAIN),
                _ => break,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_found_by_its_serial_number_or_its_name() {
        let disks = std::env::temp_dir().join(format!("init-disks-{}", std::process::id()));
        let _ = fs::remove_dir_all(&disks);
        for (name, serial) in [("vda", "data.img"), ("vdb", "image/0123456789abcd\n")] {
            fs::create_dir_all(disks.join(name)).unwrap();
            fs::write(disks.join(name).join("serial"), serial).unwrap();
        }
        fs::create_dir_all(disks.join("loop0")).unwrap();
        let find = |wanted: &[u8]| find_disk(&disks, wanted);
        assert_eq!(find(b"image/0123456789abcd"), Some("vdb".into()));
        assert_eq!(find(b"data.img"), Some("vda".into()));
        assert_eq!(find(b"loop0"), Some("loop0".into()));
        assert_eq!(find(b"image/0123456789abc"), None);
        fs::remove_dir_all(&disks).unwrap();
        assert_eq!(find(b"data.img"), None);
    }

    #[test]
    fn only_file_systems_on_disks_are_tried() {
        let list = "nodev\tsysfs\nnodev\ttmpfs\n\text3\n\text4\nnodev\toverlay\n\tfuseblk\n";
        assert_eq!(file_systems(list).collect::<Vec<_>>(), ["ext3", "ext4", "fuseblk"]);
    }
}
