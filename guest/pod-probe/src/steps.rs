//! Another program, up to one of its steps: it is traced (ptrace(2)), and killed as it enters or leaves its n-th system
//! call. So each run with another number ends it at another step, whatever the machine's speed.
//!
//! All threads of the one process are traced, and count together; processes that it starts are not.
#![expect(unsafe_code, reason = "system calls that no safe crate has")]

use std::collections::BTreeSet;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, Stdio};

use crate::{Failure, failed};

/// A shell that stands still until it is traced, and then becomes the program.
const WAITS: &str = "kill -STOP $$; exec \"$@\"";

/// Stops at system calls are told from others, and new threads are traced.
const OPTIONS: libc::c_int = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE;

/// A stop at a system call.
const CALL: libc::c_int = libc::SIGTRAP | 0x80;

fn request(kind: libc::c_uint, task: libc::pid_t, data: libc::c_int) -> io::Result<()> {
    let nothing: *mut libc::c_void = std::ptr::null_mut();
    // SAFETY: these requests take a number, and touch no memory of this process.
    match unsafe { libc::ptrace(kind, task, nothing, libc::c_long::from(data)) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The next change of any child or traced thread, and who it is; none when there is nobody any more.
fn next() -> Result<Option<(libc::pid_t, libc::c_int)>, Failure> {
    loop {
        let mut status = 0;
        // SAFETY: there is room for a status.
        let task = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::WUNTRACED) };
        let error = io::Error::last_os_error();
        match (task, error.raw_os_error()) {
            (1.., _) => return Ok(Some((task, status))),
            (_, Some(libc::EINTR)) => {}
            (_, Some(libc::ECHILD)) => return Ok(None),
            _ => return Err(failed("wait")(error)),
        }
    }
}

/// Runs a command, and kills it at its n-th step; never, if `step` is 0. Says `steps N` on its standard error, the
/// number of those that it came to, and ends with its status.
pub fn run(step: &str, words: &[&str]) -> Result<ExitCode, Failure> {
    let step: u64 = step.parse().map_err(|_| "no number of a step")?;
    let mut command = Command::new("/bin/sh");
    command.args(["-c", WAITS, "sh"]).args(words).stdin(Stdio::null());
    let child = command.spawn().map_err(failed("sh"))?;
    let process = child.id().cast_signed();
    while !matches!(next()?, Some((task, status)) if task == process && libc::WIFSTOPPED(status)) {}
    seize(process)?;
    // SAFETY: the call takes numbers.
    unsafe { libc::kill(process, libc::SIGCONT) };
    trace(process, step)
}

/// The same with a process that runs already, and its threads. It says `traced` when it is.
pub fn attach(step: &str, process: &str) -> Result<ExitCode, Failure> {
    let step: u64 = step.parse().map_err(|_| "no number of a step")?;
    let process: libc::pid_t = process.parse().map_err(|_| "no process")?;
    let mut known = BTreeSet::new();
    // New ones may come while the others are taken; theirs are traced from their start.
    loop {
        let entries =
            std::fs::read_dir(format!("/proc/{process}/task")).map_err(failed("tasks"))?;
        let names = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let new: Vec<libc::pid_t> = names.filter(|task| !known.contains(task)).collect();
        if new.is_empty() {
            break;
        }
        for task in new {
            let is_new = known.insert(task);
            match seize(task) {
                Err(failure) if is_new && known.len() == 1 => return Err(failure),
                _ => request(libc::PTRACE_INTERRUPT, task, 0).unwrap_or_default(),
            }
        }
    }
    println!("traced");
    trace(process, step)
}

fn seize(task: libc::pid_t) -> Result<(), Failure> {
    request(libc::PTRACE_SEIZE, task, OPTIONS).map_err(failed("trace"))
}

fn trace(process: libc::pid_t, step: u64) -> Result<ExitCode, Failure> {
    let mut steps = 0;
    while let Some((task, status)) = next()? {
        if !libc::WIFSTOPPED(status) {
            if task == process {
                eprintln!("steps {steps}");
                let status = std::process::ExitStatus::from_raw(status);
                let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
                return Ok(ExitCode::from(
                    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1),
                ));
            }
            continue;
        }
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        let is_step = event == 0 && signal == CALL;
        steps += u64::from(is_step);
        if is_step && steps == step {
            // SAFETY: the call takes numbers.
            unsafe { libc::kill(process, libc::SIGKILL) };
        }
        let deliver = if event == 0 && !is_step { signal } else { 0 };
        // One that has been killed is gone.
        let _ = request(libc::PTRACE_SYSCALL, task, deliver);
    }
    Err("it has gone without a status".to_owned())
}
