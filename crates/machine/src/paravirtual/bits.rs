//! The registers of KVM's interface (Linux, Documentation/virt/kvm/x86/msr.rst).

/// The model-specific registers.
#[allow(missing_docs)]
pub mod msr {
    pub const WALL_CLOCK_OLD: u32 = 0x11;
    pub const SYSTEM_TIME_OLD: u32 = 0x12;
    pub const WALL_CLOCK: u32 = 0x4b56_4d00;
    pub const SYSTEM_TIME: u32 = 0x4b56_4d01;
    pub const STEAL_TIME: u32 = 0x4b56_4d03;
    pub const END_OF_INTERRUPT: u32 = 0x4b56_4d04;
}

/// Bit 0 of a register that holds an address: what is there is in use.
pub const ENABLE: u64 = 1;
