//! Each process of a machine is confined, and however the machine ends, none is left. A program of its
//! own, because it looks at all processes that descend from it.

#![forbid(unsafe_code)]

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use vmm::UserExecution;
use whole_machine::bivouac;
use whole_machine::modes::Mode;
use whole_machine::processes::{adopt_orphans, descendants, survivors, unconfined};

/// How a machine with helpers comes to its end.
enum End {
    /// Its command ends.
    Command,
    /// A signal.
    Signal(&'static str),
}

/// A machine whose user code runs in helper processes ends, and all of them with it, within a
/// second.
fn check_all_gone(mode: Mode, end: &End, how: &str) {
    let before = survivors(&descendants(), Duration::from_secs(10));
    assert!(before.is_empty(), "before {how}, there is {before:?}");
    assert!(!unconfined(&[std::process::id()]).is_empty(), "this test is not confined");
    let vsock = std::env::temp_dir().join(format!("biv-leftovers-{}", std::process::id()));
    let vsock = vsock.to_string_lossy();
    let mut child = mode
        .run(&["--vsock", &vsock, "--", "sh", "-c", "sleep 100 & echo up; read line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("biv can be started");
    let mut said = [0; 3];
    let read = child.stdout.take().expect("piped").read_exact(&mut said);
    assert!(read.is_ok() && said == *b"up\n", "the machine does not start");
    let all = descendants();
    let unconfined = unconfined(&all);
    match end {
        End::Command => drop(child.stdin.take()),
        End::Signal(signal) => {
            let status =
                Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
            assert!(status.is_ok_and(|status| status.success()), "cannot send SIG{signal}");
        }
    }
    let ended = survivors(&[child.id()], Duration::from_secs(10)).is_empty();
    let left = survivors(&all, Duration::from_secs(1));
    let _ = child.kill();
    let _ = child.wait();
    let _ = std::fs::remove_file(&*vsock);
    let direct = mode.execution == UserExecution::Direct;
    assert!(!direct || all.len() > 4, "there are no helpers: {all:?}");
    assert_eq!(unconfined, Vec::<String>::new(), "{mode:?}: not confined");
    assert!(ended, "{how} did not end the machine");
    assert!(left.is_empty(), "{how} left processes behind: {left:?}");
}

#[test]
fn a_machine_leaves_no_process_behind() {
    bivouac();
    adopt_orphans();
    for mode in Mode::ALL.into_iter().filter(|mode| !mode.is_unwanted()) {
        check_all_gone(mode, &End::Command, "the command's end");
        check_all_gone(mode, &End::Signal("TERM"), "SIGTERM");
        check_all_gone(mode, &End::Signal("KILL"), "SIGKILL");
    }
    let direct = Mode { execution: UserExecution::Direct, processors: 4 };
    for signal in ["HUP", "QUIT", "ABRT"] {
        check_all_gone(direct, &End::Signal(signal), signal);
    }
}
