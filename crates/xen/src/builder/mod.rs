//! From a paravirtual kernel's ELF file to the memory that it finds, and the registers that it is entered with.
//!
//! There is no firmware and no boot loader, and the kernel starts with paging on. So the builder lays out, from the
//! address that the kernel's notes give for its first page (`VIRT_BASE`):
//!
//! | in this order, 1:1 with page frame numbers | where the kernel learns of it |
//! | --- | --- |
//! | what is below the kernel, empty | |
//! | the kernel's segments | |
//! | the initial RAM disk, unless it need not be mapped | `mod_start` |
//! | the list of the frames' machine numbers (P2M), unless the kernel says where else | `mfn_list` |
//! | the start information, the pages of store and console | RSI, `store_mfn`, `console.mfn` |
//! | page tables: the top one first, then level by level | `pt_base`, `nr_pt_frames` |
//! | a stack | RSP |
//! | empty pages: at least 512 KiB, and up to a border of 4 MiB | |
//! | the initial RAM disk, if it need not be mapped | `mod_start`, a frame number |
//! | the P2M list, if it is mapped elsewhere, and the page tables that map it there | `first_p2m_pfn` |
//!
//! The order is what kernels expect: Linux uses the first page tables again, and takes what follows the stack for
//! its first allocations. `tools/libs/guest` of Xen lays domains out in the same order.
//!
//! # What rules it
//!
//! 1. *The kernel is untrusted.* [`plan`] either refuses it or has checked all that follows from it: nothing is
//!    mapped beyond the domain's memory, over Xen's addresses or twice. Work and memory are in proportion to the
//!    domain's memory and to the file.
//! 2. *Planning and writing are two steps.* [`plan`] touches no memory, [`Plan::write`] meets no bad kernel.
//! 3. *Tables are read-only.* Each page that is a page table is mapped without the right to write, as Xen demands
//!    of whatever it validates.
//! 4. The memory handed in is zero: pages without contents are not written.

mod domain;
mod error;
mod fill;
mod kernel;
mod layout;
mod mapping;
mod notes;
mod tables;

pub use domain::{Built, Entry, Memory, Page, Parameters, Table};
pub use error::Error;
pub use notes::Notes;

use kernel::Kernel;
use layout::Layout;
use tables::Tables;

/// A domain whose kernel and layout have been checked.
#[derive(Debug)]
pub struct Plan<'a> {
    kernel: Kernel<'a>,
    parameters: Parameters<'a>,
    layout: Layout,
    tables: Tables,
}

/// Check a kernel, which has been unpacked, and find a place for everything.
///
/// # Errors
///
/// [`Error`] says what is wrong with the kernel, or what does not fit.
pub fn plan<'a>(kernel: &'a [u8], parameters: &Parameters<'a>) -> Result<Plan<'a>, Error> {
    let kernel = Kernel::parse(kernel)?;
    let layout = Layout::new(&kernel, parameters)?;
    let tables = Tables::new(&layout);
    Ok(Plan { kernel, parameters: *parameters, layout, tables })
}

impl Plan<'_> {
    /// What the kernel says about itself.
    pub fn notes(&self) -> &Notes {
        &self.kernel.notes
    }
}
