//! The host's kernel confines the server to its shares, too (landlock(7)). Whatever the server
//! opens or changes by mistake, or because an attacker owns it, lies below a share's directory, and
//! nothing changes in a read-only share.
//!
//! Linux has Landlock since 5.13. Before 5.19 it forbids to rename and link between directories, so
//! the server does not use it there.

use std::os::fd::BorrowedFd;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus,
};

/// The newest interface of which this knows what it restricts (Linux 6.10).
const NEWEST: ABI = ABI::V5;

/// The oldest one under which files can be renamed from one directory into another (Linux 5.19).
const OLDEST: ABI = ABI::V2;

/// Whether the kernel keeps this server in its shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It does.
    Yes,
    /// It has no Landlock, or one that is too old.
    CannotHere,
}

/// What may be done in a share that is only read.
fn reading() -> BitFlags<AccessFs> {
    AccessFs::ReadFile | AccessFs::ReadDir
}

/// What may be done in a share that is written: all but to execute and to make devices.
fn writing() -> BitFlags<AccessFs> {
    let never = AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev;
    AccessFs::from_all(NEWEST) & !never
}

/// Whether the kernel can keep a server in its shares.
#[must_use]
pub fn is_offered() -> bool {
    // An older kernel could not tell, and would refuse what has to be possible.
    let oldest = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(OLDEST));
    oldest.and_then(Ruleset::create).is_ok()
}

/// Keep this thread, and those that it starts, in these directories, which may be written if that is said.
///
/// # Errors
///
/// The kernel's, but for having no Landlock, or one that is too old.
pub fn keep_in<'a>(
    shares: impl Iterator<Item = (BorrowedFd<'a>, bool)>,
) -> Result<Kept, RulesetError> {
    if !is_offered() {
        return Ok(Kept::CannotHere);
    }
    let mut rules = Ruleset::default().handle_access(AccessFs::from_all(NEWEST))?.create()?;
    for (directory, is_writable) in shares {
        let access = if is_writable { writing() } else { reading() };
        rules = rules.add_rule(PathBeneath::new(directory, access))?;
    }
    match rules.restrict_self()?.ruleset {
        RulesetStatus::NotEnforced => Ok(Kept::CannotHere),
        _ => Ok(Kept::Yes),
    }
}
