//! The record of each machine frame, which processes share: its type and its counts.

use std::sync::atomic::{AtomicU64, Ordering};

use xen_abi::Mfn;

use crate::abi::Errno;

/// What a frame is in use as.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum FrameType {
    /// Nothing that its content would matter for.
    #[default]
    None = 0,
    /// A page table whose entries name memory.
    L1 = 1,
    /// A page table whose entries name L1s.
    L2 = 2,
    /// A page table whose entries name L2s.
    L3 = 3,
    /// The root of an address space.
    L4 = 4,
    /// A part of a GDT or LDT.
    Descriptors = 5,
    /// Memory that the guest, or a back-end for it, writes to.
    Writable = 7,
}

impl FrameType {
    fn of_bits(bits: u64) -> Self {
        match bits {
            1 => Self::L1,
            2 => Self::L2,
            3 => Self::L3,
            4 => Self::L4,
            5 => Self::Descriptors,
            7 => Self::Writable,
            _ => Self::None,
        }
    }
}

/// The first word of a record: {count 32, validated, pinned, type}.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TypeInfo(u64);

impl TypeInfo {
    const COUNT: u64 = u32::MAX as u64;
    const VALIDATED: u64 = 1 << 32;
    const PINNED: u64 = 1 << 33;
    const TYPE_SHIFT: u32 = 40;

    fn new(frame_type: FrameType, count: u32, is_validated: bool) -> Self {
        let validated = if is_validated { Self::VALIDATED } else { 0 };
        Self((frame_type as u64) << Self::TYPE_SHIFT | u64::from(count) | validated)
    }

    pub fn count(self) -> u32 {
        (self.0 & Self::COUNT) as u32
    }

    pub fn frame_type(self) -> FrameType {
        FrameType::of_bits(self.0 >> Self::TYPE_SHIFT & 7)
    }

    pub fn is_validated(self) -> bool {
        self.0 & Self::VALIDATED != 0
    }

    pub fn is_pinned(self) -> bool {
        self.0 & Self::PINNED != 0
    }

    /// The type that the frame is in use as, and validated.
    #[inline]
    pub fn in_use(self) -> Option<FrameType> {
        (self.count() > 0 && self.is_validated()).then(|| self.frame_type())
    }
}

/// The second word of a record: {references 32, linear entries 16, owned, special}.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct References(u64);

impl References {
    const COUNT: u64 = u32::MAX as u64;
    const LINKS_SHIFT: u32 = 32;
    const LINKS: u64 = 0xffff << Self::LINKS_SHIFT;
    const OWNED: u64 = 1 << 62;
    const SPECIAL: u64 = 1 << 61;

    pub fn count(self) -> u32 {
        (self.0 & Self::COUNT) as u32
    }

    pub fn is_owned(self) -> bool {
        self.0 & Self::OWNED != 0
    }

    pub fn is_special(self) -> bool {
        self.0 & Self::SPECIAL != 0
    }

    /// Linear entries: above 0, how many the table has; below, how many name the table.
    pub fn links(self) -> i16 {
        (self.0 >> Self::LINKS_SHIFT) as u16 as i16
    }

    fn with_links(self, links: i16) -> Self {
        Self(self.0 & !Self::LINKS | u64::from(links as u16) << Self::LINKS_SHIFT)
    }
}

/// The record of a frame. All zeroes: the domain does not own the frame.
#[derive(Debug, Default)]
#[repr(C)]
pub struct FrameRecord {
    type_info: AtomicU64,
    references: AtomicU64,
}

const _: () = assert!(size_of::<FrameRecord>() == 16);

impl FrameRecord {
    #[inline]
    pub(crate) fn type_info(&self) -> TypeInfo {
        TypeInfo(self.type_info.load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn references(&self) -> References {
        References(self.references.load(Ordering::Acquire))
    }

    /// Change the first word by what `change` makes of it, if it makes something.
    #[inline]
    fn change_type(
        &self,
        mut change: impl FnMut(TypeInfo) -> Option<TypeInfo>,
    ) -> Option<TypeInfo> {
        let new = |old| change(TypeInfo(old)).map(|new| new.0);
        let result = self.type_info.fetch_update(Ordering::AcqRel, Ordering::Acquire, new);
        result.ok().map(TypeInfo)
    }

    #[inline]
    fn change_references(
        &self,
        mut change: impl FnMut(References) -> Option<References>,
    ) -> Option<References> {
        let new = |old| change(References(old)).map(|new| new.0);
        let result = self.references.fetch_update(Ordering::AcqRel, Ordering::Acquire, new);
        result.ok().map(References)
    }

    /// Add to the linear entries that the table has.
    pub(crate) fn add_link(&self) -> bool {
        let more = |old: References| {
            let links = old.links().checked_add(1).filter(|links| *links > 0)?;
            Some(old.with_links(links))
        };
        self.change_references(more).is_some()
    }

    pub(crate) fn remove_link(&self) {
        self.change_references(|old| (old.links() > 0).then(|| old.with_links(old.links() - 1)));
    }

    /// Add to the linear entries that name the table.
    pub(crate) fn add_linked(&self) -> bool {
        let more = |old: References| {
            let links = old.links().checked_sub(1).filter(|links| *links < 0)?;
            Some(old.with_links(links))
        };
        self.change_references(more).is_some()
    }

    pub(crate) fn remove_linked(&self) {
        self.change_references(|old| (old.links() < 0).then(|| old.with_links(old.links() + 1)));
    }

    /// The type and its count remain, the content has been looked at.
    pub(crate) fn set_validated(&self) {
        self.type_info.fetch_or(TypeInfo::VALIDATED, Ordering::AcqRel);
    }

    /// Whether this has pinned it: it was not before.
    pub(crate) fn set_pinned(&self) -> bool {
        self.type_info.fetch_or(TypeInfo::PINNED, Ordering::AcqRel) & TypeInfo::PINNED == 0
    }

    pub(crate) fn clear_pinned(&self) -> bool {
        self.type_info.fetch_and(!TypeInfo::PINNED, Ordering::AcqRel) & TypeInfo::PINNED != 0
    }

    /// The frame has no type any more.
    pub(crate) fn clear_type(&self) {
        self.type_info.store(0, Ordering::Release);
    }
}

/// What a record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shown {
    /// What the frame is in use as.
    pub frame_type: FrameType,
    /// How often it is used as that.
    pub uses: u32,
    /// How often it is used at all.
    pub references: u32,
    /// It stays a page table until it is unpinned.
    pub is_pinned: bool,
    /// It is the domain's.
    pub is_owned: bool,
}

/// Why a frame cannot be referred to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Absent {
    /// There is no such frame in the domain's space.
    Outside,
    /// The domain has given it back, or has not been given it yet; or it has as many references as can be counted.
    Released,
}

/// Why a frame cannot be used as a type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// It cannot even be referred to.
    Absent(Absent),
    /// It is in use as another.
    Type,
}

impl From<Absent> for Refused {
    fn from(absent: Absent) -> Self {
        Self::Absent(absent)
    }
}

/// What taking a reference of a type comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taken {
    /// The frame is in use as this type.
    Counted,
    /// The frame has the type from now on, and its content has to be validated; it had this type last.
    First(FrameType),
}

/// The records of a domain's frames, from its first frame on. Threads and processes share them.
#[derive(Clone, Copy, Debug)]
pub struct Frames<'f> {
    base: u64,
    records: &'f [FrameRecord],
}

impl<'f> Frames<'f> {
    /// Records of the frames from `base` on.
    pub fn new(base: Mfn, records: &'f [FrameRecord]) -> Self {
        Self { base: base.0, records }
    }

    #[inline]
    pub(crate) fn record(&self, mfn: Mfn) -> Option<&'f FrameRecord> {
        self.records.get(usize::try_from(mfn.0.checked_sub(self.base)?).ok()?)
    }

    /// All frames that there are records of.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Mfn, &'f FrameRecord)> + use<'f> {
        let base = self.base;
        self.records
            .iter()
            .enumerate()
            .map(move |(index, record)| (Mfn(base + index as u64), record))
    }

    /// No frame is the domain's, nor in use as anything: the machine is switched off, and nobody uses it.
    pub fn clear(&self) {
        for record in self.records {
            record.type_info.store(0, Ordering::Release);
            record.references.store(0, Ordering::Release);
        }
    }

    /// What the record says of a frame, for debuggers and tests.
    pub fn shown(&self, mfn: Mfn) -> Option<Shown> {
        let record = self.record(mfn)?;
        let (type_info, references) = (record.type_info(), record.references());
        let uses = type_info.count();
        Some(Shown {
            frame_type: if uses > 0 { type_info.frame_type() } else { FrameType::None },
            uses,
            references: references.count(),
            is_pinned: type_info.is_pinned(),
            is_owned: references.is_owned(),
        })
    }

    /// What the frame is in use as.
    #[inline]
    pub fn frame_type(&self, mfn: Mfn) -> FrameType {
        let in_use = self.record(mfn).and_then(|record| record.type_info().in_use());
        in_use.unwrap_or_default()
    }

    /// The frames that are the domain's memory, in rising order: not those that the hypervisor shares with it.
    pub fn owned(&self) -> impl Iterator<Item = Mfn> + use<'f> {
        let is_memory = |record: &FrameRecord| {
            let references = record.references();
            references.is_owned() && !references.is_special()
        };
        self.all().filter(move |(_, record)| is_memory(record)).map(|(mfn, _)| mfn)
    }

    /// The tables that stay such until they are unpinned, in rising order, with their types.
    pub fn pinned(&self) -> impl Iterator<Item = (Mfn, FrameType)> + use<'f> {
        let pinned = self.all().filter(|(_, record)| record.type_info().is_pinned());
        pinned.map(|(mfn, record)| (mfn, record.type_info().frame_type()))
    }

    /// References of the frame, whatever for.
    pub fn references(&self, mfn: Mfn) -> u32 {
        self.record(mfn).map_or(0, |record| record.references().count())
    }

    /// Give the frame to the domain. It was not the domain's.
    ///
    /// # Errors
    ///
    /// `Inval` if there is no such frame, or it is the domain's.
    pub fn assign(&self, mfn: Mfn) -> Result<(), Errno> {
        let record = self.record(mfn).ok_or(Errno::Inval)?;
        let give = |old: References| (old.0 == 0).then_some(References(References::OWNED));
        record.change_references(give).map(drop).ok_or(Errno::Inval)
    }

    /// Give the domain a frame of the hypervisor's, such as shared_info: it stays what it is, writable or read-only,
    /// and is never released.
    ///
    /// # Errors
    ///
    /// As for [`Frames::assign`].
    pub fn assign_special(&self, mfn: Mfn, is_writable: bool) -> Result<(), Errno> {
        let record = self.record(mfn).ok_or(Errno::Inval)?;
        let bits = References::OWNED | References::SPECIAL | 1;
        let give = |old: References| (old.0 == 0).then_some(References(bits));
        record.change_references(give).ok_or(Errno::Inval)?;
        let frame_type = if is_writable { FrameType::Writable } else { FrameType::None };
        record.change_type(|_| Some(TypeInfo::new(frame_type, 1, true)));
        Ok(())
    }

    /// Take the frame from the domain, if nothing refers to it. The caller gives and takes frames one at a time.
    ///
    /// # Errors
    ///
    /// `Inval` if the frame is not the domain's, `Busy` if something refers to it.
    pub fn release(&self, mfn: Mfn) -> Result<(), Errno> {
        let record = self.record(mfn).ok_or(Errno::Inval)?;
        if !record.references().is_owned() {
            return Err(Errno::Inval);
        }
        let last = References(References::OWNED);
        let taken = record.change_references(|old| (old == last).then_some(References(0)));
        taken.ok_or(Errno::Busy)?;
        // Without references there is no use as a type either, and nobody else takes one now.
        record.clear_type();
        Ok(())
    }

    /// Take back what [`Frames::assign_special`] gave, if nothing else refers to it.
    ///
    /// # Errors
    ///
    /// As for [`Frames::release`].
    pub fn release_special(&self, mfn: Mfn) -> Result<(), Errno> {
        let record = self.record(mfn).ok_or(Errno::Inval)?;
        let last = References(References::OWNED | References::SPECIAL | 1);
        let taken = record.change_references(|old| (old == last).then_some(References(0)));
        taken.ok_or(Errno::Busy)?;
        record.clear_type();
        Ok(())
    }

    /// Refer to the frame, which stays the domain's until [`Frames::put_reference`].
    ///
    /// # Errors
    ///
    /// [`Absent`].
    #[inline]
    pub fn take_reference(&self, mfn: Mfn) -> Result<(), Absent> {
        let record = self.record(mfn).ok_or(Absent::Outside)?;
        let more = |old: References| {
            (old.is_owned() && old.count() < u32::MAX).then_some(References(old.0 + 1))
        };
        record.change_references(more).map(drop).ok_or(Absent::Released)
    }

    /// Put what [`Frames::take_reference`] took.
    #[inline]
    pub fn put_reference(&self, mfn: Mfn) {
        let less = |old: References| (old.count() > 0).then(|| References(old.0 - 1));
        let put = self.record(mfn).and_then(|record| record.change_references(less));
        debug_assert!(put.is_some(), "no reference of {mfn:?} to put");
    }

    /// Use the frame for writing: no promotion of it succeeds until [`Frames::put_writable`]. Back-ends do this for
    /// as long as a request is under way.
    ///
    /// # Errors
    ///
    /// [`Refused`].
    #[inline]
    pub fn take_writable(&self, mfn: Mfn) -> Result<(), Refused> {
        self.take_reference(mfn)?;
        let taken = self.take_type(mfn, FrameType::Writable);
        taken.map(drop).inspect_err(|_| self.put_reference(mfn))
    }

    /// Put what [`Frames::take_writable`] took.
    #[inline]
    pub fn put_writable(&self, mfn: Mfn) {
        self.put_type(mfn);
        self.put_reference(mfn);
    }

    /// Take a type reference; the caller has a reference of the frame.
    #[inline]
    pub(crate) fn take_type(&self, mfn: Mfn, wanted: FrameType) -> Result<Taken, Refused> {
        let record = self.record(mfn).ok_or(Refused::Absent(Absent::Outside))?;
        let more = |old: TypeInfo| {
            let is_same = old.frame_type() == wanted && old.is_validated();
            match old.count() {
                0 if is_same => Some(TypeInfo(old.0 + 1)),
                0 => Some(TypeInfo::new(wanted, 1, wanted == FrameType::Writable)),
                u32::MAX => None,
                _ => is_same.then_some(TypeInfo(old.0 + 1)),
            }
        };
        let old = record.change_type(more).ok_or(Refused::Type)?;
        let is_counted =
            wanted == FrameType::Writable || old.frame_type() == wanted && old.is_validated();
        Ok(if is_counted { Taken::Counted } else { Taken::First(old.frame_type()) })
    }

    /// Put a type reference; whether it was the last one.
    ///
    /// A frame that was writable is remembered as that, for the next promotion to know. Page tables are not put by
    /// this ([`Frames::put_table`]).
    #[inline]
    pub(crate) fn put_type(&self, mfn: Mfn) -> bool {
        let less = |old: TypeInfo| match old.count() {
            0 => None,
            1 if old.frame_type() != FrameType::Writable => Some(TypeInfo(0)),
            _ => Some(TypeInfo(old.0 - 1)),
        };
        let old = self.record(mfn).and_then(|record| record.change_type(less));
        debug_assert!(old.is_some(), "no type reference of {mfn:?} to put");
        old.is_some_and(|old| old.count() == 1)
    }

    /// Put a type reference of a page table. Whether it is the last one: then it remains, until the demotion that
    /// the caller sees to, and the table is not validated any more.
    pub(crate) fn put_table(&self, mfn: Mfn) -> bool {
        let less = |old: TypeInfo| match old.count() {
            0 => None,
            1 => Some(TypeInfo(old.0 & !TypeInfo::VALIDATED)),
            _ => Some(TypeInfo(old.0 - 1)),
        };
        let old = self.record(mfn).and_then(|record| record.change_type(less));
        debug_assert!(old.is_some(), "no type reference of {mfn:?} to put");
        old.is_some_and(|old| old.count() == 1)
    }
}
