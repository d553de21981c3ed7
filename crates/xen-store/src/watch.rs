//! Watches, and what they are told of.

use crate::error::Error;
use crate::limits::RELATIVE_PATH_BYTES;
use crate::path::{DomainId, Path};
use crate::permission::Permission;

/// A node has changed.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub path: Path,
    /// Only watches of this very node are told: it went with one above it, which all others are told of.
    pub is_exact: bool,
    /// The permissions that it had; none if it is new.
    pub before: Vec<Permission>,
}

/// What is watched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Watched {
    Node(Path),
    /// What has no node, such as `@releaseDomain`.
    Special(String),
}

/// A watch of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Watch {
    pub watched: Watched,
    pub token: String,
    /// The name was relative, and so are those in events.
    is_relative: bool,
}

impl Watch {
    pub fn new(name: &str, token: &str, domain: DomainId) -> Result<Self, Error> {
        let watched = match name.starts_with('@') {
            true if name.len() <= RELATIVE_PATH_BYTES => Watched::Special(name.to_owned()),
            true => return Err(Error::Inval),
            false => Watched::Node(Path::new(name, domain)?),
        };
        let is_relative = !name.starts_with(['/', '@']);
        Ok(Self { watched, token: token.to_owned(), is_relative })
    }

    /// They watch the same with the same token, which is how a client names one.
    pub fn is_like(&self, other: &Self) -> bool {
        self.watched == other.watched && self.token == other.token
    }

    pub fn matches(&self, event: &Event) -> bool {
        match &self.watched {
            Watched::Special(_) => false,
            Watched::Node(path) if event.is_exact => event.path == *path,
            Watched::Node(path) => event.path.is_at_or_below(path),
        }
    }

    /// A node as this watch's client names it.
    pub fn shown(&self, path: &Path, domain: DomainId) -> String {
        let relative = path.relative_to(domain).filter(|_| self.is_relative);
        relative.unwrap_or(path.as_str()).to_owned()
    }

    /// What is watched, as this watch's client names it.
    pub fn own(&self, domain: DomainId) -> String {
        match &self.watched {
            Watched::Node(path) => self.shown(path, domain),
            Watched::Special(name) => name.clone(),
        }
    }
}
