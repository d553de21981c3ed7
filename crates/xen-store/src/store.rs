//! The store: its tree and its clients, and the calls of the host's.

use std::collections::BTreeMap;

use crate::client::{Broken, Client};
use crate::error::Error;
use crate::limits::MAX_WATCHES;
use crate::path::{DomainId, Path};
use crate::permission::{CONTROL_DOMAIN, Permission, Wish, allow};
use crate::tree::Tree;
use crate::view::View;
use crate::watch::{Event, Watch, Watched};

/// A client of a store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ClientId(u64);

/// Names and values, and those that use them.
#[derive(Debug)]
pub struct Store {
    pub(crate) tree: Tree,
    pub(crate) generation: u64,
    pub(crate) clients: BTreeMap<ClientId, Client>,
    last_client: u64,
}

impl Default for Store {
    fn default() -> Self {
        Self::new()
    }
}

impl Store {
    /// With nothing but a root.
    pub fn new() -> Self {
        Self { tree: Tree::new(), generation: 0, clients: BTreeMap::new(), last_client: 0 }
    }

    /// Make a client; one of [`CONTROL_DOMAIN`] may do everything.
    pub fn connect(&mut self, domain: DomainId) -> ClientId {
        self.last_client += 1;
        let id = ClientId(self.last_client);
        self.clients.insert(id, Client::new(domain));
        id
    }

    /// Forget a client, its watches and its transactions. Its nodes remain.
    pub fn disconnect(&mut self, client: ClientId) {
        self.clients.remove(&client);
    }

    /// Take bytes that a client has sent and carry out the requests that are whole: how many bytes were taken. The
    /// others have to be offered again when the client has read ([`Store::send`]).
    ///
    /// # Errors
    ///
    /// [`Broken`], from then on always.
    pub fn receive(&mut self, client: ClientId, bytes: &[u8]) -> Result<usize, Broken> {
        let mut taken = 0;
        loop {
            let Some(sender) = self.clients.get_mut(&client) else { return Err(Broken) };
            let (count, message) = sender.receive(&bytes[taken..])?;
            taken += count;
            let Some((header, payload)) = message else { return Ok(taken) };
            self.answer(client, header, &payload);
        }
    }

    /// Move bytes of what waits for a client to `bytes`; how many.
    pub fn send(&mut self, client: ClientId, bytes: &mut [u8]) -> usize {
        self.clients.get_mut(&client).map_or(0, |client| client.send(bytes))
    }

    /// Nothing waits for the client.
    pub fn is_idle(&self, client: ClientId) -> bool {
        self.clients.get(&client).is_none_or(Client::is_idle)
    }

    /// The client's next event: what has changed, and the watch's token. For the host, which calls and gets no replies.
    pub fn take_event(&mut self, client: ClientId) -> Option<(String, String)> {
        self.clients.get_mut(&client)?.take_event()
    }

    /// Nodes that a domain owns.
    pub fn owned_nodes(&self, domain: DomainId) -> usize {
        self.tree.owned(domain)
    }

    /// Bytes of messages that wait for a client or of it.
    pub fn held_bytes(&self, client: ClientId) -> usize {
        self.clients.get(&client).map_or(0, Client::held_bytes)
    }

    /// Read a node, as the control domain.
    ///
    /// # Errors
    ///
    /// It is no name, or there is no such node.
    pub fn read(&mut self, path: &str) -> Result<Vec<u8>, Error> {
        let path = Path::new(path, CONTROL_DOMAIN)?;
        self.host(|view| view.read(&path).map(<[u8]>::to_vec))
    }

    /// The names below a node, as the control domain.
    ///
    /// # Errors
    ///
    /// It is no name, or there is no such node.
    pub fn list(&mut self, path: &str) -> Result<Vec<String>, Error> {
        let path = Path::new(path, CONTROL_DOMAIN)?;
        let (names, _) = self.host(|view| view.directory(&path))?;
        let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        Ok(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
    }

    /// Who may read and write a node, the owner first.
    ///
    /// # Errors
    ///
    /// It is no name, or there is no such node.
    pub fn permissions(&mut self, path: &str) -> Result<Vec<Permission>, Error> {
        let path = Path::new(path, CONTROL_DOMAIN)?;
        self.host(|view| view.permissions(&path))
    }

    /// Write a node, as the control domain. Nodes above it are made.
    ///
    /// # Errors
    ///
    /// It is no name.
    pub fn write(&mut self, path: &str, value: &[u8]) -> Result<(), Error> {
        let path = Path::new(path, CONTROL_DOMAIN)?;
        self.host(|view| view.write(&path, value))
    }

    /// Remove a node and all below it, as the control domain.
    ///
    /// # Errors
    ///
    /// It is no name, or there is no node above it.
    pub fn remove(&mut self, path: &str) -> Result<(), Error> {
        let path = Path::new(path, CONTROL_DOMAIN)?;
        self.host(|view| view.remove(&path))
    }

    /// Say who may read and write a node, as the control domain.
    ///
    /// # Errors
    ///
    /// It is no name, or there is no such node.
    pub fn set_permissions(&mut self, path: &str, permissions: &[Permission]) -> Result<(), Error> {
        let path = Path::new(path, CONTROL_DOMAIN)?;
        self.host(|view| view.set_permissions(&path, permissions.to_vec()))
    }

    /// Something has happened that has no node, such as `@releaseDomain`.
    pub fn announce(&mut self, special: &str) {
        let watched = Watched::Special(special.to_owned());
        for client in self.clients.values_mut().filter(|it| it.domain == CONTROL_DOMAIN) {
            let watches = client.watches.iter().filter(|watch| watch.watched == watched);
            let tokens: Vec<_> = watches.map(|watch| watch.token.clone()).collect();
            for token in tokens {
                client.tell(special.to_owned(), special.to_owned(), &token);
            }
        }
    }

    /// Watch a node, or something that has none. The watch fires once at the beginning.
    ///
    /// # Errors
    ///
    /// It is no name, or is watched with this token, or the client has too many watches.
    pub fn watch(&mut self, client: ClientId, name: &str, token: &str) -> Result<(), Error> {
        self.add_watch(client, name, token)?;
        self.fire_first(client);
        Ok(())
    }

    pub(crate) fn add_watch(
        &mut self,
        client: ClientId,
        name: &str,
        token: &str,
    ) -> Result<(), Error> {
        let client = self.clients.get_mut(&client).ok_or(Error::NoEntry)?;
        let watch = Watch::new(name, token, client.domain)?;
        if client.watches.iter().any(|other| other.is_like(&watch)) {
            return Err(Error::Exists);
        }
        if client.domain != CONTROL_DOMAIN && client.watches.len() >= MAX_WATCHES {
            return Err(Error::TooBig);
        }
        client.watches.push(watch);
        Ok(())
    }

    /// The client's last watch fires, since it is new.
    pub(crate) fn fire_first(&mut self, client: ClientId) {
        let Some(client) = self.clients.get_mut(&client) else { return };
        let Some(watch) = client.watches.last() else { return };
        let (own, token) = (watch.own(client.domain), watch.token.clone());
        client.tell(own.clone(), own, &token);
    }

    fn host<R>(&mut self, act: impl FnOnce(&mut View<'_>) -> Result<R, Error>) -> Result<R, Error> {
        let mut view = View {
            domain: CONTROL_DOMAIN,
            tree: &mut self.tree,
            generation: &mut self.generation,
            record: None,
            events: Vec::new(),
        };
        let result = act(&mut view);
        let events = view.events;
        self.fire(&events);
        result
    }

    /// Do something as a client, in one of its transactions or in none (0).
    pub(crate) fn act<R>(
        &mut self,
        client: ClientId,
        transaction: u32,
        act: impl FnOnce(&mut View<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let client = self.clients.get_mut(&client).ok_or(Error::NoEntry)?;
        let (tree, record) = match transaction {
            0 => (&mut self.tree, None),
            id => {
                let transaction = client.transactions.get_mut(&id).ok_or(Error::NoEntry)?;
                (&mut transaction.tree, Some(&mut transaction.record))
            }
        };
        let generation = &mut self.generation;
        let mut view = View { domain: client.domain, tree, generation, record, events: Vec::new() };
        let result = act(&mut view);
        let events = view.events;
        match view.record {
            Some(record) => record.events.extend(events),
            None => self.fire(&events),
        }
        result
    }

    /// Tell those that watch, if they may read the node, or could.
    pub(crate) fn fire(&mut self, events: &[Event]) {
        for event in events {
            let now = self.tree.get(&event.path).map(|node| &node.permissions);
            for client in self.clients.values_mut() {
                let may_read = |permissions| allow(permissions, client.domain, Wish::Read);
                if !now.is_some_and(|now| may_read(now)) && !may_read(&event.before) {
                    continue;
                }
                let told = |watch: &Watch| {
                    let path = watch.shown(&event.path, client.domain);
                    (path, watch.own(client.domain), watch.token.clone())
                };
                let matching = client.watches.iter().filter(|watch| watch.matches(event));
                let matching: Vec<_> = matching.map(told).collect();
                for (path, own, token) in matching {
                    client.tell(path, own, &token);
                }
            }
        }
    }
}
