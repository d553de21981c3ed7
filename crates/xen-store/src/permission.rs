//! Who may read and write a node.

use crate::error::Error;
use crate::path::DomainId;

/// The domain that everything is allowed to: the host.
pub const CONTROL_DOMAIN: DomainId = 0;

/// What a domain may do with a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Permission {
    /// The domain. Of a node's first permission: the owner, to whom everything is allowed.
    pub domain: DomainId,
    /// It may read; of the first permission: all others may.
    pub reads: bool,
    /// It may write; of the first permission: all others may.
    pub writes: bool,
}

impl Permission {
    /// The owner's, where nobody else may do anything.
    pub fn owner(domain: DomainId) -> Self {
        Self { domain, reads: false, writes: false }
    }

    /// A letter and a domain's number.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let (letter, domain) = text.split_at_checked(1).ok_or(Error::Inval)?;
        let (reads, writes) = match letter {
            "r" => (true, false),
            "w" => (false, true),
            "b" => (true, true),
            "n" => (false, false),
            _ => return Err(Error::Inval),
        };
        let domain = domain.parse().map_err(|_| Error::Inval)?;
        Ok(Self { domain, reads, writes })
    }
}

impl std::fmt::Display for Permission {
    /// As clients of the store are told.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let letter = match (self.reads, self.writes) {
            (true, false) => 'r',
            (false, true) => 'w',
            (true, true) => 'b',
            (false, false) => 'n',
        };
        write!(out, "{letter}{}", self.domain)
    }
}

/// What is wanted of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    Read,
    Write,
    Own,
}

/// Whether the permissions of a node grant a domain its wish.
pub(crate) fn allow(permissions: &[Permission], domain: DomainId, wish: Wish) -> bool {
    let Some(owner) = permissions.first() else { return domain == CONTROL_DOMAIN };
    if domain == CONTROL_DOMAIN || domain == owner.domain {
        return true;
    }
    let own = permissions[1..].iter().find(|permission| permission.domain == domain);
    let granted = own.unwrap_or(owner);
    match wish {
        Wish::Read => granted.reads,
        Wish::Write => granted.writes,
        Wish::Own => false,
    }
}
