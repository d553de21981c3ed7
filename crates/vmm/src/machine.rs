//! The life of one machine: built, booted, run until it ends, booted again if it asks for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cpu::{Exit, RamRegion, Vcpu};
use host::GuestMemory;
use machine::boot::{self, Cache, Randomness};
use machine::time::{Clock, Hertz, Nanoseconds};
use machine::{Platform, Request, Wake, acpi, layout, platform};
use vm_memory::{Bytes, GuestAddress};

use crate::alarm::{Alarm, Waker};
use crate::clock::HostClock;
use crate::configuration::{Configuration, Error, Outcome};
use crate::convert;
use crate::line::{Collector, FLUSH_AFTER, Lines};

/// The least memory with which anything boots: the first mebibyte and room for a small kernel.
const MINIMUM_MEMORY: u64 = 2 << 20;

/// There is one processor.
const PROCESSOR: usize = 0;

/// Exits after which the clock is looked at, whatever they were.
const EXITS_PER_LOOK: u32 = 64;

impl Wake for Waker {
    fn wake(&self, _processor: usize) {
        Waker::wake(self);
    }
}

/// Ends a machine from another thread.
#[derive(Debug, Clone)]
pub struct Stop {
    requested: Arc<AtomicBool>,
    waker: Waker,
}

impl Stop {
    /// Make [`Machine::run`] return [`Outcome::Stopped`] soon.
    pub fn stop(&self) {
        self.requested.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// A virtual machine.
pub struct Machine {
    // The processor comes first, because it must be dropped before the memory it runs in.
    cpu: Vcpu,
    platform: Platform,
    memory: GuestMemory,
    clock: Arc<HostClock>,
    waker: Waker,
    alarm: Alarm,
    stop: Arc<AtomicBool>,
    lines: Lines,
    /// When waiting output is to be passed on at the latest.
    flush_at: Option<Nanoseconds>,
    configuration: Configuration,
}

impl Machine {
    /// Build a machine; it starts with [`Self::run`].
    ///
    /// # Errors
    ///
    /// [`Error`] when the host cannot provide for it. The kernel is looked at by `run`.
    pub fn new(mut configuration: Configuration) -> Result<Self, Error> {
        if configuration.memory < MINIMUM_MEMORY {
            return Err(Error::TooLittleMemory(configuration.memory, MINIMUM_MEMORY));
        }
        let page = 4096;
        configuration.memory = configuration.memory.div_ceil(page) * page;
        let ranges: Vec<_> = layout::ram_regions(configuration.memory)
            .into_iter()
            .map(|(start, size)| (start.0, size))
            .collect();
        let memory = GuestMemory::new(&ranges)?;
        let clock = Arc::new(HostClock::new());
        let cpu = new_processor(&configuration, &memory, &clock)?;
        let waker = Waker::new(cpu.kick_handle())?;
        let mut platform = new_platform(&configuration, &memory, &clock, &waker)?;
        let lines = crate::line::plug_in(&mut platform, &mut configuration, &memory)?;
        Ok(Self {
            alarm: Alarm::new(cpu.kick_handle())?,
            cpu,
            platform,
            memory,
            clock,
            waker,
            stop: Arc::new(AtomicBool::new(false)),
            lines,
            flush_at: None,
            configuration,
        })
    }

    /// Something that ends the machine.
    pub fn stop_handle(&self) -> Stop {
        Stop { requested: Arc::clone(&self.stop), waker: self.waker.clone() }
    }

    /// The processor, for statistics.
    pub fn processor(&self) -> &Vcpu {
        &self.cpu
    }

    /// Boot, and run until the machine ends.
    ///
    /// # Errors
    ///
    /// [`Error::Boot`] when the kernel cannot be loaded, [`Error::Processor`] when the host fails.
    pub fn run(&mut self) -> Result<Outcome, Error> {
        loop {
            self.boot()?;
            match self.run_once()? {
                Outcome::Reset if self.configuration.reboot => self.clear()?,
                outcome => return Ok(outcome),
            }
        }
    }

    /// Everything as after power-on.
    fn clear(&mut self) -> Result<(), Error> {
        self.cpu.reset();
        self.platform.reset();
        for (start, size) in layout::ram_regions(self.configuration.memory) {
            self.memory.discard(start.0, size)?;
        }
        self.cpu.forget_code();
        Ok(())
    }

    /// Load the kernel and put the processor at its entry.
    fn boot(&mut self) -> Result<(), Error> {
        let tables =
            acpi::build(&acpi::Config { processors: 1, com1: true, com2: true, fw_cfg: true })
                .map_err(|error| Error::Tables(error.to_string()))?;
        for (address, bytes) in &tables.pieces {
            self.memory
                .map()
                .write_slice(bytes, *address)
                .map_err(|error| Error::Tables(error.to_string()))?;
        }
        let entry = self.load(tables.rsdp)?;
        convert::enter(self.cpu.registers_mut(), &entry);
        Ok(())
    }

    fn load(&self, rsdp: GuestAddress) -> Result<boot::Entry, Error> {
        let configuration = &self.configuration;
        let modules: Vec<_> = configuration
            .modules
            .iter()
            .map(|module| boot::Module { data: &module.data, command_line: &module.command_line })
            .collect();
        let cache = configuration.cache.as_ref().map(Cache::new);
        let request = boot::Request {
            kernel: &configuration.kernel,
            kernel_name: &configuration.kernel_name,
            command_line: &configuration.command_line,
            modules: &modules,
            memory_map: &convert::memory_map(configuration.memory),
            rsdp: Some(rsdp),
            randomness: Some(randomness()?),
            cache: cache.as_ref(),
        };
        Ok(boot::load(self.memory.map(), &request)?.entry)
    }

    /// Run from the kernel's entry to the end or a reset.
    fn run_once(&mut self) -> Result<Outcome, Error> {
        let mut until_look = 0;
        loop {
            if until_look == 0 {
                self.look();
                until_look = EXITS_PER_LOOK;
            }
            until_look -= 1;
            if let Some(outcome) = self.take_requests() {
                return Ok(outcome);
            }
            self.offer_interrupts();
            self.set_alarm();
            let exit = self.cpu.run()?;
            if matches!(exit, Exit::Kicked | Exit::Halt | Exit::InterruptWindow) {
                until_look = 0;
            }
            if let Some(outcome) = self.answer(exit) {
                return Ok(outcome);
            }
        }
    }

    /// Do what time has made due.
    fn look(&mut self) {
        let now = self.clock.now();
        self.platform.advance(now);
        if self.flush_at.is_some_and(|due| due <= now) {
            self.flush();
        }
    }

    /// See to it that what the guest has just sent is passed on, even if this was its last exit.
    fn expect_flush(&mut self) {
        if self.flush_at.is_none() && self.lines.collectors.iter().any(Collector::is_waiting) {
            self.flush_at = Some(self.clock.now().after(FLUSH_AFTER));
        }
    }

    /// Pass on what the guest has sent over its serial lines.
    fn flush(&mut self) {
        self.flush_at = None;
        self.lines.collectors.iter().for_each(Collector::flush);
    }

    fn take_requests(&mut self) -> Option<Outcome> {
        if self.stop.load(Ordering::Acquire) {
            return Some(Outcome::Stopped);
        }
        self.platform.take_request().map(|request| match request {
            Request::PowerOff => Outcome::PoweredOff,
            Request::Reset => Outcome::Reset,
            // The status of a process has eight bits.
            Request::DebugExit(value) => Outcome::DebugExit(((value << 1) | 1) as u8),
        })
    }

    /// Hand pending interrupts to the processor, or ask it to say when it can take them.
    fn offer_interrupts(&mut self) {
        if self.platform.take_nmi(PROCESSOR) {
            self.cpu.inject_nmi();
        }
        let waiting = self.platform.has_interrupt(PROCESSOR);
        if waiting && self.cpu.can_inject_interrupt() {
            if let Some(vector) = self.platform.acknowledge(PROCESSOR) {
                self.cpu.inject_interrupt(vector);
            }
            let more = self.platform.has_interrupt(PROCESSOR);
            self.cpu.request_interrupt_window(more);
        } else {
            self.cpu.request_interrupt_window(waiting);
        }
    }

    fn set_alarm(&mut self) {
        let deadlines = [self.platform.next_deadline(), self.flush_at];
        if let Some(deadline) = deadlines.into_iter().flatten().min() {
            self.alarm.set(deadline, self.clock.now());
        }
    }

    /// Carry out what the processor could not do itself.
    fn answer(&mut self, exit: Exit) -> Option<Outcome> {
        let platform = &mut self.platform;
        match exit {
            Exit::IoRead { port, size } => {
                let value = platform.port_read(port, size);
                self.cpu.complete_read(u64::from(value));
            }
            Exit::IoWrite { port, size, value } => {
                platform.port_write(port, size, value);
                self.expect_flush();
            }
            Exit::MmioRead { address, size } => {
                let value = platform.mmio_read(PROCESSOR, GuestAddress(address), size);
                self.cpu.complete_read(value);
            }
            Exit::MmioWrite { address, size, value } => {
                platform.mmio_write(PROCESSOR, GuestAddress(address), size, value);
            }
            Exit::MsrRead { index } => {
                platform.set_tsc_offset(PROCESSOR, self.cpu.registers().tsc_offset);
                match platform.msr_read(PROCESSOR, index) {
                    Ok(value) => self.cpu.complete_read(value),
                    Err(_) => self.cpu.fail_msr(),
                }
            }
            Exit::MsrWrite { index, value } => {
                platform.set_tsc_offset(PROCESSOR, self.cpu.registers().tsc_offset);
                match platform.msr_write(PROCESSOR, index, value) {
                    Ok(()) => self.cpu.complete_write_msr(),
                    Err(_) => self.cpu.fail_msr(),
                }
            }
            Exit::TprRead => {
                let class = platform.tpr_read(PROCESSOR);
                self.cpu.complete_read(u64::from(class));
            }
            Exit::TprWrite { value } => platform.tpr_write(PROCESSOR, value),
            Exit::Halt => self.sleep(),
            Exit::InterruptWindow | Exit::Kicked => {}
            Exit::Shutdown => return Some(Outcome::TripleFault(self.describe_processor())),
        }
        None
    }

    /// Sleep until there is something to do.
    fn sleep(&mut self) {
        self.flush();
        let now = self.clock.now();
        self.platform.advance(now);
        if self.platform.has_interrupt(PROCESSOR) {
            return;
        }
        let span = self.platform.next_deadline().map(|deadline| {
            let Nanoseconds(span) = deadline.since(now);
            Duration::from_nanos(span)
        });
        self.waker.sleep(span);
    }

    /// What a triple fault leaves behind, for people.
    fn describe_processor(&self) -> String {
        let regs = self.cpu.registers();
        format!(
            "rip={:#x} rsp={:#x} cr0={:#x} cr2={:#x} cr3={:#x} cr4={:#x} cpl={}\n{}",
            regs.rip,
            regs.gpr[4],
            regs.cr0,
            regs.cr2,
            regs.cr3,
            regs.cr4,
            regs.cpl,
            self.cpu.history()
        )
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.flush();
        for reader in &mut self.lines.readers {
            reader.stop();
        }
    }
}

fn new_processor(
    configuration: &Configuration,
    memory: &GuestMemory,
    clock: &HostClock,
) -> Result<Vcpu, Error> {
    let regions = memory.regions().into_iter();
    let regions = regions
        .map(|region| RamRegion { guest: region.guest, size: region.size, host: region.host })
        .collect();
    let config = cpu::Config {
        apic_id: 0,
        processors: 1,
        tsc_khz: clock.tsc_khz(),
        interpret_only: configuration.interpret,
    };
    // SAFETY: the regions stay mapped as long as `memory` lives, which the machine drops after the
    // processor; they are the guest's, and nobody relies on what is in them.
    let mut cpu = unsafe { Vcpu::new(config, regions) }?;
    if configuration.count_interpreted {
        cpu.count_interpreted();
    }
    Ok(cpu)
}

fn new_platform(
    configuration: &Configuration,
    memory: &GuestMemory,
    clock: &Arc<HostClock>,
    waker: &Waker,
) -> Result<Platform, Error> {
    let config = platform::Config {
        processors: 1,
        tsc: Hertz(u64::from(clock.tsc_khz()) * 1000),
        memory_bytes: configuration.memory,
    };
    let surroundings = platform::Surroundings {
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        memory: Arc::new(memory.map().clone()),
        wake: Arc::new(waker.clone()),
    };
    Platform::new(config, surroundings).map_err(|error| Error::Tables(error.to_string()))
}

/// Random numbers for one boot.
fn randomness() -> Result<Randomness, Error> {
    let mut bytes = [0; 48];
    let mut filled = 0;
    while filled < bytes.len() {
        filled +=
            rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|n| bytes[at + n]));
    Ok(Randomness {
        physical: word(0),
        linear: word(8),
        seed: std::array::from_fn(|n| bytes[16 + n]),
    })
}
