//! The bus of the domain's devices, in its store (docs/misc/xenbus of Xen): a directory for each front-end, one for
//! each back-end, and a watch for the front-ends' states.

use std::sync::Arc;

use xen_abi::bus::state;
use xen_io::bus::{Tree, Unwritable};
use xen_io::device::{BackEnd, Link, Places};
use xen_store::{ClientId, Permission, Store};

use super::numbers::{DOMAIN_ID, HOST_ID};

/// The devices, whose numbers here are the watches' tokens. They remain when the domain begins again.
#[derive(Default)]
pub(crate) struct Bus(Vec<Box<dyn BackEnd>>);

/// The store, as domain 0 sees it.
struct Host<'a>(&'a mut Store);

impl Tree for Host<'_> {
    fn read(&mut self, path: &str) -> Option<String> {
        self.0.read(path).ok().and_then(|bytes| String::from_utf8(bytes).ok())
    }

    fn write(&mut self, path: &str, value: &str) -> Result<(), Unwritable> {
        self.0.write(path, value.as_bytes()).map_err(|_| Unwritable)
    }
}

impl Bus {
    /// Plug a device in, before the domain begins.
    pub(crate) fn add(&mut self, device: Box<dyn BackEnd>) {
        self.0.push(device);
    }

    /// Make the devices' directories in the store of a domain that is about to begin; `client` hears of what the
    /// front-ends do.
    pub(crate) fn begin(&mut self, store: &mut Store, client: ClientId) -> Result<(), Unwritable> {
        for (index, device) in self.0.iter_mut().enumerate() {
            let places = places(&**device);
            fill(store, &places.front, &places.back)?;
            device.begin(&places, &mut Host(store))?;
            watch(store, client, &places, index)?;
        }
        Ok(())
    }

    /// The devices' kinds and numbers, in their order.
    pub(crate) fn list(&self) -> Vec<(String, u32)> {
        self.0.iter().map(|device| (device.kind().to_owned(), device.number())).collect()
    }

    /// Bring all devices to rest until [`Self::thaw`]; whether they are.
    pub(crate) fn freeze(&mut self) -> bool {
        self.0.iter_mut().all(|device| device.freeze())
    }

    /// Let them go on.
    pub(crate) fn thaw(&mut self) {
        self.0.iter_mut().for_each(|device| device.thaw());
    }

    /// Take the devices up in a domain that goes on from a snapshot.
    pub(crate) fn resume(
        &mut self,
        store: &mut Store,
        client: ClientId,
        link: &Arc<dyn Link>,
    ) -> Result<(), String> {
        for (index, device) in self.0.iter_mut().enumerate() {
            let places = places(&**device);
            device.resume(&places, link, &mut Host(store))?;
            watch(store, client, &places, index).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Have the devices look whose front-ends have done something; whether there was one.
    pub(crate) fn look(
        &mut self,
        store: &mut Store,
        client: ClientId,
        link: &Arc<dyn Link>,
    ) -> bool {
        let mut has_looked = false;
        while let Some((_, token)) = store.take_event(client) {
            let device = token.parse().ok().and_then(|index: usize| self.0.get_mut(index));
            if let Some(device) = device {
                // The host may write everything, so that there is nobody to tell.
                let _ = device.look(link, &mut Host(store));
                has_looked = true;
            }
        }
        has_looked
    }

    /// The domain is at its end.
    pub(crate) fn end(&mut self) {
        self.0.iter_mut().for_each(|device| device.end());
    }
}

/// A device's two directories.
fn places(device: &dyn BackEnd) -> Places {
    let (kind, number) = (device.kind(), device.number());
    Places {
        back: format!("/local/domain/{HOST_ID}/backend/{kind}/{DOMAIN_ID}/{number}"),
        front: format!("/local/domain/{DOMAIN_ID}/device/{kind}/{number}"),
    }
}

/// Have `client` hear of the state of a device's front-end.
fn watch(
    store: &mut Store,
    client: ClientId,
    places: &Places,
    index: usize,
) -> Result<(), Unwritable> {
    let watched = format!("{}/state", places.front);
    store.watch(client, &watched, &index.to_string()).map_err(|_| Unwritable)
}

/// What every device has in its two directories.
fn fill(store: &mut Store, front: &str, back: &str) -> Result<(), Unwritable> {
    let (host, domain) = (Permission::owner(HOST_ID), Permission::owner(DOMAIN_ID));
    let readable = |domain| Permission { domain, reads: true, writes: false };
    let mut put = |path: &str, value: &str| store.write(path, value.as_bytes());
    let filled = put(front, "").and_then(|()| put(back, ""));
    filled.map_err(|_| Unwritable)?;
    let rights = [(front, [domain, readable(HOST_ID)]), (back, [host, readable(DOMAIN_ID)])];
    for (path, rights) in rights {
        store.set_permissions(path, &rights).map_err(|_| Unwritable)?;
    }
    let initialising = state::INITIALISING.to_string();
    let (host, domain) = (HOST_ID.to_string(), DOMAIN_ID.to_string());
    let keys = [
        (back, "frontend", front),
        (back, "frontend-id", &domain),
        (back, "online", "1"),
        (back, "state", &initialising),
        (front, "backend", back),
        (front, "backend-id", &host),
        (front, "state", &initialising),
    ];
    let mut tree = Host(store);
    keys.iter().try_for_each(|(at, key, value)| tree.write(&format!("{at}/{key}"), value))
}
