//! The races of names (Laadan and Nieh, "Operating System Virtualization", figures 2, 3 and 5, sections 4.1.1 and
//! 4.1.4): a name is looked up while what it names is made or removed, beside others who do the same with equal names.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpgid, getppid, getsid, kill_process, setpgid, test_kill_process,
    waitpid,
};

use crate::ipc::{KEY, Queue, Semaphores, SharedMemory};
use crate::terminals::Terminal;
use crate::{Failure, check, mark, tasks};

/// In so many rounds, with names of one kind: `ipc`, `terminals` or `processes`.
pub fn storm(tag: &str, kind: &str, rounds: u64) -> Result<(), Failure> {
    match kind {
        "ipc" => {
            // Everybody has keys of one range, and takes them in another order.
            let start = u64::from(mark(tag));
            let key = |round: u64| KEY + ((start + round * 7) % 16) as libc::key_t + 1;
            (0..rounds).try_for_each(|round| ipc(key(round), tag))?;
        }
        "terminals" => (0..rounds).try_for_each(|_| terminals(tag))?,
        "processes" => processes(tag, rounds)?,
        _ => return Err(format!("no kind of names: {kind}")),
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
/// or that there is none, and one that has just begun knows its own names.
fn processes(tag: &str, rounds: u64) -> Result<(), Failure> {
    // The number of the last one, which another thread asks for all the time.
    let (last, is_over) = (AtomicI32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&last, &is_over, tag != "host"));
        let outcome = (0..rounds).try_for_each(|round| match round % 2 {
            0 => ended_at_once(&last),
            _ => begun(&last),
        });
        is_over.store(true, Ordering::Relaxed);
        let watched = watcher.join().unwrap_or_else(|_| Err("the watcher has ended".to_owned()));
        outcome.and(watched)
    })
}

/// Starts this program as one that says by its status whether it knows its names, and says its number.
fn start(last: &AtomicI32) -> Result<(Child, Pid), Failure> {
    let mut command = Command::new("/proc/self/exe");
    let own = tasks::own();
    command.args(["born", &own.pid.to_string(), &own.group.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let child = command.spawn().map_err(|error| format!("a process: {error}"))?;
    let number = Pid::from_raw(child.id().cast_signed()).ok_or("a process without a number")?;
    last.store(number.as_raw_pid(), Ordering::Relaxed);
    Ok((child, number))
}

/// What such a process does: it has the parent and the group that it was told, or a group of its own.
pub fn born(parent: &str, group: &str) -> Result<(), Failure> {
    let own = tasks::own();
    let said = getppid().map_or(0, Pid::as_raw_pid);
    check("parent", &said.to_string(), parent)?;
    if own.group != own.pid {
        check("group", &own.group.to_string(), group)?;
    }
    Ok(())
}

/// One that lives until it has looked at its names.
fn begun(last: &AtomicI32) -> Result<(), Failure> {
    let (mut child, _) = start(last)?;
    let ended = child.wait().map_err(|error| format!("a child: {error}"))?;
    if ended.success() { Ok(()) } else { Err(format!("a child ended otherwise: {ended}")) }
}

fn ended_at_once(last: &AtomicI32) -> Result<(), Failure> {
    let (mut child, number) = start(last)?;
    // It is ours until it is waited for: its group is ours or its own, and no other.
    let group = getpgid(Some(number)).map_err(|errno| format!("getpgid of a child: {errno}"))?;
    check_group(number, group)?;
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
        Err(Errno::CHILD) => Ok(()),
        other => Err(format!("a child that was waited for is still there: {other:?}")),
    }
}

fn check_group(number: Pid, group: Pid) -> Result<(), Failure> {
    let (own, group, number) = (tasks::own().group, group.as_raw_pid(), number.as_raw_pid());
    if group == own || group == number {
        return Ok(());
    }
    Err(format!("{number} is in the group {group}, which is neither {own} nor its own"))
}

/// Asks for the last process all the time, and, where nobody else starts any, for the next one, which is not there yet.
fn watch(last: &AtomicI32, is_over: &AtomicBool, is_alone: bool) -> Result<(), Failure> {
    let session = getsid(None).map_err(|errno| format!("getsid: {errno}"))?;
    while !is_over.load(Ordering::Relaxed) {
        let newest = last.load(Ordering::Relaxed);
        for number in [newest, if is_alone { newest + 1 } else { newest }] {
            let Some(number) = Pid::from_raw(number).filter(|_| newest != 0) else { continue };
            let found = look(number, session);
            // Its number may be anybody's when it was waited for long ago.
            if last.load(Ordering::Relaxed) == newest {
                found?;
            }
        }
        std::thread::yield_now();
    }
    Ok(())
}

fn look(number: Pid, session: Pid) -> Result<(), Failure> {
    match getpgid(Some(number)) {
        Ok(group) => check_group(number, group)?,
        Err(Errno::SRCH) => {}
        Err(errno) => return Err(format!("getpgid of {number:?}: {errno}")),
    }
    match getsid(Some(number)) {
        Ok(found) if found == session => {}
        Err(Errno::SRCH) => {}
        other => return Err(format!("getsid of {number:?} is {other:?}, not {session:?}")),
    }
    match test_kill_process(number) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(errno) => Err(format!("kill of {number:?}: {errno}")),
    }
}
