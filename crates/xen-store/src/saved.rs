//! A store as plain data, from which another goes on: the nodes, and what the domain's own client has asked for and not
//! had yet.
//!
//! Generations begin again, and nothing is said of what a transaction has read and changed: each that had begun is one
//! that has met another change, and is made again (as after a live update of Xen's own daemon).
//!
//! Saved state is untrusted: [`Store::restored`] builds the tree node by node, within the limits that hold for clients.

use serde::{Deserialize, Serialize};

use crate::client::Client;
use crate::error::Error;
use crate::limits::{
    MAX_NODES, MAX_PERMISSIONS, MAX_TRANSACTIONS, MAX_WATCHES, NODE_BYTES, PAYLOAD_BYTES,
};
use crate::path::{DomainId, Path};
use crate::permission::{CONTROL_DOMAIN, Permission};
use crate::saved_client::SavedClient;
use crate::store::{ClientId, Store};
use crate::transaction::Transaction;
use crate::tree::{Change, Tree};

/// A node: its path, its value and its permissions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SavedNode {
    path: String,
    value: Vec<u8>,
    /// Each a domain's number, and whether it may read and write.
    permissions: Vec<(DomainId, bool, bool)>,
}

/// See above.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// Each behind its parent.
    nodes: Vec<SavedNode>,
    client: SavedClient,
}

impl Store {
    /// All nodes, and a client.
    pub fn save(&self, client: ClientId) -> Saved {
        let nodes = self.tree.below(&Path::root()).into_iter().map(|(path, node)| SavedNode {
            path: path.as_str().to_owned(),
            value: node.value.clone(),
            permissions: node
                .permissions
                .iter()
                .map(|it| (it.domain, it.reads, it.writes))
                .collect(),
        });
        let client = self.clients.get(&client).map(Client::save);
        Saved { nodes: nodes.collect(), client: client.unwrap_or_default() }
    }

    /// A store that goes on from there, and the client, which is that of a domain.
    ///
    /// # Errors
    ///
    /// Why no domain could have made such a store.
    pub fn restored(saved: Saved, domain: DomainId) -> Result<(Self, ClientId), Error> {
        let mut store = Self::new();
        for node in saved.nodes {
            store.generation += 1;
            add(&mut store.tree, node, store.generation)?;
        }
        if store.tree.owned(domain) > MAX_NODES {
            return Err(Error::NoSpace);
        }
        let client = store.connect(domain);
        let SavedClient { watches, transactions, .. } = &saved.client;
        if watches.len() > MAX_WATCHES || transactions.len() > MAX_TRANSACTIONS {
            return Err(Error::TooBig);
        }
        for (name, token) in watches {
            store.add_watch(client, name, token)?;
        }
        let tree = &store.tree;
        let stale = transactions.iter().map(|id| (*id, Transaction::stale(tree)));
        let stale = stale.collect();
        if let Some(client) = store.clients.get_mut(&client) {
            client.restore(saved.client, stale)?;
        }
        Ok((store, client))
    }
}

/// Add a node whose parent is there.
fn add(tree: &mut Tree, node: SavedNode, generation: u64) -> Result<(), Error> {
    let path = Path::new(&node.path, CONTROL_DOMAIN)?;
    let permission = |(domain, reads, writes)| Permission { domain, reads, writes };
    let permissions: Vec<_> = node.permissions.into_iter().map(permission).collect();
    let owner = permissions.first().ok_or(Error::Inval)?.domain;
    let is_small = owner == CONTROL_DOMAIN || node.value.len() <= NODE_BYTES;
    if !is_small || permissions.len() > MAX_PERMISSIONS.max(2) || node.value.len() > PAYLOAD_BYTES {
        return Err(Error::NoSpace);
    }
    match path.split() {
        None => tree.change(&Change::SetPermissions(path.clone(), permissions), generation),
        Some((parent, _)) => {
            if tree.get(&parent).is_none() || tree.get(&path).is_some() {
                return Err(Error::Inval);
            }
            tree.change(&Change::Create(path.clone(), permissions), generation);
        }
    }
    tree.change(&Change::Write(path, node.value), generation);
    Ok(())
}

impl Client {
    fn save(&self) -> SavedClient {
        SavedClient {
            input: self.input().to_vec(),
            is_broken: self.is_broken(),
            output: self.waiting(),
            watches: self
                .watches
                .iter()
                .map(|it| (it.own(self.domain), it.token.clone()))
                .collect(),
            transactions: self.transactions.keys().copied().collect(),
            last_transaction: self.last_transaction,
        }
    }
}
