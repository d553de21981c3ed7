//! The indexes of a kernel's modules, as text.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use super::pattern;
use crate::modules::DEPENDENCIES;

/// The longest that is read: no kernel's are a tenth of that.
const MAX_BYTES: u64 = 64 << 20;

/// Ends of modules' names, packed or not.
const ENDS: [&str; 4] = [".ko", ".ko.xz", ".ko.zst", ".ko.gz"];

/// What can be asked for by which words.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// These.
    Modules(Vec<String>),
    /// The kernel has it.
    BuiltIn,
    /// No module.
    Nothing,
}

/// See above.
#[derive(Debug, Default)]
pub struct Indexes {
    dependencies: String,
    aliases: String,
    symbols: String,
    wishes: String,
    built_in: String,
}

impl Indexes {
    /// Those of the modules in a directory, as far as they are needed to find what is `wanted`.
    pub fn read(directory: &Path, wanted: &[String]) -> io::Result<Self> {
        let text = |name: &str| {
            let mut text = String::new();
            File::open(directory.join(name))?.take(MAX_BYTES).read_to_string(&mut text)?;
            Ok::<_, io::Error>(text)
        };
        Ok(Self {
            dependencies: text(DEPENDENCIES)?,
            // A kernel without such modules needs no index of them.
            aliases: text("modules.alias").unwrap_or_default(),
            symbols: match wanted.iter().any(|word| word.starts_with("symbol:")) {
                true => text("modules.symbols").unwrap_or_default(),
                false => String::new(),
            },
            wishes: text("modules.softdep").unwrap_or_default(),
            built_in: fs::read_to_string(directory.join("modules.builtin")).unwrap_or_default(),
        })
    }

    /// What has this name, or a pattern for it.
    pub fn find(&self, wanted: &str) -> Found {
        let name = canonical(wanted);
        if self.line(&name).is_some() {
            return Found::Modules(vec![name]);
        }
        let lines = self.aliases.lines().chain(self.symbols.lines());
        let mut found = Vec::new();
        for line in lines {
            let mut words = line.split_ascii_whitespace().skip(1);
            if let (Some(pattern), Some(module)) = (words.next(), words.next())
                && pattern::is_for(pattern.as_bytes(), wanted.as_bytes())
                && self.line(module).is_some()
                && !found.iter().any(|known| known == module)
            {
                found.push(module.to_owned());
            }
        }
        let is_built_in =
            || self.built_in.lines().any(|path| name_of(path).is_some_and(|it| it == name));
        match found.is_empty() {
            true if is_built_in() => Found::BuiltIn,
            true => Found::Nothing,
            false => Found::Modules(found),
        }
    }

    /// The path of a module, and the paths of what it needs.
    fn line(&self, name: &str) -> Option<(&str, &str)> {
        let lines = self.dependencies.lines().filter_map(|line| line.split_once(':'));
        lines.into_iter().find(|(path, _)| is_of(path, name))
    }

    /// Where it is.
    pub fn path(&self, name: &str) -> Option<&str> {
        Some(self.line(name)?.0)
    }

    /// The paths of what it needs, in the order in which these are loaded.
    pub fn needs(&self, name: &str) -> Vec<String> {
        let needs = self.line(name).map_or("", |(_, needs)| needs);
        needs.split_ascii_whitespace().rev().map(str::to_owned).collect()
    }

    /// What a module is better with: what is to be loaded before it, and after it.
    pub fn wishes(&self, name: &str) -> (Vec<String>, Vec<String>) {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for line in self.wishes.lines() {
            let mut words = line.split_ascii_whitespace();
            if words.next() != Some("softdep")
                || words.next().is_none_or(|it| canonical(it) != name)
            {
                continue;
            }
            let mut is_after = None;
            for word in words {
                match (word, is_after) {
                    ("pre:", _) => is_after = Some(false),
                    ("post:", _) => is_after = Some(true),
                    (word, Some(false)) => before.push(word.to_owned()),
                    (word, Some(true)) => after.push(word.to_owned()),
                    (_, None) => {}
                }
            }
        }
        (before, after)
    }
}

/// A module's name as the kernel has it.
pub fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

/// The name of the module in a file.
pub fn name_of(path: &str) -> Option<String> {
    let file = path.rsplit('/').next()?;
    ENDS.iter().find_map(|end| file.strip_suffix(end)).map(canonical)
}

/// Whether that is the name, without making it: there are thousands.
fn is_of(path: &str, name: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or_default();
    let is_same = |(one, other): (u8, u8)| one == other || (one == b'-' && other == b'_');
    file.len() > name.len()
        && file.bytes().zip(name.bytes()).all(is_same)
        && ENDS.contains(&&file[name.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indexes() -> Indexes {
        let text = |text: &str| text.to_owned();
        Indexes {
            dependencies: text(
                "kernel/nft_chain_nat.ko.xz: kernel/nf_nat.ko.xz kernel/nf_conntrack.ko\n\
                 kernel/nf_nat.ko.xz: kernel/nf_conntrack.ko\nkernel/nf_conntrack.ko:\n\
                 kernel/virtio-rng.ko:\nodd\nkernel/nf:\n",
            ),
            aliases: text(
                "# Aliases\nalias nft-chain-2-nat nft_chain_nat\nalias nft-* nft_chain_nat\n\
                 alias pci:v00001AF4d* virtio_rng\nalias nft-chain-2-nat gone\nodd\n",
            ),
            symbols: text("alias symbol:nf_nat_setup nf_nat\n"),
            wishes: text("softdep nf_nat pre: crc32c post: a b\nsoftdep x pre: y\n"),
            built_in: text("kernel/drivers/block/virtio-blk.ko\n"),
        }
    }

    #[test]
    fn modules_are_found_by_name_and_by_pattern() {
        let modules =
            |names: &[&str]| Found::Modules(names.iter().map(|&name| name.to_owned()).collect());
        let check = |wanted: &str, expected: Found| {
            assert_eq!(indexes().find(wanted), expected, "{wanted}");
        };
        check("nf_nat", modules(&["nf_nat"]));
        check("nf-nat", modules(&["nf_nat"]));
        check("virtio_rng", modules(&["virtio_rng"]));
        check("nft-chain-2-nat", modules(&["nft_chain_nat"]));
        check("pci:v00001AF4d00001005sv", modules(&["virtio_rng"]));
        check("symbol:nf_nat_setup", modules(&["nf_nat"]));
        check("virtio_blk", Found::BuiltIn);
        for wanted in ["nf", "nf_na", "nf_nat_", "gone", "", "kernel/nf_nat", "pci:v"] {
            check(wanted, Found::Nothing);
        }
    }

    #[test]
    fn what_is_needed_first_is_loaded_first() {
        let indexes = indexes();
        assert_eq!(indexes.path("nf_nat"), Some("kernel/nf_nat.ko.xz"));
        let needs = indexes.needs("nft_chain_nat");
        assert_eq!(needs, ["kernel/nf_conntrack.ko", "kernel/nf_nat.ko.xz"]);
        let (before, after) = indexes.wishes("nf_nat");
        assert_eq!((before, after), (vec!["crc32c".to_owned()], vec!["a".into(), "b".into()]));
        assert_eq!(indexes.wishes("y"), (Vec::new(), Vec::new()));
    }
}
