//! What the protocol's requests come to.

use std::collections::VecDeque;

use gdbstub::common::{Signal, Tid};
use gdbstub::stub::MultiThreadStopReason;
use gdbstub::target::ext::base::BaseOps;
use gdbstub::target::ext::base::multithread::{
    MultiThreadBase, MultiThreadResume, MultiThreadResumeOps, MultiThreadSchedulerLocking,
    MultiThreadSchedulerLockingOps, MultiThreadSingleStep, MultiThreadSingleStepOps,
};
use gdbstub::target::ext::base::single_register_access::{
    SingleRegisterAccess, SingleRegisterAccessOps,
};
use gdbstub::target::ext::breakpoints::{
    Breakpoints, BreakpointsOps, HwBreakpoint, HwBreakpointOps, HwWatchpoint, HwWatchpointOps,
    SwBreakpoint, SwBreakpointOps, WatchKind,
};
use gdbstub::target::ext::monitor_cmd::{ConsoleOutput, MonitorCmd, MonitorCmdOps};
use gdbstub::target::ext::target_description_xml_override::{
    TargetDescriptionXmlOverride, TargetDescriptionXmlOverrideOps,
};
use gdbstub::target::ext::thread_extra_info::{ThreadExtraInfo, ThreadExtraInfoOps};
use gdbstub::target::{Target, TargetError, TargetResult};

use crate::debuggee::{Debuggee, Going, Places, Refused, Space, Stop, Watch, Watched};
use crate::description::description;
use crate::registers::{Register, RegisterFile, X86};

/// Breakpoints and watchpoints of one client.
const PLACES_MAX: usize = 4096;

/// The longest range that is watched, in bytes.
const WATCHED_BYTES_MAX: u64 = 1 << 20;

/// gdb's way to set a breakpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Software,
    Hardware,
}

/// A machine, as one client has it.
pub(crate) struct Debugged<'a, D> {
    pub(crate) machine: &'a mut D,
    /// Where `m` and `M` read and write.
    pub(crate) space: Space,
    /// The processor that was asked about last, for `monitor`.
    pub(crate) processor: usize,
    breakpoints: Vec<(u64, Way)>,
    watchpoints: Vec<Watched>,
    /// How each processor goes on that the client names, and how others do.
    named: Vec<Option<Going>>,
    others: Going,
    /// What has happened, and the client has not been told of.
    untold: VecDeque<(usize, Stop)>,
    description: String,
    /// Whether processors run: then there is nothing to be asked of them.
    runs: bool,
}

/// The thread of a processor.
fn thread(processor: usize) -> Tid {
    Tid::MIN.saturating_add(processor)
}

impl<'a, D: Debuggee> Debugged<'a, D> {
    /// A machine that stands still from here on.
    pub(crate) fn new(machine: &'a mut D) -> Self {
        let named = vec![None; machine.processors()];
        let mut debugged = Self {
            machine,
            space: Space::Linear,
            processor: 0,
            breakpoints: Vec::new(),
            watchpoints: Vec::new(),
            named,
            others: Going::On,
            untold: VecDeque::new(),
            description: description(),
            runs: true,
        };
        debugged.hold();
        debugged.untold.clear();
        debugged
    }

    /// Have all stand still, and take in why some have stopped by themselves.
    fn hold(&mut self) {
        if !self.machine.hold() {
            tracing::warn!("not all processors stand still for the debugger");
        }
        self.runs = false;
        while let Some(stop) = self.machine.take_stop() {
            self.untold.push_back(stop);
        }
    }

    /// The client wants them to stand still: what it is told.
    pub(crate) fn interrupt(&mut self) -> MultiThreadStopReason<u64> {
        self.hold();
        self.next_stop().unwrap_or(MultiThreadStopReason::SignalWithThread {
            tid: thread(self.processor),
            signal: Signal::SIGINT,
        })
    }

    /// Why a processor has stopped, if one has.
    pub(crate) fn stopped(&mut self) -> Option<MultiThreadStopReason<u64>> {
        if let Some(stop) = self.machine.take_stop() {
            self.untold.push_back(stop);
            self.hold();
        }
        self.next_stop()
    }

    /// Whether there is something to tell without waiting.
    pub(crate) fn has_stopped(&self) -> bool {
        !self.untold.is_empty()
    }

    /// The next thing to tell. Of several at once, steps and breakpoints are forgotten but for the first: a breakpoint
    /// is hit again when its processor goes on. An access is not, and is told of in its turn.
    fn next_stop(&mut self) -> Option<MultiThreadStopReason<u64>> {
        let (processor, stop) = self.untold.pop_front()?;
        self.untold.retain(|(_, stop)| matches!(stop, Stop::Watchpoint(..)));
        self.processor = processor;
        let tid = thread(processor);
        Some(match stop {
            Stop::Step => MultiThreadStopReason::SignalWithThread { tid, signal: Signal::SIGTRAP },
            Stop::Breakpoint => {
                let rip = self.machine.registers(processor).map(|file| file.rip);
                let is_hardware = rip.is_ok_and(|rip| {
                    let way = self.breakpoints.iter().find(|(at, _)| *at == rip);
                    way.is_some_and(|(_, way)| *way == Way::Hardware)
                });
                match is_hardware {
                    true => MultiThreadStopReason::HwBreak(tid),
                    false => MultiThreadStopReason::SwBreak(tid),
                }
            }
            Stop::Watchpoint(kind, addr) => {
                MultiThreadStopReason::Watch { tid, kind: theirs(kind), addr }
            }
        })
    }

    fn places(&self) -> Places {
        Places {
            breakpoints: self.breakpoints.iter().map(|(at, _)| *at).collect(),
            watchpoints: self.watchpoints.clone(),
        }
    }

    fn set_going(&mut self, thread: Tid, how: Going) {
        if let Some(going) = self.named.get_mut(thread.get() - 1) {
            // The first that is said of it counts.
            going.get_or_insert(how);
        }
    }

    fn add_breakpoint(&mut self, at: u64, way: Way) -> bool {
        let is_there = self.breakpoints.contains(&(at, way));
        let has_room = self.breakpoints.len() < PLACES_MAX;
        if !is_there && has_room {
            self.breakpoints.push((at, way));
        }
        is_there || has_room
    }

    fn remove_breakpoint(&mut self, at: u64, way: Way) -> bool {
        let before = self.breakpoints.len();
        self.breakpoints.retain(|known| *known != (at, way));
        self.breakpoints.len() < before
    }
}

fn theirs(kind: Watch) -> WatchKind {
    match kind {
        Watch::Write => WatchKind::Write,
        Watch::Read => WatchKind::Read,
        Watch::Access => WatchKind::ReadWrite,
    }
}

fn ours(kind: WatchKind) -> Watch {
    match kind {
        WatchKind::Write => Watch::Write,
        WatchKind::Read => Watch::Read,
        WatchKind::ReadWrite => Watch::Access,
    }
}

/// Bytes from `offset` on, as gdb reads in pieces.
fn piece(text: &[u8], offset: u64, length: usize, buffer: &mut [u8]) -> usize {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
    let rest = &text[start..];
    let length = length.min(rest.len()).min(buffer.len());
    buffer[..length].copy_from_slice(&rest[..length]);
    length
}

impl<D: Debuggee> Target for Debugged<'_, D> {
    type Arch = X86;
    type Error = Refused;

    fn base_ops(&mut self) -> BaseOps<'_, X86, Refused> {
        BaseOps::MultiThread(self)
    }

    fn support_breakpoints(&mut self) -> Option<BreakpointsOps<'_, Self>> {
        Some(self)
    }

    fn support_monitor_cmd(&mut self) -> Option<MonitorCmdOps<'_, Self>> {
        Some(self)
    }

    fn support_target_description_xml_override(
        &mut self,
    ) -> Option<TargetDescriptionXmlOverrideOps<'_, Self>> {
        Some(self)
    }

    fn use_fork_stop_reason(&self) -> bool {
        false
    }

    fn use_vfork_stop_reason(&self) -> bool {
        false
    }

    fn use_vforkdone_stop_reason(&self) -> bool {
        false
    }
}

impl<D: Debuggee> MultiThreadBase for Debugged<'_, D> {
    fn read_registers(&mut self, registers: &mut RegisterFile, tid: Tid) -> TargetResult<(), Self> {
        self.processor = tid.get() - 1;
        *registers = self.machine.registers(self.processor).map_err(|_| TargetError::NonFatal)?;
        Ok(())
    }

    fn write_registers(&mut self, registers: &RegisterFile, tid: Tid) -> TargetResult<(), Self> {
        let processor = tid.get() - 1;
        // What cannot be set is as it is.
        let now = self.machine.registers(processor).map_err(|_| TargetError::NonFatal)?;
        let mut file = now;
        for register in Register::all().filter(|register| register.can_be_set()) {
            file.set(register, &registers.value(register));
        }
        self.machine.set_registers(processor, &file).map_err(|_| TargetError::NonFatal)
    }

    fn support_single_register_access(&mut self) -> Option<SingleRegisterAccessOps<'_, Tid, Self>> {
        Some(self)
    }

    fn read_addrs(&mut self, at: u64, data: &mut [u8], tid: Tid) -> TargetResult<usize, Self> {
        self.processor = tid.get() - 1;
        let (processor, space) = (self.processor, self.space);
        self.machine.read(processor, space, at, data).map_err(|_| TargetError::NonFatal)
    }

    fn write_addrs(&mut self, at: u64, data: &[u8], tid: Tid) -> TargetResult<(), Self> {
        let (processor, space) = (tid.get() - 1, self.space);
        self.machine.write(processor, space, at, data).map_err(|_| TargetError::NonFatal)
    }

    fn list_active_threads(&mut self, register: &mut dyn FnMut(Tid)) -> Result<(), Refused> {
        (0..self.machine.processors()).map(thread).for_each(register);
        Ok(())
    }

    fn support_resume(&mut self) -> Option<MultiThreadResumeOps<'_, Self>> {
        Some(self)
    }

    fn support_thread_extra_info(&mut self) -> Option<ThreadExtraInfoOps<'_, Self>> {
        Some(self)
    }
}

impl<D: Debuggee> SingleRegisterAccess<Tid> for Debugged<'_, D> {
    fn read_register(
        &mut self,
        tid: Tid,
        register: Register,
        buffer: &mut [u8],
    ) -> TargetResult<usize, Self> {
        self.processor = tid.get() - 1;
        let file = self.machine.registers(self.processor).map_err(|_| TargetError::NonFatal)?;
        let value = file.value(register);
        let place = buffer.get_mut(..value.len()).ok_or(TargetError::NonFatal)?;
        place.copy_from_slice(&value);
        Ok(value.len())
    }

    fn write_register(
        &mut self,
        tid: Tid,
        register: Register,
        value: &[u8],
    ) -> TargetResult<(), Self> {
        let processor = tid.get() - 1;
        let mut file = self.machine.registers(processor).map_err(|_| TargetError::NonFatal)?;
        if !file.set(register, value) {
            return Err(TargetError::NonFatal);
        }
        self.machine.set_registers(processor, &file).map_err(|_| TargetError::NonFatal)
    }
}

impl<D: Debuggee> ThreadExtraInfo for Debugged<'_, D> {
    fn thread_extra_info(&self, tid: Tid, buffer: &mut [u8]) -> Result<usize, Refused> {
        let text = format!("processor {}", tid.get() - 1);
        Ok(piece(text.as_bytes(), 0, text.len(), buffer))
    }
}

impl<D: Debuggee> MultiThreadResume for Debugged<'_, D> {
    fn resume(&mut self) -> Result<(), Refused> {
        if self.runs {
            return Err(Refused);
        }
        // What was accessed when another processor stopped is told first.
        let watchpoints = &self.watchpoints;
        self.untold.retain(|(_, stop)| match stop {
            Stop::Watchpoint(_, at) => {
                watchpoints.iter().any(|one| at.wrapping_sub(one.start) < one.length)
            }
            _ => false,
        });
        if self.has_stopped() {
            return Ok(());
        }
        let going: Vec<_> = self.named.iter().map(|going| going.unwrap_or(self.others)).collect();
        self.runs = true;
        self.machine.go_on(&self.places(), &going)
    }

    fn clear_resume_actions(&mut self) -> Result<(), Refused> {
        self.named.fill(None);
        self.others = Going::On;
        Ok(())
    }

    fn set_resume_action_continue(&mut self, tid: Tid, _: Option<Signal>) -> Result<(), Refused> {
        self.set_going(tid, Going::On);
        Ok(())
    }

    fn support_single_step(&mut self) -> Option<MultiThreadSingleStepOps<'_, Self>> {
        Some(self)
    }

    fn support_scheduler_locking(&mut self) -> Option<MultiThreadSchedulerLockingOps<'_, Self>> {
        Some(self)
    }
}

impl<D: Debuggee> MultiThreadSingleStep for Debugged<'_, D> {
    fn set_resume_action_step(&mut self, tid: Tid, _: Option<Signal>) -> Result<(), Refused> {
        self.set_going(tid, Going::Step);
        Ok(())
    }
}

impl<D: Debuggee> MultiThreadSchedulerLocking for Debugged<'_, D> {
    fn set_resume_action_scheduler_lock(&mut self) -> Result<(), Refused> {
        self.others = Going::Held;
        Ok(())
    }
}

impl<D: Debuggee> Breakpoints for Debugged<'_, D> {
    fn support_sw_breakpoint(&mut self) -> Option<SwBreakpointOps<'_, Self>> {
        Some(self)
    }

    fn support_hw_breakpoint(&mut self) -> Option<HwBreakpointOps<'_, Self>> {
        Some(self)
    }

    fn support_hw_watchpoint(&mut self) -> Option<HwWatchpointOps<'_, Self>> {
        Some(self)
    }
}

impl<D: Debuggee> SwBreakpoint for Debugged<'_, D> {
    fn add_sw_breakpoint(&mut self, at: u64, _: usize) -> TargetResult<bool, Self> {
        Ok(self.add_breakpoint(at, Way::Software))
    }

    fn remove_sw_breakpoint(&mut self, at: u64, _: usize) -> TargetResult<bool, Self> {
        Ok(self.remove_breakpoint(at, Way::Software))
    }
}

impl<D: Debuggee> HwBreakpoint for Debugged<'_, D> {
    fn add_hw_breakpoint(&mut self, at: u64, _: usize) -> TargetResult<bool, Self> {
        Ok(self.add_breakpoint(at, Way::Hardware))
    }

    fn remove_hw_breakpoint(&mut self, at: u64, _: usize) -> TargetResult<bool, Self> {
        Ok(self.remove_breakpoint(at, Way::Hardware))
    }
}

impl<D: Debuggee> HwWatchpoint for Debugged<'_, D> {
    fn add_hw_watchpoint(
        &mut self,
        start: u64,
        length: u64,
        kind: WatchKind,
    ) -> TargetResult<bool, Self> {
        let watched = Watched { start, length, kind: ours(kind) };
        let is_there = self.watchpoints.contains(&watched);
        let fits = (1..=WATCHED_BYTES_MAX).contains(&length);
        let may_be = fits && self.watchpoints.len() < PLACES_MAX;
        if !is_there && may_be {
            self.watchpoints.push(watched);
        }
        Ok(is_there || may_be)
    }

    fn remove_hw_watchpoint(
        &mut self,
        start: u64,
        length: u64,
        kind: WatchKind,
    ) -> TargetResult<bool, Self> {
        let before = self.watchpoints.len();
        let watched = Watched { start, length, kind: ours(kind) };
        self.watchpoints.retain(|known| *known != watched);
        Ok(self.watchpoints.len() < before)
    }
}

impl<D: Debuggee> TargetDescriptionXmlOverride for Debugged<'_, D> {
    fn target_description_xml(
        &self,
        annex: &[u8],
        offset: u64,
        length: usize,
        buffer: &mut [u8],
    ) -> TargetResult<usize, Self> {
        match annex {
            b"target.xml" => Ok(piece(self.description.as_bytes(), offset, length, buffer)),
            _ => Err(TargetError::NonFatal),
        }
    }
}

impl<D: Debuggee> MonitorCmd for Debugged<'_, D> {
    fn handle_monitor_cmd(
        &mut self,
        command: &[u8],
        mut out: ConsoleOutput<'_>,
    ) -> Result<(), Refused> {
        let answer = self.monitor(&String::from_utf8_lossy(command));
        out.write_raw(answer.as_bytes());
        Ok(())
    }
}
