//! What the hypervisor asks of a paravirtual vCPU, between two runs.

use xen_abi::callback::{TRAP_MASKS_EVENTS, TRAP_PRIVILEGE_MASK, TrapInfo, kind};
use xen_abi::vcpu::{GuestContext, context};

use super::segments::{flat_code, flat_data};
use super::{GDT_FRAMES, Gate, Paravirtual, reserved};
use crate::context::XsaveArea;
use crate::memory::{Access, Flush, Linear, Physical, Privilege};
use crate::state::{Attributes, Registers, Segment, SegmentRegister, cr0, cr4, efer, rflags};
use crate::system::null_segment;
use crate::vcpu::Vcpu;

/// Attributes of an LDT.
const LDT: u16 = 0x82;

/// Bytes of a descriptor.
const DESCRIPTOR_BYTES: u32 = 8;

/// XSTATE_BV of an image with x87 and SSE state (SDM 1 13.4.2).
const LEGACY: u64 = 3;

/// The bytes of an image that `fxsave` makes.
const FXSAVE_BYTES: usize = 512;

impl Vcpu {
    fn paravirtual(&mut self) -> Option<&mut Paravirtual> {
        self.arch.paravirtual.as_deref_mut()
    }

    /// Why the domain has ended, if it has by a fault of its own.
    pub fn domain_crash(&self) -> Option<&'static str> {
        self.arch.paravirtual.as_ref()?.crash()
    }

    /// A hypercall returns this.
    pub fn set_call_result(&mut self, value: u64) {
        self.arch.context.regs.gpr[0] = value;
    }

    /// The hypercall that the vCPU has stopped at is made again, with these arguments.
    pub fn restart_call(&mut self, [rdi, rsi, rdx, r10, r8]: [u64; 5]) {
        /// Bytes of `syscall`.
        const LENGTH: u64 = 2;
        let regs = &mut self.arch.context.regs;
        regs.rip = regs.rip.wrapping_sub(LENGTH);
        (regs.gpr[7], regs.gpr[6], regs.gpr[2]) = (rdi, rsi, rdx);
        (regs.gpr[10], regs.gpr[8]) = (r10, r8);
    }

    /// Do what the `iret` hypercall does.
    pub fn return_from_call(&mut self) {
        self.busily(|cpu| {
            if let Err(trap) = cpu.arch.paravirtual_return() {
                // Whatever it is, the next run says it: the processor has shut down.
                let _ = cpu.take_trap(trap);
            }
        });
    }

    /// Whether another thread wants the vCPU to come back.
    pub fn is_kicked(&self) -> bool {
        self.arch.is_kicked()
    }

    /// Fill `bytes` from a linear address on, as the kernel reads memory; whether that was possible.
    pub fn read_kernel_memory(&mut self, at: u64, bytes: &mut [u8]) -> bool {
        reserved::leaves_out(at, bytes.len())
            && self.arch.reaches_all(at, bytes.len(), Access::Read)
            && self.arch.read_linear(Linear(at), bytes, Privilege::Current).is_ok()
    }

    /// Store `bytes` from a linear address on, as the kernel writes memory; whether that was possible.
    pub fn write_kernel_memory(&mut self, at: u64, bytes: &[u8]) -> bool {
        reserved::leaves_out(at, bytes.len())
            && self.arch.reaches_all(at, bytes.len(), Access::Write)
            && self
                .busily(|cpu| cpu.arch.write_linear(Linear(at), bytes, Privilege::Current))
                .is_ok()
    }

    /// Forget all traps.
    pub fn clear_traps(&mut self) {
        if let Some(state) = self.paravirtual() {
            state.traps.fill(Gate::default());
        }
    }

    /// Set one trap of the table.
    pub fn set_trap(&mut self, trap: &TrapInfo) {
        if let Some(state) = self.paravirtual() {
            state.traps[usize::from(trap.vector)] = Gate {
                address: trap.address,
                privilege: trap.flags & TRAP_PRIVILEGE_MASK,
                masks_events: trap.flags & TRAP_MASKS_EVENTS != 0,
            };
        }
    }

    /// Set a callback of this kind; address 0 is none.
    pub fn set_callback(&mut self, kind: u16, address: u64, masks_events: bool) {
        if let Some(state) = self.paravirtual()
            && let Some(callback) = state.callbacks.get_mut(usize::from(kind))
        {
            *callback = Gate { address, privilege: 0, masks_events };
        }
    }

    /// The stack on which the kernel is entered from user mode.
    pub fn set_kernel_stack(&mut self, selector: u16, pointer: u64) {
        self.arch.set_kernel_stack(selector, pointer);
    }

    /// CR0.TS.
    pub fn set_task_switched(&mut self, is_set: bool) {
        self.arch.set_task_switched(is_set);
    }

    /// The base of FS.
    pub fn set_fs_base(&mut self, base: u64) {
        self.arch.set_fs_base(base);
    }

    /// The base of GS: that of user programs, or that of the kernel.
    pub fn set_gs_base(&mut self, of_user: bool, base: u64) {
        self.arch.set_gs_base(of_user, base);
    }

    /// Load the GS of user programs with a selector; a bad one becomes null.
    pub fn load_user_gs(&mut self, selector: u16) {
        let gs = *self.arch.context.regs.segment(SegmentRegister::Gs);
        if self.arch.load_segment(SegmentRegister::Gs, selector).is_err() {
            *self.arch.context.regs.segment_mut(SegmentRegister::Gs) = null_segment(0);
        }
        // The kernel's base remains: Xen loads the selector between two `swapgs`.
        let regs = &mut self.arch.context.regs;
        let loaded = regs.segment_mut(SegmentRegister::Gs);
        let base = std::mem::replace(&mut loaded.base, gs.base);
        regs.kernel_gs_base = base;
    }

    /// A debug register, 0 to 7.
    pub fn debug_register(&self, number: usize) -> u64 {
        self.arch.context.regs.dr.get(number).copied().unwrap_or(0)
    }

    /// Set a debug register, 0 to 7.
    pub fn set_debug_register(&mut self, number: usize, value: u64) {
        if let Some(register) = self.arch.context.regs.dr.get_mut(number) {
            *register = value;
        }
    }

    /// The level up to which ports are open.
    pub fn set_io_privilege(&mut self, level: u8) {
        if let Some(state) = self.paravirtual() {
            state.io_privilege = level & 3;
        }
    }

    /// The bitmap of ports that are open to all, for so many ports: as a TSS has it, in the kernel's memory.
    pub fn set_open_ports(&mut self, bitmap: u64, ports: u32) {
        if let Some(state) = self.paravirtual() {
            state.open_ports = (bitmap, ports.min(1 << 16));
        }
    }

    /// What [`Self::set_open_ports`] has said, if there are such ports.
    pub fn open_ports(&self) -> Option<(u64, u32)> {
        let state = self.arch.paravirtual.as_deref()?;
        Some(state.open_ports).filter(|(_, ports)| *ports > 0)
    }

    /// The assists of `vm_assist` that are on.
    pub fn set_assists(&mut self, assists: u64) {
        if let Some(state) = self.paravirtual() {
            state.assists = assists;
        }
    }

    /// The frames of the GDT, by machine addresses. Xen's own descriptors lie behind, so that its limit is the largest.
    pub fn set_gdt(&mut self, frames: &[u64]) {
        let Some(state) = self.arch.paravirtual.as_deref_mut() else { return };
        state.gdt = [0; GDT_FRAMES];
        state.gdt.iter_mut().zip(frames).for_each(|(place, frame)| *place = *frame);
        let table = &mut self.arch.context.regs.gdtr;
        (table.base, table.limit) = (reserved::GDT, u16::MAX);
        // What was read by the old frames.
        self.arch.flush_tlb(Flush::All);
    }

    /// The LDT: its linear address, and how many descriptors it has.
    pub fn set_ldt(&mut self, base: u64, entries: u32) {
        self.arch.context.regs.ldtr = match entries {
            0 => null_segment(0),
            _ => Segment {
                base,
                limit: entries.saturating_mul(DESCRIPTOR_BYTES) - 1,
                selector: 0,
                attributes: Attributes::from_bits_retain(LDT),
            },
        };
    }

    /// The root of the kernel's address space, by its machine address.
    pub fn load_kernel_root(&mut self, root: u64) {
        let Some(state) = self.arch.paravirtual.as_deref_mut() else { return };
        state.kernel_root = root;
        if self.arch.context.regs.cpl == 0 {
            self.arch.context.regs.cr3 = root;
        }
        self.arch.switch_space();
    }

    /// The root of the address space of user programs; 0 is none.
    pub fn load_user_root(&mut self, root: u64) {
        let Some(state) = self.arch.paravirtual.as_deref_mut() else { return };
        state.user_root = root;
        if self.arch.context.regs.cpl != 0 {
            self.arch.context.regs.cr3 = root;
        }
        self.arch.switch_user_space();
    }

    /// The machine-to-physical table: its machine address and its bytes.
    pub fn set_machine_to_physical(&mut self, at: u64, bytes: u64) {
        if let Some(state) = self.paravirtual() {
            state.table = (at, bytes);
        }
    }

    /// Where the vCPU's `vcpu_info` is.
    pub fn set_vcpu_info(&mut self, at: u64) {
        if let Some(state) = self.paravirtual() {
            state.info = Some(Physical(at));
        }
    }

    /// Load everything (public/xen.h: `VCPUOP_initialise`).
    pub fn initialise_paravirtual(&mut self, start: &GuestContext) {
        let regs = &mut self.arch.context.regs;
        let tsc_offset = regs.tsc_offset;
        *regs = registers(start);
        regs.tsc_offset = tsc_offset;
        let in_kernel = start.flags & context::IN_KERNEL != 0;
        self.load_extended(start);
        let Some(state) = self.arch.paravirtual.as_deref_mut() else { return };
        (state.kernel_root, state.user_root) = (start.control[3], start.control[1]);
        self.arch.context.regs.cr3 = if in_kernel { state.kernel_root } else { state.user_root };
        state.kernel_stack = (start.kernel_ss as u16, start.kernel_sp);
        state.assists = start.vm_assist;
        // A vCPU's IOPL starts as its flags have it (Xen: `arch_set_info_guest`).
        state.io_privilege = (start.registers.rflags >> 12 & 3) as u8;
        self.clear_traps();
        start.traps.iter().filter(|trap| trap.address != 0).for_each(|trap| self.set_trap(trap));
        let masks = |flag| start.flags & flag != 0;
        self.set_callback(kind::EVENT, start.event_callback, true);
        let fail_safe = masks(context::FAILSAFE_DISABLES_EVENTS);
        self.set_callback(kind::FAILSAFE, start.failsafe_callback, fail_safe);
        let system_call = masks(context::SYSCALL_DISABLES_EVENTS);
        self.set_callback(kind::SYSCALL, start.syscall_callback, system_call);
        let frames = start.gdt_frames.map(|frame| frame << xen_abi::PAGE_SHIFT);
        let used = (start.gdt_entries.div_ceil(512) as usize).min(GDT_FRAMES);
        self.set_gdt(&frames[..used]);
        self.set_ldt(start.ldt_base, u32::try_from(start.ldt_entries).unwrap_or(u32::MAX));
        self.pending = crate::vcpu::Pending::default();
        self.arch.clear_cpuid_cache();
        self.arch.begin_spaces();
    }

    /// Load x87 and vector state: the image of a start, if it has one that a processor would load; else as after RESET.
    fn load_extended(&mut self, start: &GuestContext) {
        let mut area = XsaveArea::initial();
        if start.flags & context::I387_VALID != 0 {
            area.0[..FXSAVE_BYTES].copy_from_slice(&start.fpu);
            area.0[FXSAVE_BYTES..FXSAVE_BYTES + 8].copy_from_slice(&LEGACY.to_le_bytes());
        }
        let fits = crate::interpret::can_be_loaded(&area.0, self.arch.system.components());
        self.arch.context.xsave = if fits { area } else { XsaveArea::initial() };
    }
}

/// The registers of a start.
fn registers(start: &GuestContext) -> Registers {
    let mut regs = Registers::reset();
    let user = &start.registers;
    regs.gpr = [
        user.rax, user.rcx, user.rdx, user.rbx, user.rsp, user.rbp, user.rsi, user.rdi, user.r8,
        user.r9, user.r10, user.r11, user.r12, user.r13, user.r14, user.r15,
    ];
    regs.rip = user.rip;
    regs.cpl = if start.flags & context::IN_KERNEL != 0 { 0 } else { 3 };
    regs.set_rflags(user.rflags & !(rflags::IOPL | rflags::VM | rflags::NT) | rflags::IF | 2);
    regs.cr0 = start.control[0] | cr0::PG | cr0::PE | cr0::WP | cr0::NE | cr0::ET;
    regs.cr4 = start.control[4] & (cr4::OSXSAVE | cr4::OSFXSR | cr4::OSXMMEXCPT) | cr4::PAE;
    regs.cr4 |= cr4::OSFXSR | cr4::OSXMMEXCPT | cr4::OSXSAVE;
    regs.efer = efer::LMA | efer::LME | efer::SCE | efer::NXE;
    regs.dr[..4].copy_from_slice(&start.debug[..4]);
    for which in [SegmentRegister::Ds, SegmentRegister::Es] {
        *regs.segment_mut(which) = null_segment(0);
    }
    let gs = if regs.cpl == 0 { start.gs_base_kernel } else { start.gs_base_user };
    let other = if regs.cpl == 0 { start.gs_base_user } else { start.gs_base_kernel };
    *regs.segment_mut(SegmentRegister::Fs) = Segment { base: start.fs_base, ..null_segment(0) };
    *regs.segment_mut(SegmentRegister::Gs) = Segment { base: gs, ..null_segment(0) };
    regs.kernel_gs_base = other;
    *regs.segment_mut(SegmentRegister::Cs) = flat_code(user.cs | 3);
    *regs.segment_mut(SegmentRegister::Ss) = flat_data(user.ss | 3);
    regs
}
