//! Debug registers, breakpoints and single-stepping (SDM 3B chapter 18).

use iced_x86::Instruction;

use super::deliver::{Event, Source};
use crate::architectural::Architectural;
use crate::exception::{Exception, Trap, Vector};
use crate::interpret::{gp0, ud};
use crate::memory::{Access, Linear};
use crate::state::cr4;

/// DR6: B0 to B3.
const HIT_MASK: u64 = 0xf;
/// DR6: an access to the debug registers was detected.
const ACCESS_DETECTED: u64 = 1 << 13;
/// DR6: single step.
const SINGLE_STEP: u64 = 1 << 14;
/// DR6: task switch.
const TASK_SWITCH: u64 = 1 << 15;
/// DR6: bits that are always 1.
const DR6_FIXED: u64 = 0xffff_0ff0;
/// DR7: the bit that is always 1.
const DR7_FIXED: u64 = 1 << 10;
/// DR7: general detect enable.
const GENERAL_DETECT: u64 = 1 << 13;
/// DR7: bits that software can set.
const DR7_DEFINED: u64 = 0xffff_2bff;

/// What a breakpoint watches: the R/W field of DR7.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watch {
    Execute,
    Write,
    Port,
    ReadWrite,
}

/// Breakpoints that have been hit and are to be reported.
#[derive(Debug, Default)]
pub(super) struct DebugState {
    hits: u64,
    deferred: bool,
}

impl DebugState {
    pub(super) fn save(&self) -> (u64, bool) {
        (self.hits, self.deferred)
    }

    pub(super) fn restored(hits: u64, deferred: bool) -> Self {
        Self { hits, deferred }
    }

    pub(super) fn begin_instruction(&mut self) {
        if !std::mem::take(&mut self.deferred) {
            self.hits = 0;
        }
    }

    pub(super) fn defer(&mut self) {
        self.deferred = self.hits != 0;
    }
}

/// The enabled breakpoints of DR7: number, kind and length.
fn enabled_breakpoints(dr7: u64) -> impl Iterator<Item = (usize, Watch, u64)> {
    (0..4).filter(move |number| dr7 >> (2 * number) & 3 != 0).map(move |number| {
        let field = dr7 >> (16 + 4 * number);
        let watch = match field & 3 {
            0 => Watch::Execute,
            1 => Watch::Write,
            2 => Watch::Port,
            _ => Watch::ReadWrite,
        };
        let length = [1, 2, 8, 4][(field >> 2 & 3) as usize];
        (number as usize, watch, length)
    })
}

impl Architectural {
    /// #DB if a breakpoint is on the instruction at CS:RIP.
    pub(crate) fn check_instruction_breakpoint(&self) -> Result<(), Trap> {
        let regs = &self.context.regs;
        let at = self.code_linear(regs.rip)?;
        let hits = enabled_breakpoints(regs.dr[7])
            .filter(|&(number, watch, _)| watch == Watch::Execute && regs.dr[number] == at.0)
            .fold(0, |hits, (number, ..)| hits | 1 << number);
        if hits == 0 {
            return Ok(());
        }
        Err(Exception { vector: Vector::Debug, error: None, payload: hits }.into())
    }

    /// Compare a data access with the breakpoints.
    pub(crate) fn note_data_access(&mut self, at: Linear, size: usize, access: Access) {
        let regs = &self.context.regs;
        let last = at.0.wrapping_add(size as u64);
        for (number, watch, length) in enabled_breakpoints(regs.dr[7]) {
            let matches =
                watch == Watch::ReadWrite || watch == Watch::Write && access == Access::Write;
            let start = regs.dr[number] & !(length - 1);
            if matches && at.0 < start.wrapping_add(length) && start < last {
                self.system.debug.hits |= 1 << number;
            }
        }
    }

    /// Whether a data breakpoint, or a watchpoint of a debugger's outside, lies in these bytes.
    pub(crate) fn is_watched(&self, at: Linear, size: usize) -> bool {
        if self.debugging.is_watched(at, size) {
            return true;
        }
        let regs = &self.context.regs;
        let last = at.0.wrapping_add(size as u64);
        enabled_breakpoints(regs.dr[7]).any(|(number, watch, length)| {
            let start = regs.dr[number] & !(length - 1);
            let is_data = matches!(watch, Watch::Write | Watch::ReadWrite);
            is_data && at.0 < start.wrapping_add(length) && start < last
        })
    }

    /// Whether the instruction at hand has hit a breakpoint so far.
    pub(crate) fn has_hit_breakpoint(&self) -> bool {
        self.system.debug.hits != 0 || self.debugging.has_hit()
    }

    /// Compare a port access with the breakpoints (CR4.DE).
    pub(crate) fn note_port_access(&mut self, port: u16, size: u8) {
        let regs = &self.context.regs;
        if regs.cr4 & cr4::DE == 0 {
            return;
        }
        let (first, last) = (u64::from(port), u64::from(port) + u64::from(size));
        for (number, watch, length) in enabled_breakpoints(regs.dr[7]) {
            let start = regs.dr[number] & !(length - 1);
            if watch == Watch::Port && first < start + length && start < last {
                self.system.debug.hits |= 1 << number;
            }
        }
    }

    /// Deliver the debug traps of the instruction that has just completed.
    pub(crate) fn deliver_debug_traps(&mut self, single_step: bool) -> Result<(), Trap> {
        let mut payload = self.system.debug.hits;
        if single_step {
            payload |= SINGLE_STEP;
        }
        if payload == 0 {
            return Ok(());
        }
        self.system.debug.hits = 0;
        self.record_debug_event(payload);
        self.statistics.exceptions += 1;
        let vector = Vector::Debug as u8;
        self.deliver_event(Event { vector, error: None, source: Source::Other })
    }

    /// `int1` after a load of SS is the debug exception that the hits of that load have waited for (SDM
    /// 3A 6.8.3): there is one, which says so, and not another on top of it, on the same stack.
    pub(crate) fn report_deferred_hits(&mut self) {
        let hits = std::mem::take(&mut self.system.debug.hits);
        if hits != 0 {
            self.record_debug_event(hits);
        }
    }

    /// The trap of a task switch to a TSS whose T flag is set.
    pub(super) fn note_task_trap(&mut self) {
        self.system.debug.hits |= TASK_SWITCH;
    }

    /// Put the cause of a #DB into DR6; the handler may use the debug registers.
    pub(super) fn record_debug_event(&mut self, payload: u64) {
        let regs = &mut self.context.regs;
        regs.dr[6] = regs.dr[6] & !HIT_MASK | payload;
        regs.dr[7] &= !GENERAL_DETECT;
    }

    /// The number of a debug register, 4 and 5 being other names of 6 and 7 (SDM 3B 18.2.2).
    fn debug_register(&self, number: usize) -> Result<usize, Trap> {
        if !matches!(number, 4 | 5) {
            return if number < 8 { Ok(number) } else { Err(ud()) };
        }
        if self.context.regs.cr4 & cr4::DE != 0 {
            return Err(ud());
        }
        Ok(number + 2)
    }

    fn check_debug_access(&self) -> Result<(), Trap> {
        if self.context.regs.dr[7] & GENERAL_DETECT != 0 {
            let payload = ACCESS_DETECTED;
            return Err(Exception { vector: Vector::Debug, error: None, payload }.into());
        }
        Ok(())
    }

    /// `mov r, dr`.
    pub(crate) fn move_from_debug(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        self.require_ring_0()?;
        let number = self.debug_register(instruction.op1_register().number())?;
        self.check_debug_access()?;
        let value = self.context.regs.dr[number];
        self.set_register(instruction.op0_register(), value);
        Ok(())
    }

    /// `mov dr, r`.
    pub(crate) fn move_to_debug(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        self.require_ring_0()?;
        let number = self.debug_register(instruction.op0_register().number())?;
        self.check_debug_access()?;
        let value = self.register_value(instruction.op1_register());
        if number >= 6 && value >> 32 != 0 {
            return Err(gp0());
        }
        self.context.regs.dr[number] = match number {
            6 => DR6_FIXED | value & (HIT_MASK | ACCESS_DETECTED | SINGLE_STEP | TASK_SWITCH),
            7 => DR7_FIXED | value & DR7_DEFINED,
            _ => value,
        };
        Ok(())
    }
}
