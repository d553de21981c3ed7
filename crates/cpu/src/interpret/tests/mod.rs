//! Small programs on a small machine, run by the interpreter alone, by the translator, and with user
//! code in helper processes, which must agree.

mod assists;
mod choice;
mod classes;
mod coalescing;
mod copies;
mod crossings;
mod debugger;
mod events;
mod extended;
mod legacy_modes;
mod long_mode;
mod mirror;
mod msrs;
mod relocation;
mod returns;
mod several;
mod shelter;
mod stops;
mod vectors;

use iced_x86::code_asm::CodeAssembler;

use crate::config::{Config, RamRegion};
use crate::exit::Exit;
use crate::state::{Attributes, Registers, Segment, SegmentRegister, cr0, cr4, efer};
use crate::user::UserExecution;
use crate::vcpu::Vcpu;
use crate::vcpu_group::VcpuGroup;

/// Bytes of RAM.
const RAM_BYTES: usize = 4 << 20;

/// Where things are in guest memory.
pub(super) mod place {
    pub(in super::super) const IVT: u64 = 0;
    pub(in super::super) const PAGES: u64 = 0x1_0000;
    pub(in super::super) const GDT: u64 = 0x2_0000;
    pub(in super::super) const IDT: u64 = 0x2_1000;
    pub(in super::super) const TSS: u64 = 0x2_2000;
    pub(in super::super) const HANDLERS: u64 = 0x3_0000;
    pub(in super::super) const CODE: u64 = 0x4_0000;
    pub(in super::super) const USER_CODE: u64 = 0x20_0000;
    pub(in super::super) const DATA: u64 = 0x5_0000;
    pub(in super::super) const STACK: u64 = 0x8_0000;
    pub(in super::super) const INNER_STACK: u64 = 0x9_0000;
    pub(in super::super) const IST_STACK: u64 = 0xa_0000;
    /// Not mapped in long mode.
    pub(in super::super) const HOLE: u64 = 0x40_0000;
}

/// Selectors of the test GDT. Those of user code are Linux's, without which it cannot run directly.
pub(super) mod selector {
    pub(in super::super) const CODE_64: u16 = 0x08;
    pub(in super::super) const DATA: u16 = 0x10;
    pub(in super::super) const USER_CODE_32: u16 = 0x23;
    pub(in super::super) const USER_DATA: u16 = 0x2b;
    pub(in super::super) const USER_CODE_64: u16 = 0x33;
    pub(in super::super) const CODE_32: u16 = 0x40;
    pub(in super::super) const SECOND_TSS: u16 = 0x50;
    pub(in super::super) const CALL_GATE: u16 = 0x58;
    pub(in super::super) const DATA_16: u16 = 0x60;
    pub(in super::super) const TSS: u16 = 0x70;
}

/// A processor with a little memory.
pub(super) struct Machine {
    pub(super) cpu: Vcpu,
    ram: *mut u8,
    /// The memory that the host's MMU can map again, where there is such.
    memory: Option<host::GuestMemory>,
}

impl Drop for Machine {
    fn drop(&mut self) {
        if self.memory.is_none() {
            // SAFETY: allocated below with this layout, and not used after the processor.
            unsafe { std::alloc::dealloc(self.ram, layout()) };
        }
    }
}

fn layout() -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(RAM_BYTES, 2 << 20).expect("a valid layout")
}

impl Machine {
    fn new(interpret_only: bool) -> Self {
        // SAFETY: the layout is not empty; the region lives until the machine is dropped.
        unsafe {
            let ram = std::alloc::alloc_zeroed(layout());
            let config = Config {
                apic_id: 0,
                processors: 1,
                tsc_khz: 1_000_000,
                interpret_only,
                board: crate::board::TEST_PC,
            };
            let region = RamRegion { guest: 0, size: RAM_BYTES as u64, host: ram };
            let cpu = Vcpu::new(config, vec![region]).expect("this host can run guests");
            Self { cpu, ram, memory: None }
        }
    }

    /// In memory that can have a mirror.
    fn in_memory() -> Self {
        let memory = host::GuestMemory::new(&[(0, RAM_BYTES as u64)]).expect("a little memory");
        let config = Config {
            apic_id: 0,
            processors: 1,
            tsc_khz: 1_000_000,
            interpret_only: false,
            board: crate::board::TEST_PC,
        };
        let cpu = Vcpu::in_memory(config, &memory).expect("this host can run guests");
        Self { cpu, ram: memory.regions()[0].host, memory: Some(memory) }
    }

    /// With helper processes, in which all user code runs that can.
    fn with_helpers() -> Self {
        let memory = host::GuestMemory::new(&[(0, RAM_BYTES as u64)]).expect("a little memory");
        let helpers = direct::Helpers::start(&memory).expect("this host runs helpers");
        let group = VcpuGroup::with_helpers(&memory, &helpers, UserExecution::Direct);
        let config = Config {
            apic_id: 0,
            processors: 1,
            tsc_khz: 1_000_000,
            interpret_only: false,
            board: crate::board::TEST_PC,
        };
        let cpu = Vcpu::in_group(config, &group.expect("this host runs helpers"));
        let cpu = cpu.expect("this host can run guests");
        Self { cpu, ram: memory.regions()[0].host, memory: Some(memory) }
    }

    /// Another processor of the same machine, in the same state but for its entry point and stack.
    pub(super) fn another(&self, entry: u64, stack: u64) -> Vcpu {
        let config = Config { apic_id: 1, ..self.cpu.arch.config };
        let mut cpu = Vcpu::in_group(config, &self.cpu.arch.group).expect("the group has room");
        cpu.arch.context.regs = self.cpu.arch.context.regs;
        cpu.arch.context.regs.rip = entry;
        cpu.arch.context.regs.gpr[4] = stack;
        cpu
    }

    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) {
        assert!(at as usize + bytes.len() <= RAM_BYTES);
        // SAFETY: in bounds of the allocation.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.ram.add(at as usize), bytes.len());
        }
    }

    pub(super) fn write_u64(&mut self, at: u64, value: u64) {
        self.write(at, &value.to_le_bytes());
    }

    pub(super) fn read<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        assert!(at as usize + N <= RAM_BYTES);
        // SAFETY: in bounds of the allocation.
        unsafe {
            std::ptr::copy_nonoverlapping(self.ram.add(at as usize), bytes.as_mut_ptr(), N);
        }
        bytes
    }

    pub(super) fn read_u64(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.read(at))
    }

    pub(super) fn read_u32(&self, at: u64) -> u32 {
        u32::from_le_bytes(self.read(at))
    }

    pub(super) fn regs(&mut self) -> &mut Registers {
        &mut self.cpu.arch.context.regs
    }

    /// Put code somewhere.
    pub(super) fn assemble(
        &mut self,
        bits: u32,
        at: u64,
        write: impl FnOnce(&mut CodeAssembler) -> Result<(), iced_x86::IcedError>,
    ) {
        let mut assembler = CodeAssembler::new(bits).expect("a valid bitness");
        write(&mut assembler).expect("operands fit the instructions");
        let bytes = assembler.assemble(at).expect("labels are in reach");
        self.write(at, &bytes);
    }

    /// A gate in a long-mode IDT.
    pub(super) fn long_gate(&mut self, vector: u8, target: u64, dpl: u64, ist: u64) {
        let low = target & 0xffff
            | u64::from(selector::CODE_64) << 16
            | ist << 32
            | (0x8e | dpl << 5) << 40
            | (target >> 16 & 0xffff) << 48;
        let at = place::IDT + 16 * u64::from(vector);
        self.write_u64(at, low);
        self.write_u64(at + 8, target >> 32);
    }

    /// A gate in a protected-mode IDT.
    pub(super) fn protected_gate(&mut self, vector: u8, selector: u16, target: u64, kind: u64) {
        let gate = target & 0xffff
            | u64::from(selector) << 16
            | kind << 40
            | (target >> 16 & 0xffff) << 48;
        self.write_u64(place::IDT + 8 * u64::from(vector), gate);
    }

    /// Handlers that record vector, error code, CR2 and the interrupted RIP at DATA and halt.
    fn recording_handlers(&mut self) {
        use iced_x86::code_asm::*;
        for vector in 0..48u8 {
            let at = place::HANDLERS + 64 * u64::from(vector);
            self.long_gate(vector, at, 0, 0);
            let pushes_error = matches!(vector, 8 | 10..=14 | 17);
            self.assemble(64, at, |a| {
                if !pushes_error {
                    a.push(0)?;
                }
                a.pop(qword_ptr(place::DATA + 8))?;
                a.mov(byte_ptr(place::DATA), i32::from(vector))?;
                a.hlt()
            });
        }
    }

    /// Run until `hlt`.
    pub(super) fn run(&mut self) {
        assert_eq!(self.exit(), Exit::Halt);
    }

    pub(super) fn exit(&mut self) -> Exit {
        self.cpu.run().expect("the host lets us run")
    }
}

/// Descriptors of the test GDT.
fn descriptors() -> [u64; 16] {
    let tss = |base: u64| 0x0000_8900_0000_0fff | (base & 0xff_ffff) << 16;
    let gate = 0x0000_ec00_0000_0000
        | u64::from(selector::CODE_32) << 16
        | place::HANDLERS & 0xffff
        | (place::HANDLERS >> 16) << 48;
    [
        0,
        0x00af_9b00_0000_ffff,
        0x00cf_9300_0000_ffff,
        0,
        0x00cf_fb00_0000_ffff,
        0x00cf_f300_0000_ffff,
        0x00af_fb00_0000_ffff,
        0,
        0x00cf_9b00_0000_ffff,
        0x0000_9b00_0000_ffff,
        tss(place::TSS + 0x800),
        gate,
        0x0000_9300_0000_ffff,
        0,
        tss(place::TSS),
        0,
    ]
}

fn load_descriptors(machine: &mut Machine) {
    for (index, descriptor) in descriptors().into_iter().enumerate() {
        machine.write_u64(place::GDT + 8 * index as u64, descriptor);
    }
    let regs = machine.regs();
    (regs.gdtr.base, regs.gdtr.limit) = (place::GDT, 8 * 16 - 1);
    (regs.idtr.base, regs.idtr.limit) = (place::IDT, 0xfff);
}

/// A segment register as if loaded from the test GDT.
pub(super) fn segment(selector: u16) -> Segment {
    let descriptor = descriptors()[usize::from(selector >> 3)];
    let raw = (descriptor & 0xffff | descriptor >> 32 & 0xf_0000) as u32;
    let attributes = Attributes::from_bits_retain((descriptor >> 40) as u16 & 0xf0ff);
    let granular = attributes.contains(Attributes::GRANULAR);
    let limit = if granular { raw << 12 | 0xfff } else { raw };
    let base = descriptor >> 16 & 0xff_ffff;
    Segment { base, limit, selector, attributes }
}

/// In 64-bit mode at CPL 0, the first 4 MiB mapped to themselves: supervisor pages, except for the
/// second 2 MiB, which the user may use.
pub(super) fn long_mode(interpret_only: bool) -> Machine {
    enter_long_mode(Machine::new(interpret_only))
}

fn enter_long_mode(mut machine: Machine) -> Machine {
    load_descriptors(&mut machine);
    machine.write_u64(place::PAGES, place::PAGES + 0x1007);
    machine.write_u64(place::PAGES + 0x1000, place::PAGES + 0x2007);
    machine.write_u64(place::PAGES + 0x2000, place::PAGES + 0x3003);
    machine.write_u64(place::PAGES + 0x2008, 0x20_0087);
    for page in 0..512 {
        machine.write_u64(place::PAGES + 0x3000 + 8 * page, page << 12 | 3);
    }
    machine.recording_handlers();
    machine.write_u64(place::TSS + 4, place::INNER_STACK);
    machine.write_u64(place::TSS + 0x24, place::IST_STACK);
    let regs = machine.regs();
    regs.cr0 = cr0::PE | cr0::PG | cr0::WP | cr0::NE | cr0::ET | cr0::MP;
    regs.cr3 = place::PAGES;
    regs.cr4 = cr4::PAE | cr4::OSFXSR | cr4::OSXMMEXCPT | cr4::OSXSAVE | cr4::FSGSBASE;
    regs.efer = efer::LME | efer::LMA | efer::SCE | efer::NXE;
    regs.rip = place::CODE;
    regs.gpr[4] = place::STACK;
    for which in 0..6 {
        regs.segments[which] = segment(selector::DATA);
    }
    *regs.segment_mut(SegmentRegister::Cs) = segment(selector::CODE_64);
    regs.tr = segment(selector::TSS);
    regs.tr.base = place::TSS;
    machine.cpu.arch.context.regs.xcr0 = machine.cpu.arch.context.xsave_mask;
    machine
}

/// In 32-bit protected mode at CPL 0, without paging.
pub(super) fn protected_mode() -> Machine {
    let mut machine = Machine::new(true);
    load_descriptors(&mut machine);
    machine.write(place::TSS + 4, &(place::INNER_STACK as u32).to_le_bytes());
    machine.write(place::TSS + 8, &selector::DATA.to_le_bytes());
    let regs = machine.regs();
    regs.cr0 = cr0::PE | cr0::NE | cr0::ET;
    regs.rip = place::CODE;
    regs.gpr[4] = place::STACK;
    for which in 0..6 {
        regs.segments[which] = segment(selector::DATA);
    }
    *regs.segment_mut(SegmentRegister::Cs) = segment(selector::CODE_32);
    regs.tr = segment(selector::TSS);
    regs.tr.attributes |= Attributes::WRITABLE;
    machine
}

/// In real-address mode at 4000:0000.
pub(super) fn real_mode() -> Machine {
    let mut machine = Machine::new(true);
    load_descriptors(&mut machine);
    let regs = machine.regs();
    (regs.idtr.base, regs.idtr.limit) = (place::IVT, 0x3ff);
    regs.rip = 0;
    regs.gpr[4] = 0xfffe;
    let code = regs.segment_mut(SegmentRegister::Cs);
    (code.base, code.selector) = (place::CODE, (place::CODE >> 4) as u16);
    let stack = regs.segment_mut(SegmentRegister::Ss);
    (stack.base, stack.selector) = (place::DATA, (place::DATA >> 4) as u16);
    machine
}

/// Run a 64-bit program, which ends with `hlt`, in all ways; look at what it leaves.
pub(super) fn check_long(
    prepare: impl Fn(&mut Machine),
    program: impl Fn(&mut CodeAssembler) -> Result<(), iced_x86::IcedError>,
    verify: impl Fn(&mut Machine),
) {
    let machines = [|| Machine::new(true), || Machine::new(false), Machine::with_helpers];
    for mut machine in machines.map(|new| enter_long_mode(new())) {
        machine.assemble(64, place::CODE, &program);
        prepare(&mut machine);
        machine.run();
        verify(&mut machine);
    }
}
