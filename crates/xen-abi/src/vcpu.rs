//! vCPUs (public/vcpu.h) and their state (public/arch-x86/xen.h, public/arch-x86/xen-x86_64.h).

use crate::callback::TrapInfo;

constants! {
    /// Sub-commands of `vcpu_op`.
    command: u32 {
        INITIALISE = 0, "VCPUOP_initialise";
        UP = 1, "VCPUOP_up";
        DOWN = 2, "VCPUOP_down";
        IS_UP = 3, "VCPUOP_is_up";
        GET_RUNSTATE_INFO = 4, "VCPUOP_get_runstate_info";
        REGISTER_RUNSTATE_MEMORY_AREA = 5, "VCPUOP_register_runstate_memory_area";
        SET_PERIODIC_TIMER = 6, "VCPUOP_set_periodic_timer";
        STOP_PERIODIC_TIMER = 7, "VCPUOP_stop_periodic_timer";
        SET_SINGLESHOT_TIMER = 8, "VCPUOP_set_singleshot_timer";
        STOP_SINGLESHOT_TIMER = 9, "VCPUOP_stop_singleshot_timer";
        REGISTER_VCPU_INFO = 10, "VCPUOP_register_vcpu_info";
        SEND_NMI = 11, "VCPUOP_send_nmi";
        GET_PHYSID = 12, "VCPUOP_get_physid";
        REGISTER_VCPU_TIME_MEMORY_AREA = 13, "VCPUOP_register_vcpu_time_memory_area";
    }
}

structure! {
    /// Where a vCPU's `RunstateInfo` is to be written.
    RegisterRunstate = "struct vcpu_register_runstate_memory_area", 8 {
        address: u64 = "addr" @ 0,
    }
}

structure! {
    /// Where a copy of a vCPU's `VcpuTimeInfo` is to be written.
    RegisterTime = "struct vcpu_register_time_memory_area", 8 {
        address: u64 = "addr" @ 0,
    }
}

structure! {
    /// Where a vCPU's `VcpuInfo` is to be from now on.
    RegisterInfo = "struct vcpu_register_vcpu_info", 16 {
        frame: u64 = "mfn" @ 0,
        offset: u32 = "offset" @ 8,
        reserved: u32 = "rsvd" @ 12,
    }
}

structure! {
    /// Let an event come again and again.
    PeriodicTimer = "struct vcpu_set_periodic_timer", 8 {
        period_ns: u64 = "period_ns" @ 0,
    }
}

structure! {
    /// Let an event come at a time.
    SingleshotTimer = "struct vcpu_set_singleshot_timer", 16 {
        /// In system time.
        deadline_ns: u64 = "timeout_abs_ns" @ 0,
        /// Of [`singleshot`].
        flags: u32 = "flags" @ 8,
    }
}

constants! {
    /// Flags of a [`SingleshotTimer`].
    singleshot: u32 {
        /// A time that has passed is an error.
        FUTURE = 1, "VCPU_SSHOTTMR_future";
    }
}

structure! {
    /// The physical processor of a vCPU.
    PhysicalId = "struct vcpu_get_physid", 8 {
        id: u64 = "phys_id" @ 0,
    }
}

structure! {
    /// Registers.
    UserRegisters = "struct cpu_user_regs", 200 {
        r15: u64 = "r15" @ 0,
        r14: u64 = "r14" @ 8,
        r13: u64 = "r13" @ 16,
        r12: u64 = "r12" @ 24,
        rbp: u64 = "rbp" @ 32,
        rbx: u64 = "rbx" @ 40,
        r11: u64 = "r11" @ 48,
        r10: u64 = "r10" @ 56,
        r9: u64 = "r9" @ 64,
        r8: u64 = "r8" @ 72,
        rax: u64 = "rax" @ 80,
        rcx: u64 = "rcx" @ 88,
        rdx: u64 = "rdx" @ 96,
        rsi: u64 = "rsi" @ 104,
        rdi: u64 = "rdi" @ 112,
        error_code: u32 = "error_code" @ 120,
        entry_vector: u32 = "entry_vector" @ 124,
        rip: u64 = "rip" @ 128,
        cs: u16 = "cs" @ 136,
        padding0: u16 = "_pad0" @ 138,
        saved_upcall_mask: u8 = "saved_upcall_mask" @ 140,
        padding1: [u8; 3] = "_pad1" @ 141,
        rflags: u64 = "rflags" @ 144,
        rsp: u64 = "rsp" @ 152,
        ss: u16 = "ss" @ 160,
        padding2: [u16; 3] = "_pad2" @ 162,
        es: u16 = "es" @ 168,
        padding3: [u16; 3] = "_pad3" @ 170,
        ds: u16 = "ds" @ 176,
        padding4: [u16; 3] = "_pad4" @ 178,
        fs: u16 = "fs" @ 184,
        padding5: [u16; 3] = "_pad5" @ 186,
        gs: u16 = "gs" @ 192,
        padding6: [u16; 3] = "_pad6" @ 194,
    }
}

constants! {
    /// Flags of a [`GuestContext`].
    context: u64 {
        I387_VALID = 1 << 0, "VGCF_i387_valid";
        IN_KERNEL = 1 << 2, "VGCF_in_kernel";
        FAILSAFE_DISABLES_EVENTS = 1 << 3, "VGCF_failsafe_disables_events";
        SYSCALL_DISABLES_EVENTS = 1 << 4, "VGCF_syscall_disables_events";
        ONLINE = 1 << 5, "VGCF_online";
        /// In the frame of an `iret` hypercall as well: RCX and R11 are not restored.
        IN_SYSCALL = 1 << 8, "VGCF_in_syscall";
    }
}

structure! {
    /// All of a vCPU's state, as [`command::INITIALISE`] takes it.
    GuestContext = "struct vcpu_guest_context", 5168 {
        /// As `fxsave` writes it.
        fpu: [u8; 512] = "fpu_ctxt" @ 0,
        /// Of [`context`].
        flags: u64 = "flags" @ 512,
        registers: UserRegisters = "user_regs" @ 520,
        traps: [TrapInfo; 256] = "trap_ctxt" @ 720,
        ldt_base: u64 = "ldt_base" @ 4816,
        ldt_entries: u64 = "ldt_ents" @ 4824,
        gdt_frames: [u64; 16] = "gdt_frames" @ 4832,
        gdt_entries: u64 = "gdt_ents" @ 4960,
        kernel_ss: u64 = "kernel_ss" @ 4968,
        kernel_sp: u64 = "kernel_sp" @ 4976,
        control: [u64; 8] = "ctrlreg" @ 4984,
        debug: [u64; 8] = "debugreg" @ 5048,
        event_callback: u64 = "event_callback_eip" @ 5112,
        failsafe_callback: u64 = "failsafe_callback_eip" @ 5120,
        syscall_callback: u64 = "syscall_callback_eip" @ 5128,
        vm_assist: u64 = "vm_assist" @ 5136,
        fs_base: u64 = "fs_base" @ 5144,
        gs_base_kernel: u64 = "gs_base_kernel" @ 5152,
        gs_base_user: u64 = "gs_base_user" @ 5160,
    }
}

structure! {
    /// What the `iret` hypercall takes from the stack.
    IretFrame = "struct iret_context", 72 {
        rax: u64 = "rax" @ 0,
        r11: u64 = "r11" @ 8,
        rcx: u64 = "rcx" @ 16,
        /// [`context::IN_SYSCALL`] or nothing.
        flags: u64 = "flags" @ 24,
        rip: u64 = "rip" @ 32,
        /// The two lowest bits say whether it is a return to user mode.
        cs: u64 = "cs" @ 40,
        rflags: u64 = "rflags" @ 48,
        rsp: u64 = "rsp" @ 56,
        ss: u64 = "ss" @ 64,
    }
}
