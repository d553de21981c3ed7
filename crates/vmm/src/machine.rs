//! The life of one machine: built, booted, run until it ends, booted again if it asks for that.

use std::borrow::Cow;
use std::sync::Arc;

use boot::Unpacked;
use cpu::{UserExecution, Vcpu, VcpuGroup};
use host::GuestMemory;
use machine::layout::PHYSICAL_BITS;
use machine::time::{Clock, Hertz};
use machine::xen::XenVcpu as _;
use machine::{Board, Platform, acpi, board};
use vm_memory::{Bytes, GuestAddress};

use crate::activity::Activity;
use crate::clock::HostClock;
use crate::configuration::{Configuration, Contents, Module};
use crate::control::Control;
use crate::device_memory::DeviceMemory;
use crate::devices::{DirectoryRequests, FirmwareConfiguration, Plugged, Post, Slots};
use crate::limits::MAX_PROCESSORS;
use crate::outcome::{Error, Outcome};
use crate::processor::Processor;
use crate::remote::Remote;
use crate::run::{Runner, Wakers};
use crate::snapshot::{self, Snapshot};
use crate::waker::Waker;
use crate::{convert, firmware, helpers, random};

/// The least memory with which anything boots: the first mebibyte and room for a small kernel.
const MINIMUM_MEMORY: u64 = 2 << 20;

/// The most: what physical addresses can name, but for 64 GiB for devices.
const MAXIMUM_MEMORY: u64 = (1 << PHYSICAL_BITS) - (64 << 30);

/// Processors announce what the board goes by.
const _: () = assert!(cpu::PHYSICAL_BITS == PHYSICAL_BITS);

/// Ends a machine from another thread.
#[derive(Debug, Clone)]
pub struct Stop {
    control: Control,
}

impl Stop {
    /// Make [`Machine::run`] return [`Outcome::Stopped`] soon.
    pub fn stop(&self) {
        self.control.stop();
    }
}

/// Asks a machine from another thread what it is doing.
#[derive(Debug, Clone)]
pub struct Questions {
    control: Control,
}

impl Questions {
    /// Have every processor tell the machine's [`crate::Reporter`], soon.
    pub fn ask(&self) {
        self.control.ask_for_reports();
    }
}

/// How long a machine has lived.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Age {
    /// Of the time-stamp counter.
    pub cycles: u64,
    /// The same time, in seconds.
    pub seconds: f64,
}

/// A virtual machine on a board: a PC, unless another is named.
pub struct Machine<B: Board = Platform> {
    /// The devices' threads, which end before what they use.
    _threads: Vec<Box<dyn Send>>,
    runner: Runner<Vcpu, B>,
    memory: GuestMemory,
    clock: Arc<HostClock>,
    configuration: Configuration,
    /// What the firmware tables say.
    tables: acpi::Config,
    /// What the kernel's file holds, if it is packed and may boot again.
    unpacked: Option<Vec<u8>>,
    /// The time-stamp counter when it was ready.
    began: u64,
}

impl Machine {
    /// Build a PC; it starts with [`Self::run`].
    ///
    /// # Errors
    ///
    /// [`Error`] when the host cannot provide for it. The kernel is looked at by `run`.
    pub fn new(configuration: Configuration) -> Result<Self, Error> {
        Self::on_board(configuration)
    }
}

impl<B: Board> Machine<B> {
    /// Build a machine on a board of this kind; it starts with [`Self::run`].
    ///
    /// # Errors
    ///
    /// [`Error`] when the host cannot provide for it. The kernel is looked at by `run`.
    pub fn on_board(mut configuration: Configuration) -> Result<Self, Error> {
        let wanted = configuration.memory;
        if wanted < MINIMUM_MEMORY {
            return Err(Error::TooLittleMemory { wanted, least: MINIMUM_MEMORY });
        }
        let wanted = wanted.max(configuration.maximum_memory);
        if wanted > MAXIMUM_MEMORY {
            return Err(Error::TooMuchMemory { wanted, most: MAXIMUM_MEMORY });
        }
        if !(1..=MAX_PROCESSORS).contains(&configuration.processors) {
            return Err(Error::Processors(configuration.processors));
        }
        let page = 4096;
        configuration.memory = configuration.memory.next_multiple_of(page);
        configuration.maximum_memory =
            configuration.maximum_memory.max(configuration.memory).next_multiple_of(page);
        let firmware = configuration.firmware.as_ref();
        let rom = firmware.map(|image| firmware::place::<B>(image)).transpose()?;
        let mut ranges: Vec<_> = B::ram_regions(configuration.maximum_memory)
            .into_iter()
            .chain(rom)
            .map(|(start, size)| (start.0, size))
            .collect();
        ranges.sort_unstable();
        let (memory, clock) = match &configuration.snapshot {
            None => (GuestMemory::new(&ranges)?, HostClock::new()),
            Some(snapshot) => {
                let memory = GuestMemory::from_source(&ranges, Box::new(snapshot.clone()))?;
                snapshot.check(&memory, configuration.processors)?;
                (memory, snapshot.moment()?.clock)
            }
        };
        let clock = Arc::new(clock);
        let inspection = std::mem::take(&mut configuration.inspection);
        let execution = match configuration.interpret {
            true => UserExecution::Translate,
            false => configuration.user_execution,
        };
        let group = helpers::vcpu_group(
            &memory,
            execution,
            configuration.techniques,
            configuration.on_helpers.0.take(),
        )?;
        if let Some((start, bytes)) = rom {
            group.set_rom(start.0, bytes);
        }
        group.inspect(inspection);
        let device_memory = DeviceMemory::new(&memory, &group);
        let cpus = new_processors::<B>(&configuration, &group, &clock)?;
        let wakers: Vec<_> =
            cpus.iter().map(|cpu| Waker::new(Processor::kick_handle(cpu))).collect();
        let mut board: B = new_board(&configuration, &device_memory, &clock, &wakers)?;
        let Plugged { threads: _threads, polled, tables, .. } =
            plug_in(&mut board, &mut configuration, &device_memory, &memory)?;
        let its_clock = Arc::clone(&clock) as _;
        let mut runner = Runner::new(cpus, board, polled, its_clock, wakers)?;
        runner.reporter = configuration.reporter.clone();
        runner.gates = configuration.gates.take();
        if configuration.held {
            runner.control().hold();
        }
        let began = cpu::time_stamp();
        let unpacked = None;
        Ok(Self { _threads, runner, memory, clock, configuration, tables, unpacked, began })
    }

    /// Something that ends the machine.
    pub fn stop_handle(&self) -> Stop {
        Stop { control: self.runner.control() }
    }

    /// Something that asks what the machine is doing.
    pub fn questions(&self) -> Questions {
        Questions { control: self.runner.control() }
    }

    /// What can be done to it from other threads.
    pub fn remote(&self) -> Remote {
        let (control, memory) = (self.runner.control(), self.memory.clone());
        let clock = Arc::clone(&self.clock);
        let toolstack = self.runner.board.toolstack();
        Remote { control, memory, clock, window: None, balloon: None, toolstack }
    }

    /// The processors, for statistics.
    pub fn processors(&self) -> &[Vcpu] {
        &self.runner.cpus
    }

    /// How long ago it was built.
    pub fn age(&self) -> Age {
        let cycles = cpu::time_stamp().wrapping_sub(self.began);
        Age { cycles, seconds: cycles as f64 / (f64::from(self.clock.tsc_khz()) * 1000.0) }
    }

    /// What the processors' threads have done.
    pub fn activity(&self) -> &[Activity] {
        &self.runner.activity
    }

    /// What the guest has asked of the host's directories, in their order.
    pub fn directory_requests(&self) -> Vec<DirectoryRequests> {
        self.runner.polled.file_servers.requests()
    }

    /// Boot, and run until the machine ends. One that is not to boot again does this once: what it
    /// has booted from is forgotten, because it is in the guest's memory now.
    ///
    /// # Errors
    ///
    /// [`Error::Boot`] when the kernel cannot be loaded, [`Error::Processor`] when the host fails.
    pub fn run(&mut self) -> Result<Outcome, Error> {
        loop {
            match self.configuration.snapshot.take() {
                Some(snapshot) => self.go_on(&snapshot)?,
                None => self.boot()?,
            }
            if let Some(prepare) = self.configuration.preparation.0.take() {
                prepare().map_err(Error::Preparation)?;
            }
            self.confine()?;
            if let Some(notice) = self.configuration.on_start.take() {
                notice.give();
            }
            if !self.configuration.reboot {
                self.forget_files();
            }
            match self.runner.run()? {
                Outcome::Reset if self.configuration.reboot => self.clear()?,
                outcome => return Ok(outcome),
            }
        }
    }

    /// From here on, what the guest could make of us can do nothing but be this machine.
    fn confine(&self) -> Result<(), Error> {
        match self.configuration.confine {
            true => Ok(host::confine::confine()?),
            false => Ok(()),
        }
    }

    fn forget_files(&mut self) {
        self.configuration.kernel = Contents::default();
        self.configuration.firmware =
            self.configuration.firmware.take().map(|_| Contents::default());
        self.configuration.modules = Vec::new();
    }

    /// Everything as after power-on.
    fn clear(&mut self) -> Result<(), Error> {
        self.runner.cpus.iter_mut().for_each(Vcpu::reset);
        self.runner.board.reset();
        for (start, size) in B::ram_regions(self.configuration.maximum_memory) {
            self.memory.discard(start.0, size)?;
        }
        self.runner.cpus.iter_mut().for_each(Vcpu::forget_code);
        Ok(())
    }

    /// Take up the state of another machine.
    fn go_on(&mut self, snapshot: &Snapshot) -> Result<(), snapshot::Error> {
        let state = snapshot.state();
        let shift = snapshot.moment()?.shift;
        let mut places = Vec::new();
        for (number, cpu) in self.runner.cpus.iter_mut().enumerate() {
            let (own, place) = state.processor(number)?;
            Processor::restore(cpu, &own, shift)?;
            places.push(place);
        }
        self.runner.board.restore(state.shared(), &places, shift)?;
        self.show_machine_to_physical();
        Ok(())
    }

    /// Load the kernel and put the processor at its entry.
    fn boot(&mut self) -> Result<(), Error> {
        if B::PARAVIRTUAL {
            return self.boot_paravirtual();
        }
        if let Some(image) = &self.configuration.firmware {
            // The first processor is as after RESET, and starts it.
            return Ok(firmware::write(self.memory.map(), image)?);
        }
        let rsdp = if B::HAS_FIRMWARE { Some(self.write_tables()?) } else { None };
        let loaded = self.load(rsdp)?;
        // Multiboot's loaders are started by firmware; neither Linux, entered in 64-bit mode, nor PVH knows any.
        if loaded.protocol == boot::Protocol::Multiboot {
            self.runner.board.initialize_as_firmware();
        }
        convert::enter(self.runner.cpus[0].registers_mut(), &loaded.entry);
        Ok(())
    }

    /// Have the board start a paravirtual kernel. Its first vCPU takes its state from there.
    fn boot_paravirtual(&mut self) -> Result<(), Error> {
        let (unpacked, kept) = self.unpack()?;
        let configuration = &self.configuration;
        let ram_disk = joined(&configuration.modules);
        let payload = board::Payload {
            kernel: &unpacked,
            command_line: &configuration.command_line,
            ram_disk: (!ram_disk.is_empty()).then_some(&ram_disk),
        };
        self.runner.board.load(&payload)?;
        self.unpacked = kept.or(self.unpacked.take());
        self.show_machine_to_physical();
        Ok(())
    }

    /// Have the vCPUs find the machine-to-physical table, on a board that has one.
    fn show_machine_to_physical(&mut self) {
        let Some((table, bytes)) = self.runner.board.machine_to_physical() else { return };
        for cpu in &mut self.runner.cpus {
            if let Some(mut cpu) = Processor::xen(cpu) {
                cpu.set_machine_to_physical(table, bytes);
            }
        }
    }

    /// Put the firmware tables where kernels find them; where the RSDP is.
    fn write_tables(&self) -> Result<GuestAddress, Error> {
        let processors = self.configuration.processors;
        let tables = acpi::build(&acpi::Config { processors, ..self.tables })
            .map_err(|error| Error::Tables(error.to_string()))?;
        for (address, bytes) in &tables.pieces {
            self.memory
                .map()
                .write_slice(bytes, *address)
                .map_err(|error| Error::Tables(error.to_string()))?;
        }
        Ok(tables.rsdp)
    }

    fn load(&mut self, rsdp: Option<GuestAddress>) -> Result<boot::Loaded, Error> {
        let configuration = &self.configuration;
        let modules: Vec<_> = configuration
            .modules
            .iter()
            .map(|module| boot::Module { data: &module.data, command_line: &module.command_line })
            .collect();
        let request = boot::Request {
            kernel: &configuration.kernel,
            kernel_name: &configuration.kernel_name,
            command_line: &configuration.command_line,
            modules: &modules,
            memory_map: &convert::memory_map(configuration.memory),
            rsdp,
            randomness: Some(random::for_boot()?),
        };
        let (unpacked, kept) = self.unpack()?;
        let loaded = boot::load(self.memory.map(), &request, unpacked)?;
        self.unpacked = kept.or(self.unpacked.take());
        Ok(loaded)
    }

    /// What the kernel's file holds, and what of it is to be kept for the next boot: once it is confined, the process
    /// can neither read the cache nor start who unpacks.
    fn unpack(&self) -> Result<(Unpacked<'_>, Option<Vec<u8>>), boot::Error> {
        let configuration = &self.configuration;
        let unpacked = match &self.unpacked {
            Some(bytes) => Unpacked::Borrowed(bytes),
            None => {
                let cache = configuration.cache.as_deref();
                configuration.unpacker.unpack_kernel(&configuration.kernel, cache)?
            }
        };
        let kept = match &unpacked {
            Unpacked::Borrowed(_) => None,
            unpacked => configuration.reboot.then(|| unpacked.to_vec()),
        };
        Ok((unpacked, kept))
    }
}

/// Archives one behind the other, as Linux takes them for its initial RAM disk: each begins at a multiple of four.
fn joined(modules: &[Module]) -> Cow<'_, [u8]> {
    match modules {
        [one] => Cow::Borrowed(&one.data),
        modules => {
            let mut all = Vec::new();
            for module in modules {
                all.resize(all.len().next_multiple_of(4), 0);
                all.extend_from_slice(&module.data);
            }
            Cow::Owned(all)
        }
    }
}

impl<B: Board> Drop for Machine<B> {
    fn drop(&mut self) {
        self.runner.flush();
    }
}

fn new_processors<B: Board>(
    configuration: &Configuration,
    group: &Arc<VcpuGroup>,
    clock: &HostClock,
) -> Result<Vec<Vcpu>, Error> {
    let processors = configuration.processors as u32;
    let new_processor = |apic_id| {
        let config = cpu::Config {
            apic_id,
            processors,
            tsc_khz: clock.tsc_khz(),
            interpret_only: configuration.interpret,
            board: convert::board::<B>(),
        };
        let mut cpu = Vcpu::in_group(config, group)?;
        if configuration.count_interpreted {
            cpu.count_interpreted();
        }
        Ok(cpu)
    };
    (0..processors).map(new_processor).collect()
}

/// Plug the devices in: those that belong to firmware, then those of the configuration.
fn plug_in<B: Board>(
    board: &mut B,
    configuration: &mut Configuration,
    memory: &DeviceMemory,
    guest_memory: &GuestMemory,
) -> Result<Plugged, Error> {
    let firmware_bytes = configuration.firmware.as_ref().map(|image| image.len() as u64);
    let mut devices = std::mem::take(&mut configuration.devices);
    if B::HAS_FIRMWARE {
        let at = firmware_bytes.map_or(0, |_| devices.len());
        devices.insert(at, Box::new(FirmwareConfiguration(configuration.memory)));
        devices.insert(0, Box::new(Post));
    }
    let mut slots = Slots::new(board, memory, guest_memory, firmware_bytes);
    for device in devices {
        device.plug_in(&mut slots)?;
    }
    Ok(slots.plugged)
}

fn new_board<B: Board>(
    configuration: &Configuration,
    memory: &DeviceMemory,
    clock: &Arc<HostClock>,
    wakers: &[Waker],
) -> Result<B, Error> {
    let config = board::Config {
        processors: configuration.processors,
        tsc: Hertz(u64::from(clock.tsc_khz()) * 1000),
        memory_bytes: configuration.memory,
        maximum_bytes: configuration.maximum_memory,
        firmware_bytes: configuration.firmware.as_ref().map_or(0, |image| image.len() as u64),
    };
    let surroundings = board::Surroundings {
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        memory: Arc::new(memory.clone()),
        wake: Arc::new(Wakers(wakers.to_vec())),
    };
    B::new(config, surroundings).map_err(|error| Error::Tables(error.to_string()))
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
        check(960 << 30, "are available");
        check((960 << 30) + 1, "at most 960 GiB");
        check(u64::MAX, "at most 960 GiB");
    }

    #[test]
    fn processors_have_limits() {
        for processors in [0, MAX_PROCESSORS + 1, usize::MAX] {
            let memory = 64 << 20;
            let configuration = Configuration { memory, processors, ..Configuration::default() };
            let error = Machine::new(configuration).err().expect("no machine").to_string();
            assert!(error.contains("1 to 16") && error.contains("--cpus"), "{error}");
        }
    }

    #[test]
    fn what_is_no_kernel_is_refused_when_it_is_to_run() {
        let kernel = Contents::new(b"This is no kernel.");
        let configuration = Configuration { kernel, memory: 64 << 20, ..Configuration::default() };
        let error = Machine::new(configuration).unwrap().run().unwrap_err();
        assert!(matches!(error, Error::Boot(_)), "{error}");
    }
}
