//! The guest kernel's symbols: names for its addresses.
//!
//! They come from the lines of a System.map or of /proc/kallsyms, which look alike, or from the
//! symbol table of an ELF file. Only /proc/kallsyms of the same boot has the addresses of a kernel
//! that has randomized its own (KASLR); the others need `--append nokaslr`.

use object::read::elf::{ElfFile, FileHeader};
use object::{Endianness, Object, ObjectSymbol, SymbolKind, elf};

/// How far behind the last symbol an address may be and still be named after it.
const MAX_DISTANCE_BYTES: u64 = 1 << 20;

/// Symbols that are kept; a kernel with all of its modules has some 200,000.
const MAX_SYMBOLS: usize = 4 << 20;

/// Names for addresses.
#[derive(Debug, Default)]
pub struct Symbols {
    /// By address.
    sorted: Vec<(u64, String)>,
}

impl Symbols {
    /// Reads a System.map, /proc/kallsyms or an ELF file.
    ///
    /// # Errors
    ///
    /// What to do about it.
    pub fn parse(file: &[u8]) -> Result<Self, String> {
        let mut sorted = match file.get(..5) {
            Some(b"\x7fELF\x02") => from_elf::<elf::FileHeader64<Endianness>>(file)?,
            Some(b"\x7fELF\x01") => from_elf::<elf::FileHeader32<Endianness>>(file)?,
            _ => from_lines(file)?,
        };
        if sorted.is_empty() {
            return Err("it has no function symbols".to_owned());
        }
        if sorted.iter().all(|&(address, _)| address == 0) {
            return Err("all addresses are zero; read /proc/kallsyms as root".to_owned());
        }
        sorted.sort();
        sorted.dedup_by_key(|&mut (address, _)| address);
        Ok(Self { sorted })
    }

    /// The symbol that an address belongs to, and how far behind it the address is.
    pub fn name(&self, address: u64) -> Option<String> {
        let after = self.sorted.partition_point(|&(start, _)| start <= address);
        let (start, name) = &self.sorted[after.checked_sub(1)?];
        let distance = address - start;
        (distance < MAX_DISTANCE_BYTES).then(|| format!("{name}+{distance:#x}"))
    }

    /// A line that begins with an address, and the name of that.
    pub(super) fn annotate(&self, line: &str) -> String {
        let word = line.split(' ').next().and_then(|word| word.strip_prefix("0x"));
        let name = word
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .and_then(|address| self.name(address));
        name.map_or_else(|| line.to_owned(), |name| format!("{line}  {name}"))
    }
}

/// `ADDRESS KIND NAME [MODULE]` on each line.
fn from_lines(file: &[u8]) -> Result<Vec<(u64, String)>, String> {
    let text = std::str::from_utf8(file).map_err(|_| "it is neither text nor an ELF file")?;
    let mut found = Vec::new();
    for line in text.lines().take(MAX_SYMBOLS) {
        let mut words = line.split_ascii_whitespace();
        let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next())
        else {
            return Err(format!("{line:?} is not `ADDRESS KIND NAME`"));
        };
        let address = u64::from_str_radix(address, 16)
            .map_err(|_| format!("{address:?} is not an address"))?;
        // Code, or weak.
        if matches!(kind, "T" | "t" | "W" | "w") {
            found.push((address, name.to_owned()));
        }
    }
    Ok(found)
}

fn from_elf<Elf: FileHeader<Endian = Endianness>>(
    file: &[u8],
) -> Result<Vec<(u64, String)>, String> {
    let file = ElfFile::<Elf>::parse(file).map_err(|error| error.to_string())?;
    let symbols = file.symbols().filter(|symbol| {
        let kind = symbol.kind();
        symbol.is_definition() || (kind == SymbolKind::Label || kind == SymbolKind::Unknown)
    });
    let code = symbols.filter(|symbol| {
        !matches!(symbol.kind(), SymbolKind::File | SymbolKind::Section | SymbolKind::Data)
    });
    let named = code.filter_map(|symbol| Some((symbol.address(), symbol.name().ok()?.to_owned())));
    Ok(named.filter(|(_, name)| !name.is_empty()).take(MAX_SYMBOLS).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &[u8] = b"0000000000000000 A fixed_percpu_data\n\
        ffffffff81000000 T _stext\n\
        ffffffff81000100 t helper\n\
        ffffffff81000180 D not_code\n\
        ffffffffc0000000 t in_module\t[module]\n";

    #[test]
    fn addresses_have_names() {
        let symbols = Symbols::parse(MAP).unwrap();
        let check = |address, expected: Option<&str>| {
            assert_eq!(symbols.name(address).as_deref(), expected, "{address:#x}");
        };
        check(0xffff_ffff_8100_0000, Some("_stext+0x0"));
        check(0xffff_ffff_8100_00ff, Some("_stext+0xff"));
        check(0xffff_ffff_8100_0190, Some("helper+0x90"));
        check(0xffff_ffff_c000_0010, Some("in_module+0x10"));
        check(0xffff_ffff_8110_0100, None);
        check(0xffff_ffff_80ff_ffff, None);
        check(0, None);
    }

    #[test]
    fn an_elf_file_has_symbols() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let symbols = Symbols::parse(&own).unwrap();
        assert!(symbols.sorted.iter().any(|(_, name)| name == "main"));
    }

    #[test]
    fn what_is_of_no_use_is_said() {
        let check = |file: &[u8], words: &str| {
            let error = Symbols::parse(file).unwrap_err();
            assert!(error.contains(words), "{error}");
        };
        check(b"", "no function symbols");
        check(b"0000000000000000 T a\n0000000000000000 t b\n", "as root");
        check(b"what is this\n", "not an address");
        check(b"\xff\xfe", "neither text");
        check(b"\x7fELF\x02", "");
    }
}
