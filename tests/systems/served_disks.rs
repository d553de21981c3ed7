//! Machines that boot from a disk whose file systems another machine reads (`biv run --boot-disk`): xfs and btrfs.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpt::GptConfig;
use gpt::disk::LogicalBlockSize;
use gpt::mbr::ProtectiveMBR;
use gpt::partition_types::{EFI, LINUX_FS};
use provision::{Guest, Part};
use whole_machine::text;

use crate::disks::{TELLING, initrd};
use crate::place::Place;

/// What Rocky Linux has in `/boot/grub2`, as far as it decides something, and in `/boot/loader/entries`.
const ROCKY: &str = r#"
if [ -f ${config_directory}/grubenv ]; then
  load_env -f ${config_directory}/grubenv
elif [ -s $prefix/grubenv ]; then
  load_env
fi
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
   save_env next_entry
   set boot_once=true
else
   set default="${saved_entry}"
fi
search --no-floppy --fs-uuid --set=root 01234567-89ab-cdef-0123-456789abcdef
search --no-floppy --fs-uuid --set=boot 01234567-89ab-cdef-0123-456789abcdef
if [ -z "${kernelopts}" ]; then
  set kernelopts="root=UUID=1 ro "
fi
insmod blscfg
blscfg
"#;
const ROCKY_ENVIRONMENT: &str = "# GRUB Environment Block\nsaved_entry=0123-5.14.0.el9.x86_64\n";
const ROCKY_ENTRY: &str = "title Rocky Linux (5.14.0.el9.x86_64) 9.4 (Blue Onyx)
version 5.14.0.el9.x86_64
linux /vmlinuz-5.14.0.el9.x86_64
initrd /initramfs-5.14.0.el9.x86_64.img $tuned_initrd
options root=UUID=1 ro crashkernel=1G of=rocky $tuned_params
grub_users $grub_users
grub_arg --unrestricted
";

/// What openSUSE has in `/boot/grub2`, likewise. Its kernels are links.
const OPENSUSE: &str = r#"
set btrfs_relative_path="yes"
export btrfs_relative_path
if [ -s $prefix/grubenv ]; then
  load_env
fi
set default="${saved_entry}"
menuentry 'openSUSE' --class opensuse $menuentry_id_option 'gnulinux-simple' {
  load_video
  set gfxpayload=keep
  insmod btrfs
  search --no-floppy --fs-uuid --set=root 01234567-89ab-cdef-0123-456789abcdef
  linux /boot/vmlinuz-6.4.0 root=UUID=1 of=opensuse
  initrd /boot/initrd
}
"#;

const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";

/// Runs a tool, or says that it is not there.
fn made(tool: &mut Command) -> Option<()> {
    tool.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let Ok(output) = tool.output() else {
        println!("skipped: {} is not installed", tool.get_program().display());
        return None;
    };
    assert!(output.status.success(), "{tool:?}: {}", text(&output.stderr));
    Some(())
}

/// A file for a file system.
fn image(place: &Place, megabytes: u64) -> PathBuf {
    let path = place.path.join("image");
    File::create(&path).and_then(|file| file.set_len(megabytes << 20)).expect("there is room");
    path
}

/// What all of them boot, in these files.
fn write_kernel(kernel: &Path, initial: &Path) {
    let guest = Guest::provide(&[Part::Kernel]).expect("a guest");
    fs::copy(guest.kernel(), kernel).expect("there is room");
    fs::write(initial, initrd(TELLING)).expect("there is room");
}

/// Rocky's `/boot` as xfs, if that can be made.
fn xfs(place: &Place) -> Option<PathBuf> {
    let path = |name: &str| place.path.join(name);
    write_kernel(&path("vmlinuz"), &path("initramfs"));
    fs::write(path("grub.cfg"), ROCKY).expect("there is room");
    fs::write(path("grubenv"), ROCKY_ENVIRONMENT).expect("there is room");
    fs::write(path("entry"), ROCKY_ENTRY).expect("there is room");
    let rescue = ROCKY_ENTRY.replace("/vmlinuz-", "/gone-");
    fs::write(path("rescue"), rescue).expect("there is room");
    let at = place.path.display();
    let prototype = format!(
        "/boot\n0 0\nd--755 0 0\n\
         grub2 d--755 0 0\n\
         grub.cfg ---644 0 0 {at}/grub.cfg\n\
         grubenv ---644 0 0 {at}/grubenv\n\
         $\n\
         loader d--755 0 0\n\
         entries d--755 0 0\n\
         0123-5.14.0.el9.x86_64.conf ---644 0 0 {at}/entry\n\
         0123-9-rescue.conf ---644 0 0 {at}/rescue\n\
         $\n\
         $\n\
         vmlinuz-5.14.0.el9.x86_64 ---755 0 0 {at}/vmlinuz\n\
         initramfs-5.14.0.el9.x86_64.img ---600 0 0 {at}/initramfs\n\
         $\n"
    );
    fs::write(path("prototype"), prototype).expect("there is room");
    let image = image(place, 320);
    let mut make = Command::new("mkfs.xfs");
    make.args(["-q", "-m", &format!("uuid={UUID}"), "-p"]).arg(path("prototype")).arg(&image);
    made(&mut make)?;
    Some(image)
}

/// openSUSE's root as btrfs, if that can be made.
fn btrfs(place: &Place) -> Option<PathBuf> {
    let tree = place.path.join("tree");
    let modules = tree.join("usr/lib/modules/6.4.0");
    fs::create_dir_all(tree.join("boot/grub2")).expect("there is room");
    fs::create_dir_all(&modules).expect("there is room");
    write_kernel(&modules.join("vmlinuz"), &tree.join("boot/initrd-6.4.0"));
    let link = |target: &str, name: &str| {
        std::os::unix::fs::symlink(target, tree.join(name)).expect("there is room");
    };
    link("../usr/lib/modules/6.4.0/vmlinuz", "boot/vmlinuz-6.4.0");
    link("/boot/initrd-6.4.0", "boot/initrd");
    fs::write(tree.join("boot/grub2/grub.cfg"), OPENSUSE).expect("there is room");
    let image = image(place, 256);
    let mut make = Command::new("mkfs.btrfs");
    made(make.args(["-q", "-U", UUID, "--rootdir"]).arg(&tree).arg(&image))?;
    Some(image)
}

/// A disk with a GPT, an empty partition for firmware, and this one.
fn disk(place: &Place, partition: &Path) -> PathBuf {
    let path = place.path.join("disk.img");
    let bytes = fs::metadata(partition).expect("it was made").len();
    let file = File::create_new(&path).expect("there is room");
    file.set_len(bytes + (8 << 20)).expect("there is room");
    let file = File::options().read(true).write(true).open(&path).expect("it was made");
    let size = LogicalBlockSize::Lb512;
    let config = GptConfig::new().writable(true).logical_block_size(size);
    let mut disk = config.create_from_device(file, None).expect("a table");
    disk.add_partition("EFI", 1 << 20, EFI, 0, Some(2048)).expect("there is room");
    let number = disk.add_partition("x", bytes, LINUX_FS, 0, Some(2048)).expect("there is room");
    let at = disk.partitions()[&number].bytes_start(size).expect("it is there");
    let mut file = disk.write().expect("there is room");
    // Most of it is zeros, which need not be written.
    for (number, block) in fs::read(partition).expect("it was made").chunks(1 << 16).enumerate() {
        if block.iter().any(|byte| *byte != 0) {
            file.write_all_at(block, at + ((number as u64) << 16)).expect("there is room");
        }
    }
    // Linux believes no GPT without it.
    let sectors = u32::try_from(bytes >> 9).expect("it is small");
    ProtectiveMBR::with_lb_size(sectors).overwrite_lba0(&mut file).expect("there is room");
    path
}

/// Boots it; what it says, on standard output.
#[track_caller]
fn boots(place: &Place, disk: &Path, options: &[&str], expected: &str) {
    let disk = format!("{},snapshot", disk.display());
    let words = ["run", "--mem", "256M", "--boot-disk", &disk];
    let output = place.output(&[&words, options].concat());
    let (said, complained) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said} {complained}");
    assert!(said.contains(&format!("booted with console=ttyS0 {expected}")), "{said}");
    assert_eq!(complained, "");
}

#[test]
fn a_boot_partition_of_xfs_is_read_by_a_machine() {
    let place = Place::new();
    let Some(partition) = xfs(&place) else { return };
    let disk = disk(&place, &partition);
    let before = fs::read(&disk).expect("it was made");
    boots(&place, &disk, &[], "root=UUID=1 ro crashkernel=1G of=rocky");
    let more = ["--no-seccomp", "--append", "and=more"];
    boots(&place, &disk, &more, "root=UUID=1 ro crashkernel=1G of=rocky and=more");
    assert!(fs::read(&disk).expect("it was made") == before, "it is written to");
}

#[test]
fn a_root_of_btrfs_is_read_by_a_machine() {
    let place = Place::new();
    let Some(partition) = btrfs(&place) else { return };
    boots(&place, &disk(&place, &partition), &[], "root=UUID=1 of=opensuse");
    // Without a partition table.
    boots(&place, &partition, &[], "root=UUID=1 of=opensuse");
}

#[test]
fn a_disk_that_a_machine_reads_may_have_no_boot_loader() {
    let place = Place::new();
    let partition = image(&place, 320);
    if made(Command::new("mkfs.xfs").arg("-q").arg(&partition)).is_none() {
        return;
    }
    let disk = disk(&place, &partition);
    let name = disk.to_str().expect("text");
    let check = |expected: &str| {
        let said = place.complains(&["run", "--boot-disk", name]);
        assert!(said.contains(expected), "{said}");
    };
    check("loader/entries) that names a Linux kernel; the disk has: partition 1: ");
    check("; partition 2: xfs\n");
}
