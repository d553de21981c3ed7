//! Debian's Xen is an ordinary Multiboot guest: it goes to real mode, starts the other processors, and runs
//! Debian's kernel as its domain 0, which gets an initial RAM disk. Kernel and RAM disk are Xen's modules.

use std::process::{Command, Stdio};

use whole_machine::ram_disk::RamDisk;
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

fn check(processors: &str) {
    let xen = match kernels::xen() {
        Ok(xen) => xen,
        Err(reason) => return println!("Xen is not tested here: {reason}"),
    };
    let kernel = kernels::debian("bookworm", "linux-image-amd64");
    let ram_disk = RamDisk::new(&format!("xen-{processors}"), INIT);
    // A comma that is not between modules is doubled.
    let modules = format!(
        "{} earlyprintk=xen,,keep quiet mitigations=off,{}",
        kernel.display(),
        ram_disk.path().display()
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
