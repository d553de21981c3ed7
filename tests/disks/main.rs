//! Disks as the guest and its host see them: what is written stays, whatever happens, and what goes
//! wrong on the host is said.
//!
//! `guest.c` is what some of the machines run.

#![forbid(unsafe_code)]

mod fsx;
mod paravirtual;
mod postgresql;
mod qcow2;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use whole_machine::modes::{Mode, UserExecution};
use whole_machine::{counted, in_each_mode, kernels, text};

/// A file system with nothing but the program.
const ROOT: &str = env!("DISKS_ROOT");

/// For what has nothing to do with how code is executed.
const MODE: Mode = Mode { execution: UserExecution::Auto, processors: 1 };

const MIB: u64 = 1 << 20;

/// An image, which goes away with this.
struct Image(PathBuf);

impl Image {
    fn new(name: &str, bytes: u64) -> Image {
        let directory = kernels::cache_directory();
        fs::create_dir_all(&directory).expect("the target directory can be written");
        let path = directory.join(format!("{name}-{}.img", std::process::id()));
        let file = File::create(&path).expect("the target directory can be written");
        file.set_len(bytes).expect("the target directory can be written");
        Image(path)
    }

    /// The same, its name made of a mode's.
    fn in_mode(name: &str, mode: Mode, bytes: u64) -> Image {
        Image::new(&format!("{name}-{}", mode.options().join("")), bytes)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("the target directory's name is text")
    }

    fn with(&self, options: &str) -> String {
        format!("{}{options}", self.path())
    }

    fn fill(&self, byte: u8) {
        let bytes = vec![byte; fs::metadata(&self.0).expect("it is there").len() as usize];
        fs::write(&self.0, bytes).expect("it can be written");
    }

    fn sector(&self, number: u64) -> [u8; 512] {
        let mut bytes = [0; 512];
        let file = File::open(&self.0).expect("it is there");
        file.read_exact_at(&mut bytes, number * 512).expect("it has so many sectors");
        bytes
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// An empty directory, likewise.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = kernels::cache_directory().join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("the target directory can be written");
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn check_done(output: &Output) {
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), said.as_str()), (Some(0), "done\n"));
}

fn probe(mode: Mode, image: &Image, words: &[&str]) -> Output {
    let words = [&["/probe"], words].concat();
    mode.in_machine(&["--disk", image.path(), "--root", ROOT], &words)
}

fn what_is_written_is_in_the_file_and_what_is_in_the_file_is_read(mode: Mode) {
    let image = Image::in_mode("both-ways", mode, 16 * MIB);
    image.fill(0x41);
    let script = "cat /sys/block/vda/size; dd if=/dev/vda bs=512 skip=20000 count=1 2>/dev/null; \
        yes BBBBBBB | dd of=/dev/vda bs=4096 seek=100 count=1000 conv=notrunc 2>/dev/null; \
        blkdiscard -o 8192 -l 4096 /dev/vda";
    let said = mode.shell(&["--disk", image.path()], script);
    assert_eq!(said, format!("32768\n{}", "A".repeat(512)));
    assert_eq!(image.sector(799), [0x41; 512]);
    assert!(image.sector(800).starts_with(b"BBBBBBB\n") && image.sector(8799).ends_with(b"BBB\n"));
    assert_eq!(image.sector(8800), [0x41; 512]);
    assert_eq!([15, 16, 23, 24].map(|n| image.sector(n)[0]), [0x41, 0, 0, 0x41]);
}

fn what_is_written_by_several_threads_at_once_is_read_again(mode: Mode) {
    let image = Image::in_mode("threads", mode, 32 * MIB);
    check_done(&probe(mode, &image, &["verify", "8", "300"]));
}

fn code_that_a_device_has_written_over_does_not_run_any_more(mode: Mode) {
    let image = Image::in_mode("code", mode, MIB);
    check_done(&probe(mode, &image, &["run", "200"]));
}

in_each_mode!(
    what_is_written_is_in_the_file_and_what_is_in_the_file_is_read,
    what_is_written_by_several_threads_at_once_is_read_again,
    code_that_a_device_has_written_over_does_not_run_any_more,
);

#[test]
fn disks_have_their_order_their_names_and_their_rights() {
    let (first, second) = (Image::new("first", 8 * MIB), Image::new("second", 4 * MIB + 100));
    let script = "cat /sys/block/vda/serial; echo; cat /sys/block/vda/ro /sys/block/vdb/ro; \
        cat /sys/block/vdb/size /sys/block/vda/queue/logical_block_size; \
        dd if=/dev/zero of=/dev/vdb count=1 2>/dev/null || echo refused";
    let (one, two) = (first.with(""), second.with(",ro"));
    let said = MODE.shell(&["--disk", &one, "--disk", &two], script);
    let name = Path::new(first.path()).file_name().and_then(|name| name.to_str());
    let name: String = name.expect("it has a name").chars().take(20).collect();
    assert_eq!(said, format!("{name}\n0\n1\n8192\n512\nrefused\n"));
}

/// A write and a flush each, none of which wakes a thread of the disk's where the processor is free for it.
#[test]
fn who_waits_for_the_disk_does_its_work() {
    let image = Image::new("errands", 8 * MIB);
    let script = "dd if=/dev/zero of=/dev/vda bs=4096 count=200 oflag=dsync conv=notrunc";
    let output = MODE.in_machine(&["--stats", "--disk", image.path()], &["sh", "-c", script]);
    let stats = text(&output.stderr);
    assert!(output.status.success(), "{stats}");
    assert!(counted(&stats, "disk jobs") >= 100, "{stats}");
    assert!(counted(&stats, "disk jobs in halts") >= 1, "{stats}");
}

#[test]
fn a_snapshot_vanishes_with_its_machine() {
    let image = Image::new("snapshot", 8 * MIB);
    image.fill(0x41);
    let script = "yes | dd of=/dev/vda bs=4096 seek=1 count=8 conv=fsync 2>/dev/null; \
        blkdiscard -o 65536 -l 4096 /dev/vda; echo 3 > /proc/sys/vm/drop_caches; \
        for at in 4095 4096 36863 36864 65535 65536; do \
            dd if=/dev/vda bs=1 skip=$at count=1 2>/dev/null | od -An -tx1; done";
    let said = MODE.shell(&["--disk", &image.with(",snapshot")], script);
    assert_eq!(said, " 41\n 79\n 0a\n 41\n 41\n 00\n");
    let all = fs::read(&image.0).expect("it is there");
    assert!(all.iter().all(|byte| *byte == 0x41));
}

/// Kill a machine that says what it has committed, and have another look for that.
fn check_killed(machine: &[&str], commit: &[&str], look: &[&str], records: u64) {
    let mut child = MODE
        .run(&[machine, &["--timeout", "60", "--"], commit].concat())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("biv can be started");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut last = 0;
    while last < records {
        let line = lines.next().and_then(Result::ok);
        last = line.and_then(|line| line.parse().ok()).expect("it counts its records");
    }
    child.kill().expect("it runs");
    let _ = child.wait();
    // What it had said by then.
    let said = lines.map_while(Result::ok).filter_map(|line| line.parse().ok());
    let last = said.last().unwrap_or(last).to_string();
    let look: Vec<_> =
        look.iter().map(|word| if *word == "LAST" { &last } else { *word }).collect();
    check_done(&MODE.in_machine(machine, &look));
}

fn check_killed_disk(image: &Image, records: u64) {
    let machine = ["--disk", image.path(), "--root", ROOT];
    check_killed(&machine, &["/probe", "commit"], &["/probe", "check", "LAST"], records);
}

#[test]
fn what_was_committed_survives_a_killed_machine() {
    for round in 1..=2 {
        let image = Image::new(&format!("killed-{round}"), 200 * MIB);
        check_killed_disk(&image, 40 * round);
        let image = Image::new(&format!("killed-qcow2-{round}"), 0);
        fs::write(&image.0, qcow2::empty(200 * MIB, None)).expect("it can be written");
        check_killed_disk(&image, 40 * round);
    }
}

/// With `BIVOUAC_FIO=SECONDS` only: it takes Debian's `fio` on the host, whose files the guest sees.
#[test]
fn fio_reads_what_it_has_written() {
    let Ok(seconds) = std::env::var("BIVOUAC_FIO") else { return };
    let raw = Image::new("fio", 256 * MIB);
    let qcow2 = Image::new("fio-qcow2", 0);
    fs::write(&qcow2.0, qcow2::empty(256 * MIB, None)).expect("it can be written");
    for (disk, how) in [
        (raw.with(""), "randwrite"),
        (raw.with(",snapshot"), "randrw"),
        (qcow2.with(""), "randwrite"),
        (qcow2.with(""), "randrw"),
        (raw.with(""), "write"),
    ] {
        let fio = format!(
            "fio --name=verify --filename=/dev/vda --direct=1 --ioengine=libaio --iodepth=32 \
             --rw={how} --bsrange=512-256k --size=256M --verify=crc32c --verify_fatal=1 \
             --verify_state_save=0 \
             --verify_backlog=500 --trim_percentage=5 --runtime={seconds} --time_based"
        );
        let mut biv = MODE.run(&["--disk", &disk, "--", "sh", "-c", &fio]);
        let output = biv.stdin(Stdio::null()).output().expect("biv can be started");
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert!(output.status.success() && said.contains("err= 0"), "{disk}, {how}: {said}");
    }
}

/// An ext4 with a shell and the program.
fn root_disk(name: &str, partition: bool) -> Image {
    let directory = Directory::new(&format!("root-{name}"));
    let root = &directory.0;
    for below in ["bin", "dev", "etc", "proc", "run", "sys", "tmp"] {
        fs::create_dir(root.join(below)).expect("the directory is empty");
    }
    fs::copy("/bin/busybox", root.join("bin/busybox")).expect("there is a static busybox");
    for applet in ["sh", "mount", "cat", "sync"] {
        symlink("busybox", root.join("bin").join(applet)).expect("the directory can be written");
    }
    fs::copy(Path::new(ROOT).join("probe"), root.join("probe")).expect("it was built");
    fs::write(root.join("etc/hostname"), "on-a-disk\n").expect("the directory can be written");
    let image = Image::new(name, 48 * MIB);
    // The first partition begins after a mebibyte.
    let mut place = vec!["-E", "offset=1048576"];
    place.truncate(if partition { 2 } else { 0 });
    let mke2fs = Command::new("mke2fs")
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .args(["-q", "-F", "-t", "ext4", "-d"])
        .arg(root)
        .args(place)
        .args([image.path(), "40M"])
        .output();
    let mke2fs = mke2fs.expect("`mke2fs` is installed");
    assert!(mke2fs.status.success(), "{}", text(&mke2fs.stderr));
    if partition {
        let mut table = [0; 66];
        table[4] = 0x83;
        table[8..12].copy_from_slice(&2048_u32.to_le_bytes());
        table[12..16].copy_from_slice(&(80_u32 << 10).to_le_bytes());
        table[64..].copy_from_slice(&[0x55, 0xaa]);
        let file = File::options().write(true).open(&image.0).expect("it is there");
        file.write_all_at(&table, 446).expect("it can be written");
    }
    image
}

#[test]
fn the_root_can_be_on_a_disk_or_a_partition() {
    let whole = root_disk("whole", false);
    let script = "cat /proc/sys/kernel/hostname; mount | head -n 1; echo kept > /kept";
    let said = MODE.shell(&["--root-disk", whole.path()], script);
    assert_eq!(said, "on-a-disk\n/dev/vda on / type ext4 (rw,relatime)\n");
    // It was left in order, or it could not be mounted so.
    let again = MODE.shell(&["--root-disk", &whole.with(",ro")], "cat /kept; mount | head -n 1");
    assert_eq!(again, "kept\n/dev/vda on / type ext4 (ro,relatime)\n");
    let partition = root_disk("partition", true);
    let script = "mount | head -n 1; echo gone > /gone";
    let said = MODE.shell(&["--root-disk", &partition.with(",part=1,snapshot")], script);
    assert_eq!(said, "/dev/vda1 on / type ext4 (rw,relatime)\n");
    let again = MODE.shell(&["--root-disk", &partition.with(",part=1,ro")], "cat /gone || echo no");
    assert_eq!(again, "no\n");
    for (disk, expected) in [
        (partition.with(""), "/dev/vda has no file system that this kernel knows"),
        (partition.with(",part=2"), "there is no /dev/vda2; the disk has: vda, vda1"),
    ] {
        let output = MODE.in_machine(&["--root-disk", &disk], &["sh"]);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(125) && said.contains(expected), "{said}");
    }
}

#[test]
fn a_volume_on_a_root_that_cannot_be_written_needs_its_place_there() {
    let disk = root_disk("read-only", false);
    let share = Directory::new("share");
    let run = |place: &str| {
        let volume = format!("{}:{place}", share.0.display());
        let words = ["sh", "-c", "echo kept > $0/file", place];
        MODE.in_machine(&["--root-disk", &disk.with(",ro"), "--volume", &volume], &words)
    };
    let output = run("/newdir");
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(125) && said.contains("/newdir: the directory"), "{said}");
    assert_eq!(fs::read_dir(&share.0).expect("it is there").count(), 0);
    assert!(run("/etc").status.success());
    assert_eq!(fs::read(share.0.join("file")).expect("it was written"), b"kept\n");
}

#[test]
fn what_was_committed_to_a_file_system_survives_a_killed_machine() {
    let image = root_disk("killed-root", false);
    let machine = ["--root-disk", image.path()];
    let look = ["/probe", "check", "LAST", "/records"];
    check_killed(&machine, &["/probe", "commit", "/records"], &look, 50);
}

#[test]
fn a_qcow2_image_is_a_disk_and_leaves_its_backing_image_alone() {
    let below = Image::new("below", 32 * MIB);
    below.fill(0x41);
    let name = below.0.file_name().and_then(|name| name.to_str()).expect("it has a name");
    let above = Image::new("above", 0);
    fs::write(&above.0, qcow2::empty(32 * MIB, Some((name, "raw")))).expect("it can be written");
    let script = "yes BBBBBBB | dd of=/dev/vda bs=4096 seek=100 count=1000 2>/dev/null; \
        blkdiscard -o 8192 -l 4096 /dev/vda; md5sum < /dev/vda";
    let backing = format!(",backing={}", below.path());
    let said = MODE.shell(&["--disk", &above.with(&backing)], script);
    let look = "md5sum < /dev/vda; dd if=/dev/vda bs=8 skip=51199 count=2 2>/dev/null";
    let again = MODE.shell(&["--disk", &above.with(&format!(",ro{backing}"))], look);
    assert_eq!(again, format!("{said}AAAAAAAABBBBBBB\n"));
    let all = fs::read(&below.0).expect("it is there");
    assert!(all.iter().all(|byte| *byte == 0x41));
    fs::write(&above.0, qcow2::empty(32 * MIB, None)).expect("it can be written");
    check_done(&probe(MODE, &above, &["verify", "8", "300"]));
}

/// An image in a directory with a user's files may be somebody else's: it is refused before its machine runs,
/// though what it refers to is beside it, and it says what it wants.
#[test]
fn an_image_has_no_files_of_its_hosts_but_those_that_are_named() {
    let secret = Image::new("id_rsa", 0);
    let profile = Image::new("bashrc", 0);
    let contents = "a file of the user's\n".repeat(4096);
    for file in [&secret, &profile] {
        fs::write(&file.0, &contents).expect("it can be written");
    }
    let name = |image: &Image| {
        image.0.file_name().and_then(|name| name.to_str()).expect("it has a name").to_owned()
    };
    let image = Image::new("foreign", 0);
    let script = "cat /dev/vda | grep -c user; echo owned >/dev/vda; sync";
    let check = |bytes: &[u8], option: &str, file: &Image| {
        fs::write(&image.0, bytes).expect("it can be written");
        for disk in [image.path().to_owned(), image.with(",ro"), image.with(",snapshot")] {
            let output = MODE.in_machine(&["--disk", &disk], &["sh", "-c", script]);
            let said = text(&output.stderr);
            assert_eq!((output.status.code(), said.lines().count()), (Some(125), 1), "{said}");
            assert!(output.stdout.is_empty(), "it ran");
            assert!(said.contains(&format!("{option}={}", file.path())), "{said}");
        }
        assert_eq!(fs::read_to_string(&file.0).expect("it is there"), contents);
    };
    check(&qcow2::empty(MIB, Some((&name(&secret), "raw"))), ",backing", &secret);
    check(&qcow2::with_data_in(&name(&profile), MIB), ",data-file", &profile);
    // Who names it lets the guest have it.
    let named = image.with(&format!(",data-file={}", profile.path()));
    let said = MODE.shell(&["--disk", &named], "echo owned >/dev/vda; sync; head -c 6 /dev/vda");
    assert_eq!(said, "owned\n");
    assert_ne!(fs::read_to_string(&profile.0).expect("it is there"), contents);
    assert_eq!(fs::read_to_string(&secret.0).expect("it is there"), contents);
    // So it is for each image of a chain, in any order.
    let middle = Image::new("middle", 0);
    fs::write(&middle.0, qcow2::empty(MIB, Some((&name(&secret), "raw")))).expect("room");
    let above = qcow2::empty(MIB, Some((&name(&middle), "qcow2")));
    fs::write(&image.0, &above).expect("it can be written");
    let (one, both) = (
        image.with(&format!(",backing={}", middle.path())),
        image.with(&format!(",backing={},backing={}", secret.path(), middle.path())),
    );
    let output = MODE.in_machine(&["--disk", &one], &["true"]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(125) && said.contains(secret.path()), "{said}");
    assert_eq!(MODE.shell(&["--disk", &both], "head -c 7 /dev/vda"), "a file ");
}

/// The guest gets an error, `biv` says why, and the machine goes on.
fn check_trouble(mut biv: Command, image: &Image, meanwhile: impl FnOnce(&Image), reason: &str) {
    let mut child = biv
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("biv can be started");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut next = || lines.next().and_then(Result::ok).unwrap_or_default();
    assert_eq!(next(), "up");
    meanwhile(image);
    drop(child.stdin.take());
    assert_eq!([next(), next()], ["Input/output error", "goes on"]);
    let output = child.wait_with_output().expect("it ends");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let complaints: Vec<_> = said.lines().filter(|line| line.starts_with("biv: disk")).collect();
    assert!((1..=2).contains(&complaints.len()), "{said}");
    assert!(complaints[0].contains(reason) && complaints[0].contains(image.path()), "{said}");
}

#[test]
fn an_image_that_is_cut_while_it_is_used_is_an_error_for_the_guest() {
    let image = Image::new("cut", 16 * MIB);
    let script = "echo up; cat; \
        dd if=/dev/vda of=/dev/null bs=4096 skip=4000 count=10 2>&1 | grep -o 'Input/output \
        error'; \
        dd if=/dev/vda of=/dev/null bs=4096 count=1 2>/dev/null && echo goes on";
    let biv = MODE.run_in_time(&["--disk", image.path(), "--", "sh", "-c", script]);
    let cut = |image: &Image| {
        let file = File::options().write(true).open(&image.0).expect("it is there");
        file.set_len(MIB).expect("it can be cut");
    };
    check_trouble(biv, &image, cut, "shorter");
}

/// A disk with these options whose image (`$2`) a shell makes in a file system (`$1`) that is small; the machine
/// writes more than that holds, and tries to go on.
fn check_full(name: &str, make: &str, options: &str, go_on: &str) {
    let small = Directory::new(&format!("small-{name}"));
    let image = Image(small.0.join("full.img"));
    let empty = Image::new(&format!("empty-{name}"), 0);
    fs::write(&empty.0, qcow2::empty(16 * MIB, None)).expect("it can be written");
    let script = format!(
        "echo up; cat; dd if=/dev/urandom of=/dev/vda bs=4096 count=2000 conv=fsync 2>&1 \
            | grep -o 'Input/output error'; {go_on} && echo goes on"
    );
    let disk = image.with(options);
    let inner = MODE.run_in_time(&["--disk", &disk, "--", "sh", "-c", &script]);
    // Of all that it sees, only this is in a file system that is small.
    let prepare =
        format!("mount -t tmpfs -o size=4m none \"$1\" && {make} && shift 3 && exec \"$@\"");
    let mut biv = Command::new("unshare");
    biv.args(["--user", "--map-root-user", "--mount", "--", "sh", "-c", &prepare, "sh"]);
    biv.args([small.0.as_os_str(), image.0.as_os_str(), empty.0.as_os_str()]);
    biv.arg(inner.get_program()).args(inner.get_args());
    check_trouble(biv, &image, |_| (), "No space left");
}

#[test]
fn a_host_that_is_full_is_an_error_for_the_guest() {
    let read = "dd if=/dev/vda of=/dev/null bs=4096 count=100 2>/dev/null";
    let write =
        "blkdiscard /dev/vda; dd if=/dev/zero of=/dev/vda bs=4096 count=1 conv=fsync 2>/dev/null";
    check_full("raw", "truncate -s 16M \"$2\"", "", write);
    check_full("qcow2", "cp \"$3\" \"$2\"", "", read);
    check_full("snapshot", "truncate -s 16M \"$2\" && export TMPDIR=\"$1\"", ",snapshot", read);
}

#[test]
fn what_is_no_disk_is_refused_in_words_that_help() {
    let image = Image::new("refused", MIB);
    let check = |disk: &str, expected: &str| {
        let output = MODE.in_machine(&["--disk", disk], &["true"]);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(125), 1), "{said}");
        assert!(said.contains(expected), "{said}");
    };
    check("/no/such/file", "No such file");
    check(ROOT, "directory");
    check("/dev/null", "neither a file nor a block device");
    let small = Image::new("small", 511);
    check(small.path(), "it has 511 bytes");
    check(&image.with(",format=qcow2"), "it is not a qcow2 image");
    let write = |bytes: &[u8]| fs::write(&small.0, bytes).expect("it can be written");
    write(&qcow2::empty(MIB, Some(("/etc/passwd", "raw"))));
    check(small.path(), "add ,backing=/etc/passwd");
    write(&qcow2::empty(MIB, Some(("../../../../../etc/passwd", "raw"))));
    check(small.path(), "etc/passwd as its backing image");
    write(&qcow2::empty(MIB, Some(("no-such-image", "qcow2"))));
    check(small.path(), "no-such-image");
    check(&small.with(",backing=/etc/passwd"), "no-such-image");
    write(&qcow2::empty(MIB, Some(("/etc/passwd", ""))));
    check(&small.with(",backing=/etc/passwd"), "format");
    write(&qcow2::empty(MIB, None));
    check(&small.with(",backing=/etc/passwd"), "no image refers to /etc/passwd");
    check(&image.with(",backing=/etc/passwd"), "it is not a qcow2 image");
    let mut cut = qcow2::empty(MIB, None);
    // A table of clusters, and a cluster, where there is nothing any more.
    cut[0x3_0000..0x3_0008].copy_from_slice(&0x8000_0000_0004_0000_u64.to_be_bytes());
    cut.extend(0x8000_0000_0009_0000_u64.to_be_bytes());
    cut.resize(5 << 16, 0);
    write(&cut);
    check(small.path(), "is truncated");
    write(&cut[..100]);
    check(small.path(), "cannot be opened");
    let mut holder = MODE.run_in_time(&["--disk", image.path(), "--", "sh", "-c", "echo up; cat"]);
    let holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut holder = holder.expect("biv can be started");
    let mut line = String::new();
    let stdout = holder.stdout.take().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("it comes up");
    check(image.path(), "another machine uses it");
    check(&image.with(",ro"), "another machine uses it");
    drop(holder.stdin.take());
    let _ = holder.wait();
}
