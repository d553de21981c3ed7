//! What a kernel says about itself in the notes of its ELF file (public/elfnote.h).

/// The owner of the notes.
pub const OWNER: &[u8] = b"Xen";

constants! {
    /// Types. The descriptor is a number of 4 or 8 bytes, or a string.
    kind: u32 {
        INFO = 0, "XEN_ELFNOTE_INFO";
        /// Where the kernel is entered.
        ENTRY = 1, "XEN_ELFNOTE_ENTRY";
        /// The address of a page that the loader fills with calls.
        HYPERCALL_PAGE = 2, "XEN_ELFNOTE_HYPERCALL_PAGE";
        /// Where the first page of memory is mapped.
        VIRT_BASE = 3, "XEN_ELFNOTE_VIRT_BASE";
        /// What the file's physical addresses are higher by than offsets from the base.
        PADDR_OFFSET = 4, "XEN_ELFNOTE_PADDR_OFFSET";
        /// "xen-3.0".
        XEN_VERSION = 5, "XEN_ELFNOTE_XEN_VERSION";
        GUEST_OS = 6, "XEN_ELFNOTE_GUEST_OS";
        GUEST_VERSION = 7, "XEN_ELFNOTE_GUEST_VERSION";
        /// "generic".
        LOADER = 8, "XEN_ELFNOTE_LOADER";
        PAE_MODE = 9, "XEN_ELFNOTE_PAE_MODE";
        /// A string of features; `supported_features` succeeds it.
        FEATURES = 10, "XEN_ELFNOTE_FEATURES";
        BSD_SYMTAB = 11, "XEN_ELFNOTE_BSD_SYMTAB";
        /// The lowest address that Xen may take.
        HV_START_LOW = 12, "XEN_ELFNOTE_HV_START_LOW";
        /// A mask and a value: which entries of page tables have a valid frame.
        L1_MFN_VALID = 13, "XEN_ELFNOTE_L1_MFN_VALID";
        /// Whether `reason::SUSPEND` may return 1.
        SUSPEND_CANCEL = 14, "XEN_ELFNOTE_SUSPEND_CANCEL";
        /// Where the list of frames is to be mapped.
        INIT_P2M = 15, "XEN_ELFNOTE_INIT_P2M";
        /// Whether the initial RAM disk need not be mapped.
        MOD_START_PFN = 16, "XEN_ELFNOTE_MOD_START_PFN";
        SUPPORTED_FEATURES = 17, "XEN_ELFNOTE_SUPPORTED_FEATURES";
        /// The entry of another protocol (PVH).
        PHYS32_ENTRY = 18, "XEN_ELFNOTE_PHYS32_ENTRY";
    }
}
