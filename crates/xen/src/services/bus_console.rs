//! A console that the domain finds in the store: all but the first.

use std::sync::Arc;

use xen_io::bus::{FrontKeys, Handshake, Key, Settings, Tree, Unwritable};
use xen_io::device::{self, BackEnd, Connect, Link, Places};
use xen_io::grant::Access;

use super::console::Console;
use crate::memory::MachineMemory;

/// What a console's front-end has written (docs/misc/console.txt of Xen).
pub(crate) struct ConsoleSettings {
    /// The grant of the page.
    ring: u32,
    port: u32,
}

impl Settings for ConsoleSettings {
    fn read(keys: &mut FrontKeys<'_>) -> Result<Self, String> {
        Ok(Self { ring: keys.number("ring-ref")?, port: keys.number("port")? })
    }
}

/// See above.
pub(crate) struct BusConsole {
    number: u32,
    console: Arc<Console>,
    memory: MachineMemory,
    handshake: Option<Handshake>,
    link: Option<Arc<dyn Link>>,
}

impl BusConsole {
    /// Console `number`, which is not the first.
    pub(crate) fn new(number: u32, console: Arc<Console>, memory: MachineMemory) -> Self {
        Self { number, console, memory, handshake: None, link: None }
    }
}

impl Connect for BusConsole {
    type Settings = ConsoleSettings;

    fn handshake(&mut self) -> &mut Option<Handshake> {
        &mut self.handshake
    }

    /// Use the page that the front-end has granted.
    fn connect(
        &mut self,
        link: &Arc<dyn Link>,
        settings: &ConsoleSettings,
    ) -> Result<Vec<Key>, String> {
        let port = settings.port;
        let grant = link.grants().take(settings.ring, Access::Write);
        let grant = grant.map_err(|error| error.to_string())?;
        let frame = grant.frame();
        let (console, memory) = (Arc::clone(&self.console), self.memory.clone());
        let its_link = Arc::clone(link);
        let notify = Arc::new(move || {
            console.serve(&memory).iter().for_each(|port| its_link.notify(*port));
        });
        link.bind(port, notify).map_err(|error| error.to_string())?;
        self.link = Some(Arc::clone(link));
        let connected = self.console.connect(&self.memory, frame, port, Some(grant));
        connected.map(|()| Vec::new()).map_err(|broken| broken.to_string())
    }

    fn disconnect(&mut self) {
        if let (Some(port), Some(link)) = (self.console.disconnect(), self.link.take()) {
            link.leave(port);
        }
    }
}

impl BackEnd for BusConsole {
    fn kind(&self) -> &'static str {
        "console"
    }

    fn number(&self) -> u32 {
        self.number
    }

    fn begin(&mut self, places: &Places, tree: &mut dyn Tree) -> Result<(), Unwritable> {
        self.handshake = Some(Handshake::begin(tree, &places.back, &places.front, &[])?);
        Ok(())
    }

    fn look(&mut self, link: &Arc<dyn Link>, tree: &mut dyn Tree) -> Result<(), Unwritable> {
        device::look(self, link, tree)
    }

    fn freeze(&mut self) -> bool {
        self.console.freeze();
        true
    }

    fn thaw(&mut self) {
        self.console.thaw();
    }

    fn resume(
        &mut self,
        places: &Places,
        link: &Arc<dyn Link>,
        tree: &mut dyn Tree,
    ) -> Result<(), String> {
        device::resume(self, places, link, tree)
    }

    fn end(&mut self) {
        self.console.disconnect();
        (self.handshake, self.link) = (None, None);
    }
}
