//! An image that is written while its pod runs, as far as that can be.
//!
//! Memory is copied in rounds: what the pod has written during one is copied in the next ([`checkpoint::Tracker`]).
//! When little is left, or the pod writes as fast as it is copied, it stays frozen and the rest is written. Only then
//! its files are packed. What is left then is kept in memory until the pod goes on, so that it does not wait for the
//! disk.
//!
//! *Who waits to be accepted.* A connection that its server has not accepted yet can mostly not be written down, and
//! servers whose clients come and go have one in many a moment. So a pod with one runs on for some milliseconds, while
//! its link is locked already, so that nobody else comes, and is frozen again ([`Copying::settle`]). A server may need
//! to hear from somebody before it accepts the next one; so the link is unlocked for some milliseconds if that was not
//! enough, and all is tried again ([`Copying::try_again`]), some times.
//!
//! A small pod is written in one go. So is one of a host that cannot tell what is written.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use api::pod::{Checkpointed, Round};
use checkpoint::{Compression, Frozen, ImageName, Tracker, Writer, freeze_children};
use protocol::Streams;

use crate::image::{self, Dumped, Write, told, words};
use crate::limits::{COPY_MIN_BYTES, MAX_ROUNDS, REST_MAX_BYTES, SETTLING, UNSETTLED};
use crate::names::Traced;

/// What is known of a pod since its last image, for increments.
#[derive(Debug)]
pub(crate) struct Known {
    tracker: Tracker,
    last: ImageName,
}

impl Known {
    /// Processes whose memory is watched, by the host's numbers.
    pub fn watched(&self) -> BTreeSet<u32> {
        self.tracker.watched()
    }
}

/// An image that is being written.
#[derive(Debug)]
pub(crate) struct Copying {
    write: Write,
    writer: Writer,
    tracker: Tracker,
    rounds: Vec<Round>,
    /// How often somebody waited to be accepted for too long.
    unsettled: usize,
}

/// An image that lacks nothing any more that the pod could change.
#[derive(Debug)]
pub(crate) struct Copied {
    writer: Writer,
    tracker: Tracker,
    rounds: Vec<Round>,
    dumped: Dumped,
    is_tracked: bool,
    /// Since when the pod is frozen.
    since: Instant,
}

impl Copying {
    /// Begin. What is known of the pod is used for an increment, and forgotten otherwise.
    pub fn begin(write: Write, known: Option<Known>) -> Result<Self, String> {
        let file = write.file.try_clone().map_err(words)?;
        let how = write.how;
        let compression = if how.compress { Compression::Fast } else { Compression::None };
        let mut writer = match how.streams {
            true => Writer::stream(file, compression),
            false => Writer::new(file, compression),
        };
        let mut tracker = Tracker::new();
        if how.incremental {
            let why = "what it has written since its last image is not known: that image must be \
                       written with --track";
            let known = known.ok_or(why)?;
            writer = writer.with_parent(known.last);
            tracker = known.tracker;
            tracker.hand_down(&mut writer);
        }
        Ok(Self { write, writer, tracker, rounds: Vec::new(), unsettled: 0 })
    }

    /// The streams of the pod's first command.
    pub fn streams(&self) -> Streams {
        self.write.streams
    }

    /// Whether the pod is to stay frozen when the image is written.
    pub fn stays_frozen(&self) -> bool {
        self.write.how.stays_frozen
    }

    /// Copy memory while the pod runs; it is frozen then.
    pub fn copy(&mut self, pod: &Traced) -> Result<Frozen, String> {
        let is_small =
            !self.write.how.incremental && Tracker::estimate(init(pod)?) < COPY_MIN_BYTES;
        let mut before = u64::MAX;
        loop {
            let is_last = is_small || self.rounds.len() == MAX_ROUNDS || self.is_enough(before);
            let frozen = freeze(pod, &self.tracker.watched())?;
            if is_last {
                return Ok(frozen);
            }
            let round = self.tracker.protect(&frozen, &mut self.writer);
            let round = round.map_err(|error| told(&error))?;
            // Nothing is known where nothing can be protected.
            if round.bytes() <= REST_MAX_BYTES {
                return Ok(frozen);
            }
            before = round.bytes();
            let since = frozen.since();
            frozen.thaw();
            let frozen = milliseconds(since);
            let copied = self.tracker.copy(round, &mut self.writer);
            let copied = copied.map_err(|error| told(&error))?.bytes;
            self.rounds.push(Round { copied, frozen });
        }
    }

    /// Let a frozen pod whose link is locked run on for a moment, and again, until nobody waits to be accepted by it;
    /// whether that is so.
    pub fn settle(&self, pod: &Traced, mut frozen: Frozen) -> Result<(Frozen, bool), String> {
        for pause in SETTLING {
            if !frozen.has_unaccepted().map_err(|error| told(&error))? {
                return Ok((frozen, true));
            }
            frozen.thaw();
            std::thread::sleep(Duration::from_millis(pause));
            frozen = freeze(pod, &self.tracker.watched())?;
        }
        let is_settled = !frozen.has_unaccepted().map_err(|error| told(&error))?;
        Ok((frozen, is_settled))
    }

    /// For how long a pod that did not settle is to run on with its link, and be frozen again then. If it is not, it is
    /// found out whether it matters.
    pub fn try_again(&mut self) -> Option<Duration> {
        let pause = UNSETTLED.get(self.unsettled)?;
        self.unsettled += 1;
        Some(Duration::from_millis(*pause))
    }

    /// Freeze a pod that has run on.
    pub fn freeze_again(&self, pod: &Traced) -> Result<Frozen, String> {
        freeze(pod, &self.tracker.watched())
    }

    /// Whether the rest is to be copied while the pod is frozen. It is looked at while it runs, so that it need not
    /// wait for that. In the round before so many bytes were copied.
    fn is_enough(&self, before: u64) -> bool {
        if self.rounds.is_empty() && !self.write.how.incremental {
            return false;
        }
        let written = self.tracker.written();
        // It may write faster than it is copied.
        written <= REST_MAX_BYTES || written > before / 4 * 3
    }

    /// Copy the rest of a pod that is frozen.
    pub fn dump(mut self, pod: &Traced, frozen: &mut Frozen) -> Result<Copied, String> {
        let how = self.write.how;
        if !how.stays_frozen {
            self.writer.hold_back();
        }
        let (writer, tracker) = (&mut self.writer, &mut self.tracker);
        let dumped = image::dump(pod, frozen, &self.write, writer, tracker)?;
        Ok(Copied {
            writer: self.writer,
            tracker: self.tracker,
            rounds: self.rounds,
            dumped,
            is_tracked: how.tracked || how.incremental,
            since: frozen.since(),
        })
    }
}

impl Copied {
    /// Write the rest of the image, and what it is about; and what is known for the next one, if there is to be any.
    /// The pod was frozen for so many milliseconds, if it is not any more.
    pub fn finish(self, frozen: Option<u64>) -> Result<(Checkpointed, Option<Known>), String> {
        let processes = u32::try_from(self.dumped.state.processes.len()).unwrap_or(u32::MAX);
        let finished = self.writer.finish_pod(self.dumped.state, self.dumped.pod).map_err(words)?;
        let written = Checkpointed {
            frozen: frozen.unwrap_or_else(|| milliseconds(self.since)),
            rounds: self.rounds,
            processes,
            files: self.dumped.files,
            file: finished.bytes,
        };
        let known = Known { tracker: self.tracker, last: finished.name };
        Ok((written, self.is_tracked.then_some(known)))
    }
}

/// The number of a pod's init.
fn init(pod: &Traced) -> Result<u32, String> {
    Ok(pod.init().map_err(|_| "the pod has ended".to_owned())?.number)
}

/// Freezes all of a pod but its init. Memory of some of its processes is watched.
pub(crate) fn freeze(pod: &Traced, watched: &BTreeSet<u32>) -> Result<Frozen, String> {
    freeze_children(init(pod)?, watched).map_err(|error| told(&error))
}

/// How many have passed since then.
pub(crate) fn milliseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
