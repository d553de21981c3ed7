//! What a guest finds when it is entered (public/xen.h).

use crate::Mfn;

/// How [`StartInfo::magic`] of a 64-bit guest begins.
pub const MAGIC: &[u8] = b"xen-3.0-x86_64";

constants! {
    /// Flags of the start.
    flag: u32 {
        PRIVILEGED = 1 << 0, "SIF_PRIVILEGED";
        /// The domain is domain 0.
        INITDOMAIN = 1 << 1, "SIF_INITDOMAIN";
        /// There is a list of modules where the initial RAM disk is otherwise.
        MULTIBOOT_MOD = 1 << 2, "SIF_MULTIBOOT_MOD";
        /// [`super::StartInfo::mod_start`] is a frame, not an address.
        MOD_START_PFN = 1 << 3, "SIF_MOD_START_PFN";
        VIRT_P2M_4TOOLS = 1 << 4, "SIF_VIRT_P2M_4TOOLS";
        PM_MASK = 0xff << 8, "SIF_PM_MASK";
    }
}

constants! {
    /// How long things may be.
    limit: u32 {
        /// The terminating zero included.
        COMMAND_LINE_BYTES = 1024, "MAX_GUEST_CMDLINE";
    }
}

structure! {
    /// The page that RSI points to at the entry.
    StartInfo = "struct start_info", 1168 {
        magic: [u8; 32] = "magic" @ 0,
        pages: u64 = "nr_pages" @ 32,
        /// The machine address of `shared::SharedInfo`.
        shared_info: u64 = "shared_info" @ 40,
        /// Of [`flag`].
        flags: u32 = "flags" @ 48,
        store_frame: Mfn = "store_mfn" @ 56,
        store_port: u32 = "store_evtchn" @ 64,
        console_frame: Mfn = "console.domU.mfn" @ 72,
        console_port: u32 = "console.domU.evtchn" @ 80,
        /// The linear address of the top-level page table.
        page_tables: u64 = "pt_base" @ 88,
        page_table_frames: u64 = "nr_pt_frames" @ 96,
        /// The linear address of the list of the frames' MFNs, by PFN.
        frame_list: u64 = "mfn_list" @ 104,
        /// The initial RAM disk: a linear address, or a PFN with [`flag::MOD_START_PFN`].
        mod_start: u64 = "mod_start" @ 112,
        mod_bytes: u64 = "mod_len" @ 120,
        command_line: [u8; 1024] = "cmd_line" @ 128,
        /// Where [`Self::frame_list`] is if only its address, not the initial mapping, leads there.
        first_p2m_frame: u64 = "first_p2m_pfn" @ 1152,
        p2m_frames: u64 = "nr_p2m_frames" @ 1160,
    }
}
