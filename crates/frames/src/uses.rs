//! The references that one entry is: taking them before the entry is stored, and putting them after it is gone.

use xen_abi::Mfn;

use crate::abi::Errno;
use crate::entry::{Entry, Level};
use crate::record::{Absent, FrameType, Frames, Refused, Taken};

/// What an entry of an upper table comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// Its references are taken, or it needs none.
    Taken,
    /// They are taken, and the table that it names has to be validated first; it had this type last.
    Promote(Mfn, Level, FrameType),
}

impl Frames<'_> {
    /// Take the references of a present entry of an L1.
    #[inline]
    pub(crate) fn take_leaf(&self, entry: Entry) -> Result<(), Errno> {
        if entry.has_forbidden_bits(Level::L1) {
            return Err(Errno::Inval);
        }
        let taken = match entry.is_writable() {
            true => self.take_writable(entry.mfn()),
            false => self.take_reference(entry.mfn()).map_err(Refused::Absent),
        };
        taken.map_err(|refused| match refused {
            // A frame that is no memory would be a device's.
            Refused::Absent(Absent::Outside) if entry.names_no_frame() => Errno::Inval,
            Refused::Absent(Absent::Outside) => Errno::Perm,
            Refused::Absent(Absent::Released) | Refused::Type => Errno::Busy,
        })
    }

    /// Put the references of an entry of an L1.
    #[inline]
    pub(crate) fn put_leaf(&self, entry: Entry) {
        match (entry.is_present(), entry.is_writable()) {
            (false, _) => (),
            (true, true) => self.put_writable(entry.mfn()),
            (true, false) => self.put_reference(entry.mfn()),
        }
    }

    /// Take the references of a present entry of a table above L1.
    pub(crate) fn take_upper(&self, table: Mfn, level: Level, entry: Entry) -> Result<Use, Errno> {
        if entry.has_forbidden_bits(level) {
            return Err(Errno::Inval);
        }
        let target = entry.mfn();
        if target == table {
            // A table that maps itself. The guest must not get write access to it this way.
            return if entry.is_writable() { Err(Errno::Inval) } else { Ok(Use::Taken) };
        }
        let below = level.below().ok_or(Errno::Inval)?;
        match self.take_table(target, below) {
            Ok(Taken::Counted) => Ok(Use::Taken),
            Ok(Taken::First(former)) => Ok(Use::Promote(target, below, former)),
            Err(_) => self.take_linear(table, level, entry).map(|()| Use::Taken),
        }
    }

    /// Take a reference and a type reference of a page table. If it is the first, nothing else has been done yet.
    pub(crate) fn take_table(&self, table: Mfn, level: Level) -> Result<Taken, Errno> {
        self.take_reference(table).map_err(|_| Errno::Inval)?;
        let taken = self.take_type(table, level.frame_type());
        taken.map_err(|_| {
            self.put_reference(table);
            Errno::Inval
        })
    }

    /// Take the references of an entry that names another table of the same level, which has to be validated.
    ///
    /// Such entries do not follow each other: a table that has some is named by none.
    pub(crate) fn take_linear(&self, table: Mfn, level: Level, entry: Entry) -> Result<(), Errno> {
        let target = entry.mfn();
        if entry.is_writable() || self.frame_type(target) != level.frame_type() {
            return Err(Errno::Inval);
        }
        let (Some(from), Some(to)) = (self.record(table), self.record(target)) else {
            return Err(Errno::Inval);
        };
        if !from.add_link() {
            return Err(Errno::Inval);
        }
        if !to.add_linked() {
            from.remove_link();
            return Err(Errno::Inval);
        }
        let taken = self.take_table(target, level);
        if taken != Ok(Taken::Counted) {
            to.remove_linked();
            from.remove_link();
            return Err(Errno::Inval);
        }
        Ok(())
    }

    /// Put the references of an entry of a table above L1. If it was the last use of a table, that is returned: its
    /// demotion puts the rest.
    pub(crate) fn put_upper(&self, table: Mfn, level: Level, entry: Entry) -> Option<(Mfn, Level)> {
        let target = entry.mfn();
        if !entry.is_present() || target == table {
            return None;
        }
        let (from, to) = (self.record(table)?, self.record(target)?);
        let is_linear = to.type_info().frame_type() == level.frame_type();
        if is_linear {
            to.remove_linked();
            from.remove_link();
        }
        let level = if is_linear { level } else { level.below()? };
        self.put_use(target, level)
    }

    /// Put a use of a page table; if it was the last one, the table is returned.
    pub(crate) fn put_use(&self, table: Mfn, level: Level) -> Option<(Mfn, Level)> {
        if self.put_table(table) {
            return Some((table, level));
        }
        self.put_reference(table);
        None
    }
}
