//! What real Xen leaves to domain 0, and this board does itself: the store and the console.
//!
//! The vCPU's thread serves a ring when the guest notifies its port: there is no thread to wake. What comes from the
//! host (characters for the console, news in the store) is put into the ring on the thread that brings it.

mod console;
mod page;
mod store;

use std::sync::Arc;

use crate::domain::Domain;
use crate::start::{Started, port};

pub use console::LineInput;
pub(crate) use console::{Console, Line};
pub use store::Described;
pub(crate) use store::StoreService;

/// The services of a domain that has started.
pub(crate) struct Services {
    pub(crate) store: StoreService,
    pub(crate) console: Console,
}

impl Domain {
    /// Connect the ports that the domain finds to the services of its pages.
    ///
    /// # Errors
    ///
    /// The ports are taken, or there is no memory: our own mistake.
    pub(crate) fn serve(
        &self,
        started: &Started,
        described: &Described,
    ) -> Result<(), &'static str> {
        let store = StoreService::new(&self.memory, started.store, described);
        let console = Console::new(&self.memory, started.console)?;
        *self.services() = Some(Arc::new(Services { store, console }));
        let store = self.connect(None, Arc::new(Domain::serve_store));
        let console = self.connect(None, Arc::new(Domain::serve_console));
        let expected = (Ok(port::STORE), Ok(port::CONSOLE));
        if (store, console) == expected {
            Ok(())
        } else {
            Err("the ports of its services are taken")
        }
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
