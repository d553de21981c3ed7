//! The board of a paravirtual machine: no chip set, no bus, no firmware; hypercalls and events.

use std::ops::RangeInclusive;
use std::sync::Arc;

use locks::Unpoisoned;
use machine::board::{
    self, Backplane, BoardVcpu, Hypervisor, LoadError, MachineToPhysical, NoSplitDevices, Payload,
    Surroundings,
};
use machine::bus::{self, PortDevice, Width};
use machine::saved::{Busy, CounterShift, Unfit};
use machine::time::Nanoseconds;
use machine::toolstack::Toolstack;
use machine::xen::{TableWrite, Then, XenCall, XenVcpu};
use machine::{InterruptLine, Requests};
use vm_memory::GuestAddress;
use xen_abi::cpuid::leaf;
use xen_abi::vcpu::GuestContext;
use xen_io::device::BackEnd;

use crate::call;
use crate::caller::Caller;
use crate::domain::Domain;
use crate::geometry::Geometry;
use crate::mmu;
use crate::serve::LineInput;
use crate::services::{BusConsole, Described};
use crate::tools::Tools;
use crate::vcpus::{State, write_runstate};

/// What CPUID says of the hypervisor (public/arch-x86/cpuid.h).
const HYPERVISOR: Hypervisor = Hypervisor {
    leaves: &[
        (
            leaf::FIRST,
            [
                leaf::FIRST + leaf::MAX_COUNT,
                leaf::SIGNATURE_EBX,
                leaf::SIGNATURE_ECX,
                leaf::SIGNATURE_EDX,
            ],
        ),
        (leaf::FIRST + 1, [4 << 16 | 17, 0, 0, 0]),
        // Hypercall pages: one, by this model-specific register.
        (leaf::FIRST + 2, [1, leaf::FIRST, leaf::PRESERVE_ACCESSED_DIRTY, 0]),
        // Machine addresses have so many bits.
        (leaf::FIRST + 5, [0, 40, 0, 0]),
    ],
    timing_leaf: None,
    arguments: [0; 4],
    user_answer: 0,
};

/// See above.
pub struct Board {
    domain: Arc<Domain>,
}

impl Backplane for Board {
    fn processors(&self) -> usize {
        self.domain.processors
    }

    fn add_port_device(
        &mut self,
        _: &'static str,
        _: u16,
        _: u16,
        _: Width,
        _: Box<dyn PortDevice>,
    ) -> Result<(), bus::Error> {
        // A paravirtual kernel reaches no port.
        Ok(())
    }

    fn add_line(
        &mut self,
        number: u8,
        output: Box<dyn std::io::Write + Send>,
    ) -> Option<Box<dyn board::LineInput>> {
        let domain = &self.domain;
        let console = Arc::clone(domain.consoles.get(usize::from(number))?);
        console.set_output(output);
        if number > 0 {
            let memory = domain.memory.clone();
            let device = BusConsole::new(number.into(), Arc::clone(&console), memory);
            domain.bus.lock().unpoisoned().add(Box::new(device));
        }
        Some(Box::new(LineInput { domain: Arc::clone(domain), console }))
    }

    fn has_split_devices(&self) -> bool {
        true
    }

    fn add_split(&mut self, device: Box<dyn BackEnd>) -> Result<(), NoSplitDevices> {
        self.domain.bus.lock().unpoisoned().add(device);
        Ok(())
    }

    fn line(&self, _: u8) -> InterruptLine {
        InterruptLine::unconnected(Arc::clone(&self.domain.wake))
    }

    fn requests(&self) -> Requests {
        self.domain.requests.clone()
    }
}

impl board::Board for Board {
    type Vcpu<'a> = VcpuSide<'a>;

    const HAS_FIRMWARE: bool = false;
    const PARAVIRTUAL: bool = true;
    const MSRS: &'static [RangeInclusive<u32>] = &[];
    const HYPERVISOR: Option<Hypervisor> = Some(HYPERVISOR);

    fn ram_regions(maximum_bytes: u64) -> Vec<(GuestAddress, u64)> {
        let maximum = maximum_bytes >> xen_abi::PAGE_SHIFT;
        let (start, bytes) = Geometry::new(maximum, maximum).ram();
        vec![(GuestAddress(start), bytes)]
    }

    fn new(config: board::Config, surroundings: Surroundings) -> Result<Self, board::Error> {
        Ok(Self { domain: Arc::new(Domain::new(config, surroundings)) })
    }

    fn load(&self, payload: &Payload<'_>) -> Result<(), LoadError> {
        let domain = &self.domain;
        let (started, context) = domain.start(payload)?;
        domain.write_wall_clock();
        (0..domain.processors).for_each(|number| domain.write_time(number));
        let kib = |pages: u64| pages << (xen_abi::PAGE_SHIFT - 10);
        let described = Described {
            name: "bivouac".into(),
            target_kib: kib(domain.geometry.pages),
            maximum_kib: kib(domain.geometry.maximum),
            processors: domain.processors,
        };
        let served = domain.serve(&started, &described);
        served.map_err(|reason| LoadError(reason.into()))?;
        domain.vcpus.start(0, context);
        Ok(())
    }

    fn machine_to_physical(&self) -> Option<MachineToPhysical> {
        let geometry = &self.domain.geometry;
        let table = geometry.machine_to_physical().address();
        let bytes = geometry.machine_to_physical_frames() << xen_abi::PAGE_SHIFT;
        Some((GuestAddress(table), bytes))
    }

    fn vcpu(&self, number: usize) -> VcpuSide<'_> {
        VcpuSide { domain: &self.domain, number }
    }

    fn toolstack(&self) -> Option<Arc<dyn Toolstack>> {
        Some(Arc::new(Tools(Arc::clone(&self.domain))))
    }

    fn reset(&self) {
        self.domain.reset();
    }

    fn restore(
        &self,
        shared: &[u8],
        processors: &[Vec<u8>],
        shift: CounterShift,
    ) -> Result<(), Unfit> {
        self.domain.restore(shared, processors, shift)
    }
}

impl Drop for Board {
    /// The toolstack has the domain for longer, and asks what is left of it; nobody is to wait for its lines meanwhile.
    fn drop(&mut self) {
        self.domain.consoles.iter().for_each(|console| console.end_output());
    }
}

/// A vCPU's side of the board.
pub struct VcpuSide<'a> {
    domain: &'a Domain,
    number: usize,
}

impl BoardVcpu for VcpuSide<'_> {
    fn number(&self) -> usize {
        self.number
    }

    fn take_nmi(&mut self) -> bool {
        self.domain.vcpus.rare(self.number).is_some_and(|mut vcpu| vcpu.take_nmi())
    }

    fn take_context(&mut self) -> Option<Box<GuestContext>> {
        let mut vcpu = self.domain.vcpus.rare(self.number)?;
        if vcpu.is_up { vcpu.context.take() } else { None }
    }

    fn vcpu_info(&self) -> GuestAddress {
        GuestAddress(self.domain.vcpus.info(self.number))
    }

    fn waits_for_start_up(&self) -> bool {
        self.domain.vcpus.rare(self.number).is_some_and(|vcpu| !vcpu.is_up)
    }

    fn take_unhalt(&mut self) -> bool {
        let domain = self.domain;
        let now = domain.system_time();
        let mut vcpu = domain.vcpus.vcpu(self.number);
        vcpu.take_polled(now, |port| domain.is_port_pending(port)) || {
            drop(vcpu);
            domain.has_upcall(self.number)
        }
    }

    fn next_deadline(&self) -> Option<Nanoseconds> {
        let deadline = self.domain.vcpus.next_deadline(self.number);
        deadline.map(|deadline| self.domain.instant(deadline))
    }

    fn advance(&mut self, _: Nanoseconds) {
        self.domain.advance_timers(self.number);
    }

    fn has_been_stopped(&mut self) {
        self.domain.write_time_after_stop(self.number);
    }

    fn press_power_button(&mut self) {
        self.domain.ask_to_power_off();
    }

    fn enter(&mut self) {
        self.domain.vcpus.rare(self.number).iter_mut().for_each(|vcpu| vcpu.end_poll());
    }

    fn fall_asleep(&mut self) {
        self.domain.enter_state(self.number, State::Blocked);
    }

    fn wake_up(&mut self) -> bool {
        self.domain.enter_state(self.number, State::Running);
        false
    }

    fn counts_stolen_time(&self) -> bool {
        self.domain.vcpus.vcpu(self.number).tells_states()
    }

    fn set_stolen_time(&mut self, total: Nanoseconds) {
        let now = self.domain.system_time();
        self.domain.vcpus.vcpu(self.number).steal(total.0, now);
    }

    fn tell_states(&mut self, cpu: &mut dyn XenVcpu) {
        write_runstate(&mut Caller { domain: self.domain, vcpu: self.number, cpu });
    }

    fn tpr_read(&mut self) -> u8 {
        0
    }

    fn tpr_write(&mut self, _: u8) {}

    fn xen_call(&mut self, cpu: &mut dyn XenVcpu, call: &XenCall) -> Then {
        let mut caller = Caller { domain: self.domain, vcpu: self.number, cpu };
        call::call(&mut caller, call)
    }

    fn xen_write(&mut self, cpu: &mut dyn XenVcpu, write: &TableWrite) {
        let mut caller = Caller { domain: self.domain, vcpu: self.number, cpu };
        mmu::write(&mut caller, write);
    }

    fn port_read(&mut self, port: u16, size: u8) -> u32 {
        /// The third counter of a PC's timer. Before Linux asks the hypervisor how fast the time stamp counter is, it
        /// watches this one, which it waits for to leave 0xff: 100,000 reads, if those are all ones. A counter that
        /// stands at 0 is as little use, and is seen to be at the first look.
        const TIMER: u16 = 0x42;
        if port == TIMER {
            return 0;
        }
        u32::MAX >> (32 - 8 * u32::from(size.clamp(1, 4)))
    }

    fn port_write(&mut self, _: u16, _: u8, _: u32) {}

    fn save_shared(&mut self) -> Result<Vec<u8>, Busy> {
        self.domain.save()
    }

    fn thaw(&mut self) {
        self.domain.thaw();
    }

    fn save_own(&mut self) -> Vec<u8> {
        self.domain.save_own(self.number)
    }
}
