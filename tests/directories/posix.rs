//! Files of a volume are to a guest's programs what those of the host are to the host's: whatever is tried
//! in both places ends alike. The host's own file system is what both are compared with.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Place, says};
use whole_machine::{bivouac, root, text};

/// `guest.c`, which tries what pjdfstest does not.
const PROBE: &str = concat!(env!("DIRECTORIES_ROOT"), "/probe");

/// Several processors, for what several programs do at once.
const MACHINE: [&str; 4] = ["--mem", "512M", "--cpus", "4"];

/// Has a command run in a directory of the host and, as it is, in a guest's volume; what each said. The last
/// word of the command is the directory.
fn on_both_sides(words: &str) -> [String; 2] {
    let place = Place::new();
    let beside = place.0.join("host");
    fs::create_dir(&beside).expect("there is room for tests");
    let on_host =
        Command::new("sh").args(["-c", &format!("{words} {}", beside.display())]).output();
    let on_host = text(&on_host.expect("there is a shell").stdout);
    let volume = place.volume("");
    let options = [&MACHINE[..], &["--volume", &volume]].concat();
    [on_host, says(&place.0, &options, &format!("{words} /mnt/share"))]
}

#[test]
fn programs_find_files_as_they_are_on_the_host() {
    let [host, guest] = on_both_sides(PROBE);
    assert!(host.ends_with("done\n"), "{host}");
    for (host, guest) in host.lines().zip(guest.lines()) {
        assert_eq!(guest, host);
    }
    assert_eq!(guest, host);
}

/// Where pjdfstest and fsx are, if they are to be used: `cargo install --root DIRECTORY pjdfstest fsx`.
fn suites() -> Option<String> {
    Some(format!("{}/bin", std::env::var("BIVOUAC_POSIX").ok()?))
}

/// Of what pjdfstest tries, the names of what did not succeed.
fn failed(said: &str) -> BTreeSet<&str> {
    assert!(said.contains("\nSummary: "), "{said}");
    let outcomes = said.lines().filter(|line| line.contains("::") && !line.starts_with('\t'));
    let bad = outcomes.filter(|line| !line.ends_with(" ok"));
    bad.filter_map(|line| line.split_whitespace().next()).collect()
}

/// What devices are tried with, which a guest cannot make on the host; and file systems that know no
/// largest number of names of a file, as FUSE, have nothing to be tried.
fn is_known(name: &str) -> bool {
    let of_devices = ["block", "char", "device_files"];
    name.split("::").any(|part| of_devices.contains(&part)) || name == "link::link_count_max"
}

/// With `BIVOUAC_POSIX=DIRECTORY` only. As root it tries more.
#[test]
fn pjdfstest_ends_as_it_does_on_the_host_but_for_devices() {
    let Some(suites) = suites() else { return };
    let place = Place::new();
    let configuration = place.0.join("pjdfstest.toml");
    let features = "[features]\nposix_fallocate = {}\nrename_ctime = {}\nutime_now = \
                    {}\nutimensat = {}\n\
        [settings]\nnaptime = 0.02\nallow_remount = false\n\
        [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"games\", \"games\"]]\n";
    fs::write(&configuration, features).expect("there is room for tests");
    let program = format!("{suites}/pjdfstest -c {}", configuration.display());
    // It fails if anything does; what, is what is compared.
    let [host, guest] = on_both_sides(&format!("try() {{ {program} -p \"$1\"; true; }}; try"));
    let (host, guest) = (failed(&host), failed(&guest));
    let news: Vec<_> = guest.difference(&host).filter(|name| !is_known(name)).collect();
    println!("{} and {} did not succeed on the host and in the guest", host.len(), guest.len());
    assert!(news.is_empty(), "{news:?}");
}

/// Likewise.
#[test]
fn fsx_reads_what_it_has_written_and_mapped() {
    let Some(suites) = suites() else { return };
    let place = Place::new();
    fs::write(place.0.join("fsx.toml"), "flen = 1048576\n[opsize]\nmax = 65536\n").unwrap();
    let volume = place.volume("");
    let options = [&MACHINE[..], &["--volume", &volume]].concat();
    // Four at once, each on a file of its own.
    let script = format!(
        "for seed in 1 2 3 4; do {suites}/fsx -f {}/fsx.toml -N 5000 -S $seed -P /tmp \
         /mnt/share/file$seed > /tmp/said$seed 2>&1 & done; wait; cat /tmp/said*",
        place.0.display()
    );
    let said = says(&place.0, &options, &script);
    assert_eq!(said.matches("All operations completed A-OK!").count(), 4, "{said}");
}

#[test]
fn devices_are_not_made_and_sockets_and_pipes_are() {
    let place = Place::new();
    let script =
        "cd /mnt/share; mkfifo pipe && mknod null c 1 3 2>&1 | grep -o 'not permitted'; ls";
    let said = says(&place.0, &["--busybox", "--volume", &place.volume("")], script);
    assert_eq!(said, "not permitted\npipe\n");
    let is_pipe = |path: &Path| fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo());
    assert!(is_pipe(&place.share().join("pipe")));
}

/// Runs stressors one after the other, below /tmp/work.
const STRESS: &str = include_str!("../stress/guest.sh");

/// Some of stress-ng's stressors of file systems, one or two of each kind.
const STRESSORS: &str =
    "copy-file dentry dirdeep fallocate flock fpunch getdent hdd iomix lockofd rename xattr";

/// With `BIVOUAC_STRESS=all` every one, but for those that need what guests do not have.
#[test]
fn stressors_of_file_systems_succeed_on_a_volume() {
    let place = Place::new();
    let every = "$(stress-ng --class filesystem? 2>&1 \
        | busybox sed 's/.*: //; s/bind-mount//; s/binderfs//')";
    let is_all = std::env::var("BIVOUAC_STRESS").is_ok_and(|asked| asked == "all");
    let names = if is_all { every } else { STRESSORS };
    let script = format!("set -- 1 45 {names}\n{STRESS}");
    let mut machine = Command::new(bivouac());
    machine.args(["run", "--timeout", "900", "--mem", "1G", "--cpus", "2"]);
    machine.arg("--root").arg(root::debian());
    machine.args(["--volume", &format!("{}:/tmp/work", place.share().display())]);
    machine.args(["--", "/bin/busybox", "sh", "-c", &script]).stdin(Stdio::null());
    let output = machine.output().expect("biv can be started");
    let said = text(&output.stdout);
    let results: Vec<_> = said.lines().filter_map(|line| line.strip_prefix("RESULT ")).collect();
    // Who lacks something says 3.
    let is_good = |result: &&&str| matches!(result.split(' ').nth(1), Some("0" | "3"));
    let good = results.iter().filter(is_good).count();
    println!("{good} of {} stressors succeed", results.len());
    assert!(good == results.len() && said.ends_with("DONE\n"), "{said}{}", text(&output.stderr));
    assert!(good >= STRESSORS.split(' ').count(), "{said}");
}
