//! All counts once more, from the roots: what the records must say.

use std::collections::{BTreeMap, BTreeSet};

use crate::entry::{Entry, Level};
use crate::limits::TABLE_ENTRIES;
use crate::machine::Memory;
use crate::record::{FrameType, References, TypeInfo};
use crate::state::Tables;
use xen_abi::Mfn;

/// A use of a frame that is no entry, pin or base pointer: a part of a descriptor table, a grant in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outside {
    /// The frame.
    pub mfn: Mfn,
    /// [`FrameType::None`]: a reference alone.
    pub frame_type: FrameType,
}

/// A record that does not say what it must.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Difference {
    /// The frame.
    pub mfn: Mfn,
    /// What was counted.
    pub what: &'static str,
    /// What the record says.
    pub recorded: i64,
    /// What the walk found.
    pub found: i64,
}

/// The uses of a frame.
#[derive(Clone, Copy, Default)]
struct Uses {
    references: i64,
    types: [i64; 8],
    links: i64,
}

/// What has been found of a domain.
#[derive(Default)]
struct Found {
    uses: BTreeMap<Mfn, Uses>,
    /// Tables that have been found and not looked at.
    open: Vec<(Mfn, Level)>,
    seen: BTreeSet<Mfn>,
}

impl Found {
    fn add(&mut self, mfn: Mfn, frame_type: FrameType) {
        let uses = self.uses.entry(mfn).or_default();
        uses.references += 1;
        if frame_type != FrameType::None {
            uses.types[frame_type as usize] += 1;
        }
        if let Some(level) = Level::of_type(frame_type)
            && self.seen.insert(mfn)
        {
            self.open.push((mfn, level));
        }
    }

    fn add_entry(&mut self, table: Mfn, level: Level, entry: Entry, target_type: FrameType) {
        let target = entry.mfn();
        let Some(below) = level.below() else {
            let is_writable = entry.is_writable();
            let frame_type = if is_writable { FrameType::Writable } else { FrameType::None };
            return self.add(target, frame_type);
        };
        if target == table {
            return;
        }
        if target_type == level.frame_type() {
            self.uses.entry(table).or_default().links += 1;
            self.uses.entry(target).or_default().links -= 1;
            return self.add(target, target_type);
        }
        self.add(target, below.frame_type());
    }
}

impl<M: Memory> Tables<'_, M> {
    /// Compare all records with what a walk from the roots finds. Nothing may be interrupted
    /// ([`State::is_settled`](crate::State::is_settled)), or the difference is reported.
    pub fn audit(&self, outside: &[Outside]) -> Vec<Difference> {
        let mut found = Found::default();
        for (mfn, record) in self.frames.all() {
            if record.references().is_special() {
                found.add(mfn, record.type_info().frame_type());
            }
            if record.type_info().is_pinned() {
                found.add(mfn, record.type_info().frame_type());
            }
        }
        for roots in self.state.roots.values() {
            for root in [roots.kernel, roots.user].into_iter().flatten() {
                found.add(root, FrameType::L4);
            }
        }
        for (_, held) in self.state.held.iter().filter(|(_, held)| held.outcome.is_ok()) {
            found.add(held.table, held.level.frame_type());
        }
        for use_of in outside {
            found.add(use_of.mfn, use_of.frame_type);
        }
        while let Some((table, level)) = found.open.pop() {
            self.look(&mut found, table, level);
        }
        self.compare(&found)
    }

    fn look(&self, found: &mut Found, table: Mfn, level: Level) {
        if self.frames.record(table).is_none() {
            return;
        }
        for index in (0..TABLE_ENTRIES).filter(|index| !level.reserves(*index)) {
            let entry = Entry(self.machine.load(table, index));
            if entry.is_present() {
                let target_type = self.frames.frame_type(entry.mfn());
                found.add_entry(table, level, entry, target_type);
            }
        }
    }

    fn compare(&self, found: &Found) -> Vec<Difference> {
        let mut differences = Vec::new();
        for (mfn, record) in self.frames.all() {
            let uses = found.uses.get(&mfn).copied().unwrap_or_default();
            let words = (record.type_info(), record.references());
            compare_frame(mfn, words, uses, &mut differences);
        }
        let unknown = found.uses.keys().filter(|mfn| self.frames.record(**mfn).is_none());
        differences.extend(unknown.map(|mfn| {
            let found = found.uses[mfn].references;
            Difference { mfn: *mfn, what: "references of no frame", recorded: 0, found }
        }));
        differences
    }
}

fn compare_frame(
    mfn: Mfn,
    (type_info, references): (TypeInfo, References),
    uses: Uses,
    differences: &mut Vec<Difference>,
) {
    let mut compare = |what, recorded, found| {
        if recorded != found {
            differences.push(Difference { mfn, what, recorded, found });
        }
    };
    let frame_type = type_info.frame_type();
    // A special frame that is read-only is in use as no type.
    let is_fixed = references.is_special() && frame_type == FrameType::None;
    let count = i64::from(type_info.count()) - i64::from(is_fixed);
    let others: i64 = uses.types.iter().sum::<i64>() - uses.types[frame_type as usize];
    compare("uses as its type", count, uses.types[frame_type as usize]);
    compare("uses as another type", 0, others);
    compare("references", i64::from(references.count()), uses.references);
    compare("linear entries", i64::from(references.links()), uses.links);
    compare(
        "uses before validation",
        0,
        match type_info.is_validated() {
            true => 0,
            false => i64::from(type_info.count()),
        },
    );
    compare(
        "references of a frame not owned",
        0,
        match references.is_owned() {
            true => 0,
            false => uses.references,
        },
    );
}
