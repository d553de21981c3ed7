//! `GET /v1/domains/{name}/logs`: the lines of a domain's log files, whether it lives or not.

use std::io;
use std::time::{Duration, UNIX_EPOCH};

use api::Entry;
use api::log::{Line, Reader, Selection, last_lines, time_of};
use bytes::Bytes;
use serde::Deserialize;
use tokio::sync::mpsc::{self, Sender};
use utoipa::IntoParams;

use crate::call::{Call, blocking};
use crate::error::Error;
use crate::limits::{LOOK_PERIOD, PIECES_MAX, READ_BYTES};
use crate::reply::{self, Reply};
use crate::watch::Watch;

/// The end of the year 9999, in milliseconds since 1970: later times have another form.
const LAST_TIME: u64 = 253_402_300_799_999;

/// What is wanted of a log.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub struct LogQuery {
    /// What was written then or later, in milliseconds since 1970.
    pub since: Option<u64>,
    /// What was written before that time.
    pub until: Option<u64>,
    /// The last so many lines.
    pub tail: Option<usize>,
    /// What comes later, too, until the domain ends.
    pub follow: bool,
    /// The output of the domain's console instead of its command's.
    pub console: bool,
}

/// The output of a domain's command, as JSON, a line for each: `{"n":1,"time":"...","stream":"stdout","log":"text\n"}`,
/// with `base64` instead of `log` for what is not UTF-8.
#[utoipa::path(get, path = "/v1/domains/{name}/logs",
    params(("name" = String, Path, description = "Name of the domain"), LogQuery), responses(
    (status = 200, description = "Lines of JSON", content_type = "application/x-ndjson"),
    (status = 404, description = "There is none, or it has no log", body = api::http::Problem)))]
pub async fn logs(call: Call) -> Result<Reply, Error> {
    let wanted = Wanted::of(&call.query()?)?;
    let (entry, permit) = (call.entry().await?, call.stream()?);
    let (sender, receiver) = mpsc::channel(PIECES_MAX);
    let log = blocking(move || Log::open(entry, wanted)).await?;
    tokio::task::spawn_blocking(move || log.send(&sender));
    Ok(reply::lines(receiver, permit))
}

/// The same as [`LogQuery`], with times as the log has them.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    lines: Selection,
    tail: Option<usize>,
    follow: bool,
}

impl Wanted {
    fn of(query: &LogQuery) -> Result<Wanted, Error> {
        let time = |time: u64| match time {
            0..=LAST_TIME => Ok(time_of(UNIX_EPOCH + Duration::from_millis(time))),
            _ => Err(Error::Request("times are milliseconds since 1970".to_owned())),
        };
        let lines = Selection {
            since: query.since.map(time).transpose()?.unwrap_or_default(),
            until: query.until.map(time).transpose()?,
            console: query.console,
        };
        Ok(Wanted { lines, tail: query.tail, follow: query.follow })
    }
}

struct Log {
    entry: Entry,
    reader: Reader,
    wanted: Wanted,
    /// What is watched from before the first look cannot be missed.
    watch: Option<Watch>,
}

impl Log {
    fn open(entry: Entry, wanted: Wanted) -> Result<Log, Error> {
        let reader = Reader::open(&entry.directory).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::NoLog,
            _ => error.into(),
        })?;
        let watch = wanted.follow.then(Watch::new).transpose()?;
        if let Some(watch) = &watch {
            watch.add_life(&entry);
            watch.add_log(&entry);
        }
        Ok(Log { entry, reader, wanted, watch })
    }

    /// Sends what is wanted, until the domain ends or the client goes.
    fn send(mut self, sender: &Sender<Bytes>) {
        let Ok(lines) = self.read() else { return };
        let tail = self.wanted.tail.map_or(&lines[..], |count| last_lines(&lines, count));
        let mut is_taken = send(sender, tail);
        while is_taken && self.entry.alive {
            let Some(watch) = &self.watch else { return };
            watch.wait(LOOK_PERIOD);
            // What came before the end is read after it was seen.
            self.entry.read_again();
            let Ok(lines) = self.read() else { return };
            is_taken = send(sender, &lines) && !sender.is_closed();
        }
    }

    fn read(&mut self) -> io::Result<Vec<Line>> {
        let mut lines = self.reader.read()?;
        lines.retain(|line| self.wanted.lines.has(line));
        Ok(lines)
    }
}

/// Sends lines, several at once; whether the client is there to take them.
fn send(sender: &Sender<Bytes>, lines: &[Line]) -> bool {
    let mut piece = Vec::new();
    for line in lines {
        piece.extend_from_slice(&reply::line(line));
        if piece.len() >= READ_BYTES {
            let full = std::mem::take(&mut piece);
            if sender.blocking_send(full.into()).is_err() {
                return false;
            }
        }
    }
    piece.is_empty() || sender.blocking_send(piece.into()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_log() {
        let of = |since| Wanted::of(&LogQuery { since: Some(since), ..LogQuery::default() });
        let since = of(951_782_400_000).expect("a time").lines.since;
        assert!(since.starts_with("2000-02-29T00:00:00"), "{since}");
        assert!(
            of(LAST_TIME).is_ok_and(|wanted| wanted.lines.since.starts_with("9999-12-31T23:59:59"))
        );
        assert!(of(LAST_TIME + 1).is_err() && of(u64::MAX).is_err());
    }
}
