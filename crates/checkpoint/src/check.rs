//! What an image may say. All that restarting relies on is looked at here, once.

mod inet;
mod input;
mod ipc;
mod locks;
mod modes;
mod names;
pub(crate) mod pages;
pub(crate) mod pod;
mod posix_queues;
mod sockets;
mod terminals;
mod words;

use std::collections::BTreeSet;

pub(crate) use self::words::require;
use self::words::{is_name, is_path};
use crate::advice::ADVICE;
use crate::error::Error;
use crate::limits::{
    END_OF_MEMORY, MAX_AUXILIARY_BYTES, MAX_DESCRIPTIONS, MAX_DESCRIPTOR_NUMBER, MAX_DESCRIPTORS,
    MAX_FEATURES, MAX_GROUPS, MAX_MAPPINGS, MAX_PATH_WATCHES, MAX_PENDING, MAX_PIPE_BYTES,
    MAX_TASKS, MAX_TIMERS, MAX_VDSO_BYTES, PAGE_BYTES,
};
use crate::state::{Mapping, Object, OpenFile, Process, Source, State, Thread};

/// The highest number of a task, and one more (the kernel's limit).
const MAX_PID: u32 = 1 << 22;
/// Bytes of `siginfo_t`.
const SIGNAL_INFO_BYTES: usize = 128;
/// Bytes of the legacy region of the extended state.
const LEGACY_BYTES: usize = 512;
/// Bytes of a component of the extended state, at the most.
const MAX_COMPONENT_BYTES: usize = 16 << 10;
/// Bytes of a memfd's name, and one more (memfd_create(2)).
const MAX_OBJECT_NAME_BYTES: usize = 250;
/// All seals that there are (`F_SEAL_*`).
const MAX_SEALS: u32 = 0x3f;
/// Resource limits.
const MAX_LIMITS: usize = 16;

/// Check a description.
///
/// # Errors
///
/// [`Error::Image`] that says what is wrong.
pub fn check(state: &State) -> Result<(), Error> {
    require(!state.processes.is_empty(), "it has no process")?;
    let are_names = state.processor.iter().all(|name| name.len() < 64 && is_name(name));
    require(are_names && state.processor.len() <= MAX_FEATURES, "its processor is wrong")?;
    require(state.vdso_code.len() <= MAX_VDSO_BYTES, "its vDSO is too large")?;
    require(state.objects.len() <= MAX_DESCRIPTIONS, "it has too many objects")?;
    state.objects.iter().try_for_each(check_object)?;
    require(state.descriptions.len() <= MAX_DESCRIPTIONS, "it has too many open files")?;
    for pipe in &state.pipes {
        let is_fine =
            pipe.capacity <= MAX_PIPE_BYTES as u64 && pipe.content.len() as u64 <= pipe.capacity;
        require(is_fine, "a pipe holds too much")?;
    }
    names::check_named_pipes(&state.named_pipes)?;
    locks::check(state)?;
    input::check(state)?;
    terminals::check(state)?;
    ipc::check(state)?;
    posix_queues::check(state)?;
    let known: BTreeSet<u32> = state.processes.iter().map(|process| process.pid).collect();
    let mut files = state.descriptions.iter().map(|description| &description.file);
    files.try_for_each(|file| check_file(file, state, &known))?;
    sockets::check(state)?;
    let (mut tasks, mut pids) = (0, BTreeSet::new());
    let mut seen = BTreeSet::new();
    for process in &state.processes {
        require(
            process.parent == 0 || seen.contains(&process.parent),
            "a parent is not before its child",
        )?;
        seen.insert(process.pid);
        for leader in [process.group, process.session] {
            require(leader == 0 || known.contains(&leader), "the leader of a group is missing")?;
        }
        check_process(process, state)?;
        tasks += process.threads.len().max(1);
        require(tasks <= MAX_TASKS, "it has too many tasks")?;
        require(pids.insert(process.pid), "two tasks have one number")?;
        for thread in process.threads.iter().skip(1) {
            require(pids.insert(thread.tid), "two tasks have one number")?;
        }
    }
    Ok(())
}

fn check_file(file: &OpenFile, state: &State, pids: &BTreeSet<u32>) -> Result<(), Error> {
    match file {
        OpenFile::Path { path, position } => {
            require(
                is_path(path) && *position <= i64::MAX as u64,
                "an open file has a wrong path",
            )?;
        }
        OpenFile::Pipe { index, .. } => require(*index < state.pipes.len(), "a pipe is missing")?,
        OpenFile::NamedPipe { index, .. } => {
            require(*index < state.named_pipes.len(), "a named pipe is missing")?
        }
        OpenFile::Queue { index } => {
            require(*index < state.posix_queues.len(), "an open message queue is missing")?
        }
        OpenFile::Counter { .. }
        | OpenFile::Timer { .. }
        | OpenFile::Signals { .. }
        | OpenFile::Terminal { .. }
        | OpenFile::HungUp => {}
        OpenFile::Notifications { pid, watches } => {
            let is_fine = watches.len() <= MAX_PATH_WATCHES
                && watches.iter().all(|watch| is_path(&watch.path))
                && pids.contains(pid);
            require(is_fine, "what is watched is wrong")?;
        }
        OpenFile::Watches { pid, watches } => {
            let is_fine = watches.len() <= MAX_DESCRIPTORS && pids.contains(pid);
            require(is_fine, "an epoll set is wrong")?;
        }
        OpenFile::Object { index, position } => {
            let is_fine = *index < state.objects.len() && *position <= i64::MAX as u64;
            require(is_fine, "an object is missing")?;
        }
        OpenFile::Process { task } => {
            require(input::has_task(state, *task), "a process that is open is missing")?;
        }
        OpenFile::Socket { .. } => {}
        OpenFile::Slot { name } => {
            require(!name.is_empty() && is_name(name), "a slot has a wrong name")?;
        }
    }
    Ok(())
}

fn is_signal(signal: u32) -> bool {
    (1..=64).contains(&signal)
}

fn check_process(process: &Process, state: &State) -> Result<(), Error> {
    require((2..MAX_PID).contains(&process.pid), "a process has an impossible number")?;
    require(process.exit_signal <= 64, "a process ends with an impossible signal")?;
    if let Some(status) = process.ended {
        let is_plain = process.threads.is_empty() && process.descriptors.is_empty();
        require(
            is_plain && process.memory.mappings.is_empty(),
            "a process that has ended has something",
        )?;
        return require((0..=0xffff).contains(&status), "a process has ended in an impossible way");
    }
    require(!process.threads.is_empty(), "a process has no thread")?;
    require(process.threads[0].tid == process.pid, "a process is not led by its first thread")?;
    require(process.stopped.is_none_or(is_signal), "a process is stopped by an impossible signal")?;
    require(is_path(&process.directory), "a process has a wrong working directory")?;
    require(is_path(&process.memory.program), "a process has a wrong program")?;
    require(
        process.memory.auxiliary.len() <= MAX_AUXILIARY_BYTES,
        "an auxiliary vector is too long",
    )?;
    require(
        process.memory.auxiliary.len().is_multiple_of(16),
        "an auxiliary vector is no list of pairs",
    )?;
    require(process.umask <= 0o777, "a umask is wrong")?;
    let is_score = (-1000..=1000).contains(&process.switches.kill_score);
    require(is_score, "a process is killed in an impossible order")?;
    require(
        process.actions.iter().all(|action| is_signal(action.signal)),
        "there is no such signal",
    )?;
    require(process.limits.len() <= MAX_LIMITS, "a process has too many limits")?;
    require(process.timers.len() <= MAX_TIMERS, "a process has too many timers")?;
    let is_timer = |id: u32| id <= i32::MAX.cast_unsigned();
    require(process.timers.iter().all(|timer| is_timer(timer.id)), "a timer has a wrong number")?;
    require(process.descriptors.len() <= MAX_DESCRIPTORS, "a process has too many descriptors")?;
    for pair in process.descriptors.windows(2) {
        require(pair[0].number < pair[1].number, "descriptors are out of order")?;
    }
    for descriptor in &process.descriptors {
        let is_fine = descriptor.number < MAX_DESCRIPTOR_NUMBER
            && descriptor.description < state.descriptions.len();
        require(is_fine, "a descriptor is wrong")?;
    }
    check_pending(&process.pending)?;
    check_mappings(&process.memory.mappings, state.objects.len())?;
    process.threads.iter().try_for_each(check_thread)
}

fn check_pending(pending: &[crate::state::Bytes]) -> Result<(), Error> {
    require(pending.len() <= MAX_PENDING, "too many signals wait")?;
    for signal in pending {
        let number = signal.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let is_fine = signal.len() == SIGNAL_INFO_BYTES && is_signal(number);
        require(is_fine, "a signal that waits is wrong")?;
    }
    Ok(())
}

fn check_thread(thread: &Thread) -> Result<(), Error> {
    require((2..MAX_PID).contains(&thread.tid), "a thread has an impossible number")?;
    require(thread.name.len() < 16 && !thread.name.contains(&0), "a thread has a wrong name")?;
    require(thread.extended.legacy.len() == LEGACY_BYTES, "an extended state is too short")?;
    for (number, bytes) in &thread.extended.components {
        let is_fine = (2..63).contains(number)
            && bytes.len() <= MAX_COMPONENT_BYTES
            && thread.extended.in_use >> number & 1 == 1;
        require(is_fine, "an extended state is wrong")?;
    }
    let listed = thread.extended.components.len();
    let announced = (thread.extended.in_use >> 2).count_ones() as usize;
    require(listed == announced, "an extended state is not complete")?;
    require(thread.credentials.supplementary.len() <= MAX_GROUPS, "a thread has too many groups")?;
    modes::check(&thread.modes)?;
    check_pending(&thread.pending)
}

fn check_object(object: &Object) -> Result<(), Error> {
    require(object.bytes <= END_OF_MEMORY, "an object is too large")?;
    let is_short = object.name.len() < MAX_OBJECT_NAME_BYTES;
    require(is_short && is_name(&object.name), "an object has a wrong name")?;
    require(object.seals <= MAX_SEALS, "an object has an unknown seal")?;
    require(object.directory.as_deref().is_none_or(is_path), "an object has a wrong directory")
}

fn check_mappings(mappings: &[Mapping], objects: usize) -> Result<(), Error> {
    require(mappings.len() <= MAX_MAPPINGS, "a process has too many mappings")?;
    let (mut end, mut has_vdso) = (PAGE_BYTES, false);
    for mapping in mappings {
        let is_aligned = mapping.start % PAGE_BYTES == 0 && mapping.end % PAGE_BYTES == 0;
        require(
            is_aligned && mapping.start >= end && mapping.end > mapping.start,
            "mappings overlap",
        )?;
        end = mapping.end;
        require(end <= END_OF_MEMORY, "a mapping is out of bounds")?;
        require(mapping.protection <= 7, "a mapping has an impossible protection")?;
        let is_known = |word: &String| ADVICE.iter().any(|(known, _)| known == word);
        require(mapping.advice.iter().all(is_known), "a mapping has an unknown property")?;
        require(mapping.name.as_deref().is_none_or(is_name), "a mapping has a wrong name")?;
        match &mapping.source {
            Source::File { path, offset, .. } => {
                let is_fine =
                    is_path(path) && offset % PAGE_BYTES == 0 && *offset <= i64::MAX as u64;
                require(is_fine, "a mapped file is wrong")?;
            }
            Source::Anonymous => require(!mapping.shared, "shared memory has no object")?,
            Source::Object { index, offset } => {
                let is_fine =
                    *index < objects && offset % PAGE_BYTES == 0 && *offset <= END_OF_MEMORY;
                require(is_fine, "shared memory is wrong")?;
            }
            Source::Vdso => {
                require(!has_vdso, "a process has two vDSOs")?;
                has_vdso = true;
            }
            // See the check of System V IPC.
            Source::VdsoData | Source::Segment { .. } => {}
        }
    }
    Ok(())
}
