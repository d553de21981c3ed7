//! The same for disks of Xen's interface, and for parts of an image as such a disk.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::{Directory, Image, MIB, ROOT, check_done, check_killed, qcow2, root_disk};
use whole_machine::modes::{Mode, PARAVIRTUAL as MACHINE};
use whole_machine::{in_each_mode, text};

/// Two parts of an image in the other order, behind something that is not theirs.
fn parts(image: &Image, mebibytes: u64) -> String {
    let (first, second) = (mebibytes / 2, mebibytes - mebibytes / 2);
    image.with(&format!(",extent={}M+{second}M,extent=1M+{first}M", first + 1))
}

fn probe(mode: Mode, image: &Image, words: &[&str]) {
    let machine = [&MACHINE[..], &["--disk", image.path(), "--root", ROOT]].concat();
    check_done(&mode.in_machine(&machine, &[&["/probe"], words].concat()));
}

fn what_is_written_by_several_threads_at_once_is_read_again(mode: Mode) {
    let image = Image::in_mode("xen-threads", mode, 32 * MIB);
    probe(mode, &image, &["verify", "8", "300"]);
}

fn code_that_a_device_has_written_over_does_not_run_any_more(mode: Mode) {
    let image = Image::in_mode("xen-code", mode, MIB);
    probe(mode, &image, &["run", "200"]);
}

in_each_mode!(
    what_is_written_by_several_threads_at_once_is_read_again,
    code_that_a_device_has_written_over_does_not_run_any_more,
);

#[test]
fn what_was_committed_survives_a_killed_machine() {
    let check = |option: &str, disk: &str| {
        let machine = [&MACHINE[..], &["--root", ROOT, option, disk]].concat();
        check_killed(&machine, &["/probe", "commit"], &["/probe", "check", "LAST"], 60);
    };
    let image = Image::new("xen-killed", 200 * MIB);
    check("--disk", image.path());
    let image = Image::new("xen-killed-qcow2", 0);
    fs::write(&image.0, qcow2::empty(200 * MIB, None)).expect("it can be written");
    check("--disk", image.path());
    let image = Image::new("xen-killed-parts", 202 * MIB);
    check("--vbd", &parts(&image, 200));
    let outside = [0..2048, 201 * 2048..202 * 2048].into_iter().flatten();
    assert!(outside.into_iter().all(|sector| image.sector(sector) == [0; 512]));
}

#[test]
fn what_was_committed_to_a_file_system_survives_a_killed_machine() {
    let image = root_disk("xen-killed-root", false);
    let machine = [&MACHINE[..], &["--root-disk", image.path()]].concat();
    let look = ["/probe", "check", "LAST", "/records"];
    check_killed(&machine, &["/probe", "commit", "/records"], &look, 50);
}

/// A directory with programs of the host's, the libraries that they name, and a shell, as a root: such a machine does
/// not share the host's files.
pub fn root_with(name: &str, programs: &[PathBuf]) -> Directory {
    let root = Directory::new(name);
    let listed = Command::new("ldd").args(programs).output().expect("`ldd` is installed");
    let listed = text(&listed.stdout);
    let named = |word: &&str| word.starts_with('/') && !word.ends_with(':');
    let libraries = listed.split_whitespace().filter(named).map(PathBuf::from);
    let shell = [PathBuf::from("/usr/bin/busybox")];
    for file in libraries.chain(programs.iter().cloned()).chain(shell) {
        let to = root.0.join(file.strip_prefix("/").expect("it is absolute"));
        fs::create_dir_all(to.parent().expect("it has one")).expect("there is room");
        fs::copy(file, to).expect("there is room");
    }
    for directory in ["bin", "dev", "mnt", "proc", "sys", "tmp", "run"] {
        fs::create_dir_all(root.0.join(directory)).expect("there is room");
    }
    for applet in
        ["sh", "cat", "chown", "echo", "env", "mkdir", "mount", "sync", "umount", "grep", "sleep"]
    {
        let link = root.0.join("bin").join(applet);
        symlink("/usr/bin/busybox", link).expect("there is room");
    }
    root
}

/// With `BIVOUAC_FIO=SECONDS` only: it takes Debian's `fio` on the host, which is copied to the guest.
#[test]
fn fio_reads_what_it_has_written() {
    let Ok(seconds) = std::env::var("BIVOUAC_FIO") else { return };
    let root = root_with("xen-root", &["/usr/bin/fio".into()]);
    let root = root.0.to_str().expect("it is text");
    let (raw, parted) = (Image::new("xen-fio", 256 * MIB), Image::new("xen-fio-parts", 258 * MIB));
    let image = Image::new("xen-fio-qcow2", 0);
    fs::write(&image.0, qcow2::empty(256 * MIB, None)).expect("it can be written");
    for (option, disk, how) in [
        ("--disk", raw.with(""), "randwrite"),
        ("--disk", raw.with(",snapshot"), "randrw"),
        ("--vbd", parts(&parted, 256), "randrw"),
        ("--disk", image.with(""), "randwrite"),
        ("--vbd", parts(&parted, 256), "write"),
    ] {
        for processors in ["1", "4"] {
            let fio = [
                "/usr/bin/fio --name=verify --filename=/dev/xvda --direct=1 --ioengine=libaio",
                "--iodepth=32 --bsrange=512-256k --size=256M --verify=crc32c --verify_fatal=1",
                "--verify_state_save=0 --verify_backlog=500 --trim_percentage=5 --time_based",
                &format!("--rw={how} --runtime={seconds}"),
            ]
            .join(" ");
            let machine =
                ["--mem", "512M", "--cpus", processors, "--root", root, option, &disk, "--"];
            let words: Vec<&str> = fio.split(' ').collect();
            let mut biv = Command::new(whole_machine::bivouac());
            biv.arg("run").args(MACHINE).args(machine).args(words);
            let output = biv.stdin(Stdio::null()).env("BIVOUAC_AUDIT", "1").output();
            let output = output.expect("biv can be started");
            let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
            assert!(output.status.success() && said.contains("err= 0"), "{disk}, {how}: {said}");
        }
    }
    assert_eq!((parted.sector(2047), parted.sector(257 * 2048)), ([0; 512], [0; 512]));
}
