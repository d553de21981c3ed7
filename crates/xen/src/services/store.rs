//! The domain's xenstore, and what is in it at the start (docs/misc/xenstore-paths of Xen).

use std::sync::{Arc, Mutex, MutexGuard};

use locks::Unpoisoned;
use serde::{Deserialize, Serialize};
use xen_abi::Mfn;
use xen_io::device::Link;
use xen_io::grant::Access;
use xen_store::ring::{self, Exchanged};
use xen_store::{ClientId, Permission, Store};

use super::bus::Bus;
use super::numbers::{DOMAIN_ID, HOST_ID, port};
use super::page::SharedPage;
use super::watchers::Watchers;
use crate::limits::{MAX_EXCHANGES, MAX_LOOKS};
use crate::memory::MachineMemory;

/// What the store says of a domain from its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// Its name.
    pub name: String,
    /// The memory that it is to have, in KiB.
    pub target_kib: u64,
    /// The memory that it may have, in KiB.
    pub maximum_kib: u64,
    /// Its vCPUs.
    pub processors: usize,
}

/// The store's saved state.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SavedStore {
    store: xen_store::Saved,
    is_broken: bool,
}

/// The store with the ring by which its domain reaches it.
pub(crate) struct StoreService {
    served: Mutex<Served>,
}

struct Served {
    store: Store,
    client: ClientId,
    /// The host's, which hears of what devices' front-ends do.
    host: ClientId,
    /// For the devices.
    link: Arc<dyn Link>,
    page: SharedPage,
    /// The ring was wrong, and is served no more.
    is_broken: bool,
    watchers: Watchers,
}

impl StoreService {
    /// A store for a domain whose ring is in this page.
    pub(crate) fn new(
        memory: &MachineMemory,
        frame: Mfn,
        domain: &Described,
        link: Arc<dyn Link>,
    ) -> Self {
        let mut store = Store::new();
        fill(&mut store, domain);
        let client = store.connect(DOMAIN_ID);
        let mut page = SharedPage::new(memory, frame);
        ring::prepare(&mut page);
        Self::of(store, client, link, page)
    }

    fn of(mut store: Store, client: ClientId, link: Arc<dyn Link>, page: SharedPage) -> Self {
        let host = store.connect(HOST_ID);
        let (is_broken, watchers) = (false, Watchers::default());
        let served = Served { store, client, host, link, page, is_broken, watchers };
        Self { served: Mutex::new(served) }
    }

    /// The store of a domain that goes on from a snapshot.
    ///
    /// # Errors
    ///
    /// That is no store of such a domain.
    pub(crate) fn restored(
        memory: &MachineMemory,
        frame: Mfn,
        saved: SavedStore,
        link: Arc<dyn Link>,
    ) -> Result<Self, xen_store::Error> {
        let (store, client) = Store::restored(saved.store, DOMAIN_ID)?;
        let service = Self::of(store, client, link, SharedPage::new(memory, frame));
        service.served().is_broken = saved.is_broken;
        Ok(service)
    }

    /// What who goes on from here has to know.
    pub(crate) fn save(&self) -> SavedStore {
        let served = self.served();
        SavedStore { store: served.store.save(served.client), is_broken: served.is_broken }
    }

    /// Take the devices up.
    ///
    /// # Errors
    ///
    /// Why one of them cannot be.
    pub(crate) fn resume(&self, bus: &mut Bus) -> Result<(), String> {
        let mut served = self.served();
        let Served { store, host, link, .. } = &mut *served;
        bus.resume(store, *host, link)
    }

    fn served(&self) -> MutexGuard<'_, Served> {
        self.served.lock().unpoisoned()
    }

    /// Make the devices' directories.
    ///
    /// # Errors
    ///
    /// They cannot be written: our own mistake.
    pub(crate) fn begin(&self, bus: &mut Bus) -> Result<(), &'static str> {
        let mut served = self.served();
        let Served { store, host, .. } = &mut *served;
        bus.begin(store, *host).map_err(|_| "its devices' directories cannot be written")
    }

    /// Do something to the store, as domain 0. The domain hears of it when the ring is served.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut Store) -> R) -> R {
        act(&mut self.served().store)
    }

    /// Do something with the store and those of the host who watch it.
    pub(crate) fn with_watchers<R>(&self, act: impl FnOnce(&mut Watchers, &mut Store) -> R) -> R {
        let mut served = self.served();
        let Served { store, watchers, .. } = &mut *served;
        act(watchers, store)
    }

    /// Whether devices use a grant from this number on.
    pub(crate) fn has_grants_from(&self, reference: u32) -> bool {
        self.served().link.grants().is_in_use_from(reference)
    }

    /// The frames of grants that devices use.
    pub(crate) fn grants(&self) -> Vec<(Mfn, Access)> {
        self.served().link.grants().uses()
    }

    /// Take requests and give answers and events; whether the domain is to be notified.
    pub(crate) fn serve(&self, bus: &Mutex<Bus>) -> bool {
        let mut served = self.served();
        let mut notifies = served.serve();
        // What the devices say is news for the domain. A domain that goes on all the time is served when it notifies.
        for _ in 0..MAX_LOOKS {
            if !served.look(bus) {
                break;
            }
            notifies |= served.serve();
        }
        notifies
    }
}

impl Served {
    /// Have devices look at what their front-ends have done; whether one did.
    fn look(&mut self, bus: &Mutex<Bus>) -> bool {
        let Self { store, host, link, .. } = self;
        bus.lock().unpoisoned().look(store, *host, link)
    }

    fn serve(&mut self) -> bool {
        let mut notifies = false;
        for _ in 0..MAX_EXCHANGES {
            if self.is_broken {
                break;
            }
            match ring::exchange(&mut self.page, &mut self.store, self.client) {
                Ok(Exchanged { notifies: now, is_unfinished }) => {
                    notifies |= now;
                    if !is_unfinished {
                        break;
                    }
                }
                Err(_) => {
                    self.store.disconnect(self.client);
                    (self.is_broken, notifies) = (true, true);
                }
            }
        }
        notifies
    }
}

/// The domain's own directory.
pub(crate) fn home() -> String {
    format!("/local/domain/{DOMAIN_ID}")
}

/// The directories that a domain finds, which it may read, and those that it may write.
fn fill(store: &mut Store, domain: &Described) {
    let home = home();
    let read = [
        ("domid", DOMAIN_ID.to_string()),
        ("name", domain.name.clone()),
        ("vm", "/vm/1".to_owned()),
        ("memory/target", domain.target_kib.to_string()),
        ("memory/static-max", domain.maximum_kib.to_string()),
        ("store/port", port::STORE.to_string()),
        ("console/port", port::CONSOLE.to_string()),
        ("console/type", "ioemu".to_owned()),
        ("console/limit", "1048576".to_owned()),
    ];
    let mut put = |path: &str, value: &str, writes: bool| {
        let host = Permission::owner(HOST_ID);
        let reader = Permission { domain: DOMAIN_ID, reads: true, writes: false };
        let rights: &[Permission] =
            if writes { &[Permission::owner(DOMAIN_ID)] } else { &[host, reader] };
        // The names are ours, and no quota is the host's.
        let written = store.write(path, value.as_bytes());
        debug_assert!(written.is_ok(), "{path}");
        let _ = store.set_permissions(path, rights);
    };
    put(&home, "", false);
    for directory in ["memory", "store", "console", "device", "cpu", "control"] {
        put(&format!("{home}/{directory}"), "", false);
    }
    for (name, value) in &read {
        put(&format!("{home}/{name}"), value, false);
    }
    for number in 0..domain.processors {
        put(&format!("{home}/cpu/{number}"), "", false);
        put(&format!("{home}/cpu/{number}/availability"), "online", false);
    }
    // What a domain tells by itself, and answers requests by.
    let control = ["shutdown", "sysrq", "feature-poweroff", "feature-reboot", "feature-suspend"];
    let control = control.map(|key| format!("control/{key}"));
    let others = ["data", "drivers", "feature", "attr"].map(str::to_owned);
    for directory in control.into_iter().chain(others) {
        put(&format!("{home}/{directory}"), "", true);
    }
    put(&format!("/vm/{DOMAIN_ID}"), "", false);
    put(&format!("/vm/{DOMAIN_ID}/uuid"), "00000000-0000-0000-0000-000000000001", false);
}
