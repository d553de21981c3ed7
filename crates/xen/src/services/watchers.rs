//! Those of the host who watch the store (`biv xen store watch`): each is a client of it, with one watch, for as long
//! as it asks for its events.

use machine::time::Nanoseconds;
use xen_store::{ClientId, Error, Store};

use super::numbers::HOST_ID;
use crate::limits::{MAX_EVENTS_TOLD, MAX_WATCHERS, WATCHER_LIFE_SECONDS};

/// One of them.
struct Watcher {
    number: u64,
    client: ClientId,
    /// When it asked last.
    seen: Nanoseconds,
}

/// See above.
#[derive(Default)]
pub(crate) struct Watchers {
    all: Vec<Watcher>,
    last: u64,
}

impl Watchers {
    /// Watch a path; the number of the watch.
    ///
    /// # Errors
    ///
    /// It is no path, or there are too many.
    pub(crate) fn begin(
        &mut self,
        store: &mut Store,
        path: &str,
        now: Nanoseconds,
    ) -> Result<u64, Error> {
        self.dismiss(store, now);
        if self.all.len() >= MAX_WATCHERS {
            return Err(Error::NoSpace);
        }
        let client = store.connect(HOST_ID);
        if let Err(error) = store.watch(client, path, "") {
            store.disconnect(client);
            return Err(error);
        }
        self.last += 1;
        self.all.push(Watcher { number: self.last, client, seen: now });
        Ok(self.last)
    }

    /// What a watch has been told of.
    ///
    /// # Errors
    ///
    /// There is no such watch any more.
    pub(crate) fn events(
        &mut self,
        store: &mut Store,
        number: u64,
        now: Nanoseconds,
    ) -> Result<Vec<String>, Error> {
        let watcher = self.all.iter_mut().find(|it| it.number == number).ok_or(Error::NoEntry)?;
        watcher.seen = now;
        let client = watcher.client;
        let next = || store.take_event(client).map(|(path, _)| path);
        Ok(std::iter::from_fn(next).take(MAX_EVENTS_TOLD).collect())
    }

    /// Forget those that have not asked for long.
    fn dismiss(&mut self, store: &mut Store, now: Nanoseconds) {
        const LIFE: Nanoseconds = Nanoseconds(WATCHER_LIFE_SECONDS * 1_000_000_000);
        self.all.retain(|watcher| {
            let lives = now.since(watcher.seen) < LIFE;
            if !lives {
                store.disconnect(watcher.client);
            }
            lives
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanoseconds = Nanoseconds(1_000_000_000);

    #[test]
    fn a_watch_is_told_of_changes_until_nobody_asks() {
        let (mut store, mut watchers) = (Store::new(), Watchers::default());
        let number = watchers.begin(&mut store, "/a", Nanoseconds(0)).unwrap();
        assert_eq!(watchers.events(&mut store, number, Nanoseconds(0)).unwrap(), ["/a"]);
        store.write("/a/b", b"1").unwrap();
        store.write("/c", b"1").unwrap();
        assert_eq!(watchers.events(&mut store, number, SECOND).unwrap(), ["/a/b"]);
        let later = Nanoseconds(SECOND.0 * (WATCHER_LIFE_SECONDS + 2));
        watchers.begin(&mut store, "/a", later).unwrap();
        assert_eq!(watchers.events(&mut store, number, later), Err(Error::NoEntry));
    }

    #[test]
    fn there_are_not_too_many() {
        let (mut store, mut watchers) = (Store::new(), Watchers::default());
        let mut begin = |path| watchers.begin(&mut store, path, SECOND);
        assert_eq!(begin("//"), Err(Error::Inval));
        assert!((0..MAX_WATCHERS).all(|_| begin("/a").is_ok()));
        assert_eq!(begin("/a"), Err(Error::NoSpace));
    }
}
