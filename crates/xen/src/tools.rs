//! What domain 0 does to the domain while it runs ([`Toolstack`]): it writes keys that the domain's kernel watches.

use std::sync::Arc;

use frames::{FrameType, Outside, Stop};
use machine::toolstack::{DomainMemory, Refused, Toolstack};
use xen_abi::{Mfn, PAGE_SHIFT};
use xen_io::grant::Access;
use xen_store::Store;

use crate::domain::Domain;
use crate::engine::{Engine, NotRunning};
use crate::services::{Watchers, home};

/// Bytes in the unit of memory's keys.
const KIB: u64 = 1 << 10;

/// Differences that an audit tells, at most.
const MAX_DIFFERENCES: usize = 64;

/// See above.
pub(crate) struct Tools(pub(crate) Arc<Domain>);

impl std::fmt::Debug for Tools {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Tools")
    }
}

impl Tools {
    /// Do something to the store, and have the domain told of it.
    fn with_store<R>(
        &self,
        act: impl FnOnce(&mut Store) -> Result<R, xen_store::Error>,
    ) -> Result<R, Refused> {
        let Self(domain) = self;
        let store = domain.store().clone().ok_or(Refused::NoStore)?;
        let result = store.with(act).map_err(|error| Refused::Store(error.to_string()))?;
        domain.serve_store();
        Ok(result)
    }

    /// Do something with the store and those of the host who watch it.
    fn with_watchers<R>(
        &self,
        act: impl FnOnce(&mut Watchers, &mut Store) -> Result<R, xen_store::Error>,
    ) -> Result<R, Refused> {
        let store = self.0.store().clone().ok_or(Refused::NoStore)?;
        store.with_watchers(act).map_err(|error| Refused::Store(error.to_string()))
    }

    fn write(&self, key: &str, value: &str) -> Result<(), Refused> {
        self.with_store(|store| store.write(&absolute(key), value.as_bytes()))
    }
}

impl Toolstack for Tools {
    fn memory(&self) -> DomainMemory {
        let Self(domain) = self;
        let (now, geometry) = (domain.reservation().pages << PAGE_SHIFT, &domain.geometry);
        let target = self.with_store(|store| store.read(&absolute("memory/target")));
        let target = target.ok().and_then(|text| String::from_utf8(text).ok()?.parse().ok());
        let target =
            target.map_or(geometry.pages << PAGE_SHIFT, |kib: u64| kib.saturating_mul(KIB));
        DomainMemory { now, target, maximum: geometry.maximum << PAGE_SHIFT }
    }

    fn set_target(&self, bytes: u64) -> Result<(), Refused> {
        let most = self.0.geometry.maximum << PAGE_SHIFT;
        if !(1..=most).contains(&bytes) {
            return Err(Refused::OutOfRange { what: "bytes of memory", most });
        }
        self.write("memory/target", &(bytes / KIB).to_string())
    }

    fn set_processors(&self, count: usize) -> Result<(), Refused> {
        let most = self.0.processors;
        if !(1..=most).contains(&count) {
            return Err(Refused::OutOfRange { what: "processors", most: most as u64 });
        }
        for number in 0..most {
            let word = if number < count { "online" } else { "offline" };
            self.write(&format!("cpu/{number}/availability"), word)?;
        }
        Ok(())
    }

    fn store_list(&self, path: &str) -> Result<Vec<String>, Refused> {
        self.with_store(|store| store.list(&absolute(path)))
    }

    fn store_read(&self, path: &str) -> Result<(Vec<u8>, String), Refused> {
        self.with_store(|store| {
            let path = absolute(path);
            let (value, rights) = (store.read(&path)?, store.permissions(&path)?);
            let rights: Vec<_> = rights.iter().map(ToString::to_string).collect();
            Ok((value, rights.join(",")))
        })
    }

    fn store_write(&self, path: &str, value: &[u8]) -> Result<(), Refused> {
        self.with_store(|store| store.write(&absolute(path), value))
    }

    fn store_remove(&self, path: &str) -> Result<(), Refused> {
        self.with_store(|store| store.remove(&absolute(path)))
    }

    fn store_watch(&self, path: &str) -> Result<u64, Refused> {
        let now = self.0.clock.now();
        self.with_watchers(|watchers, store| watchers.begin(store, &absolute(path), now))
    }

    fn store_events(&self, watch: u64) -> Result<Vec<String>, Refused> {
        let now = self.0.clock.now();
        self.with_watchers(|watchers, store| watchers.events(store, watch, now))
    }

    fn audit(&self) -> Vec<String> {
        self.0.audit()
    }

    fn settle(&self) {
        self.0.settle();
    }
}

/// A path as domain 0 means it: what does not begin at the root is the domain's.
fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("{}/{path}", home()) }
}

impl Domain {
    /// Ask the domain's kernel to switch itself off.
    pub(crate) fn ask_to_power_off(&self) {
        let Some(store) = self.store().clone() else { return };
        // The name is ours, and no quota is the host's.
        let _ = store.with(|store| store.write(&absolute("control/shutdown"), b"poweroff"));
        self.serve_store();
    }

    /// Count all uses of frames once more; each difference, in a line. No vCPU runs, and no device.
    pub(crate) fn audit(&self) -> Vec<String> {
        let outside = self.uses();
        let mut engine = Engine { domain: self, cpu: NotRunning };
        let mut state = self.tables();
        let is_settled = state.is_settled();
        let tables = frames::Tables::new(self.frames(), &mut state, &mut engine, 0);
        let found = tables.audit(&outside).into_iter().map(|difference| {
            let frames::Difference { mfn, what, recorded, found } = difference;
            format!("frame {:#x}: {what}: {recorded} recorded, {found} found", mfn.0)
        });
        let mut lines: Vec<_> = found.take(MAX_DIFFERENCES).collect();
        if !is_settled && !lines.is_empty() {
            lines.push(
                "a page table is being validated or given up, which makes differences".into(),
            );
        }
        lines
    }

    /// Finish the validation, or the demotion, of page tables that a vCPU was interrupted in. The domain has ended: no
    /// translation of a vCPU's is revoked.
    pub(crate) fn settle(&self) {
        let mut engine = Engine { domain: self, cpu: NotRunning };
        let mut state = self.tables();
        // Nobody interrupts it ([`NotRunning`]).
        let _: Result<(), Stop> =
            frames::Tables::new(self.frames(), &mut state, &mut engine, 0).settle();
    }

    /// The uses of frames that no page table is: descriptor tables, `vcpu_info`s, FIFOs of events, grants in use.
    fn uses(&self) -> Vec<Outside> {
        let own: Vec<_> = self.grants().uses().collect();
        let writable = |mfn| Outside { mfn, frame_type: FrameType::Writable };
        let tables = self.gdt_frames().into_iter();
        let tables = tables.map(|mfn| Outside { mfn, frame_type: FrameType::Descriptors });
        let infos = (0..self.processors).filter(|number| self.vcpus.vcpu(*number).has_own_info());
        let infos = infos.map(|number| writable(Mfn::of_address(self.vcpus.info(number))));
        let grants = self.store().as_ref().map(|store| store.grants()).unwrap_or_default();
        let grants = grants.into_iter().map(|(mfn, access)| match access {
            Access::Write => writable(mfn),
            Access::Read => Outside { mfn, frame_type: FrameType::None },
        });
        let fifos = self.events.shared_frames().into_iter().map(writable);
        tables.chain(infos).chain(fifos).chain(grants).chain(own).collect()
    }
}
