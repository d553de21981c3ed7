//! The other side: the same cases in a small guest machine, whose page tables give user mode the
//! memory of the native process and whose exception handlers write a port, so that the harness
//! gets to see the state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use cpu::state::{Attributes, cr0, cr4, efer};
use cpu::{Config, Exit, RamRegion, Segment, SegmentRegister, TableRegister, Vcpu};

use super::case::{Case, NEVER_ENDED, Outcome, usable};
use super::layout::{self, CODE, CODE_PAGES, DATA, Kind, PAGE, PAGES, SLOT_BYTES};
use super::native::xsave_bytes;

const RAM_BYTES: usize = 4 << 20;
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

/// Present, writable, user, accessed, dirty.
const USER_WRITABLE: u64 = 0x67;
/// Present, user, accessed, dirty.
const USER_READ: u64 = 0x65;
const NO_EXECUTE: u64 = 1 << 63;

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
    0,
];

/// The guest machine.
pub struct Engine {
    vcpu: Vcpu,
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
    pub fn new(data: &[u8], interpret_only: bool) -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping.
        let ram = unsafe { libc::mmap(std::ptr::null_mut(), RAM_BYTES, 3, flags, -1, 0) };
        assert!(ram != libc::MAP_FAILED, "no memory for the guest");
        let ram = ram.cast::<u8>();
        let config = Config { apic_id: 0, processors: 1, tsc_khz: 2_000_000, interpret_only };
        let region = RamRegion { guest: 0, size: RAM_BYTES as u64, host: ram };
        // SAFETY: the mapping lives until the machine is dropped.
        let vcpu = unsafe { Vcpu::new(config, vec![region]) }.expect("this host runs the engine");
        let mut engine = Self { vcpu, ram, data: data.to_vec(), watchdog: Arc::default() };
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
        let regs = self.vcpu.registers_mut();
        regs.gpr = case.gpr;
        regs.rip = layout::slot(index);
        regs.set_rflags(case.rflags | 1 << 9);
        regs.cpl = 3;
        regs.cr2 = 0;
        regs.interrupt_shadow = 0;
        let wide = case.bits == 64;
        let data = if wide { 0 } else { layout::USER_DATA };
        let code = if wide { layout::USER_CODE_64 } else { layout::USER_CODE_32 };
        for (which, selector, base) in [
            (SegmentRegister::Es, data, 0),
            (SegmentRegister::Cs, code, 0),
            (SegmentRegister::Ss, layout::USER_DATA, 0),
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

    fn set_up_tables(&mut self) {
        self.write(PML4, PDPT_USER | USER_WRITABLE);
        self.write(PML4 + 256 * 8, PDPT_KERNEL | 0x23);
        self.write(PDPT_KERNEL, PD_KERNEL | 0x23);
        self.write(PD_KERNEL, 0xe3);
        self.write(PDPT_USER, PD_USER | USER_WRITABLE);
        self.write(PD_USER + (CODE >> 21) * 8, PT_CODE | USER_WRITABLE);
        self.write(PD_USER + (DATA >> 21) * 8, PT_DATA | USER_WRITABLE);
        for index in 0..CODE_PAGES as u64 {
            self.write(PT_CODE + index * 8, (CODE_FRAMES + (index << 12)) | USER_READ);
        }
        for (index, kind) in (0..).zip(PAGES) {
            let frame = DATA_FRAMES + (index << 12);
            let entry = match kind {
                Kind::Absent => 0,
                Kind::Writable => frame | USER_WRITABLE | NO_EXECUTE,
                Kind::ReadOnly => frame | USER_READ | NO_EXECUTE,
            };
            self.write(PT_DATA + index * 8, entry);
        }
        for (index, descriptor) in (0..).zip(DESCRIPTORS) {
            self.write(GDT + index * 8, descriptor);
        }
        self.write(TSS + 4, KERNEL + STACK_TOP);
        // No permission map: ports are forbidden.
        self.fill(TSS + 0x66, &[0xff, 0xff]);
        for vector in 0..256 {
            let handler = HANDLERS + vector * 16;
            // out 0x80, al; jmp back to it
            self.fill(handler, &[0xe6, 0x80, 0xeb, 0xfc]);
            let address = KERNEL + handler;
            let dpl = if matches!(vector, 3 | 4) { 3 << 45 } else { 0 };
            let low = (address & 0xffff) | 0x10 << 16 | 0x8e << 40 | dpl;
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

impl Drop for Engine {
    fn drop(&mut self) {
        // The memory stays mapped: the processor is dropped after this.
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
        _ => Attributes::UNUSABLE.bits(),
    };
    let limit = if selector == 0 { 0 } else { u32::MAX };
    Segment { base, limit, selector, attributes: Attributes::from_bits_retain(attributes) }
}
