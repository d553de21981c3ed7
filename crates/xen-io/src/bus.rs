//! The handshake of a device's two halves over xenstore (public/io/xenbus.h), from the back-end's
//! side.
//!
//! Each half has a directory with a key `state`, and watches the other's. [`next`] says what a back-end does when the
//! front-end's state is read; [`Handshake`] reads and writes the keys that belong to it, and
//! [`Settings`] is what a front-end of a kind has to say. Who embeds this watches
//! [`Handshake::watched`], and calls [`Handshake::look`] when that has changed, and once at the start.
//!
//! ```text
//! back   InitWait --------> Connected ------> Closing --> Closed --> InitWait (the front-end begins again)
//! front  Initialising --> Initialised --> Connected --> Closing --> Closed --> Initialising
//! ```
//!
//! What the front-end has written is an allegation: a number that is none, or a key that is missing, ends the attempt
//! with a text in the back-end's key `error`, and the back-end closes.

use xen_abi::bus::state;

/// Keys and values, for a client that may read and write both directories.
pub trait Tree {
    /// The value of a key, if there is one that is text.
    fn read(&mut self, path: &str) -> Option<String>;

    /// Write a key.
    ///
    /// # Errors
    ///
    /// [`Unwritable`].
    fn write(&mut self, path: &str, value: &str) -> Result<(), Unwritable>;
}

/// The store does not take a key of the back-end's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the store does not take a key of the back-end's directory")]
pub struct Unwritable;

/// What a back-end does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Stay,
    /// It waits for a front-end.
    Wait,
    /// It reads what the front-end has written, and connects.
    Connect,
    /// It stops, and says that it does.
    Close,
    /// It has stopped.
    Closed,
    /// It has stopped and does not come back.
    Leave,
}

/// What a back-end in state `own` does when its front-end is in state `front`, one of [`state`]. A device that is not
/// `online` any more leaves when its front-end has closed.
pub fn next(own: u32, front: u32, is_online: bool) -> Step {
    match front {
        state::INITIALISING if own == state::CLOSED => Step::Wait,
        state::INITIALISED | state::CONNECTED if own == state::INIT_WAIT => Step::Connect,
        state::CLOSING if !matches!(own, state::CLOSING | state::CLOSED) => Step::Close,
        state::CLOSED | state::UNKNOWN if !is_online => Step::Leave,
        state::CLOSED if own != state::CLOSED => Step::Closed,
        // The directory is gone; a new front-end may come.
        state::UNKNOWN if own != state::CLOSED && own != state::INIT_WAIT => Step::Closed,
        _ => Step::Stay,
    }
}

/// What a front-end of some kind writes, that its back-end can serve it.
pub trait Settings: Sized {
    /// As it stands in the front-end's directory.
    ///
    /// # Errors
    ///
    /// What is wrong with it, for the back-end's key `error`.
    fn read(keys: &mut FrontKeys<'_>) -> Result<Self, String>;
}

/// The keys of a front-end's directory.
pub struct FrontKeys<'a> {
    tree: &'a mut dyn Tree,
    front: &'a str,
}

impl FrontKeys<'_> {
    /// A key's value, if there is one.
    pub fn text(&mut self, key: &str) -> Option<String> {
        self.tree.read(&format!("{}/{key}", self.front))
    }

    /// The number that a key has.
    ///
    /// # Errors
    ///
    /// It is none, or is missing: a text for the key `error`.
    pub fn number(&mut self, key: &str) -> Result<u32, String> {
        let value = self.text(key).and_then(|text| number(&text));
        value.ok_or_else(|| format!("the front-end's key {key} is no number"))
    }

    /// Whether a key is there, and not zero.
    pub fn is_set(&mut self, key: &str) -> bool {
        self.number(key).is_ok_and(|value| value != 0)
    }
}

/// What has come of a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change<S> {
    /// Nothing to do.
    None,
    /// Make the device and call [`Handshake::connected`] or [`Handshake::failed`].
    Connect(S),
    /// End the device, when its jobs have ended; if there is one.
    Disconnect,
    /// The same, and it does not come back.
    Leave,
}

/// A key of the back-end's, and its value.
pub type Key = (&'static str, String);

/// A device's handshake.
#[derive(Debug)]
pub struct Handshake {
    back: String,
    front: String,
    own: u32,
    watched: String,
}

impl Handshake {
    /// Of a device with these two directories. It says what it offers, and waits for a front-end.
    ///
    /// # Errors
    ///
    /// [`Unwritable`].
    pub fn begin(
        tree: &mut dyn Tree,
        back: &str,
        front: &str,
        offered: &[Key],
    ) -> Result<Self, Unwritable> {
        let watched = format!("{front}/state");
        let (back, front) = (back.to_owned(), front.to_owned());
        let mut handshake = Self { back, front, own: state::INITIALISING, watched };
        handshake.write_all(tree, offered)?;
        handshake.enter(tree, state::INIT_WAIT)?;
        Ok(handshake)
    }

    /// That of a device which has been served before, where the store says that it was; and what the front-end has
    /// written, if the device is to be served.
    ///
    /// # Errors
    ///
    /// What is wrong with that.
    pub fn resume<S: Settings>(
        tree: &mut dyn Tree,
        back: &str,
        front: &str,
    ) -> Result<(Self, Option<S>), String> {
        let own = tree.read(&format!("{back}/state")).and_then(|text| number(&text));
        let own = own.ok_or("the back-end's state is no number")?;
        let watched = format!("{front}/state");
        let (back, front) = (back.to_owned(), front.to_owned());
        let handshake = Self { back, front, own, watched };
        let mut keys = FrontKeys { tree, front: &handshake.front };
        let settings = (own == state::CONNECTED).then(|| S::read(&mut keys)).transpose()?;
        Ok((handshake, settings))
    }

    /// The key of the front-end's state.
    pub fn watched(&self) -> &str {
        &self.watched
    }

    /// The back-end's state, one of [`state`].
    pub fn state(&self) -> u32 {
        self.own
    }

    /// Look at the front-end's state, and go on.
    ///
    /// # Errors
    ///
    /// [`Unwritable`].
    pub fn look<S: Settings>(&mut self, tree: &mut dyn Tree) -> Result<Change<S>, Unwritable> {
        let front = tree.read(&self.watched).and_then(|text| number(&text));
        let is_online = tree.read(&format!("{}/online", self.back)).is_none_or(|it| it != "0");
        match next(self.own, front.unwrap_or(state::UNKNOWN), is_online) {
            Step::Stay => Ok(Change::None),
            Step::Wait => self.enter(tree, state::INIT_WAIT).map(|()| Change::None),
            Step::Connect => match S::read(&mut FrontKeys { tree, front: &self.front }) {
                Ok(settings) => Ok(Change::Connect(settings)),
                Err(reason) => self.failed(tree, &reason).map(|()| Change::None),
            },
            Step::Close => self.enter(tree, state::CLOSING).map(|()| Change::Disconnect),
            Step::Closed => self.enter(tree, state::CLOSED).map(|()| Change::Disconnect),
            Step::Leave => self.enter(tree, state::CLOSED).map(|()| Change::Leave),
        }
    }

    /// The device is served: say what it is.
    ///
    /// # Errors
    ///
    /// [`Unwritable`].
    pub fn connected(&mut self, tree: &mut dyn Tree, keys: &[Key]) -> Result<(), Unwritable> {
        self.write_all(tree, keys)?;
        self.enter(tree, state::CONNECTED)
    }

    /// There is no device for this front-end, or it is broken: say why, and close.
    ///
    /// # Errors
    ///
    /// [`Unwritable`].
    pub fn failed(&mut self, tree: &mut dyn Tree, reason: &str) -> Result<(), Unwritable> {
        self.write(tree, "error", reason)?;
        self.enter(tree, state::CLOSING)
    }

    fn enter(&mut self, tree: &mut dyn Tree, new: u32) -> Result<(), Unwritable> {
        self.own = new;
        self.write(tree, "state", &new.to_string())
    }

    fn write_all(&self, tree: &mut dyn Tree, keys: &[Key]) -> Result<(), Unwritable> {
        keys.iter().try_for_each(|(key, value)| self.write(tree, key, value))
    }

    fn write(&self, tree: &mut dyn Tree, key: &str, value: &str) -> Result<(), Unwritable> {
        tree.write(&format!("{}/{key}", self.back), value)
    }
}

fn number(text: &str) -> Option<u32> {
    text.trim_end_matches('\0').parse().ok()
}
