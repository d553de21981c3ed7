//! A machine of a few frames, which checks that it hears of what it must.

use std::collections::BTreeMap;

use fastrand::Rng;
use frames::{Change, Effects, Entry, FrameRecord, FrameType, Frames, Memory, State, Tables};
use xen_abi::Mfn;

/// The first frame of the domain.
pub const BASE: u64 = 0x10000;

/// Frames that there are.
pub const FRAMES: usize = 40;

/// The memory and the engine.
pub struct Machine {
    pub memory: Vec<[u64; 512]>,
    pub physical: BTreeMap<u64, u64>,
    /// What was stored and `changed` has not been called for: frame and index.
    pub untold: Vec<(Mfn, usize, u64)>,
    /// Frames that could be written to, had they not been revoked: by the last `revoke`.
    pub revoked: Vec<(Mfn, FrameType)>,
    pub demoted: Vec<(Mfn, FrameType)>,
    pub changes: Vec<Change>,
    /// Answers to `should_yield`: yes, one time out of so many; never if 0.
    pub yields_in: u64,
    pub random: Rng,
}

impl Machine {
    fn index(mfn: Mfn) -> usize {
        usize::try_from(mfn.0 - BASE).expect("it is the domain's")
    }
}

impl Memory for Machine {
    fn load(&self, mfn: Mfn, index: usize) -> u64 {
        self.memory[Self::index(mfn)][index]
    }

    fn store(&mut self, mfn: Mfn, index: usize, value: u64) {
        self.memory[Self::index(mfn)][index] = value;
        self.untold.push((mfn, index, value));
    }

    fn compare_exchange(
        &mut self,
        mfn: Mfn,
        index: usize,
        expected: u64,
        value: u64,
    ) -> Result<(), u64> {
        let now = self.load(mfn, index);
        if now != expected {
            return Err(now);
        }
        self.store(mfn, index, value);
        Ok(())
    }

    fn set_physical(&mut self, mfn: Mfn, pfn: u64) {
        self.physical.insert(mfn.0, pfn);
    }
}

impl Effects for Machine {
    fn revoke(&mut self, mfn: Mfn, former: FrameType) {
        self.revoked.push((mfn, former));
    }

    fn demoted(&mut self, mfn: Mfn, former: FrameType) {
        self.demoted.push((mfn, former));
    }

    fn changed(&mut self, change: Change) {
        let stored = self.untold.pop();
        assert_eq!(stored, Some((change.table, change.index, change.new.0)), "stored, then told");
        self.changes.push(change);
    }

    fn should_yield(&mut self) -> bool {
        self.yields_in > 0 && self.random.u64(..self.yields_in) == 0
    }
}

/// A domain with all its frames assigned.
pub struct Domain {
    pub records: Vec<FrameRecord>,
    pub state: State,
    pub machine: Machine,
}

impl Domain {
    pub fn new(yields_in: u64) -> Self {
        let records: Vec<_> = (0..FRAMES).map(|_| FrameRecord::default()).collect();
        let machine = Machine {
            memory: vec![[0; 512]; FRAMES],
            physical: BTreeMap::new(),
            untold: Vec::new(),
            revoked: Vec::new(),
            demoted: Vec::new(),
            changes: Vec::new(),
            yields_in,
            random: Rng::with_seed(0x1234_5678_9abc),
        };
        let domain = Self { records, state: State::default(), machine };
        for index in 0..FRAMES as u64 {
            domain.frames().assign(frame(index)).expect("it is new");
        }
        domain
    }

    /// A domain whose frames 0 to 2 name the next one each, as tables with writable entries.
    pub fn with_chain(yields_in: u64) -> Self {
        let mut domain = Self::new(yields_in);
        domain.chain();
        domain
    }

    /// Have frames 0 to 2 name the next one each.
    pub fn chain(&mut self) {
        for table in 0..3 {
            self.write(table, 0, entry(table + 1, Entry::WRITABLE));
        }
    }

    pub fn frames(&self) -> Frames<'_> {
        Frames::new(Mfn(BASE), &self.records)
    }

    pub fn tables(&mut self, vcpu: usize) -> Tables<'_, Machine> {
        let frames = Frames::new(Mfn(BASE), &self.records);
        Tables::new(frames, &mut self.state, &mut self.machine, vcpu)
    }

    /// Put an entry where nothing looks yet.
    pub fn write(&mut self, table: u64, index: usize, entry: Entry) {
        self.machine.memory[usize::try_from(table).expect("it is small")][index] = entry.0;
    }
}

pub fn frame(index: u64) -> Mfn {
    Mfn(BASE + index)
}

/// A present entry; `W` in `flags` is `Entry::WRITABLE`.
pub fn entry(index: u64, flags: u64) -> Entry {
    Entry::new(frame(index), Entry::PRESENT | flags)
}
