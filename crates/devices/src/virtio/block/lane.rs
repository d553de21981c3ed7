//! One queue of a disk, and what of it is under way. Queues know nothing of each other: what was taken from
//! one is answered in it, and how much one has under way is no matter of another's.

use super::backend::{Failed, Job, Ticket};
use super::bits::Status;
use super::medium::Medium;
use super::request::Request;
use crate::limits::{MAX_BLOCK_BATCH, MAX_BLOCK_REQUESTS, MAX_BLOCK_SHARE};
use crate::virtio::{Broken, Chain, Serving};

/// See above.
pub(super) struct Lane {
    queue: usize,
    chain: Chain,
    batch: Vec<Request>,
    /// What is under way, by number.
    tasks: Vec<Option<Task>>,
    free: Vec<usize>,
    /// Requests of all tasks.
    under_way: usize,
}

/// Requests that one job answers.
struct Task {
    requests: Vec<Request>,
    /// When it has gone well, what was written is to be flushed.
    then_flush: bool,
}

impl Lane {
    /// That of the queue with this number.
    pub fn new(queue: usize) -> Self {
        Self {
            queue,
            chain: Chain::default(),
            batch: Vec::new(),
            tasks: (0..MAX_BLOCK_REQUESTS).map(|_| None).collect(),
            free: (0..MAX_BLOCK_REQUESTS).collect(),
            under_way: 0,
        }
    }

    /// Answer what has ended, and start what is in the queue, as far as there is room; after its share,
    /// other queues have their turn.
    pub fn serve(&mut self, medium: &mut Medium, serving: &mut Serving<'_>) -> Result<(), Broken> {
        self.batch.clear();
        self.reap(medium, serving)?;
        let mut left = MAX_BLOCK_SHARE;
        // What is left in the queue when there is no room is looked at when something ends.
        while self.under_way < MAX_BLOCK_REQUESTS {
            if left == 0 {
                medium.backend.serve_again(self.queue);
                return Ok(());
            }
            if !serving.pop(&mut self.chain)? {
                return Ok(());
            }
            let most = MAX_BLOCK_BATCH.min(MAX_BLOCK_REQUESTS - self.under_way).min(left);
            loop {
                self.batch.push(Request::parse(&self.chain, serving.memory())?);
                if self.batch.len() >= most || !serving.take(&mut self.chain)? {
                    break;
                }
            }
            left -= self.batch.len();
            self.begin_batch(medium, serving)?;
            self.reap(medium, serving)?;
        }
        Ok(())
    }

    /// Whether something was started whose end has not been seen.
    pub fn is_at_work(&self) -> bool {
        self.free.len() != self.tasks.len()
    }

    /// Take note of what has ended; the result no longer matters.
    pub fn forget_ended(&mut self, medium: &mut Medium) {
        while let Some((number, _)) = medium.backend.finished(self.queue) {
            self.take(number);
        }
    }

    /// Forget the requests. Nothing is under way.
    pub fn reset(&mut self) {
        self.batch.clear();
        self.under_way = 0;
    }

    /// Start what the batch asks for.
    fn begin_batch(
        &mut self,
        medium: &mut Medium,
        serving: &mut Serving<'_>,
    ) -> Result<(), Broken> {
        let mut batch = std::mem::take(&mut self.batch);
        while !batch.is_empty() {
            let count = medium.neighbours(&batch);
            let requests: Vec<_> = batch.drain(..count).collect();
            self.under_way += requests.len();
            self.begin(requests, medium, serving)?;
        }
        self.batch = batch;
        Ok(())
    }

    /// Start requests that are one job, or answer one that is none.
    fn begin(
        &mut self,
        requests: Vec<Request>,
        medium: &mut Medium,
        serving: &mut Serving<'_>,
    ) -> Result<(), Broken> {
        match medium.job(&requests, serving.memory()) {
            Ok(job) => {
                let then_flush = medium.writes_through && job.writes();
                self.start(Task { requests, then_flush }, job, medium, serving)
            }
            Err(answer) => {
                // More than one are neighbours only if they are a job.
                requests.iter().try_for_each(|request| self.answer(request, answer, serving))
            }
        }
    }

    fn start(
        &mut self,
        task: Task,
        job: Job,
        medium: &mut Medium,
        serving: &mut Serving<'_>,
    ) -> Result<(), Broken> {
        // Each task has a request of its own at least, and there are not more of these.
        let Some(number) = self.free.pop() else { return Err(Broken::Index) };
        match medium.backend.start(Ticket { queue: self.queue, number }, job) {
            None => {
                self.tasks[number] = Some(task);
                Ok(())
            }
            Some(result) => {
                self.free.push(number);
                self.end(task, result, medium, serving)
            }
        }
    }

    /// Tell the driver of what has ended in the meantime.
    fn reap(&mut self, medium: &mut Medium, serving: &mut Serving<'_>) -> Result<(), Broken> {
        while let Some((number, result)) = medium.backend.finished(self.queue) {
            if let Some(task) = self.take(number) {
                self.end(task, result, medium, serving)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, number: usize) -> Option<Task> {
        let task = self.tasks.get_mut(number)?.take()?;
        self.free.push(number);
        Some(task)
    }

    fn end(
        &mut self,
        task: Task,
        result: Result<(), Failed>,
        medium: &mut Medium,
        serving: &mut Serving<'_>,
    ) -> Result<(), Broken> {
        let Task { requests, then_flush } = task;
        match result {
            Ok(()) if then_flush => {
                self.start(Task { requests, then_flush: false }, Job::Flush, medium, serving)
            }
            Ok(()) => requests.iter().try_for_each(|request| {
                self.answer(request, (Status::Fine, request.bytes_filled()), serving)
            }),
            Err(Failed) if requests.len() > 1 => {
                let mut alone = requests.into_iter().map(|request| vec![request]);
                alone.try_for_each(|requests| self.begin(requests, medium, serving))
            }
            Err(Failed) => requests
                .iter()
                .try_for_each(|request| self.answer(request, (Status::Failed, 0), serving)),
        }
    }

    /// Say how a request went, and how many bytes of guest memory it has written.
    fn answer(
        &mut self,
        request: &Request,
        (status, filled): (Status, u32),
        serving: &mut Serving<'_>,
    ) -> Result<(), Broken> {
        self.under_way -= 1;
        serving.memory().write(request.status, &[status as u8])?;
        serving.finish(request.head, filled.saturating_add(1))
    }
}
