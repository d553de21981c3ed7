//! The registers, through MMIO and through MSRs.

use super::bits::{Base, Command, Errors, Lvt, Spurious, VERSION, lvt, offset};
use super::timer::Mode;
use super::{Effect, Fault, LocalApic};
use crate::interrupts::mailbox::x2apic_logical_id;
use crate::time::Clock;

/// Where the x2APIC's MSRs start (SDM 3A table 11-6).
const FIRST_MSR: u32 = 0x800;

impl LocalApic {
    /// Whether a load or store at `address` is one of the MMIO page.
    #[inline]
    pub fn is_at(&self, address: u64) -> bool {
        let page = self.base & (Base::ADDRESS | Base::ENABLED | Base::X2APIC);
        page.bits() == (address & Base::ADDRESS.bits()) | Base::ENABLED.bits()
    }

    /// A load from the MMIO page; registers are 32 bits wide and aligned to 16 bytes.
    pub fn read_mmio(&mut self, at: u32, clock: &dyn Clock) -> u32 {
        match at & !0xf {
            offset::ID => self.id << 24,
            offset::LOGICAL_DESTINATION => self.logical,
            offset::DESTINATION_FORMAT => self.format,
            offset::COMMAND_HIGH => (self.command >> 32) as u32,
            offset::ARBITRATION_PRIORITY | offset::REMOTE_READ => 0,
            at => self.read_common(at, clock).unwrap_or_else(|| {
                self.report(Errors::ILLEGAL_REGISTER);
                0
            }),
        }
    }

    /// A store to the MMIO page; only aligned 32-bit stores reach here.
    #[inline]
    pub fn write_mmio(&mut self, at: u32, value: u32, clock: &dyn Clock) -> Effect {
        match at & !0xf {
            offset::END_OF_INTERRUPT => return self.end_of_interrupt(),
            offset::LOGICAL_DESTINATION => self.logical = value & 0xff00_0000,
            offset::DESTINATION_FORMAT => self.format = value | 0x0fff_ffff,
            offset::COMMAND_HIGH => self.set_command_high(value & 0xff00_0000),
            offset::COMMAND_LOW => {
                self.set_command_low(value & Command::all().bits());
                return self.send_command();
            }
            // The id is the processor's number and stays so.
            offset::ID => {}
            at => {
                if !self.write_common(at, value, clock) {
                    self.report(Errors::ILLEGAL_REGISTER);
                }
            }
        }
        self.publish();
        Effect::None
    }

    /// `rdmsr` of 0x800 to 0x8ff.
    ///
    /// # Errors
    ///
    /// [`Fault`] outside x2APIC mode and for registers that cannot be read.
    pub fn read_msr(&mut self, index: u32, clock: &dyn Clock) -> Result<u64, Fault> {
        if !self.base.contains(Base::X2APIC) {
            return Err(Fault);
        }
        let value = match index.wrapping_sub(FIRST_MSR).wrapping_shl(4) {
            offset::ID => self.id,
            offset::LOGICAL_DESTINATION => x2apic_logical_id(self.id),
            offset::COMMAND_LOW => return Ok(self.command),
            at => self.read_common(at, clock).ok_or(Fault)?,
        };
        Ok(value.into())
    }

    /// `wrmsr` of 0x800 to 0x8ff.
    ///
    /// # Errors
    ///
    /// [`Fault`] outside x2APIC mode, for registers that cannot be written, and for reserved bits.
    #[inline]
    pub fn write_msr(
        &mut self,
        index: u32,
        value: u64,
        clock: &dyn Clock,
    ) -> Result<Effect, Fault> {
        if !self.base.contains(Base::X2APIC) {
            return Err(Fault);
        }
        let at = index.wrapping_sub(FIRST_MSR).wrapping_shl(4);
        if value & !writable_in_x2apic(at)? != 0 {
            return Err(Fault);
        }
        let low = value as u32;
        Ok(match at {
            offset::END_OF_INTERRUPT => self.end_of_interrupt(),
            offset::SELF_INTERRUPT => self.send_to_self(low as u8),
            offset::COMMAND_LOW => {
                self.command = value;
                self.send_command()
            }
            at if self.write_common(at, low, clock) => {
                self.publish();
                Effect::None
            }
            _ => return Err(Fault),
        })
    }

    /// IA32_APIC_BASE.
    pub fn base(&self) -> u64 {
        self.base.bits()
    }

    /// IA32_APIC_BASE (SDM 3A 11.12.5: which transitions there are).
    ///
    /// # Errors
    ///
    /// [`Fault`] for reserved bits and for transitions that there are not.
    pub fn set_base(&mut self, value: u64) -> Result<(), Fault> {
        let new = Base::from_bits(value).ok_or(Fault)?;
        let mode = Base::ENABLED | Base::X2APIC;
        match ((self.base & mode), (new & mode)) {
            (_, to) if to == Base::X2APIC => return Err(Fault),
            (from, to) if from == mode && to == Base::ENABLED => return Err(Fault),
            (from, to) if from.is_empty() && to == mode => return Err(Fault),
            (from, to) if !from.is_empty() && to.is_empty() => self.initialize(),
            _ => {}
        }
        self.base = new & !Base::BOOTSTRAP | self.base & Base::BOOTSTRAP;
        self.publish();
        Ok(())
    }

    /// The registers that are alike in both modes.
    fn read_common(&mut self, at: u32, clock: &dyn Clock) -> Option<u32> {
        Some(match at {
            offset::VERSION => VERSION,
            offset::TASK_PRIORITY => self.task_priority.into(),
            offset::PROCESSOR_PRIORITY => self.processor_priority().into(),
            offset::SPURIOUS => self.spurious.bits(),
            offset::IN_SERVICE..offset::TRIGGER_MODE => self.in_service.register(at >> 4 & 7),
            offset::TRIGGER_MODE..offset::REQUEST => self.trigger.register(at >> 4 & 7),
            offset::REQUEST..offset::ERROR_STATUS => self.request.register(at >> 4 & 7),
            offset::ERROR_STATUS => self.shown_errors.bits(),
            offset::COMMAND_LOW => self.command as u32,
            offset::LVT_TIMER..=offset::LVT_ERROR => self.lvt[lvt_index(at)].bits(),
            offset::INITIAL_COUNT => self.timer.initial_count(),
            offset::CURRENT_COUNT => {
                let now = clock.now();
                self.advance(now);
                self.timer.current_count(now)
            }
            offset::DIVIDE => self.timer.divide(),
            _ => return None,
        })
    }

    /// False if there is no such register.
    fn write_common(&mut self, at: u32, value: u32, clock: &dyn Clock) -> bool {
        match at {
            offset::TASK_PRIORITY => self.task_priority = value as u8,
            offset::SPURIOUS => self.set_spurious(Spurious::from_bits_truncate(value)),
            offset::ERROR_STATUS => {
                self.shown_errors = std::mem::replace(&mut self.errors, Errors::empty());
            }
            offset::LVT_TIMER..=offset::LVT_ERROR => {
                self.set_lvt(lvt_index(at), Lvt::from_bits_truncate(value), clock);
            }
            offset::INITIAL_COUNT => {
                let now = clock.now();
                self.advance(now);
                self.timer.set_initial_count(value, now);
            }
            offset::DIVIDE => {
                let now = clock.now();
                self.advance(now);
                self.timer.set_divide(value, now);
            }
            _ => return false,
        }
        true
    }

    fn set_command_low(&mut self, value: u32) {
        self.command = self.command & !0xffff_ffff | u64::from(value);
    }

    fn set_command_high(&mut self, value: u32) {
        self.command = self.command & 0xffff_ffff | u64::from(value) << 32;
    }

    /// Switching the APIC off masks all of the LVT (SDM 3A 11.4.7.2).
    fn set_spurious(&mut self, value: Spurious) {
        self.spurious = value;
        if !value.contains(Spurious::ENABLED) {
            for entry in &mut self.lvt {
                *entry |= Lvt::MASKED;
            }
        }
    }

    /// What the timer has done until now counts by the old entry.
    fn set_lvt(&mut self, which: usize, value: Lvt, clock: &dyn Clock) {
        let mut entry = value & Lvt::writable(which);
        if !self.spurious.contains(Spurious::ENABLED) {
            entry |= Lvt::MASKED;
        }
        if which == lvt::TIMER {
            self.advance(clock.now());
            self.timer.set_mode(Mode::from_register(entry.bits()));
        }
        self.lvt[which] = entry;
    }
}

fn lvt_index(at: u32) -> usize {
    ((at - offset::LVT_TIMER) >> 4) as usize
}

/// The bits of an MSR that may be set; [`Fault`] where there is no register to write.
#[inline]
fn writable_in_x2apic(at: u32) -> Result<u64, Fault> {
    Ok(match at {
        offset::END_OF_INTERRUPT | offset::ERROR_STATUS => 0,
        offset::TASK_PRIORITY | offset::SELF_INTERRUPT => 0xff,
        offset::SPURIOUS => Spurious::all().bits().into(),
        offset::COMMAND_LOW => 0xffff_ffff_0000_0000 | u64::from(Command::all().bits()),
        // Linux sets the read-only bits when it shuts down (`disconnect_bsp_APIC`).
        offset::LVT_TIMER..=offset::LVT_ERROR => {
            (Lvt::writable(lvt_index(at)) | Lvt::READ_ONLY).bits().into()
        }
        offset::INITIAL_COUNT => 0xffff_ffff,
        offset::DIVIDE => 0b1011,
        _ => return Err(Fault),
    })
}
