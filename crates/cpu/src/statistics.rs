//! Counters of one processor, and of the instructions that translated code leaves to Rust.

use iced_x86::Code;

/// Counters of one processor since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Blocks translated.
    pub blocks: u64,
    /// Guest instructions in them.
    pub block_instructions: u64,
    /// Instructions executed by the interpreter.
    pub interpreted: u64,
    /// Instructions of blocks that Rust executed without leaving the block for the run loop.
    pub assisted: u64,
    /// Times that `cpuid` was answered without Rust.
    pub answered: u64,
    /// Times translated code was entered.
    pub entries: u64,
    /// TLB misses taken by translated code.
    pub misses: u64,
    /// Pages entered into the TLB.
    pub tlb_fills: u64,
    /// TLB flushes of any kind.
    pub tlb_flushes: u64,
    /// Jumps that were linked to their target.
    pub links: u64,
    /// Look-ups of indirect and page-crossing jumps that left translated code.
    pub lookups: u64,
    /// Blocks dropped because their bytes were written.
    pub invalidated_blocks: u64,
    /// Times the code cache was full.
    pub cache_drops: u64,
    /// Host faults in kernel code that reaches memory through the host's MMU.
    pub mirror_faults: u64,
    /// Kernel instructions translated again with a look-up because of one.
    pub mirror_exceptions: u64,
    /// Accesses that crossed a page and were split in translated code.
    pub crossings: u64,
    /// Accesses that crossed a page, and would have needed nothing but that, and were interpreted.
    pub crossings_interpreted: u64,
    /// Exceptions delivered to the guest.
    pub exceptions: u64,
    /// Interrupts delivered to the guest.
    pub interrupts: u64,
    /// System calls of 64-bit user code.
    pub system_calls: u64,
    /// Runs of user code in helper processes, and cycles of the time-stamp counter in them.
    pub direct_runs: u64,
    /// See [`Self::direct_runs`].
    pub direct_cycles: u64,
    /// Runs that ended because the guest's kernel, or the interpreter, was needed.
    pub direct_entries: u64,
    /// Runs that ended because something was not mapped in the helper.
    pub direct_misses: u64,
    /// Runs that ended at a page that must not run directly.
    pub direct_suspensions: u64,
    /// Helper processes made.
    pub direct_spaces: u64,
    /// Pages mapped in them.
    pub direct_pages: u64,
    /// Times that the pages of a helper were compared with the page tables.
    pub direct_flushes: u64,
    /// Times that the timer for it went off, to look at what user code does.
    pub direct_timer_looks: u64,
    /// Looks that could tell something.
    pub direct_looks: u64,
    /// Times that a thread began to run directly because it computes.
    pub direct_promotions: u64,
    /// Of these, because its program is known to.
    pub direct_begun: u64,
    /// Times that it went back to be translated because it enters its kernel often.
    pub direct_demotions: u64,
    /// Of these, because it kept coming to pages that must not run directly.
    pub direct_barred: u64,
    /// Bytes of code cache in use.
    pub cache_bytes: u64,
}

/// How often instructions were executed, by code.
pub(crate) type Counts = std::collections::HashMap<Code, u64>;

/// Instructions that translated code has left to Rust.
#[derive(Debug, Default)]
pub(crate) struct Forms {
    pub(crate) interpreted: Counts,
    pub(crate) assisted: Counts,
}

/// Counts under names for people, most frequent first.
pub(crate) fn named(counts: &Counts) -> Vec<(String, u64)> {
    let mut sums = std::collections::BTreeMap::<String, u64>::new();
    for (&code, &count) in counts {
        *sums.entry(name_of(code)).or_default() += count;
    }
    let mut rows: Vec<_> = sums.into_iter().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.1));
    rows
}

/// The mnemonic; for a `mov` with a special register also which kind that is.
fn name_of(code: Code) -> String {
    let special = match code {
        Code::Mov_cr_r64 | Code::Mov_cr_r32 => " to cr",
        Code::Mov_r64_cr | Code::Mov_r32_cr => " from cr",
        Code::Mov_dr_r64 | Code::Mov_dr_r32 => " to dr",
        Code::Mov_r64_dr | Code::Mov_r32_dr => " from dr",
        Code::Mov_Sreg_rm16 | Code::Mov_Sreg_r32m16 | Code::Mov_Sreg_r64m16 => " to segment",
        _ => "",
    };
    format!("{:?}", code.mnemonic()).to_lowercase() + special
}
