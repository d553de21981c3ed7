//! A program that is running makes calls for us, and never knows.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use host::processes::trace;
use host::processes::wait::{Stop, wait};
use inject::{Seat, find_gate};

/// A program that answers each line.
fn start(program: &str) -> Child {
    let (input, output) = (Stdio::piped(), Stdio::piped());
    let shell = Command::new("sh").arg("-c").arg(program).stdin(input).stdout(output).spawn();
    shell.expect("there is a shell")
}

fn stop(task: u32) {
    trace::seize(task).expect("our own child may be traced");
    trace::interrupt(task).expect("it is traced");
    let stopped = wait(task, Instant::now() + Duration::from_secs(10)).expect("it is traced");
    assert!(matches!(stopped, Some(Stop::Told(_))), "{stopped:?}");
}

fn check(program: &str, unavailable: u64) {
    let mut child = start(program);
    let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let task = child.id();
    for round in 0..20 {
        writeln!(input, "{round}").unwrap();
        let mut answer = vec![0; format!("{round}\n").len()];
        output.read_exact(&mut answer).unwrap();
        assert_eq!(answer, format!("{round}\n").into_bytes());
        stop(task);
        let before = (trace::registers(task).unwrap(), trace::signal_mask(task).unwrap());
        let seat = Seat::take(task, unavailable).unwrap();
        let gate = find_gate(task).unwrap();
        let area = seat.map(gate, 0).unwrap();
        let mut script = area.script();
        script.call(libc::SYS_getpid, []);
        let room = script.room(8);
        script.call(libc::SYS_pipe2, [room, 0]);
        script.call(libc::SYS_close, [12345]);
        script.call(libc::SYS_close, [3]);
        script.call(libc::SYS_close, [4]);
        let outcome = seat.run(&area, &script).unwrap();
        assert_eq!(outcome.results[0], i64::from(task));
        assert_eq!(outcome.results[1], 0);
        assert_eq!(outcome.results[2], -i64::from(libc::EBADF));
        assert!(outcome.children.is_empty());
        seat.unmap(gate, &area).unwrap();
        seat.leave().unwrap();
        let after = (trace::registers(task).unwrap(), trace::signal_mask(task).unwrap());
        assert_eq!(before.1, after.1);
        assert_eq!((before.0.rip, before.0.rax), (after.0.rip, after.0.rax));
        let maps = std::fs::read_to_string(format!("/proc/{task}/maps")).unwrap();
        let borrowed = format!("{:x}-", area.base());
        assert!(!maps.contains(&borrowed), "the area is still there");
        trace::detach(task).unwrap();
    }
    drop(input);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_program_goes_on_as_if_nothing_had_been() {
    check("while read line; do echo $line; done", 0);
}

#[test]
fn a_program_that_ignores_the_trap_gets_another() {
    let trap = 1 << (libc::SIGTRAP - 1);
    let illegal = 1 << (libc::SIGILL - 1);
    check("trap '' TRAP; while read line; do echo $line; done", trap);
    check("trap '' TRAP ILL; while read line; do echo $line; done", trap | illegal);
}
