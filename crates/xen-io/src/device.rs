//! What a device's back-end is to the bus of its domain: two directories in the domain's store, a link to the domain,
//! and calls when the front-end has done something.
//!
//! The bus ([`BackEnd`]'s caller) writes what every device has into both directories, watches the front-end's state,
//! and calls [`BackEnd::look`] when that changes. The back-end takes grants and binds the front-end's port through the
//! [`Link`] that it is given; it keeps the link for as long as it is connected.
//!
//! Who serves a ring, and on which thread, is the back-end's own affair: what it has bound to a port is called on the
//! thread of the vCPU that notifies, and is to be short.

use std::sync::Arc;

use crate::bus::{Change, Handshake, Key, Settings, Tree, Unwritable};
use crate::grant::Grants;

/// Is called when the front-end notifies a port.
pub type Notify = Arc<dyn Fn() + Send + Sync>;

/// The front-end has left no such port for its back-end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the front-end has left no event channel of the number {0}")]
pub struct NoPort(pub u32);

/// A domain that has begun, as its back-ends reach it.
pub trait Link: Send + Sync {
    /// Its grants.
    fn grants(&self) -> &Arc<Grants>;

    /// Bind a port that the front-end has left for its back-end.
    ///
    /// # Errors
    ///
    /// [`NoPort`].
    fn bind(&self, port: u32, notify: Notify) -> Result<(), NoPort>;

    /// Leave a port, which has no other end from now on.
    fn leave(&self, port: u32);

    /// Notify the front-end.
    fn notify(&self, port: u32);
}

/// A device's directories in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// The back-end's.
    pub back: String,
    /// The front-end's.
    pub front: String,
}

/// What a back-end does when the handshake with its front-end is over, and when there is no front-end any more:
/// [`look`] and [`resume`] do the rest.
pub trait Connect {
    /// What the front-end has to say.
    type Settings: Settings;

    /// Where the handshake is, once the device has begun.
    fn handshake(&mut self) -> &mut Option<Handshake>;

    /// Serve the front-end; what it is told of the device then.
    ///
    /// # Errors
    ///
    /// Why that is not possible, for the key `error`.
    fn connect(
        &mut self,
        link: &Arc<dyn Link>,
        settings: &Self::Settings,
    ) -> Result<Vec<Key>, String>;

    /// Serve it no more, if it was served.
    fn disconnect(&mut self);
}

/// [`BackEnd::look`].
///
/// # Errors
///
/// [`Unwritable`].
pub fn look<C: Connect>(
    device: &mut C,
    link: &Arc<dyn Link>,
    tree: &mut dyn Tree,
) -> Result<(), Unwritable> {
    let Some(mut handshake) = device.handshake().take() else { return Ok(()) };
    let looked = match handshake.look(tree)? {
        Change::None => Ok(()),
        Change::Connect(settings) => match device.connect(link, &settings) {
            Ok(keys) => handshake.connected(tree, &keys),
            Err(reason) => {
                device.disconnect();
                handshake.failed(tree, &reason)
            }
        },
        Change::Disconnect | Change::Leave => {
            device.disconnect();
            Ok(())
        }
    };
    *device.handshake() = Some(handshake);
    looked
}

/// [`BackEnd::resume`].
///
/// # Errors
///
/// Why that is not possible.
pub fn resume<C: Connect>(
    device: &mut C,
    places: &Places,
    link: &Arc<dyn Link>,
    tree: &mut dyn Tree,
) -> Result<(), String> {
    let (handshake, settings) = Handshake::resume(tree, &places.back, &places.front)?;
    *device.handshake() = Some(handshake);
    settings.map_or(Ok(()), |settings| device.connect(link, &settings).map(drop))
}

/// The back-end of a device.
pub trait BackEnd: Send {
    /// What the bus calls its kind: `vbd`, `vif`, `console`.
    fn kind(&self) -> &'static str;

    /// The device's number among those of its kind, which may say what it is (a disk's is its device number).
    fn number(&self) -> u32;

    /// Say what the device offers, in a domain that is about to begin.
    ///
    /// # Errors
    ///
    /// [`Unwritable`].
    fn begin(&mut self, places: &Places, tree: &mut dyn Tree) -> Result<(), Unwritable>;

    /// Look at the front-end's state, and go on.
    ///
    /// # Errors
    ///
    /// [`Unwritable`].
    fn look(&mut self, link: &Arc<dyn Link>, tree: &mut dyn Tree) -> Result<(), Unwritable>;

    /// Begin nothing any more until [`Self::thaw`], and finish what is under way; whether it is. No vCPU runs. All that
    /// was taken from a ring is answered then, or is still to be taken by who goes on ([`Self::resume`]).
    fn freeze(&mut self) -> bool {
        false
    }

    /// Go on.
    fn thaw(&mut self) {}

    /// Take up a device of a domain that goes on from a snapshot: the store says how far its two halves were, and the
    /// front-end knows nothing of an interruption.
    ///
    /// # Errors
    ///
    /// Why that is not possible.
    fn resume(
        &mut self,
        places: &Places,
        link: &Arc<dyn Link>,
        tree: &mut dyn Tree,
    ) -> Result<(), String> {
        let _ = (places, link, tree);
        Err("a device of this kind cannot go on".to_owned())
    }

    /// The domain has come to its end, or begins again: use nothing of it any more when this returns.
    fn end(&mut self);
}
