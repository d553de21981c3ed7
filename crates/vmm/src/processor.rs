//! What a machine needs of a processor: the contract behind which another engine (hardware
//! virtualization, a scripted fake in tests) can stand.
//!
//! One pass of the run loop is: [`Processor::inject_nmi`], [`Processor::inject_interrupt`] or
//! [`Processor::request_interrupt_window`], then [`Processor::run`], then exactly one answer if the
//! exit asks for one.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use cpu::{Exit, Vcpu};
use machine::saved::{CounterShift, Parts, Unfit};

use crate::xen_vcpu::EngineVcpu;

/// The kind of a processor's saved state.
const CPU: &str = "x86-cpu";

/// The kind of what a processor has in the mode for paravirtual kernels.
const PARAVIRTUAL: &str = "x86-xen";

/// The kind of its open ports, if it has such.
const PORTS: &str = "x86-xen-ports";

/// What a processor has in the mode for paravirtual kernels, and its open ports.
type Paravirtual = (cpu::SavedParavirtual, Option<(u64, u32)>);

/// The state of a processor that [`Processor::save`] has given.
///
/// # Errors
///
/// [`Unfit`] when it is none, or of a version that is not known here.
pub(crate) fn saved_cpu(state: &[u8]) -> Result<cpu::Saved, Unfit> {
    Ok(saved_parts(state)?.0)
}

/// The same, and what it has in the mode for paravirtual kernels.
fn saved_parts(state: &[u8]) -> Result<(cpu::Saved, Option<Paravirtual>), Unfit> {
    let mut parts = Parts::from_bytes(state, "a processor")?;
    let cpu = parts.take(CPU)?;
    let paravirtual: Option<cpu::SavedParavirtual> =
        parts.has(PARAVIRTUAL).then(|| parts.take(PARAVIRTUAL)).transpose()?;
    let ports = parts.has(PORTS).then(|| parts.take(PORTS)).transpose()?;
    parts.finish()?;
    Ok((cpu, paravirtual.map(|paravirtual| (paravirtual, ports))))
}

/// Makes a processor's [`Processor::run`] return soon; from any thread.
pub trait Kick: Debug + Send + Sync {
    /// Ask the processor to come back, from its next `run` if it is not running.
    fn kick(&self);
}

impl Kick for cpu::Kick {
    fn kick(&self) {
        cpu::Kick::kick(self);
    }
}

/// Runs guest code until something happens that it cannot do itself.
pub trait Processor: Send {
    /// Run until an exit.
    ///
    /// # Errors
    ///
    /// The host's refusal to run guest code.
    fn run(&mut self) -> Result<Exit, cpu::Error>;

    /// Answer an exit that asked for a value.
    fn complete_read(&mut self, value: u64);

    /// Say that the platform register was written.
    fn complete_write_msr(&mut self);

    /// Say that the platform register does not exist, or not with that value.
    fn fail_msr(&mut self);

    /// Whether RFLAGS.IF is set: while it is not, no interrupt ends a halt (SDM 2A, "HLT").
    fn has_interrupts_enabled(&self) -> bool;

    /// Whether an interrupt would be taken before the next instruction.
    fn can_inject_interrupt(&self) -> bool;

    /// Have an interrupt delivered; only when [`Self::can_inject_interrupt`].
    fn inject_interrupt(&mut self, vector: u8);

    /// Have a non-maskable interrupt delivered as soon as none is being handled.
    fn inject_nmi(&mut self);

    /// Ask for [`Exit::InterruptWindow`] when an interrupt can be injected, or no longer.
    fn request_interrupt_window(&mut self, wanted: bool);

    /// What the guest has added to its time-stamp counter.
    fn tsc_offset(&self) -> u64;

    /// Take INIT.
    fn initialize(&mut self);

    /// Take a start-up message: go on in real mode at the start of this page.
    fn start_at(&mut self, page: u8);

    /// End a halt without an interrupt.
    fn end_halt(&mut self);

    /// Forget all address translations.
    fn forget_addresses(&mut self);

    /// The calling thread will not run the processor again, or not soon.
    fn leave_thread(&mut self);

    /// Have [`Self::run`] return with [`Exit::Kicked`] once `after` has passed, from its next call if it is not
    /// running then. It replaces an alarm that was set before.
    ///
    /// # Errors
    ///
    /// The host's refusal to let the calling thread run a processor.
    fn set_alarm(&mut self, after: Duration) -> Result<(), cpu::Error>;

    /// Set no alarm any more.
    fn clear_alarm(&mut self);

    /// Whether the alarm has gone off since this was asked last.
    fn take_alarm(&mut self) -> bool;

    /// Time of the host's cores that was spent on guest code outside the thread that runs the
    /// processor.
    fn computed_elsewhere(&mut self) -> Duration;

    /// The processor as a board with Xen's paravirtual interface sees it, if it has a mode for that.
    fn xen(&mut self) -> Option<EngineVcpu<'_>> {
        None
    }

    /// The engine, for a debugger, if it is one that can be debugged.
    fn engine(&mut self) -> Option<&mut Vcpu> {
        None
    }

    /// What a processor that goes on from here has to know.
    fn save(&self) -> Vec<u8>;

    /// Go on from there, with a time-stamp counter that goes on where it was.
    ///
    /// # Errors
    ///
    /// [`Unfit`] when that is no state of such a processor.
    fn restore(&mut self, state: &[u8], shift: CounterShift) -> Result<(), Unfit>;

    /// The state that a shutdown leaves behind, for people.
    fn describe(&self) -> String;

    /// Something that makes [`Self::run`] return.
    fn kick_handle(&self) -> Arc<dyn Kick>;
}

impl Processor for Vcpu {
    fn run(&mut self) -> Result<Exit, cpu::Error> {
        Vcpu::run(self)
    }

    fn complete_read(&mut self, value: u64) {
        Vcpu::complete_read(self, value);
    }

    fn complete_write_msr(&mut self) {
        Vcpu::complete_write_msr(self);
    }

    fn fail_msr(&mut self) {
        Vcpu::fail_msr(self);
    }

    fn has_interrupts_enabled(&self) -> bool {
        self.registers().interrupt_flag != 0
    }

    fn can_inject_interrupt(&self) -> bool {
        Vcpu::can_inject_interrupt(self)
    }

    fn inject_interrupt(&mut self, vector: u8) {
        Vcpu::inject_interrupt(self, vector);
    }

    fn inject_nmi(&mut self) {
        Vcpu::inject_nmi(self);
    }

    fn request_interrupt_window(&mut self, wanted: bool) {
        Vcpu::request_interrupt_window(self, wanted);
    }

    fn tsc_offset(&self) -> u64 {
        self.registers().tsc_offset
    }

    fn initialize(&mut self) {
        Vcpu::initialize(self);
    }

    fn start_at(&mut self, page: u8) {
        Vcpu::start_at(self, page);
    }

    fn end_halt(&mut self) {
        Vcpu::end_halt(self);
    }

    fn forget_addresses(&mut self) {
        Vcpu::forget_addresses(self);
    }

    fn leave_thread(&mut self) {
        Vcpu::leave_thread(self);
    }

    fn set_alarm(&mut self, after: Duration) -> Result<(), cpu::Error> {
        Vcpu::set_alarm(self, after)
    }

    fn clear_alarm(&mut self) {
        Vcpu::clear_alarm(self);
    }

    #[inline]
    fn take_alarm(&mut self) -> bool {
        Vcpu::take_alarm(self)
    }

    fn computed_elsewhere(&mut self) -> Duration {
        Vcpu::helpers_time(self)
    }

    fn xen(&mut self) -> Option<EngineVcpu<'_>> {
        Some(EngineVcpu(self))
    }

    fn engine(&mut self) -> Option<&mut Vcpu> {
        Some(self)
    }

    fn save(&self) -> Vec<u8> {
        let mut parts = Parts::default();
        parts.add(CPU, 1, &Vcpu::save(self));
        if let Some(paravirtual) = self.save_paravirtual() {
            parts.add(PARAVIRTUAL, 1, &paravirtual);
        }
        if let Some(ports) = self.open_ports() {
            parts.add(PORTS, 1, &ports);
        }
        parts.to_bytes()
    }

    fn restore(&mut self, state: &[u8], shift: CounterShift) -> Result<(), Unfit> {
        let unfit = |unfit: cpu::Unfit| Unfit::State(unfit.to_string());
        let (state, paravirtual) = saved_parts(state)?;
        Vcpu::restore(self, state, shift.guest).map_err(unfit)?;
        match paravirtual {
            Some((state, ports)) => {
                let (bitmap, count) = ports.unwrap_or_default();
                self.set_open_ports(bitmap, count);
                self.restore_paravirtual(state).map_err(unfit)
            }
            None => Ok(()),
        }
    }

    fn describe(&self) -> String {
        let regs = self.registers();
        format!(
            "rip={:#x} rsp={:#x} cr0={:#x} cr2={:#x} cr3={:#x} cr4={:#x} cpl={}\n{}",
            regs.rip,
            regs.gpr[4],
            regs.cr0,
            regs.cr2,
            regs.cr3,
            regs.cr4,
            regs.cpl,
            self.history()
        )
    }

    fn kick_handle(&self) -> Arc<dyn Kick> {
        Arc::new(Vcpu::kick_handle(self))
    }
}
