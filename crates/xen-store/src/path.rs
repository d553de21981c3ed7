//! Names of nodes.

use crate::error::Error;
use crate::limits::{ABSOLUTE_PATH_BYTES, RELATIVE_PATH_BYTES};

/// A domain's number.
pub type DomainId = u16;

/// The name of a node, from the root on.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Path(String);

impl Path {
    /// The node that `name` means to a domain: what does not begin at the root is in the domain's own directory.
    ///
    /// # Errors
    ///
    /// It is no name.
    pub fn new(name: &str, domain: DomainId) -> Result<Self, Error> {
        let path = match name.starts_with('/') {
            true => name.to_owned(),
            false => format!("{}/{name}", domain_path(domain)),
        };
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-/_@".contains(&byte);
        let is_wrong = name.is_empty()
            || path.contains("//")
            || path.len() > 1 && path.ends_with('/')
            || path.len() > ABSOLUTE_PATH_BYTES
            || below_domain(&path).len() > RELATIVE_PATH_BYTES
            || !path.bytes().all(is_allowed);
        if is_wrong { Err(Error::Inval) } else { Ok(Self(path)) }
    }

    /// The node that all others are below.
    pub(crate) fn root() -> Self {
        Self("/".to_owned())
    }

    /// The whole name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn is_root(&self) -> bool {
        self.0 == "/"
    }

    /// What it is made of.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|part| !part.is_empty())
    }

    /// The node above it, and its name there; none for the root.
    pub(crate) fn split(&self) -> Option<(Self, &str)> {
        let (parent, name) = self.0.rsplit_once('/').filter(|_| !self.is_root())?;
        let parent = if parent.is_empty() { "/" } else { parent };
        Some((Self(parent.to_owned()), name))
    }

    pub(crate) fn join(&self, name: &str) -> Self {
        let parent = if self.is_root() { "" } else { &self.0 };
        Self(format!("{parent}/{name}"))
    }

    /// It is `other`, or below it.
    pub(crate) fn is_at_or_below(&self, other: &Self) -> bool {
        let rest = self.0.strip_prefix(&other.0);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || other.is_root())
    }

    /// As the domain names it in relation to its own directory, if it is there.
    pub(crate) fn relative_to(&self, domain: DomainId) -> Option<&str> {
        self.0.strip_prefix(&domain_path(domain))?.strip_prefix('/')
    }
}

/// The directory of a domain.
pub fn domain_path(domain: DomainId) -> String {
    format!("/local/domain/{domain}")
}

/// What the limit of relative paths is about.
fn below_domain(path: &str) -> &str {
    let rest = path.strip_prefix("/local/domain/").and_then(|rest| rest.split_once('/'));
    rest.filter(|(domain, _)| domain.parse::<DomainId>().is_ok()).map_or(path, |(_, below)| below)
}
