//! The ways to run `biv` that are compared with each other: each is a name and further arguments
//! of `biv run`. The first is what users get, and what the promises are about.
//!
//! A variant with an option that `biv run --help` does not know is left out, which is said.

/// One way.
#[derive(Debug, PartialEq)]
pub struct Variant {
    /// What the tables call it.
    pub name: &'static str,
    /// Arguments of `biv run`.
    pub options: &'static [&'static str],
}

/// All of them.
pub const ALL: [Variant; 3] = [
    Variant { name: "default", options: &[] },
    Variant { name: "translate", options: &["--user-exec", "translate"] },
    Variant { name: "direct", options: &["--user-exec", "direct"] },
];

/// Those in a list of names, or all; the first of all is always among them, because the others are
/// compared with it.
pub fn named(list: &str) -> Result<Vec<&'static Variant>, String> {
    if let Some(unknown) =
        list.split(',').find(|name| *name != "all" && ALL.iter().all(|known| known.name != *name))
    {
        return Err(format!("there is no variant {unknown:?}; see --list"));
    }
    let chosen = |name: &str| list.split(',').any(|word| word == name || word == "all");
    Ok(ALL.iter().filter(|variant| **variant == ALL[0] || chosen(variant.name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_always_there() {
        let names = |list| named(list).map(|all| all.iter().map(|v| v.name).collect::<Vec<_>>());
        assert_eq!(names("direct").unwrap(), ["default", "direct"]);
        assert_eq!(names("all").unwrap().len(), ALL.len());
        assert!(names("direct,other").is_err());
    }
}
