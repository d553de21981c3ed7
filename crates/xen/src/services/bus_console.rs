//! A console that the domain finds in the store: all but the first.

use std::sync::Arc;

use xen_abi::bus::state;
use xen_io::bus::{Step, Tree, Unwritable, next};
use xen_io::device::{BackEnd, Link, Places};
use xen_io::grant::Access;

use super::console::Console;
use crate::memory::MachineMemory;

/// See above.
pub(crate) struct BusConsole {
    number: u32,
    console: Arc<Console>,
    memory: MachineMemory,
    places: Places,
    /// Its state, one of [`state`].
    own: u32,
    link: Option<Arc<dyn Link>>,
}

impl BusConsole {
    /// Console `number`, which is not the first.
    pub(crate) fn new(number: u32, console: Arc<Console>, memory: MachineMemory) -> Self {
        let places = Places { back: String::new(), front: String::new() };
        Self { number, console, memory, places, own: state::UNKNOWN, link: None }
    }

    fn enter(&mut self, tree: &mut dyn Tree, own: u32) -> Result<(), Unwritable> {
        self.own = own;
        tree.write(&format!("{}/state", self.places.back), &own.to_string())
    }

    /// Use what the front-end has left in its directory.
    fn connect(&mut self, link: &Arc<dyn Link>, tree: &mut dyn Tree) -> Result<(), String> {
        let mut number = |key: &str| {
            let value = tree.read(&format!("{}/{key}", self.places.front));
            let value = value.and_then(|text| text.trim_end_matches('\0').parse::<u32>().ok());
            value.ok_or_else(|| format!("the front-end's key {key} is no number"))
        };
        let (reference, port) = (number("ring-ref")?, number("port")?);
        let grant = link.grants().take(reference, Access::Write).map_err(|it| it.to_string())?;
        let frame = grant.frame();
        let (console, memory) = (Arc::clone(&self.console), self.memory.clone());
        let its_link = Arc::clone(link);
        let notify = Arc::new(move || {
            console.serve(&memory).iter().for_each(|port| its_link.notify(*port));
        });
        link.bind(port, notify).map_err(|it| it.to_string())?;
        let connected = self.console.connect(&self.memory, frame, port, Some(grant));
        connected.map_err(|broken| broken.to_string())?;
        self.link = Some(Arc::clone(link));
        Ok(())
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
        self.places = places.clone();
        self.enter(tree, state::INIT_WAIT)
    }

    fn look(&mut self, link: &Arc<dyn Link>, tree: &mut dyn Tree) -> Result<(), Unwritable> {
        let front = tree.read(&format!("{}/state", self.places.front));
        let front = front.and_then(|text| text.parse().ok()).unwrap_or(state::UNKNOWN);
        match next(self.own, front, true) {
            Step::Stay | Step::Leave => Ok(()),
            Step::Wait => self.enter(tree, state::INIT_WAIT),
            Step::Connect => match self.connect(link, tree) {
                Ok(()) => self.enter(tree, state::CONNECTED),
                Err(reason) => {
                    tree.write(&format!("{}/error", self.places.back), &reason)?;
                    self.enter(tree, state::CLOSING)
                }
            },
            Step::Close => {
                self.disconnect();
                self.enter(tree, state::CLOSING)
            }
            Step::Closed => {
                self.disconnect();
                self.enter(tree, state::CLOSED)
            }
        }
    }

    fn end(&mut self) {
        self.console.disconnect();
        (self.own, self.link) = (state::UNKNOWN, None);
    }
}
