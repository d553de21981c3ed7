//! Domains with a disk that has a queue for each processor, kept in a snapshot while all of them are in use.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use whole_machine::text;
use whole_machine::waiting::wait_for;

use super::place::Place;

/// A directory with what runs in the guest.
const PROGRAMS: &str = env!("DISKS_ROOT");

const PROCESSORS: usize = 2;

/// Threads of the guest's program, and sectors that each writes in turn.
const THREADS: usize = 2 * PROCESSORS;
const PLACES: u64 = 1 << 17;
const SECTOR_BYTES: usize = 512;

/// How often each queue of the first disk has interrupted each processor.
fn interrupts(place: &Place, name: &str) -> Vec<Vec<u64>> {
    let said = text(&place.exec(name, "grep 'req\\.[0-9]' /proc/interrupts").stdout);
    let counts = |line: &str| -> Vec<u64> {
        let words = line.split_whitespace().skip(1).take(PROCESSORS);
        words.map(|word| word.parse().expect("a count")).collect()
    };
    said.lines().map(counts).collect()
}

#[track_caller]
fn check_that_both_queues_are_used(place: &Place, name: &str) {
    let before = interrupts(place, name);
    assert_eq!(before.len(), PROCESSORS, "{before:?}");
    wait_for("both queues interrupt", || {
        let now = interrupts(place, name);
        (0..PROCESSORS).all(|queue| now[queue][queue] > before[queue][queue] + 20)
    });
    // Each interrupts the processor that it belongs to, and no other.
    let now = interrupts(place, name);
    for (queue, counts) in now.iter().enumerate() {
        assert!(counts[queue] * 10 > counts.iter().sum::<u64>() * 9, "{now:?}");
    }
}

/// What each thread has written last, in so many rounds, is in the image.
fn check_image(image: &Path, rounds: &[u64]) {
    let file = File::open(image).expect("it is there");
    for (thread, &rounds) in rounds.iter().enumerate() {
        assert!(rounds > 200, "{rounds} rounds of thread {thread}");
        for round in rounds.saturating_sub(PLACES.min(1000))..rounds {
            let sector = thread as u64 * PLACES + round % PLACES;
            let mut bytes = [0; SECTOR_BYTES];
            file.read_exact_at(&mut bytes, sector * SECTOR_BYTES as u64).expect("it is so long");
            let expected = [sector.to_le_bytes(), round.to_le_bytes()].concat();
            assert_eq!(bytes[..16], expected, "round {round} of thread {thread}");
            assert_eq!(bytes[SECTOR_BYTES - 16..], expected, "round {round} of thread {thread}");
        }
    }
}

#[test]
fn a_disk_goes_on_from_a_snapshot_with_requests_in_all_of_its_queues() {
    let place = Place::new();
    let image = place.path.join("disk");
    let bytes = THREADS as u64 * PLACES * SECTOR_BYTES as u64;
    File::create(&image).and_then(|file| file.set_len(bytes)).expect("a disk");
    let volume = format!("{PROGRAMS}:/programs:ro");
    let processors = PROCESSORS.to_string();
    let script = format!("ls /sys/block/vda/mq; exec /programs/probe until {processors} /tmp/end");
    let image_name = image.to_str().expect("it is UTF-8");
    let machine = ["--busybox", "--mem", "128M", "--cpus", &processors, "--disk", image_name];
    let start = ["run", "-d", "--name", "one"];
    let command = ["--volume", &volume, "--", "sh", "-c", &script];
    place.says(&[&start[..], &machine, &command].concat());
    let log = |name: &str| text(&place.output(&["logs", name]).stdout);
    wait_for("it writes", || log("one").contains("begun"));
    assert!(log("one").starts_with("0\n1\n"), "a queue for each processor: {}", log("one"));
    check_that_both_queues_are_used(&place, "one");
    for (before, after) in [("one", "two"), ("two", "three")] {
        let file = place.path.join(format!("{before}.snapshot"));
        let file = file.to_str().expect("it is UTF-8");
        place.says(&["snapshot", before, file]);
        // Both would write the same image.
        place.says(&["rm", "--force", before]);
        place.says(&["restore", "-d", "--name", after, file]);
        check_that_both_queues_are_used(&place, after);
    }
    // The machine may have ended before the host has heard that this has.
    place.exec("three", "touch /tmp/end");
    wait_for("it ends", || log("three").contains("rounds"));
    let said = log("three");
    let last = said.lines().last().and_then(|line| line.strip_prefix("rounds "));
    let rounds: Vec<_> =
        last.expect(&said).split(' ').map(|word| word.parse().expect(word)).collect();
    assert_eq!(rounds.len(), THREADS);
    check_image(&image, &rounds);
    let _ = fs::remove_file(&image);
}
