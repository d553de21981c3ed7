//! Directories of the host by 9p, under a kernel that has no virtio-fs.
//!
//! Debian's usual kernel has 9p as modules, as those for clouds have not; without the module of virtio-fs it has that.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use whole_machine::user::User;
use whole_machine::{biv, kernels, text};

use super::Place;

/// What a kernel with 9p and no virtio-fs has of its user's files: the program checks it there, and the test here.
const BY_NINE: &str = r#"set -e
    cat mine; pwd; grep -c '^biv1 .* 9p rw' /proc/mounts
    echo written >new; mkdir below; mv new below/moved; ln below/moved hard; ln -s hard soft
    cat soft; chmod 600 hard; stat -c %a hard
    dd if=/dev/zero of=large bs=1M count=9 2>/dev/null; wc -c <large
    echo one >both; echo two >>both; cat both; ls -l many | wc -l; touch /etc/unwritten
    for name in a b; do
        (exec 3>>lines; i=0; while [ $i -lt 1000 ]; do echo $name >&3; i=$((i + 1)); done) &
    done; wait; wc -l <lines
    ! cat missing 2>/dev/null; rm many/7; rmdir below 2>/dev/null || echo not empty"#;

/// Reads, writes, finds and makes files, and says the time before and after each.
const MEASURED: &str = r#"set -e; now() { date +%s%N; }
    now; dd if=large of=/dev/null bs=1M 2>/dev/null
    now; dd if=/dev/zero of=written bs=1M count=256 2>/dev/null
    now; find tree -type f >/dev/null
    now; mkdir made; i=0; while [ $i -lt 2000 ]; do echo x >made/$i; i=$((i + 1)); done
    now"#;

/// How a machine with Debian's usual kernel is started, whose modules are in this place, perhaps but for that of
/// virtio-fs; none if it cannot be had.
fn usual_kernel(place: &Place, has_virtio_fs: bool) -> Option<[String; 4]> {
    let debian = match kernels::debian_with_modules("bookworm", "linux-image-amd64") {
        Ok(found) => found,
        Err(reason) => {
            println!("skipped: no usual kernel: {reason}");
            return None;
        }
    };
    let copied = Command::new("cp").arg("-a").args([&debian.join("lib"), &place.0]).status();
    assert!(copied.expect("there is cp").success());
    let mut releases = fs::read_dir(place.0.join("lib/modules")).expect("there are modules");
    let own = releases.next().expect("there is a release").expect("it can be read").path();
    if !has_virtio_fs {
        fs::remove_file(own.join("kernel/fs/fuse/virtiofs.ko")).expect("it was there");
    }
    let release = own.file_name().expect("a name");
    let mut index = Command::new("/sbin/depmod");
    match index.arg("-b").arg(&place.0).arg(release).status() {
        Ok(status) => assert!(status.success()),
        Err(error) => {
            println!("skipped: no depmod: {error}");
            return None;
        }
    }
    let path = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let (kernel, modules) = (path(&debian.join("vmlinuz")), path(&own));
    Some(["--kernel".to_owned(), kernel, "--modules".to_owned(), modules])
}

/// What such a machine is started with in any case.
const RUN: [&str; 7] = ["run", "--net", "none", "--mem", "1G", "--cpus", "2"];

#[test]
fn an_own_kernel_without_virtio_fs_has_the_users_files_by_9p() {
    let place = Place::new();
    let Some(options) = usual_kernel(&place, false) else { return };
    let here = place.0.join("here");
    fs::create_dir_all(here.join("many")).expect("a directory");
    (0..2000).for_each(|name| fs::write(here.join(format!("many/{name}")), "").expect("a file"));
    fs::write(here.join("mine"), "my file\n").expect("there is room for tests");
    let mut command = biv(&RUN);
    command.args(&options).args(["--", "sh", "-c", BY_NINE]);
    let output = command.current_dir(&here).output().expect("biv can be started");
    let there = here.canonicalize().expect("it is there");
    let expected = format!(
        "my file\n{}\n1\nwritten\n600\n9437184\none\ntwo\n2001\n2000\nnot empty\n",
        there.display()
    );
    assert_eq!(text(&output.stdout), expected, "{output:?}");
    assert!(output.status.success(), "{output:?}");
    let read = |name: &str| fs::read_to_string(here.join(name)).expect("it is written");
    assert_eq!((&*read("hard"), &*read("both")), ("written\n", "one\ntwo\n"));
    assert_eq!(fs::read_link(here.join("soft")).expect("a link"), Path::new("hard"));
    assert_eq!(fs::metadata(here.join("large")).expect("a file").len(), 9 << 20);
    assert!(!here.join("many/7").exists() && !Path::new("/etc/unwritten").exists());
    // What it calls its files by is in no snapshot.
    let user = User::new(&[], &place.0).at("/");
    let options: Vec<_> = options.iter().map(String::as_str).collect();
    let named = ["-d", "--name", "m"];
    user.says(&[&RUN[..], &named, &options, &["--", "sleep", "1000"]].concat());
    user.says(&["exec", "m", "true"]);
    assert!(user.complains(&["snapshot", "m", "state"]).contains("by 9p"));
    user.says(&["rm", "--force", "m"]);
}

/// How long a start takes, and each of what [`MEASURED`] does.
fn measure(options: &[String], here: &Path) -> Vec<Duration> {
    let run = |arguments: &[&str]| {
        let mut command = biv(&RUN);
        command.args(options).arg("--").args(arguments);
        let output = command.current_dir(here).output().expect("biv can be started");
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout)
    };
    let begun = Instant::now();
    run(&["true"]);
    let mut all = vec![begun.elapsed()];
    let said = run(&["sh", "-c", MEASURED]);
    let times: Vec<u64> = said.lines().map(|line| line.parse().expect("a time")).collect();
    all.extend(times.windows(2).map(|pair| Duration::from_nanos(pair[1] - pair[0])));
    fs::remove_dir_all(here.join("made")).expect("it was made");
    fs::remove_file(here.join("written")).expect("it was written");
    all
}

/// With `BIVOUAC_NINE=STARTS` only: it measures so many starts by each, in turn.
#[test]
fn what_9p_takes_is_not_much_more_than_what_virtio_fs_takes() {
    let Ok(starts) = std::env::var("BIVOUAC_NINE") else {
        return println!("left out: BIVOUAC_NINE=STARTS measures");
    };
    let starts: usize = starts.parse().expect("BIVOUAC_NINE is a number");
    let places = [Place::new(), Place::new()];
    let found = [usual_kernel(&places[0], true), usual_kernel(&places[1], false)];
    let [Some(by_virtio_fs), Some(by_nine)] = found else { return };
    let here = places[0].0.join("here");
    for directory in 0..100 {
        let directory = here.join(format!("tree/{directory}"));
        fs::create_dir_all(&directory).expect("a directory");
        (0..100).for_each(|name| fs::write(directory.join(name.to_string()), "x").expect("a file"));
    }
    fs::write(here.join("large"), vec![1; 256 << 20]).expect("there is room for tests");
    let mut all: [Vec<Vec<Duration>>; 2] = Default::default();
    for _ in 0..starts {
        all[0].push(measure(&by_virtio_fs, &here));
        all[1].push(measure(&by_nine, &here));
    }
    let median = |of: &[Vec<Duration>], what: usize| {
        let mut times: Vec<_> = of.iter().map(|times| times[what]).collect();
        times.sort();
        times[times.len() / 2]
    };
    let names = ["start", "read 256 MiB", "write 256 MiB", "find 10000 files", "make 2000 files"];
    for (what, name) in names.iter().enumerate() {
        let (virtio_fs, nine) = (median(&all[0], what), median(&all[1], what));
        println!("{name}: {virtio_fs:.3?} by virtio-fs, {nine:.3?} by 9p");
        assert!(nine < virtio_fs * 3, "{name}: {nine:?} instead of {virtio_fs:?}");
    }
}
