//! What makes guest code fast, each to be switched off for measuring what it is worth.
//!
//! Nothing here changes what a guest computes. Switches are looked at when something is built or
//! translated, never while guest code runs, so that they cost nothing.
//!
//! There is no switch for what everything else stands on: translation itself (the interpreter is another
//! engine, [`Config::interpret_only`](crate::Config)), the software TLB, the jump cache,
//! vector state that is loaded when it is first needed. Which user code runs directly is not a switch
//! but a choice, [`UserExecution`](crate::UserExecution).

use std::fmt;
use std::str::FromStr;

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Technique {
    /// The kernel's memory through the host's MMU (memory/mirror.rs); without it, by look-ups.
    Mirror,
    /// Jumps within a page are linked to their targets; without, they go through the jump cache.
    Links,
    /// So are jumps to other pages in the kernel (translate/cross_page.rs).
    CrossPageLinks,
    /// Calls say where they will return to (translate/returns.rs); without, returns go through the
    /// jump cache.
    Returns,
    /// Blocks hand over to each other with scratch registers spilled; without, each reloads them.
    Handover,
    /// Translations of user code fit any address (translate/mod.rs, invariant 6); without, a program
    /// is translated again wherever it is mapped.
    Relocation,
    /// Jumps find blocks by their physical address without Rust (memory/physical_jumps.rs).
    PhysicalJumps,
    /// Accesses share look-ups (translate/coalesce.rs); without, each has its own.
    Coalescing,
    /// Accesses that cross a page are split in blocks (translate/crossing.rs); without, by the
    /// interpreter.
    Crossings,
    /// `movs` and `stos`, repeated or not, in blocks (translate/string.rs); without, by the interpreter.
    Strings,
    /// Sensitive instructions in blocks (translate/inline.rs), but for `stac` and `clac`, which say what
    /// the accesses after them are; without, by the interpreter.
    Inline,
    /// `syscall`, `sysret` and `iret` in blocks (translate/syscall.rs, interrupt.rs); without, by the
    /// interpreter.
    Entries,
    /// `mov` to CR3, `cpuid`, `invlpg` and others by Rust without the run loop, or from a table
    /// (translate/assist.rs); without, by the interpreter.
    Assists,
    /// The XSAVE family on the kernel's memory in blocks (translate/extended.rs); without, by Rust.
    ExtendedState,
    /// What surrounds a page that is missed is mapped with it in a helper (user/spaces.rs); without,
    /// one page for each miss.
    Batches,
    /// The page of a fault that the guest's kernel has served is mapped in a helper before that runs
    /// again (user/mod.rs); without, it is missed first.
    Premap,
    /// Copies of pages beside CPUID run directly (user/copies.rs); without, these are translated.
    Copies,
}

impl Technique {
    /// All of them, with their names.
    pub const ALL: [(Technique, &str); 17] = [
        (Technique::Mirror, "mirror"),
        (Technique::Links, "links"),
        (Technique::CrossPageLinks, "far-links"),
        (Technique::Returns, "returns"),
        (Technique::Handover, "handover"),
        (Technique::Relocation, "relocation"),
        (Technique::PhysicalJumps, "physical-jumps"),
        (Technique::Coalescing, "spans"),
        (Technique::Crossings, "crossings"),
        (Technique::Strings, "strings"),
        (Technique::Inline, "inline"),
        (Technique::Entries, "entries"),
        (Technique::Assists, "assists"),
        (Technique::ExtendedState, "extended-state"),
        (Technique::Batches, "batches"),
        (Technique::Premap, "premap"),
        (Technique::Copies, "copies"),
    ];
}

/// A set of techniques: those that are used. All of them, unless the user switches some off.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Techniques(u32);

impl Techniques {
    /// As machines run.
    pub const ALL: Self = Self((1 << Technique::ALL.len()) - 1);

    /// Whether one is used.
    #[must_use]
    pub fn has(self, technique: Technique) -> bool {
        self.0 >> technique as u32 & 1 != 0
    }

    /// The same without one.
    #[must_use]
    pub fn without(self, technique: Technique) -> Self {
        Self(self.0 & !(1 << technique as u32))
    }

    /// All but those in a list of names; `all` is all of them.
    ///
    /// # Errors
    ///
    /// [`Unknown`].
    pub fn all_without(list: &str) -> Result<Self, Unknown> {
        list.split(',').try_fold(Self::ALL, |techniques, word| match word.parse() {
            Ok(technique) => Ok(techniques.without(technique)),
            Err(_) if word == "all" => Ok(Self(0)),
            Err(error) => Err(error),
        })
    }
}

impl fmt::Display for Technique {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(technique, _)| technique == self);
        out.write_str(name.map_or("", |(_, name)| name))
    }
}

impl Default for Techniques {
    fn default() -> Self {
        Self::ALL
    }
}

impl fmt::Debug for Techniques {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = Technique::ALL.iter().filter(|(technique, _)| self.has(*technique));
        out.debug_set().entries(used.map(|(technique, _)| technique)).finish()
    }
}

/// There is no technique of this name.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no technique {0:?}; there are {names}, and all", names = names())]
pub struct Unknown(String);

fn names() -> String {
    Technique::ALL.map(|(_, name)| name).join(", ")
}

impl FromStr for Technique {
    type Err = Unknown;

    fn from_str(name: &str) -> Result<Self, Unknown> {
        let found = Self::ALL.into_iter().find(|(_, known)| *known == name);
        found.map(|(technique, _)| technique).ok_or_else(|| Unknown(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_switch_off_what_they_name() {
        let left = Techniques::all_without("mirror,batches").unwrap();
        for (technique, name) in Technique::ALL {
            assert_eq!(left.has(technique), name != "mirror" && name != "batches", "{name}");
            assert!(!Techniques::all_without("all").unwrap().has(technique), "{name}");
            assert!(Techniques::default().has(technique), "{name}");
        }
    }

    #[test]
    fn an_unknown_name_is_refused_with_those_that_there_are() {
        for list in ["", "mirrors", "mirror,", "links;spans"] {
            let text = Techniques::all_without(list).unwrap_err().to_string();
            assert!(text.contains("mirror, links") && text.contains("copies, and all"), "{text}");
        }
    }
}
