//! Xen's leaves of CPUID (public/arch-x86/cpuid.h), and the instruction by which a paravirtual guest asks for them
//! (public/arch-x86/xen.h).

constants! {
    /// Leaves, and what is in them.
    leaf: u32 {
        /// Its EBX, ECX and EDX are the signature.
        FIRST = 0x4000_0000, "XEN_CPUID_FIRST_LEAF";
        /// How many follow the first.
        MAX_COUNT = 5, "XEN_CPUID_MAX_NUM_LEAVES";
        SIGNATURE_EBX = 0x566e_6558, "XEN_CPUID_SIGNATURE_EBX";
        SIGNATURE_ECX = 0x6558_4d4d, "XEN_CPUID_SIGNATURE_ECX";
        SIGNATURE_EDX = 0x4d4d_566e, "XEN_CPUID_SIGNATURE_EDX";
        /// In ECX of the third leaf.
        PRESERVE_ACCESSED_DIRTY = 1, "XEN_CPUID_FEAT1_MMU_PT_UPDATE_PRESERVE_AD";
        /// In EBX of the sixth leaf.
        MACHINE_ADDRESS_WIDTH_MASK = 0xff, "XEN_CPUID_MACHINE_ADDRESS_WIDTH_MASK";
    }
}

/// What precedes an instruction that Xen is to emulate (`XEN_EMULATE_PREFIX`): `ud2` and "xen".
pub const EMULATE_PREFIX: [u8; 5] = [0x0f, 0x0b, b'x', b'e', b'n'];
