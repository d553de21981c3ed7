//! Debian's Xen is an ordinary Multiboot guest: it goes to real mode, starts the other processors, and runs
//! Debian's kernel as its domain 0, which gets an initial RAM disk. Kernel and RAM disk are Xen's modules.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use provision::initramfs::cpio::{Archive, Metadata, mode};
use provision::{Guest, Part};
use whole_machine::{bivouac, kernels, text};

/// Longer than two systems, one above the other, take to boot on a busy host.
const PATIENCE_SECONDS: &str = "900";

/// What the first process of domain 0 does. The kernel's messages go to Xen's console at once.
const INIT: &str = "#!/bin/busybox sh\n\
    /bin/busybox mount -t devtmpfs dev /dev\n\
    /bin/busybox mount -t sysfs sys /sys\n\
    echo \"<1>domain 0: $(/bin/busybox cat /sys/hypervisor/type), $(/bin/busybox nproc) \
    processors\" >/dev/kmsg\n\
    /bin/busybox poweroff -f\n";

/// An initial RAM disk in a file that goes away again.
struct RamDisk(PathBuf);

impl RamDisk {
    fn new(name: &str) -> RamDisk {
        let guest = Guest::provide(&[Part::Busybox]).expect("busybox can be fetched");
        let busybox = fs::read(guest.busybox().expect("it is there").program).expect("likewise");
        let mut archive = Archive::new(Vec::new());
        for name in ["bin", "dev", "sys"] {
            let directory = Metadata::new(mode::DIRECTORY | 0o755);
            archive.add(name.as_bytes(), directory, &[]).expect("memory takes it");
        }
        for (name, contents) in [("bin/busybox", &busybox[..]), ("init", INIT.as_bytes())] {
            let program = Metadata::new(mode::FILE | 0o755);
            archive.add(name.as_bytes(), program, contents).expect("memory takes it");
        }
        let name = format!("biv-xen-{}-{name}.cpio", std::process::id());
        let path = std::env::temp_dir().join(name);
        let bytes = archive.finish().expect("memory takes it");
        fs::write(&path, bytes).expect("there is room");
        RamDisk(path)
    }
}

impl Drop for RamDisk {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn check(processors: &str) {
    let xen = match kernels::xen() {
        Ok(xen) => xen,
        Err(reason) => return println!("Xen is not tested here: {reason}"),
    };
    let kernel = kernels::debian("bookworm", "linux-image-amd64");
    let ram_disk = RamDisk::new(processors);
    // A comma that is not between modules is doubled.
    let modules = format!(
        "{} earlyprintk=xen,,keep quiet mitigations=off,{}",
        kernel.display(),
        ram_disk.0.display()
    );
    let output = Command::new("timeout")
        .arg(PATIENCE_SECONDS)
        .arg(bivouac())
        .args(["run", "--mem", "768M", "--no-reboot", "--cpus", processors])
        .args(["--initrd", &modules, "--kernel"])
        .arg(xen)
        .args(["--append", "no-real-mode edd=off dom0_mem=512M console=com1 com1=115200,8n1"])
        .stdin(Stdio::null())
        .output()
        .expect("the command can be started");
    let said = text(&output.stdout);
    let context = || format!("{said}{}{:?}", text(&output.stderr), output.status);
    assert!(said.contains("(XEN) Command line: no-real-mode edd=off"), "{}", context());
    let line = format!("domain 0: xen, {processors} processors");
    assert!(said.contains(&line), "{}", context());
    assert!(said.contains("(XEN) Entering ACPI S5 state."), "{}", context());
    assert!(output.status.success(), "{}", context());
}

#[test]
fn xen_boots_to_its_domain_0() {
    check("1");
}

#[test]
fn xen_starts_the_other_processors() {
    check("2");
}
