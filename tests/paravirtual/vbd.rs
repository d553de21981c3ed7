//! Virtual block devices: parts of an image as a disk, with rights; and parts of one image for several domains.

use std::fs::File;
use std::os::unix::fs::FileExt;

use whole_machine::{biv, text};

use crate::{Image, MIB, MODE, check_refused};

/// Parts of an image, each a start and a length in sectors.
fn word(image: &Image, parts: &[(u64, u64, &str)]) -> String {
    let part = |(start, sectors, rights): &(u64, u64, &str)| {
        format!(",extent={}+{}{rights}", start * 512, sectors * 512)
    };
    let parts: String = parts.iter().map(part).collect();
    format!("{}{parts}", image.path())
}

/// Each sector begins with its number.
fn numbered(name: &str, bytes: u64) -> Image {
    let image = Image::new(name, MODE, bytes);
    let file = File::options().write(true).open(image.path()).expect("it is there");
    for number in 0..bytes / 512 {
        let line = format!("{number:08}");
        file.write_all_at(line.as_bytes(), number * 512).expect("it has so many sectors");
    }
    image
}

/// An odd number of sectors: the kernel writes single ones.
#[test]
fn a_device_is_its_extents_one_behind_the_other_with_their_rights() {
    let image = numbered("extents", 4 * MIB);
    let script =
        "sector() { dd if=/dev/xvda bs=512 skip=$1 count=1 2>/dev/null | head -c 8; echo; }
        write() {
            printf $2 | dd of=/dev/xvda bs=512 seek=$1 count=1 conv=sync,fsync 2>/dev/null ||
                echo refused
        }
        cat /sys/block/xvda/size /sys/block/xvda/ro
        for n in 0 6 7 8 11 12 14; do sector $n; done
        write 0 W0; write 6 W6; write 7 W7; write 11 W11; write 12 W12; write 14 W14
        dd if=/dev/xvda bs=7680 count=1 2>/dev/null | wc -c
        dd if=/dev/xvda bs=512 skip=15 2>/dev/null | wc -c";
    let parts = word(&image, &[(1001, 7, ""), (8, 5, ":ro"), (500, 1, ""), (8190, 2, "")]);
    let said = MODE.shell(&["--xen", "--net", "none", "--vbd", &parts], script);
    let expected = "15\n0\n00001001\n00001007\n00000008\n00000009\n00000012\n00000500\n00008191\n\
                    refused\nrefused\n7680\n0\n";
    assert_eq!(said, expected);
    let changed = [(1001, "W0"), (1007, "W6"), (500, "W12"), (8191, "W14")];
    for sector in 0..8192 {
        let wanted = changed.iter().find(|(place, _)| *place == sector);
        let wanted = wanted.map_or(format!("{sector:08}"), |(_, text)| (*text).to_owned());
        let found = image.sector(sector);
        assert!(found.starts_with(wanted.as_bytes()), "sector {sector}");
    }
}

#[test]
fn a_root_may_be_on_extents() {
    let name = Image::new("root-parts", MODE, 96 * MIB);
    let directory = format!("{}.d", name.path());
    let shell = "/usr/bin/busybox";
    for part in ["bin", "dev", "proc", "sys", "tmp", "etc", "run", "mnt"] {
        std::fs::create_dir_all(format!("{directory}/{part}")).expect("there is room");
    }
    let busybox = std::fs::read(shell).expect("busybox-static is installed");
    std::fs::write(format!("{directory}/bin/sh"), busybox).expect("there is room");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(format!("{directory}/bin/sh"), mode).expect("it is ours");
    let whole = Image::new("root-whole", MODE, 32 * MIB);
    let made = std::process::Command::new("mkfs.ext4")
        .args(["-q", "-F", "-d", &directory])
        .arg(whole.path())
        .status();
    assert!(made.expect("e2fsprogs is installed").success());
    std::fs::remove_dir_all(&directory).expect("it is ours");
    // Its second half is before its first one.
    let bytes = std::fs::read(whole.path()).expect("it is there");
    let file = File::options().write(true).open(name.path()).expect("it is there");
    file.write_all_at(&bytes[..16 << 20], 64 * MIB).expect("there is room");
    file.write_all_at(&bytes[16 << 20..], 8 * MIB).expect("there is room");
    let parts = word(&name, &[(64 * 2048, 32768, ""), (8 * 2048, 32768, "")]);
    let options = ["--xen", "--net", "none", "--root-disk", &parts];
    let said = MODE.in_machine(&options, &["sh", "-c", "echo kept > /kept && cat /kept"]);
    assert_eq!(text(&said.stdout), "kept\n", "{}", text(&said.stderr));
    let said = MODE.in_machine(&options, &["sh", "-c", "read line < /kept; echo $line"]);
    assert_eq!(text(&said.stdout), "kept\n", "{}", text(&said.stderr));
}

/// Run a domain with a device while another one runs that has `first`; what it says, or what is said to the user.
fn beside(first: &str, option: &str, second: &str, script: &str) -> Result<String, String> {
    let mut child = biv(&["run", "--xen", "--net", "none", "--mem", "128M", "--busybox"])
        .args(["--vbd", first, "--", "sh", "-c", "echo up; read line; echo 1 > /dev/xvda; sync"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("biv can be started");
    let mut line = String::new();
    let output = child.stdout.as_mut().expect("a pipe");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).expect("a line");
    assert_eq!(line, "up\n");
    let machine: &[&str] = &["run", "--xen", "--net", "none", "--mem", "128M", "--busybox"];
    let said = biv(&[machine, &[option, second, "--", "sh", "-c", script]].concat()).output();
    let said = said.expect("biv can be started");
    // It goes on when its input ends.
    drop(child.stdin.take());
    assert!(child.wait().expect("it ends").success());
    match said.status.success() {
        true => Ok(text(&said.stdout)),
        false => Err(text(&said.stderr)),
    }
}

#[test]
fn domains_share_an_image_as_long_as_none_writes_to_what_another_has() {
    let image = numbered("shared", 8 * MIB);
    let (low, high) = (word(&image, &[(0, 8192, "")]), word(&image, &[(8192, 8192, "")]));
    let script = "echo 2 > /dev/xvda; sync; head -c 1 /dev/xvda";
    assert_eq!(beside(&low, "--vbd", &high, script), Ok("2".to_owned()));
    assert!(image.sector(0).starts_with(b"1\n") && image.sector(8192).starts_with(b"2\n"));
    let refused = |first: &str, option: &str, second: &str| {
        let said = beside(first, option, second, "true").expect_err("both have it");
        assert!(said.contains("another machine") && !said.contains("panicked"), "{said}");
    };
    // One sector of what another writes, to write or to read; the whole, as a disk.
    refused(&low, "--vbd", &word(&image, &[(10000, 5, ""), (8191, 1, "")]));
    refused(&low, "--vbd", &word(&image, &[(8191, 1, ":ro")]));
    refused(&low, "--disk", image.path());
    let reads = format!("{},ro", image.path());
    refused(&low, "--disk", &reads);
    refused(&low, "--vbd", image.path());
    // Readers share, with each other alone.
    let reader = word(&image, &[(8192, 1, ""), (0, 8192, ":ro")]);
    let other = word(&image, &[(4096, 64, ":ro")]);
    let first = "dd if=/dev/xvda bs=512 count=1 2>/dev/null | head -c 8";
    assert_eq!(beside(&reader, "--vbd", &other, first), Ok("00004096".to_owned()));
    refused(&reader, "--vbd", &word(&image, &[(4096, 64, "")]));
}

#[test]
fn extents_that_cannot_be_are_refused() {
    let image = Image::new("wrong", MODE, MIB);
    let check =
        |options: &[&str], why: &str| check_refused(&[&["--busybox"], options].concat(), why);
    let with = |parts: &str| format!("{}{parts}", image.path());
    check(&["--xen", "--vbd", &with(",extent=1M+512")], "behind the end");
    check(&["--xen", "--vbd", &with(",extent=1048064+1K")], "behind the end");
    check(&["--xen", "--vbd", &with(",extent=0+513")], "whole sectors");
    check(&["--xen", "--vbd", &with(",extent=0+0")], "not empty");
    check(&["--xen", "--vbd", &with(",extent=0+1K,extent=512+512")], "overlap");
    check(&["--xen", "--vbd", &with(",format=qcow2,extent=0+1K")], "raw");
    check(&["--vbd", &with(",extent=0+1K")], "--xen");
}
