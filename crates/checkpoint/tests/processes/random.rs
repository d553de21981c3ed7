//! dump(restart(x)) == x, for random trees of processes.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{self, Directory, Network, Subject, compile};

/// Trees that are tried; `BIVOUAC_TREES` tries more.
const TREES: u32 = 8;

#[test]
fn a_dump_of_a_random_tree_that_was_restarted_is_the_same() {
    let directory = Directory::new("random");
    let Some(program) = compile(&directory, "random") else { return };
    let trees = std::env::var("BIVOUAC_TREES").ok().and_then(|text| text.parse().ok());
    for seed in 1..=trees.unwrap_or(TREES) {
        println!("seed {seed}");
        let place = directory.path("place");
        let _ = fs::remove_dir_all(&place);
        let _ = fs::remove_file(directory.path("output"));
        fs::create_dir(&place).expect("there is room");
        fs::write(place.join("seed"), seed.to_string()).expect("there is room");
        let subject = Subject::start_in(Network::Own, &directory, &program);
        let Some(mut subject) = subject else { return };
        wait_for_pause(subject.pid);
        subject.check_transplant();
    }
}

/// Wait until each living process of a tree waits in pause(2), so that none changes anything any more.
fn wait_for_pause(pid: u32) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let pause = format!("{} ", libc::SYS_pause);
    loop {
        let call = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if call.starts_with(&pause) || stat.contains(") Z ") {
            break;
        }
        assert!(Instant::now() < deadline, "{stat} is in {call}");
        thread::sleep(Duration::from_millis(1));
    }
    support::children(pid).into_iter().for_each(wait_for_pause);
}
