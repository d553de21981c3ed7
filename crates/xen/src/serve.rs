//! The ports by which a domain reaches its services, and its devices' back-ends the domain.

use std::sync::{Arc, Weak};

use locks::Unpoisoned;
use xen_io::Grants;
use xen_io::device::{Link, NoPort, Notify};

use crate::domain::Domain;
use crate::events::Binding;
use crate::services::{Console, Described, HOST_ID, SavedStore, StoreService, port};
use crate::started::Started;

/// The domain as back-ends reach it.
struct DomainLink {
    domain: Weak<Domain>,
    grants: Arc<Grants>,
}

impl Link for DomainLink {
    fn grants(&self) -> &Arc<Grants> {
        &self.grants
    }

    fn bind(&self, port: u32, notify: Notify) -> Result<(), NoPort> {
        let domain = self.domain.upgrade().ok_or(NoPort(port))?;
        domain.connect(Some(port), notify).map(drop).map_err(|_| NoPort(port))
    }

    fn leave(&self, port: u32) {
        let Some(domain) = self.domain.upgrade() else { return };
        // The domain may have closed it.
        let _ = domain.events.change(port, |port| {
            if matches!(port.binding, Binding::Service(_)) {
                port.binding = Binding::Unbound(HOST_ID);
            }
        });
    }

    fn notify(&self, port: u32) {
        self.domain.upgrade().iter().for_each(|domain| domain.raise(port));
    }
}

impl Domain {
    /// Connect the ports that the domain finds to the services of its pages.
    ///
    /// # Errors
    ///
    /// The ports are taken, or there is no memory: our own mistake.
    pub(crate) fn serve(
        self: &Arc<Self>,
        started: &Started,
        described: &Described,
    ) -> Result<(), &'static str> {
        let store = StoreService::new(&self.memory, started.store, described, self.link());
        store.begin(&mut self.bus.lock().unpoisoned())?;
        self.share(*started, store)?;
        let store = self.connect(None, self.notify(Self::serve_store));
        let console = self.connect(None, self.notify(Self::serve_console));
        let expected = (Ok(port::STORE), Ok(port::CONSOLE));
        if (store, console) == expected {
            Ok(())
        } else {
            Err("the ports of its services are taken")
        }
    }

    /// The same in a domain that goes on from a snapshot, whose ports are there.
    ///
    /// # Errors
    ///
    /// Why that is not possible.
    pub(crate) fn resume_services(
        self: &Arc<Self>,
        started: Started,
        saved: SavedStore,
    ) -> Result<(), String> {
        let service = StoreService::restored(&self.memory, started.store, saved, self.link());
        self.share(started, service.map_err(|error| format!("its store: {error}"))?)?;
        let connect = |port, act| self.connect(Some(port), self.notify(act));
        let connected = connect(port::STORE, Self::serve_store as fn(&Self))
            .and_then(|_| connect(port::CONSOLE, Self::serve_console as fn(&Self)));
        connected.map_err(|_| "the ports of its services are not theirs")?;
        let store = self.store().clone();
        store.map_or(Ok(()), |store| store.resume(&mut self.bus.lock().unpoisoned()))
    }

    /// A way for back-ends to the domain.
    fn link(self: &Arc<Self>) -> Arc<dyn Link> {
        let grants = Grants::new(Arc::clone(&self.owned) as _);
        Arc::new(DomainLink { domain: Arc::downgrade(self), grants })
    }

    /// The domain shares these pages with its services.
    fn share(&self, started: Started, store: StoreService) -> Result<(), &'static str> {
        *self.store() = Some(Arc::new(store));
        self.set_started(Some(started));
        let console = self.consoles[0].connect(&self.memory, started.console, port::CONSOLE, None);
        console.map_err(|_| "there is no page for its console")
    }

    /// Use nothing of what the domain shares any more.
    pub(crate) fn end_services(&self) {
        self.bus.lock().unpoisoned().end();
        self.consoles[0].disconnect();
        *self.store() = None;
        self.set_started(None);
    }

    /// Have something done by the domain, as long as it lives.
    fn notify(self: &Arc<Self>, act: fn(&Self)) -> Notify {
        let domain = Arc::downgrade(self);
        Arc::new(move || domain.upgrade().iter().for_each(|domain| act(domain)))
    }

    pub(crate) fn serve_store(&self) {
        let store = self.store().clone();
        if store.is_some_and(|store| store.serve(&self.bus)) {
            self.raise(port::STORE);
        }
    }

    fn serve_console(&self) {
        self.consoles[0].serve(&self.memory).iter().for_each(|port| self.raise(*port));
    }
}

/// Where characters for the domain are put.
pub(crate) struct LineInput {
    pub(crate) domain: Arc<Domain>,
    pub(crate) console: Arc<Console>,
}

impl machine::board::LineInput for LineInput {
    fn send(&self, mut bytes: &[u8]) -> bool {
        let Self { domain, console } = self;
        while !bytes.is_empty() {
            if console.is_closed() {
                return false;
            }
            match console.give(&domain.memory, bytes) {
                None => console.wait_for_room(),
                Some((given, port)) => {
                    bytes = &bytes[given..];
                    domain.raise(port);
                }
            }
        }
        true
    }

    fn close(&self) {
        self.console.close();
    }
}
