//! A process: what it answers itself in one script, and what stands in /proc.

use host::processes::identity;
use host::processes::trace::Queue;
use inject::{Area, Seat};

use super::answer::{expect, word};
use super::{Names, modes, special, task};
use crate::borrow::{borrow, unavailable};
use crate::error::Error;
use crate::freeze::Frozen;
use crate::proc;
use crate::proc::stat::Stat;
use crate::proc::status::Status;
use crate::state::{Action, Descriptor, Memory, Process, Switches, Timer};

/// Resource limits.
const LIMITS: u32 = 16;
/// Bytes of the kernel's `struct sigaction`.
const ACTION_BYTES: usize = 32;
const KERNEL_SIGSET_BYTES: u64 = 8;
/// `PR_GET_MDWE`.
const GET_DENY_WRITE_EXECUTE: u64 = 66;
const SIGNALS: std::ops::RangeInclusive<u32> = 1..=64;

/// A process that has ended and that nobody has waited for.
pub(super) fn dump_ended(pid: u32, names: &Names) -> Result<Process, Error> {
    let stat = Stat::read(pid, "stat")?;
    let mut process = frame(pid, names, &stat)?;
    process.ended = Some(i32::try_from(stat.field(52)? & 0xffff).unwrap_or(0));
    Ok(process)
}

/// A process with these descriptors, but for its memory beyond the fields and the program.
pub(super) fn dump(
    frozen: &Frozen,
    pid: u32,
    names: &Names,
    descriptors: Vec<Descriptor>,
) -> Result<Process, Error> {
    let stat = Stat::read(pid, "stat")?;
    let status = Status::read(pid, "status")?;
    let mut process = frame(pid, names, &stat)?;
    process.descriptors = descriptors;
    process.stopped = frozen.stopped.get(&pid).copied();
    process.umask = status.octal("Umask")?;
    process.directory = proc::link(pid, "cwd")?;
    if !crate::refuse::names_itself(pid, "cwd", &process.directory) {
        return Err(Error::unsupported(pid, "is in a directory that was deleted"));
    }
    process.pending = task::pending(pid, Queue::Process)?;
    for resource in 0..LIMITS {
        let limit = identity::limit(pid, resource);
        process.limits.push(limit.map_err(Error::io(format!("read limits of process {pid}")))?);
    }
    process.memory.fields = stat.memory()?;
    let threads = frozen.processes.get(&pid).cloned().unwrap_or_default();
    answer(pid, &threads, &mut process)?;
    Ok(process)
}

/// What every process has, dead or alive.
fn frame(pid: u32, names: &Names, stat: &Stat) -> Result<Process, Error> {
    let own = names.own(pid);
    let status = Status::read(pid, "status")?;
    let led_by = |name: &str, what: &str| {
        let led = status.own_number(name)?;
        let known = names.known(led);
        if known == 0 && led > 1 {
            let what = format!("belongs to a {what} whose leader, {led}, is not in the tree");
            return Err(Error::unsupported(pid, what));
        }
        Ok(known)
    };
    let parent = u32::try_from(stat.field(4)?).unwrap_or(0);
    Ok(Process {
        pid: own,
        parent: names.own(parent),
        group: led_by("NSpgid", "process group")?,
        session: led_by("NSsid", "session")?,
        exit_signal: u32::try_from(stat.field(38)?).unwrap_or(0),
        ended: None,
        stopped: None,
        memory: Memory::default(),
        descriptors: Vec::new(),
        directory: String::new(),
        umask: 0,
        actions: Vec::new(),
        pending: Vec::new(),
        intervals: [[0; 2]; 3],
        timers: Vec::new(),
        limits: Vec::new(),
        switches: Switches::default(),
        threads: Vec::new(),
        undo: Vec::new(),
    })
}

/// Have the process and its threads answer.
fn answer(pid: u32, threads: &[u32], process: &mut Process) -> Result<(), Error> {
    let answers = borrow(pid, |seat, area| {
        ask(pid, seat, area, process)?;
        let mut answers = vec![task::ask(pid, seat, area)?];
        for &tid in threads.iter().filter(|tid| **tid != pid) {
            let other = Seat::take(tid, unavailable(pid, tid)?)?;
            let answer = task::ask(pid, &other, area);
            other.leave()?;
            answers.push(answer?);
        }
        Ok(answers)
    })?;
    let usual = modes::our_processors()?;
    for (tid, answers) in
        std::iter::once(pid).chain(threads.iter().copied().filter(|tid| *tid != pid)).zip(&answers)
    {
        process.threads.push(task::dump(pid, tid, answers, &usual)?);
    }
    Ok(())
}

/// Ask what belongs to the process as a whole.
fn ask(pid: u32, seat: &Seat, area: &Area, process: &mut Process) -> Result<(), Error> {
    let timers = timers(pid)?;
    let mut script = area.script();
    let actions = script.room(ACTION_BYTES * SIGNALS.count());
    let of_signal = |signal: u32| actions + u64::from(signal - 1) * ACTION_BYTES as u64;
    for signal in SIGNALS {
        let arguments = [signal.into(), 0, of_signal(signal), KERNEL_SIGSET_BYTES];
        script.call(libc::SYS_rt_sigaction, arguments);
    }
    let intervals = script.room(3 * 32);
    let first_interval = script.len();
    for which in 0..3 {
        script.call(libc::SYS_getitimer, [which, intervals + which * 32]);
    }
    let brk = script.call(libc::SYS_brk, [0]);
    let prctl = |option: i32| u64::from(option.cast_unsigned());
    let dumpable = script.call(libc::SYS_prctl, [prctl(libc::PR_GET_DUMPABLE), 0, 0, 0, 0]);
    let reaper = script.room(8);
    let subreaper =
        script.call(libc::SYS_prctl, [prctl(libc::PR_GET_CHILD_SUBREAPER), reaper, 0, 0, 0]);
    let huge = script.call(libc::SYS_prctl, [prctl(libc::PR_GET_THP_DISABLE), 0, 0, 0, 0]);
    let denied = script.call(libc::SYS_prctl, [GET_DENY_WRITE_EXECUTE, 0, 0, 0, 0]);
    let special = special::ask(&mut script);
    let results = seat.run(area, &script)?.results;
    for result in &results[first_interval..=subreaper] {
        expect(pid, "tell its timers and switches", *result)?;
    }
    for signal in SIGNALS {
        let at = of_signal(signal);
        let [handler, flags, restorer, mask] =
            [word(area, at)?, word(area, at + 8)?, word(area, at + 16)?, word(area, at + 24)?];
        if (handler, flags, mask) != (0, 0, 0) {
            process.actions.push(Action { signal, handler, flags, restorer, mask });
        }
    }
    for (index, interval) in process.intervals.iter_mut().enumerate() {
        let at = intervals + index as u64 * 32;
        let microseconds =
            |seconds: u64, rest: u64| seconds.wrapping_mul(1_000_000).wrapping_add(rest);
        *interval = [
            microseconds(word(area, at)?, word(area, at + 8)?),
            microseconds(word(area, at + 16)?, word(area, at + 24)?),
        ];
    }
    process.memory.fields[5] = expect(pid, "tell its break", results[brk])?;
    process.switches = Switches {
        dumpable: expect(pid, "tell whether it is dumpable", results[dumpable])?,
        subreaper: word(area, reaper)? & 0xffff_ffff != 0,
        no_huge_pages: results[huge] > 0,
        // Zero where the kernel has no such switch.
        deny_write_execute: results[denied].max(0).cast_unsigned(),
        kill_score: proc::read(pid, "oom_score_adj")?.trim().parse().unwrap_or(0),
    };
    special::refuse(pid, area, &special, &results)?;
    process.timers = timers;
    remaining(pid, seat, area, &mut process.timers)?;
    closed_on_exec(pid, seat, area, &mut process.descriptors)
}

/// Ask which descriptors are closed when a program is executed. Of those that are not, /proc may say that they are: it
/// adds the flags of the description, which of a terminal may have that one (`TIOCGPTPEER`).
fn closed_on_exec(
    pid: u32,
    seat: &Seat,
    area: &Area,
    descriptors: &mut [Descriptor],
) -> Result<(), Error> {
    let mut doubtful: Vec<_> = descriptors.iter_mut().filter(|one| one.close_on_exec).collect();
    for descriptors in doubtful.chunks_mut(256) {
        let mut script = area.script();
        for descriptor in descriptors.iter() {
            let command = libc::F_GETFD.cast_unsigned().into();
            script.call(libc::SYS_fcntl, [descriptor.number.into(), command]);
        }
        let results = seat.run(area, &script)?.results;
        for (descriptor, result) in descriptors.iter_mut().zip(results) {
            let flags = expect(pid, "tell the flags of a descriptor", result)?;
            descriptor.close_on_exec = flags & u64::from(libc::FD_CLOEXEC.cast_unsigned()) != 0;
        }
    }
    Ok(())
}

/// The POSIX timers, as /proc/PID/timers has them.
fn timers(pid: u32) -> Result<Vec<Timer>, Error> {
    let mut timers: Vec<Timer> = Vec::new();
    let text = proc::read(pid, "timers").unwrap_or_default();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(": ") else { continue };
        if name == "ID" {
            let id = value
                .trim()
                .parse()
                .map_err(|_| Error::unsupported(pid, "has a timer without a number"))?;
            let (clock, notify, signal, value, thread) = (0, 0, 0, 0, 0);
            timers.push(Timer { id, clock, notify, signal, value, thread, nanoseconds: [0; 2] });
            continue;
        }
        let Some(timer) = timers.last_mut() else { continue };
        match name {
            "signal" => {
                let (signal, sent) = value.trim().split_once('/').unwrap_or((value, "0"));
                timer.signal = signal.parse().unwrap_or(0);
                timer.value = u64::from_str_radix(sent.trim_start_matches("0x"), 16).unwrap_or(0);
            }
            "notify" => {
                let (how, to) = value.trim().split_once('/').unwrap_or((value, ""));
                timer.notify = match how {
                    "signal" => 0,
                    "none" => 1,
                    _ => 2,
                };
                let (kind, number) = to.split_once('.').unwrap_or(("", "0"));
                if kind == "tid" {
                    timer.notify |= 4;
                    // The number is ours.
                    let status = Status::read(pid, &format!("task/{number}/status"))?;
                    timer.thread = status.own_number("NSpid")?;
                }
            }
            "ClockID" => timer.clock = value.trim().parse().unwrap_or(0),
            _ => {}
        }
    }
    Ok(timers)
}

/// Ask what remains of each timer.
fn remaining(pid: u32, seat: &Seat, area: &Area, timers: &mut [Timer]) -> Result<(), Error> {
    for timers in timers.chunks_mut(256) {
        let mut script = area.script();
        let mut places = Vec::new();
        for timer in timers.iter() {
            let place = script.room(32);
            script.call(libc::SYS_timer_gettime, [timer.id.into(), place]);
            places.push(place);
        }
        let results = seat.run(area, &script)?.results;
        for ((timer, place), result) in timers.iter_mut().zip(places).zip(results) {
            expect(pid, "tell a timer", result)?;
            let nanoseconds = |at| {
                let (seconds, rest) = (word(area, at)?, word(area, at + 8)?);
                Ok::<_, Error>(seconds.wrapping_mul(1_000_000_000).wrapping_add(rest))
            };
            timer.nanoseconds = [nanoseconds(place)?, nanoseconds(place + 16)?];
        }
    }
    Ok(())
}
