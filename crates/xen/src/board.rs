//! The board of a paravirtual machine: no chip set, no bus, no firmware; hypercalls and events.

use std::ops::RangeInclusive;
use std::sync::Arc;

use machine::board::{self, Backplane, BoardVcpu, Hypervisor, Surroundings};
use machine::bus::{self, PortDevice, Width};
use machine::hypercall::{Answer, Call};
use machine::pci::{self, MessageSender};
use machine::saved::{Busy, CounterShift, Unfit};
use machine::xen::{TableWrite, Then, XenCall, XenVcpu};
use machine::{Fault, InterruptLine, Requests};
use vm_memory::GuestAddress;

use crate::call::{self, Caller};
use crate::domain::Domain;
use crate::geometry::Geometry;
use crate::mmu;

/// See above.
pub struct Board {
    domain: Arc<Domain>,
}

impl Board {
    /// The domain, for what serves its rings.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }
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

    fn add_pci_function(&mut self, _: Box<dyn pci::Function>) -> Result<u8, pci::Error> {
        Err(pci::Error::NoBus)
    }

    fn message_sender(&self) -> Result<MessageSender, pci::Error> {
        Err(pci::Error::NoBus)
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
    const HYPERVISOR: Option<Hypervisor> = None;

    fn ram_regions(memory_bytes: u64) -> Vec<(GuestAddress, u64)> {
        let (start, bytes) = Geometry::fixed(memory_bytes >> xen_abi::PAGE_SHIFT).ram();
        vec![(GuestAddress(start), bytes)]
    }

    fn new(config: board::Config, surroundings: Surroundings) -> Result<Self, board::Error> {
        Ok(Self { domain: Arc::new(Domain::new(config, surroundings)) })
    }

    fn vcpu(&self, number: usize) -> VcpuSide<'_> {
        VcpuSide { domain: &self.domain, number }
    }

    fn reset(&self) {}

    fn restore(&self, _: &[u8], _: &[Vec<u8>], _: CounterShift) -> Result<(), Unfit> {
        Err(Unfit::State("a paravirtual machine cannot go on from a snapshot yet".into()))
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

    fn tpr_read(&mut self) -> u8 {
        0
    }

    fn tpr_write(&mut self, _: u8) {}

    fn hypercall(&mut self, _: &Call) -> Answer {
        Answer::NONE
    }

    fn xen_call(&mut self, cpu: &mut dyn XenVcpu, call: &XenCall) -> Then {
        let mut caller = Caller { domain: self.domain, vcpu: self.number, cpu };
        call::call(&mut caller, call)
    }

    fn xen_write(&mut self, cpu: &mut dyn XenVcpu, write: &TableWrite) {
        let mut caller = Caller { domain: self.domain, vcpu: self.number, cpu };
        mmu::write(&mut caller, write);
    }

    fn port_read(&mut self, _: u16, size: u8) -> u32 {
        u32::MAX >> (32 - 8 * u32::from(size.clamp(1, 4)))
    }

    fn port_write(&mut self, _: u16, _: u8, _: u32) {}

    fn mmio_read(&mut self, _: GuestAddress, size: u8) -> u64 {
        u64::MAX >> (64 - 8 * u32::from(size.clamp(1, 8)))
    }

    fn mmio_write(&mut self, _: GuestAddress, _: u8, _: u64) {}

    fn msr_read(&mut self, _: u32) -> Result<u64, Fault> {
        Err(Fault)
    }

    fn msr_write(&mut self, _: u32, _: u64) -> Result<(), Fault> {
        Err(Fault)
    }

    fn save_shared(&mut self) -> Result<Vec<u8>, Busy> {
        Err(Busy)
    }

    fn save_own(&mut self) -> Vec<u8> {
        Vec::new()
    }
}
