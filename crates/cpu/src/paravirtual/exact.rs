//! Exact TLBs: a vCPU drops what its TLBs have derived from an entry of a page table when that entry changes, so that
//! hardly anything else ever flushes them.
//!
//! A paravirtual kernel changes page tables by asking for it, and the hypervisor tells the vCPU that asked of every
//! entry that changes ([`Vcpu::table_entry_changed`]) and of every frame that ceases to be a table
//! ([`Vcpu::table_demoted`]). Paravirtual kernels have neither global pages nor PCIDs: on hardware each switch between
//! address spaces costs them the whole TLB. Here the invariant is
//!
//! > a vCPU's TLBs and jump caches hold nothing that the page tables would not give, except what *other* vCPUs have
//! > taken away since the vCPU last flushed everything.
//!
//! 1. *Sources.* For each table of the lowest level, a vCPU knows the regions of 2 MiB that it has walked through it,
//!    and in which space ([`Source`]). A change of an entry drops the page of that entry in each of these regions.
//! 2. *Spaces.* Each root has a number in place of a PCID, for as long as it is among the [`SPACES`] used last. Its
//!    TLBs remain when another root is loaded. A root that is demoted loses its number.
//! 3. *The upper half is common*, as long as its top entries are: a root whose top entries there differ from those of
//!    the root before has everything flushed. So what is cached of the upper half counts as global.
//! 4. *Others' changes are counted*, not told. Where the architecture flushes for a guest, because it asks for that or
//!    loads a root, a vCPU flushes everything if another vCPU has taken something away since it last did, and nothing
//!    otherwise. As on hardware, what another vCPU takes away may be used until then.
//! 5. *A change of an entry that leads to tables* drops what is derived from the tables below it, and everything if it
//!    is a top entry: programs free tables of the third level when they are executed, as their stack is moved.
//!
//! Helpers' address spaces (direct execution) are not exact: they hear of each flush and of each switch.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::FxHashMap;

use crate::architectural::Architectural;
use crate::memory::paging::load;
use crate::memory::tlb::Content;
use crate::memory::{Flush, Linear, PAGE_SIZE, Physical};
use crate::vcpu::Vcpu;

/// Address spaces with a number, as many as the TLB has.
const SPACES: usize = 8;

/// Top entries of the upper half that are the guest's, and the first of them.
const FIRST_UPPER: u64 = 272;
const UPPER: usize = 512 - FIRST_UPPER as usize;

/// Bytes that a table of the lowest level maps.
const REGION: u64 = 2 << 20;

/// Sources that are known. Whoever has more flushes everything.
const MAX_SOURCES: usize = 1 << 18;

/// Entries of a table that are dropped one by one when it ceases to be one, rather than with all of their spaces.
const FEW_ENTRIES: u32 = 16;

/// Bits of an entry.
mod bit {
    pub const PRESENT: u64 = 1 << 0;
    pub const WRITABLE: u64 = 1 << 1;
    pub const USER: u64 = 1 << 2;
    pub const ACCESSED: u64 = 1 << 5;
    pub const DIRTY: u64 = 1 << 6;
    pub const NO_EXECUTE: u64 = 1 << 63;
    pub const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
}

/// Whether an entry allowed something that it does not allow any more. A walker may have set accessed and dirty bits
/// since the old value was read.
fn takes_away(old: u64, new: u64) -> bool {
    let old = old | bit::ACCESSED | bit::DIRTY;
    let rights = bit::PRESENT | bit::WRITABLE | bit::USER | bit::ACCESSED | bit::DIRTY;
    old & bit::PRESENT != 0
        && (old & !new & rights != 0
            || new & !old & bit::NO_EXECUTE != 0
            || (old ^ new) & bit::ADDRESS != 0)
}

/// A numbered address space.
#[derive(Debug, Clone, Copy, Default)]
struct Space {
    /// The roots; 0 is none. Views of the kernel are of the first, that of users is of the second.
    kernel_root: u64,
    user_root: u64,
    /// What sources call it, until it is dropped.
    key: u32,
    last_used: u64,
}

/// Where something was walked to through a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Source {
    /// The key of the space.
    key: u32,
    /// The linear address of the region.
    region: u64,
}

/// A bit for each entry of a table that is present.
#[derive(Debug, Clone, Copy, Default)]
struct Present([u64; 8]);

impl Present {
    fn count(self) -> u32 {
        self.0.iter().map(|bits| bits.count_ones()).sum()
    }

    /// Their numbers.
    fn numbers(self) -> impl Iterator<Item = u64> {
        (0..).zip(self.0).flat_map(|(word, mut bits)| {
            std::iter::from_fn(move || {
                let lowest = u64::from(bits.trailing_zeros());
                // All but the lowest.
                bits = (bits != 0).then(|| bits & (bits - 1))?;
                Some(word * 64 + lowest)
            })
        })
    }
}

/// See above.
#[derive(Debug)]
pub(super) struct Exact {
    spaces: [Space; SPACES],
    current: usize,
    clock: u64,
    last_key: u32,
    /// The key of what all spaces share: the upper half, for the kernel.
    shared: u32,
    /// By the table's machine address.
    sources: RefCell<FxHashMap<u64, Vec<Source>>>,
    /// How many there were at most since everything was flushed last. From [`MAX_SOURCES`] on no more are noted, and
    /// the next change, or the next run, flushes everything.
    noted: Cell<usize>,
    /// Top entries of the root that was loaded last.
    upper: Box<[u64; UPPER]>,
    /// What others had taken away when everything was flushed last.
    seen: u64,
    /// What this vCPU has taken away.
    own: u64,
}

impl Default for Exact {
    fn default() -> Self {
        Self {
            spaces: [Space::default(); SPACES],
            current: 0,
            clock: 0,
            last_key: 1,
            shared: 1,
            sources: RefCell::default(),
            noted: Cell::new(0),
            upper: Box::new([0; UPPER]),
            seen: 0,
            own: 0,
        }
    }
}

impl Exact {
    fn new_key(&mut self) -> u32 {
        self.last_key = self.last_key.wrapping_add(1);
        self.last_key
    }

    /// The number that the space has in place of a PCID.
    pub(super) fn number(&self) -> u16 {
        Self::number_of(self.current)
    }

    fn number_of(index: usize) -> u16 {
        index as u16 + 1
    }

    /// Whether there are too many sources.
    fn is_full(&self) -> bool {
        self.noted.get() >= MAX_SOURCES
    }

    /// Whether what was noted under a key may still be cached.
    fn is_live(&self, key: u32) -> bool {
        key == self.shared || self.spaces.iter().any(|space| space.key == key)
    }

    /// Nothing is cached any more.
    fn forget(&mut self) {
        self.sources.borrow_mut().clear();
        self.noted.set(0);
        self.shared = self.new_key();
        for index in 0..SPACES {
            self.spaces[index].key = self.new_key();
        }
    }
}

impl Architectural {
    fn exact(&mut self) -> Option<&mut Exact> {
        self.paravirtual.as_deref_mut().map(|state| &mut state.exact)
    }

    /// Whether an address is translated alike in all address spaces of a paravirtual guest.
    #[inline]
    pub(crate) fn is_common(&self, at: Linear) -> bool {
        at.0 >> 63 != 0 && self.paravirtual.is_some()
    }

    /// Note through which table, by its machine address, an address was translated, for users or for the kernel. What
    /// is common, and what is of the current space, is found by different keys.
    #[inline]
    pub(crate) fn note_source(&self, at: Linear, table: Physical, is_users: bool) {
        let Some(state) = &self.paravirtual else { return };
        if table.0 == 0 {
            return;
        }
        let exact = &state.exact;
        if exact.is_full() {
            return;
        }
        let is_shared = !is_users && self.is_common(at);
        let key = if is_shared { exact.shared } else { exact.spaces[exact.current].key };
        let source = Source { key, region: at.0 & !(REGION - 1) };
        let mut sources = exact.sources.borrow_mut();
        let list = sources.entry(table.page().0).or_default();
        if !list.contains(&source) {
            list.retain(|old| exact.is_live(old.key));
            list.push(source);
            exact.noted.set(exact.noted.get() + 1);
        }
    }

    /// How often something was taken away from page tables, by whichever vCPU: 0 unless the guest is paravirtual.
    #[inline]
    pub(crate) fn taken_away(&self) -> u64 {
        self.group.taken_away.load(Ordering::SeqCst)
    }

    /// What other vCPUs have taken away so far.
    fn taken_by_others(&self) -> u64 {
        let own = self.paravirtual.as_ref().map_or(0, |state| state.exact.own);
        self.taken_away().wrapping_sub(own)
    }

    /// Flush all that is cached of any page table.
    fn flush_everything(&mut self) {
        let seen = self.taken_by_others();
        self.flush_tlb(Flush::All);
        if let Some(exact) = self.exact() {
            exact.seen = seen;
            exact.forget();
        }
        self.note_linked_sources();
    }

    /// Where the architecture flushes: see to what others have taken away, and to helpers' address spaces.
    fn synchronize(&mut self, what: Flush) {
        let number = self.current_pcid();
        if let Some(spaces) = &mut self.spaces {
            spaces.flush(what, number);
        }
        let others = self.taken_by_others();
        if self.exact().is_some_and(|exact| exact.seen != others) {
            self.flush_everything();
        }
    }

    /// The root of users has been loaded; before they run, [`Self::heed_user_root`] looks at it.
    pub(super) fn switch_user_space(&mut self) {
        self.synchronize(Flush::AllPcids);
        self.has_switched_spaces = true;
    }

    /// The kernel's root has been loaded.
    pub(super) fn switch_space(&mut self) {
        self.switch_user_space();
        let root = self.views_root();
        if self.takes_upper_half(root) {
            self.flush_everything();
        }
        if let Some(mirror) = &self.group.mirror {
            mirror.runs().load_root(self.vcpu_index, root, &self.ram);
        }
        let Some(exact) = self.exact() else { return };
        exact.clock += 1;
        let clock = exact.clock;
        let known = exact.spaces.iter().position(|space| space.kernel_root == root);
        let index = known.unwrap_or_else(|| {
            let spaces = exact.spaces.iter().enumerate();
            spaces.min_by_key(|(_, space)| space.last_used).map_or(0, |(index, _)| index)
        });
        exact.current = index;
        if known.is_none() {
            self.drop_space(index);
        }
        if let Some(exact) = self.exact() {
            let space = &mut exact.spaces[index];
            (space.kernel_root, space.last_used) = (root, clock);
        }
    }

    /// Copy the top entries of a root; whether one of the upper half is not as it was in the root before.
    fn takes_upper_half(&mut self, root: u64) -> bool {
        let Some(state) = self.paravirtual.as_deref_mut() else { return false };
        let first = self.ram.host(Physical(root + FIRST_UPPER * 8));
        let Some(first) = first.filter(|_| root.is_multiple_of(PAGE_SIZE)) else { return true };
        let first = first.cast::<AtomicU64>();
        let mut takes = false;
        for (index, entry) in state.exact.upper.iter_mut().enumerate() {
            // SAFETY: an entry of a page of RAM, which is mapped as long as the vCPU lives, and aligned as pages are;
            // the guest may change it at any time, hence the atomic load.
            let new = unsafe { (*first.wrapping_add(index)).load(Ordering::Relaxed) };
            takes |= *entry & bit::PRESENT != 0 && (*entry ^ new) & !bit::ACCESSED != 0;
            *entry = new;
        }
        takes
    }

    /// Drop what is cached of a space, which has no roots then.
    fn drop_space(&mut self, index: usize) {
        self.tlb.flush(Flush::Pcid(Exact::number_of(index)));
        self.context.forget_returns();
        if let Some(exact) = self.exact() {
            let key = exact.new_key();
            exact.spaces[index] = Space { key, ..Space::default() };
        }
    }

    /// Before users run: what is cached for them is of their root.
    pub(super) fn heed_user_root(&mut self) {
        let user_root = self.user_root();
        let Some(exact) = self.exact() else { return };
        let (index, kernel_root) = (exact.current, exact.spaces[exact.current].kernel_root);
        let cached = exact.spaces[index].user_root;
        if cached == user_root {
            return;
        }
        if cached != 0 {
            self.drop_space(index);
        }
        if let Some(exact) = self.exact() {
            let space = &mut exact.spaces[index];
            (space.kernel_root, space.user_root, space.last_used) =
                (kernel_root, user_root, exact.clock);
        }
    }

    /// The roots have been set otherwise, and nothing is cached.
    pub(super) fn begin_spaces(&mut self) {
        self.flush_everything();
        if let Some(mirror) = &self.group.mirror {
            mirror.clear();
        }
        if let Some(exact) = self.exact() {
            exact.spaces = [Space::default(); SPACES];
            exact.forget();
        }
        self.switch_space();
    }

    /// Drop the page that an entry of a table of the lowest level maps, wherever it was walked to. That the entry was
    /// not executable says that nothing is cached of jumps to the page: when it ceased to be, they were dropped. (Where
    /// another vCPU has made it so, they are there until the architecture flushes, which drops everything.)
    fn drop_leaf(&mut self, table: u64, index: u64, is_executable: bool) {
        // Lent by the table: nothing is noted meanwhile. Where nothing was walked to, there is nothing to drop.
        let lent = self.exact().and_then(|exact| exact.sources.get_mut().get_mut(&table));
        let Some(found) = lent.map(std::mem::take) else { return };
        let has = if is_executable { Content::Any } else { Content::Data };
        for &Source { key, region } in &found {
            let Some(exact) = self.exact() else { return };
            let at = Linear(region + index * PAGE_SIZE);
            let of_space = exact.spaces.iter().position(|space| space.key == key);
            match of_space {
                _ if at.0 >> 63 != 0 || key == exact.shared => self.tlb.drop_page(at, None, has),
                Some(space) => {
                    self.tlb.drop_page(at, Some(Exact::number_of(space)), has);
                }
                // The space was dropped meanwhile.
                None => {}
            }
        }
        match found.iter().any(|source| source.region >> 63 != 0) {
            true if is_executable => self.context.forget_returns(),
            false if is_executable => self.context.forget_returns_of_users(),
            _ => {}
        }
        let is_linked = |source: &&Source| is_executable && source.region >> 63 != 0;
        for source in found.iter().filter(is_linked) {
            self.flush_cross_page_links(Flush::Page(Linear(source.region + index * PAGE_SIZE)));
        }
        let lender = self.exact().and_then(|exact| exact.sources.get_mut().get_mut(&table));
        if let Some(list) = lender {
            *list = found;
        }
    }

    /// Whether something may be cached that was walked to through a table.
    fn is_source(&self, table: u64) -> bool {
        let state = self.paravirtual.as_deref();
        state.is_some_and(|state| state.exact.sources.borrow().contains_key(&table))
    }

    /// Drop all that was walked to through a table of the lowest level, whose content is as it was then.
    fn drop_table(&mut self, table: u64) {
        if !self.is_source(table) {
            return;
        }
        for index in self.present_entries(table).numbers() {
            let entry = load(&self.ram, table + index * 8, 8);
            self.drop_leaf(table, index, entry & bit::NO_EXECUTE == 0);
        }
        if let Some(exact) = self.exact() {
            exact.sources.borrow_mut().remove(&table);
        }
    }

    /// The same for a table of the second level. Where it is walked as one of the lowest, that is a source as well.
    fn drop_tables(&mut self, table: u64) {
        for index in self.present_entries(table).numbers() {
            let entry = load(&self.ram, table + index * 8, 8);
            self.drop_table(entry & bit::ADDRESS);
        }
        self.drop_table(table);
    }

    /// The entries of a table that are present.
    fn present_entries(&self, table: u64) -> Present {
        let mut present = Present::default();
        let words = self.ram.words(Physical(table)).into_iter().flatten();
        for (index, entry) in words.enumerate() {
            present.0[index / 64] |= (entry & bit::PRESENT) << (index % 64);
        }
        present
    }
}

impl Vcpu {
    /// An entry of a page table has changed: the table by its machine address, its level (1 is the lowest), which of
    /// its entries. Nothing that was derived from what is taken away is used by this vCPU any more.
    pub fn table_entry_changed(
        &mut self,
        (table, level): (u64, u8),
        index: usize,
        old: u64,
        new: u64,
    ) {
        let arch = &mut self.arch;
        if !takes_away(old, new) {
            return;
        }
        if let Some(mirror) = &arch.group.mirror {
            mirror.runs().entry_changed((table, level), index, new);
        }
        arch.group.taken_away.fetch_add(1, Ordering::SeqCst);
        if let Some(exact) = arch.exact() {
            exact.own = exact.own.wrapping_add(1);
        }
        match level {
            _ if arch.exact().is_some_and(|exact| exact.is_full()) => arch.flush_everything(),
            1 => arch.drop_leaf(table, index as u64, old & bit::NO_EXECUTE == 0),
            2 => {
                // It may be walked as a table of the lowest level as well (linear page tables).
                arch.drop_leaf(table, index as u64, true);
                arch.drop_table(old & bit::ADDRESS);
            }
            3 => {
                arch.drop_leaf(table, index as u64, true);
                arch.drop_tables(old & bit::ADDRESS);
            }
            _ => arch.flush_everything(),
        }
    }

    /// A frame, by its machine address, is no page table of that level any more: its content may change from now on
    /// without anybody telling.
    pub fn table_demoted(&mut self, table: u64, level: u8) {
        let arch = &mut self.arch;
        if let Some(mirror) = &arch.group.mirror {
            mirror.runs().demoted(table);
        }
        let Some(exact) = arch.exact() else { return };
        if level == 4 {
            exact.own = exact.own.wrapping_add(1);
            arch.group.taken_away.fetch_add(1, Ordering::SeqCst);
        }
        if arch.exact().is_some_and(|exact| exact.is_full()) {
            return arch.flush_everything();
        }
        if level == 1 {
            if !arch.is_source(table) {
                return;
            }
            // A kernel clears a table before it frees it, as a rule.
            if arch.present_entries(table).count() <= FEW_ENTRIES {
                return arch.drop_table(table);
            }
        }
        let Some(exact) = arch.exact() else { return };
        let gone = match level {
            1 => {
                let list = exact.sources.borrow_mut().remove(&table).unwrap_or_default();
                if list.iter().any(|source| source.key == exact.shared) {
                    return arch.flush_everything();
                }
                let is_meant = |space: &Space| list.iter().any(|source| source.key == space.key);
                exact.spaces.map(|space| is_meant(&space))
            }
            4 => exact.spaces.map(|space| [space.kernel_root, space.user_root].contains(&table)),
            _ => return,
        };
        for (index, _) in gone.iter().enumerate().filter(|(_, is_gone)| **is_gone) {
            let Some(exact) = arch.exact() else { return };
            let (is_current, space) = (index == exact.current, exact.spaces[index]);
            arch.drop_space(index);
            if is_current && let Some(exact) = arch.exact() {
                // It is in use, and cached anew.
                let Space { kernel_root, user_root, last_used, .. } = space;
                let key = exact.spaces[index].key;
                exact.spaces[index] = Space { kernel_root, user_root, key, last_used };
            }
        }
    }

    /// The guest asks for a flush of this vCPU's translations: of all, or of those of one page.
    pub fn flush_translations(&mut self, of: Option<u64>) {
        let what = of.map_or(Flush::AllPcids, |at| Flush::Page(Linear(at).page()));
        self.arch.synchronize(what);
    }

    /// See to what other vCPUs have taken away, if one has asked for a flush; and to the root of users.
    #[inline]
    pub(crate) fn heed_flush(&mut self) {
        if self.arch.paravirtual.is_none() {
            return;
        }
        if self.arch.kick.take_flush() {
            self.arch.synchronize(Flush::AllPcids);
        }
        self.arch.heed_user_root();
        if self.arch.exact().is_some_and(|exact| exact.is_full()) {
            self.arch.flush_everything();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn present_entries_have_their_numbers() {
        let present = Present([1 | 1 << 63, 0, 1 << 5, 0, 0, 0, 0, 1 << 63]);
        assert_eq!(present.numbers().collect::<Vec<_>>(), [0, 63, 133, 511]);
        assert_eq!(present.count(), 4);
        assert_eq!(
            Present([u64::MAX; 8]).numbers().collect::<Vec<_>>(),
            (0..512).collect::<Vec<_>>()
        );
        assert_eq!(Present::default().numbers().next(), None);
    }

    #[test]
    fn what_is_taken_away_is_known() {
        let (old, read_only) = (0x1000 | 0x67, 0x1000 | 0x65);
        assert!(takes_away(old, 0) && takes_away(old, read_only) && takes_away(old, 0x2067));
        assert!(takes_away(old, old | bit::NO_EXECUTE) && takes_away(old, old & !bit::DIRTY));
        assert!(takes_away(read_only & !bit::DIRTY, read_only & !bit::DIRTY), "a walker may write");
        assert!(!takes_away(read_only, old) && !takes_away(0, old) && !takes_away(old, old));
        assert!(!takes_away(old | bit::NO_EXECUTE, old));
    }
}
