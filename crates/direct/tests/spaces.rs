//! Spaces come and go, and take everything of theirs with them.

mod guest;

use std::time::{Duration, Instant};

use direct::{Error, Stop, TimeStamp};
use guest::*;

/// inc qword [rbx]; syscall; jmp back
const COUNT: [u8; 7] = [0x48, 0xff, 0x03, 0x0f, 0x05, 0xeb, 0xf9];
/// jmp to itself
const SPIN: [u8; 2] = [0xeb, 0xfe];

/// Whether a process runs, and not only waits to be reaped by whoever inherited it.
fn lives(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = status.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

fn wait_for_end(processes: &[u32]) {
    let since = Instant::now();
    while processes.iter().any(|&process| lives(process)) {
        assert!(since.elapsed() < Duration::from_secs(60), "{processes:?} stay");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn kill(process: u32) {
    // SAFETY: a process that this test has made.
    assert_eq!(unsafe { libc::kill(process.cast_signed(), libc::SIGKILL) }, 0);
}

#[test]
fn a_hundred_spaces_keep_to_themselves() {
    let guest = Guest::new();
    guest.write(CODE_OFFSET, &COUNT);
    let mut threads: Vec<_> = (0..100_u64)
        .map(|index| {
            let mut space = guest.helpers.space(TimeStamp::Native).unwrap();
            space.map(CODE, 4096, CODE_OFFSET, EXECUTE, false).unwrap();
            space.map(DATA, 4096, 0x20_0000 + index * 4096, WRITE, true).unwrap();
            let mut thread = Thread::new(space);
            thread.registers.general[3] = DATA;
            thread
        })
        .collect();
    for round in 1..=20 {
        for (index, thread) in threads.iter_mut().enumerate() {
            assert_eq!(thread.run(), Stop::SystemCall);
            assert_eq!(guest.read_u64(0x20_0000 + index as u64 * 4096), round);
        }
    }
    // And when their slots are used again.
    for _ in 0..50 {
        threads.pop();
        let mut thread = guest.thread();
        thread.registers.general[3] = NOTHING;
        assert_eq!(thread.run(), page_fault(6, NOTHING));
    }
    let last = threads.last_mut().unwrap();
    assert_eq!(last.run(), Stop::SystemCall);
}

#[test]
fn no_process_is_left_behind() {
    let mut processes = Vec::new();
    {
        let guest = Guest::new();
        guest.write(CODE_OFFSET, &SPIN);
        for round in 0..20 {
            let mut thread = guest.thread();
            processes.extend(thread.space.processes());
            if round % 2 == 0 {
                thread.kick.kick();
                assert_eq!(thread.run(), Stop::Kicked);
            }
            if round % 3 == 0 {
                drop(thread);
                wait_for_end(&processes);
            }
        }
        processes.push(guest.helpers.zygote());
    }
    wait_for_end(&processes);
    assert_eq!(processes.len(), 41);
}

#[test]
fn a_helper_that_is_killed_is_gone_and_the_others_are_not() {
    let guest = Guest::new();
    guest.write(CODE_OFFSET, &COUNT);
    let start = || {
        let mut thread = guest.thread();
        thread.registers.general[3] = DATA;
        assert_eq!(thread.run(), Stop::SystemCall);
        thread
    };
    let mut other = start();
    for victim in [0, 1] {
        for orders in [false, true] {
            let mut thread = start();
            let processes = thread.space.processes();
            kill(processes[victim]);
            if victim == 1 {
                // The runner goes with its mapper.
                wait_for_end(&processes);
            }
            let mapped =
                if orders { thread.space.map(NOTHING, 4096, 0, READ, true) } else { Ok(()) };
            assert!(matches!(mapped, Ok(()) | Err(Error::Died)));
            assert_eq!(thread.run(), Stop::Died);
            assert_eq!(thread.run(), Stop::Died);
            assert!(matches!(thread.space.map(NOTHING, 4096, 0, READ, true), Err(Error::Died)));
            drop(thread);
            wait_for_end(&processes);
            assert_eq!(other.run(), Stop::SystemCall);
            assert_eq!(start().run(), Stop::SystemCall);
        }
    }
}

#[test]
fn a_helper_that_is_killed_while_it_runs_is_gone() {
    let guest = Guest::new();
    guest.write(CODE_OFFSET, &SPIN);
    for victim in [0, 1] {
        let mut thread = guest.thread();
        let process = thread.space.processes()[victim];
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            kill(process);
        });
        assert_eq!(thread.run(), Stop::Died);
        killer.join().unwrap();
    }
}

#[test]
fn without_a_zygote_there_is_nothing_but_an_error() {
    let guest = Guest::new();
    guest.write(CODE_OFFSET, &SPIN);
    let mut thread = guest.thread();
    let processes = thread.space.processes();
    kill(guest.helpers.zygote());
    wait_for_end(&processes);
    assert_eq!(thread.run(), Stop::Died);
    assert!(guest.helpers.space(TimeStamp::Native).is_err());
    assert!(matches!(guest.helpers.space(TimeStamp::Native), Err(Error::Broken)));
}

#[test]
fn a_signal_to_the_caller_is_a_kick() {
    extern "C" fn ignore(_: i32) {}
    let guest = Guest::new();
    guest.write(CODE_OFFSET, &SPIN);
    let mut thread = guest.thread();
    // SAFETY: a handler that does nothing, for a signal that nothing here uses.
    let caller = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ignore as *const () as usize;
        assert_eq!(
            libc::sigaction(libc::SIGRTMIN() + 7, &raw const action, std::ptr::null_mut()),
            0
        );
        libc::pthread_self()
    };
    let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let until = std::sync::Arc::clone(&done);
    let sender = std::thread::spawn(move || {
        while !until.load(std::sync::atomic::Ordering::SeqCst) {
            // SAFETY: the caller waits for this thread before it ends.
            unsafe { libc::pthread_kill(caller, libc::SIGRTMIN() + 7) };
            std::thread::sleep(Duration::from_micros(500));
        }
    });
    for _ in 0..100 {
        assert_eq!(thread.run(), Stop::Kicked);
    }
    // Making spaces is not disturbed.
    let spaces: Vec<_> = (0..20).map(|_| guest.helpers.space(TimeStamp::Native).unwrap()).collect();
    assert_eq!(spaces.len(), 20);
    done.store(true, std::sync::atomic::Ordering::SeqCst);
    sender.join().unwrap();
}

#[test]
fn a_kicker_may_be_faster_than_its_run() {
    let guest = Guest::new();
    guest.write(CODE_OFFSET, &SPIN);
    let mut thread = guest.thread();
    for _ in 0..100 {
        thread.kick.kick();
        assert_eq!(thread.run(), Stop::Kicked);
        assert_eq!(thread.registers.rip, CODE);
    }
}

#[test]
fn a_program_may_be_kicked_run_after_run_before_it_has_begun() {
    let guest = Guest::new();
    guest.write(CODE_OFFSET, &COUNT);
    let mut thread = guest.thread();
    thread.registers.general[3] = DATA;
    let [runner, _] = thread.space.processes();
    for round in 0..100 {
        for _ in 0..10 {
            // SAFETY: a signal to a process of ours, which takes it as a kick when it goes on.
            assert_eq!(unsafe { libc::kill(runner as libc::pid_t, libc::SIGUSR1) }, 0);
            let before = thread.registers;
            assert_eq!(thread.run(), Stop::Kicked);
            assert_eq!(thread.registers, before);
        }
        assert_eq!(thread.run(), Stop::SystemCall, "round {round}");
    }
}

#[test]
fn spaces_are_limited_and_come_back() {
    let guest = Guest::new();
    let mut spaces = Vec::new();
    let error = loop {
        match guest.helpers.space(TimeStamp::Native) {
            Ok(space) => spaces.push(space),
            Err(error) => break error,
        }
    };
    // The limit is ours, or that on descriptors or processes here. None is for ever.
    assert!(matches!(error, Error::Full { .. } | Error::Host { .. }), "{error}");
    assert!(spaces.len() > 100, "{}: {error}", spaces.len());
    let processes: Vec<_> = spaces.iter().flat_map(direct::Space::processes).collect();
    drop(spaces);
    wait_for_end(&processes);
    guest.write(CODE_OFFSET, &[0x0f, 0x0b]);
    assert_eq!(guest.thread().run(), exception(6, 0));
}

#[test]
fn a_runner_has_nothing_but_the_guests_pages() {
    let guest = Guest::new();
    guest.write(CODE_OFFSET, &COUNT);
    let mut thread = guest.thread();
    thread.registers.general[3] = DATA;
    assert_eq!(thread.run(), Stop::SystemCall);
    let [runner, mapper] = thread.space.processes();
    let open = |process: u32| -> Option<Vec<String>> {
        // Only root may look, because helpers are not dumpable.
        let entries = std::fs::read_dir(format!("/proc/{process}/fd")).ok()?;
        Some(entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect())
    };
    if let Some(descriptors) = open(runner) {
        assert!(descriptors.is_empty(), "{descriptors:?}");
        let mut descriptors = open(mapper).unwrap();
        descriptors.sort();
        assert_eq!(descriptors, ["2", "4"], "guest memory, and the runner's notifications");
        let maps = std::fs::read_to_string(format!("/proc/{runner}/maps")).unwrap();
        for line in maps.lines().filter(|line| !line.ends_with("[vsyscall]")) {
            let start = u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
            assert!(start == CODE || start == DATA || direct::RESERVED.contains(&start), "{line}");
        }
    } else {
        // SAFETY: asks for a number.
        assert_ne!(unsafe { libc::geteuid() }, 0);
    }
}

#[test]
fn several_processors_make_and_use_spaces_at_once() {
    let guest = Guest::new();
    guest.write(CODE_OFFSET, &COUNT);
    std::thread::scope(|scope| {
        for processor in 0..4_u64 {
            let guest = &guest;
            scope.spawn(move || {
                for round in 0..30 {
                    // Both kinds, so that the one in the making is often of the other.
                    let kind = if round % 5 == 0 { TimeStamp::Faults } else { TimeStamp::Native };
                    let mut space = guest.helpers.space(kind).unwrap();
                    let data = 0x20_0000 + processor * 4096;
                    guest.write(data, &[0; 8]);
                    space.map(CODE, 4096, CODE_OFFSET, EXECUTE, false).unwrap();
                    space.map(DATA, 4096, data, WRITE, true).unwrap();
                    let mut thread = Thread::new(space);
                    thread.registers.general[3] = DATA;
                    for count in 1..=20 {
                        assert_eq!(thread.run(), Stop::SystemCall);
                        assert_eq!(guest.read_u64(data), count);
                    }
                }
            });
        }
    });
}
