//! Where Xen enters a guest's kernel: for traps (public/arch-x86/xen.h) and by callbacks (public/callback.h).

structure! {
    /// One entry of the table that `set_trap_table` reads; the last has address 0.
    TrapInfo = "struct trap_info", 16 {
        vector: u8 = "vector" @ 0,
        /// The lowest privilege from which `int` may raise it, and [`TRAP_MASKS_EVENTS`].
        flags: u8 = "flags" @ 1,
        selector: u16 = "cs" @ 2,
        address: u64 = "address" @ 8,
    }
}

/// The bits of [`TrapInfo::flags`] with the lowest privilege.
pub const TRAP_PRIVILEGE_MASK: u8 = 3;

/// In [`TrapInfo::flags`]: events are masked when the handler is entered.
pub const TRAP_MASKS_EVENTS: u8 = 4;

constants! {
    /// Sub-commands of `callback_op`.
    command: u32 {
        REGISTER = 0, "CALLBACKOP_register";
        UNREGISTER = 1, "CALLBACKOP_unregister";
    }
}

constants! {
    /// Kinds of callbacks.
    kind: u16 {
        EVENT = 0, "CALLBACKTYPE_event";
        /// For a return whose frame cannot be loaded.
        FAILSAFE = 1, "CALLBACKTYPE_failsafe";
        SYSCALL = 2, "CALLBACKTYPE_syscall";
        NMI = 4, "CALLBACKTYPE_nmi";
        SYSENTER = 5, "CALLBACKTYPE_sysenter";
        SYSCALL32 = 7, "CALLBACKTYPE_syscall32";
    }
}

constants! {
    /// Flags of a callback.
    flag: u16 {
        MASK_EVENTS = 1, "CALLBACKF_mask_events";
    }
}

structure! {
    /// For [`command::REGISTER`].
    Register = "struct callback_register", 16 {
        kind: u16 = "type" @ 0,
        flags: u16 = "flags" @ 2,
        address: u64 = "address" @ 8,
    }
}

structure! {
    /// For [`command::UNREGISTER`].
    Unregister = "struct callback_unregister", 4 {
        kind: u16 = "type" @ 0,
        unused: u16 = "_unused" @ 2,
    }
}
