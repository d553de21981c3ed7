//! Where a processor is plugged in: its local APIC, its paravirtual registers, and its way to the
//! chip set.
//!
//! A processor's thread takes its socket once and keeps it while it runs the guest. What concerns
//! the processor alone costs no lock then; what concerns the chip set locks that for one access.

use std::sync::MutexGuard;

use vm_memory::GuestAddress;

use super::Platform;
use super::chipset::{is_whole, part_of};
use crate::bus::Size;
use crate::interrupts::{Effect, Fault, LocalApic, StartUp};
use crate::layout::APIC_BYTES;
use crate::paravirtual::{self, Answer, Call, msr};
use crate::time::Nanoseconds;

/// IA32_APIC_BASE.
const APIC_BASE: u32 = 0x1b;
/// IA32_TSC_DEADLINE.
const TSC_DEADLINE: u32 = 0x6e0;
/// The x2APIC's registers.
const X2APIC: std::ops::RangeInclusive<u32> = 0x800..=0x8ff;

/// What belongs to one processor alone.
pub(super) struct Local {
    pub apic: LocalApic,
    pub paravirtual: paravirtual::Processor,
}

/// What waits for a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pending {
    /// A vector of the local APIC.
    Vector,
    /// Something of the 8259 pair, whose vector is not known before it is acknowledged.
    External,
}

/// A processor's place in the platform.
pub struct Socket<'a> {
    pub(super) platform: &'a Platform,
    pub(super) number: usize,
    pub(super) local: MutexGuard<'a, Local>,
}

impl Socket<'_> {
    /// The processor's number, which is its APIC id.
    pub fn number(&self) -> usize {
        self.number
    }

    // Interrupts.

    /// Whether an interrupt is to be delivered, if the processor can take one.
    #[inline]
    pub fn has_interrupt(&mut self) -> bool {
        self.pending().is_some()
    }

    /// The interrupt acknowledge cycle: the vector to deliver, which is in service from now on.
    #[inline]
    pub fn acknowledge(&mut self) -> Option<u8> {
        match self.pending()? {
            Pending::Vector => self.local.apic.acknowledge(),
            Pending::External => {
                self.local.apic.external_acknowledged();
                let user = Some(self.number);
                let acknowledge =
                    |chipset: &mut super::Chipset| chipset.controllers.acknowledge_pic();
                Some(self.platform.with_chipset(user, acknowledge))
            }
        }
    }

    #[inline]
    fn pending(&mut self) -> Option<Pending> {
        if self.platform.board.has_changes() {
            self.platform.with_chipset(Some(self.number), |_| ());
        }
        let apic = &mut self.local.apic;
        apic.absorb();
        if apic.takes_external(self.platform.router.intr()) {
            return Some(Pending::External);
        }
        apic.pending().map(|_| Pending::Vector)
    }

    /// A non-maskable interrupt to deliver, once.
    #[inline]
    pub fn take_nmi(&mut self) -> bool {
        self.local.apic.absorb();
        self.local.apic.take_non_maskable()
    }

    /// INIT and the start-up message, each once.
    #[inline]
    pub fn take_start_up(&mut self) -> Option<StartUp> {
        self.local.apic.absorb();
        self.local.apic.take_start_up()
    }

    /// Whether the processor is to do nothing until a start-up message comes.
    #[inline]
    pub fn waits_for_start_up(&self) -> bool {
        self.local.apic.waits_for_start_up()
    }

    /// Whether another processor has ended the halt in which this one is or comes to next, once.
    #[inline]
    pub fn take_unhalt(&mut self) -> bool {
        self.local.apic.take_unhalt()
    }

    /// CR8.
    #[inline]
    pub fn tpr_read(&mut self) -> u8 {
        self.local.apic.task_priority_class()
    }

    /// CR8: bits 3:0 of `class` count.
    #[inline]
    pub fn tpr_write(&mut self, class: u8) {
        self.local.apic.set_task_priority_class(class & 0xf);
    }

    // Time.

    /// When [`Self::advance`] next has something to do. The first processor also looks after the
    /// chip set's timers.
    #[inline]
    pub fn next_deadline(&self) -> Option<Nanoseconds> {
        let own = self.local.apic.next_deadline();
        let all = if self.number == 0 { own.min(self.platform.deadline()) } else { own };
        all.as_deadline()
    }

    /// Do what is due at `now`; cheap when nothing is.
    #[inline]
    pub fn advance(&mut self, now: Nanoseconds) {
        if now >= self.local.apic.next_deadline() {
            self.local.apic.advance(now);
        }
        if self.number == 0 && now >= self.platform.deadline() {
            self.platform.with_chipset(Some(0), |chipset| chipset.expire(now));
        }
    }

    /// What the guest has added to this processor's time-stamp counter (IA32_TSC, IA32_TSC_ADJUST).
    #[inline]
    pub fn set_tsc_offset(&mut self, offset: u64) {
        self.local.apic.set_tsc_offset(offset);
        self.local.paravirtual.set_tsc_offset(offset, self.platform);
    }

    /// The machine has stood still until now: the guest is to take that for nobody's fault.
    pub fn has_been_stopped(&mut self) {
        self.local.paravirtual.has_been_stopped(self.platform);
    }

    /// Push the power button: a guest that handles it shuts down.
    pub fn press_power_button(&mut self) {
        self.platform.press_button_by(Some(self.number));
    }

    // Around guest code.

    /// The processor is about to run guest code.
    #[inline]
    pub fn enter(&mut self) {
        let Local { apic, paravirtual } = &mut *self.local;
        paravirtual.end.offer(apic, &*self.platform.memory);
    }

    /// The processor has come out of guest code.
    #[inline]
    pub fn leave(&mut self) {
        let Local { apic, paravirtual } = &mut *self.local;
        paravirtual.end.collect(apic, &*self.platform.memory);
    }

    /// The processor's thread is about to sleep: other processors need not wait for it.
    pub fn fall_asleep(&mut self) {
        self.local.paravirtual.steal.fall_asleep(&*self.platform.memory);
    }

    /// It has slept; whether it must forget all address translations before it goes on, because
    /// another processor has asked for that meanwhile.
    pub fn wake_up(&mut self) -> bool {
        self.local.paravirtual.steal.wake_up(&*self.platform.memory)
    }

    /// Whether the guest wants to know how much time this processor was denied.
    pub fn counts_stolen_time(&self) -> bool {
        self.local.paravirtual.steal.is_enabled()
    }

    /// This much time in all has the processor's thread waited for a core.
    pub fn set_stolen_time(&mut self, total: Nanoseconds) {
        self.local.paravirtual.steal.set_total(total, &*self.platform.memory);
    }

    /// A call by the guest (Linux, Documentation/virt/kvm/x86/hypercalls.rst).
    pub fn hypercall(&mut self, call: &Call) -> Answer {
        paravirtual::call(call, self.number, &self.platform.router)
    }

    // Buses.

    /// `in`: `size` is 1, 2 or 4.
    #[inline]
    pub fn port_read(&mut self, port: u16, size: u8) -> u32 {
        self.platform.with_chipset(Some(self.number), |chipset| chipset.port_read(port, size))
    }

    /// `out`: `size` is 1, 2 or 4.
    #[inline]
    pub fn port_write(&mut self, port: u16, size: u8, value: u32) {
        let user = Some(self.number);
        self.platform.with_chipset(user, |chipset| chipset.port_write(port, size, value));
    }

    /// A load of `size` bytes where no RAM is: 1, 2, 4 or 8.
    #[inline]
    pub fn mmio_read(&mut self, address: GuestAddress, size: u8) -> u64 {
        let Some(size) = Size::from_bytes(size) else { return u64::MAX };
        let apic = &mut self.local.apic;
        if apic.is_at(address.0) {
            apic.absorb();
            let within = address.0 & (APIC_BYTES - 1);
            let register = apic.read_mmio(within as u32 & !3, &*self.platform.clock);
            return part_of(register, within, size);
        }
        self.platform.with_chipset(Some(self.number), |chipset| chipset.mmio_read(address, size))
    }

    /// A store of `size` bytes where no RAM is: 1, 2, 4 or 8.
    #[inline]
    pub fn mmio_write(&mut self, address: GuestAddress, size: u8, value: u64) {
        let Some(size) = Size::from_bytes(size) else { return };
        let apic = &mut self.local.apic;
        if !apic.is_at(address.0) {
            let user = Some(self.number);
            let store = |chipset: &mut super::Chipset| chipset.mmio_write(address, size, value);
            return self.platform.with_chipset(user, store);
        }
        let within = address.0 & (APIC_BYTES - 1);
        if is_whole(within, size) && within & 0xf == 0 {
            apic.absorb();
            let effect = apic.write_mmio(within as u32, value as u32, &*self.platform.clock);
            self.carry_out(effect);
        }
    }

    // Model-specific registers.

    /// `rdmsr`.
    ///
    /// # Errors
    ///
    /// [`Fault`] where there is no such register, or not in this mode.
    #[inline]
    pub fn msr_read(&mut self, index: u32) -> Result<u64, Fault> {
        let clock = &*self.platform.clock;
        let Local { apic, paravirtual } = &mut *self.local;
        match index {
            APIC_BASE => Ok(apic.base()),
            TSC_DEADLINE => Ok(apic.tsc_deadline(clock)),
            _ if X2APIC.contains(&index) => {
                apic.absorb();
                apic.read_msr(index, clock)
            }
            _ => paravirtual.read(index, self.platform),
        }
    }

    /// `wrmsr`.
    ///
    /// # Errors
    ///
    /// [`Fault`] where there is no such register, or it cannot have that value.
    #[inline]
    pub fn msr_write(&mut self, index: u32, value: u64) -> Result<(), Fault> {
        let clock = &*self.platform.clock;
        let Local { apic, paravirtual } = &mut *self.local;
        match index {
            TSC_DEADLINE => apic.set_tsc_deadline(value, clock),
            APIC_BASE => apic.set_base(value)?,
            _ if X2APIC.contains(&index) => {
                apic.absorb();
                let effect = apic.write_msr(index, value, clock)?;
                self.carry_out(effect);
            }
            _ => return paravirtual.write(index, value, self.platform),
        }
        Ok(())
    }

    /// Do what an access to the local APIC asks for.
    #[inline]
    fn carry_out(&mut self, effect: Effect) {
        let user = Some(self.number);
        match effect {
            Effect::None => {}
            Effect::Send(message) => self.platform.router.send(&message, user),
            Effect::End(vector) => self
                .platform
                .with_chipset(user, |chipset| chipset.controllers.end_of_interrupt(vector)),
        }
    }
}

/// Whether a model-specific register is one of the platform's.
pub(super) const fn has_msr(index: u32) -> bool {
    matches!(
        index,
        APIC_BASE | TSC_DEADLINE | 0x800
            ..=0x8ff
                | msr::WALL_CLOCK_OLD
                | msr::SYSTEM_TIME_OLD
                | msr::WALL_CLOCK
                | msr::SYSTEM_TIME
                | msr::STEAL_TIME
                | msr::END_OF_INTERRUPT
    )
}
