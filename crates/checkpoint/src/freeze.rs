//! All tasks of a tree are stopped, so that none has done anything after the moment when the last one stopped.
//!
//! A task that is attached bears children and threads that are attached too and stopped. So the tree is walked until
//! one full walk finds nobody who is not attached: whoever could make a new task then has been stopped. A tree that
//! grows while it is walked is outrun as long as attaching is faster than forking, which a limit decides.
//!
//! *Who waits for its child* in vfork(2) can neither be stopped nor be let go again. So nobody is attached to while it
//! waits, and one that begins to wait when it is attached is let go at the last moment at which that is possible, with
//! its child, which was born attached.
//!
//! *Spurious ends of waiting.* Some calls (epoll_wait, semop, sigtimedwait, ...; see signal(7)) return `EINTR` when
//! their task is stopped and continued. A task that stops with that error, while no signal can be delivered to it, gets
//! `ERESTARTNOHAND` in its place: the kernel then repeats the call, or, should a signal with a handler come first, says
//! `EINTR` rightly. The kernel's own restarts (`ERESTARTSYS` and its relatives) are left alone.
//!
//! *Restartable sequences.* Calls that a stopped task makes for us would make the kernel forget that it has stopped
//! within such a sequence. So a task that has is put at the sequence's abort handler first, as after any preemption.

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use host::processes::trace;
use host::processes::wait::{Stop, wait};

use crate::error::Error;
use crate::limits::{CHILD_PATIENCE, FREEZE_PATIENCE, MAX_TASKS, MAX_WALKS, STOP_PATIENCE};
use crate::proc::stat::Stat;
use crate::proc::status::Status;
use crate::repair::Repaired;
use crate::{proc, refuse};

/// `ERESTARTNOHAND`, as a result.
pub(crate) const RESTART_UNLESS_HANDLED: i64 = -514;

/// The segment of 64-bit code in user mode (`__USER_CS` of Linux).
const CODE_SEGMENT: u64 = 0x33;

/// A tree of processes that are all stopped. They go on when it is dropped.
///
/// It belongs to the thread that made it.
#[derive(Debug)]
pub struct Frozen {
    /// The first processes.
    pub(crate) roots: Vec<u32>,
    /// Whose children these are, if that is what makes them the first.
    parent: Option<u32>,
    /// Processes and their threads, the leader first; by the host's numbers.
    pub(crate) processes: BTreeMap<u32, Vec<u32>>,
    /// Processes that have ended and that nobody has waited for.
    pub(crate) ended: BTreeSet<u32>,
    /// Processes that job control has stopped, and the signal.
    pub(crate) stopped: BTreeMap<u32, u32>,
    /// Children and threads that were born attached; they are in `processes`, too, when they have been found.
    born: BTreeSet<u32>,
    /// TCP connections that do not go on meanwhile.
    pub(crate) repaired: Repaired,
    /// When the first of them was stopped.
    since: Instant,
    thread: PhantomData<*const ()>,
}

/// Stop a process and all its descendants. `root` is the host's number.
///
/// # Errors
///
/// What cannot be checkpointed is refused before anybody is stopped. If it fails later, all go on.
pub fn freeze(root: u32) -> Result<Frozen, Error> {
    freeze_all(&[root])
}

/// The same with several processes.
///
/// # Errors
///
/// As [`freeze`].
pub fn freeze_all(roots: &[u32]) -> Result<Frozen, Error> {
    for &root in roots {
        check(root, root, &BTreeSet::new())?;
    }
    let frozen = Frozen::of(roots.to_vec(), None)?;
    for &root in roots {
        if !frozen.processes.contains_key(&root) {
            return Err(Error::Gone(root));
        }
    }
    Ok(frozen)
}

/// Stop all descendants of a process, but not itself, which adopts whoever loses its parent and reaps who has ended:
/// the init of a PID namespace. `parent` is the host's number. Of those in `watched` we
/// watch the memory ([`Tracker::watched`](crate::Tracker::watched)), and of who shares it.
///
/// # Errors
///
/// As [`freeze`].
pub fn freeze_children(parent: u32, watched: &BTreeSet<u32>) -> Result<Frozen, Error> {
    for root in proc::children(parent)? {
        match check(root, parent, watched) {
            Err(Error::Gone(gone)) if gone == root => {}
            result => result?,
        }
    }
    Frozen::of(Vec::new(), Some(parent))
}

/// Look at a process and its descendants; `like` has the namespaces that all of them must have.
fn check(root: u32, like: u32, watched: &BTreeSet<u32>) -> Result<(), Error> {
    // A child of vfork(2) has the memory of its parent. (Whoever watches memory himself has a descriptor for that,
    // which is refused.)
    let is_watched = !watched.is_empty();
    for pid in walk(root)? {
        match refuse::check(pid, like, is_watched) {
            // It has ended meanwhile, or is about to.
            Err(Error::Gone(gone)) if gone == pid && pid != root => {}
            result => result?,
        }
    }
    Ok(())
}

/// A process and its descendants, parents first.
fn walk(root: u32) -> Result<Vec<u32>, Error> {
    let (mut found, mut next) = (vec![root], 0);
    while let Some(&pid) = found.get(next) {
        next += 1;
        match proc::children(pid) {
            Ok(children) => found.extend(children),
            Err(Error::Gone(_)) if pid != root => {}
            Err(error) => return Err(error),
        }
        if found.len() > MAX_TASKS {
            return Err(Error::Outrun);
        }
    }
    Ok(found)
}

impl Frozen {
    fn of(roots: Vec<u32>, parent: Option<u32>) -> Result<Self, Error> {
        let mut frozen = Self {
            roots,
            parent,
            processes: BTreeMap::new(),
            ended: BTreeSet::new(),
            stopped: BTreeMap::new(),
            born: BTreeSet::new(),
            repaired: Repaired::default(),
            since: Instant::now(),
            thread: PhantomData,
        };
        frozen.attach_all()?;
        for &pid in frozen.processes.keys() {
            frozen.mend(pid)?;
        }
        Ok(frozen)
    }

    /// Find the first processes, which may be others than before if they are somebody's children.
    fn find_roots(&mut self) -> Result<(), Error> {
        if let Some(parent) = self.parent {
            // It reaps those that have ended.
            let lives = |pid: &u32| Stat::read(*pid, "stat").is_ok_and(|stat| !stat.has_ended());
            self.roots = proc::children(parent)?.into_iter().filter(lives).collect();
        }
        Ok(())
    }

    /// The descendants of a first process, and itself.
    fn walk(&self, root: u32) -> Result<Vec<u32>, Error> {
        match walk(root) {
            Err(Error::Gone(gone)) if self.parent.is_some() && gone == root => Ok(Vec::new()),
            other => other,
        }
    }

    fn attach_all(&mut self) -> Result<(), Error> {
        let deadline = Instant::now() + FREEZE_PATIENCE;
        for _ in 0..MAX_WALKS {
            let mut is_new = false;
            self.find_roots()?;
            for root in self.roots.clone() {
                for pid in self.walk(root)? {
                    is_new |= self.attach(pid, deadline)?;
                }
            }
            if !is_new {
                // Those that were waited for while not all had stopped are no more.
                let has_ended =
                    |pid: &u32| Stat::read(*pid, "stat").is_ok_and(|stat| stat.has_ended());
                self.ended.retain(|pid| has_ended(pid));
                return Ok(());
            }
            if Instant::now() > deadline {
                break;
            }
        }
        Err(Error::Outrun)
    }

    /// Attach to the threads of a process that are not attached, and wait until they stop; whether there was one.
    fn attach(&mut self, pid: u32, deadline: Instant) -> Result<bool, Error> {
        let mut is_new = false;
        let threads = match proc::numbers(pid, "task") {
            Ok(threads) => threads,
            Err(Error::Gone(_)) => return Ok(self.processes.remove(&pid).is_some()),
            Err(error) => return Err(error),
        };
        let known = self.processes.get(&pid).cloned().unwrap_or_default();
        let new = threads.into_iter().filter(|thread| !known.contains(thread)).collect::<Vec<_>>();
        let mut attached = Vec::new();
        for thread in new {
            let Ok(stat) = Stat::read(pid, &format!("task/{thread}/stat")) else { continue };
            if stat.has_ended() {
                if thread == pid {
                    self.ended.insert(pid);
                }
                continue;
            }
            wait_for_child(pid, thread, deadline)?;
            match trace::seize(thread) {
                Ok(()) => {
                    let _ = trace::interrupt(thread);
                }
                // It was born traced, by us.
                Err(_) if is_ours(pid, thread) => {}
                // It has just ended: the next walk finds what is left of it.
                Err(error)
                    if error.raw_os_error() == Some(libc::ESRCH)
                        || Stat::read(pid, "stat").is_ok_and(|stat| stat.has_ended()) =>
                {
                    is_new = true;
                    continue;
                }
                Err(source) => {
                    return Err(Error::Io { what: format!("attach to task {thread}"), source });
                }
            }
            self.processes.entry(pid).or_default().push(thread);
            attached.push(thread);
            is_new = true;
        }
        for thread in attached {
            self.wait(pid, thread, deadline)?;
        }
        Ok(is_new)
    }

    fn wait(&mut self, pid: u32, thread: u32, deadline: Instant) -> Result<(), Error> {
        let child_deadline = deadline.min(Instant::now() + CHILD_PATIENCE);
        loop {
            let stop = match wait(thread, deadline.min(Instant::now() + STOP_PATIENCE)) {
                Ok(Some(stop)) => stop,
                // On a busy host it may not have had a processor yet, or its child.
                Ok(None) => {
                    let waits = waits_for_child(pid, thread);
                    if Instant::now() < if waits { child_deadline } else { deadline } {
                        continue;
                    }
                    return Err(stuck(pid, thread));
                }
                Err(_) => Stop::Ended(0),
            };
            let signal = match stop {
                Stop::Told(signal) => {
                    if signal != libc::SIGTRAP.cast_unsigned() {
                        self.stopped.insert(pid, signal);
                    }
                    return Ok(());
                }
                Stop::Ended(_) => {
                    self.forget(pid, thread);
                    return Ok(());
                }
                Stop::Vforked => {
                    if !self.pass_vfork(pid, thread, deadline)? {
                        return Ok(());
                    }
                    continue;
                }
                Stop::Forked => {
                    self.born.extend(child_of(thread));
                    0
                }
                Stop::Signal(signal) => signal,
                Stop::Event(_) | Stop::Call => 0,
            };
            let _ = trace::resume_to_stop(thread, signal);
        }
    }

    /// Let a task go that is about to wait for its child, and the child, and attach to it again when it does not wait
    /// any more; false if it has ended.
    fn pass_vfork(&mut self, pid: u32, thread: u32, deadline: Instant) -> Result<bool, Error> {
        if let Some(child) = child_of(thread) {
            let_go(child);
        }
        self.forget(pid, thread);
        if trace::detach(thread).is_err() {
            return Ok(false);
        }
        // It takes a moment until it does.
        let until = Instant::now() + STOP_PATIENCE;
        while Instant::now() < until && is_running(pid, thread) {
            std::thread::sleep(LOOK);
        }
        wait_for_child(pid, thread, deadline)?;
        if trace::seize(thread).is_err() {
            return Ok(false);
        }
        let _ = trace::interrupt(thread);
        let threads = self.processes.entry(pid).or_default();
        // The leader is the first.
        let place = if thread == pid { 0 } else { threads.len() };
        threads.insert(place, thread);
        Ok(true)
    }

    fn forget(&mut self, pid: u32, thread: u32) {
        let is_empty = self.processes.get_mut(&pid).is_some_and(|threads| {
            threads.retain(|found| *found != thread);
            threads.is_empty()
        });
        if is_empty {
            self.processes.remove(&pid);
        }
    }

    /// Put right what stopping has done to the threads of a process.
    fn mend(&self, pid: u32) -> Result<(), Error> {
        for &thread in self.processes.get(&pid).into_iter().flatten() {
            let gone = |_| Error::Gone(pid);
            if trace::dispatches_calls(thread).map_err(gone)? {
                return Err(Error::unsupported(pid, "hands system calls back to itself"));
            }
            let mut registers = trace::registers(thread).map_err(gone)?;
            if registers.cs != CODE_SEGMENT {
                return Err(Error::unsupported(pid, "runs code of 32 bits"));
            }
            let before = (registers.rip, registers.rax);
            let status = Status::read(pid, &format!("task/{thread}/status"))?;
            if is_spurious(&registers, &status)? {
                registers.rax = RESTART_UNLESS_HANDLED.cast_unsigned();
            }
            if let Some(abort) = abort_address(pid, thread, registers.rip)? {
                registers.rip = abort;
            }
            if (registers.rip, registers.rax) != before {
                trace::set_registers(thread, &registers).map_err(gone)?;
            }
        }
        Ok(())
    }

    /// The host's numbers of the processes that are stopped.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        self.processes.keys().copied().collect()
    }

    /// Since when they stand still.
    #[must_use]
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Let all go on.
    pub fn thaw(self) {}
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.repaired.end();
        let all = self.processes.values().flatten().chain(&self.born).copied();
        let busy: Vec<u32> = all.filter(|thread| trace::detach(*thread).is_err()).collect();
        // Only who is stopped can be let go: one that was not yet when freezing failed is waited for.
        let deadline = Instant::now() + FREEZE_PATIENCE;
        for thread in busy {
            release(thread, deadline);
        }
    }
}

/// The child of a task that has stopped because it has made one.
fn child_of(thread: u32) -> Option<u32> {
    trace::event_message(thread).ok().and_then(|child| u32::try_from(child).ok())
}

/// Let a child go that was born attached: it has stopped, or is about to.
fn let_go(child: u32) {
    release(child, Instant::now() + STOP_PATIENCE);
}

/// Let go of a task as soon as it stops.
fn release(thread: u32, deadline: Instant) {
    while let Ok(Some(stop)) = wait(thread, deadline) {
        let signal = match stop {
            Stop::Ended(_) => return,
            Stop::Told(_) => break,
            Stop::Forked | Stop::Vforked => {
                child_of(thread).into_iter().for_each(let_go);
                break;
            }
            Stop::Signal(signal) => signal,
            Stop::Event(_) | Stop::Call => 0,
        };
        if trace::resume_to_stop(thread, signal).is_err() {
            return;
        }
    }
    let _ = trace::detach(thread);
}

/// How often a task is looked at that waits for its child.
const LOOK: Duration = Duration::from_millis(1);

/// Wait until a task no longer waits in vfork(2): it cannot be stopped there, nor let go again.
fn wait_for_child(pid: u32, thread: u32, deadline: Instant) -> Result<(), Error> {
    let (mut until, mut before) = (Instant::now() + CHILD_PATIENCE, None);
    loop {
        let stat = Stat::read(pid, &format!("task/{thread}/stat"));
        let is_busy = stat.is_ok_and(|stat| stat.state == 'D');
        if !is_busy || !waits_for_child(pid, thread) {
            return Ok(());
        }
        // If it has run meanwhile, it waits for another child now.
        let switches = switches_of(pid, thread);
        if before != switches {
            (until, before) = (Instant::now() + CHILD_PATIENCE, switches);
        }
        if Instant::now() > until.min(deadline) {
            return Err(stuck(pid, thread));
        }
        std::thread::sleep(LOOK);
    }
}

/// How often a task has stopped to run by itself.
fn switches_of(pid: u32, thread: u32) -> Option<String> {
    let status = Status::read(pid, &format!("task/{thread}/status")).ok()?;
    status.words("voluntary_ctxt_switches").first().map(|count| (*count).to_owned())
}

fn call(pid: u32, thread: u32) -> Option<i64> {
    let call = proc::read(pid, &format!("task/{thread}/syscall")).ok()?;
    call.split_whitespace().next()?.parse().ok()
}

/// Whether a task has a processor, or waits for one.
fn is_running(pid: u32, thread: u32) -> bool {
    Stat::read(pid, &format!("task/{thread}/stat")).is_ok_and(|stat| stat.state == 'R')
}

fn waits_for_child(pid: u32, thread: u32) -> bool {
    matches!(call(pid, thread), Some(libc::SYS_vfork | libc::SYS_clone | libc::SYS_clone3))
}

fn is_ours(pid: u32, thread: u32) -> bool {
    let status = Status::read(pid, &format!("task/{thread}/status"));
    let Ok(status) = status else { return false };
    status
        .words("TracerPid")
        .first()
        .copied()
        .and_then(|word| word.parse().ok())
        .is_some_and(|tracer: u32| tracer == std::process::id() || is_own_thread(tracer))
}

/// The tracer is named by its thread.
fn is_own_thread(tracer: u32) -> bool {
    std::path::Path::new(&format!("/proc/self/task/{tracer}")).exists()
}

fn stuck(pid: u32, thread: u32) -> Error {
    let why = match call(pid, thread) {
        Some(_) if waits_for_child(pid, thread) => {
            "it waits in vfork(2) for a child that has not executed a program yet".to_owned()
        }
        Some(number) => format!("it is in system call {number}"),
        None => "it does not say where it is".to_owned(),
    };
    Error::Stuck { task: thread, why }
}

/// Calls that must not be repeated after `EINTR`: what they were to do has been done, or goes on.
const NOT_REPEATED: [i64; 2] = [libc::SYS_close, libc::SYS_connect];

/// Whether a task has stopped at the end of a call that only the stop has ended.
fn is_spurious(registers: &trace::Registers, status: &Status) -> Result<bool, Error> {
    let is_interrupted = registers.rax.cast_signed() == -i64::from(libc::EINTR);
    let call = registers.orig_rax.cast_signed();
    if !is_interrupted || call < 0 || NOT_REPEATED.contains(&call) {
        return Ok(false);
    }
    let waiting = status.mask("SigPnd")? | status.mask("ShdPnd")?;
    let silent = status.mask("SigBlk")? | status.mask("SigIgn")?;
    Ok(waiting & !silent == 0)
}

/// The abort handler of the restartable sequence that a task is in.
fn abort_address(pid: u32, thread: u32, at: u64) -> Result<Option<u64>, Error> {
    let Ok(sequences) = trace::sequences(thread) else { return Ok(None) };
    if sequences.address == 0 {
        return Ok(None);
    }
    let memory =
        std::fs::File::open(format!("/proc/{pid}/mem")).map_err(Error::io("open memory"))?;
    let word = |address: u64| {
        let mut bytes = [0; 8];
        memory.read_exact_at(&mut bytes, address).ok()?;
        Some(u64::from_le_bytes(bytes))
    };
    // `rseq_cs` is the third word of `struct rseq`, after two of 32 bits; a descriptor has version and flags, then
    // start, length and abort address.
    let Some(descriptor) = word(sequences.address + 8).filter(|descriptor| *descriptor != 0) else {
        return Ok(None);
    };
    let words = [8, 16, 24].map(|offset| word(descriptor.wrapping_add(offset)));
    let [Some(start), Some(length), Some(abort)] = words else { return Ok(None) };
    Ok((at.wrapping_sub(start) < length).then_some(abort))
}
