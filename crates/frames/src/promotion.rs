//! Promotion and demotion: one table at a time, on a stack that survives an interruption.

use xen_abi::Mfn;
use xen_abi::mmu::RESERVED_SLOTS;

use crate::abi::Errno;
use crate::descriptor::check_descriptor;
use crate::entry::Level;
use crate::limits::{MAX_STEPS, TABLE_ENTRIES};
use crate::machine::{Effects, Memory};
use crate::record::{FrameType, Refused, Taken};
use crate::state::{Goal, Held, Mode, Step, Stop, Tables};
use crate::uses::Use;
use crate::words::Words;

impl<M: Memory + Effects> Tables<'_, M> {
    /// Finish what has been interrupted, whoever had asked for it. Every operation begins with this.
    ///
    /// # Errors
    ///
    /// [`Stop::Yield`].
    pub fn settle(&mut self) -> Result<(), Stop> {
        let mut has_worked = false;
        loop {
            if self.state.stack.is_empty() {
                let Some((table, level)) = self.state.unused.pop() else { return Ok(()) };
                self.push(table, level, TABLE_ENTRIES, Mode::Put(None));
            }
            // Every call gets a table further, or operations that interrupt each other would never end.
            if has_worked && self.machine.should_yield() {
                return Err(Stop::Yield);
            }
            self.step();
            has_worked = true;
        }
    }

    /// Take a reference and a type reference of a page table, and validate it if it is the first.
    pub(crate) fn take(&mut self, table: Mfn, level: Level) -> Result<(), Stop> {
        if let Some(held) = self.state.take_held(self.vcpu) {
            if (held.table, held.level) == (table, level) {
                return held.outcome.map_err(Stop::Refused);
            }
            self.drop_held(held);
            self.settle()?;
        }
        match self.frames.take_table(table, level)? {
            Taken::Counted => Ok(()),
            Taken::First(former) => self.promote(table, level, former),
        }
    }

    /// Validate a table whose first type reference has been taken.
    fn promote(&mut self, table: Mfn, level: Level, former: FrameType) -> Result<(), Stop> {
        self.state.goal = Some(Goal { vcpu: self.vcpu, table, level });
        self.machine.revoke(table, former);
        self.push(table, level, 0, Mode::Validate);
        self.settle()?;
        let held = self.state.take_held(self.vcpu);
        held.map_or(Ok(()), |held| held.outcome.map_err(Stop::Refused))
    }

    /// Put a use of a page table. A demotion that this leads to is only noted: [`Tables::settle`] carries it out.
    pub(crate) fn put(&mut self, table: Mfn, level: Level) {
        self.state.unused.extend(self.frames.put_use(table, level));
    }

    /// Forget the outcome of a promotion whose processor has asked for something else since.
    pub(crate) fn drop_held(&mut self, held: Held) {
        if held.outcome.is_ok() {
            self.put(held.table, held.level);
        }
    }

    fn push(&mut self, table: Mfn, level: Level, next: usize, mode: Mode) {
        self.state.stack.push(Step { table, level, next, mode });
        debug_assert!(self.state.stack.len() <= MAX_STEPS, "{:?}", self.state.stack);
    }

    /// Go on with the table on top of the stack, until it is done or leads to another.
    fn step(&mut self) {
        let Some(step) = self.state.stack.pop() else { return };
        match (step.mode, step.level) {
            (Mode::Validate, Level::L1) => self.validate_leaves(step.table),
            (Mode::Validate, _) => self.validate_uppers(step),
            (Mode::Put(error), Level::L1) => {
                self.put_leaves(step.table, step.next);
                self.has_put(step.table, step.level, error);
            }
            (Mode::Put(error), _) => self.put_uppers(step, error),
        }
    }

    fn validate_leaves(&mut self, table: Mfn) {
        let words = self.words(table);
        let mut next = 0;
        while let Some(index) = words.first_present(next..TABLE_ENTRIES) {
            if let Err(error) = self.frames.take_leaf(words.entry(index)) {
                self.put_leaves(table, index);
                return self.has_put(table, Level::L1, Some(error));
            }
            next = index + 1;
        }
        self.has_validated(table);
    }

    /// Put what the entries below `end` have taken.
    fn put_leaves(&mut self, table: Mfn, end: usize) {
        let words = self.words(table);
        let mut next = 0;
        while let Some(index) = words.first_present(next..end) {
            self.frames.put_leaf(words.entry(index));
            next = index + 1;
        }
    }

    /// What a table has.
    fn words(&self, table: Mfn) -> Words {
        let mut words = Words::zeroed();
        self.machine.load_all(table, &mut words);
        words
    }

    fn validate_uppers(&mut self, mut step: Step) {
        let words = self.words(step.table);
        while let Some(index) = words.first_present(step.next..TABLE_ENTRIES) {
            step.next = index;
            if step.level.reserves(index) {
                step.next += 1;
                continue;
            }
            match self.frames.take_upper(step.table, step.level, words.entry(index)) {
                Ok(Use::Taken) => step.next += 1,
                Ok(Use::Promote(table, level, former)) => {
                    self.state.stack.push(step);
                    self.machine.revoke(table, former);
                    return self.push(table, level, 0, Mode::Validate);
                }
                Err(error) => {
                    step.mode = Mode::Put(Some(error));
                    return self.state.stack.push(step);
                }
            }
        }
        if step.level == Level::L4 {
            self.clear_reserved(step.table);
        }
        self.has_validated(step.table);
    }

    /// Nothing of the guest's is in the hypervisor's slots of a root.
    fn clear_reserved(&mut self, table: Mfn) {
        for index in RESERVED_SLOTS {
            if self.machine.load(table, index) != 0 {
                self.machine.store(table, index, 0);
            }
        }
    }

    /// Put the references of the entries below `step.next`, the last one first.
    fn put_uppers(&mut self, mut step: Step, error: Option<Errno>) {
        let words = self.words(step.table);
        while let Some(index) = words.last_present(step.next) {
            step.next = index;
            if step.level.reserves(index) {
                continue;
            }
            let entry = words.entry(index);
            if let Some((table, level)) = self.frames.put_upper(step.table, step.level, entry) {
                self.state.stack.push(step);
                return self.push(table, level, TABLE_ENTRIES, Mode::Put(None));
            }
        }
        self.has_put(step.table, step.level, error);
    }

    /// The table is validated: its parent goes on with the next entry.
    fn has_validated(&mut self, table: Mfn) {
        if let Some(record) = self.frames.record(table) {
            record.set_validated();
        }
        match self.state.stack.last_mut() {
            Some(parent) => parent.next += 1,
            None => self.end_goal(Ok(())),
        }
    }

    /// Nothing of the table's entries is counted any more: it is no table. With an error it could not become one, and
    /// neither can its parent.
    fn has_put(&mut self, table: Mfn, level: Level, error: Option<Errno>) {
        if let Some(record) = self.frames.record(table) {
            record.clear_type();
        }
        self.machine.demoted(table, level.frame_type());
        self.frames.put_reference(table);
        let Some(error) = error else { return };
        match self.state.stack.last_mut() {
            Some(parent) => parent.mode = Mode::Put(Some(error)),
            None => self.end_goal(Err(error)),
        }
    }

    /// The promotion that was asked for has ended; its processor looks for the outcome.
    fn end_goal(&mut self, outcome: Result<(), Errno>) {
        if let Some(Goal { vcpu, table, level }) = self.state.goal.take() {
            self.state.held.push((vcpu, Held { table, level, outcome }));
        }
    }

    /// Use a frame as a part of a GDT or LDT: all its descriptors are harmless, and made those of privilege level 3.
    ///
    /// # Errors
    ///
    /// [`Errno::Inval`] whatever the reason, or [`Stop::Yield`].
    pub fn take_descriptors(&mut self, mfn: Mfn) -> Result<(), Stop> {
        self.settle()?;
        self.frames.take_reference(mfn).map_err(|_| Errno::Inval)?;
        let taken = self.frames.take_type(mfn, FrameType::Descriptors);
        let checked = taken.map_err(|_: Refused| Errno::Inval).and_then(|taken| match taken {
            Taken::Counted => Ok(()),
            Taken::First(former) => self.validate_descriptors(mfn, former),
        });
        checked.map_err(|error| {
            self.frames.put_reference(mfn);
            Stop::Refused(error)
        })
    }

    fn validate_descriptors(&mut self, mfn: Mfn, former: FrameType) -> Result<(), Errno> {
        self.machine.revoke(mfn, former);
        let words = (0..TABLE_ENTRIES).map(|index| self.machine.load(mfn, index));
        let checked: Option<Vec<u64>> = words.map(check_descriptor).collect();
        let Some(checked) = checked else {
            if let Some(record) = self.frames.record(mfn) {
                record.clear_type();
            }
            self.machine.demoted(mfn, FrameType::Descriptors);
            return Err(Errno::Inval);
        };
        for (index, word) in checked.into_iter().enumerate() {
            if self.machine.load(mfn, index) != word {
                self.machine.store(mfn, index, word);
            }
        }
        if let Some(record) = self.frames.record(mfn) {
            record.set_validated();
        }
        Ok(())
    }

    /// The frame is no part of that GDT or LDT any more.
    pub fn put_descriptors(&mut self, mfn: Mfn) {
        if self.frames.put_type(mfn) {
            self.machine.demoted(mfn, FrameType::Descriptors);
        }
        self.frames.put_reference(mfn);
    }
}
