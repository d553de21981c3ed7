//! The interpreter: one guest instruction at a time, in any mode of the processor.
//!
//! It is the authority on what an instruction means. The translator copies what [`may_run_natively`]
//! admits and leaves the rest to [`Architectural::step`]. What it is not: an arithmetic unit. Innocuous
//! instructions run on the host's CPU ([`Architectural::execute_native`]); this module has routines only for
//! instructions that depend on, or change, the state of the processor beyond registers, flags and one explicit
//! memory operand. The class table (instruction/class.rs) says which routine an instruction has.
//!
//! Rules:
//!
//! 1. *All or nothing.* An instruction that does not complete leaves no trace in the registers:
//!    [`Architectural::step`] keeps a copy and puts it back. Handlers check before they write memory.
//! 2. *Default deny.* An instruction without a routine that may not run natively, or whose CPUID feature is
//!    not announced, is #UD.
//! 3. *Events belong to boundaries.* [`Architectural::step`] handles interrupt shadows, RF, single-step and
//!    data breakpoints, and no other function does (SDM 3A 6.8, 6.9; 3B 18.3).

mod alignment;
mod control;
mod far;
mod features;
mod gather;
mod iret;
mod legacy;
mod masked;
mod operand;
mod port;
mod sensitive;
mod stack;
mod string;
mod suppression;
mod syscall;
#[cfg(test)]
mod tests;
mod vector;

pub(crate) use operand::{gp0, merge, ud};
pub(crate) use vector::can_be_loaded;

use iced_x86::{Decoder, DecoderError, Instruction, Mnemonic};

use crate::architectural::Architectural;
use crate::exception::{Exception, Trap};
use crate::exit::Exit;
use crate::instruction::{Class, class_of, has_masked_memory, may_run_natively};
use crate::memory::{Access, Linear, Privilege};
use crate::state::{CodeSize, SegmentRegister, rflags};
use crate::system::cpuid::decoder_options;

/// What carries out an instruction. RIP is already that of the next instruction.
type Routine = fn(&mut Architectural, &Instruction) -> Result<(), Trap>;

/// Longest instruction (SDM 2A 2.3.11).
const MAX_INSTRUCTION_BYTES: usize = 15;

/// What carries out the instructions of a class; none for those that the host's processor does.
fn routine(class: Class) -> Option<Routine> {
    Some(match class {
        Class::Plain => return None,
        Class::JumpConditionally => Architectural::jump_conditionally,
        Class::JumpNear => Architectural::jump_near,
        Class::CallNear => Architectural::call_near,
        Class::FarDirect => Architectural::far_direct,
        Class::FarIndirect => Architectural::far_indirect,
        Class::ReturnNear => Architectural::return_near,
        Class::ReturnFar => Architectural::return_far,
        Class::Loop => Architectural::loop_near,
        Class::JumpIfCounterZero => Architectural::jump_if_counter_zero,
        Class::InterruptReturn => Architectural::interrupt_return,
        Class::SoftwareInterrupt => Architectural::software_interrupt,
        Class::Syscall => Architectural::syscall,
        Class::Sysret => Architectural::sysret,
        Class::Sysenter => Architectural::sysenter,
        Class::Sysexit => Architectural::sysexit,
        Class::Undefined => Architectural::undefined,
        Class::Push => Architectural::push_operand,
        Class::Pop => Architectural::pop_operand,
        Class::PushAll => Architectural::push_all,
        Class::PopAll => Architectural::pop_all,
        Class::PushFlags => Architectural::push_flags,
        Class::PopFlags => Architectural::pop_flags,
        Class::EnterFrame => Architectural::enter_frame,
        Class::LeaveFrame => Architectural::leave_frame,
        Class::String => Architectural::string_instruction,
        Class::Port => Architectural::port_instruction,
        Class::InterruptFlag => Architectural::change_interrupt_flag,
        Class::AlignmentFlag => Architectural::change_alignment_flag,
        Class::Halt => Architectural::halt,
        Class::Identify => Architectural::identify,
        Class::CallHypervisor => Architectural::call_hypervisor,
        Class::TimeStamp => Architectural::read_time_stamp,
        Class::TimeStampAndProcessor => Architectural::read_time_stamp_and_processor,
        Class::Processor => Architectural::read_processor,
        Class::PerformanceCounter => Architectural::read_performance_counter,
        Class::Hint | Class::NoOperation => Architectural::no_operation,
        Class::LoadEffectiveAddress => Architectural::load_effective_address,
        Class::FlushLine => Architectural::flush_line,
        Class::FlushCaches => Architectural::flush_caches,
        _ => return system_routine(class),
    })
}

/// The same for the system side.
fn system_routine(class: Class) -> Option<Routine> {
    Some(match class {
        Class::MoveToSegment => Architectural::move_to_segment,
        Class::StoreSegment => Architectural::store_segment,
        Class::MoveToControl => Architectural::move_to_control,
        Class::MoveFromControl => Architectural::move_from_control,
        Class::MoveToDebug => Architectural::move_to_debug,
        Class::MoveFromDebug => Architectural::move_from_debug,
        Class::NoSuchRegister => Architectural::no_such_register,
        Class::LoadFarPointer => Architectural::load_far_pointer,
        Class::LoadTable => Architectural::load_table,
        Class::StoreTable => Architectural::store_table,
        Class::StoreSystemSelector => Architectural::store_system_selector,
        Class::LoadLocalTable => Architectural::load_local_table,
        Class::LoadTaskRegister => Architectural::load_task_register,
        Class::LoadAccessRights => Architectural::load_access_rights,
        Class::LoadSegmentLimit => Architectural::load_segment_limit,
        Class::VerifySegment => Architectural::verify_segment,
        Class::AdjustRpl => Architectural::adjust_rpl,
        Class::StoreMachineStatus => Architectural::store_machine_status,
        Class::LoadMachineStatus => Architectural::load_machine_status,
        Class::ClearTaskSwitched => Architectural::clear_task_switched,
        Class::InvalidatePage => Architectural::invalidate_page,
        Class::InvalidatePcid => Architectural::invalidate_pcid,
        Class::SwapGs => Architectural::swap_gs,
        Class::ReadMsr => Architectural::read_msr_instruction,
        Class::WriteMsr => Architectural::write_msr_instruction,
        Class::ReadSegmentBase => Architectural::read_segment_base,
        Class::WriteSegmentBase => Architectural::write_segment_base,
        Class::GetExtendedControl => Architectural::get_extended_control,
        Class::SetExtendedControl => Architectural::set_extended_control,
        _ => return rare_routine(class),
    })
}

/// The same for what 64-bit mode lacks, and for extended state and vectors.
fn rare_routine(class: Class) -> Option<Routine> {
    Some(match class {
        Class::AsciiAdjust => Architectural::ascii_adjust,
        Class::DecimalAdjust => Architectural::decimal_adjust,
        Class::AsciiAdjustProduct => Architectural::ascii_adjust_product,
        Class::AsciiAdjustDividend => Architectural::ascii_adjust_dividend,
        Class::CheckBounds => Architectural::check_bounds,
        Class::SetAlFromCarry => Architectural::set_al_from_carry,
        Class::TranslateByte => Architectural::translate_byte,
        Class::Fxsave => Architectural::fxsave,
        Class::Fxrstor => Architectural::fxrstor,
        Class::Xsave => Architectural::xsave,
        Class::Xrstor => Architectural::xrstor,
        Class::ClearVectors => Architectural::clear_vectors,
        Class::MoveBySign => Architectural::move_by_sign,
        Class::StoreBytesBySign => Architectural::store_bytes_by_sign,
        Class::Gather => Architectural::gather,
        Class::Scatter => Architectural::scatter,
        _ => return None,
    })
}

impl Architectural {
    /// Execute one instruction, with the traps that follow it.
    ///
    /// # Errors
    ///
    /// The exception to deliver or the exit to take. Nothing has changed then, except that after
    /// [`Exit::Halt`] and [`Exit::Shutdown`] the instruction is complete.
    pub(crate) fn step(&mut self) -> Result<(), Trap> {
        self.attempt(Self::execute_one)
    }

    /// Execute one instruction that has been fetched and decoded at RIP already, with no
    /// breakpoint set.
    ///
    /// # Errors
    ///
    /// As [`Self::step`].
    pub(crate) fn step_decoded(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        self.count(instruction);
        self.attempt(|cpu| cpu.execute_decoded(instruction))
    }

    /// The same for an instruction of a block that goes on after it (translate/assist.rs).
    ///
    /// # Errors
    ///
    /// As [`Self::step`].
    pub(crate) fn step_assisted(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        self.count_assisted(instruction);
        self.attempt(|cpu| cpu.execute_decoded(instruction))
    }

    fn attempt(&mut self, act: impl FnOnce(&mut Self) -> Result<(), Trap>) -> Result<(), Trap> {
        let before = self.context.regs;
        self.system.begin_instruction();
        self.debugging.forget_hit();
        let result = act(self);
        match result {
            Ok(()) | Err(Trap::Exit(Exit::Halt | Exit::Shutdown)) => {}
            Err(_) => {
                self.context.regs = before;
                self.debugging.forget_hit();
            }
        }
        result
    }

    fn execute_one(&mut self) -> Result<(), Trap> {
        let regs = &mut self.context.regs;
        let flags = regs.rflags();
        // Intel's processors execute the instruction after a load of SS as if RF were set (SDM 3B
        // 18.3.1.1). AMD's do not: the APM has no such rule, and Zen 5 reports the breakpoint.
        let suppressed = regs.debug_shadow != 0 && !self.system.is_amd();
        if regs.dr[7] & 0xff != 0 && flags & rflags::RF == 0 && !suppressed {
            self.check_instruction_breakpoint()?;
        }
        let instruction = self.fetch_instruction()?;
        self.count(&instruction);
        self.execute_decoded(&instruction)
    }

    fn execute_decoded(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let flags = self.context.regs.rflags();
        self.check_available(instruction)?;
        let next = self.truncate_rip(instruction.next_ip());
        let regs = &mut self.context.regs;
        regs.interrupt_shadow = 0;
        regs.debug_shadow = 0;
        regs.rip = next;
        self.execute(instruction)?;
        self.finish(instruction, flags)
    }

    fn execute(&mut self, instruction: &Instruction) -> Result<(), Trap> {
        let class = class_of(instruction.code());
        if self.paravirtual.is_some()
            && let Some(result) = self.paravirtual_instruction(class, instruction)
        {
            return result;
        }
        if let Some(routine) = routine(class) {
            return routine(self, instruction);
        }
        if has_masked_memory(instruction) {
            return self.masked_operand(instruction);
        }
        if !may_run_natively(instruction) {
            return Err(Exception::invalid_opcode().into());
        }
        self.check_alignment(instruction)?;
        self.execute_native(instruction)
    }

    /// RIP as the code size has it.
    pub(super) fn truncate_rip(&self, rip: u64) -> u64 {
        match self.context.regs.code_size() {
            CodeSize::Bits64 => rip,
            CodeSize::Bits32 => rip & 0xffff_ffff,
            CodeSize::Bits16 if self.context.regs.real_or_v86() => rip & 0xffff,
            CodeSize::Bits16 => rip & 0xffff_ffff,
        }
    }

    /// Fetch and decode the instruction at CS:RIP.
    pub(crate) fn fetch_instruction(&mut self) -> Result<Instruction, Trap> {
        let mut bytes = [0; MAX_INSTRUCTION_BYTES];
        let length = self.fetch(&mut bytes)?;
        let rip = self.context.regs.rip;
        let bits = self.context.regs.code_bits();
        let mut decoder = Decoder::with_ip(bits, &bytes[..length], rip, decoder_options());
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return Err(self.undecodable(
                decoder.last_error(),
                length,
                decoder.position() == length,
            ));
        }
        self.segmented(SegmentRegister::Cs, rip, instruction.len() as u32, Access::Execute)?;
        Ok(instruction)
    }

    /// Why `length` fetched bytes are not an instruction; `at_end` when all of them were looked at.
    fn undecodable(&mut self, error: DecoderError, length: usize, at_end: bool) -> Trap {
        if length == MAX_INSTRUCTION_BYTES && at_end {
            return Exception::general_protection(0).into();
        }
        if error != DecoderError::NoMoreBytes {
            return Exception::invalid_opcode().into();
        }
        // The bytes ended where the page does: the fault is that of the next page.
        let next = self.context.regs.rip.wrapping_add(length as u64);
        let fault = self
            .segmented(SegmentRegister::Cs, next, 1, Access::Execute)
            .map_err(Trap::from)
            .and_then(|at: Linear| self.probe_linear(at, 1, Access::Execute, Privilege::Current));
        fault.err().unwrap_or(Exception::general_protection(0).into())
    }

    /// What happens between an instruction that has completed and the next one.
    fn finish(&mut self, instruction: &Instruction, flags_before: u64) -> Result<(), Trap> {
        let has_returned = self.system.has_returned();
        let loads_flag = has_returned || loads_resume_flag(instruction.mnemonic());
        if !self.system.repeating() && !loads_flag {
            let flags = self.context.regs.rflags();
            if flags & rflags::RF != 0 {
                self.context.regs.set_rflags(flags & !rflags::RF);
            }
        }
        if self.context.regs.debug_shadow != 0 {
            self.system.defer_debug_traps();
            return Ok(());
        }
        let flags = match trap_flag(instruction.mnemonic()) {
            _ if has_returned => 0,
            TrapFlag::Before => flags_before,
            TrapFlag::After => self.context.regs.rflags(),
            TrapFlag::Swallowed => 0,
        };
        self.deliver_debug_traps(flags & rflags::TF != 0)
    }
}

/// Instructions that load RF themselves, or leave it to the interrupted context.
fn loads_resume_flag(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{Iret, Iretd, Iretq, Sysret, Sysretq};
    matches!(mnemonic, Iret | Iretd | Iretq | Sysret | Sysretq)
}

/// Which TF decides whether a single-step trap follows an instruction.
enum TrapFlag {
    /// That at its start.
    Before,
    /// That at its end.
    After,
    /// None: on the way into a handler it is cleared.
    Swallowed,
}

/// Single-step traps follow the TF that an instruction starts with (SDM 3B 18.3.1.4), except for
/// `syscall` and `sysret`, which trap by what they leave: `sysret` to code with TF set before that
/// code's first instruction, and `syscall` with TF set at its target if FMASK spares TF (APM 3
/// "SYSCALL", "SYSRET"). `sysenter` leaves TF alone (SDM 2B "SYSENTER").
fn trap_flag(mnemonic: Mnemonic) -> TrapFlag {
    use Mnemonic::{Int, Int1, Int3, Into, Syscall, Sysret, Sysretq};
    match mnemonic {
        Int | Int1 | Int3 | Into => TrapFlag::Swallowed,
        Syscall | Sysret | Sysretq => TrapFlag::After,
        _ => TrapFlag::Before,
    }
}
