//! `xen_version` (public/version.h). It also delivers events that are pending when it returns.

constants! {
    /// Its sub-commands.
    command: u32 {
        VERSION = 0, "XENVER_version";
        EXTRAVERSION = 1, "XENVER_extraversion";
        COMPILE_INFO = 2, "XENVER_compile_info";
        CAPABILITIES = 3, "XENVER_capabilities";
        CHANGESET = 4, "XENVER_changeset";
        PLATFORM_PARAMETERS = 5, "XENVER_platform_parameters";
        GET_FEATURES = 6, "XENVER_get_features";
        PAGESIZE = 7, "XENVER_pagesize";
        GUEST_HANDLE = 8, "XENVER_guest_handle";
        COMMANDLINE = 9, "XENVER_commandline";
        BUILD_ID = 10, "XENVER_build_id";
    }
}

constants! {
    /// Bytes of the answers that are strings, and of the domain's UUID.
    length: u32 {
        EXTRAVERSION = 16, "XEN_EXTRAVERSION_LEN";
        CAPABILITIES = 1024, "XEN_CAPABILITIES_INFO_LEN";
        CHANGESET = 64, "XEN_CHANGESET_INFO_LEN";
        COMMANDLINE = 1024, "sizeof(xen_commandline_t)";
        GUEST_HANDLE = 16, "sizeof(xen_domain_handle_t)";
    }
}

structure! {
    /// The answer to [`command::COMPILE_INFO`].
    CompileInfo = "struct xen_compile_info", 144 {
        compiler: [u8; 64] = "compiler" @ 0,
        by: [u8; 16] = "compile_by" @ 64,
        domain: [u8; 32] = "compile_domain" @ 80,
        date: [u8; 32] = "compile_date" @ 112,
    }
}

structure! {
    /// The answer to [`command::PLATFORM_PARAMETERS`].
    PlatformParameters = "struct xen_platform_parameters", 8 {
        /// Where the reserved addresses start.
        virtual_start: u64 = "virt_start" @ 0,
    }
}

structure! {
    /// Question and answer of [`command::GET_FEATURES`].
    FeatureInfo = "struct xen_feature_info", 8 {
        index: u32 = "submap_idx" @ 0,
        /// Of `feature::bit`.
        map: u32 = "submap" @ 4,
    }
}
