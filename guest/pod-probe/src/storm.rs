//! The races of names (Laadan and Nieh, "Operating System Virtualization", figures 2, 3 and 5, sections 4.1.1 and
//! 4.1.4): a name is looked up while what it names is made or removed, beside others who do the same with equal names.

use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, WaitOptions, getpgid, kill_process, setpgid, waitpid};

use crate::ipc::{KEY, Queue, Semaphores, SharedMemory};
use crate::terminals::Terminal;
use crate::{Failure, check, mark, tasks};

/// In each round a process is started only every so often: it costs as much as all else.
const ROUNDS_PER_PROCESS: u64 = 16;

/// In so many rounds.
pub fn storm(tag: &str, rounds: u64) -> Result<(), Failure> {
    // Everybody has keys of one range, and takes them in another order.
    let start = u64::from(mark(tag));
    for round in 0..rounds {
        let key = KEY + ((start + round * 7) % 16) as libc::key_t + 1;
        ipc(key, tag)?;
        terminals(tag)?;
        if round % ROUNDS_PER_PROCESS == 0 {
            processes()?;
        }
    }
    println!("calm {rounds}");
    Ok(())
}

/// IPC initialization and reuse: the same key and number, again and again, is always one's own.
fn ipc(key: libc::key_t, tag: &str) -> Result<(), Failure> {
    let queue = Queue::make(key)?;
    queue.send(tag)?;
    let shared = SharedMemory::make(key)?;
    check("new shared memory", &shared.read(), "")?;
    shared.write(tag);
    let semaphores = Semaphores::make(key)?;
    check("new semaphore", &semaphores.get()?.to_string(), "0")?;
    semaphores.set(mark(tag))?;
    check("message", &queue.receive()?, tag)?;
    check("shared memory", &shared.read(), tag)?;
    check("semaphore", &semaphores.get()?.to_string(), &mark(tag).to_string())
}

/// Initialization of terminals: a new one is there under its name at once, and is one's own.
fn terminals(tag: &str) -> Result<(), Failure> {
    let terminal = Terminal::open()?;
    terminal.name()?;
    terminal.check(tag)
}

/// Deletion and initialization of process numbers: whoever asks for a process that begins or ends is told of that one,
/// or that there is none.
fn processes() -> Result<(), Failure> {
    let mut command = Command::new("/bin/true");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.spawn().map_err(|error| format!("a process: {error}"))?;
    let number = Pid::from_raw(child.id().cast_signed()).ok_or("a process without a number")?;
    // It is ours until it is waited for: its group is ours or its own, and no other.
    let own = tasks::own().group;
    let group = getpgid(Some(number)).map_err(|errno| format!("getpgid of a child: {errno}"))?;
    let group = group.as_raw_pid();
    if group != own && group != number.as_raw_pid() {
        return Err(format!("a child is in the group {group}, which is neither {own} nor its own"));
    }
    // It may have become another program (EACCES), or have ended (ESRCH).
    let _ = setpgid(Some(number), Some(number));
    let killed = kill_process(number, Signal::KILL);
    killed.map_err(|errno| format!("a child that was not waited for is gone: {errno}"))?;
    let ended = child.wait().map_err(|error| format!("a child: {error}"))?;
    let is_ours =
        ended.code() == Some(0) || std::os::unix::process::ExitStatusExt::signal(&ended) == Some(9);
    if !is_ours {
        return Err(format!("a child ended otherwise: {ended}"));
    }
    match waitpid(Some(number), WaitOptions::NOHANG) {
        Err(rustix::io::Errno::CHILD) => Ok(()),
        other => Err(format!("a child that was waited for is still there: {other:?}")),
    }
}
