//! Segments (public/arch-x86/xen.h, public/arch-x86/xen-x86_64.h).

constants! {
    /// Selectors of the flat segments that Xen keeps in each guest's GDT.
    selector: u16 {
        CODE32 = 0xe023, "FLAT_RING3_CS32";
        CODE64 = 0xe033, "FLAT_RING3_CS64";
        DATA32 = 0xe02b, "FLAT_RING3_DS32";
        DATA64 = 0, "FLAT_RING3_DS64";
        STACK64 = 0xe02b, "FLAT_RING3_SS64";
    }
}

constants! {
    /// What `set_segment_base` sets.
    base: u32 {
        FS = 0, "SEGBASE_FS";
        GS_USER = 1, "SEGBASE_GS_USER";
        GS_KERNEL = 2, "SEGBASE_GS_KERNEL";
        /// A selector rather than a base.
        GS_USER_SELECTOR = 3, "SEGBASE_GS_USER_SEL";
    }
}

constants! {
    /// The end of a guest's GDT, which is Xen's.
    gdt: u32 {
        FIRST_RESERVED_PAGE = 14, "FIRST_RESERVED_GDT_PAGE";
        FIRST_RESERVED_BYTE = 14 * 4096, "FIRST_RESERVED_GDT_BYTE";
        FIRST_RESERVED_ENTRY = 14 * 512, "FIRST_RESERVED_GDT_ENTRY";
    }
}
