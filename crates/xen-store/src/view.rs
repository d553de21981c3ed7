//! What a client may do with the nodes, in the tree of all or in its transaction's.

use crate::error::Error;
use crate::limits::{MAX_NODES, MAX_PERMISSIONS, NODE_BYTES};
use crate::path::{DomainId, Path};
use crate::permission::{CONTROL_DOMAIN, Permission, Wish, allow};
use crate::transaction::Record;
use crate::tree::{Change, Node, Tree};
use crate::watch::Event;

/// A tree as a client sees it.
pub(crate) struct View<'v> {
    pub domain: DomainId,
    pub tree: &'v mut Tree,
    pub generation: &'v mut u64,
    /// Of the transaction, if it is in one.
    pub record: Option<&'v mut Record>,
    /// What has happened.
    pub events: Vec<Event>,
}

impl View<'_> {
    /// The node, if the client may do this with it. Whether there is one is only told to those that may do it with
    /// the nearest node above.
    fn get(&mut self, path: &Path, wish: Wish) -> Result<&Node, Error> {
        self.use_node(path)?;
        let (at, node) = self.tree.nearest(path);
        let is_allowed = allow(&node.permissions, self.domain, wish);
        if at != *path {
            self.use_node(&at)?;
            return Err(if is_allowed { Error::NoEntry } else { Error::Access });
        }
        if !is_allowed {
            return Err(Error::Access);
        }
        self.tree.get(path).ok_or(Error::NoEntry)
    }

    fn use_node(&mut self, path: &Path) -> Result<(), Error> {
        let Some(record) = self.record.as_deref_mut() else { return Ok(()) };
        if !record.has_room(1, path.as_str().len()) {
            return Err(Error::NoSpace);
        }
        record.use_node(path);
        Ok(())
    }

    pub fn read(&mut self, path: &Path) -> Result<&[u8], Error> {
        self.get(path, Wish::Read).map(|node| &node.value[..])
    }

    /// The names below a node, each with a NUL, and the node's generation.
    pub fn directory(&mut self, path: &Path) -> Result<(Vec<u8>, u64), Error> {
        let node = self.get(path, Wish::Read)?;
        let names = node.children.keys().flat_map(|name| name.bytes().chain([0]));
        Ok((names.collect(), node.generation))
    }

    pub fn permissions(&mut self, path: &Path) -> Result<Vec<Permission>, Error> {
        self.get(path, Wish::Read).map(|node| node.permissions.clone())
    }

    /// Write a node, which is made if there is none.
    pub fn write(&mut self, path: &Path, value: &[u8]) -> Result<(), Error> {
        let before = match self.get(path, Wish::Write) {
            Ok(node) => {
                let bytes = node.bytes() - node.value.len() + value.len();
                let before = node.permissions.clone();
                self.check_bytes(bytes)?;
                self.check_record(1, path.as_str().len() + value.len())?;
                before
            }
            Err(Error::NoEntry) => {
                self.create(path, value.len())?;
                Vec::new()
            }
            Err(error) => return Err(error),
        };
        self.change(Change::Write(path.clone(), value.to_vec()));
        self.events.push(Event { path: path.clone(), is_exact: false, before });
        Ok(())
    }

    /// Make a node without a value, unless there is one.
    pub fn make_directory(&mut self, path: &Path) -> Result<(), Error> {
        match self.get(path, Wish::Write) {
            Ok(_) => Ok(()),
            Err(Error::NoEntry) => {
                self.create(path, 0)?;
                let event = Event { path: path.clone(), is_exact: false, before: Vec::new() };
                self.events.push(event);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Make a node that will have so long a value, and those above it that there are not.
    fn create(&mut self, path: &Path, value_bytes: usize) -> Result<(), Error> {
        let (at, parent) = self.tree.nearest(path);
        let mut missing = vec![path.clone()];
        while let Some((above, _)) = missing.last().and_then(Path::split).filter(|it| it.0 != at) {
            missing.push(above);
        }
        let mut permissions = parent.permissions.clone();
        let first = missing.last().and_then(Path::split).map_or(0, |(_, name)| name.len() + 1);
        let parent_bytes = parent.bytes() + first;
        if let Some(owner) = permissions.first_mut().filter(|_| self.domain != CONTROL_DOMAIN) {
            owner.domain = self.domain;
        }
        self.check_bytes(parent_bytes)?;
        self.check_bytes(size_of::<Permission>() * permissions.len() + value_bytes)?;
        let owned = self.tree.owned(self.domain) + missing.len();
        if self.domain != CONTROL_DOMAIN && owned > MAX_NODES {
            return Err(Error::NoSpace);
        }
        let bytes: usize = missing.iter().map(|path| 2 * path.as_str().len()).sum();
        self.check_record(missing.len() + 1, bytes + path.as_str().len() + value_bytes)?;
        for path in missing.into_iter().rev() {
            self.use_node(&path)?;
            self.change(Change::Create(path, permissions.clone()));
        }
        Ok(())
    }

    /// Remove a node and all below it. There need not be one, if there is one above it.
    pub fn remove(&mut self, path: &Path) -> Result<(), Error> {
        let is_there = match self.get(path, Wish::Write) {
            Ok(_) => true,
            Err(Error::NoEntry) => false,
            Err(error) => return Err(error),
        };
        let (parent, _) = path.split().ok_or(Error::Inval)?;
        if !is_there {
            self.use_node(&parent)?;
            return if self.tree.get(&parent).is_some() { Ok(()) } else { Err(Error::NoEntry) };
        }
        let removed: Vec<Event> = self
            .tree
            .below(path)
            .into_iter()
            .map(|(it, node)| {
                let is_exact = it != *path;
                Event { path: it, is_exact, before: node.permissions.clone() }
            })
            .collect();
        let bytes = removed.iter().map(|event| event.path.as_str().len()).sum::<usize>();
        self.check_record(removed.len() + 1, bytes + 2 * path.as_str().len())?;
        self.use_node(&parent)?;
        for event in &removed {
            self.use_node(&event.path)?;
        }
        self.change(Change::Remove(path.clone()));
        self.events.extend(removed);
        Ok(())
    }

    pub fn set_permissions(&mut self, path: &Path, new: Vec<Permission>) -> Result<(), Error> {
        let owner = new.first().ok_or(Error::Inval)?.domain;
        if self.domain != CONTROL_DOMAIN && new.len() > MAX_PERMISSIONS {
            return Err(Error::NoSpace);
        }
        let node = self.get(path, Wish::Own)?;
        let (before, old_owner) = (node.permissions.clone(), node.owner());
        let bytes = node.bytes() + size_of::<Permission>() * new.len();
        if self.domain != CONTROL_DOMAIN && owner != old_owner {
            return Err(Error::Perm);
        }
        self.check_bytes(bytes - size_of::<Permission>() * before.len())?;
        self.check_record(1, path.as_str().len())?;
        self.change(Change::SetPermissions(path.clone(), new));
        self.events.push(Event { path: path.clone(), is_exact: false, before });
        Ok(())
    }

    /// A node of this size is allowed.
    fn check_bytes(&self, bytes: usize) -> Result<(), Error> {
        let is_allowed = self.domain == CONTROL_DOMAIN || bytes < NODE_BYTES;
        if is_allowed { Ok(()) } else { Err(Error::NoSpace) }
    }

    /// The transaction can remember so much more.
    fn check_record(&self, nodes: usize, bytes: usize) -> Result<(), Error> {
        let has_room = self.record.as_ref().is_none_or(|record| record.has_room(nodes, bytes));
        if has_room { Ok(()) } else { Err(Error::NoSpace) }
    }

    fn change(&mut self, change: Change) {
        *self.generation += 1;
        self.tree.change(&change, *self.generation);
        if let Some(record) = self.record.as_deref_mut() {
            record.change(change);
        }
    }
}
