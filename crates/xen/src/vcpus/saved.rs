//! The saved state of a vCPU, beside what its processor says.

use serde::{Deserialize, Serialize};
use xen_abi::vcpu::GuestContext;
use xen_abi::{Mfn, PAGE_BYTES, Wire};

use super::runstate::Accounts;
use super::{INFO_BYTES, MAX_PERIOD_NS, MIN_PERIOD_NS, Vcpu, first_info};
use crate::domain::Domain;
use crate::limits::MAX_POLLED;

/// See above. Times are system time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SavedVcpu {
    context: Option<Vec<u8>>,
    is_initialised: bool,
    is_up: bool,
    /// The machine address of its `vcpu_info`, if the guest has said where that is.
    info: Option<u64>,
    single_shot: Option<u64>,
    periodic: Option<(u64, u64)>,
    poll: Option<(Vec<u32>, Option<u64>)>,
    runstate_area: Option<u64>,
    accounts: Accounts,
    nmi: bool,
}

/// No guest can have made its vCPU so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nonsense;

impl Domain {
    /// What a vCPU that goes on from here has to know.
    pub(crate) fn save_vcpu(&self, number: usize) -> SavedVcpu {
        let info = self.vcpus.info(number);
        let vcpu = self.vcpus.vcpu(number);
        let context = vcpu.context.as_ref().map(|context| {
            let mut bytes = vec![0; GuestContext::BYTES];
            context.encode(&mut bytes);
            bytes
        });
        SavedVcpu {
            context,
            is_initialised: vcpu.is_initialised,
            is_up: vcpu.is_up,
            info: vcpu.has_own_info.then_some(info),
            single_shot: vcpu.single_shot,
            periodic: vcpu.periodic,
            poll: vcpu.poll.clone(),
            runstate_area: vcpu.runstate_area,
            accounts: vcpu.accounts,
            nmi: vcpu.nmi,
        }
    }

    /// Go on from there, in a domain whose frames have their types.
    ///
    /// # Errors
    ///
    /// [`Nonsense`].
    pub(crate) fn restore_vcpu(&self, number: usize, saved: SavedVcpu) -> Result<(), Nonsense> {
        let context = match saved.context {
            None => None,
            Some(bytes) if bytes.len() == GuestContext::BYTES => {
                Some(Box::new(GuestContext::decode(&bytes)))
            }
            Some(_) => return Err(Nonsense),
        };
        let is_period = |(period, _): (u64, u64)| (MIN_PERIOD_NS..=MAX_PERIOD_NS).contains(&period);
        let polled = saved.poll.as_ref().map_or(0, |(ports, _)| ports.len());
        let is_sane = saved.periodic.is_none_or(is_period)
            && polled <= MAX_POLLED as usize
            && (saved.is_initialised || !saved.is_up && context.is_none());
        if !is_sane {
            return Err(Nonsense);
        }
        let at = match saved.info {
            None => first_info(number, &self.geometry),
            Some(at) => self.hold_info(at)?,
        };
        self.vcpus.set_info(number, at);
        *self.vcpus.vcpu(number) = Vcpu {
            context,
            is_initialised: saved.is_initialised,
            is_up: saved.is_up,
            has_own_info: saved.info.is_some(),
            single_shot: saved.single_shot,
            periodic: saved.periodic,
            poll: saved.poll,
            runstate_area: saved.runstate_area,
            accounts: saved.accounts,
            nmi: saved.nmi,
        };
        Ok(())
    }

    /// Hold the frame of a `vcpu_info`, as for its registration; where that is.
    fn hold_info(&self, at: u64) -> Result<u64, Nonsense> {
        let page = PAGE_BYTES as u64;
        if !at.is_multiple_of(8) || at % page + INFO_BYTES > page {
            return Err(Nonsense);
        }
        self.frames().take_writable(Mfn::of_address(at)).map(|()| at).map_err(|_| Nonsense)
    }
}
