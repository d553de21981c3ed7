//! Hypercalls by number, and several in one (public/xen.h).
//!
//! A 64-bit guest executes `syscall` with the number in RAX and the arguments in RDI, RSI, RDX, R10 and R8. RAX
//! is the result, negative for an error (`errno`). RCX and R11 are lost, as `syscall` loses them.

constants! {
    /// The hypercalls.
    number: u32 {
        SET_TRAP_TABLE = 0, "__HYPERVISOR_set_trap_table";
        MMU_UPDATE = 1, "__HYPERVISOR_mmu_update";
        SET_GDT = 2, "__HYPERVISOR_set_gdt";
        STACK_SWITCH = 3, "__HYPERVISOR_stack_switch";
        /// Superseded by [`CALLBACK_OP`].
        SET_CALLBACKS = 4, "__HYPERVISOR_set_callbacks";
        FPU_TASKSWITCH = 5, "__HYPERVISOR_fpu_taskswitch";
        /// Superseded by [`SCHED_OP`].
        SCHED_OP_COMPAT = 6, "__HYPERVISOR_sched_op_compat";
        PLATFORM_OP = 7, "__HYPERVISOR_platform_op";
        SET_DEBUGREG = 8, "__HYPERVISOR_set_debugreg";
        GET_DEBUGREG = 9, "__HYPERVISOR_get_debugreg";
        UPDATE_DESCRIPTOR = 10, "__HYPERVISOR_update_descriptor";
        MEMORY_OP = 12, "__HYPERVISOR_memory_op";
        MULTICALL = 13, "__HYPERVISOR_multicall";
        UPDATE_VA_MAPPING = 14, "__HYPERVISOR_update_va_mapping";
        SET_TIMER_OP = 15, "__HYPERVISOR_set_timer_op";
        /// Superseded by [`EVENT_CHANNEL_OP`].
        EVENT_CHANNEL_OP_COMPAT = 16, "__HYPERVISOR_event_channel_op_compat";
        XEN_VERSION = 17, "__HYPERVISOR_xen_version";
        CONSOLE_IO = 18, "__HYPERVISOR_console_io";
        /// Superseded by [`PHYSDEV_OP`].
        PHYSDEV_OP_COMPAT = 19, "__HYPERVISOR_physdev_op_compat";
        GRANT_TABLE_OP = 20, "__HYPERVISOR_grant_table_op";
        VM_ASSIST = 21, "__HYPERVISOR_vm_assist";
        UPDATE_VA_MAPPING_OTHERDOMAIN = 22, "__HYPERVISOR_update_va_mapping_otherdomain";
        IRET = 23, "__HYPERVISOR_iret";
        VCPU_OP = 24, "__HYPERVISOR_vcpu_op";
        SET_SEGMENT_BASE = 25, "__HYPERVISOR_set_segment_base";
        MMUEXT_OP = 26, "__HYPERVISOR_mmuext_op";
        XSM_OP = 27, "__HYPERVISOR_xsm_op";
        NMI_OP = 28, "__HYPERVISOR_nmi_op";
        SCHED_OP = 29, "__HYPERVISOR_sched_op";
        CALLBACK_OP = 30, "__HYPERVISOR_callback_op";
        XENOPROF_OP = 31, "__HYPERVISOR_xenoprof_op";
        EVENT_CHANNEL_OP = 32, "__HYPERVISOR_event_channel_op";
        PHYSDEV_OP = 33, "__HYPERVISOR_physdev_op";
        HVM_OP = 34, "__HYPERVISOR_hvm_op";
        SYSCTL = 35, "__HYPERVISOR_sysctl";
        DOMCTL = 36, "__HYPERVISOR_domctl";
        KEXEC_OP = 37, "__HYPERVISOR_kexec_op";
        TMEM_OP = 38, "__HYPERVISOR_tmem_op";
        ARGO_OP = 39, "__HYPERVISOR_argo_op";
        XENPMU_OP = 40, "__HYPERVISOR_xenpmu_op";
        DM_OP = 41, "__HYPERVISOR_dm_op";
        HYPFS_OP = 42, "__HYPERVISOR_hypfs_op";
        ARCH_0 = 48, "__HYPERVISOR_arch_0";
        ARCH_7 = 55, "__HYPERVISOR_arch_7";
    }
}

constants! {
    /// Commands of `vm_assist`.
    assist_command: u32 {
        ENABLE = 0, "VMASST_CMD_enable";
        DISABLE = 1, "VMASST_CMD_disable";
    }
}

constants! {
    /// What `vm_assist` switches.
    assist: u32 {
        FOUR_GIB_SEGMENTS = 0, "VMASST_TYPE_4gb_segments";
        FOUR_GIB_SEGMENTS_NOTIFY = 1, "VMASST_TYPE_4gb_segments_notify";
        /// Writes to page tables are carried out as if they were mapped writable.
        WRITABLE_PAGE_TABLES = 2, "VMASST_TYPE_writable_pagetables";
        PAE_EXTENDED_CR3 = 3, "VMASST_TYPE_pae_extended_cr3";
        /// The kernel sees its privilege as 0 rather than 1 where IOPL is compared with it.
        ARCHITECTURAL_IOPL = 4, "VMASST_TYPE_architectural_iopl";
        /// `shared::runstate::UPDATE` is set while a runstate area is being written.
        RUNSTATE_UPDATE_FLAG = 5, "VMASST_TYPE_runstate_update_flag";
        M2P_STRICT = 32, "VMASST_TYPE_m2p_strict";
    }
}

structure! {
    /// One call among several of `multicall`.
    MulticallEntry = "struct multicall_entry", 64 {
        number: u64 = "op" @ 0,
        /// Written when the call returns, before the next is made.
        result: u64 = "result" @ 8,
        arguments: [u64; 6] = "args" @ 16,
    }
}

/// Bytes between the entries of a hypercall page: the guest calls number N at its start plus N times as many.
pub const PAGE_ENTRY_BYTES: usize = 32;
