//! The life of one machine: built, booted, run until it ends, booted again if it asks for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cpu::Vcpu;
use host::GuestMemory;
use machine::boot::{self, Cache, Randomness};
use machine::time::{Clock, Hertz};
use machine::{Platform, Wake, acpi, layout, platform};
use vm_memory::{Bytes, GuestAddress};

use crate::alarm::Waker;
use crate::clock::HostClock;
use crate::configuration::{Configuration, Error, Outcome};
use crate::convert;
use crate::processor::Processor;
use crate::run::Runner;

/// The least memory with which anything boots: the first mebibyte and room for a small kernel.
const MINIMUM_MEMORY: u64 = 2 << 20;

/// The most, far below what physical addresses can name.
const MAXIMUM_MEMORY: u64 = 16 << 40;

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
    runner: Runner<Vcpu>,
    memory: GuestMemory,
    configuration: Configuration,
}

impl Machine {
    /// Build a machine; it starts with [`Self::run`].
    ///
    /// # Errors
    ///
    /// [`Error`] when the host cannot provide for it. The kernel is looked at by `run`.
    pub fn new(mut configuration: Configuration) -> Result<Self, Error> {
        let wanted = configuration.memory;
        if wanted < MINIMUM_MEMORY {
            return Err(Error::TooLittleMemory { wanted, least: MINIMUM_MEMORY });
        }
        if wanted > MAXIMUM_MEMORY {
            return Err(Error::TooMuchMemory { wanted, most: MAXIMUM_MEMORY });
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
        let waker = Waker::new(Processor::kick_handle(&cpu))?;
        let mut platform = new_platform(&configuration, &memory, &clock, &waker)?;
        let lines = crate::line::plug_in(&mut platform, &mut configuration, &memory)?;
        let runner = Runner::new(cpu, platform, lines, clock, waker)?;
        Ok(Self { runner, memory, configuration })
    }

    /// Something that ends the machine.
    pub fn stop_handle(&self) -> Stop {
        let (requested, waker) = self.runner.stop_request();
        Stop { requested, waker }
    }

    /// The processor, for statistics.
    pub fn processor(&self) -> &Vcpu {
        &self.runner.cpu
    }

    /// Boot, and run until the machine ends. One that is not to boot again does this once: what it
    /// has booted from is forgotten, because it is in the guest's memory now.
    ///
    /// # Errors
    ///
    /// [`Error::Boot`] when the kernel cannot be loaded, [`Error::Processor`] when the host fails.
    pub fn run(&mut self) -> Result<Outcome, Error> {
        loop {
            self.boot()?;
            if !self.configuration.reboot {
                self.forget_files();
            }
            match self.runner.run()? {
                Outcome::Reset if self.configuration.reboot => self.clear()?,
                outcome => return Ok(outcome),
            }
        }
    }

    fn forget_files(&mut self) {
        self.configuration.kernel = Vec::new();
        self.configuration.modules = Vec::new();
    }

    /// Everything as after power-on.
    fn clear(&mut self) -> Result<(), Error> {
        self.runner.cpu.reset();
        self.runner.platform.reset();
        for (start, size) in layout::ram_regions(self.configuration.memory) {
            self.memory.discard(start.0, size)?;
        }
        self.runner.cpu.forget_code();
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
        convert::enter(self.runner.cpu.registers_mut(), &entry);
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
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.runner.flush();
        for reader in &mut self.runner.lines.readers {
            reader.stop();
        }
    }
}

fn new_processor(
    configuration: &Configuration,
    memory: &GuestMemory,
    clock: &HostClock,
) -> Result<Vcpu, Error> {
    let config = cpu::Config {
        apic_id: 0,
        processors: 1,
        tsc_khz: clock.tsc_khz(),
        interpret_only: configuration.interpret,
    };
    let mut cpu = Vcpu::in_memory(config, memory)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Building a machine with so much memory fails, in words that help.
    fn check(memory: u64, expected: &str) {
        let configuration = Configuration { memory, ..Configuration::default() };
        let error = Machine::new(configuration).err().expect("no machine").to_string();
        assert!(error.contains(expected) && error.contains("--mem"), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }

    #[test]
    fn memory_has_limits() {
        check(0, "at least 2 MiB");
        check(1, "at least 2 MiB of memory, not 1 bytes");
        check((2 << 20) - 1, "at least 2 MiB");
        check(4 << 40, "are available");
        check((16 << 40) + 1, "at most 16384 GiB");
        check(u64::MAX, "at most 16384 GiB");
    }

    #[test]
    fn what_is_no_kernel_is_refused_when_it_is_to_run() {
        let kernel = b"This is no kernel.".to_vec();
        let configuration = Configuration { kernel, memory: 64 << 20, ..Configuration::default() };
        let error = Machine::new(configuration).unwrap().run().unwrap_err();
        assert!(matches!(error, Error::Boot(_)), "{error}");
    }
}
