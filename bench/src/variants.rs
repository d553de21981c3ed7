//! The ways to run `biv` that are compared with each other: each is a name and further arguments
//! of `biv run`. The first is what users get, and what the promises are about.
//!
//! Three are the ways to execute user code, and one is a machine of Xen's interface; in these everything is measured.
//! The others are the rungs of the *ladder*: one technique is left out of each (docs/measuring.md), and only what shows
//! its worth is measured ([`crate::numbers::LADDER`]).
//!
//! A variant with an option that `biv run --help` does not know is left out, which is said.

/// One way.
#[derive(Debug, PartialEq)]
pub struct Variant {
    /// What the tables call it.
    pub name: &'static str,
    /// Arguments of `biv run`.
    pub options: &'static [&'static str],
    /// Parameters of the guest's kernel.
    pub parameters: &'static str,
    /// The variant that it is compared with.
    pub base: &'static str,
    /// Only what is in the ladder is measured.
    pub rung: bool,
}

/// What others are compared with.
const DEFAULT: &str = "default";

/// A way in which everything is measured.
const fn mode(name: &'static str, options: &'static [&'static str]) -> Variant {
    Variant { name, options, parameters: "", base: DEFAULT, rung: false }
}

/// A way in which something is left out.
const fn rung(name: &'static str, options: &'static [&'static str]) -> Variant {
    Variant { name, options, parameters: "", base: DEFAULT, rung: true }
}

/// The same in which all user code runs directly.
const fn direct_rung(name: &'static str, options: &'static [&'static str]) -> Variant {
    Variant { name, options, parameters: "", base: "direct", rung: true }
}

/// All of them.
pub const ALL: [Variant; 23] = [
    mode(DEFAULT, &[]),
    mode("translate", &["--user-exec", "translate"]),
    mode("direct", &["--user-exec", "direct"]),
    Variant { parameters: "console=hvc0", ..mode("xen", &["--xen"]) },
    direct_rung("direct-no-batches", &["--user-exec", "direct", "--without", "batches"]),
    direct_rung("direct-no-premap", &["--user-exec", "direct", "--without", "premap"]),
    direct_rung("direct-no-copies", &["--user-exec", "direct", "--without", "copies"]),
    rung("no-mirror", &["--without", "mirror"]),
    rung("no-entries", &["--without", "entries"]),
    rung("no-inline", &["--without", "inline"]),
    rung("no-assists", &["--without", "assists"]),
    rung("no-extended-state", &["--without", "extended-state"]),
    rung("no-strings", &["--without", "strings"]),
    rung("no-spans", &["--without", "spans"]),
    rung("no-crossings", &["--without", "crossings"]),
    rung("no-links", &["--without", "links"]),
    rung("no-far-links", &["--without", "far-links"]),
    rung("no-returns", &["--without", "returns"]),
    rung("no-handover", &["--without", "handover"]),
    rung("no-relocation", &["--without", "relocation"]),
    rung("no-physical-jumps", &["--without", "physical-jumps"]),
    Variant { parameters: "nopcid", ..rung("no-pcid", &[]) },
    rung("translate-no-all", &["--user-exec", "translate", "--without", "all"]),
];

/// Those in a list of names, or all, with those that they are compared with.
pub fn named(list: &str) -> Result<Vec<&'static Variant>, String> {
    if let Some(unknown) =
        list.split(',').find(|name| *name != "all" && ALL.iter().all(|known| known.name != *name))
    {
        return Err(format!("there is no variant {unknown:?}; see --list"));
    }
    let listed = |name: &str| list.split(',').any(|word| word == name || word == "all");
    let is_base = |name| ALL.iter().any(|other| listed(other.name) && other.base == name);
    // What everything else is compared with in the end is always there.
    let wanted = |variant: &&Variant| {
        listed(variant.name) || is_base(variant.name) || variant.name == DEFAULT
    };
    Ok(ALL.iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_are_compared_with_is_always_there() {
        let names = |list| named(list).map(|all| all.iter().map(|v| v.name).collect::<Vec<_>>());
        assert_eq!(names("direct").unwrap(), ["default", "direct"]);
        assert_eq!(names("no-links").unwrap(), ["default", "no-links"]);
        let chained = names("direct-no-batches,translate").unwrap();
        assert_eq!(chained, ["default", "translate", "direct", "direct-no-batches"]);
        assert_eq!(names("all").unwrap().len(), ALL.len());
        assert!(names("direct,other").is_err());
    }

    #[test]
    fn a_rung_is_compared_with_a_mode_that_comes_before() {
        for (index, variant) in ALL.iter().enumerate() {
            let base = ALL.iter().position(|other| other.name == variant.base).unwrap();
            assert!(base <= index && !ALL[base].rung, "{}", variant.name);
        }
    }

    #[test]
    fn every_technique_has_a_rung() {
        for (_, name) in vmm::Technique::ALL {
            let leaves_out = |variant: &&Variant| variant.options.ends_with(&["--without", name]);
            assert_eq!(ALL.iter().filter(leaves_out).count(), 1, "{name}");
        }
    }
}
