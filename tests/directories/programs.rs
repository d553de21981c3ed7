//! Programs that work on a volume as developers have them work, and what they make of trouble on the host.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Place, run, says};
use whole_machine::{bivouac, text};

/// The repository that this file is part of.
const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Who commits, and who may, whoever owns the directory.
const GIT: &str =
    "git -c user.name=a -c user.email=a@b -c safe.directory='*' -c init.defaultBranch=main";

/// What a shell on the host says; it must succeed.
#[track_caller]
fn host_says(directory: &Path, script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).current_dir(directory).output();
    let output = output.expect("there is a shell");
    assert!(output.status.success(), "{script}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// The guest clones, builds with several compilers at once, commits and packs; the host agrees with all of it.
#[test]
fn a_repository_is_cloned_built_and_committed_to() {
    if Command::new("git").arg("--version").output().is_err() {
        return println!("left out: git is not installed");
    }
    let place = Place::new();
    let origin = place.0.join("origin");
    let make = format!(
        "mkdir origin; cp -r {REPOSITORY}/crates {REPOSITORY}/guest {REPOSITORY}/bench \
         {REPOSITORY}/tests origin
        rm -rf origin/*/target; cd origin; {GIT} init -q; {GIT} add -A; {GIT} commit -qm first; \
        {GIT} rev-parse HEAD^{{tree}}"
    );
    let tree = host_says(&place.0, &make);
    let script = format!(
        "set -e; cd /mnt/share; {GIT} clone -q --no-local file://{} work; cd work
        {GIT} rev-parse 'HEAD^{{tree}}'; {GIT} status --porcelain
        mkdir built; ls bench/guest/*.c | xargs -P 4 -I @ sh -c 'cc -O1 -c -o built/$(basename \
        @).o @'
        cc -static -pthread -o built/runner built/*.o -lm
        {GIT} add -A; {GIT} commit -qm built; echo change >> bench/Cargo.toml; {GIT} stash -q
        {GIT} checkout -q HEAD~1; ls built 2>/dev/null || echo none; {GIT} checkout -q main; \
        {GIT} gc -q
        {GIT} fsck --strict 2>&1 | grep -v dangling || true; {GIT} rev-parse 'HEAD^{{tree}}'",
        origin.display()
    );
    let said =
        says(&place.0, &["--mem", "1G", "--cpus", "4", "--volume", &place.volume("")], &script);
    let look = format!(
        "cd share/work; {GIT} fsck --strict 2>/dev/null; {GIT} status --porcelain; {GIT} stash \
         list | wc -l
        test -x built/runner; {GIT} rev-parse 'HEAD^{{tree}}'"
    );
    let on_host = host_says(&place.0, &look);
    let (stashes, built) = on_host.split_once('\n').expect("two lines");
    assert_eq!((stashes, said), ("1", format!("{tree}none\n{built}")));
}

/// With `BIVOUAC_FIO=SECONDS` only: it takes Debian's `fio` on the host, whose files the guest sees.
#[test]
fn fio_reads_what_it_has_written_to_a_volume() {
    let Ok(seconds) = std::env::var("BIVOUAC_FIO") else { return };
    let place = Place::new();
    for how in [
        "--rw=randwrite --direct=1",
        "--rw=randrw",
        "--rw=write --direct=1",
        "--rw=randrw --ioengine=mmap",
    ] {
        let fio = format!(
            "fio --name=verify --directory=/mnt/share --ioengine=libaio --iodepth=16 --numjobs=2 \
             {how} \
             --bs=4k --size=64M --verify=crc32c --verify_fatal=1 --verify_state_save=0 \
             --verify_backlog=500 \
             --runtime={seconds} --time_based"
        );
        let options = ["--mem", "1G", "--cpus", "4", "--volume", &place.volume("")];
        let said = says(&place.0, &options, &fio);
        assert_eq!(said.matches("err= 0").count(), 2, "{how}: {said}");
    }
}

/// The guest is told, and goes on as soon as there is room.
#[test]
fn a_full_host_is_an_error_for_the_guest_and_nothing_else() {
    let place = Place::new();
    let script =
        "cd /mnt/share; dd if=/dev/zero of=big bs=65536 count=100 2>&1 | grep -o 'No space left'
        stat -c %s big; echo more > other 2>/dev/null || echo neither; rm big other
        seq 10000 > file && tail -n 1 file; ln -s there link && readlink link";
    // Of all that it sees, only the volume is in a file system that is small.
    let prepare = "mount -t tmpfs -o size=4m none \"$1\" && shift && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "--", "sh", "-c", prepare, "sh"]);
    command.arg(place.share()).args(["timeout", "120"]).arg(bivouac());
    command.args(["run", "--busybox", "--volume", &place.volume(""), "--", "sh", "-c", script]);
    let output = command.stdin(Stdio::null()).output().expect("`unshare` can be started");
    let said = text(&output.stdout);
    let expected = "No space left\n4194304\nneither\n10000\nthere\n";
    assert_eq!(said, expected, "{}", text(&output.stderr));
}

/// What the guest has open and has read of is as short, a second later, as the host has made it.
#[test]
fn a_file_that_is_cut_on_the_host_is_an_end_of_file_for_the_guest() {
    let place = Place::new();
    fs::write(place.share().join("data"), vec![b'a'; 1 << 20]).expect("there is room for tests");
    let script = "cd /mnt/share; exec 7< data; head -c 4096 <&7 | wc -c; : > ready
        n=0; while ! test -e go && test $n -lt 300; do sleep 0.1; n=$((n+1)); done
        sleep 1.2; wc -c < data; wc -c <&7; echo more >> data; wc -c < data";
    let watcher = std::thread::scope(|scope| {
        let machine =
            scope.spawn(|| run(&place.0, &["--busybox", "--volume", &place.volume("")], script));
        place.wait_for("ready");
        let file = fs::File::options().write(true).open(place.share().join("data")).unwrap();
        file.set_len(100).expect("it can be cut");
        fs::write(place.share().join("go"), "").unwrap();
        machine.join().expect("it can be started")
    });
    assert_eq!(text(&watcher.stdout), "4096\n100\n0\n105\n", "{}", text(&watcher.stderr));
}
