//! The indexes of a kernel's modules, as depmod(8) makes them: as text, for programs that are small, and in the form
//! that `kmod` reads ([`trie`]).

use std::collections::{BTreeMap, HashMap, HashSet};

use super::information::{Information, aliases_of_built_in};
use super::packing::{Packing, canonical};
use super::trie::{self, Entries};

/// A module.
#[derive(Debug, Clone)]
pub struct Module {
    /// What the kernel calls it.
    pub name: String,
    /// Where it is, below the tree's directory.
    pub path: String,
    /// What it says.
    pub information: Information,
}

/// Of all modules of a kernel.
pub struct Indexes {
    /// In the order of their importance.
    modules: Vec<Module>,
    built_in: Vec<String>,
    aliases_of_built_in: Vec<(String, String)>,
}

impl Indexes {
    /// Of these modules, with what the package has: the order of all, which are built in, and what those say.
    pub fn new(mut modules: Vec<Module>, order: &[u8], built_in: &[u8], words: &[u8]) -> Self {
        let order = String::from_utf8_lossy(order);
        let places: HashMap<String, usize> =
            order.lines().enumerate().map(|(place, path)| (bare(path), place)).collect();
        let place = |module: &Module| places.get(&bare(&module.path)).copied();
        // Those that it does not name come last.
        modules
            .sort_by_cached_key(|module| (place(module).unwrap_or(usize::MAX), bare(&module.path)));
        let built_in = String::from_utf8_lossy(built_in);
        let name = |path: &str| Some(canonical(Packing::of(path.rsplit('/').next()?)?.0));
        let owned = |(name, alias): (&str, &str)| (canonical(name), alias.to_owned());
        Self {
            modules,
            built_in: built_in.lines().filter_map(name).collect(),
            aliases_of_built_in: aliases_of_built_in(words).map(owned).collect(),
        }
    }

    /// Their names and contents.
    pub fn files(&self) -> Vec<(&'static str, Vec<u8>)> {
        let lines = self.dependencies();
        let aliases = entries(self.each(|information| &information.aliases));
        let symbols = self.each(|information| &information.symbols);
        let symbols =
            entries(symbols.map(|(n, name, module)| (n, format!("symbol:{name}"), module)));
        let nothing = |name: &String| (name.clone(), vec![(0, String::new())]);
        let of_built_in = self.aliases_of_built_in.iter();
        let of_built_in = entries(of_built_in.map(|(name, alias)| (0, alias.clone(), &**name)));
        let by_name = |(place, module): (usize, &Module)| {
            (module.name.clone(), vec![(place as u32, lines[place].clone())])
        };
        let by_name: Entries = self.modules.iter().enumerate().map(by_name).collect();
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        vec![
            ("modules.dep", text.into_bytes()),
            ("modules.dep.bin", trie::write(&by_name)),
            ("modules.alias", as_text(&aliases)),
            ("modules.alias.bin", trie::write(&normalized(&aliases))),
            ("modules.symbols", as_text(&symbols)),
            ("modules.symbols.bin", trie::write(&symbols)),
            ("modules.builtin.bin", trie::write(&self.built_in.iter().map(nothing).collect())),
            ("modules.builtin.alias.bin", trie::write(&normalized(&of_built_in))),
            ("modules.softdep", self.soft().into_bytes()),
            ("modules.devname", self.devices().into_bytes()),
        ]
    }

    /// What each module says of something, with the place and the name of the module.
    fn each<'a>(
        &'a self,
        what: impl Fn(&'a Information) -> &'a [String] + 'a,
    ) -> impl Iterator<Item = (u32, String, &'a str)> {
        self.modules.iter().enumerate().flat_map(move |(place, module)| {
            let words = what(&module.information).iter();
            words.map(move |word| (place as u32, word.clone(), module.name.as_str()))
        })
    }

    /// For each module its path, and those of all that it needs, directly or not: each before those that it needs
    /// itself.
    fn dependencies(&self) -> Vec<String> {
        let by_name: HashMap<&str, &Module> =
            self.modules.iter().map(|module| (module.name.as_str(), module)).collect();
        let line = |module: &Module| {
            let mut found = Vec::new();
            needs(module, &by_name, &mut HashSet::from([module.name.as_str()]), &mut found);
            let paths = found.iter().rev().map(|module| format!(" {}", module.path));
            format!("{}:{}", module.path, paths.collect::<String>())
        };
        self.modules.iter().map(line).collect()
    }

    /// The line of modprobe.d(5) for each.
    fn soft(&self) -> String {
        let lines = self.modules.iter().flat_map(|Module { name, information, .. }| {
            information.soft.iter().map(move |soft| format!("softdep {name} {soft}\n"))
        });
        lines.collect()
    }

    /// The devices by which a module can be asked for, as programs that find them expect: module, name, and kind with
    /// number.
    fn devices(&self) -> String {
        let device = |Module { name, information, .. }: &Module| {
            let find = |prefix: &str| {
                information.aliases.iter().find_map(|alias| alias.strip_prefix(prefix))
            };
            let numbers = |prefix: &str| {
                let (major, minor) = find(prefix)?.split_once('-')?;
                Some(format!("{}:{}", major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
            };
            let character = numbers("char-major-").map(|numbers| format!("c{numbers}"));
            let block = || numbers("block-major-").map(|numbers| format!("b{numbers}"));
            Some(format!("{name} {} {}\n", find("devname:")?, character.or_else(block)?))
        };
        self.modules.iter().filter_map(device).collect()
    }
}

/// What a module needs, those first that others of them need. `seen` are those that need no look any more; modules
/// that need each other are no reason to look for ever.
fn needs<'a>(
    module: &'a Module,
    by_name: &HashMap<&'a str, &'a Module>,
    seen: &mut HashSet<&'a str>,
    found: &mut Vec<&'a Module>,
) {
    for name in &module.information.depends {
        let Some(&needed) = by_name.get(name.as_str()) else { continue };
        if seen.insert(&needed.name) {
            needs(needed, by_name, seen, found);
            found.push(needed);
        }
    }
}

/// A path without what tells how the module is packed.
fn bare(path: &str) -> String {
    let end = path.rfind(".ko").unwrap_or(path.len());
    path[..end].to_owned()
}

/// A pattern as it is looked for: names have no hyphens, but in brackets.
fn normal(alias: &str) -> String {
    let mut is_bracketed = false;
    let character = |character| {
        is_bracketed = (is_bracketed || character == '[') && character != ']';
        if character == '-' && !is_bracketed { '_' } else { character }
    };
    alias.chars().map(character).collect()
}

/// Which modules each string is of.
fn entries<'a>(all: impl Iterator<Item = (u32, String, &'a str)>) -> Entries {
    let mut entries: BTreeMap<String, Vec<(u32, String)>> = BTreeMap::new();
    for (place, string, module) in all {
        let modules = entries.entry(string).or_default();
        if modules.iter().all(|(_, known)| known != module) {
            modules.push((place, module.to_owned()));
        }
    }
    entries
}

/// The same, as they are looked for.
fn normalized(all: &Entries) -> Entries {
    entries(all.iter().flat_map(|(string, modules)| {
        modules.iter().map(move |(place, module)| (*place, normal(string), module.as_str()))
    }))
}

fn as_text(entries: &Entries) -> Vec<u8> {
    let lines = entries.iter().flat_map(|(string, modules)| {
        modules.iter().map(move |(_, module)| format!("alias {string} {module}\n"))
    });
    lines.collect::<String>().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(path: &str, depends: &[&str], aliases: &[&str]) -> Module {
        let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        let name = Packing::of(path.rsplit('/').next().unwrap()).unwrap().0;
        let information = Information {
            depends: owned(depends),
            aliases: owned(aliases),
            ..Information::default()
        };
        Module { name: canonical(name), path: path.to_owned(), information }
    }

    fn file(indexes: &Indexes, name: &str) -> String {
        let found = indexes.files().into_iter().find(|(known, _)| *known == name).unwrap();
        String::from_utf8(found.1).unwrap()
    }

    #[test]
    fn what_a_module_needs_is_loaded_from_the_end_of_its_line() {
        let modules = vec![
            module("kernel/net/nft-nat.ko.xz", &["nf_nat", "nf_tables"], &[]),
            module("kernel/net/nf_nat.ko.xz", &["nf_conntrack"], &[]),
            module("kernel/net/nf_tables.ko.xz", &["nf_conntrack", "built_in"], &[]),
            module("kernel/net/nf_conntrack.ko.xz", &["circle"], &[]),
            module("kernel/net/circle.ko.xz", &["nf_conntrack"], &[]),
        ];
        let order = b"kernel/net/nf_conntrack.ko\nkernel/net/nf_nat.ko\nkernel/net/nft-nat.ko\n";
        let indexes = Indexes::new(modules, order, b"", b"");
        let text = file(&indexes, "modules.dep").replace("kernel/net/", "").replace(".ko.xz", "");
        let expected = "nf_conntrack: circle\n\
            nf_nat: nf_conntrack circle\n\
            nft-nat: nf_tables nf_nat nf_conntrack circle\n\
            circle: nf_conntrack\n\
            nf_tables: nf_conntrack circle\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn modules_are_found_by_what_they_say() {
        let aliases = ["net-pf-17", "pci:v[0-9]d*-x", "devname:loop-control", "char-major-10-237"];
        let mut one = module("kernel/loop.ko", &[], &aliases);
        one.information.soft = vec!["pre: crc32c".to_owned()];
        one.information.symbols = vec!["loop_register".to_owned()];
        let two = module("kernel/other.ko", &[], &["net-pf-17", "block-major-7-*", "devname:x"]);
        let indexes = Indexes::new(vec![two, one], b"kernel/loop.ko\nkernel/other.ko\n", b"", b"");
        let expected = "alias block-major-7-* other\nalias char-major-10-237 loop\n\
            alias devname:loop-control loop\nalias devname:x other\nalias net-pf-17 loop\n\
            alias net-pf-17 other\nalias pci:v[0-9]d*-x loop\n";
        assert_eq!(normal("pci:v[0-9]d*-x"), "pci:v[0-9]d*_x");
        assert_eq!(file(&indexes, "modules.alias"), expected);
        assert_eq!(file(&indexes, "modules.symbols"), "alias symbol:loop_register loop\n");
        assert_eq!(file(&indexes, "modules.softdep"), "softdep loop pre: crc32c\n");
        assert_eq!(file(&indexes, "modules.devname"), "loop loop-control c10:237\n");
    }
}
