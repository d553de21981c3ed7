//! Giving up the processor, and the end of a domain (public/sched.h).

constants! {
    /// Sub-commands of `sched_op`.
    command: u32 {
        YIELD = 0, "SCHEDOP_yield";
        /// Until an event is pending; unmasks events.
        BLOCK = 1, "SCHEDOP_block";
        SHUTDOWN = 2, "SCHEDOP_shutdown";
        /// Until one of some ports is pending, masked or not.
        POLL = 3, "SCHEDOP_poll";
        REMOTE_SHUTDOWN = 4, "SCHEDOP_remote_shutdown";
        SHUTDOWN_CODE = 5, "SCHEDOP_shutdown_code";
        WATCHDOG = 6, "SCHEDOP_watchdog";
        PIN_OVERRIDE = 7, "SCHEDOP_pin_override";
    }
}

constants! {
    /// Why a domain ends or is suspended.
    reason: u32 {
        POWEROFF = 0, "SHUTDOWN_poweroff";
        REBOOT = 1, "SHUTDOWN_reboot";
        SUSPEND = 2, "SHUTDOWN_suspend";
        CRASH = 3, "SHUTDOWN_crash";
        WATCHDOG = 4, "SHUTDOWN_watchdog";
        SOFT_RESET = 5, "SHUTDOWN_soft_reset";
    }
}

structure! {
    /// For [`command::SHUTDOWN`].
    Shutdown = "struct sched_shutdown", 4 {
        /// One of [`reason`].
        reason: u32 = "reason" @ 0,
    }
}

structure! {
    /// For [`command::POLL`].
    Poll = "struct sched_poll", 24 {
        /// The linear address of a list of ports.
        ports: u64 = "ports" @ 0,
        count: u32 = "nr_ports" @ 8,
        /// In system time; 0 is none.
        timeout_ns: u64 = "timeout" @ 16,
    }
}

structure! {
    /// For [`command::WATCHDOG`].
    Watchdog = "struct sched_watchdog", 8 {
        id: u32 = "id" @ 0,
        timeout_seconds: u32 = "timeout" @ 4,
    }
}
