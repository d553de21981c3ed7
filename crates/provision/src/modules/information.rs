//! What a module says of itself: an ELF file with the section `.modinfo`, words `KEY=VALUE` that each end with a NUL
//! (Linux, include/linux/moduleinfo.h), and one with the names of the symbols that it exports.

use std::io;

use object::read::elf::ElfFile64;
use object::{Object, ObjectSection};

use super::packing::canonical;

/// See above.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Information {
    /// The modules that have symbols which it needs.
    pub depends: Vec<String>,
    /// Patterns by which it is asked for.
    pub aliases: Vec<String>,
    /// What is to be loaded before it and after it, if that is there (modprobe.d(5), `softdep`).
    pub soft: Vec<String>,
    /// Symbols that others can need.
    pub symbols: Vec<String>,
}

/// What the module in these bytes says.
///
/// # Errors
///
/// They are no module.
pub fn read(module: &[u8]) -> io::Result<Information> {
    let file: ElfFile64 = ElfFile64::parse(module).map_err(io::Error::other)?;
    let section = |name: &str| match file.section_by_name(name) {
        Some(section) => section.data().map_err(io::Error::other),
        None => Ok(&[][..]),
    };
    let mut information = of_words(section(".modinfo")?);
    let symbols = strings(section("__ksymtab_strings")?).filter(|name| !name.is_empty());
    information.symbols = symbols.map(str::to_owned).collect();
    Ok(information)
}

fn of_words(words: &[u8]) -> Information {
    let mut information = Information::default();
    for (key, value) in strings(words).filter_map(|word| word.split_once('=')) {
        let Information { depends, aliases, soft, .. } = &mut information;
        match key {
            "depends" => {
                let names = value.split(',').filter(|name| !name.is_empty());
                depends.extend(names.map(canonical));
            }
            "alias" => aliases.push(value.to_owned()),
            "softdep" => soft.push(value.to_owned()),
            _ => {}
        }
    }
    information
}

/// What built-in modules say, each word with the module's name before it (`modules.builtin.modinfo`): names and
/// patterns by which they are asked for.
pub fn aliases_of_built_in(words: &[u8]) -> impl Iterator<Item = (&str, &str)> {
    strings(words).filter_map(|word| {
        let (key, value) = word.split_once('=')?;
        Some((key.strip_suffix(".alias")?, value))
    })
}

fn strings(bytes: &[u8]) -> impl Iterator<Item = &str> {
    bytes.split(|&byte| byte == 0).filter_map(|word| std::str::from_utf8(word).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_says_what_it_needs() {
        let words = b"license=GPL\0alias=rtnl-link-veth\0depends=a,b-c\0\0softdep=pre: crc32c\0\
            depends=\0alias=pci:v*\0odd";
        let expected = Information {
            depends: vec!["a".into(), "b_c".into()],
            aliases: vec!["rtnl-link-veth".into(), "pci:v*".into()],
            soft: vec!["pre: crc32c".into()],
            symbols: Vec::new(),
        };
        assert_eq!(of_words(words), expected);
        let built_in = b"loop.license=GPL\0loop.alias=block-major-7-*\0x";
        let found: Vec<_> = aliases_of_built_in(built_in).collect();
        assert_eq!(found, [("loop", "block-major-7-*")]);
    }

    #[test]
    fn what_is_no_module_is_refused() {
        for wrong in [&b""[..], b"\x7fELF", &[0; 4096]] {
            assert!(read(wrong).is_err());
        }
    }
}
