//! Files that import each other in a circle, within a crate: none of them can be read, or tested, alone.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{ItemUse, UseTree};

/// Files of each crate that are in such a circle. The numbers may only shrink; a crate without a number has none.
const IN_CIRCLES: [(&str, usize); 0] = [];

/// Names that lead to names, one after the other.
const MAX_STEPS: usize = 8;

/// A module, from the root of its crate.
type Module = Vec<String>;

/// The modules of one crate, and what they import of it.
#[derive(Default)]
struct Crate {
    /// By module: what it names, which may be a module or something in one.
    imports: BTreeMap<Module, BTreeSet<Module>>,
    /// What a module has under a name of its own that is another's: `pub use`. That is no import.
    passed_on: BTreeMap<Module, Module>,
}

/// The crate that a source file belongs to, and its module there; none for tests and programs beside it.
fn place(name: &str) -> Option<(String, Module)> {
    let (krate, rest) = name.split_once("/src/")?;
    let mut module: Module = rest.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        module.pop();
    }
    let is_beside = rest == "main.rs" || module.first().is_some_and(|first| first == "bin");
    (!is_beside).then(|| (krate.to_owned(), module))
}

/// What a file's `use` items name of its own crate.
struct Uses<'a> {
    /// Where it is: of inline modules, the one that has them.
    module: &'a Module,
    found: BTreeSet<Module>,
    passed_on: BTreeMap<Module, Module>,
    /// The item is a `pub use`.
    passes_on: bool,
}

impl<'ast> Visit<'ast> for Uses<'_> {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.passes_on = !matches!(item.vis, syn::Visibility::Inherited);
        self.follow(&item.tree, None);
    }

    /// A path that is written out where it is used.
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let words: Vec<String> = path.segments.iter().map(|it| it.ident.to_string()).collect();
        let at = match words[0].as_str() {
            "crate" => Some(Vec::new()),
            "super" => Some(parent(self.module.clone())),
            _ => None,
        };
        if let Some(mut at) = at {
            for word in words.into_iter().skip(1) {
                if word == "super" {
                    at.truncate(at.len().saturating_sub(1))
                } else {
                    at.push(word)
                }
            }
            self.found.insert(at);
        }
        visit::visit_path(self, path);
    }

    /// `pub(super)` says who may use an item: it imports nothing.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let is_for_tests = item.attrs.iter().any(|attribute| {
            attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Ident>().is_ok_and(|word| word == "test")
        });
        if !is_for_tests {
            visit::visit_item_mod(self, item);
        }
    }
}

impl Uses<'_> {
    /// `at` is the module that the tree is in, once that is known to be one of ours.
    fn follow(&mut self, tree: &UseTree, at: Option<Module>) {
        match tree {
            UseTree::Path(path) => {
                let word = path.ident.to_string();
                let next = match (word.as_str(), at) {
                    ("crate", None) => Some(Vec::new()),
                    ("self", None) => Some(self.module.clone()),
                    ("super", None) => Some(parent(self.module.clone())),
                    ("super", Some(at)) => Some(parent(at)),
                    (_, Some(mut at)) => {
                        at.push(word);
                        Some(at)
                    }
                    // A child's, or another crate's, which is then nothing of this one's.
                    (_, None) => Some(child(self.module, word)),
                };
                self.follow(&path.tree, next);
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.follow(tree, at.clone()));
            }
            UseTree::Name(name) => {
                let name = name.ident.to_string();
                self.name(&name, &name, at);
            }
            UseTree::Rename(rename) => {
                self.name(&rename.ident.to_string(), &rename.rename.to_string(), at);
            }
            UseTree::Glob(_) => self.found.extend(at),
        }
    }

    /// `word` in `at` is called `here` here.
    fn name(&mut self, word: &str, here: &str, at: Option<Module>) {
        let Some(mut at) = at else { return };
        if word != "self" {
            at.push(word.to_owned());
        }
        match self.passes_on {
            true => drop(self.passed_on.insert(child(self.module, here.to_owned()), at)),
            false => drop(self.found.insert(at)),
        }
    }
}

fn child(module: &Module, word: String) -> Module {
    let mut module = module.clone();
    module.push(word);
    module
}

fn parent(mut module: Module) -> Module {
    module.pop();
    module
}

impl Crate {
    /// The module that a name leads to: the longest beginning of it that is one.
    fn module_of(&self, name: &Module) -> Option<Module> {
        let mut name = name.clone();
        for _ in 0..MAX_STEPS {
            let beginnings = (0..=name.len()).rev().map(|length| name[..length].to_vec());
            let module = beginnings.into_iter().find(|it| self.imports.contains_key(it))?;
            let passed_on = name.get(module.len()).and_then(|word| {
                let target = self.passed_on.get(&child(&module, word.clone()))?;
                Some([&target[..], &name[module.len() + 1..]].concat())
            });
            match passed_on {
                Some(target) => name = target,
                None => return Some(module),
            }
        }
        None
    }

    fn edges(&self) -> BTreeMap<&Module, BTreeSet<Module>> {
        let edge = |(from, names): (&'_ Module, &'_ BTreeSet<Module>)| {
            let to = names.iter().filter_map(|name| self.module_of(name));
            to.filter(|to| to != from).collect::<BTreeSet<_>>()
        };
        self.imports.iter().map(|(from, names)| (from, edge((from, names)))).collect()
    }

    /// The modules from which one comes back to them.
    fn in_circles(&self) -> Vec<&Module> {
        let edges = self.edges();
        let comes_back = |start: &&Module| {
            let (mut seen, mut open) = (BTreeSet::new(), vec![*start]);
            while let Some(module) = open.pop() {
                for next in &edges[module] {
                    if next == *start {
                        return true;
                    }
                    let (next, _) = edges.get_key_value(next).expect("it is a module");
                    if seen.insert(*next) {
                        open.push(next);
                    }
                }
            }
            false
        };
        self.imports.keys().filter(comes_back).collect()
    }
}

#[test]
fn no_more_files_import_each_other_in_a_circle() {
    let mut crates: BTreeMap<String, Crate> = BTreeMap::new();
    for (name, source) in super::sources() {
        let Some((krate, module)) = place(&name) else { continue };
        // A file of tests imports what it tests, which does not import it.
        if module.last().is_some_and(|last| last == "tests") || name.contains("/tests/") {
            continue;
        }
        let file = syn::parse_file(&source).unwrap_or_else(|error| panic!("{name}: {error}"));
        let (found, passed_on) = (BTreeSet::new(), BTreeMap::new());
        let mut uses = Uses { module: &module, found, passed_on, passes_on: false };
        uses.visit_file(&file);
        let Uses { found, passed_on, .. } = uses;
        let krate = crates.entry(krate).or_default();
        krate.passed_on.extend(passed_on);
        krate.imports.insert(module, found);
    }
    let mut counts = Vec::new();
    for (name, krate) in &crates {
        let found = krate.in_circles();
        let names: Vec<String> = found.iter().map(|module| module.join("::")).collect();
        println!("{name}: {} in circles: {}", names.len(), names.join(" "));
        for (from, to) in krate.edges().iter().filter(|(from, _)| found.contains(from)) {
            let to = to.iter().filter(|to| found.contains(to)).map(|to| to.join("::"));
            println!("    {} -> {}", from.join("::"), to.collect::<Vec<_>>().join(" "));
        }
        if !found.is_empty() {
            counts.push((name.as_str(), found.len()));
        }
    }
    assert_eq!(counts, IN_CIRCLES, "files in circles: put in fewer, and take the numbers down");
}
