//! The page that a domain shares with Xen (public/xen.h, public/arch-x86/xen.h), and the accounts of vCPUs' time
//! (public/vcpu.h).

use crate::Pfn;

/// vCPUs with a place in [`SharedInfo`]; others have to register one.
pub const LEGACY_VCPUS: usize = 32;

structure! {
    /// What depends on the architecture in [`VcpuInfo`].
    ArchVcpuInfo = "struct arch_vcpu_info", 16 {
        /// The address of a page fault.
        cr2: u64 = "cr2" @ 0,
        padding: u64 = "pad" @ 8,
    }
}

structure! {
    /// System time at a value of the time-stamp counter, and how to go on from there. The version is odd while
    /// the rest is being written.
    VcpuTimeInfo = "struct vcpu_time_info", 32 {
        version: u32 = "version" @ 0,
        padding0: u32 = "pad0" @ 4,
        tsc_timestamp: u64 = "tsc_timestamp" @ 8,
        /// Nanoseconds since the domain started.
        system_time: u64 = "system_time" @ 16,
        tsc_to_system_mul: u32 = "tsc_to_system_mul" @ 24,
        tsc_shift: i8 = "tsc_shift" @ 28,
        /// Of [`clock`].
        flags: u8 = "flags" @ 29,
        padding1: [u8; 2] = "pad1" @ 30,
    }
}

constants! {
    /// Flags of a [`VcpuTimeInfo`].
    clock: u8 {
        TSC_STABLE = 1, "XEN_PVCLOCK_TSC_STABLE_BIT";
        GUEST_STOPPED = 2, "XEN_PVCLOCK_GUEST_STOPPED";
    }
}

structure! {
    /// What a vCPU shares with Xen.
    VcpuInfo = "struct vcpu_info", 64 {
        upcall_pending: u8 = "evtchn_upcall_pending" @ 0,
        /// No event is delivered while it is not zero.
        upcall_mask: u8 = "evtchn_upcall_mask" @ 1,
        /// Which words of [`SharedInfo::pending`] to look at.
        pending_selector: u64 = "evtchn_pending_sel" @ 8,
        arch: ArchVcpuInfo = "arch" @ 16,
        time: VcpuTimeInfo = "time" @ 32,
    }
}

structure! {
    /// What depends on the architecture in [`SharedInfo`]. The guest fills it in, for those who save it.
    ArchSharedInfo = "struct arch_shared_info", 48 {
        pages: Pfn = "max_pfn" @ 0,
        frame_list_list: u64 = "pfn_to_mfn_frame_list_list" @ 8,
        nmi_reason: u64 = "nmi_reason" @ 16,
        p2m_cr3: u64 = "p2m_cr3" @ 24,
        p2m_address: u64 = "p2m_vaddr" @ 32,
        p2m_generation: u64 = "p2m_generation" @ 40,
    }
}

structure! {
    /// The page.
    SharedInfo = "struct shared_info", 3136 {
        vcpus: [VcpuInfo; 32] = "vcpu_info" @ 0,
        pending: [u64; 64] = "evtchn_pending" @ 2048,
        mask: [u64; 64] = "evtchn_mask" @ 2560,
        /// Odd while the wall clock is being written.
        wall_version: u32 = "wc_version" @ 3072,
        /// When the domain started: seconds since 1970, lower half.
        wall_seconds: u32 = "wc_sec" @ 3076,
        wall_nanoseconds: u32 = "wc_nsec" @ 3080,
        wall_seconds_high: u32 = "wc_sec_hi" @ 3084,
        arch: ArchSharedInfo = "arch" @ 3088,
    }
}

constants! {
    /// What a vCPU is doing; [`RunstateInfo::times`] is indexed by it.
    runstate: u32 {
        RUNNING = 0, "RUNSTATE_running";
        RUNNABLE = 1, "RUNSTATE_runnable";
        BLOCKED = 2, "RUNSTATE_blocked";
        OFFLINE = 3, "RUNSTATE_offline";
    }
}

constants! {
    /// In [`RunstateInfo::since`].
    runstate_flag: u64 {
        /// The rest is being written.
        UPDATE = 1 << 63, "XEN_RUNSTATE_UPDATE";
    }
}

structure! {
    /// How long a vCPU has been in each state.
    RunstateInfo = "struct vcpu_runstate_info", 48 {
        /// One of [`runstate`].
        state: u32 = "state" @ 0,
        since: u64 = "state_entry_time" @ 8,
        times: [u64; 4] = "time" @ 16,
    }
}
