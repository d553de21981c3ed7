//! What a paravirtual kernel meets under Debian's Xen, which `biv` boots as a Multiboot guest: the reference for
//! whatever else offers the same interface. Xen takes the tiny kernel (`guest/paravirtual`) for its domain 0.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;
use std::{env, fs, process};

use whole_machine::{bivouac, kernels, text};

/// Longer than Xen takes to boot on a busy host: three seconds on an idle one.
const PATIENCE_SECONDS: &str = "120";

/// What the kernel says, without the `pv: ` before each line. Errors are those of public/errno.h.
const EXPECTED: &str = "\
magic 1
cs 57395
ss 57387
ds 0
interrupts 1
stack after tables 1
start info below tables 1
own page writable 1
writable tables 0
other slots 0
root maps itself 1
version is 4 4
features 0
preserves accessed and dirty 1
available bits of grants 1
writable page tables 0
features of submap 1 -22
unknown hypercall -38
unknown assist -22
bad address -14
set_trap_table 0
map shared info 0
write to own page -1
write to a table 3
fault's cs 57392
fault's address 1
pin a writable page -22
map it read-only 0
pin it 0
pin it again -22
map it writable -16
unpin it 0
unpin it again -22
map it writable now 0
and write -1
map a table writable -16
write a slot of Xen's -22
map no frame -22
the entry is as it was 1
clear an entry 0
touch it 0
end";

/// The tiny kernel in a file that goes away again.
struct Kernel(PathBuf);

impl Kernel {
    fn new() -> Kernel {
        let path = env::temp_dir().join(format!("biv-oracle-xen-{}", process::id()));
        fs::write(&path, paravirtual::KERNEL).expect("there is room");
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
    let xen = match kernels::xen() {
        Ok(xen) => xen,
        Err(reason) => return println!("there is no Xen to ask here: {reason}"),
    };
    let (command, kernel) = (bivouac(), Kernel::new());
    let start = Instant::now();
    let output = Command::new("timeout")
        .arg(PATIENCE_SECONDS)
        .arg(command)
        .args(["run", "--mem", "256M", "--no-reboot", "--initrd"])
        .arg(&kernel.0)
        .arg("--kernel")
        .arg(xen)
        .args(["--append", "no-real-mode edd=off dom0_mem=64M console=com1 com1=115200,8n1"])
        .stdin(Stdio::null())
        .output()
        .expect("the command can be started");
    println!("Xen and the kernel took {:?}", start.elapsed());
    let said = text(&output.stdout);
    let lines = said.lines().filter_map(|line| line.trim_end().strip_prefix("pv: "));
    let lines = lines.collect::<Vec<_>>().join("\n");
    let all = format!("{said}{}{:?}", text(&output.stderr), output.status);
    assert_eq!(lines, EXPECTED, "{all}");
    assert!(said.contains("Hardware Dom0 shutdown: rebooting machine"), "{all}");
    assert!(output.status.success(), "{all}");
}
