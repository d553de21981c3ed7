//! What of Xen's interface this crate speaks, as types.

use xen_abi::errno;
use xen_abi::mmu::update;

/// Why an operation is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Errno {
    /// A frame that no domain could be given.
    Perm = errno::EPERM as isize,
    /// The list of an operation cannot be read.
    Fault = errno::EFAULT as isize,
    /// The frame is in use as another type, or has been given back.
    Busy = errno::EBUSY as isize,
    /// Whatever else is wrong with a request.
    Inval = errno::EINVAL as isize,
    /// There is no such command.
    NoSys = errno::ENOSYS as isize,
}

impl Errno {
    /// What a hypercall returns for it.
    pub fn returned(self) -> i64 {
        -(self as i64)
    }
}

/// What the low bits of an update's pointer ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Update {
    /// `MMU_NORMAL_PT_UPDATE`, and `MMU_PT_UPDATE_NO_TRANSLATE`, which is the same for a paravirtual domain.
    Normal,
    /// `MMU_MACHPHYS_UPDATE`: an entry of the machine-to-physical table.
    MachineToPhysical,
    /// `MMU_PT_UPDATE_PRESERVE_AD`: accessed and dirty bits that are set remain so.
    PreserveFlags,
}

impl Update {
    /// Bits of the pointer that are a command: all that an entry's address leaves, and not the two of
    /// [`xen_abi::mmu::UPDATE_MASK`] alone.
    pub(crate) const COMMAND: u64 = 7;

    pub(crate) fn of_pointer(pointer: u64) -> Result<Self, Errno> {
        match pointer & Self::COMMAND {
            update::PAGE_TABLE | update::NO_TRANSLATE => Ok(Self::Normal),
            update::MACHINE_TO_PHYSICAL => Ok(Self::MachineToPhysical),
            update::PRESERVE_ACCESSED_DIRTY => Ok(Self::PreserveFlags),
            _ => Err(Errno::NoSys),
        }
    }
}
