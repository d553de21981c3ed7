//! The few numbers of Xen's interface that this crate needs (public/xen.h).

/// The number of a machine frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Mfn(pub u64);

impl Mfn {
    /// The frame of a machine address.
    pub fn of_address(address: u64) -> Self {
        Self(address >> 12)
    }
}

/// Why an operation is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Errno {
    /// A frame that no domain could be given.
    Perm = 1,
    /// The list of an operation cannot be read.
    Fault = 14,
    /// The frame is in use as another type, or has been given back.
    Busy = 16,
    /// Whatever else is wrong with a request.
    Inval = 22,
    /// There is no such command.
    NoSys = 38,
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
    /// Bits of the pointer that are a command.
    pub(crate) const COMMAND: u64 = 7;

    pub(crate) fn of_pointer(pointer: u64) -> Result<Self, Errno> {
        match pointer & Self::COMMAND {
            0 | 3 => Ok(Self::Normal),
            1 => Ok(Self::MachineToPhysical),
            2 => Ok(Self::PreserveFlags),
            _ => Err(Errno::NoSys),
        }
    }
}
