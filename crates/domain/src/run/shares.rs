//! A machine's share of the host's processors (`--cpu-shares`), where Linux shares these out among the processes of a
//! user: by nice values, which need neither privileges nor control groups of one's own.
//!
//! A nice value is worth 1.25 times the next one (kernel/sched/core.c, `sched_prio_to_weight`), so shares come in such
//! steps, and least to a sixty-eighth of an ordinary program's. Threads and processes that are started later have the
//! nice value of whoever starts them.
//!
//! Linux may share out among sessions first, and among the processes of each then (CONFIG_SCHED_AUTOGROUP; sched(7)).
//! A detached machine is a session of its own, whose nice value is another; it is given the same one.

use std::fs;
use std::io;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{getpid, getpriority_process, getsid, setpriority_process};
use spec::ORDINARY_SHARES;

use super::error::Error;

/// The nice value of the session of a process.
const AUTOGROUP: &str = "/proc/self/autogroup";

/// What one nice value is worth, as a multiple of the next.
const STEP: f64 = 1.25;

/// How often a session is tried to be given its nice value while others are given theirs, and the pause between.
const TRIES: u32 = 25;
const PAUSE: Duration = Duration::from_millis(20);

/// The least and the greatest nice value.
const NICE: [i32; 2] = [-20, 19];

/// Gives the calling thread, and what it starts, a share; a nice value that is greater already stays.
pub fn apply(shares: Option<u32>) -> Result<(), Error> {
    let Some(shares) = shares else { return Ok(()) };
    let nice = nice(shares);
    let present = getpriority_process(None).map_err(io::Error::from)?;
    if nice > present || (nice < 0 && nice != present) {
        let refused = |error: Errno| Error::Shares { shares, error: error.into() };
        setpriority_process(None, nice).map_err(refused)?;
    }
    let is_session = getsid(None).is_ok_and(|session| session == getpid());
    if is_session && nice != 0 {
        nice_session(nice);
    }
    Ok(())
}

/// Where Linux has been built without such, there is nothing to write to. It takes one change in a tenth of a second
/// from all that have no privileges.
fn nice_session(nice: i32) {
    for _ in 0..TRIES {
        match fs::write(AUTOGROUP, nice.to_string()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
            _ => return,
        }
    }
}

/// The nice value that is worth so many shares, of which an ordinary program has [`ORDINARY_SHARES`].
fn nice(shares: u32) -> i32 {
    let ratio = f64::from(ORDINARY_SHARES) / f64::from(shares.max(1));
    let [least, greatest] = NICE;
    (ratio.ln() / STEP.ln()).round().clamp(f64::from(least), f64::from(greatest)) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_nice_values() {
        let check = |shares: u32, expected: i32| assert_eq!(nice(shares), expected, "{shares}");
        check(1024, 0);
        check(1000, 0);
        check(819, 1);
        check(512, 3);
        check(256, 6);
        check(2, 19);
        check(0, 19);
        check(2048, -3);
        check(262_144, -20);
    }

    #[test]
    fn a_thread_has_what_it_is_given() {
        let given = || {
            apply(Some(102)).unwrap();
            apply(Some(512)).unwrap();
            getpriority_process(None).unwrap()
        };
        // No other test is to be slower.
        let nice = std::thread::spawn(given).join().unwrap();
        assert!(nice >= 10, "{nice}");
    }
}
