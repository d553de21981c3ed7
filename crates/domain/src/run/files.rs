//! The files that the user names for the guest, read into memory, up to a limit.
//!
//! A file that is copied into the guest's memory as it is, an initrd or a module, cannot be larger
//! than that memory. A kernel can be (an ELF file has much that is not loaded), but has a limit as
//! well.

use std::io::{self, Read};
use std::path::Path;

use host::{Available, Buffer};
use vmm::{Contents, Module};

use super::error::Error;

/// An ELF file is a test kernel, a small operating system or a vmlinux; it gets no user space of
/// ours unless that is asked for.
const ELF_MAGIC: &[u8] = b"\x7fELF";

/// Largest kernel file. One that carries all its debug information has less than 1 GiB.
const MAX_KERNEL_BYTES: u64 = 4 << 30;

/// Reads a kernel.
pub fn read_kernel(path: &Path) -> Result<Contents, Error> {
    let limit = Limit { bytes: MAX_KERNEL_BYTES, whom: "a kernel".to_owned() };
    read(path, limit)
}

/// Reads firmware.
pub fn read_firmware(path: &Path) -> Result<Contents, Error> {
    let whom = "firmware of a PC; name one such as OVMF.fd".to_owned();
    read(path, Limit { bytes: vmm::MAX_FIRMWARE_BYTES, whom })
}

/// Whether a kernel is an ELF file; one that cannot be read is complained of later.
pub fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    let read = host::open_regular(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && magic == ELF_MAGIC
}

/// What a kernel calls itself, if its file says that: in the header of a bzImage (Linux,
/// Documentation/arch/x86/boot.rst, `kernel_version`), or in its message of welcome.
pub fn release(kernel: &[u8]) -> Option<String> {
    const WELCOME: &[u8] = b"Linux version ";
    const MAGIC: (usize, &[u8]) = (0x202, b"HdrS");
    const VERSION: usize = 0x20e;
    let is_bzimage = kernel.get(MAGIC.0..)?.starts_with(MAGIC.1);
    let text = match is_bzimage {
        true => {
            let offset = kernel.get(VERSION..VERSION + 2)?;
            kernel.get(usize::from(u16::from_le_bytes(offset.try_into().ok()?)) + 0x200..)?
        }
        false => {
            let mut places = kernel.windows(WELCOME.len());
            &kernel[places.position(|bytes| bytes == WELCOME)? + WELCOME.len()..]
        }
    };
    let word = text.split(|byte| b" \0".contains(byte)).next()?;
    std::str::from_utf8(word).ok().filter(|word| !word.is_empty()).map(str::to_owned)
}

/// Reads an initrd or a module for a machine with so many bytes of memory.
pub fn read_module(path: &Path, memory: u64, command_line: String) -> Result<Module, Error> {
    Ok(Module { data: read(path, Limit::of_modules(memory))?, command_line })
}

/// Reads Multiboot modules as `--initrd` names them: `FILE ARG...,FILE ARG...`, as QEMU has it. A
/// list that is the path of a file is that file.
pub fn read_modules(list: &Path, memory: u64) -> Result<Vec<Module>, Error> {
    let text = list.to_string_lossy();
    if list.is_file() {
        return Ok(vec![read_module(list, memory, text.into_owned())?]);
    }
    let named = vmm::split_modules(&text);
    if named.is_empty() {
        return Err(Error::Open { path: list.to_owned(), error: io::ErrorKind::NotFound.into() });
    }
    let mut left = memory;
    let mut modules = Vec::new();
    for file in named {
        let module = read_module(Path::new(&file.path), left, file.command_line)?;
        left -= module.data.len() as u64;
        modules.push(module);
    }
    Ok(modules)
}

/// How much may be read, and for what more is too much.
pub struct Limit {
    /// So much.
    pub bytes: u64,
    /// For what more is too much, and what to do.
    pub whom: String,
}

impl Limit {
    /// For what goes into the memory of a machine, of which there are so many bytes.
    pub fn of_modules(memory: u64) -> Self {
        Self { bytes: memory, whom: "the machine's memory; give a larger --mem".to_owned() }
    }

    /// The same, or what the host has left if that is less.
    pub fn within_host(self) -> Self {
        let available = Available::now();
        if available.bytes >= self.bytes {
            return self;
        }
        let whom = format!("this host ({} sets the limit)", available.limited_by);
        Self { bytes: available.bytes, whom }
    }
}

fn read(path: &Path, limit: Limit) -> Result<Contents, Error> {
    let limit = limit.within_host();
    Buffer::read(path, limit.bytes).map(Contents::new).map_err(|error| {
        let path = path.to_owned();
        match error.kind() {
            io::ErrorKind::FileTooLarge => Error::TooLarge { path, error, whom: limit.whom },
            _ => Error::Open { path, error },
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(list: &str) -> Result<Vec<Module>, Error> {
        read_modules(Path::new(list), 1 << 20)
    }

    #[test]
    fn a_list_has_files_and_their_arguments() {
        let list = modules("/proc/self/comm one two,/proc/self/cmdline").unwrap();
        let lines: Vec<_> = list.iter().map(|module| module.command_line.as_str()).collect();
        assert_eq!(lines, ["/proc/self/comm one two", "/proc/self/cmdline"]);
        assert!(list.iter().all(|module| !module.data.is_empty()));
    }

    #[test]
    fn a_doubled_comma_is_one_in_a_name() {
        let path = std::env::temp_dir().join(format!("biv,{}", std::process::id()));
        std::fs::write(&path, "contents").unwrap();
        let name = path.to_str().unwrap().replace(',', ",,");
        let list = modules(&format!("/proc/self/comm,{name} a,,b"));
        std::fs::remove_file(&path).unwrap();
        let list = list.unwrap();
        assert_eq!(list[1].data[..], *b"contents");
        assert_eq!(list[1].command_line, format!("{} a,b", path.display()));
    }

    #[test]
    fn a_module_that_is_not_there_is_named() {
        for (list, name) in [("/proc/self/comm,/no/such", "/no/such:"), (",", ",:")] {
            let error = modules(list).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let error = read_modules(Path::new("/proc/self/comm"), 2).unwrap_err().to_string();
        assert!(error.contains("/proc/self/comm") && error.contains("--mem"), "{error}");
        // Each of them fits, both together do not.
        let length = std::fs::read("/proc/self/comm").unwrap().len() as u64;
        let both = Path::new("/proc/self/comm,/proc/self/comm");
        assert!(read_modules(both, 2 * length).is_ok());
        assert!(read_modules(both, 2 * length - 1).is_err());
    }
}
