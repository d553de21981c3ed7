//! What kind of file a kernel is, as far as the choice of its user space needs to know.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Whether it is an ELF file: a test kernel, a small operating system, a vmlinux. These get no
/// user space of ours unless it is asked for.
pub fn is_elf(kernel: &File) -> bool {
    let mut magic = [0; 4];
    kernel.read_exact_at(&mut magic, 0).is_ok() && magic == *b"\x7fELF"
}
