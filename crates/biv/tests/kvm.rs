//! `/dev/kvm` is never opened.
//!
//! The kernel is asked to tell of every open in `/dev` (inotify(7)), `biv` does all that it can do
//! without a network, and `/dev/kvm` must not be among what was opened. That an open would be told
//! is checked each time with another device.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};

use tiny_kernels as kernels;
/// The names of what is opened in `/dev`.
struct Watch(OwnedFd);

impl Watch {
    fn start() -> Watch {
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&watch, "/dev", WatchFlags::OPEN).unwrap();
        Watch(watch)
    }

    fn opened(&self) -> Vec<String> {
        let mut buffer = [MaybeUninit::uninit(); 64 * 1024];
        let mut events = Reader::new(&self.0, &mut buffer);
        let mut names = Vec::new();
        while let Ok(event) = events.next() {
            names.extend(event.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
        names
    }
}

#[track_caller]
fn check(arguments: &[&str]) {
    let watch = Watch::start();
    let mut biv = Command::new(env!("CARGO_BIN_EXE_biv"));
    biv.args(arguments).env_clear().env("HOME", "/proc/nowhere");
    biv.stdin(Stdio::null()).output().expect("biv can be started");
    drop(std::fs::File::open("/dev/zero").unwrap());
    let opened = watch.opened();
    assert!(opened.iter().any(|name| name == "zero"), "the watch does not work: {opened:?}");
    assert!(!opened.iter().any(|name| name == "kvm"), "biv {arguments:?} opened /dev/kvm");
}

#[test]
fn the_doctor_does_not_open_it() {
    check(&["doctor"]);
    check(&["doctor", "--format", "json"]);
}

#[test]
fn no_other_verb_opens_it() {
    check(&["--help"]);
    check(&["man"]);
    check(&["completions", "bash"]);
    check(&["run"]);
    check(&["run", "--kernel", "/etc/passwd", "--initrd", "/etc/passwd"]);
}

#[test]
fn a_running_machine_does_not_open_it() {
    let kernel = kernels::Kernel::new("kvm", kernels::RESET);
    check(&["run", "--mem", "64M", "--no-reboot", "--kernel", kernel.0.to_str().unwrap()]);
}
