//! A vCPU's side of the PC: its local APIC, its paravirtual registers, and its way to the chip set.
//!
//! A vCPU's thread takes it once and keeps it while it runs the guest. What concerns
//! the processor alone costs no lock then; what concerns the chip set locks that for one access.

use std::ops::RangeInclusive;
use std::sync::MutexGuard;

use locks::Unpoisoned;
use vm_memory::GuestAddress;

use super::chipset::{Chipset, is_whole, part_of};
use super::local::Local;
use super::pc::Platform;
use crate::board::BoardVcpu;
use crate::bus::{Decoder, Size};
use crate::interrupts::{Effect, Fault, StartUp};
use crate::layout::APIC_BYTES;
use crate::paravirtual::{self, Answer, Call, msr};
use crate::saved::Busy;
use crate::time::Nanoseconds;

/// IA32_APIC_BASE.
const APIC_BASE: u32 = 0x1b;
/// IA32_TSC_DEADLINE.
const TSC_DEADLINE: u32 = 0x6e0;
/// The x2APIC's registers.
const X2APIC: RangeInclusive<u32> = 0x800..=0x8ff;

/// The board's model-specific registers ([`Board::MSRS`](crate::board::Board::MSRS)).
pub(super) const MSRS: [RangeInclusive<u32>; 6] = [
    X2APIC,
    TSC_DEADLINE..=TSC_DEADLINE,
    APIC_BASE..=APIC_BASE,
    msr::WALL_CLOCK..=msr::SYSTEM_TIME,
    msr::STEAL_TIME..=msr::END_OF_INTERRUPT,
    msr::WALL_CLOCK_OLD..=msr::SYSTEM_TIME_OLD,
];

/// What waits for a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pending {
    /// A vector of the local APIC.
    Vector,
    /// Something of the 8259 pair, whose vector is not known before it is acknowledged.
    External,
}

/// A processor's place in the platform.
pub struct PcVcpu<'a> {
    pub(super) platform: &'a Platform,
    pub(super) number: usize,
    pub(super) local: MutexGuard<'a, Local>,
}

impl<'a> PcVcpu<'a> {
    /// The side of the vCPU with this number, once no other thread has it.
    pub(super) fn take(platform: &'a Platform, number: usize) -> Self {
        Self { platform, number, local: platform.locals[number].lock().unpoisoned() }
    }

    #[inline]
    fn pending(&mut self) -> Option<Pending> {
        if self.platform.lines.has_changes() {
            self.platform.with_chipset(Some(self.number), |_| ());
        }
        let apic = &mut self.local.apic;
        apic.absorb();
        if apic.takes_external(self.platform.router.intr()) {
            return Some(Pending::External);
        }
        apic.pending().map(|_| Pending::Vector)
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

impl BoardVcpu for PcVcpu<'_> {
    fn number(&self) -> usize {
        self.number
    }

    #[inline]
    fn has_interrupt(&mut self) -> bool {
        self.pending().is_some()
    }

    #[inline]
    fn acknowledge(&mut self) -> Option<u8> {
        match self.pending()? {
            Pending::Vector => self.local.apic.acknowledge(),
            Pending::External => {
                self.local.apic.external_acknowledged();
                let user = Some(self.number);
                let acknowledge = |chipset: &mut Chipset| chipset.controllers.acknowledge_pic();
                Some(self.platform.with_chipset(user, acknowledge))
            }
        }
    }

    #[inline]
    fn take_nmi(&mut self) -> bool {
        self.local.apic.absorb();
        self.local.apic.take_non_maskable()
    }

    #[inline]
    fn take_start_up(&mut self) -> Option<StartUp> {
        self.local.apic.absorb();
        self.local.apic.take_start_up()
    }

    #[inline]
    fn waits_for_start_up(&self) -> bool {
        self.local.apic.waits_for_start_up()
    }

    #[inline]
    fn take_unhalt(&mut self) -> bool {
        self.local.apic.take_unhalt()
    }

    #[inline]
    fn tpr_read(&mut self) -> u8 {
        self.local.apic.task_priority_class()
    }

    #[inline]
    fn tpr_write(&mut self, class: u8) {
        self.local.apic.set_task_priority_class(class & 0xf);
    }

    #[inline]
    fn next_deadline(&self) -> Option<Nanoseconds> {
        let own = self.local.apic.next_deadline();
        let all = if self.number == 0 { own.min(self.platform.deadline()) } else { own };
        all.as_deadline()
    }

    #[inline]
    fn advance(&mut self, now: Nanoseconds) {
        if now >= self.local.apic.next_deadline() {
            self.local.apic.advance(now);
        }
        if self.number == 0 && now >= self.platform.deadline() {
            self.platform.with_chipset(Some(0), |chipset| chipset.expire(now));
        }
    }

    #[inline]
    fn set_tsc_offset(&mut self, offset: u64) {
        self.local.apic.set_tsc_offset(offset);
        self.local.paravirtual.set_tsc_offset(offset, self.platform.paravirtual());
    }

    fn has_been_stopped(&mut self) {
        self.local.paravirtual.has_been_stopped(self.platform.paravirtual());
    }

    fn press_power_button(&mut self) {
        self.platform.press_button_by(Some(self.number));
    }

    #[inline]
    fn enter(&mut self) {
        let Local { apic, paravirtual } = &mut *self.local;
        paravirtual.end.offer(apic, &*self.platform.memory);
    }

    #[inline]
    fn leave(&mut self) {
        let Local { apic, paravirtual } = &mut *self.local;
        paravirtual.end.collect(apic, &*self.platform.memory);
    }

    fn fall_asleep(&mut self) {
        self.local.paravirtual.steal.fall_asleep(&*self.platform.memory);
    }

    fn wake_up(&mut self) -> bool {
        self.local.paravirtual.steal.wake_up(&*self.platform.memory)
    }

    fn counts_stolen_time(&self) -> bool {
        self.local.paravirtual.steal.is_enabled()
    }

    fn set_stolen_time(&mut self, total: Nanoseconds) {
        self.local.paravirtual.steal.set_total(total, &*self.platform.memory);
    }

    fn hypercall(&mut self, call: &Call) -> Answer {
        paravirtual::call(call, self.number, &self.platform.router)
    }

    #[inline]
    fn port_read(&mut self, port: u16, size: u8) -> u32 {
        self.platform.with_chipset(Some(self.number), |chipset| chipset.port_read(port, size))
    }

    #[inline]
    fn port_write(&mut self, port: u16, size: u8, value: u32) {
        let user = Some(self.number);
        self.platform.with_chipset(user, |chipset| chipset.port_write(port, size, value));
    }

    #[inline]
    fn mmio_read(&mut self, address: GuestAddress, size: u8) -> u64 {
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

    #[inline]
    fn mmio_write(&mut self, address: GuestAddress, size: u8, value: u64) {
        let Some(size) = Size::from_bytes(size) else { return };
        let apic = &mut self.local.apic;
        if !apic.is_at(address.0) {
            let user = Some(self.number);
            let store = |chipset: &mut Chipset| chipset.mmio_write(address, size, value);
            return self.platform.with_chipset(user, store);
        }
        let within = address.0 & (APIC_BYTES - 1);
        if is_whole(within, size) && within & 0xf == 0 {
            apic.absorb();
            let effect = apic.write_mmio(within as u32, value as u32, &*self.platform.clock);
            self.carry_out(effect);
        }
    }

    #[inline]
    fn msr_read(&mut self, index: u32) -> Result<u64, Fault> {
        let clock = &*self.platform.clock;
        let Local { apic, paravirtual } = &mut *self.local;
        match index {
            APIC_BASE => Ok(apic.base()),
            TSC_DEADLINE => Ok(apic.tsc_deadline(clock)),
            _ if X2APIC.contains(&index) => {
                apic.absorb();
                apic.read_msr(index, clock)
            }
            _ => paravirtual.read(index, self.platform.paravirtual()),
        }
    }

    #[inline]
    fn msr_write(&mut self, index: u32, value: u64) -> Result<(), Fault> {
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
            _ => return paravirtual.write(index, value, self.platform.paravirtual()),
        }
        Ok(())
    }

    fn save_shared(&mut self) -> Result<Vec<u8>, Busy> {
        self.save_chipset()
    }

    fn thaw(&mut self) {
        self.thaw_chipset();
    }

    fn save_own(&mut self) -> Vec<u8> {
        self.save_local()
    }
}
