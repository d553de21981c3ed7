//! Who makes a hypercall, and what comes of it.

use machine::xen::XenVcpu;
use xen_abi::Wire;

use crate::domain::Domain;
use crate::errno::Errno;

/// What is read and written without an allocation: an entry of a list, as a rule.
const SMALL_BYTES: usize = 64;

/// Who makes a call: a vCPU of a domain.
pub(crate) struct Caller<'a> {
    pub(crate) domain: &'a Domain,
    /// The vCPU's number.
    pub(crate) vcpu: usize,
    pub(crate) cpu: &'a mut dyn XenVcpu,
}

/// What a call that has not failed comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It returns this.
    Value(u64),
    /// It goes on, with these arguments, after events have been looked at.
    Again([u64; 5]),
    /// It has loaded all registers.
    Loaded,
    /// It returns 0 when the vCPU has waited.
    Block,
    /// It returns 0, and another may have the core.
    Yield,
}

impl Outcome {
    /// It returns 0.
    pub(crate) const DONE: Self = Self::Value(0);
}

/// What a call comes to.
pub(crate) type Reply = Result<Outcome, Errno>;

impl Caller<'_> {
    /// What is at a linear address of the guest's.
    ///
    /// # Errors
    ///
    /// `EFAULT`.
    pub(crate) fn read<T: Wire>(&mut self, at: u64) -> Result<T, Errno> {
        if T::BYTES > SMALL_BYTES {
            let mut bytes = vec![0; T::BYTES];
            self.cpu.read_linear(at, &mut bytes)?;
            return Ok(T::decode(&bytes));
        }
        let mut bytes = [0; SMALL_BYTES];
        let bytes = &mut bytes[..T::BYTES];
        self.cpu.read_linear(at, bytes)?;
        Ok(T::decode(bytes))
    }

    /// Put it at a linear address of the guest's.
    ///
    /// # Errors
    ///
    /// `EFAULT`.
    pub(crate) fn write<T: Wire>(&mut self, at: u64, value: &T) -> Result<(), Errno> {
        if T::BYTES > SMALL_BYTES {
            let mut bytes = vec![0; T::BYTES];
            value.encode(&mut bytes);
            return Ok(self.cpu.write_linear(at, &bytes)?);
        }
        let mut bytes = [0; SMALL_BYTES];
        let bytes = &mut bytes[..T::BYTES];
        value.encode(bytes);
        Ok(self.cpu.write_linear(at, bytes)?)
    }
}
