//! The rules once more, written naively: recursive, on a copy of everything, which a failure throws away.

use frames::{Entry, Errno, FrameType, Level, Shown, check_descriptor};
use xen_abi::Mfn;

use crate::support::{BASE, FRAMES};

#[derive(Clone)]
pub struct Model {
    pub frames: Vec<Shown>,
    pub memory: Vec<[u64; 512]>,
    /// Linear entries that a table has, and that name it.
    links: Vec<(u32, u32)>,
    pub kernel: [Option<usize>; 2],
    pub user: [Option<usize>; 2],
}

type Answer = Result<(), Errno>;

fn ensure(condition: bool, errno: Errno) -> Answer {
    if condition { Ok(()) } else { Err(errno) }
}

fn level_of(frame_type: FrameType) -> Option<Level> {
    [Level::L1, Level::L2, Level::L3, Level::L4]
        .into_iter()
        .find(|level| level.frame_type() == frame_type)
}

fn below(level: Level) -> FrameType {
    [FrameType::None, FrameType::L1, FrameType::L2, FrameType::L3][level as usize - 1]
}

const FORBIDDEN: u64 = Entry::WRITE_THROUGH | Entry::CACHE_DISABLED | Entry::LARGE;

impl Model {
    pub fn new() -> Self {
        let shown = Shown { is_owned: true, ..Shown::default() };
        Self {
            frames: vec![shown; FRAMES],
            memory: vec![[0; 512]; FRAMES],
            links: vec![(0, 0); FRAMES],
            kernel: [None; 2],
            user: [None; 2],
        }
    }

    /// Do something wholly or not at all.
    pub fn attempt<T>(
        &mut self,
        operation: impl FnOnce(&mut Self) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let mut copy = self.clone();
        let result = operation(&mut copy)?;
        *self = copy;
        Ok(result)
    }

    fn index(mfn: Mfn) -> Option<usize> {
        let index = usize::try_from(mfn.0.checked_sub(BASE)?).ok()?;
        (index < FRAMES).then_some(index)
    }

    pub fn owned(&self, mfn: Mfn) -> Option<usize> {
        Self::index(mfn).filter(|index| self.frames[*index].is_owned)
    }

    /// A reference and a use as this type.
    pub fn take(&mut self, mfn: Mfn, wanted: FrameType) -> Result<usize, Errno> {
        let index = self.owned(mfn).ok_or(Errno::Inval)?;
        let frame = &mut self.frames[index];
        ensure(frame.uses == 0 || frame.frame_type == wanted, Errno::Inval)?;
        frame.references += 1;
        frame.frame_type = wanted;
        frame.uses += 1;
        if frame.uses == 1 {
            self.validate(index, wanted)?;
        }
        Ok(index)
    }

    fn validate(&mut self, index: usize, wanted: FrameType) -> Answer {
        if wanted == FrameType::Descriptors {
            for word in &mut self.memory[index] {
                *word = check_descriptor(*word).ok_or(Errno::Inval)?;
            }
        }
        let Some(level) = level_of(wanted) else { return Ok(()) };
        for slot in 0..512 {
            let entry = Entry(self.memory[index][slot]);
            match level {
                Level::L4 if (256..272).contains(&slot) => (),
                _ => self.take_entry(index, level, entry)?,
            }
        }
        if level == Level::L4 {
            self.memory[index][256..272].fill(0);
        }
        Ok(())
    }

    fn take_entry(&mut self, table: usize, level: Level, entry: Entry) -> Answer {
        if !entry.is_present() {
            return Ok(());
        }
        let global = if level == Level::L1 { 0 } else { Entry::GLOBAL };
        ensure(entry.0 & (FORBIDDEN | global) == 0, Errno::Inval)?;
        if level == Level::L1 {
            return self.take_leaf(entry);
        }
        let target = self.owned(entry.mfn()).ok_or(Errno::Inval)?;
        let (there, is_linear) = (self.frames[target], !entry.is_writable());
        if target == table {
            return ensure(is_linear, Errno::Inval);
        }
        if there.uses > 0 && there.frame_type == level.frame_type() {
            // Linear, so it has to be validated: it is not while it is being looked at, which its counts do not
            // show here. A table of the same level as one above it is always complete.
            ensure(is_linear && self.links[table].1 == 0, Errno::Inval)?;
            ensure(self.links[target].0 == 0, Errno::Inval)?;
            self.links[table].0 += 1;
            self.links[target].1 += 1;
            return self.take(entry.mfn(), level.frame_type()).map(drop);
        }
        self.take(entry.mfn(), below(level)).map(drop)
    }

    fn take_leaf(&mut self, entry: Entry) -> Answer {
        let mfn = entry.mfn();
        if Self::index(mfn).is_none() {
            return Err(if mfn.0 == 0xff_ffff_ffff { Errno::Inval } else { Errno::Perm });
        }
        let target = self.owned(mfn).ok_or(Errno::Busy)?;
        if entry.is_writable() {
            return self.take(mfn, FrameType::Writable).map(drop).map_err(|_| Errno::Busy);
        }
        self.frames[target].references += 1;
        Ok(())
    }

    /// Put a reference and a use.
    pub fn put(&mut self, index: usize) {
        let frame_type = self.frames[index].frame_type;
        if self.frames[index].uses == 1 {
            if let Some(level) = level_of(frame_type) {
                for slot in 0..512 {
                    let entry = Entry(self.memory[index][slot]);
                    self.put_entry(index, level, entry);
                }
            }
            self.frames[index].frame_type = FrameType::None;
        }
        self.frames[index].uses -= 1;
        self.frames[index].references -= 1;
    }

    fn put_entry(&mut self, table: usize, level: Level, entry: Entry) {
        let Some(target) = Self::index(entry.mfn()).filter(|_| entry.is_present()) else { return };
        if level == Level::L1 && !entry.is_writable() {
            self.frames[target].references -= 1;
            return;
        }
        if level != Level::L1 && target == table {
            return;
        }
        if self.frames[target].frame_type == level.frame_type() {
            self.links[table].0 -= 1;
            self.links[target].1 -= 1;
        }
        self.put(target);
    }

    pub fn pin(&mut self, mfn: Mfn, level: Level) -> Answer {
        let index = self.take(mfn, level.frame_type())?;
        ensure(!std::mem::replace(&mut self.frames[index].is_pinned, true), Errno::Inval)
    }

    pub fn unpin(&mut self, mfn: Mfn) -> Answer {
        let index = self.owned(mfn).ok_or(Errno::Inval)?;
        ensure(std::mem::take(&mut self.frames[index].is_pinned), Errno::Inval)?;
        self.put(index);
        Ok(())
    }

    pub fn root(&mut self, vcpu: usize, mfn: Mfn, is_user: bool) -> Answer {
        let roots = |model: &mut Self| match is_user {
            true => model.user[vcpu],
            false => model.kernel[vcpu],
        };
        let old = roots(self);
        let new = match is_user && mfn == Mfn(0) {
            true => None,
            false if old.is_some() && old == Self::index(mfn) => return Ok(()),
            false => Some(self.take(mfn, FrameType::L4)?),
        };
        match is_user {
            true => self.user[vcpu] = new,
            false => self.kernel[vcpu] = new,
        }
        old.into_iter().for_each(|old| self.put(old));
        Ok(())
    }

    pub fn update(&mut self, pointer: u64, value: u64) -> Answer {
        ensure(pointer & 7 < 4, Errno::NoSys)?;
        let index = self.owned(Mfn(pointer >> 12)).ok_or(Errno::Inval)?;
        if pointer & 7 == 1 {
            return Ok(());
        }
        let slot = (pointer & 0xfff) as usize / 8;
        let in_use = self.frames[index];
        let level = level_of(in_use.frame_type);
        if in_use.uses == 0 || in_use.frame_type == FrameType::Writable {
            self.memory[index][slot] = value;
            return Ok(());
        }
        self.write_entry(index, level.ok_or(Errno::Inval)?, slot, value, pointer & 7 == 2)
    }

    pub fn write_entry(
        &mut self,
        index: usize,
        level: Level,
        slot: usize,
        value: u64,
        preserves: bool,
    ) -> Answer {
        ensure(level != Level::L4 || !(256..272).contains(&slot), Errno::Inval)?;
        let old = self.memory[index][slot];
        self.take_entry(index, level, Entry(value))?;
        let kept = if preserves { old & (Entry::ACCESSED | Entry::DIRTY) } else { 0 };
        self.memory[index][slot] = value | kept;
        self.put_entry(index, level, Entry(old));
        Ok(())
    }

    pub fn update_va_mapping(&mut self, vcpu: usize, address: u64, value: u64) -> Answer {
        let mut table = self.kernel[vcpu].ok_or(Errno::Inval)?;
        ensure(!(256..272).contains(&(address >> 39 & 511)), Errno::Inval)?;
        for shift in [39, 30, 21] {
            let entry = Entry(self.memory[table][(address >> shift) as usize & 511]);
            ensure(entry.is_present(), Errno::Inval)?;
            table = self.owned(entry.mfn()).ok_or(Errno::Inval)?;
        }
        ensure(self.frames[table].frame_type == FrameType::L1, Errno::Inval)?;
        self.write_entry(table, Level::L1, (address >> 12) as usize & 511, value, false)
    }

    pub fn release(&mut self, mfn: Mfn) -> Answer {
        let index = self.owned(mfn).ok_or(Errno::Inval)?;
        ensure(self.frames[index].references == 0, Errno::Busy)?;
        self.frames[index] = Shown::default();
        Ok(())
    }

    pub fn assign(&mut self, mfn: Mfn) -> Answer {
        let index = Self::index(mfn).ok_or(Errno::Inval)?;
        ensure(!self.frames[index].is_owned, Errno::Inval)?;
        self.frames[index].is_owned = true;
        Ok(())
    }
}
