//! Random scripts of operations, right and wrong ones, beside a naive model: the answers, all counts and all memory
//! are the same after each step, and an audit finds nothing.

use fastrand::Rng;
use frames::{Entry, Errno, FrameType, Level, Outside, Stop};
use xen_abi::Mfn;

use crate::model::Model;
use crate::support::{BASE, Domain, FRAMES, frame};

const STEPS: usize = 4000;

/// Tries of an operation that is interrupted.
const TRIES: usize = 10_000;

/// One step of a script.
#[derive(Clone, Copy, Debug)]
enum Step {
    Update { pointer: u64, value: u64 },
    Pin(Mfn, Level),
    Unpin(Mfn),
    Root { vcpu: usize, mfn: Mfn, is_user: bool },
    UpdateVa { vcpu: usize, address: u64, value: u64 },
    WriteLeaf { table: Mfn, index: usize, value: u64 },
    TakeDescriptors(Mfn),
    PutDescriptors,
    TakeWritable(Mfn),
    PutWritable,
    Release(Mfn),
    Assign(Mfn),
}

/// The level that a frame mostly is used as.
fn usual(index: u64) -> Option<Level> {
    match index % 8 {
        0..=2 => Some(Level::L1),
        3 | 4 => Some(Level::L2),
        5 => Some(Level::L3),
        6 => Some(Level::L4),
        _ => None,
    }
}

/// Slots that are used: few, so that they meet.
const SLOTS: [u64; 8] = [0, 1, 2, 255, 256, 271, 272, 511];

fn any_frame(random: &mut Rng) -> Mfn {
    match random.u64(..60) {
        0 => Mfn(0),
        1 => Mfn(0xff_ffff_ffff),
        2 => frame(FRAMES as u64),
        _ => frame(random.u64(..FRAMES as u64)),
    }
}

/// An entry for a table that mostly is of this level.
fn any_entry(random: &mut Rng, level: Option<Level>) -> u64 {
    if random.u64(..5) == 0 {
        return random.u64(..) & !Entry::PRESENT;
    }
    let mut target = any_frame(random);
    let wanted = level.map_or(0, |level| level as u64);
    for _ in 0..20 {
        let is_usual = usual(target.0.wrapping_sub(BASE)).map_or(1, |level| level as u64 + 1);
        if is_usual == wanted || wanted < 2 {
            break;
        }
        target = if random.u64(..12) == 0 { break } else { any_frame(random) };
    }
    let mut flags = Entry::PRESENT | random.u64(..) & (Entry::WRITABLE | Entry::USER);
    flags |= random.u64(..) & (Entry::ACCESSED | Entry::DIRTY | Entry::NO_EXECUTE);
    if random.u64(..25) == 0 {
        flags |= 1 << random.u64(..12);
    }
    Entry::new(target, flags).0
}

fn any_step(random: &mut Rng) -> Step {
    let mfn = any_frame(random);
    let level = usual(mfn.0.wrapping_sub(BASE));
    let slot = SLOTS[random.u64(..8) as usize];
    let vcpu = random.u64(..2) as usize;
    let any_level = [Level::L1, Level::L2, Level::L3, Level::L4][random.u64(..4) as usize];
    let pinned = if random.u64(..10) == 0 { any_level } else { level.unwrap_or(any_level) };
    match random.u64(..24) {
        0..=9 => {
            let command = [0, 0, 0, 0, 2, 2, 1, 3, 5][random.u64(..9) as usize];
            Step::Update {
                pointer: (mfn.0 << 12) | (slot * 8) | command,
                value: any_entry(random, level),
            }
        }
        10..=12 => Step::Pin(mfn, pinned),
        13 => Step::Unpin(mfn),
        14 | 15 => Step::Root { vcpu, mfn, is_user: random.u64(..2) == 0 },
        16 | 17 => {
            let indices = [39, 30, 21, 12].map(|shift| SLOTS[random.u64(..8) as usize] << shift);
            let address = indices.iter().sum::<u64>();
            let address = ((address << 16) as i64 >> 16) as u64;
            Step::UpdateVa { vcpu, address, value: any_entry(random, Some(Level::L1)) }
        }
        18 => {
            let value = any_entry(random, Some(Level::L1));
            Step::WriteLeaf { table: mfn, index: slot as usize, value }
        }
        19 => Step::TakeDescriptors(mfn),
        20 => Step::PutDescriptors,
        21 if random.u64(..2) == 0 => Step::TakeWritable(mfn),
        21 | 22 => Step::PutWritable,
        _ if random.u64(..2) == 0 => Step::Release(mfn),
        _ => Step::Assign(mfn),
    }
}

/// A run of a script.
struct Run {
    domain: Domain,
    model: Model,
    /// Uses that no table has.
    outside: Vec<Outside>,
}

impl Run {
    /// The engine, asked again for as long as it is interrupted.
    fn ask(
        &mut self,
        mut operation: impl FnMut(&mut Domain) -> Result<(), Stop>,
    ) -> Result<(), Errno> {
        for _ in 0..TRIES {
            match operation(&mut self.domain) {
                Ok(()) => return Ok(()),
                Err(Stop::Refused(errno)) => return Err(errno),
                Err(Stop::Yield) => (),
            }
        }
        panic!("it does not get on");
    }

    /// Take the first use of this type that is outside, if there is one.
    fn take_outside(&mut self, frame_type: FrameType) -> Option<Mfn> {
        let position = self.outside.iter().position(|it| it.frame_type == frame_type)?;
        Some(self.outside.remove(position).mfn)
    }

    fn outside(&mut self, mfn: Mfn, frame_type: FrameType, answer: Result<(), Errno>) {
        if answer.is_ok() {
            self.outside.push(Outside { mfn, frame_type });
        }
    }

    fn put_outside(&mut self, frame_type: FrameType) -> [Result<(), Errno>; 2] {
        if let Some(mfn) = self.take_outside(frame_type) {
            match frame_type {
                FrameType::Writable => self.domain.frames().put_writable(mfn),
                _ => self.domain.tables(0).put_descriptors(mfn),
            }
            let index = self.model.owned(mfn).expect("it is in use");
            self.model.put(index);
        }
        [Ok(()), Ok(())]
    }

    /// The engine's answer and the model's.
    fn carry_out(&mut self, step: Step) -> [Result<(), Errno>; 2] {
        match step {
            Step::Update { pointer, value } => [
                self.ask(|domain| domain.tables(0).update(pointer, value)),
                self.model.attempt(|model| model.update(pointer, value)),
            ],
            Step::Pin(mfn, level) => [
                self.ask(|domain| domain.tables(0).pin(mfn, level)),
                self.model.attempt(|model| model.pin(mfn, level)),
            ],
            Step::Unpin(mfn) => [
                self.ask(|domain| domain.tables(0).unpin(mfn)),
                self.model.attempt(|model| model.unpin(mfn)),
            ],
            Step::Root { vcpu, mfn, is_user } => [
                self.ask(|domain| match is_user {
                    true => domain.tables(vcpu).new_user_baseptr(mfn),
                    false => domain.tables(vcpu).new_baseptr(mfn),
                }),
                self.model.attempt(|model| model.root(vcpu, mfn, is_user)),
            ],
            Step::UpdateVa { vcpu, address, value } => [
                self.ask(|domain| domain.tables(vcpu).update_va_mapping(address, value)),
                self.model.attempt(|model| model.update_va_mapping(vcpu, address, value)),
            ],
            Step::WriteLeaf { table, index, value } => self.write_leaf(table, index, value),
            Step::TakeDescriptors(mfn) => {
                let answer = self.ask(|domain| domain.tables(0).take_descriptors(mfn));
                self.outside(mfn, FrameType::Descriptors, answer);
                let taken = self.model.attempt(|model| model.take(mfn, FrameType::Descriptors));
                [answer, taken.map(drop)]
            }
            Step::PutDescriptors => self.put_outside(FrameType::Descriptors),
            Step::TakeWritable(mfn) => {
                let answer = self.domain.frames().take_writable(mfn).map_err(|_| Errno::Inval);
                self.outside(mfn, FrameType::Writable, answer);
                let taken = self.model.attempt(|model| model.take(mfn, FrameType::Writable));
                [answer, taken.map(drop)]
            }
            Step::PutWritable => self.put_outside(FrameType::Writable),
            Step::Release(mfn) => {
                [self.domain.frames().release(mfn), self.model.attempt(|model| model.release(mfn))]
            }
            Step::Assign(mfn) => {
                [self.domain.frames().assign(mfn), self.model.attempt(|model| model.assign(mfn))]
            }
        }
    }

    fn write_leaf(&mut self, table: Mfn, index: usize, value: u64) -> [Result<(), Errno>; 2] {
        let known = self.model.owned(table);
        let old = known.map_or(0, |known| self.model.memory[known][index]);
        let is_leaf = known.filter(|it| self.model.frames[*it].frame_type == FrameType::L1);
        [
            self.ask(|domain| {
                let written = domain.tables(0).write_leaf(table, index, old, value)?;
                assert!(written, "nobody else writes");
                Ok(())
            }),
            self.model.attempt(|model| {
                let leaf = is_leaf.ok_or(Errno::Inval)?;
                model.write_entry(leaf, Level::L1, index, value, false)
            }),
        ]
    }

    fn compare(&mut self, context: &str) {
        self.ask(|domain| domain.tables(0).settle()).expect("it is never refused");
        let differences = self.domain.tables(0).audit(&self.outside);
        assert_eq!(differences, [], "{context}");
        for index in 0..FRAMES {
            let shown = self.domain.frames().shown(frame(index as u64));
            assert_eq!(shown, Some(self.model.frames[index]), "frame {index}, {context}");
        }
        assert!(self.domain.machine.memory == self.model.memory, "memory, {context}");
        // Only tables' changes have to be told, and a root's clearing is none.
        let untold = std::mem::take(&mut self.domain.machine.untold);
        for (mfn, index, value) in untold {
            let frame_type = self.domain.frames().frame_type(mfn);
            let is_cleared = value == 0 && (256..272).contains(&index);
            let is_plain = matches!(
                frame_type,
                FrameType::None | FrameType::Writable | FrameType::Descriptors
            );
            assert!(is_plain || is_cleared, "{mfn:?} {index} is not told, {context}");
        }
    }
}

/// How many steps were done, and how many were refused.
fn run(seed: u64, yields_in: u64) -> (usize, usize) {
    let domain = Domain::new(yields_in);
    let mut run = Run { domain, model: Model::new(), outside: Vec::new() };
    let mut random = Rng::with_seed(seed | 1);
    let mut counts = (0, 0);
    for number in 0..STEPS {
        let step = any_step(&mut random);
        let context = format!("seed {seed}, step {number}: {step:?}");
        let [answer, expected] = run.carry_out(step);
        assert_eq!(answer, expected, "{context}");
        run.compare(&context);
        match answer {
            Ok(()) => counts.0 += 1,
            Err(_) => counts.1 += 1,
        }
    }
    let is_table = |shown: &&frames::Shown| shown.frame_type == FrameType::L3;
    println!("seed {seed}: {counts:?}, L3s {}", run.model.frames.iter().filter(is_table).count());
    counts
}

#[test]
fn scripts_do_what_the_model_does() {
    for seed in 1..=6 {
        let (done, refused) = run(seed * 7919, 0);
        assert!(done > STEPS / 5 && refused > STEPS / 20, "seed {seed}: {done}, {refused}");
    }
}

#[test]
fn interruptions_change_nothing() {
    for seed in 1..=4 {
        run(seed * 104_729, 1 + seed % 3);
    }
}

/// Two processors, whose operations fall into each other's interruptions.
#[test]
fn processors_that_interrupt_each_other_leave_counts_right() {
    for seed in 1..=4_u64 {
        let mut domain = Domain::new(2);
        let mut random = Rng::with_seed(seed * 15_485_863);
        let mut waiting: [Option<Step>; 2] = [None; 2];
        let mut interruptions = 0;
        for _ in 0..STEPS {
            let vcpu = random.u64(..2) as usize;
            let step = waiting[vcpu].take().unwrap_or_else(|| any_step(&mut random));
            let mut tables = domain.tables(vcpu);
            let result = match step {
                Step::Update { pointer, value } => tables.update(pointer, value),
                Step::Pin(mfn, level) => tables.pin(mfn, level),
                Step::Unpin(mfn) => tables.unpin(mfn),
                Step::Root { mfn, is_user: false, .. } => tables.new_baseptr(mfn),
                Step::Root { mfn, .. } => tables.new_user_baseptr(mfn),
                _ => Ok(()),
            };
            if result == Err(Stop::Yield) {
                interruptions += 1;
                // Now and then a processor does not come back for it.
                waiting[vcpu] = Some(step).filter(|_| random.u64(..4) > 0);
            }
            if domain.state.is_settled() {
                assert_eq!(domain.tables(0).audit(&[]), [], "seed {seed}");
            }
        }
        assert!(interruptions > 20, "only {interruptions} interruptions");
    }
}
