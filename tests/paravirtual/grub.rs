//! PV-GRUB: a paravirtual kernel that is not Linux, lies at the bottom of its address space and uses the console, the
//! store and a disk by drivers of its own. It loads Debian's kernel as it is packaged, lays out its memory by the
//! hypercalls that a domain has for itself, and jumps into it.

use std::fs;
use std::process::Command;

use whole_machine::ram_disk::RamDisk;
use whole_machine::{biv, kernels, text};

use super::{Image, MIB, MODE};

/// What GRUB finds on the disk.
const GRUB_CONFIGURATION: &str = "set timeout=0\n\
    menuentry Debian {\n\
    linux /boot/vmlinuz console=hvc0 quiet said.by=grub\n\
    initrd /boot/initrd\n\
    }\n";

/// The first process of what GRUB boots.
const INIT: &str = "#!/bin/busybox sh\n\
    /bin/busybox mount -t proc proc /proc\n\
    /bin/busybox mount -t sysfs sys /sys\n\
    /bin/busybox dmesg\n\
    echo \"booted: $(/bin/busybox cat /sys/hypervisor/type) $(/bin/busybox nproc)\"\n\
    /bin/busybox poweroff -f\n";

#[test]
fn grub_boots_a_kernel_from_a_disk() {
    let grub = match kernels::paravirtual_grub() {
        Ok(grub) => grub,
        Err(reason) => return println!("PV-GRUB is not tested here: {reason}"),
    };
    let disk = disk_with(&RamDisk::new("grub", INIT));
    let output = biv(&["run", "--xen", "--cpus", "2", "--mem", "768M", "--disk", disk.path()])
        .arg("--kernel")
        .arg(grub)
        .output()
        .expect("`timeout` can be started");
    let said = text(&output.stdout);
    let context = || format!("{said}{}{:?}", text(&output.stderr), output.status);
    assert!(said.contains("Welcome to GRUB!"), "{}", context());
    assert!(said.contains("said.by=grub"), "{}", context());
    assert!(said.contains("booted: xen 2"), "{}", context());
    assert_eq!(whole_machine::complaints::complaint(&said), None, "{}", context());
    assert!(output.status.success(), "{}", context());
}

/// A disk with a file system that has a kernel, this RAM disk, and what tells GRUB of them.
fn disk_with(ram_disk: &RamDisk) -> Image {
    let disk = Image::new("grub", MODE, 128 * MIB);
    let tree = kernels::cache_directory().join(format!("xen-grub-tree-{}", std::process::id()));
    fs::create_dir_all(tree.join("boot/grub")).expect("the target directory can be written");
    fs::write(tree.join("boot/grub/grub.cfg"), GRUB_CONFIGURATION).expect("likewise");
    let kernel = kernels::debian("bookworm", "linux-image-amd64");
    fs::copy(kernel, tree.join("boot/vmlinuz")).expect("likewise");
    fs::copy(ram_disk.path(), tree.join("boot/initrd")).expect("likewise");
    let made = Command::new("mkfs.ext4").args(["-q", "-F", "-d"]).arg(&tree).arg(&disk.0).status();
    let _ = fs::remove_dir_all(&tree);
    assert!(made.expect("e2fsprogs is installed").success());
    disk
}
