//! The nodes. A copy of a tree shares all nodes with it until one of both is changed, so a transaction's copy is free.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::path::{DomainId, Path};
use crate::permission::{CONTROL_DOMAIN, Permission};

/// A node.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub value: Vec<u8>,
    pub permissions: Vec<Permission>,
    pub children: BTreeMap<String, Arc<Node>>,
    /// Another one after each change of the value, the permissions or the list of children.
    pub generation: u64,
}

impl Node {
    fn new(permissions: Vec<Permission>, generation: u64) -> Self {
        Self { value: Vec::new(), permissions, children: BTreeMap::new(), generation }
    }

    pub fn owner(&self) -> DomainId {
        self.permissions.first().map_or(CONTROL_DOMAIN, |permission| permission.domain)
    }

    /// What counts for the limit.
    pub fn bytes(&self) -> usize {
        let names: usize = self.children.keys().map(|name| name.len() + 1).sum();
        self.value.len() + names + size_of::<Permission>() * self.permissions.len()
    }
}

/// A change of one node, which is possible: the node, or its parent, is there.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Create(Path, Vec<Permission>),
    Write(Path, Vec<u8>),
    SetPermissions(Path, Vec<Permission>),
    /// With all that is below it.
    Remove(Path),
}

/// All nodes.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    root: Arc<Node>,
    /// Nodes by owner.
    owned: BTreeMap<DomainId, usize>,
}

impl Tree {
    /// With a root that the control domain owns and everybody reads.
    pub fn new() -> Self {
        let root = Permission { domain: CONTROL_DOMAIN, reads: true, writes: false };
        let owned = BTreeMap::from([(CONTROL_DOMAIN, 1)]);
        Self { root: Arc::new(Node::new(vec![root], 0)), owned }
    }

    pub fn get(&self, path: &Path) -> Option<&Node> {
        path.parts().try_fold(&*self.root, |node, part| Some(&**node.children.get(part)?))
    }

    /// The node, or the nearest above it that there is.
    pub fn nearest(&self, path: &Path) -> (Path, &Node) {
        let mut at = path.clone();
        loop {
            match (self.get(&at), at.split()) {
                (Some(node), _) => return (at, node),
                (None, Some((parent, _))) => at = parent,
                (None, None) => return (at, &self.root),
            }
        }
    }

    /// How many nodes a domain owns.
    pub fn owned(&self, domain: DomainId) -> usize {
        self.owned.get(&domain).copied().unwrap_or_default()
    }

    /// A node to be changed; what other trees share is copied on the way.
    fn get_mut(&mut self, path: &Path) -> Option<&mut Node> {
        let root = Arc::make_mut(&mut self.root);
        path.parts().try_fold(root, |node, part| Some(Arc::make_mut(node.children.get_mut(part)?)))
    }

    /// Paths below a node, with that of the node.
    pub fn below(&self, path: &Path) -> Vec<(Path, &Node)> {
        let mut found: Vec<_> =
            self.get(path).map(|node| (path.clone(), node)).into_iter().collect();
        let mut next = 0;
        while let Some((path, node)) = found.get(next).cloned() {
            found.extend(node.children.iter().map(|(name, child)| (path.join(name), &**child)));
            next += 1;
        }
        found
    }

    /// Carry out a change. The nodes that it changes get this generation.
    pub fn change(&mut self, change: &Change, generation: u64) {
        match change {
            Change::Create(path, permissions) => self.create(path, permissions, generation),
            Change::Write(path, value) => {
                if let Some(node) = self.get_mut(path) {
                    node.value.clone_from(value);
                    node.generation = generation;
                }
            }
            Change::SetPermissions(path, permissions) => {
                let Some(node) = self.get_mut(path) else { return };
                let old = node.owner();
                node.permissions.clone_from(permissions);
                node.generation = generation;
                let new = node.owner();
                self.count(old, -1);
                self.count(new, 1);
            }
            Change::Remove(path) => self.remove(path, generation),
        }
    }

    fn create(&mut self, path: &Path, permissions: &[Permission], generation: u64) {
        let Some((parent, name)) = path.split() else { return };
        let Some(parent) = self.get_mut(&parent) else { return };
        let node = Node::new(permissions.to_vec(), generation);
        let owner = node.owner();
        parent.generation = generation;
        if parent.children.insert(name.to_owned(), Arc::new(node)).is_none() {
            self.count(owner, 1);
        }
    }

    fn remove(&mut self, path: &Path, generation: u64) {
        let Some((parent, name)) = path.split() else { return };
        let owners: Vec<_> = self.below(path).iter().map(|(_, node)| node.owner()).collect();
        let Some(parent) = self.get_mut(&parent) else { return };
        parent.children.remove(name);
        parent.generation = generation;
        owners.into_iter().for_each(|owner| self.count(owner, -1));
    }

    fn count(&mut self, owner: DomainId, difference: isize) {
        let count = self.owned.entry(owner).or_default();
        *count = count.saturating_add_signed(difference);
    }
}
