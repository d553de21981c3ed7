//! The registers of KVM's interface (Linux, Documentation/virt/kvm/x86/msr.rst).

/// The model-specific registers.
pub mod msr {
    /// Where the wall clock at boot goes, by its old number.
    pub const WALL_CLOCK_OLD: u32 = 0x11;
    /// Where a vCPU's clock page lies, by its old number.
    pub const SYSTEM_TIME_OLD: u32 = 0x12;
    /// Where the wall clock at boot goes.
    pub const WALL_CLOCK: u32 = 0x4b56_4d00;
    /// Where a vCPU's clock page lies; bit 0 switches it on.
    pub const SYSTEM_TIME: u32 = 0x4b56_4d01;
    /// Where the time goes that a vCPU was denied; bit 0 switches it on.
    pub const STEAL_TIME: u32 = 0x4b56_4d03;
    /// Where a vCPU's paravirtual EOI byte lies; bit 0 switches it on.
    pub const END_OF_INTERRUPT: u32 = 0x4b56_4d04;
}

/// Bit 0 of a register that holds an address: what is there is in use.
pub const ENABLE: u64 = 1;
