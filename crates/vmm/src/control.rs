//! How a machine ends or stands still: from any of its processors, or from outside, and for all of them.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, mpsc};
use std::time::Duration;

use cpu::{Stopped, Vcpu};
use locks::Unpoisoned;
use machine::saved::Busy;

use crate::activity::Activity;
use crate::hold::{Hold, Task};
use crate::limits::MAX_PROCESSORS;
use crate::outcome::{Error, Outcome};
use crate::waker::Waker;

/// One of the processors has come to an end.
const ENDED: u32 = 1;
/// A thread outside has stopped the machine, for good.
const STOPPED: u32 = 2;
/// The processors are to stand still.
const PAUSED: u32 = 4;
/// The power button has been pushed.
const BUTTON: u32 = 8;
/// A debugger holds the processors, but for those that it has released.
const HELD: u32 = 16;
/// The first vCPU is to report what it does; the next bit is for the second one.
const REPORT: u32 = 1 << 16;

const _: () = assert!(MAX_PROCESSORS <= 16);

/// Shared by all threads that can end a machine. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Control {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// [`ENDED`], [`STOPPED`], [`PAUSED`], [`BUTTON`], [`HELD`], and [`REPORT`] for each processor.
    orders: AtomicU32,
    /// The result of the first thread that ended the machine. Nothing else is locked under it.
    result: Mutex<Option<Result<Outcome, Error>>>,
    /// Which vCPUs are paused, and what they are asked. Nothing else is locked under it.
    still: Mutex<Still>,
    /// That has changed, or whether they are to stand still.
    still_changed: Condvar,
    /// What a debugger has to do with it, once there is one.
    hold: Hold,
    /// What each processor has done.
    counters: Vec<Counters>,
    wakers: Vec<Waker>,
}

/// What a processor that stands still is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    /// The state of what all processors share. For the first one.
    Shared,
    /// Its own state.
    Own,
    /// Let devices go on. For the first one.
    Thaw,
}

/// A state, as bytes.
pub(crate) type Answer = Result<Vec<u8>, Busy>;

#[derive(Debug, Default)]
struct Still {
    /// How many processors stand still.
    count: usize,
    /// What they are asked, and how many questions there have been.
    question: Option<Question>,
    questions: u64,
    answers: Vec<(usize, Answer)>,
    /// What a debugger has a processor do, which stands still.
    tasks: Vec<(usize, Task)>,
}

impl Still {
    /// The next task of a processor's.
    fn take_task(&mut self, processor: usize) -> Option<Task> {
        let place = self.tasks.iter().position(|(of, _)| *of == processor)?;
        Some(self.tasks.remove(place).1)
    }
}

/// What is wanted of a processor that stands still.
pub(crate) enum Wanted {
    /// An answer.
    Answer(Question),
    /// Something for a debugger.
    Work(Task),
}

/// What a processor has said of its [`Activity`].
#[derive(Debug, Default)]
struct Counters {
    exits: AtomicU64,
    interrupts: AtomicU64,
    halts: AtomicU64,
}

impl Control {
    /// Over the processors behind these wakers.
    pub(crate) fn new(wakers: Vec<Waker>) -> Self {
        let counters = wakers.iter().map(|_| Counters::default()).collect();
        let shared = Shared {
            orders: AtomicU32::new(0),
            result: Mutex::new(None),
            still: Mutex::default(),
            still_changed: Condvar::new(),
            hold: Hold::default(),
            counters,
            wakers,
        };
        Self { shared: Arc::new(shared) }
    }

    /// The waker of a processor.
    pub(crate) fn waker(&self, processor: usize) -> &Waker {
        &self.shared.wakers[processor]
    }

    /// Those of all processors.
    pub(crate) fn wakers(&self) -> &[Waker] {
        &self.shared.wakers
    }

    /// Whether there is anything that [`Self::is_over`] and [`Self::take_report`] tell.
    #[inline]
    pub(crate) fn has_orders(&self) -> bool {
        self.shared.orders.load(Ordering::Acquire) != 0
    }

    /// Whether the processors are to return.
    pub(crate) fn is_over(&self) -> bool {
        self.shared.orders.load(Ordering::Acquire) & (ENDED | STOPPED) != 0
    }

    /// Whether a processor is to say what it does; it is, once.
    pub(crate) fn take_report(&self, processor: usize) -> bool {
        let bit = REPORT << processor;
        self.shared.orders.load(Ordering::Acquire) & bit != 0
            && self.shared.orders.fetch_and(!bit, Ordering::AcqRel) & bit != 0
    }

    /// Whether the power button has been pushed, once.
    pub(crate) fn take_button(&self) -> bool {
        self.shared.orders.load(Ordering::Acquire) & BUTTON != 0
            && self.shared.orders.fetch_and(!BUTTON, Ordering::AcqRel) & BUTTON != 0
    }

    /// The first processor is to push the power button.
    pub(crate) fn press_button(&self) {
        self.order(BUTTON);
    }

    /// Whether the processors are to stand still.
    pub(crate) fn is_paused(&self) -> bool {
        self.shared.orders.load(Ordering::Acquire) & PAUSED != 0
    }

    /// The processors are to stand still; whether all of them do, or have ended, within `patience`.
    pub(crate) fn pause(&self, patience: Duration) -> bool {
        self.order(PAUSED);
        let all = self.shared.wakers.len();
        let moving = |still: &mut Still| still.count < all && !self.is_over();
        let waited = self.shared.still_changed.wait_timeout_while(self.still(), patience, moving);
        !waited.unpoisoned().1.timed_out()
    }

    /// They are to go on.
    pub(crate) fn resume(&self) {
        self.shared.orders.fetch_and(!PAUSED, Ordering::AcqRel);
        self.announce();
    }

    /// Whether a processor is to stand still.
    pub(crate) fn must_stand(&self, processor: usize) -> bool {
        let orders = self.shared.orders.load(Ordering::Acquire);
        orders & PAUSED != 0 || orders & HELD != 0 && !self.shared.hold.is_released(processor)
    }

    /// The processor that calls this stands still as long as it is to, and answers what it is asked, if that has an
    /// answer.
    pub(crate) fn stand_still(
        &self,
        processor: usize,
        mut serve: impl FnMut(Wanted) -> Option<Answer>,
    ) {
        let mut still = self.still();
        still.count += 1;
        let mut answered = still.questions;
        self.shared.still_changed.notify_all();
        while self.must_stand(processor) && !self.is_over() {
            if let Some(task) = still.take_task(processor) {
                drop(still);
                serve(Wanted::Work(task));
                still = self.still();
                continue;
            }
            if still.questions == answered {
                let waited = self.shared.still_changed.wait(still);
                still = waited.unpoisoned();
                continue;
            }
            answered = still.questions;
            let Some(question) = still.question else { continue };
            if question == Question::Own || processor == 0 {
                drop(still);
                let said = serve(Wanted::Answer(question));
                still = self.still();
                // Who has asked may have waited for long enough.
                if let Some(said) = said
                    && still.questions == answered
                    && still.question.is_some()
                {
                    still.answers.push((processor, said));
                }
                self.shared.still_changed.notify_all();
            }
        }
        still.count -= 1;
        // Who waits for them learns that they are not done.
        still.tasks.retain(|(of, _)| *of != processor);
    }

    /// Ask the processors, which stand still; their answers in order, or none if they have ended or take
    /// longer than `patience`.
    pub(crate) fn ask(&self, question: Question, patience: Duration) -> Option<Vec<Answer>> {
        let wanted = if question == Question::Own { self.shared.wakers.len() } else { 1 };
        let mut still = self.still();
        still.question = Some(question);
        still.questions += 1;
        still.answers.clear();
        self.shared.still_changed.notify_all();
        let missing = |still: &mut Still| still.answers.len() < wanted && !self.is_over();
        let waited = self.shared.still_changed.wait_timeout_while(still, patience, missing);
        let (mut still, _) = waited.unpoisoned();
        still.question = None;
        let mut answers = std::mem::take(&mut still.answers);
        answers.sort_by_key(|(processor, _)| *processor);
        (answers.len() == wanted).then(|| answers.into_iter().map(|(_, answer)| answer).collect())
    }

    /// What a processor has done, for others to see.
    pub(crate) fn publish(&self, processor: usize, activity: &Activity) {
        let counters = &self.shared.counters[processor];
        counters.exits.store(activity.exits, Ordering::Relaxed);
        counters.interrupts.store(activity.interrupts, Ordering::Relaxed);
        counters.halts.store(activity.halts, Ordering::Relaxed);
    }

    /// What they have said last.
    pub(crate) fn published(&self) -> Vec<Activity> {
        let read = |counters: &Counters| Activity {
            exits: counters.exits.load(Ordering::Relaxed),
            interrupts: counters.interrupts.load(Ordering::Relaxed),
            halts: counters.halts.load(Ordering::Relaxed),
            ..Activity::default()
        };
        self.shared.counters.iter().map(read).collect()
    }

    /// Every processor is to say what it does.
    pub(crate) fn ask_for_reports(&self) {
        let all = (0..self.shared.wakers.len()).fold(0, |all, number| all | REPORT << number);
        self.order(all);
    }

    /// The machine ends with `result`, unless it is ending already.
    pub(crate) fn end(&self, result: Result<Outcome, Error>) {
        self.result().get_or_insert(result);
        self.order(ENDED);
    }

    /// Stop the machine, from any thread.
    pub(crate) fn stop(&self) {
        self.order(STOPPED);
    }

    /// How it ended; it may start again after that.
    pub(crate) fn take_result(&self) -> Result<Outcome, Error> {
        let result = self.result().take();
        self.shared.orders.fetch_and(!ENDED, Ordering::AcqRel);
        result.unwrap_or(Ok(Outcome::Stopped))
    }

    /// How many processors there are.
    pub(crate) fn processors(&self) -> usize {
        self.shared.wakers.len()
    }

    /// Who holds them is told of stops by this. False if somebody is already.
    pub(crate) fn tell_of_stops(&self, event: OwnedFd) -> bool {
        self.shared.hold.tell_by(event)
    }

    /// All processors are held.
    pub(crate) fn hold(&self) {
        self.shared.hold.release(0);
        self.order(HELD);
    }

    /// Whether all of them stand still, or have ended, within `patience`.
    pub(crate) fn all_stand(&self, patience: Duration) -> bool {
        let all = self.processors();
        let moving = |still: &mut Still| still.count < all && !self.is_over();
        let waited = self.shared.still_changed.wait_timeout_while(self.still(), patience, moving);
        !waited.unpoisoned().1.timed_out()
    }

    /// These go on, a bit for each, and the others stay held.
    pub(crate) fn release(&self, which: u32) {
        // Under the lock, under which they see whether they may go on: the first that stops again comes after this.
        let still = self.still();
        self.shared.hold.release(which);
        let all = (1 << self.processors()) - 1;
        if which & all == all {
            self.shared.orders.fetch_and(!HELD, Ordering::AcqRel);
        }
        drop(still);
        self.shared.still_changed.notify_all();
    }

    /// A processor has stopped for the debugger: all are held.
    pub(crate) fn stopped(&self, processor: usize, stop: Stopped) {
        self.shared.hold.stops().push_back((processor, stop));
        self.hold();
        self.shared.hold.tell();
    }

    /// The first that has stopped and has not been told of.
    pub(crate) fn take_stop(&self) -> Option<(usize, Stopped)> {
        self.shared.hold.stops().pop_front()
    }

    /// Have a processor that stands still do something; what comes of it, unless it does not stand still, or takes
    /// longer than `patience`.
    pub(crate) fn carry_out<T: Send + 'static>(
        &self,
        processor: usize,
        patience: Duration,
        act: impl FnOnce(&mut Vcpu) -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let task = Task(Box::new(move |cpu| {
            // Who has asked may have waited for long enough.
            let _ = sender.send(act(cpu));
        }));
        if processor >= self.processors() || !self.must_stand(processor) || self.is_over() {
            return None;
        }
        self.still().tasks.push((processor, task));
        self.shared.still_changed.notify_all();
        receiver.recv_timeout(patience).ok()
    }

    fn order(&self, what: u32) {
        self.shared.orders.fetch_or(what, Ordering::AcqRel);
        self.shared.wakers.iter().for_each(Waker::wake);
        if self.shared.orders.load(Ordering::Acquire) & (PAUSED | HELD) != 0 {
            self.announce();
        }
    }

    /// Wake the threads that wait for the vCPUs to pause, and the paused vCPUs.
    fn announce(&self) {
        drop(self.still());
        self.shared.still_changed.notify_all();
    }

    fn still(&self) -> MutexGuard<'_, Still> {
        self.shared.still.lock().unpoisoned()
    }

    fn result(&self) -> std::sync::MutexGuard<'_, Option<Result<Outcome, Error>>> {
        self.shared.result.lock().unpoisoned()
    }
}

/// Ends the machine if the thread that has it panics.
pub(crate) struct Guard<'a> {
    pub(crate) control: &'a Control,
    pub(crate) processor: usize,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.control.end(Err(Error::Panicked(self.processor)));
        }
    }
}
