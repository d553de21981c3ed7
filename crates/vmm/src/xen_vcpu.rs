//! The engine's vCPU as a board with Xen's paravirtual interface sees it.

use cpu::Vcpu;
use machine::xen::{FlushOf, Inaccessible, SegmentBase, XenVcpu};
use vm_memory::GuestAddress;
use xen_abi::Mfn;
use xen_abi::callback::TrapInfo;
use xen_abi::vcpu::GuestContext;

// The board tells the kernel where the engine has the table.
const _: () = assert!(machine::xen::MACHINE_TO_PHYSICAL == cpu::MACHINE_TO_PHYSICAL);

/// The address that the engine flushes, if it is one.
fn address_of(of: FlushOf) -> Option<u64> {
    match of {
        FlushOf::All => None,
        FlushOf::Page(at) => Some(at),
    }
}

/// See above.
pub struct EngineVcpu<'a>(pub(crate) &'a mut Vcpu);

impl XenVcpu for EngineVcpu<'_> {
    fn set_result(&mut self, value: u64) {
        self.0.set_call_result(value);
    }

    fn restart_call(&mut self, arguments: [u64; 5]) {
        self.0.restart_call(arguments);
    }

    fn return_from_call(&mut self) {
        self.0.return_from_call();
    }

    fn is_kicked(&self) -> bool {
        self.0.is_kicked()
    }

    fn read_linear(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), Inaccessible> {
        if self.0.read_kernel_memory(at, bytes) { Ok(()) } else { Err(Inaccessible) }
    }

    fn write_linear(&mut self, at: u64, bytes: &[u8]) -> Result<(), Inaccessible> {
        if self.0.write_kernel_memory(at, bytes) { Ok(()) } else { Err(Inaccessible) }
    }

    fn clear_traps(&mut self) {
        self.0.clear_traps();
    }

    fn set_trap(&mut self, trap: &TrapInfo) {
        self.0.set_trap(trap);
    }

    fn set_callback(&mut self, kind: u16, address: u64, masks_events: bool) {
        self.0.set_callback(kind, address, masks_events);
    }

    fn set_kernel_stack(&mut self, selector: u16, pointer: u64) {
        self.0.set_kernel_stack(selector, pointer);
    }

    fn set_task_switched(&mut self, is_set: bool) {
        self.0.set_task_switched(is_set);
    }

    fn set_segment_base(&mut self, which: SegmentBase, base: u64) {
        match which {
            SegmentBase::Fs => self.0.set_fs_base(base),
            SegmentBase::UserGs => self.0.set_gs_base(true, base),
            SegmentBase::KernelGs => self.0.set_gs_base(false, base),
        }
    }

    fn load_user_gs(&mut self, selector: u16) {
        self.0.load_user_gs(selector);
    }

    fn debug_register(&self, number: usize) -> u64 {
        self.0.debug_register(number)
    }

    fn set_debug_register(&mut self, number: usize, value: u64) {
        self.0.set_debug_register(number, value);
    }

    fn set_io_privilege(&mut self, level: u8) {
        self.0.set_io_privilege(level);
    }

    fn set_open_ports(&mut self, bitmap: u64, ports: u32) {
        self.0.set_open_ports(bitmap, ports);
    }

    fn set_assists(&mut self, assists: u64) {
        self.0.set_assists(assists);
    }

    fn set_gdt(&mut self, frames: &[Mfn]) {
        let addresses: Vec<u64> = frames.iter().map(|frame| frame.address()).collect();
        self.0.set_gdt(&addresses);
    }

    fn set_ldt(&mut self, base: u64, entries: u32) {
        self.0.set_ldt(base, entries);
    }

    fn load_kernel_root(&mut self, root: Mfn) {
        self.0.load_kernel_root(root.address());
    }

    fn load_user_root(&mut self, root: Option<Mfn>) {
        self.0.load_user_root(root.map_or(0, Mfn::address));
    }

    fn flush(&mut self, of: FlushOf) {
        self.0.flush_translations(address_of(of));
    }

    fn flush_others(&mut self, vcpus: u64, of: FlushOf) {
        self.0.flush_others_translations(vcpus, address_of(of));
    }

    fn entry_changed(&mut self, (table, level): (Mfn, u8), index: usize, old: u64, new: u64) {
        self.0.table_entry_changed((table.address(), level), index, old, new);
    }

    fn table_demoted(&mut self, table: Mfn, level: u8) {
        self.0.table_demoted(table.address(), level);
    }

    fn revoke_writable(&mut self, frame: Mfn) {
        self.0.revoke_writable(frame.address());
    }

    fn set_machine_to_physical(&mut self, at: GuestAddress, bytes: u64) {
        self.0.set_machine_to_physical(at.0, bytes);
    }

    fn set_vcpu_info(&mut self, at: GuestAddress) {
        self.0.set_vcpu_info(at.0);
    }

    fn refuse_write(&mut self) {
        self.0.refuse_paravirtual_write();
    }

    fn retry_write(&mut self) {
        self.0.retry_paravirtual_write();
    }

    fn initialise(&mut self, context: &GuestContext) {
        self.0.initialise_paravirtual(context);
    }
}
