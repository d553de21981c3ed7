//! Machines that start firmware (`biv run --firmware`): UEFI as Debian builds it for QEMU's PC, which boots what its
//! disks have. Left out, in words, where the packages ovmf, grub-efi-amd64-bin, grub-common or mtools are missing.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use provision::{Guest, Part};
use whole_machine::text;
use whole_machine::waiting::wait_for;

use crate::disks::{disk, initrd};
use crate::place::Place;

/// Code and variables in one.
const OVMF: &str = "/usr/share/ovmf/OVMF.fd";

/// Code whose variables are in a file of their own, and that.
const CODE: &str = "/usr/share/OVMF/OVMF_CODE.fd";
const VARIABLES: &str = "/usr/share/OVMF/OVMF_VARS.fd";

/// The same of firmware that begins in 32-bit mode.
const CODE_OF_32_BITS: &str = "/usr/share/OVMF/OVMF_CODE_4M.fd";
const ITS_VARIABLES: &str = "/usr/share/OVMF/OVMF_VARS_4M.fd";

/// What the firmware's shell runs by itself: it tells of a variable, sets it, and switches the machine off.
const SHELL_SCRIPT: &str = "@echo -off\r
echo it was [%kept%]\r
set kept yes\r
reset -s\r
";

/// Where GRUB for UEFI is.
const GRUB: &str = "/usr/lib/grub/x86_64-efi";

/// What GRUB reads, which is in its program.
const SCRIPT: &str = "serial --unit=0
terminal_input serial
terminal_output serial
search --no-floppy --file --set=root /vmlinuz
linux /vmlinuz console=ttyS0 of=the-disk
initrd /initrd
boot
";

/// The first process of a system that tells what it has found, reboots once, and switches itself off the second time.
const TELLING: &str = "#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
for driver in /drivers/*; do /bin/busybox insmod $driver; done
until [ -e /dev/vda1 ]; do /bin/busybox sleep 0.1; done
echo \"booted with $(/bin/busybox cat /proc/cmdline)\"
echo \"on $(/bin/busybox grep -c ^processor /proc/cpuinfo) processors\"
[ -d /sys/firmware/efi ] && echo by UEFI
if [ \"$(/bin/busybox head -c 4 /dev/vda)\" = once ]; then /bin/busybox poweroff -f; fi
printf once | /bin/busybox dd of=/dev/vda conv=notrunc,fsync
/bin/busybox reboot -f
";

/// Bytes of an EFI system partition.
const PARTITION_BYTES: u64 = 64 << 20;

/// In a table of partitions (MBR): the kind of the first, and that of an EFI system partition.
const KIND_AT: u64 = 446 + 4;
const EFI_SYSTEM: u8 = 0xef;

/// Whether all of these are there; says so if not.
fn has(files: &[&str]) -> bool {
    let missing: Vec<_> = files.iter().filter(|file| !Path::new(file).exists()).collect();
    if !missing.is_empty() {
        println!("left out, because these are not here: {missing:?}");
    }
    missing.is_empty()
}

fn does<S: AsRef<OsStr>>(program: &str, arguments: &[S]) {
    let output = Command::new(program).args(arguments).output().expect("it is installed");
    assert!(output.status.success(), "{program}: {}", text(&output.stderr));
}

/// A disk with an EFI system partition: GRUB, the default kernel, and an initial RAM disk with this as its init.
fn efi_disk(place: &Place, init: &str) -> PathBuf {
    let file = |name: &str| place.path.join(name).to_str().expect("text").to_owned();
    let (script, loader, partition) = (file("grub.cfg"), file("loader"), file("partition"));
    fs::write(&script, SCRIPT).expect("there is room");
    let embedded = format!("boot/grub/grub.cfg={script}");
    let modules = "--modules=part_msdos fat normal linux serial terminal search echo";
    does("grub-mkstandalone", &["-O", "x86_64-efi", "-o", &loader, modules, &embedded]);
    let ram_disk = file("initrd");
    fs::write(&ram_disk, initrd(init)).expect("there is room");
    let kernel = Guest::provide(&[Part::Kernel]).expect("a guest").kernel();
    let kernel = kernel.to_str().expect("text");
    File::create(&partition).and_then(|it| it.set_len(PARTITION_BYTES)).expect("there is room");
    does("mformat", &["-i", &partition, "-F", "::"]);
    does("mmd", &["-i", &partition, "::/EFI", "::/EFI/BOOT"]);
    for (from, to) in
        [(&*loader, "::/EFI/BOOT/BOOTX64.EFI"), (kernel, "::/vmlinuz"), (&*ram_disk, "::/initrd")]
    {
        does("mcopy", &["-i", &partition, from, to]);
    }
    let path = place.path.join("disk.img");
    disk(&path, &[Path::new(&partition)]);
    let opened = File::options().write(true).open(&path).expect("it was made");
    opened.write_all_at(&[EFI_SYSTEM], KIND_AT).expect("there is room");
    path
}

#[test]
fn without_a_disk_there_is_the_firmwares_shell() {
    if !has(&[OVMF]) {
        return;
    }
    let place = Place::new();
    place.detach("empty", &["--firmware", OVMF]);
    wait_for("the shell is there", || place.console("empty").contains("UEFI Interactive Shell"));
    assert!(place.complains(&["snapshot", "empty", "file"]).contains("snapshot cannot contain"));
    place.says(&["kill", "empty"]);
}

/// A disk that firmware finds [`SHELL_SCRIPT`] on, as an option has it.
fn shell_disk(place: &Place) -> String {
    let file = |name: &str| place.path.join(name).to_str().expect("text").to_owned();
    let (script, disk) = (file("startup.nsh"), file("disk.img"));
    fs::write(&script, SHELL_SCRIPT).expect("there is room");
    File::create(&disk).and_then(|it| it.set_len(PARTITION_BYTES)).expect("there is room");
    does("mformat", &["-i", &disk, "-F", "::"]);
    does("mcopy", &["-i", &disk, &script, "::/"]);
    format!("{disk},snapshot")
}

#[test]
fn firmware_that_begins_in_32_bit_mode_starts() {
    if !has(&[CODE_OF_32_BITS, ITS_VARIABLES, "/usr/bin/mformat"]) {
        return;
    }
    let place = Place::new();
    let firmware = format!("{CODE_OF_32_BITS},vars={ITS_VARIABLES}");
    // It maps all that the processor can address, in pages of 2 MiB, and the tables are in memory.
    let memory = "128M";
    let arguments = ["--mem", memory, "--firmware", &firmware, "--disk", &shell_disk(&place)];
    place.detach("wide", &arguments);
    wait_for("it has ended", || place.state("wide").as_deref() == Some("ended (0)"));
    let console = place.console("wide");
    assert!(console.contains("it was []"), "{console}");
}

#[test]
fn variables_are_kept_in_a_file() {
    if !has(&[CODE, VARIABLES, "/usr/bin/mformat"]) {
        return;
    }
    let place = Place::new();
    let disk = shell_disk(&place);
    let variables = place.path.join("variables").to_str().expect("text").to_owned();
    fs::copy(VARIABLES, &variables).expect("there is room");
    let bytes = || fs::read(&variables).expect("it was made");
    let check = |name: &str, keep: &str, expected: &str| {
        let firmware = format!("{CODE},vars={variables}{keep}");
        place.detach(name, &["--firmware", &firmware, "--disk", &disk]);
        if keep == ",keep" {
            // It is this machine's alone.
            let run = ["run", "--firmware", &firmware];
            assert!(place.complains(&run).contains("another machine"), "{firmware}");
        }
        wait_for("it has ended", || place.state(name).as_deref() == Some("ended (0)"));
        let console = place.console(name);
        assert!(console.contains(&format!("it was [{expected}]")), "{console}");
    };
    let original = bytes();
    check("first", "", "");
    assert!(bytes() == original, "a copy was written to");
    check("second", ",keep", "");
    let kept = bytes();
    assert!(kept != original && kept.len() == original.len(), "nothing was kept");
    check("third", "", "yes");
    assert!(bytes() == kept, "a copy was written to");
    check("fourth", ",keep", "yes");
}

#[test]
fn an_efi_disk_is_booted_and_booted_again() {
    if !has(&[OVMF, GRUB, "/usr/bin/grub-mkstandalone", "/usr/bin/mformat"]) {
        return;
    }
    let place = Place::new();
    let disk = efi_disk(&place, TELLING);
    let disk = disk.to_str().expect("text");
    let options = ["--cpus", "2", "--entropy", "--firmware", OVMF, "--disk", disk];
    place.detach("efi", &options);
    wait_for("it has ended", || place.state("efi").as_deref() == Some("ended (0)"));
    let console = place.console("efi");
    let times = |what: &str| console.matches(what).count();
    let booted = "booted with BOOT_IMAGE=/vmlinuz console=ttyS0 of=the-disk";
    assert_eq!([times(booted), times("on 2 processors"), times("by UEFI")], [2; 3], "{console}");
}

#[test]
fn what_has_no_variables_is_refused() {
    let place = Place::new();
    let (code, path) = (place.path.join("code"), place.path.join("variables"));
    let mut image = vec![0xff; 8192];
    image[8192 - 16] = 0xe9;
    let write = |path: &Path, bytes: &[u8]| fs::write(path, bytes).expect("there is room");
    write(&code, &image);
    let (code, name) = (code.to_str().expect("text"), path.to_str().expect("text"));
    let check_both = |expected: [&str; 2]| {
        for (keep, expected) in ["", ",keep"].into_iter().zip(expected) {
            let firmware = format!("{code},vars={name}{keep}");
            let output = place.output(&["run", "--timeout", "1", "--firmware", &firmware]);
            let said = text(&output.stderr);
            assert!(said.contains(expected) && said.contains(name), "{firmware}: {said}");
            assert_eq!(output.status.code(), Some(125), "{firmware}: {said}");
        }
    };
    let check = |expected| check_both([expected; 2]);
    check("No such file");
    write(&path, b"");
    check("it has 0 bytes");
    write(&path, &[0xff; 4097]);
    check("multiple of 4 KiB");
    write(&path, &[0; 4096]);
    check("does not begin with a volume of variables");
    File::create(&path).and_then(|it| it.set_len(16 << 20)).expect("a file has holes");
    check("at most 16 MiB together");
    fs::remove_file(&path).expect("it was made");
    fs::create_dir(&path).expect("there is room");
    check_both(["it is a directory", "Is a directory"]);
    fs::remove_dir(&path).expect("it was made");
    does("mkfifo", &[name]);
    check("it is a pipe");
    fs::remove_file(&path).expect("it was made");
    // An image that has the volume itself would not look there.
    let mut volume = vec![0; 16];
    volume.extend(b"\x8d\x2b\xf1\xff\x96\x76\x8b\x4c\xa9\x85\x27\x47\x07\x5b\x4f\x50");
    volume.extend(b"\0\0\0\0\0\0\0\0_FVH");
    image[..volume.len()].copy_from_slice(&volume);
    fs::write(code, &image).expect("there is room");
    write(&path, &[0xff; 4096]);
    check("has a volume of variables itself");
    for wrong in ["keep", "vars=", "vars=a,vars=b", "vars=a,ro"] {
        let firmware = format!("{code},{wrong}");
        let output = place.output(&["run", "--firmware", &firmware]);
        assert_eq!(output.status.code(), Some(2), "{firmware}");
    }
}

#[test]
fn what_is_no_firmware_is_refused() {
    let place = Place::new();
    let path = place.path.join("image");
    let name = path.to_str().expect("text");
    let check = |options: &[&str], status: i32, expected: &str| {
        let output = place.output(&[&["run", "--firmware", name], options].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{options:?}: {said}");
        assert!(said.contains(expected), "{options:?}: {said}");
    };
    check(&[], 125, "No such file");
    fs::write(&path, "").expect("there is room");
    check(&[], 125, "it has 0 bytes");
    fs::write(&path, [0xe9; 4097]).expect("there is room");
    check(&[], 125, "multiple of 4 KiB");
    fs::write(&path, [0; 8192]).expect("there is room");
    check(&[], 125, "it is no firmware image");
    File::create(&path).and_then(|it| it.set_len((16 << 20) + 4096)).expect("a file has holes");
    check(&[], 125, "too large");
    for other in ["--kernel", "--boot-disk", "--root", "--initrd", "--append", "--root-disk"] {
        check(&[other, "x"], 2, "cannot be used with");
    }
    check(&["--xen"], 2, "cannot be used with");
    check(&["--", "ls"], 2, "cannot be used with");
    fs::remove_file(&path).expect("it was made");
    fs::create_dir(&path).expect("there is room");
    check(&[], 125, "image");
    fs::remove_dir(&path).expect("it was made");
    does("mkfifo", &[name]);
    check(&[], 125, "image");
    let text = r#"{"version": 1, "boot": {"firmware": {"path": "x"}, "kernel": "y"}}"#;
    let description = place.path.join("spec.json");
    fs::write(&description, text).expect("there is room");
    let output = place.output(&["run", "--spec", description.to_str().expect("text")]);
    let said = whole_machine::text(&output.stderr);
    assert!(output.status.code() == Some(125) && said.contains("boot.firmware"), "{said}");
}
