//! The tables as files for firmware that places them itself (QEMU, hw/acpi/bios-linker-loader.c): one file has all but
//! the RSDP, one has that, and a script tells what firmware is to do with them. It allocates memory for each file, adds
//! the addresses to the pointers in them, which are offsets before, and makes the sums right again.

use super::{Config, Error, Placer, check_size, place_all, rsdp_of};

/// A file's name, and what is in it.
pub type File = (&'static str, Vec<u8>);

const TABLES: &str = "etc/acpi/tables";
const RSDP: &str = "etc/acpi/rsdp";
const SCRIPT: &str = "etc/table-loader";

/// Bytes of a command, and of a file's name in it.
const COMMAND_BYTES: usize = 128;
const NAME_BYTES: usize = 56;

/// Where memory is allocated: anywhere below 4 GiB, or where the RSDP is searched for (0xf_0000 and above).
const ANYWHERE: u8 = 1;
const SEARCHED: u8 = 2;

/// Where tables have what depends on their addresses (ACPI 6.5, 5.2.5.3, 5.2.6, 5.2.9).
mod offset {
    /// Of every table: bytes, and what makes their sum zero.
    pub const LENGTH: usize = 4;
    pub const SUM: usize = 9;
    /// Of the FADT: FACS, DSDT, and the latter again.
    pub const FACS: usize = 36;
    pub const DSDT: usize = 40;
    pub const LONG_DSDT: usize = 140;
    /// Of the XSDT: the first table's address.
    pub const ENTRIES: usize = 36;
    /// Of the RSDP: the XSDT's address, and what makes the sum of all its bytes zero.
    pub const XSDT: usize = 24;
    pub const LONG_SUM: usize = 32;
}

/// The tables of a machine, as files.
///
/// # Errors
///
/// [`Error::TooLarge`].
pub fn linked(config: &Config) -> Result<[File; 3], Error> {
    let mut placer = Placer { next: 0, pieces: Vec::new() };
    let roots = place_all(config, &mut placer);
    check_size(placer.next)?;
    let mut tables = vec![0; placer.next as usize];
    for (at, bytes) in &placer.pieces {
        tables[at.0 as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    let mut rsdp = rsdp_of(&roots);
    let (fadt, xsdt) = (roots.fadt.0 as usize, roots.xsdt.0 as usize);
    let mut script = Script::default();
    script.allocate(TABLES, super::ALIGNMENT as u32, ANYWHERE);
    script.allocate(RSDP, 16, SEARCHED);
    for (at, size) in [(offset::FACS, 4), (offset::DSDT, 4), (offset::LONG_DSDT, 8)] {
        script.add_address(TABLES, fadt + at, size);
    }
    for entry in 0..roots.entries {
        script.add_address(TABLES, xsdt + offset::ENTRIES + 8 * entry, 8);
    }
    script.add_address(RSDP, offset::XSDT, 8);
    for table in [fadt, xsdt] {
        let length = tables[table + offset::LENGTH..][..4].try_into().map_or(0, u32::from_le_bytes);
        script.sum(TABLES, &mut tables, (table, length), table + offset::SUM);
    }
    let length = rsdp.len() as u32;
    script.sum(RSDP, &mut rsdp, (0, length), offset::LONG_SUM);
    Ok([(TABLES, tables), (RSDP, rsdp), (SCRIPT, script.0)])
}

/// Commands, one behind the other.
#[derive(Default)]
struct Script(Vec<u8>);

impl Script {
    fn add(&mut self, command: u32, files: &[&str], numbers: &[&[u8]]) {
        let end = self.0.len() + COMMAND_BYTES;
        self.0.extend(command.to_le_bytes());
        for file in files {
            let next = self.0.len() + NAME_BYTES;
            self.0.extend(file.bytes());
            self.0.resize(next, 0);
        }
        numbers.iter().for_each(|number| self.0.extend(*number));
        self.0.resize(end, 0);
    }

    /// Give a file memory.
    fn allocate(&mut self, file: &str, alignment: u32, zone: u8) {
        self.add(1, &[file], &[&alignment.to_le_bytes(), &[zone]]);
    }

    /// Add the address of the tables to so many bytes at `at` of a file.
    fn add_address(&mut self, file: &str, at: usize, size: u8) {
        self.add(2, &[file, TABLES], &[&(at as u32).to_le_bytes(), &[size]]);
    }

    /// Have the byte `at` of a file make the sum of a range zero; it is zero itself until then.
    fn sum(&mut self, file: &str, bytes: &mut [u8], (start, length): (usize, u32), at: usize) {
        bytes[at] = 0;
        let numbers = [at as u32, start as u32, length].map(u32::to_le_bytes);
        self.add(3, &[file], &[&numbers[0], &numbers[1], &numbers[2]]);
    }
}
