//! Caches: directories of the user's that outlive the machines that name them.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Error, Other, is_default, is_plain, text};

/// The longest name of a cache.
const NAME_MAX_BYTES: usize = 64;

/// What a path in the home directory of the command's user begins with.
const OF_HOME: &str = "~/";

/// A directory that is kept between runs, and shared by all machines that name it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cache {
    /// Its name: at most 64 letters, digits, "_", "." and "-", of which the first is a letter or a digit.
    pub name: String,
    /// Its path in the guest: absolute, or "~/" and a path in the home directory of the command's user [default: where
    /// the tool of that name looks, for cargo, ccache, go, npm and pip].
    #[serde(default, with = "text::option", skip_serializing_if = "is_default")]
    #[schemars(with = "Option<String>")]
    pub guest: Option<PathBuf>,
    /// Whether the guest may not write [default: it may, unless the machine is a sandbox].
    #[serde(default, skip_serializing_if = "is_default")]
    pub read_only: Option<bool>,
    /// Fields that this program does not know.
    #[serde(flatten)]
    pub other: Other,
}

/// Where a tool keeps what it can make or fetch again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usual {
    /// The name that means it.
    pub tool: &'static str,
    /// The cache for it, which is called like the tool unless that has several.
    pub cache: &'static str,
    /// The variable by which the tool is told of another place.
    pub variable: &'static str,
    /// The path below what that variable says.
    pub below_variable: &'static str,
    /// The path below the home directory.
    pub below_home: &'static str,
}

/// All of them. Of directories that tools keep programs and credentials in as well, only what is a cache is here.
const USUAL: [Usual; 7] = [
    // The Cargo Book, "Cargo Home".
    usual("cargo", "cargo", ("CARGO_HOME", "registry"), ".cargo/registry"),
    usual("cargo", "cargo-git", ("CARGO_HOME", "git"), ".cargo/git"),
    // ccache(1), "cache_dir".
    usual("ccache", "ccache", ("CCACHE_DIR", ""), ".cache/ccache"),
    // `go help environment`, `go help cache`.
    usual("go", "go", ("GOPATH", "pkg/mod"), "go/pkg/mod"),
    usual("go", "go-build", ("GOCACHE", ""), ".cache/go-build"),
    // npm-config(7), "cache".
    usual("npm", "npm", ("npm_config_cache", ""), ".npm"),
    // pip's documentation, "Caching".
    usual("pip", "pip", ("PIP_CACHE_DIR", ""), ".cache/pip"),
];

const fn usual(
    tool: &'static str,
    cache: &'static str,
    (variable, below_variable): (&'static str, &'static str),
    below_home: &'static str,
) -> Usual {
    Usual { tool, cache, variable, below_variable, below_home }
}

impl Usual {
    /// Those of a tool; none for what is not known.
    pub fn of(tool: &str) -> impl Iterator<Item = Self> {
        USUAL.into_iter().filter(move |usual| usual.tool == tool)
    }

    /// The tools, in order.
    pub fn tools() -> impl Iterator<Item = &'static str> {
        let is_first = |usual: &Usual| usual.tool == usual.cache;
        USUAL.into_iter().filter(is_first).map(|usual| usual.tool)
    }
}

impl Cache {
    /// Whether a text is the name of a cache, and of one file.
    #[must_use]
    pub fn is_name(text: &str) -> bool {
        is_plain(text) && text.len() <= NAME_MAX_BYTES
    }

    /// The path in the home directory of the command's user, if its place is there.
    #[must_use]
    pub fn below_home(&self) -> Option<&Path> {
        self.guest.as_deref().and_then(|guest| guest.strip_prefix("~").ok())
    }

    /// What is wrong with it, if anything.
    fn complaint(&self) -> Option<String> {
        let name = self.name.chars().take(2 * NAME_MAX_BYTES).collect::<String>();
        if !Self::is_name(&self.name) {
            return Some(format!(
                "invalid cache name {name:?}: use at most {NAME_MAX_BYTES} letters, digits, \"_\", \
                 \".\" and \"-\", and begin with a letter or a digit"
            ));
        }
        match &self.guest {
            None if Usual::of(&self.name).next().is_none() => {
                let tools = Usual::tools().collect::<Vec<_>>().join(", ");
                Some(format!(
                    "the cache {name} needs a place in the guest, {name}:PATH; only these have a \
                     usual one: {tools}"
                ))
            }
            Some(guest) if !is_place(guest) => Some(format!(
                "the cache {name} is placed by an absolute path of the guest other than /, or by \
                 {OF_HOME} and a path"
            )),
            _ => None,
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.complaint() {
            None => Ok(()),
            Some(complaint) => Err(Error::Contradiction(format!("{complaint} (caches)"))),
        }
    }
}

/// Whether it is somewhere: absolute, or in a home directory.
fn is_place(guest: &Path) -> bool {
    let below_home = guest.strip_prefix("~").is_ok_and(|below| below != Path::new(""));
    below_home || (guest.is_absolute() && guest != Path::new("/"))
}

impl FromStr for Cache {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts: Vec<_> = text.split(':').collect();
        let read_only = match parts.last() {
            Some(&"ro") if parts.len() > 1 => Some(true),
            Some(&"rw") if parts.len() > 1 => Some(false),
            _ => None,
        };
        parts.truncate(parts.len() - usize::from(read_only.is_some()));
        let (name, guest) = match parts[..] {
            [name] => (name, None),
            [name, guest] => (name, Some(guest.into())),
            _ => return Err("expected NAME, NAME:PATH or NAME:PATH:ro".to_owned()),
        };
        let cache = Self { name: name.to_owned(), guest, read_only, ..Self::default() };
        cache.complaint().map_or(Ok(cache), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_is_a_name_a_place_and_how() {
        let check = |text: &str, name: &str, guest: Option<&str>, read_only| {
            let (name, guest) = (name.to_owned(), guest.map(PathBuf::from));
            let expected = Cache { name, guest, read_only, ..Cache::default() };
            assert_eq!(text.parse(), Ok(expected), "{text}");
        };
        check("cargo", "cargo", None, None);
        check("go:rw", "go", None, Some(false));
        check("a.b-c_1:/x", "a.b-c_1", Some("/x"), None);
        check("x:~/a/b:ro", "x", Some("~/a/b"), Some(true));
        let at_home: Cache = "x:~/a/b".parse().unwrap();
        assert_eq!(at_home.below_home(), Some(Path::new("a/b")));
        assert_eq!("x:/~/a".parse::<Cache>().unwrap().below_home(), None);
    }

    #[test]
    fn what_leads_elsewhere_is_no_name_and_nowhere_no_place() {
        let long = "x".repeat(65);
        for name in ["", ".", "..", "../x", "a/b", "/x", ".lock", "-x", "a b", "ä", &long] {
            let error = format!("{name}:/x").parse::<Cache>().unwrap_err();
            assert!(error.contains("invalid cache name"), "{name}: {error}");
            let cache = Cache { name: name.to_owned(), ..Cache::default() };
            assert!(cache.check().is_err(), "{name}");
        }
        for word in ["x:", "x:y", "x:/", "x:~", "x:~/", "x:~root/y", "x:/a:rx", "x:/a:ro:ro"] {
            assert!(word.parse::<Cache>().is_err(), "{word}");
        }
        let error = "mine".parse::<Cache>().unwrap_err();
        assert!(error.contains("mine:PATH") && error.contains("cargo, ccache, go"), "{error}");
    }

    #[test]
    fn each_usual_place_has_a_cache_of_its_own() {
        let mut names: Vec<_> = USUAL.iter().map(|usual| usual.cache).collect();
        assert!(names.iter().all(|name| Cache::is_name(name)));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), USUAL.len());
        assert_eq!(Usual::tools().collect::<Vec<_>>(), ["cargo", "ccache", "go", "npm", "pip"]);
    }
}
