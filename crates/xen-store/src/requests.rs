//! Requests of the protocol, and their answers.

use crate::error::Error;
use crate::limits::{MAX_TRANSACTIONS, PAYLOAD_BYTES};
use crate::path::{DomainId, Path, domain_path};
use crate::permission::{CONTROL_DOMAIN, Permission};
use crate::store::{ClientId, Store};
use crate::transaction::Transaction;
use crate::watch::Watch;
use crate::wire::{Header, Kind, first_string, one_string};

/// The payload of an answer that says nothing else.
const OK: &[u8] = b"OK\0";

impl Store {
    /// Carry out a request and reply.
    pub(crate) fn answer(&mut self, client: ClientId, header: Header, payload: &[u8]) {
        let Some(domain) = self.clients.get(&client).map(|client| client.domain) else { return };
        let kind = Kind::of_request(header.kind, domain == CONTROL_DOMAIN);
        let result = kind.and_then(|kind| {
            let request = Request { client, domain, transaction: header.transaction, payload };
            let answer = self.carry_out(kind, request)?;
            let fits = answer.len() <= PAYLOAD_BYTES;
            if fits { Ok((kind, answer)) } else { Err(Error::TooBig) }
        });
        let (kind, answer) = match result {
            Ok(answer) => answer,
            Err(error) => (Kind::Error, format!("{error}\0").into_bytes()),
        };
        if let Some(client) = self.clients.get_mut(&client) {
            client.reply(kind, header, &answer);
        }
        if kind == Kind::Watch {
            self.fire_first(client);
        }
    }

    fn carry_out(&mut self, kind: Kind, request: Request<'_>) -> Result<Vec<u8>, Error> {
        let Request { client, domain, transaction, payload } = request;
        let path = || Path::new(one_string(payload)?, domain);
        match kind {
            Kind::Read => {
                let path = path()?;
                self.act(client, transaction, |view| view.read(&path).map(<[u8]>::to_vec))
            }
            Kind::Directory => {
                let path = path()?;
                self.act(client, transaction, |view| Ok(view.directory(&path)?.0))
            }
            Kind::GetPermissions => {
                let path = path()?;
                let found = self.act(client, transaction, |view| view.permissions(&path))?;
                Ok(found.iter().flat_map(|it| format!("{it}\0").into_bytes()).collect())
            }
            Kind::MakeDirectory => {
                let path = path()?;
                done(self.act(client, transaction, |view| view.make_directory(&path)))
            }
            Kind::Remove => {
                let path = path()?;
                done(self.act(client, transaction, |view| view.remove(&path)))
            }
            Kind::Write => {
                let (name, value) = first_string(payload)?;
                let path = Path::new(name, domain)?;
                done(self.act(client, transaction, |view| view.write(&path, value)))
            }
            Kind::DirectoryPart => self.directory_part(request),
            Kind::SetPermissions => self.change_permissions(request),
            Kind::Watch | Kind::Unwatch | Kind::ResetWatches => self.change_watches(kind, request),
            Kind::TransactionStart => self.start(request),
            Kind::TransactionEnd => self.end(request),
            Kind::GetDomainPath => Ok((domain_path(number(payload)?) + "\0").into_bytes()),
            Kind::IsDomainIntroduced => {
                let wanted: DomainId = number(payload)?;
                let is_here = self.clients.values().any(|client| client.domain == wanted);
                Ok(if is_here { b"T\0".to_vec() } else { b"F\0".to_vec() })
            }
            Kind::WatchEvent | Kind::Error => Err(Error::NoSys),
        }
    }

    /// As much of a directory as fits, from an offset on; an empty name is the end.
    fn directory_part(&mut self, request: Request<'_>) -> Result<Vec<u8>, Error> {
        let (name, rest) = first_string(request.payload)?;
        let path = Path::new(name, request.domain)?;
        let offset: usize = number(rest)?;
        let act = |view: &mut crate::view::View<'_>| view.directory(&path);
        let (names, generation) = self.act(request.client, request.transaction, act)?;
        let mut answer = format!("{generation}\0").into_bytes();
        let mut left = names.get(offset..).unwrap_or_default();
        while let Some(end) = left.iter().position(|byte| *byte == 0) {
            let (name, rest) = left.split_at(end + 1);
            if answer.len() + name.len() >= PAYLOAD_BYTES {
                return Ok(answer);
            }
            answer.extend_from_slice(name);
            left = rest;
        }
        answer.push(0);
        Ok(answer)
    }

    fn change_permissions(&mut self, request: Request<'_>) -> Result<Vec<u8>, Error> {
        let (name, mut rest) = first_string(request.payload)?;
        let mut permissions = Vec::new();
        while !rest.is_empty() {
            let (text, after) = first_string(rest)?;
            permissions.push(Permission::parse(text)?);
            rest = after;
        }
        let path = Path::new(name, request.domain)?;
        let act = |view: &mut crate::view::View<'_>| view.set_permissions(&path, permissions);
        done(self.act(request.client, request.transaction, act))
    }

    fn change_watches(&mut self, kind: Kind, request: Request<'_>) -> Result<Vec<u8>, Error> {
        let Request { client, domain, payload, .. } = request;
        if kind == Kind::ResetWatches {
            let client = self.clients.get_mut(&client).ok_or(Error::NoEntry)?;
            client.watches.clear();
            client.transactions.clear();
            return done(Ok(()));
        }
        let (name, rest) = first_string(payload)?;
        let (token, _) = first_string(rest)?;
        if kind == Kind::Watch {
            return done(self.add_watch(client, name, token));
        }
        let wanted = Watch::new(name, token, domain)?;
        let client = self.clients.get_mut(&client).ok_or(Error::NoEntry)?;
        let position = client.watches.iter().position(|watch| watch.is_like(&wanted));
        client.watches.remove(position.ok_or(Error::NoEntry)?);
        done(Ok(()))
    }

    fn start(&mut self, request: Request<'_>) -> Result<Vec<u8>, Error> {
        if request.transaction != 0 {
            return Err(Error::Busy);
        }
        let client = self.clients.get_mut(&request.client).ok_or(Error::NoEntry)?;
        if client.transactions.len() >= MAX_TRANSACTIONS {
            return Err(Error::NoSpace);
        }
        // Some number is free: there are fewer transactions than numbers.
        let mut id = client.last_transaction;
        loop {
            id = id.wrapping_add(1).max(1);
            if !client.transactions.contains_key(&id) {
                break;
            }
        }
        client.last_transaction = id;
        client.transactions.insert(id, Transaction::new(&self.tree));
        Ok(format!("{id}\0").into_bytes())
    }

    fn end(&mut self, request: Request<'_>) -> Result<Vec<u8>, Error> {
        let commits = match one_string(request.payload)? {
            "T" => true,
            "F" => false,
            _ => return Err(Error::Inval),
        };
        let client = self.clients.get_mut(&request.client).ok_or(Error::NoEntry)?;
        let ended = client.transactions.remove(&request.transaction).ok_or(Error::NoEntry)?;
        if commits {
            let events = ended.commit(&mut self.tree, request.domain, &mut self.generation)?;
            self.fire(&events);
        }
        done(Ok(()))
    }
}

/// A request, and whose it is.
#[derive(Clone, Copy)]
struct Request<'r> {
    client: ClientId,
    domain: DomainId,
    transaction: u32,
    payload: &'r [u8],
}

fn done(result: Result<(), Error>) -> Result<Vec<u8>, Error> {
    result.map(|()| OK.to_vec())
}

/// A payload that is one decimal number.
fn number<N: std::str::FromStr>(payload: &[u8]) -> Result<N, Error> {
    one_string(payload)?.parse().map_err(|_| Error::Inval)
}
