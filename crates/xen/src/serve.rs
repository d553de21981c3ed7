//! The ports by which a domain reaches its services.

use std::sync::Arc;

use crate::domain::Domain;
use crate::ports::Notify;
use crate::services::{Console, Described, Services, StoreService, port};
use crate::start::Started;

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
        let store = StoreService::new(&self.memory, started.store, described);
        let console = Console::new(&self.memory, started.console)?;
        *self.services() = Some(Arc::new(Services { store, console }));
        let store = self.connect(None, self.notify(Self::serve_store));
        let console = self.connect(None, self.notify(Self::serve_console));
        let expected = (Ok(port::STORE), Ok(port::CONSOLE));
        if (store, console) == expected {
            Ok(())
        } else {
            Err("the ports of its services are taken")
        }
    }

    /// Have something done by the domain, as long as it lives.
    fn notify(self: &Arc<Self>, act: fn(&Self)) -> Notify {
        let domain = Arc::downgrade(self);
        Arc::new(move || domain.upgrade().iter().for_each(|domain| act(domain)))
    }

    fn serve_store(&self) {
        let services = self.services().clone();
        if services.is_some_and(|services| services.store.serve()) {
            self.raise(port::STORE);
        }
    }

    fn serve_console(&self) {
        let services = self.services().clone();
        if services.is_some_and(|services| services.console.serve(&self.memory, &self.line)) {
            self.raise(port::CONSOLE);
        }
    }

    /// Give the domain characters to read on its console; how many there was room for.
    pub(crate) fn give_console(&self, bytes: &[u8]) -> usize {
        let services = self.services().clone();
        let given = services.map_or(0, |services| services.console.give(&self.memory, bytes));
        if given > 0 {
            self.raise(port::CONSOLE);
        }
        given
    }
}

/// Where characters for the domain are put.
pub(crate) struct LineInput(pub(crate) Arc<Domain>);

impl machine::board::LineInput for LineInput {
    fn send(&self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            if self.0.line.is_closed() {
                return false;
            }
            let given = self.0.give_console(bytes);
            bytes = &bytes[given..];
            if given == 0 {
                self.0.line.wait_for_room();
            }
        }
        true
    }

    fn close(&self) {
        self.0.line.close();
    }
}
