//! Why [`crate::Vcpu::run`] came back: the seam between the processor and the machine.

use serde::{Deserialize, Serialize};

/// One reason why the vCPU returns from `run`. Reads are answered with [`crate::Vcpu::complete_read`] before the
/// next `run`; everything else needs no answer, except where it says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // The fields are explained with their variants.
pub enum Exit {
    /// `in` from an I/O port; `size` is 1, 2 or 4 bytes. Answer with the value.
    IoRead { port: u16, size: u8 },
    /// `out` to an I/O port; `size` is 1, 2 or 4 bytes.
    IoWrite { port: u16, size: u8, value: u32 },
    /// A load from guest-physical space where no memory is; at most 8 bytes. Answer with the value.
    MmioRead { address: u64, size: u8 },
    /// A store to guest-physical space where no memory is; at most 8 bytes.
    MmioWrite { address: u64, size: u8, value: u64 },
    /// `rdmsr` of a register that belongs to the platform (APIC, kvmclock, ...). Answer with the
    /// value, or with [`crate::Vcpu::fail_msr`] for #GP.
    MsrRead { index: u32 },
    /// `wrmsr` of a register that belongs to the platform. Answer with [`crate::Vcpu::complete_write_msr`]
    /// or, for #GP, [`crate::Vcpu::fail_msr`].
    MsrWrite { index: u32, value: u64 },
    /// `mov r64, cr8`: answer with bits 7:4 of the task-priority register.
    TprRead,
    /// `mov cr8, r64`: the new bits 7:4 of the task-priority register.
    TprWrite { value: u8 },
    /// `vmcall` or `vmmcall` at CPL 0: a call to the hypervisor, with number and arguments as [`crate::Hypervisor`] has
    /// them. Answer with RAX.
    Hypercall { number: u64, arguments: [u64; 4] },
    /// `syscall` by a paravirtual kernel: a hypercall, with the number in RAX and the arguments in RDI, RSI, RDX, R10
    /// and R8. The instruction has completed. The machine sets RAX, or all registers.
    ParavirtualCall { number: u64, arguments: [u64; 5] },
    /// A paravirtual kernel writes to RAM that its page tables map read-only. The instruction has completed but for
    /// this write, in the aligned eight bytes at a guest-physical address: `old` was found there, `new` is to be there.
    /// The machine writes it, or has the instruction fault or start over.
    ParavirtualWrite { address: u64, old: u64, new: u64 },
    /// `hlt` with nothing pending: resume when an interrupt is to be injected.
    Halt,
    /// The window that was asked for with [`crate::Vcpu::request_interrupt_window`] is open.
    InterruptWindow,
    /// [`crate::Kick::kick`] was called, or the alarm of [`crate::Vcpu::set_alarm`] has gone off.
    Kicked,
    /// A debugger is to be told why the vCPU has stopped: [`crate::Vcpu::take_stop`] says it.
    Debug,
    /// Triple fault: the processor has shut down (SDM 3A 6.15, "shutdown").
    Shutdown,
}
