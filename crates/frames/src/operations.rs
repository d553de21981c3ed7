//! The operations that hypercalls ask for, one at a time.

use xen_abi::Mfn;

use crate::abi::{Errno, Update};
use crate::descriptor::check_descriptor;
use crate::entry::{Entry, Level};
use crate::machine::{Change, Effects, Memory};
use crate::record::FrameType;
use crate::state::{BasePointers, Stop, Tables};
use crate::walk::walk;

impl<M: Memory + Effects> Tables<'_, M> {
    /// `MMUEXT_PIN_L1_TABLE` to `L4`: the table stays one until it is unpinned.
    ///
    /// # Errors
    ///
    /// Why the table cannot be validated; `Inval` if it is pinned already.
    pub fn pin(&mut self, table: Mfn, level: Level) -> Result<(), Stop> {
        self.settle()?;
        self.take(table, level)?;
        if self.frames.record(table).is_some_and(|record| record.set_pinned()) {
            return Ok(());
        }
        self.put(table, level);
        Err(Stop::Refused(Errno::Inval))
    }

    /// `MMUEXT_UNPIN_TABLE`. The demotion that may follow is done as far as nobody waits; [`Tables::settle`] does
    /// the rest.
    ///
    /// # Errors
    ///
    /// `Inval` if it is not pinned.
    pub fn unpin(&mut self, table: Mfn) -> Result<(), Stop> {
        self.settle()?;
        let record = self.frames.record(table).ok_or(Errno::Inval)?;
        if !record.clear_pinned() {
            return Err(Stop::Refused(Errno::Inval));
        }
        if let Some(level) = Level::of_type(record.type_info().frame_type()) {
            self.put(table, level);
        }
        self.finish();
        Ok(())
    }

    /// `MMUEXT_NEW_BASEPTR`: the root of this processor's kernel. An L4 that is not validated is.
    ///
    /// # Errors
    ///
    /// Why the table cannot be validated.
    pub fn new_baseptr(&mut self, table: Mfn) -> Result<(), Stop> {
        self.settle()?;
        let old = self.state.base(self.vcpu);
        if old == Some(table) {
            return Ok(());
        }
        self.take(table, Level::L4)?;
        self.roots().kernel = Some(table);
        self.put_root(old);
        Ok(())
    }

    /// `MMUEXT_NEW_USER_BASEPTR`: the root of this processor's user programs; frame 0 is none.
    ///
    /// # Errors
    ///
    /// Why the table cannot be validated.
    pub fn new_user_baseptr(&mut self, table: Mfn) -> Result<(), Stop> {
        self.settle()?;
        let (old, new) = (self.state.user_base(self.vcpu), (table != Mfn(0)).then_some(table));
        if old == new {
            return Ok(());
        }
        if let Some(new) = new {
            self.take(new, Level::L4)?;
        }
        self.roots().user = new;
        self.put_root(old);
        Ok(())
    }

    /// The processor has no roots any more, and waits for no promotion: it was taken down.
    ///
    /// # Errors
    ///
    /// [`Stop::Yield`].
    pub fn forget(&mut self) -> Result<(), Stop> {
        self.settle()?;
        if let Some(held) = self.state.take_held(self.vcpu) {
            self.drop_held(held);
        }
        let roots = self.state.roots.remove(&self.vcpu).unwrap_or_default();
        self.put_root(roots.kernel);
        self.put_root(roots.user);
        Ok(())
    }

    fn roots(&mut self) -> &mut BasePointers {
        self.state.roots.entry(self.vcpu).or_default()
    }

    fn put_root(&mut self, root: Option<Mfn>) {
        if let Some(root) = root {
            self.put(root, Level::L4);
        }
        self.finish();
    }

    /// One request of mmu_update: the pointer is a machine address with the command in its low bits.
    ///
    /// # Errors
    ///
    /// As Xen has them.
    pub fn update(&mut self, pointer: u64, value: u64) -> Result<(), Stop> {
        self.settle()?;
        let command = Update::of_pointer(pointer)?;
        let mfn = Mfn::of_address(pointer);
        self.frames.take_reference(mfn).map_err(|_| Errno::Inval)?;
        let index = (pointer & 0xfff) as usize / 8;
        let result = match command {
            Update::MachineToPhysical => {
                self.machine.set_physical(mfn, value);
                Ok(())
            }
            Update::Normal => self.update_frame(mfn, index, value, false),
            Update::PreserveFlags => self.update_frame(mfn, index, value, true),
        };
        self.frames.put_reference(mfn);
        self.finish();
        result
    }

    /// Write a word of a frame as what the frame is in use as.
    fn update_frame(
        &mut self,
        mfn: Mfn,
        index: usize,
        value: u64,
        preserves: bool,
    ) -> Result<(), Stop> {
        let record = self.frames.record(mfn).ok_or(Errno::Inval)?;
        let in_use = record.type_info().in_use();
        let (level, entry) = (in_use.and_then(Level::of_type), Entry(value));
        match (in_use, level) {
            (_, Some(Level::L1)) => Ok(self.update_leaf(mfn, index, entry, preserves)?),
            (_, Some(level)) => {
                // The table stays what it is until the end: a promotion that is dropped on the way
                // may have been all that held it.
                self.frames.take_table(mfn, level)?;
                let result = self.update_upper(mfn, level, index, entry, preserves);
                self.put(mfn, level);
                result
            }
            (None, _) => self.update_unused(mfn, index, value),
            (Some(FrameType::Writable), _) => {
                self.machine.store(mfn, index, value);
                Ok(())
            }
            (Some(_), _) => Err(Stop::Refused(Errno::Inval)),
        }
    }

    /// Linux does this to tables that it has unpinned.
    fn update_unused(&mut self, mfn: Mfn, index: usize, value: u64) -> Result<(), Stop> {
        self.frames.take_writable(mfn).map_err(|_| Errno::Inval)?;
        self.machine.store(mfn, index, value);
        self.frames.put_writable(mfn);
        Ok(())
    }

    /// update_va_mapping: the L1 entry of a linear address, in the processor's kernel root as the tables are now. The
    /// caller flushes what the call's flags say.
    ///
    /// # Errors
    ///
    /// `Inval` if no L1 is there, else as [`Tables::update`].
    pub fn update_va_mapping(&mut self, address: u64, value: u64) -> Result<(), Stop> {
        self.settle()?;
        let root = self.state.base(self.vcpu).ok_or(Errno::Inval)?;
        let (table, index) = walk(self.frames, self.machine, root, address).ok_or(Errno::Inval)?;
        self.update_leaf(table, index, Entry(value), false)?;
        Ok(())
    }

    /// A guest's own write to a read-only mapping of an L1 (writable page tables): `value` replaces `expected`.
    /// Whether it has, or the entry had changed.
    ///
    /// # Errors
    ///
    /// The frame is no L1 in use, or the entry is refused: then the write is a page fault.
    pub fn write_leaf(
        &mut self,
        table: Mfn,
        index: usize,
        expected: u64,
        value: u64,
    ) -> Result<bool, Stop> {
        self.settle()?;
        if self.frames.frame_type(table) != FrameType::L1 {
            return Err(Stop::Refused(Errno::Inval));
        }
        let (old, new) = (Entry(expected), Entry(value));
        if new.is_present() {
            self.frames.take_leaf(new)?;
        }
        if self.machine.compare_exchange(table, index, expected, value).is_err() {
            self.frames.put_leaf(new);
            return Ok(false);
        }
        self.machine.changed(Change { table, level: Level::L1, index, old, new });
        self.frames.put_leaf(old);
        Ok(true)
    }

    /// update_descriptor: write a descriptor to a machine address, in a descriptor table or not.
    ///
    /// # Errors
    ///
    /// `Inval` whatever the reason, or [`Stop::Yield`].
    pub fn update_descriptor(&mut self, address: u64, descriptor: u64) -> Result<(), Stop> {
        self.settle()?;
        let checked = check_descriptor(descriptor).ok_or(Errno::Inval)?;
        if !address.is_multiple_of(8) {
            return Err(Stop::Refused(Errno::Inval));
        }
        let (mfn, index) = (Mfn::of_address(address), (address & 0xfff) as usize / 8);
        if self.frames.frame_type(mfn) == FrameType::Descriptors {
            self.machine.store(mfn, index, checked);
            return Ok(());
        }
        self.update_unused(mfn, index, checked)
    }

    pub(crate) fn update_leaf(
        &mut self,
        table: Mfn,
        index: usize,
        new: Entry,
        preserves: bool,
    ) -> Result<(), Errno> {
        let old = Entry(self.machine.load(table, index));
        if new.is_present() {
            if new.has_forbidden_bits(Level::L1) {
                return Err(Errno::Inval);
            }
            if old.is_like(new) {
                self.store(table, Level::L1, index, new, preserves);
                return Ok(());
            }
            self.frames.take_leaf(new)?;
        }
        self.store(table, Level::L1, index, new, preserves);
        self.frames.put_leaf(old);
        Ok(())
    }

    fn update_upper(
        &mut self,
        table: Mfn,
        level: Level,
        index: usize,
        new: Entry,
        preserves: bool,
    ) -> Result<(), Stop> {
        if level.reserves(index) {
            return Err(Stop::Refused(Errno::Inval));
        }
        let old = Entry(self.machine.load(table, index));
        if new.is_present() {
            if new.has_forbidden_bits(level) {
                return Err(Stop::Refused(Errno::Inval));
            }
            if old.is_like(new) {
                self.store(table, level, index, new, preserves);
                return Ok(());
            }
            self.take_entry(table, level, new)?;
        }
        self.store(table, level, index, new, preserves);
        self.state.unused.extend(self.frames.put_upper(table, level, old));
        Ok(())
    }

    /// Take the references of an entry above L1, and validate the table that it names.
    fn take_entry(&mut self, table: Mfn, level: Level, entry: Entry) -> Result<(), Stop> {
        let below = level.below().ok_or(Errno::Inval)?;
        if entry.mfn() == table {
            let linear = if entry.is_writable() { Err(Errno::Inval) } else { Ok(()) };
            return Ok(linear?);
        }
        match self.take(entry.mfn(), below) {
            Err(Stop::Refused(Errno::Inval)) => Ok(self.frames.take_linear(table, level, entry)?),
            other => other,
        }
    }

    /// Store an entry and tell the engine.
    fn store(&mut self, table: Mfn, level: Level, index: usize, new: Entry, preserves: bool) {
        let mut old = Entry(self.machine.load(table, index));
        let mut stored = new;
        if preserves {
            // The processors' walkers set bits meanwhile; nothing else changes the entry. A machine that says so for
            // ever is not believed.
            for _ in 0..64 {
                stored = new.with_flags_of(old);
                match self.machine.compare_exchange(table, index, old.0, stored.0) {
                    Ok(()) => {
                        return self.machine.changed(Change {
                            table,
                            level,
                            index,
                            old,
                            new: stored,
                        });
                    }
                    Err(now) => old = Entry(now),
                }
            }
        }
        self.machine.store(table, index, stored.0);
        self.machine.changed(Change { table, level, index, old, new: stored });
    }

    /// Carry out demotions as far as nobody waits: what is left is the next operation's.
    fn finish(&mut self) {
        // The operation is done, so the interruption is no news to its caller, who asks `State::is_settled`.
        let _: Result<(), Stop> = self.settle();
    }
}
