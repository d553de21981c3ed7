//! The functions of a vDSO, by which one can stand for another.
//!
//! A vDSO is an ELF file; that of an image is taken apart by who reads the image.

use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSymbol};
use serde::{Deserialize, Serialize};

use crate::check::require;
use crate::error::Error;
use crate::limits::{MAX_VDSO_FUNCTIONS, MAX_VDSO_NAME_BYTES};

/// A function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Function {
    /// Its name.
    pub name: String,
    /// Where it begins in the vDSO. It may be anywhere.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// Those of a vDSO, as many as one has.
pub(crate) fn functions(code: &[u8]) -> Result<Vec<Function>, Error> {
    let wrong = |_| Error::Image("a vDSO is no ELF file".to_owned());
    let file = ElfFile64::<Endianness>::parse(code).map_err(wrong)?;
    let function = |symbol: object::read::elf::ElfSymbol64<'_, '_, Endianness>| {
        let name = symbol.name_bytes().ok().filter(|name| name.len() <= MAX_VDSO_NAME_BYTES)?;
        let name = std::str::from_utf8(name).ok()?.to_owned();
        Some(Function { name, offset: symbol.address(), bytes: symbol.size() })
    };
    let symbols = file.dynamic_symbols().filter(|symbol| symbol.size() > 0);
    Ok(symbols.filter_map(function).take(MAX_VDSO_FUNCTIONS).collect())
}

/// Check what is said of functions; where they are is looked at when something is written there.
pub(crate) fn check_functions(functions: &[Function]) -> Result<(), Error> {
    let is_short = |function: &Function| function.name.len() <= MAX_VDSO_NAME_BYTES;
    let is_fine = functions.len() <= MAX_VDSO_FUNCTIONS && functions.iter().all(is_short);
    require(is_fine, "the functions of its vDSO are wrong")
}
