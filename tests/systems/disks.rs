//! Machines that boot from a disk (`biv run --boot-disk`): kernel, initial RAM disk and parameters are its own.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use provision::initramfs::cpio::{Archive, Metadata, mode};
use provision::{Guest, Part};
use whole_machine::text;
use whole_machine::waiting::wait_for;

use crate::place::Place;

/// The first process of an initial RAM disk that tells what it was booted with.
pub const TELLING: &str = "#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
echo \"booted with $(/bin/busybox cat /proc/cmdline)\"
/bin/busybox poweroff -f
";

/// That of one that goes on with the root on the second partition.
const SWITCHING: &str = "#!/bin/busybox sh
/bin/busybox mount -t devtmpfs dev /dev
for driver in /drivers/*; do /bin/busybox insmod $driver; done
until [ -e /dev/vda2 ]; do /bin/busybox sleep 0.1; done
/bin/busybox mount -t ext4 /dev/vda2 /sys
exec /bin/busybox switch_root /sys /sbin/init
";

/// That of one that reboots once, of which the disk keeps that it has.
const REBOOTING: &str = "#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
for driver in /drivers/*; do /bin/busybox insmod $driver; done
until [ -e /dev/vda1 ]; do /bin/busybox sleep 0.1; done
echo \"booted with $(/bin/busybox cat /proc/cmdline)\"
if [ \"$(/bin/busybox head -c 4 /dev/vda)\" = once ]; then /bin/busybox poweroff -f; fi
printf once | /bin/busybox dd of=/dev/vda conv=notrunc,fsync
/bin/busybox reboot -f
";

/// That of one that counts, and never ends.
const COUNTING: &str = "#!/bin/busybox sh
number=0
while :; do number=$((number + 1)); echo \"number $number.\"; /bin/busybox sleep 0.1; done
";

/// That of one that counts on a virtio console.
const COUNTING_ON_HVC: &str = "#!/bin/busybox sh
/bin/busybox mount -t devtmpfs dev /dev
for driver in /drivers/*; do /bin/busybox insmod $driver; done
exec >/dev/hvc0
number=0
while :; do number=$((number + 1)); echo \"number $number.\"; /bin/busybox sleep 0.1; done
";

/// What a distribution's GRUB would read.
const GRUB: &str = "set default=\"${saved_entry}\"
load_env
menuentry 'Broken' { linux /none }
menuentry 'Right' --class os --id right {
  search --no-floppy --label --set=root booting
  linux /vmlinuz root=/dev/vda2 of=the-disk
  initrd /initrd
}
if [ -s $prefix/grubenv ]; then load_env; set default=right; fi
";

/// Where partitions begin: at multiples of this.
const UNIT_BYTES: u64 = 1 << 20;

const SECTOR_BYTES: u64 = 512;

pub fn initrd(init: &str) -> Vec<u8> {
    let guest = Guest::provide(&[Part::Busybox, Part::Kernel, Part::Drivers]).expect("a guest");
    let busybox = fs::read(guest.busybox().expect("it is there").program).expect("likewise");
    let drivers = guest.drivers(&[provision::VIRTIO, &["virtio_blk", "virtio_console"]].concat());
    let mut archive = Archive::new(Vec::new());
    for name in ["bin", "dev", "drivers", "proc", "sys"] {
        let directory = Metadata::new(mode::DIRECTORY | 0o755);
        archive.add(name.as_bytes(), directory, &[]).expect("memory takes it");
    }
    let mut add = |name: String, contents: &[u8]| {
        let program = Metadata::new(mode::FILE | 0o755);
        archive.add(name.as_bytes(), program, contents).expect("memory takes it");
    };
    add("bin/busybox".to_owned(), &busybox);
    add("init".to_owned(), init.as_bytes());
    for (number, (_, path)) in drivers.iter().enumerate() {
        add(format!("drivers/{number:02}"), &fs::read(path).expect("a driver"));
    }
    archive.finish().expect("memory takes it")
}

/// A file system (ext4) for booting, with the default kernel.
fn booting(place: &Place, init: &str) -> PathBuf {
    booting_by(place, init, GRUB)
}

/// One with this for GRUB.
fn booting_by(place: &Place, init: &str, grub: &str) -> PathBuf {
    let tree = place.path.join("booting");
    fs::create_dir_all(tree.join("grub")).expect("there is room");
    let guest = Guest::provide(&[Part::Kernel]).expect("a guest");
    fs::copy(guest.kernel(), tree.join("vmlinuz")).expect("there is room");
    fs::write(tree.join("initrd"), initrd(init)).expect("there is room");
    fs::write(tree.join("grub/grub.cfg"), grub).expect("there is room");
    fs::write(tree.join("grub/grubenv"), "# GRUB Environment Block\n").expect("there is room");
    let image = place.path.join("booting.img");
    place.make_file_system(&tree, &image, &["-L", "booting"], "64M");
    image
}

/// A disk with an MBR and these partitions.
pub fn disk(path: &Path, partitions: &[&Path]) {
    let mut file = File::create(path).expect("there is room");
    let mut table = [0; SECTOR_BYTES as usize];
    let mut at = UNIT_BYTES;
    for (number, partition) in partitions.iter().enumerate() {
        let bytes = fs::read(partition).expect("it was made");
        file.seek(SeekFrom::Start(at)).expect("a file");
        file.write_all(&bytes).expect("there is room");
        let entry = &mut table[446 + 16 * number..][..16];
        entry[4] = 0x83;
        entry[8..12].copy_from_slice(&((at / SECTOR_BYTES) as u32).to_le_bytes());
        let sectors = (bytes.len() as u64 / SECTOR_BYTES) as u32;
        entry[12..].copy_from_slice(&sectors.to_le_bytes());
        at = (at + bytes.len() as u64).next_multiple_of(UNIT_BYTES);
    }
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    file.rewind().expect("a file");
    file.write_all(&table).expect("there is room");
    file.set_len(at).expect("there is room");
}

#[test]
fn a_disk_is_booted_as_its_boot_loader_would() {
    let place = Place::new();
    let path = place.path.join("disk.img");
    disk(&path, &[&booting(&place, TELLING)]);
    let raw = path.to_str().expect("text");
    let check = |options: &[&str], more: &str| {
        let output = place.output(&[&["run", "--mem", "256M"], options].concat());
        let (said, complained) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{said} {complained}");
        let expected = format!("booted with console=ttyS0 root=/dev/vda2 of=the-disk{more}");
        assert!(said.contains(&expected), "{said}");
    };
    check(&["--boot-disk", raw], "");
    check(&["--boot-disk", &format!("{raw},ro"), "--append", "and=more"], " and=more");
    let qcow2 = place.path.join("disk.qcow2");
    let qcow2 = qcow2.to_str().expect("text");
    let convert = ["convert", "-f", "raw", "-O", "qcow2", "-c", raw, qcow2];
    let converted = Command::new("qemu-img").args(convert).output().expect("`qemu-img` is there");
    assert!(converted.status.success(), "{converted:?}");
    check(&["--boot-disk", &format!("{qcow2},snapshot")], "");
}

#[test]
fn a_reboot_starts_the_same_kernel_and_so_does_another_start() {
    let place = Place::new();
    let path = place.path.join("disk.img");
    disk(&path, &[&booting(&place, REBOOTING)]);
    let raw = path.to_str().expect("text");
    place.detach("web", &["--boot-disk", raw]);
    wait_for("it has ended", || place.state("web").as_deref() == Some("ended (0)"));
    let console = place.console("web");
    assert_eq!(console.matches("booted with console=ttyS0").count(), 2, "{console}");
    // The disk keeps what has been written, and the log goes on.
    assert_eq!(place.says(&["start", "web"]), "web\n");
    let times = || place.console("web").matches("booted with console=ttyS0").count();
    wait_for("it is booted once more", || times() == 3);
    wait_for("it has ended", || place.state("web").as_deref() == Some("ended (0)"));
    assert_eq!(times(), 3, "{}", place.console("web"));
    let description = ["run", "--print-spec", "--name", "two", "--boot-disk", raw];
    let file = place.path.join("spec.json");
    fs::write(&file, place.says(&description)).expect("there is room");
    let output = place.output(&["run", "--spec", file.to_str().expect("text")]);
    let said = text(&output.stdout);
    assert!(output.status.success() && said.contains("of=the-disk"), "{output:?}");
}

#[test]
fn a_disk_goes_on_from_a_snapshot() {
    check_goes_on(COUNTING, GRUB, &[]);
}

/// The user's own parameters come after those of the disk.
#[test]
fn a_disk_with_a_virtio_console_goes_on_from_a_snapshot() {
    let grub = GRUB.replace("of=the-disk", "console=hvc0");
    check_goes_on(COUNTING_ON_HVC, &grub, &["--append", "and=more"]);
}

fn check_goes_on(init: &str, grub: &str, options: &[&str]) {
    let place = Place::new();
    let path = place.path.join("disk.img");
    disk(&path, &[&booting_by(&place, init, grub)]);
    place.detach("one", &[&["--boot-disk", path.to_str().expect("text")], options].concat());
    wait_for("it counts", || place.console("one").contains("number 3."));
    let file = place.path.join("snapshot");
    let file = file.to_str().expect("text");
    place.says(&["snapshot", "one", file]);
    place.says(&["kill", "one"]);
    wait_for("it has ended", || place.state("one").is_some_and(|state| state != "running"));
    place.says(&["restore", "-d", "--name", "two", file]);
    wait_for("it counts", || place.console("two").matches("number ").count() > 3);
    let console = place.console("two");
    assert!(!console.contains("number 1.") && !console.contains("Linux version"), "{console}");
    place.says(&["kill", "two"]);
}

#[test]
fn a_whole_system_boots_with_its_own_kernel() {
    let place = Place::new();
    let path = place.path.join("disk.img");
    let root = place.system_disk();
    disk(&path, &[&booting(&place, SWITCHING), Path::new(&root)]);
    let disk = format!("{},snapshot", path.display());
    place.detach("web", &["--net", "user", "--boot-disk", &disk]);
    wait_for("somebody may log in", || place.console("web").contains("whole login:"));
    assert!(place.complains(&["exec", "web", "true"]).contains("does not run Bivouac's init"));
    // It has neither a bus nor systemd-logind.
    let output = place.output(&["stop", "--time", "1", "web"]);
    let said = text(&output.stderr);
    assert!(output.status.success() && said.contains("by force"), "{said}");
    assert!(said.contains("power button"), "{said}");
    assert_eq!(place.state("web").as_deref(), Some("ended (137)"));
}

#[test]
fn what_cannot_be_booted_says_what_it_has() {
    let place = Place::new();
    let path = place.path.join("disk.img");
    let check = |options: &[&str], status: i32, expected: &str| {
        let output = place.output(&[&["run"], options].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{options:?}: {said}");
        assert!(said.contains(expected), "{options:?}: {said}");
    };
    let name = path.to_str().expect("text");
    check(&["--boot-disk", name], 125, "No such file");
    fs::write(&path, [0; 100]).expect("there is room");
    check(&["--boot-disk", name], 125, "it has 100 bytes");
    fs::write(&path, vec![0; 1 << 20]).expect("there is room");
    check(&["--boot-disk", name], 125, "no partitions: nothing that is known");
    let mut xfs = vec![0; 1 << 20];
    xfs[..4].copy_from_slice(b"XFSB");
    fs::write(&path, xfs).expect("there is room");
    let failed = "xfs, which Linux cannot mount (mount: mounting /dev/vda on /v/0 failed: ";
    check(&["--boot-disk", name], 125, failed);
    check(&["--no-seccomp", "--boot-disk", name], 125, failed);
    let text = r#"{"version": 1, "boot": {"disk": {"path": "x"}, "init": "/sbin/init"}}"#;
    fs::write(&path, text).expect("there is room");
    check(&["--spec", name], 125, "boot.disk");
    check(&["--boot-disk", name, "--kernel", "x"], 2, "cannot be used with");
    check(&["--boot-disk", name, "--", "ls"], 2, "cannot be used with");
}
