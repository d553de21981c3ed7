//! What a paravirtual kernel meets under Debian's Xen, which `biv` boots as a Multiboot guest: the reference for
//! whatever else offers the same interface. Xen takes a tiny kernel (`guest/paravirtual`) for its domain 0.

#![forbid(unsafe_code)]

mod generator;
mod scripts;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;
use std::{env, fs, process};

use whole_machine::{bivouac, kernels, text};

/// Longer than Xen takes to boot on a busy host: three seconds on an idle one.
const PATIENCE_SECONDS: &str = "120";

/// What Xen is told: to have no real mode, and to give its domain 0 little memory.
const XEN_OPTIONS: &str = "no-real-mode edd=off dom0_mem=64M console=com1 com1=115200,8n1";

/// A tiny kernel in a file that goes away again.
struct Kernel(PathBuf);

impl Kernel {
    fn new(name: &str, file: &[u8]) -> Kernel {
        let path = env::temp_dir().join(format!("biv-oracle-xen-{name}-{}", process::id()));
        fs::write(&path, file).expect("there is room");
        Kernel(path)
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn the_tiny_kernel_finds_what_xen_gives() {
    check("kernel", paravirtual::KERNEL, paravirtual::SAID_UNDER_XEN);
}

#[test]
fn its_users_and_their_kernel_find_each_other_as_xen_has_it() {
    check("users", paravirtual::USERS, paravirtual::USERS_SAID_UNDER_XEN.trim_end());
}

fn check(name: &str, file: &[u8], expected: &str) {
    let xen = match kernels::xen() {
        Ok(xen) => xen,
        Err(reason) => return println!("there is no Xen to ask here: {reason}"),
    };
    let (command, kernel) = (bivouac(), Kernel::new(name, file));
    let start = Instant::now();
    let output = Command::new("timeout")
        .arg(PATIENCE_SECONDS)
        .arg(command)
        .args(["run", "--mem", "256M", "--no-reboot", "--initrd"])
        .arg(&kernel.0)
        .arg("--kernel")
        .arg(xen)
        .args(["--append", XEN_OPTIONS])
        .stdin(Stdio::null())
        .output()
        .expect("the command can be started");
    println!("Xen and the kernel took {:?}", start.elapsed());
    let said = text(&output.stdout);
    let lines = said.lines().filter_map(|line| line.trim_end().strip_prefix("pv: "));
    let lines = lines.collect::<Vec<_>>().join("\n");
    let all = format!("{said}{}{:?}", text(&output.stderr), output.status);
    assert_eq!(lines, expected, "{all}");
    assert!(said.contains("Hardware Dom0 shutdown: rebooting machine"), "{all}");
    assert!(output.status.success(), "{all}");
}
