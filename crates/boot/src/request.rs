//! The input of a boot, and its result.

use vm_memory::GuestAddress;

use super::entry::Entry;
use super::memory_map::MapEntry;
use super::space::Range;

/// A file that the kernel gets: the initrd, or a Multiboot module.
#[derive(Debug, Clone, Copy)]
pub struct Module<'a> {
    /// Its bytes.
    pub data: &'a [u8],
    /// Its own command line, if the protocol has such.
    pub command_line: &'a str,
}

/// Uniform random numbers for one boot. Never use them twice.
#[derive(Debug, Clone, Copy)]
pub struct Randomness {
    /// Chooses the physical address.
    pub physical: u64,
    /// Chooses the virtual address.
    pub linear: u64,
    /// Seeds the kernel's random number generator (`SETUP_RNG_SEED`).
    pub seed: [u8; 32],
}

/// Everything that a boot needs to know.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The kernel file.
    pub kernel: &'a [u8],
    /// Its name, which Multiboot kernels see as the first word of their command line.
    pub kernel_name: &'a str,
    /// The kernel's command line.
    pub command_line: &'a str,
    /// The initrd (several are joined, which Linux understands), or modules.
    pub modules: &'a [Module<'a>],
    /// What is where in guest-physical memory.
    pub memory_map: &'a [MapEntry],
    /// The ACPI root pointer, in memory that the map does not call RAM.
    pub rsdp: Option<GuestAddress>,
    /// Without it the kernel is not randomized.
    pub randomness: Option<Randomness>,
}

/// How a kernel is entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Linux, 64-bit (Documentation/arch/x86/boot.rst, "64-bit Boot Protocol").
    Linux64,
    /// Xen's PVH (xen/docs/misc/pvh.pandoc).
    Pvh,
    /// Multiboot 0.6.96.
    Multiboot,
}

/// A kernel in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loaded {
    /// How to start the processor.
    pub entry: Entry,
    /// The protocol that was used.
    pub protocol: Protocol,
    /// Where the kernel is in physical memory, its zeros included.
    pub kernel: Range,
    /// Where the initrd is, if Linux got one.
    pub initrd: Option<Range>,
    /// How far it is above where it was linked, in physical memory.
    pub physical_offset: i64,
    /// The same in virtual memory, where it only moves up.
    pub linear_offset: u64,
}
