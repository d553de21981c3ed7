//! `GET /v1/events`: what becomes of domains, as it happens, whoever has caused it. Nobody tells the server: each
//! client's thread compares what the registry has with what it had. It looks when a file changes there, and once a
//! second for what no file tells, which is whether a domain that lives runs or is paused.

use std::collections::BTreeMap;

use api::record::now;
use api::{Entry, Registry};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{self, Sender};
use tokio::sync::oneshot;
use utoipa::ToSchema;

use crate::call::Call;
use crate::domains::{State, ask, at_once, reason_of, state_of};
use crate::error::Error;
use crate::limits::{LOOK_PERIOD, PIECES_MAX};
use crate::reply::{self, Reply};
use crate::watch::Watch;

/// What has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// Its name is taken.
    Created,
    /// Its process has started.
    Started,
    /// Its command runs, or its vCPUs go on.
    Running,
    /// Its vCPUs are paused.
    Paused,
    /// It has ended.
    Ended,
    /// Nothing of it is left under this name.
    Removed,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// When it was seen, in milliseconds since 1970.
    pub time: u64,
    /// What has happened.
    pub event: What,
    /// The name of the domain.
    pub domain: String,
    /// Of `ended`: the exit status of `biv run`, if it could be said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u8>,
    /// Of `ended`: why, if it was not by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A domain as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    /// When it was started; none while it is being made.
    created: Option<u64>,
    alive: bool,
    state: State,
    status: Option<u8>,
    reason: Option<String>,
}

type All = BTreeMap<String, Seen>;

/// What becomes of domains from now on, as JSON, an event in each line.
#[utoipa::path(get, path = "/v1/events", responses(
    (status = 200, description = "Events, as they come", body = Event,
        content_type = "application/x-ndjson")))]
pub async fn events(call: Call) -> Result<Reply, Error> {
    let permit = call.stream()?;
    let (sender, receiver) = mpsc::channel(PIECES_MAX);
    let (begun, begins) = oneshot::channel();
    tokio::task::spawn_blocking(move || follow(&sender, begun));
    // What happens after the head of the answer is in it.
    begins.await.unwrap_or(Err(Error::Ours))?;
    Ok(reply::lines(receiver, permit))
}

fn follow(sender: &Sender<Bytes>, begun: oneshot::Sender<Result<(), Error>>) {
    let (registry, watch, mut seen) = match first() {
        Ok(first) => first,
        Err(error) => {
            let _ = begun.send(Err(error));
            return;
        }
    };
    let _ = begun.send(Ok(()));
    while !sender.is_closed() {
        watch.wait(LOOK_PERIOD);
        // Nothing is known of what cannot be read, until it can.
        let Ok(now) = look(&registry, &watch, &seen) else { continue };
        for event in differences(&seen, &now) {
            if sender.blocking_send(reply::line(&event)).is_err() {
                return;
            }
        }
        seen = now;
    }
}

fn first() -> Result<(Registry, Watch, All), Error> {
    let (registry, watch) = (Registry::open()?, Watch::new()?);
    watch.add_registry(registry.path())?;
    let seen = look(&registry, &watch, &All::new())?;
    Ok((registry, watch, seen))
}

/// All domains as they are now.
fn look(registry: &Registry, watch: &Watch, before: &All) -> Result<All, Error> {
    let mut entries = registry.list()?;
    for entry in &mut entries {
        watch.add_life(entry);
        // What has changed since the list was made, and before it was watched, would not be noticed.
        entry.read_again();
    }
    let seen = at_once(&entries, |entry| see(entry, before.get(entry.name.as_str())));
    Ok(entries.iter().map(|entry| entry.name.to_string()).zip(seen).collect())
}

fn see(entry: &Entry, before: Option<&Seen>) -> Seen {
    let Some(record) = &entry.record else {
        // It is being made, or started again.
        let nothing =
            Seen { created: None, alive: true, state: State::Starting, status: None, reason: None };
        return before.cloned().unwrap_or(nothing);
    };
    let said = entry.alive.then(|| ask(entry)).flatten();
    let state = match (state_of(entry, said.as_ref()), before) {
        // It may be busy, or about to end.
        (State::NotAnswering, Some(before)) => before.state,
        (State::NotAnswering, None) => State::Starting,
        (state, _) => state,
    };
    let ending = record.ending.as_ref().filter(|_| !entry.alive);
    Seen {
        created: Some(record.created),
        alive: entry.alive,
        state,
        status: ending.map(|ending| ending.status),
        reason: reason_of(entry),
    }
}

/// What has happened between two looks.
fn differences(before: &All, now: &All) -> Vec<Event> {
    let mut events = Vec::new();
    let mut add = |name: &String, what: What, seen: Option<&Seen>| {
        let seen = seen.filter(|_| what == What::Ended);
        events.push(Event {
            time: self::now(),
            event: what,
            domain: name.clone(),
            status: seen.and_then(|seen| seen.status),
            reason: seen.and_then(|seen| seen.reason.clone()),
        });
    };
    for (name, was) in before.iter().filter(|(name, _)| !now.contains_key(*name)) {
        if was.alive {
            add(name, What::Ended, None);
        }
        add(name, What::Removed, None);
    }
    for (name, is) in now {
        let was = before.get(name);
        if was.is_none() {
            add(name, What::Created, None);
        }
        let is_same = was.is_some_and(|was| was.created == is.created);
        if !is_same && is.created.is_some() {
            if was.is_some_and(|was| was.alive && was.created.is_some()) {
                add(name, What::Ended, None);
            }
            add(name, What::Started, None);
        }
        let was = was.filter(|_| is_same);
        match is.state {
            State::Running if was.is_none_or(|was| was.state != is.state) => {
                add(name, What::Running, None);
            }
            State::Paused if was.is_none_or(|was| was.state != is.state) => {
                add(name, What::Paused, None);
            }
            _ if !is.alive && was.is_none_or(|was| was.alive) => add(name, What::Ended, Some(is)),
            _ => {}
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(created: u64, state: State) -> Option<Seen> {
        let alive = matches!(state, State::Starting | State::Running | State::Paused);
        let created = Some(created).filter(|created| *created > 0);
        let status = (!alive).then_some(7);
        Some(Seen { created, alive, state, status, reason: None })
    }

    fn check(before: Option<Seen>, now: Option<Seen>, expected: &[What]) {
        let all =
            |seen: Option<Seen>| seen.map(|seen| ("web".to_owned(), seen)).into_iter().collect();
        let (before, now): (All, All) = (all(before), all(now));
        let events: Vec<What> = differences(&before, &now).iter().map(|it| it.event).collect();
        assert_eq!(events, expected, "{before:?} {now:?}");
    }

    #[test]
    fn a_life_is_told_in_its_order() {
        use State::{Ended, Paused, Running, Starting};
        check(None, None, &[]);
        check(None, seen(0, Starting), &[What::Created]);
        check(seen(0, Starting), seen(1, Starting), &[What::Started]);
        check(seen(1, Starting), seen(1, Running), &[What::Running]);
        check(seen(1, Running), seen(1, Running), &[]);
        check(seen(1, Running), seen(1, Paused), &[What::Paused]);
        check(seen(1, Paused), seen(1, Running), &[What::Running]);
        check(seen(1, Paused), seen(1, Ended), &[What::Ended]);
        check(seen(1, Ended), seen(1, Ended), &[]);
        check(seen(1, Ended), seen(2, Running), &[What::Started, What::Running]);
        check(seen(2, Ended), None, &[What::Removed]);
    }

    #[test]
    fn what_went_by_between_two_looks_is_told() {
        use State::{Ended, Running};
        check(None, seen(1, Ended), &[What::Created, What::Started, What::Ended]);
        check(seen(1, Running), seen(2, Running), &[What::Ended, What::Started, What::Running]);
        check(seen(1, Running), None, &[What::Ended, What::Removed]);
        check(seen(1, Ended), seen(2, Ended), &[What::Started, What::Ended]);
    }

    #[test]
    fn an_end_has_a_status() {
        let all = |state| All::from([("web".to_owned(), seen(1, state).expect("it is seen"))]);
        let events = differences(&all(State::Running), &all(State::Ended));
        assert_eq!((events[0].event, events[0].status), (What::Ended, Some(7)));
    }
}
