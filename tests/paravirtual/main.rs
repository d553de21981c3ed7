//! Machines of Xen's interface, as `biv run --xen` starts them: stock kernels, their disks, what they refuse.

#![forbid(unsafe_code)]

mod grub;
mod vbd;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

use whole_machine::complaints::complaint;
use whole_machine::modes::{Mode, UserExecution};
use whole_machine::{biv, in_each_mode, kernels, text};

/// For what has nothing to do with how code is executed.
const MODE: Mode = Mode { execution: UserExecution::Auto, processors: 1 };

const MIB: u64 = 1 << 20;

/// An image, which goes away with this.
struct Image(PathBuf);

impl Image {
    fn new(name: &str, mode: Mode, bytes: u64) -> Image {
        let directory = kernels::cache_directory();
        fs::create_dir_all(&directory).expect("the target directory can be written");
        let name = format!("xen-{name}-{}-{}", mode.options().join(""), std::process::id());
        let path = directory.join(name);
        let file = File::create(&path).expect("the target directory can be written");
        file.set_len(bytes).expect("the target directory can be written");
        Image(path)
    }

    /// With an empty file system.
    fn with_file_system(self) -> Image {
        let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&self.0).status();
        assert!(made.expect("e2fsprogs is installed").success());
        self
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("the target directory's name is text")
    }

    fn sector(&self, number: u64) -> [u8; 512] {
        let mut bytes = [0; 512];
        let file = File::open(&self.0).expect("it is there");
        file.read_exact_at(&mut bytes, number * 512).expect("it has so many sectors");
        bytes
    }

    /// Whether e2fsck has nothing to say of it.
    fn is_in_order(&self) -> bool {
        let checked = Command::new("e2fsck").args(["-f", "-n"]).arg(&self.0).output();
        checked.expect("e2fsprogs is installed").status.success()
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn a_stock_kernel_runs_programs_without_complaint(mode: Mode) {
    let script = "cat /sys/hypervisor/type; nproc; n=0
        while [ $n -lt 100 ]; do n=$((n+1)); echo $n | cat; done | tail -n 1
        (sleep 0.2; echo slept) & wait
        dmesg";
    let said = mode.shell(&["--xen", "--net", "none"], script);
    let processors = mode.processors.to_string();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..4], ["xen", &processors, "100", "slept"], "{said}");
    assert_eq!(complaint(&said), None, "{said}");
}

fn a_disk_keeps_what_is_written(mode: Mode) {
    let image = Image::new("disk", mode, 64 * MIB).with_file_system();
    let script = "cat /sys/block/xvda/size; mount -t ext4 /dev/xvda /mnt && cd /mnt || exit 1
        for n in 1 2 3 4; do seq $n 300000 > $n & done; wait; sync
        echo 3 > /proc/sys/vm/drop_caches
        for n in 1 2 3 4; do seq $n 300000 | cmp - $n && echo same; done
        rm 2 3; cd /; umount /mnt; dmesg";
    let said = mode.shell(&["--xen", "--net", "none", "--disk", image.path()], script);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..5], ["131072", "same", "same", "same", "same"], "{said}");
    assert_eq!(complaint(&said), None, "{said}");
    assert!(image.is_in_order());
}

/// By `ioperm` and `iopl`, of which the hypervisor hears from the kernel.
fn ports_are_open_that_the_kernel_opens(mode: Mode) {
    let machine = ["--xen", "--net", "none", "--root", env!("PARAVIRTUAL_ROOT")];
    let output = mode.in_machine(&machine, &["/ports"]);
    let refused = "ffffffffffffffff";
    let expected = [
        ("closed 80 1", refused),
        ("three 80 1", "ff"),
        ("three 82 1", "ff"),
        ("three 81 2", "ffff"),
        ("three 82 2", refused),
        ("three 80 4", refused),
        ("three 7f 1", refused),
        ("over a byte 87 2", "ffff"),
        ("over a byte 86 2", refused),
        ("over a byte 87 4", refused),
        ("the last ffff 1", "ff"),
        ("the last fffe 2", refused),
        ("closed again 80 1", refused),
        ("all 1234 4", "ffffffff"),
        ("none 1234 4", refused),
    ];
    let expected: String = expected.iter().map(|(what, is)| format!("{what} {is}\n")).collect();
    assert_eq!(text(&output.stdout), expected, "{}", text(&output.stderr));
}

in_each_mode!(
    a_stock_kernel_runs_programs_without_complaint,
    a_disk_keeps_what_is_written,
    ports_are_open_that_the_kernel_opens,
);

/// Of both series, for clouds and for all hardware.
#[test]
fn each_kernel_of_debian_boots_without_complaint() {
    for suite in ["bookworm", "bookworm-backports"] {
        for package in ["linux-image-cloud-amd64", "linux-image-amd64"] {
            let kernel = kernels::debian(suite, package);
            let kernel = kernel.to_str().expect("the target directory's name is text");
            for processors in [1, 4] {
                let mode = Mode { processors, ..MODE };
                let options = ["--xen", "--net", "none", "--kernel", kernel];
                let said = mode.shell(&options, "uname -r; nproc; dmesg");
                let release = if suite == "bookworm" { "6.1." } else { "6.12." };
                let context = format!("{suite} {package} {processors}: {said}");
                assert!(said.starts_with(release), "{context}");
                assert_eq!(said.lines().nth(1), Some(&*processors.to_string()), "{context}");
                assert_eq!(complaint(&said), None, "{context}");
            }
        }
    }
}

#[test]
fn disks_have_their_order_and_their_rights() {
    let (first, second) = (Image::new("first", MODE, 8 * MIB), Image::new("second", MODE, 4 * MIB));
    let script = "cat /sys/block/xvda/ro /sys/block/xvdb/ro /sys/block/xvdb/size
        yes BBBBBBB | dd of=/dev/xvda bs=4096 seek=100 count=100 2>/dev/null
        dd if=/dev/zero of=/dev/xvdb count=1 2>/dev/null || echo refused";
    let read_only = format!("{},ro", second.path());
    let options = ["--xen", "--net", "none", "--disk", first.path(), "--disk", &read_only];
    assert_eq!(MODE.shell(&options, script), "0\n1\n8192\nrefused\n");
    assert!(first.sector(800).starts_with(b"BBBBBBB\n") && first.sector(1599).ends_with(b"BBB\n"));
    assert_eq!((first.sector(799), first.sector(1600)), ([0; 512], [0; 512]));
}

#[test]
fn commands_end_as_they_do_on_a_pc() {
    let status = |script: &str| {
        let output = MODE.in_machine(&["--xen", "--net", "none"], &["sh", "-c", script]);
        output.status.code()
    };
    assert_eq!(status("exit 7"), Some(7));
    assert_eq!(status("kill -9 $$"), Some(137));
    assert_eq!(status("poweroff -f"), Some(122));
}

/// A machine with these options does not start, and says why.
fn check_refused(options: &[&str], why: &str) {
    let all = [&["run"], options, &["--", "true"]].concat();
    let output = biv(&all).output().expect("`timeout` can be started");
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains(why), "{options:?}: {said}");
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn what_such_a_machine_cannot_have_is_refused() {
    let check = |options: &[&str], why: &str| check_refused(&[&["--xen"], options].concat(), why);
    check(&["--volume", "/tmp:/tmp"], "--volume");
    check(&["--entropy"], "--entropy");
    check(&["--vsock", "/tmp/none"], "--vsock");
    check(&["--kernel", "/etc/hostname"], "kernel");
    check(&["--mem", "4M"], "mem");
}
