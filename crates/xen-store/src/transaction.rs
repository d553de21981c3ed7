//! Transactions: a copy of the tree, what was used of it, and what was changed.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::limits::{MAX_NODES, MAX_TRANSACTION_CHANGES, MAX_TRANSACTION_NODES, TRANSACTION_BYTES};
use crate::path::{DomainId, Path};
use crate::permission::CONTROL_DOMAIN;
use crate::tree::{Change, Tree};
use crate::watch::Event;

/// What a transaction has done so far.
#[derive(Debug)]
pub(crate) struct Record {
    /// The tree as it began.
    base: Tree,
    /// The nodes that it has used, with their generations at the beginning; none: there was no such node.
    used: BTreeMap<Path, Option<u64>>,
    changes: Vec<Change>,
    pub events: Vec<Event>,
    /// What all this takes.
    bytes: usize,
}

impl Record {
    /// The transaction's outcome depends on this node.
    pub fn use_node(&mut self, path: &Path) {
        if !self.used.contains_key(path) {
            self.bytes += path.as_str().len();
            let generation = self.base.get(path).map(|node| node.generation);
            self.used.insert(path.clone(), generation);
        }
    }

    pub fn change(&mut self, change: Change) {
        self.bytes += match &change {
            Change::Write(path, value) => path.as_str().len() + value.len(),
            Change::Create(path, _) | Change::SetPermissions(path, _) | Change::Remove(path) => {
                path.as_str().len()
            }
        };
        self.changes.push(change);
    }

    /// Whether so many more nodes and changes fit, with so many bytes.
    pub fn has_room(&self, nodes: usize, bytes: usize) -> bool {
        self.used.len() + nodes <= MAX_TRANSACTION_NODES
            && self.changes.len() + nodes < MAX_TRANSACTION_CHANGES
            && self.bytes + bytes <= TRANSACTION_BYTES
    }
}

/// A transaction that has begun.
#[derive(Debug)]
pub(crate) struct Transaction {
    pub tree: Tree,
    pub record: Record,
}

impl Transaction {
    pub fn new(tree: &Tree) -> Self {
        let record = Record {
            base: tree.clone(),
            used: BTreeMap::new(),
            changes: Vec::new(),
            events: Vec::new(),
            bytes: 0,
        };
        Self { tree: tree.clone(), record }
    }

    /// One that has met another change already.
    pub fn stale(tree: &Tree) -> Self {
        let mut transaction = Self::new(tree);
        // No node ever has this generation.
        transaction.record.used.insert(Path::root(), Some(u64::MAX));
        transaction
    }

    /// Make the changes in the tree of all, and say what has happened.
    pub fn commit(
        self,
        tree: &mut Tree,
        domain: DomainId,
        generation: &mut u64,
    ) -> Result<Vec<Event>, Error> {
        let now = |path| tree.get(path).map(|node| node.generation);
        if self.record.used.iter().any(|(path, then)| now(path) != *then) {
            return Err(Error::Again);
        }
        let mut new = tree.clone();
        for change in &self.record.changes {
            *generation += 1;
            new.change(change, *generation);
        }
        let owned = new.owned(domain);
        if domain != CONTROL_DOMAIN && owned > MAX_NODES && owned > tree.owned(domain) {
            return Err(Error::NoSpace);
        }
        *tree = new;
        Ok(self.record.events)
    }
}
