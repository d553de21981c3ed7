//! What translated code has to know to enter a paravirtual kernel and to return from it by itself
//! (translate/paravirtual.rs).
//!
//! It is a copy, made whenever translated code is entered: all of it changes by hypercalls only, which are Rust's.

/// Where the bytes of a `vcpu_info` are (public/xen.h).
pub(crate) mod info {
    pub(crate) const PENDING: u64 = 0;
    pub(crate) const MASK: u64 = 1;
    pub(crate) const CR2: u64 = 16;
}

/// See above. An *obstacle* is 0, or asks for the interpreter.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Gateway {
    /// Host address of the `vcpu_info`; of [`Self::nowhere`] where there is none.
    pub(crate) info: u64,
    /// In place of a `vcpu_info`.
    pub(crate) nowhere: u64,
    /// RSP behind the frame of a system call.
    pub(crate) frame: u64,
    /// Where the kernel takes system calls.
    pub(crate) system_call: u64,
    pub(crate) kernel_root: u64,
    pub(crate) user_root: u64,
    /// Host address of the frame that an `iret` takes.
    pub(crate) place: u64,
    /// Bits of RFLAGS that a system call leaves alone.
    pub(crate) kept_flags: u64,
    /// Whether events are masked when a system call enters the kernel, 0 or 1.
    pub(crate) system_call_masks: u8,
    /// To a system call.
    pub(crate) call_obstacle: u8,
    /// To a return to users.
    pub(crate) user_obstacle: u8,
    /// To a return with the usual selectors of users: the GDT does not have what they name as a rule.
    pub(crate) selector_obstacle: u8,
}

/// Bytes of the frame of a system call: SS, RSP, RFLAGS, CS, RIP, R11, RCX.
pub(crate) const FRAME_BYTES: u64 = 7 * 8;
