//! Volumes that nobody else changes, or where the user wants less: files are what they are elsewhere, and less
//! is asked for.

use super::*;

#[test]
fn files_of_exclusive_volumes_are_as_files_are() {
    for options in [":exclusive", ":writeback,noxattr"] {
        check_files(options);
    }
}

/// How often the second directory of a machine, its volume, was asked for what a script needs, by what FUSE calls
/// that; what is not in the list was not asked for.
#[track_caller]
fn requests(place: &Place, options: &str, script: &str) -> Vec<(String, u64)> {
    let script = format!(
        "set -e; cd /mnt/share; {script}; unmounted() {{ cd /; umount /mnt/share; }}; unmounted"
    );
    let output = run(&place.0, &["--cold", "--stats", "--volume", &place.volume(options)], &script);
    let complaint = text(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    let lines = complaint.lines().skip_while(|line| !line.starts_with("requests to directories"));
    let mut lines = lines.skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let tags = lines.next().expect("directories have names").len();
    let count = |words: Vec<&str>| {
        let count = words.last().and_then(|word| word.replace(',', "").parse().ok());
        let is_row = words.len() == tags + 1;
        is_row.then(|| (words[0].to_owned(), count.expect("a number")))
    };
    lines.filter_map(count).collect()
}

fn of(requests: &[(String, u64)], name: &str) -> u64 {
    requests.iter().find(|(known, _)| known == name).map_or(0, |(_, count)| *count)
}

/// Twenty directories with three files each.
fn fill(place: &Place) {
    for number in 0..20 {
        let directory = place.share().join(format!("d{number}"));
        fs::create_dir(&directory).unwrap();
        for name in ["a", "b", "c"] {
            fs::write(directory.join(name), name).unwrap();
        }
    }
}

#[test]
fn an_exclusive_volume_is_listed_once() {
    let place = Place::new();
    fill(&place);
    // Longer than others' volumes are believed.
    let list = "find . -size -9 | wc -l";
    let script = format!(
        "test $({list}) = 81; sleep 1.2; test $({list}) = 81; touch d7/more; test $({list}) = 82"
    );
    let shared = requests(&place, "", &script);
    assert!(of(&shared, "OPENDIR") >= 60, "{shared:?}");
    fs::remove_file(place.share().join("d7/more")).unwrap();
    let exclusive = requests(&place, ":exclusive", &script);
    assert!(of(&exclusive, "OPENDIR") <= 1, "{exclusive:?}");
    let lists = |all: &[_]| of(all, "READDIR") + of(all, "READDIRPLUS");
    // Each directory is read to its end once, and the changed one again.
    assert!(lists(&exclusive) <= 2 * 21 + 4, "{exclusive:?}");
    assert!(lists(&shared) > 2 * lists(&exclusive), "{shared:?}, {exclusive:?}");
}

#[test]
fn attributes_are_not_asked_for_where_there_are_none() {
    let place = Place::new();
    let script = "for n in $(seq 20); do echo > f$n; chown 7 f$n; done";
    let with = requests(&place, "", script);
    assert!(of(&with, "GETXATTR") >= 40, "{with:?}");
    let without = requests(&place, ":noxattr", script);
    assert!(of(&without, "GETXATTR") <= 1, "{without:?}");
}

#[test]
fn what_is_forgotten_does_not_keep_a_volume_mounted() {
    let place = Place::new();
    fill(&place);
    // It forgets at once what is removed, and the rest when it unmounts.
    let all = requests(&place, "", "find . | wc -l; rm d3/a; rm -r d4");
    assert!(of(&all, "FORGET") >= 4, "{all:?}");
}

#[test]
fn what_is_written_back_is_there_when_it_is_closed_or_wanted() {
    let place = Place::new();
    let script = "for n in $(seq 200); do echo $n; done > closed; echo > is_closed
                  exec 8> open; echo synced >&8; sync open; echo > is_synced
                  echo more >&8; sync; echo > is_all_synced
                  exec 9>> appended; echo one >&9; echo two >> appended; echo three >&9; sync \
                  appended";
    fs::write(place.share().join("appended"), "zero\n").unwrap();
    let script =
        format!("cd /mnt/share; {script}; echo > ready; while ! [ -e go ]; do sleep 0.1; done");
    let volume = place.volume(":writeback");
    let mut command = biv(&["run", "--busybox", "--volume", &volume, "--volume"]);
    // Who waits for the host does so in another volume.
    let other = place.0.join("other");
    fs::create_dir(&other).unwrap();
    command.args([&format!("{}:/mnt/other", other.display()), "--", "sh", "-c"]);
    command.arg(script.replace("-e go", "-e /mnt/other/go")).stdout(Stdio::piped());
    let child = command.spawn().expect("`timeout` can be started");
    place.wait_for("ready");
    let closed: String = (1..=200).map(|number| format!("{number}\n")).collect();
    assert_eq!(place.read("closed"), closed);
    assert_eq!(place.read("open"), "synced\nmore\n");
    assert_eq!(place.read("appended"), "zero\none\ntwo\nthree\n");
    fs::write(other.join("go"), "").unwrap();
    assert!(child.wait_with_output().unwrap().status.success());
}

#[test]
fn what_is_written_back_comes_at_once() {
    let place = Place::new();
    let script = "for n in $(seq 200); do echo $n; done > file";
    let through = requests(&place, ":exclusive", script);
    assert!(of(&through, "WRITE") >= 200, "{through:?}");
    let back = requests(&place, ":writeback", script);
    assert!(of(&back, "WRITE") <= 5, "{back:?}");
    let expected: String = (1..=200).map(|number| format!("{number}\n")).collect();
    assert_eq!(place.read("file"), expected);
}

#[test]
fn what_is_written_back_is_there_after_the_machine() {
    let place = Place::new();
    // It is open when the machine ends.
    let script = "cd /mnt/share; (echo kept; sleep 1000) > file & sleep 0.5";
    says(&place.0, &["--busybox", "--volume", &place.volume(":writeback")], script);
    assert_eq!(place.read("file"), "kept\n");
}
