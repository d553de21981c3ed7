//! The other side: the same cases in a small guest machine, whose page tables give user mode the
//! memory of the native process and whose exception handlers write a port, so that the harness
//! gets to see the state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use cpu::inspect::Inspection;
use cpu::state::{Attributes, cr0, cr4, efer};
use cpu::{
    Board, Config, Exit, Segment, SegmentRegister, Statistics, TableRegister, UserExecution, Vcpu,
    VcpuGroup,
};

use super::case::{Case, NEVER_ENDED, Outcome, usable};
use super::layout::{self, CODE, CODE_PAGES, DATA, Kind, PAGE, PAGES, SLOT_BYTES};
use super::native::xsave_bytes;

const RAM_BYTES: usize = 4 << 20;
/// Selectors at CPL 0, of the same table.
const KERNEL_CODE: u16 = 0x10;
const KERNEL_DATA: u16 = 0x18;
/// The first 2 MiB of memory as the guest's kernel sees them.
const KERNEL: u64 = 0xffff_8000_0000_0000;

// Guest-physical addresses.
const PML4: u64 = 0x1000;
const PDPT_USER: u64 = 0x2000;
const PD_USER: u64 = 0x3000;
const PT_CODE: u64 = 0x4000;
const PT_DATA: u64 = 0x5000;
const PDPT_KERNEL: u64 = 0x6000;
const PD_KERNEL: u64 = 0x7000;
const IDT: u64 = 0x8000;
const GDT: u64 = 0x9000;
const TSS: u64 = 0xa000;
const HANDLERS: u64 = 0xb000;
const STACK_TOP: u64 = 0xf000;
const CODE_FRAMES: u64 = 0x10_0000;
const DATA_FRAMES: u64 = 0x20_0000;

/// Present, writable, accessed, dirty.
const WRITABLE: u64 = 0x63;
/// Present, accessed, dirty.
const READ: u64 = 0x61;
/// The same as an upper level has it: user as well.
const TABLE: u64 = 0x67;
const NO_EXECUTE: u64 = 1 << 63;

/// Where Linux keeps the number of the processor: as the limit, which is not compared.
const CPU_NODE: u64 = 0x0040_f500_0000_0000;

/// A descriptor table like Linux's, as far as programs can tell.
const DESCRIPTORS: [u64; 16] = [
    0,
    0x00cf_9b00_0000_ffff,
    0x00af_9b00_0000_ffff,
    0x00cf_9300_0000_ffff,
    0x00cf_fb00_0000_ffff,
    0x00cf_f300_0000_ffff,
    0x00af_fb00_0000_ffff,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    CPU_NODE,
];

/// In which capacity the guest machine runs the cases. The host runs them as a user program; what
/// else must be different in the guest is turned back by [`Engine::record`], so that one outcome
/// is right for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// CPL 3; the closed page is a supervisor's.
    User,
    /// CPL 3, without the translator; the closed page has a reserved bit set in its entry.
    UserInterpreted,
    /// CPL 3, by the host, in a helper process; the closed page is a supervisor's.
    UserDirect,
    /// CPL 0 on supervisor pages, with SMEP and SMAP; the closed page is a user's.
    Kernel,
    /// CPL 0 on user pages that RFLAGS.AC opens to it; the closed page has a reserved bit set.
    KernelOnUser,
}

impl Setting {
    fn cpl(self) -> u8 {
        if matches!(self, Self::Kernel | Self::KernelOnUser) { 0 } else { 3 }
    }

    /// The page-table entry of a data page, without its address.
    fn entry(self, kind: Kind) -> u64 {
        /// A bit that is reserved in the entry of a 4 KiB page: address bit 51.
        const RESERVED: u64 = 1 << 51;
        let user = u64::from(self != Self::Kernel) << 2;
        match (kind, self) {
            (Kind::Absent, _) => 0,
            (Kind::Writable, _) => WRITABLE | user | NO_EXECUTE,
            (Kind::ReadOnly, _) => READ | user | NO_EXECUTE,
            (Kind::Closed, Self::User | Self::UserDirect) => WRITABLE | NO_EXECUTE,
            (Kind::Closed, Self::Kernel) => WRITABLE | 4 | NO_EXECUTE,
            (Kind::Closed, _) => WRITABLE | user | NO_EXECUTE | RESERVED,
        }
    }

    /// What differs in the error code of a page fault at `address` from that of a user program that
    /// finds nothing there: P, U and RSVD (SDM 3A 4.7).
    fn error_bits(self, address: u64) -> u32 {
        let user = if self.cpl() == 3 { 0 } else { 4 };
        let closed = layout::kind_of(address) == Some(Kind::Closed);
        match self {
            _ if !closed => user,
            Self::User | Self::UserDirect | Self::Kernel => user | 1,
            Self::UserInterpreted | Self::KernelOnUser => user | 9,
        }
    }
}

/// The guest machine.
pub struct Engine {
    setting: Setting,
    vcpu: Vcpu,
    _memory: host::GuestMemory,
    ram: *mut u8,
    data: Vec<u8>,
    watchdog: Arc<Watchdog>,
}

/// Ends cases that do not end by themselves.
#[derive(Default)]
struct Watchdog {
    /// Odd while a case runs.
    cases: AtomicU64,
    over: AtomicBool,
}

impl Engine {
    /// A machine whose data area starts with these bytes.
    pub fn new(data: &[u8], setting: Setting) -> Self {
        let memory = host::GuestMemory::new(&[(0, RAM_BYTES as u64)]).expect("there is memory");
        let ram = memory.regions()[0].host;
        let interpret_only = setting == Setting::UserInterpreted;
        let config = Config {
            apic_id: 0,
            processors: 1,
            tsc_khz: 2_000_000,
            interpret_only,
            board: Board::default(),
        };
        let group = group(&memory, setting);
        group.inspect(Inspection { all_crossings: true, ..Inspection::default() });
        let vcpu = Vcpu::in_group(config, &group).expect("there is room");
        let (data, watchdog) = (data.to_vec(), Arc::default());
        let mut engine = Self { setting, vcpu, _memory: memory, ram, data, watchdog };
        engine.set_up_tables();
        engine.set_up_registers();
        let (kick, watchdog) = (engine.vcpu.kick_handle(), Arc::clone(&engine.watchdog));
        std::thread::spawn(move || watchdog.watch(&kick));
        engine
    }

    /// Run these cases; what came of each.
    pub fn run(&mut self, cases: &[Case], mut check: impl FnMut(usize, &Outcome)) {
        self.fill(CODE_FRAMES, &vec![0xcc; CODE_PAGES * PAGE]);
        for (index, case) in cases.iter().enumerate() {
            let at = CODE_FRAMES + (index * SLOT_BYTES) as u64;
            self.fill(at, &case.code[..case.length as usize]);
        }
        self.vcpu.forget_code();
        let data = std::mem::take(&mut self.data);
        let mut outcome = Outcome::boxed();
        for (index, case) in cases.iter().enumerate() {
            self.fill(DATA_FRAMES, &data);
            self.run_one(index, case, &mut outcome);
            check(index, &outcome);
        }
        self.data = data;
    }

    /// Put a breakpoint, as DR7 has it, on `at` for all cases that follow.
    pub fn set_breakpoint(&mut self, at: u64, dr7: u64) {
        let regs = self.vcpu.registers_mut();
        (regs.dr[0], regs.dr[7]) = (at, dr7);
    }

    /// Make sure that the cases were executed as they were to be, with operands that cross a page split or
    /// not.
    pub fn check_way(&self, crossing: bool) {
        let cases = self.watchdog.cases.load(Ordering::Relaxed) / 2;
        let Statistics { direct_runs: runs, crossings, blocks, .. } = self.vcpu.statistics();
        assert!(!crossing || crossings > cases / 3, "{crossings} crossings in {cases} cases");
        match self.setting {
            Setting::UserDirect => {
                assert!(runs > cases / 2, "{runs} direct runs for {cases} cases");
            }
            Setting::UserInterpreted => assert_eq!((runs, blocks), (0, 0)),
            _ => {
                assert_eq!(runs, 0);
                assert!(blocks > cases / 2, "{blocks} blocks for {cases} cases");
            }
        }
    }

    fn run_one(&mut self, index: usize, case: &Case, outcome: &mut Outcome) {
        self.watchdog.cases.fetch_add(1, Ordering::Relaxed);
        if case.poke.address != 0 {
            self.fill(case.poke.address - DATA + DATA_FRAMES, &case.poke.bytes);
        }
        self.load(index, case);
        let exit = self.vcpu.run().expect("the host does not fail");
        self.watchdog.cases.fetch_add(1, Ordering::Relaxed);
        self.record(exit, outcome);
    }

    fn load(&mut self, index: usize, case: &Case) {
        let state = self.vcpu.extended_state_mut();
        state[..xsave_bytes()].copy_from_slice(&case.xsave[..xsave_bytes()]);
        state[512..520].copy_from_slice(&usable().to_le_bytes());
        let (setting, cpl) = (self.setting, self.setting.cpl());
        let regs = self.vcpu.registers_mut();
        regs.gpr = case.gpr;
        regs.rip = layout::slot(index);
        regs.set_rflags(case.rflags | 1 << 9);
        regs.cpl = cpl;
        if setting == Setting::KernelOnUser {
            regs.alignment_flag = 1;
        }
        regs.cr2 = 0;
        regs.interrupt_shadow = 0;
        let wide = case.bits == 64;
        let data = if wide { 0 } else { layout::USER_DATA };
        let (code, stack) = match cpl {
            0 => (KERNEL_CODE, KERNEL_DATA),
            _ if wide => (layout::USER_CODE_64, layout::USER_DATA),
            _ => (layout::USER_CODE_32, layout::USER_DATA),
        };
        for (which, selector, base) in [
            (SegmentRegister::Es, data, 0),
            (SegmentRegister::Cs, code, 0),
            (SegmentRegister::Ss, stack, 0),
            (SegmentRegister::Ds, data, 0),
            (SegmentRegister::Fs, 0, case.fs_base),
            (SegmentRegister::Gs, 0, case.gs_base),
        ] {
            *regs.segment_mut(which) = segment(selector, base);
        }
    }

    fn record(&self, exit: Exit, outcome: &mut Outcome) {
        let regs = self.vcpu.registers();
        outcome.gpr = regs.gpr;
        let from = regs.rip.wrapping_sub(KERNEL + HANDLERS) / 16;
        outcome.done = 1;
        if !matches!(exit, Exit::IoWrite { port: 0x80, .. }) || from >= 256 {
            outcome.vector = if exit == Exit::Kicked { NEVER_ENDED } else { 1000 };
            outcome.rip = regs.rip;
            return;
        }
        outcome.vector = from as u32;
        let mut frame = regs.gpr[4] - KERNEL;
        outcome.error = 0;
        if matches!(from, 8 | 10..=14 | 17 | 21) {
            outcome.error = self.read(frame) as u32;
            frame += 8;
        }
        outcome.rip = self.read(frame);
        outcome.rflags = self.read(frame + 16);
        outcome.gpr[4] = self.read(frame + 24);
        outcome.cr2 = regs.cr2;
        outcome.selectors = std::array::from_fn(|index| regs.segments[index].selector);
        outcome.selectors[1] = self.read(frame + 8) as u16;
        outcome.selectors[2] = self.read(frame + 32) as u16;
        self.turn_back(outcome);
        outcome.fs_base = regs.segment(SegmentRegister::Fs).base;
        outcome.gs_base = regs.segment(SegmentRegister::Gs).base;
        let length = xsave_bytes();
        outcome.xsave[..length].copy_from_slice(&self.vcpu.extended_state()[..length]);
        for (page, index) in outcome.memory.iter_mut().zip(layout::writable()) {
            let at = DATA_FRAMES as usize + index * PAGE;
            // SAFETY: inside the guest's memory; the guest is not running.
            page.copy_from_slice(unsafe { std::slice::from_raw_parts(self.ram.add(at), PAGE) });
        }
    }

    /// Take out what is different because of the setting, and is not in the host's outcome.
    fn turn_back(&self, outcome: &mut Outcome) {
        if outcome.vector == 14 {
            outcome.error ^= self.setting.error_bits(outcome.cr2);
        }
        if self.setting.cpl() == 0 {
            outcome.selectors[1] ^= KERNEL_CODE ^ layout::USER_CODE_64;
            outcome.selectors[2] ^= KERNEL_DATA ^ layout::USER_DATA;
        }
        if self.setting == Setting::KernelOnUser {
            outcome.rflags ^= 1 << 18;
        }
    }

    fn set_up_tables(&mut self) {
        self.write(PML4, PDPT_USER | TABLE);
        self.write(PML4 + 256 * 8, PDPT_KERNEL | 0x23);
        self.write(PDPT_KERNEL, PD_KERNEL | 0x23);
        self.write(PD_KERNEL, 0xe3);
        self.write(PDPT_USER, PD_USER | TABLE);
        self.write(PD_USER + (CODE >> 21) * 8, PT_CODE | TABLE);
        self.write(PD_USER + (DATA >> 21) * 8, PT_DATA | TABLE);
        // SMEP keeps CPL 0 from executing user pages.
        let code = if self.setting.cpl() == 3 { READ | 4 } else { READ };
        for index in 0..CODE_PAGES as u64 {
            self.write(PT_CODE + index * 8, (CODE_FRAMES + (index << 12)) | code);
        }
        for (index, kind) in (0..).zip(PAGES) {
            let mut entry = self.setting.entry(kind);
            if entry != 0 {
                entry |= DATA_FRAMES + (index << 12);
            }
            self.write(PT_DATA + index * 8, entry);
        }
        for (index, descriptor) in (0..).zip(DESCRIPTORS) {
            self.write(GDT + index * 8, descriptor);
        }
        // All handlers are on a stack of their own, so that CPL 0 can be interrupted with any RSP.
        self.write(TSS + 0x24, KERNEL + STACK_TOP);
        // No permission map: ports are forbidden.
        self.fill(TSS + 0x66, &[0xff, 0xff]);
        for vector in 0..256 {
            let handler = HANDLERS + vector * 16;
            // out 0x80, al; jmp back to it
            self.fill(handler, &[0xe6, 0x80, 0xeb, 0xfc]);
            let address = KERNEL + handler;
            let dpl = if matches!(vector, 3 | 4) { 3 << 45 } else { 0 };
            let low = (address & 0xffff) | 0x10 << 16 | 1 << 32 | 0x8e << 40 | dpl;
            self.write(IDT + vector * 16, low | (address >> 16 & 0xffff) << 48);
            self.write(IDT + vector * 16 + 8, address >> 32);
        }
    }

    fn set_up_registers(&mut self) {
        let regs = self.vcpu.registers_mut();
        regs.cr0 = cr0::PE | cr0::MP | cr0::ET | cr0::NE | cr0::WP | cr0::AM | cr0::PG;
        regs.cr3 = PML4;
        regs.cr4 = cr4::PAE
            | cr4::PGE
            | cr4::DE
            | cr4::OSFXSR
            | cr4::OSXMMEXCPT
            | cr4::OSXSAVE
            | cr4::UMIP
            | cr4::SMEP
            | cr4::SMAP
            | cr4::FSGSBASE;
        regs.efer = efer::SCE | efer::LME | efer::LMA | efer::NXE;
        regs.xcr0 = usable();
        regs.gdtr = TableRegister { base: KERNEL + GDT, limit: 127 };
        regs.idtr = TableRegister { base: KERNEL + IDT, limit: 4095 };
        let attributes = |bits| Attributes::from_bits_retain(bits);
        regs.tr = Segment {
            base: KERNEL + TSS,
            limit: 0x67,
            selector: 0x40,
            attributes: attributes(0x8b),
        };
        regs.ldtr = Segment { base: 0, limit: 0, selector: 0, attributes: Attributes::UNUSABLE };
    }

    fn fill(&mut self, at: u64, bytes: &[u8]) {
        assert!(at as usize + bytes.len() <= RAM_BYTES);
        // SAFETY: inside the guest's memory; the guest is not running.
        unsafe {
            let target = self.ram.add(at as usize);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len());
        }
    }

    fn write(&mut self, at: u64, value: u64) {
        self.fill(at, &value.to_le_bytes());
    }

    fn read(&self, at: u64) -> u64 {
        if at as usize + 8 > RAM_BYTES {
            return 0xdead;
        }
        // SAFETY: inside the guest's memory; the guest is not running.
        unsafe { self.ram.add(at as usize).cast::<u64>().read_unaligned() }
    }
}

/// Whether user code can be run directly here; says why not.
pub fn has_helpers() -> bool {
    let memory = host::GuestMemory::new(&[(0, RAM_BYTES as u64)]).expect("there is memory");
    let started = direct::Helpers::start(&memory);
    if let Err(error) = &started {
        println!("left out, because user code cannot be run directly here: {error}");
    }
    started.is_ok()
}

fn group(memory: &host::GuestMemory, setting: Setting) -> Arc<VcpuGroup> {
    if setting != Setting::UserDirect {
        return VcpuGroup::in_memory(memory).expect("this host runs the engine");
    }
    let helpers = direct::Helpers::start(memory).expect("this host runs helpers");
    VcpuGroup::with_helpers(memory, &helpers, UserExecution::Direct)
        .expect("this host runs helpers")
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.watchdog.over.store(true, Ordering::Relaxed);
    }
}

impl Watchdog {
    /// Kick the processor when a case has taken seconds.
    fn watch(&self, kick: &cpu::Kick) {
        let mut last = 0;
        while !self.over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_secs(2));
            let now = self.cases.load(Ordering::Relaxed);
            if now == last && now % 2 == 1 {
                kick.kick();
            }
            last = now;
        }
    }
}

/// What loading `selector` leaves in a segment register; `base` is for FS and GS.
fn segment(selector: u16, base: u64) -> Segment {
    let attributes = match selector {
        layout::USER_CODE_64 => 0xa0fb,
        layout::USER_CODE_32 => 0xc0fb,
        layout::USER_DATA => 0xc0f3,
        KERNEL_CODE => 0xa09b,
        KERNEL_DATA => 0xc093,
        _ => Attributes::UNUSABLE.bits(),
    };
    let limit = if selector == 0 { 0 } else { u32::MAX };
    Segment { base, limit, selector, attributes: Attributes::from_bits_retain(attributes) }
}
