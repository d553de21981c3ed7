//! What a board is: everything that vCPUs reach by leaving their own registers and memory.
//!
//! Each vCPU's thread takes its side of the board ([`BoardVcpu`]) and keeps it while the vCPU runs. Its loop, in
//! outline:
//!
//! ```text
//! loop {
//!     if vcpu.next_deadline() has come { vcpu.advance(now); }
//!     if let Some(request) = board.requests().take() { ... }
//!     if vcpu.waits_for_start_up() { sleep until woken; continue }
//!     if vcpu.has_interrupt() {
//!         if the processor can take one { inject(vcpu.acknowledge()) }
//!         else { ask it to come back when it can }
//!     }
//!     vcpu.enter();
//!     exit = run the processor;
//!     vcpu.leave();
//!     match exit {
//!         IoRead { port, size } => answer(vcpu.port_read(port, size)),
//!         Halt => sleep until next_deadline() or woken,
//!         ...
//!     }
//! }
//! ```
//!
//! The loop is compiled for each board: no exit costs a dynamic call. The PC with KVM's interface is
//! [`Platform`](crate::Platform); [`BareBoard`](crate::BareBoard) has ports and nothing else. What a board has not,
//! it need not implement: the methods that it leaves out say so.

use std::ops::RangeInclusive;
use std::sync::Arc;

use vm_memory::GuestAddress;
use xen_abi::vcpu::GuestContext;
use xen_io::device::BackEnd;

use crate::bus::{self, MemoryDevice, PortDevice, Size, Width};
use crate::hypercall::{Answer, Call};
use crate::interrupts::{Fault, InterruptLine, StartUp, Wake};
use crate::layout;
use crate::limits::MAX_PROCESSORS;
use crate::memory::Memory;
use crate::pci::{self, MessageSender};
use crate::request::Requests;
use crate::saved::{Busy, CounterShift, Unfit};
use crate::time::{Clock, Hertz, Nanoseconds};
use crate::toolstack::Toolstack;
use crate::xen::{TableWrite, Then, XenCall, XenVcpu};

/// What distinguishes one board from another of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Processors; their APIC ids are 0 and up.
    pub processors: usize,
    /// Frequency of the guest's time-stamp counter.
    pub tsc: Hertz,
    /// Bytes of RAM.
    pub memory_bytes: u64,
    /// The most that it may ever have, on a board on which that can change ([`Board::PARAVIRTUAL`]).
    pub maximum_bytes: u64,
    /// Bytes of firmware, on a board that can have some ([`Board::STARTS_FIRMWARE`]); none where kernels are loaded
    /// without.
    pub firmware_bytes: u64,
}

/// Why there is no board.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// None, or more than can be addressed.
    #[error("a machine has 1 to {MAX_PROCESSORS} processors, not {0}")]
    Processors(usize),
    /// More than one, on a board for one.
    #[error("the bare board has one processor, not {0}")]
    OneProcessor(usize),
    /// The built-in devices are in each other's way: our own mistake.
    #[error(transparent)]
    Bus(#[from] bus::Error),
}

/// What the program that runs a board gives it.
#[derive(Clone)]
pub struct Surroundings {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Guest memory.
    pub memory: Arc<dyn Memory>,
    /// Brings a processor to look for interrupts.
    pub wake: Arc<dyn Wake>,
}

/// What a board announces as a hypervisor to its guest: how to find it, and how to call it.
#[derive(Debug, Clone, Copy)]
pub struct Hypervisor {
    /// CPUID's leaves from 0x4000_0000 on, with EAX, EBX, ECX and EDX; a leaf that is not here reads zero.
    pub leaves: &'static [(u32, [u32; 4])],
    /// The leaf whose EAX is the frequency of the time-stamp counter in kHz.
    pub timing_leaf: Option<u32>,
    /// The registers of a call's arguments by their numbers (0 is RAX); its number and its answer are in RAX.
    pub arguments: [u8; 4],
    /// What a call from CPL 3 gets; what an unknown call gets is said by [`BoardVcpu::hypercall`].
    pub user_answer: u64,
}

/// What a paravirtual domain starts with.
#[derive(Debug, Clone, Copy)]
pub struct Payload<'a> {
    /// The kernel's ELF file, unpacked.
    pub kernel: &'a [u8],
    /// Its command line.
    pub command_line: &'a str,
    /// An initial RAM disk.
    pub ram_disk: Option<&'a [u8]>,
}

/// Why a paravirtual kernel cannot be started, in one line for its user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LoadError(pub String);

/// Where the first byte of the table of machine frames' page numbers is, and its bytes.
pub type MachineToPhysical = (GuestAddress, u64);

/// The board has no bus for devices with a front-end in the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this board has no split devices")]
pub struct NoSplitDevices;

/// Where what a guest is to read on a line of characters is put.
pub trait LineInput: Send + Sync {
    /// Have the guest read this, and wait until there was room for all of it; whether the line is open.
    fn send(&self, bytes: &[u8]) -> bool;

    /// Nobody waits any more.
    fn close(&self);
}

/// Where devices are plugged in, before any vCPU runs.
pub trait Backplane {
    /// How many vCPUs there are.
    fn processors(&self) -> usize;

    /// Plug in a device that is reached through `count` ports from `first` on.
    ///
    /// # Errors
    ///
    /// [`bus::Error`] when the ports are taken.
    fn add_port_device(
        &mut self,
        name: &'static str,
        first: u16,
        count: u16,
        width: Width,
        device: Box<dyn PortDevice>,
    ) -> Result<(), bus::Error>;

    /// Plug in a device that is reached through `bytes` memory addresses from `first` on, where no RAM is.
    ///
    /// # Errors
    ///
    /// [`bus::Error`] when another such device is there, or the board has none.
    fn add_memory_device(
        &mut self,
        name: &'static str,
        first: GuestAddress,
        bytes: u64,
        device: Box<dyn MemoryDevice>,
    ) -> Result<(), bus::Error> {
        let _ = (first, bytes, device);
        Err(bus::Error::NoMemoryBus { name })
    }

    /// Connect line `number` of a board that has lines of characters without ports (consoles of a paravirtual machine):
    /// what the guest says goes to `output`. Where what it is to read is put; none on other boards.
    fn add_line(
        &mut self,
        number: u8,
        output: Box<dyn std::io::Write + Send>,
    ) -> Option<Box<dyn LineInput>> {
        let _ = (number, output);
        None
    }

    /// Give the domain a device with two halves, on a board that has a bus for such (Xen's).
    ///
    /// # Errors
    ///
    /// [`NoSplitDevices`] on another board.
    fn add_split(&mut self, device: Box<dyn BackEnd>) -> Result<(), NoSplitDevices> {
        let _ = device;
        Err(NoSplitDevices)
    }

    /// Whether [`Self::add_split`] is how devices are plugged in here.
    fn has_split_devices(&self) -> bool {
        false
    }

    /// Plug a function into the PCI bus; the number of its slot.
    ///
    /// # Errors
    ///
    /// [`pci::Error`] when there is no bus, or no room for it.
    fn add_pci_function(&mut self, function: Box<dyn pci::Function>) -> Result<u8, pci::Error> {
        let _ = function;
        Err(pci::Error::NoBus)
    }

    /// What delivers the interrupt messages of devices.
    ///
    /// # Errors
    ///
    /// [`pci::Error::NoBus`] where none can be delivered.
    fn message_sender(&self) -> Result<MessageSender, pci::Error> {
        Err(pci::Error::NoBus)
    }

    /// The device's end of an interrupt input (see [`crate::layout::irq`]).
    fn line(&self, input: u8) -> InterruptLine;

    /// Where devices leave what the guest asks of the program that runs the machine.
    fn requests(&self) -> Requests;
}

/// A board: what vCPUs share, and a side for each of them.
pub trait Board: Backplane + Send + Sync + Sized + 'static {
    /// A vCPU's side.
    type Vcpu<'a>: BoardVcpu;

    /// Kernels find what firmware leaves: ACPI tables, fw_cfg, the POST port.
    const HAS_FIRMWARE: bool;

    /// The first vCPU can start with firmware in a ROM that ends at 4 GiB, which finds a chip set that it knows.
    const STARTS_FIRMWARE: bool = false;

    /// Model-specific registers that are the board's: [`BoardVcpu::msr_read`] and [`BoardVcpu::msr_write`] answer for
    /// these, the processor for all others. Those that are used most are first.
    const MSRS: &'static [RangeInclusive<u32>];

    /// What the guest sees of a hypervisor, if it sees any.
    const HYPERVISOR: Option<Hypervisor>;

    /// Guests are paravirtual, by Xen's interface: vCPUs start with [`BoardVcpu::take_context`], and say
    /// [`BoardVcpu::xen_call`].
    const PARAVIRTUAL: bool = false;

    /// Where a machine with so many bytes of memory at most has RAM: guest-physical addresses and bytes.
    fn ram_regions(maximum_bytes: u64) -> Vec<(GuestAddress, u64)> {
        layout::ram_regions(maximum_bytes)
    }

    /// A board that has just been switched on.
    ///
    /// # Errors
    ///
    /// [`Error`] when the configuration makes no sense.
    fn new(config: Config, surroundings: Surroundings) -> Result<Self, Error>;

    /// Have the first vCPU start a kernel, on a board whose guests are paravirtual ([`Self::PARAVIRTUAL`]).
    ///
    /// # Errors
    ///
    /// [`LoadError`] for other boards, and when the kernel cannot be started.
    fn load(&self, payload: &Payload<'_>) -> Result<(), LoadError> {
        let _ = payload;
        Err(LoadError("this board starts no paravirtual kernel".into()))
    }

    /// Where the machine-to-physical table is, on such a board.
    fn machine_to_physical(&self) -> Option<MachineToPhysical> {
        None
    }

    /// A vCPU's side. It blocks while another thread has it.
    ///
    /// # Panics
    ///
    /// When there is no such vCPU.
    fn vcpu(&self, number: usize) -> Self::Vcpu<'_>;

    /// Leave the board as firmware does when it hands over to a boot loader. A kernel that boots by a
    /// protocol of firmware expects that.
    fn initialize_as_firmware(&self) {}

    /// What domain 0 does to the domain, on a board whose guests are paravirtual.
    fn toolstack(&self) -> Option<Arc<dyn Toolstack>> {
        None
    }

    /// Everything as after power-on; devices stay plugged in, the clock keeps the time. No thread may have a vCPU's
    /// side.
    fn reset(&self);

    /// Go on from what [`BoardVcpu::save_shared`] and each vCPU's [`BoardVcpu::save_own`] have said. No thread may
    /// have a vCPU's side.
    ///
    /// # Errors
    ///
    /// [`Unfit`] when that is no state of such a board: it names the device.
    fn restore(
        &self,
        shared: &[u8],
        processors: &[Vec<u8>],
        shift: CounterShift,
    ) -> Result<(), Unfit>;
}

/// A vCPU's side of the board, for its thread.
pub trait BoardVcpu {
    /// The vCPU's number, which is its APIC id.
    fn number(&self) -> usize;

    /// Whether an interrupt is to be delivered, if the vCPU can take one.
    fn has_interrupt(&mut self) -> bool {
        false
    }

    /// The interrupt acknowledge cycle: the vector to deliver, which is in service from now on.
    fn acknowledge(&mut self) -> Option<u8> {
        None
    }

    /// A non-maskable interrupt to deliver, once.
    fn take_nmi(&mut self) -> bool {
        false
    }

    /// INIT and the start-up message, each once.
    fn take_start_up(&mut self) -> Option<StartUp> {
        None
    }

    /// The state that a paravirtual vCPU is to start with, once.
    fn take_context(&mut self) -> Option<Box<GuestContext>> {
        None
    }

    /// Where a paravirtual vCPU's `vcpu_info` is when it starts.
    fn vcpu_info(&self) -> GuestAddress {
        GuestAddress(0)
    }

    /// Whether the vCPU is to do nothing until a start-up message comes.
    fn waits_for_start_up(&self) -> bool {
        false
    }

    /// Whether another vCPU has ended the halt in which this one is or comes to next, once.
    fn take_unhalt(&mut self) -> bool {
        false
    }

    /// CR8.
    fn tpr_read(&mut self) -> u8;

    /// CR8: bits 3:0 of `class` count.
    fn tpr_write(&mut self, class: u8);

    /// When [`Self::advance`] next has something to do. The first vCPU also looks after the timers that all share.
    fn next_deadline(&self) -> Option<Nanoseconds> {
        None
    }

    /// Do what is due at `now`; cheap when nothing is.
    fn advance(&mut self, now: Nanoseconds) {
        let _ = now;
    }

    /// What the guest has added to this vCPU's time-stamp counter (IA32_TSC, IA32_TSC_ADJUST).
    fn set_tsc_offset(&mut self, offset: u64) {
        let _ = offset;
    }

    /// The machine has stood still until now: the guest is not to take that for a fault of its own.
    fn has_been_stopped(&mut self) {}

    /// Push the power button: a guest that handles it shuts down.
    fn press_power_button(&mut self) {}

    /// The vCPU is about to run guest code.
    fn enter(&mut self) {}

    /// The vCPU has come out of guest code.
    fn leave(&mut self) {}

    /// The vCPU's thread is about to sleep: other vCPUs need not wait for it.
    fn fall_asleep(&mut self) {}

    /// It has slept; whether it must forget all address translations before it goes on, because another vCPU has
    /// asked for that meanwhile.
    fn wake_up(&mut self) -> bool {
        false
    }

    /// Whether the guest wants to know how much time this vCPU was denied.
    fn counts_stolen_time(&self) -> bool {
        false
    }

    /// This much time in all has the vCPU's thread waited for a core.
    fn set_stolen_time(&mut self, total: Nanoseconds) {
        let _ = total;
    }

    /// Tell a paravirtual kernel how long its vCPU has been in which state, with what was stolen.
    fn tell_states(&mut self, cpu: &mut dyn XenVcpu) {
        let _ = cpu;
    }

    /// A call by the guest's kernel ([`Board::HYPERVISOR`]).
    fn hypercall(&mut self, call: &Call) -> Answer {
        let _ = call;
        Answer::NONE
    }

    /// A hypercall by a paravirtual kernel ([`Board::PARAVIRTUAL`]).
    fn xen_call(&mut self, cpu: &mut dyn XenVcpu, call: &XenCall) -> Then {
        let _ = call;
        cpu.set_result(-xen_abi::errno::ENOSYS as u64);
        Then::Run
    }

    /// A paravirtual kernel writes what is mapped read-only.
    fn xen_write(&mut self, cpu: &mut dyn XenVcpu, write: &TableWrite) {
        let _ = write;
        cpu.refuse_write();
    }

    /// `in`: `size` is 1, 2 or 4.
    fn port_read(&mut self, port: u16, size: u8) -> u32;

    /// `out`: `size` is 1, 2 or 4.
    fn port_write(&mut self, port: u16, size: u8, value: u32);

    /// A load of `size` bytes where no RAM is: 1, 2, 4 or 8.
    fn mmio_read(&mut self, address: GuestAddress, size: u8) -> u64 {
        let _ = address;
        Size::from_bytes(size).map_or(u64::MAX, Size::mask)
    }

    /// A store of `size` bytes where no RAM is: 1, 2, 4 or 8.
    fn mmio_write(&mut self, address: GuestAddress, size: u8, value: u64) {
        let _ = (address, size, value);
    }

    /// `rdmsr` of one of [`Board::MSRS`].
    ///
    /// # Errors
    ///
    /// [`Fault`] where there is no such register, or not in this mode.
    fn msr_read(&mut self, index: u32) -> Result<u64, Fault> {
        let _ = index;
        Err(Fault)
    }

    /// `wrmsr`.
    ///
    /// # Errors
    ///
    /// [`Fault`] where there is no such register, or it cannot have that value.
    fn msr_write(&mut self, index: u32, value: u64) -> Result<(), Fault> {
        let _ = (index, value);
        Err(Fault)
    }

    /// Bring all devices to rest until [`Self::thaw`], and say what a board that goes on from here has to know of what
    /// the vCPUs share: the bytes of [`Parts`](crate::saved::Parts). All vCPUs stand still.
    ///
    /// # Errors
    ///
    /// [`Busy`] when a device does not come to rest.
    fn save_shared(&mut self) -> Result<Vec<u8>, Busy>;

    /// Let devices go on, which are at rest since [`Self::save_shared`].
    fn thaw(&mut self) {}

    /// The same of what is this vCPU's own, after [`Self::save_shared`].
    fn save_own(&mut self) -> Vec<u8>;
}
