//! What Xen says that it can do (public/features.h).

constants! {
    /// Bits of the answer to `version::command::GET_FEATURES`, all in submap 0.
    bit: u32 {
        WRITABLE_PAGE_TABLES = 0, "XENFEAT_writable_page_tables";
        WRITABLE_DESCRIPTOR_TABLES = 1, "XENFEAT_writable_descriptor_tables";
        AUTO_TRANSLATED_PHYSMAP = 2, "XENFEAT_auto_translated_physmap";
        SUPERVISOR_MODE_KERNEL = 3, "XENFEAT_supervisor_mode_kernel";
        PAE_PGDIR_ABOVE_4GB = 4, "XENFEAT_pae_pgdir_above_4gb";
        /// Linux does not start without it.
        MMU_PT_UPDATE_PRESERVE_AD = 5, "XENFEAT_mmu_pt_update_preserve_ad";
        HIGHMEM_ASSIST = 6, "XENFEAT_highmem_assist";
        /// Linux does not start without it.
        GNTTAB_MAP_AVAIL_BITS = 7, "XENFEAT_gnttab_map_avail_bits";
        HVM_CALLBACK_VECTOR = 8, "XENFEAT_hvm_callback_vector";
        HVM_SAFE_PVCLOCK = 9, "XENFEAT_hvm_safe_pvclock";
        HVM_PIRQS = 10, "XENFEAT_hvm_pirqs";
        /// The domain is domain 0; as a note, the kernel can be.
        DOM0 = 11, "XENFEAT_dom0";
        MEMORY_OP_VNODE_SUPPORTED = 13, "XENFEAT_memory_op_vnode_supported";
        LINUX_RSDP_UNRESTRICTED = 15, "XENFEAT_linux_rsdp_unrestricted";
        NOT_DIRECT_MAPPED = 16, "XENFEAT_not_direct_mapped";
        DIRECT_MAPPED = 17, "XENFEAT_direct_mapped";
    }
}
