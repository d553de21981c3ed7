//! The back-end of a guest's network card: `--net`, `--publish` and `--vif`.
//!
//! Everything is opened, bound and started here, before the machine's process is confined. Another
//! process makes a user-mode network, and is reached through a socket: one of our own
//! ([`builtin`]), or [`passt`]. So does the router of a network between domains ([`routed`]), which a domain's virtual
//! interface ([`vif`]) is attached to; and the switch of a network that machines share with pods ([`shared`]).

mod passt;
pub mod routed;
mod shared;
mod tap;
pub mod vif;

use std::io;

use uplink::{CARD, GATEWAY, GUEST, NAMESERVER, PREFIX_BITS};
use vmm::{Configuration, Netdev, Network, Preparation};

use crate::Domain;
use spec::{Backend, Name, Net, Published, Spec, User};

/// Why there is no network.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// passt was asked for.
    #[error(
        "cannot start passt: {0}; use --net user,backend=builtin, or --net none for no network"
    )]
    Passt(String),
    /// Our own, or a port of the host's.
    #[error(transparent)]
    Uplink(#[from] uplink::Error),
    /// An interface of the host's.
    #[error("cannot use the interface {0}: {1}")]
    Tap(String, #[source] host::tap::Error),
    /// The registry, where networks between domains have their places.
    #[error(transparent)]
    Registry(#[from] api::registry::Error),
    /// The router of a network between domains.
    #[error("cannot start the router of the network {0}: {1}")]
    Router(Name, #[source] io::Error),
    /// A network that is shared.
    #[error(transparent)]
    Shared(#[from] api::networks::Error),
    /// A place in it.
    #[error(transparent)]
    Place(#[from] api::places::Error),
    /// Its switch.
    #[error(transparent)]
    Switch(#[from] switch::Unreached),
    /// It does not have a VIF.
    #[error("cannot be attached to the network {0}: {1}")]
    Attach(Name, #[source] io::Error),
    /// A domain without a VIF is asked for it.
    #[error("domain {0} has no VIF; start it with `biv run --xen --vif ip=ADDRESS`")]
    NoVif(Name),
    /// Rules, or a rate.
    #[error("{0}")]
    Rules(String),
    /// A socket, or a random number.
    #[error("cannot set up the network: {0}")]
    Host(#[from] io::Error),
}

/// A network that may still be starting.
pub struct Starting {
    card: Card,
    /// What is to be waited for.
    passt: Option<passt::Starting>,
}

/// A machine's card.
enum Card {
    /// It is there, with what the guest's init is told.
    Ready(Network, String),
    /// It is attached when the domain has its name.
    Vif(vif::Starting),
    /// The same in a network that is shared.
    Shared(shared::Starting),
}

/// Starts the network `net` for a machine; a process of ours is confined, if it is to be.
pub fn start(spec: &Spec, net: &Net) -> Result<Option<Starting>, Error> {
    let published: &[_] = &spec.published().copied().collect::<Vec<_>>();
    let (processors, confine) = (spec.machine.processors.into(), !spec.engine.no_seccomp);
    match net {
        Net::None => Ok(None),
        Net::Tap(name) => {
            let netdev = Netdev::Tap(tap::open(name, processors)?);
            let network = Network { netdev, address: tap::random_address()?, relink: None };
            let parameter = "biv.network=dhcp".to_owned();
            Ok(Some(Starting { card: Card::Ready(network, parameter), passt: None }))
        }
        Net::Vif(_) => {
            // What is typed does not have its first rules.
            let vif = spec.networks.iter().flatten().find_map(|network| match network {
                spec::Network::Vif(vif) => Some(vif),
                _ => None,
            });
            let started = vif.map(|vif| vif::Starting::new(vif, confine)).transpose()?;
            Ok(started.map(|starting| Starting { card: Card::Vif(starting), passt: None }))
        }
        Net::User(user) => match &user.network {
            Some(network) => {
                let starting = shared::Starting::new(network, user, published, confine)?;
                Ok(Some(Starting { card: Card::Shared(starting), passt: None }))
            }
            None => start_user(user, published, confine).map(Some),
        },
    }
}

/// Ours, unless passt is asked for: docs/design/6-network.md says why.
fn start_user(user: &User, published: &[Published], confine: bool) -> Result<Starting, Error> {
    // For an error that names it. Whoever uses it binds it again.
    published.iter().try_for_each(|port| uplink::bind(port).map(drop))?;
    let (ours, theirs) = uplink::pair()?;
    let passt = match user.backend {
        Some(Backend::Passt) => Some(passt::start(&theirs, published)?),
        _ => {
            uplink::start(&theirs, published, user.reaches_host, confine)?;
            None
        }
    };
    let network = Network { netdev: Netdev::Stream(ours), address: CARD, relink: None };
    let parameter = format!("biv.network={GUEST}/{PREFIX_BITS},{GATEWAY},{NAMESERVER}");
    Ok(Starting { card: Card::Ready(network, parameter), passt })
}

impl Starting {
    /// Gives the machine its card, which waits, before it starts, until the network has started; returns what the
    /// guest's init is told, a word of the kernel's command line.
    ///
    /// # Errors
    ///
    /// The domain cannot be attached to its network.
    pub fn connect(
        self,
        configuration: &mut Configuration,
        domain: &Domain,
    ) -> Result<String, Error> {
        let (network, parameter) = match self.card {
            Card::Ready(network, parameter) => (network, parameter),
            Card::Vif(starting) => (starting.attach(domain)?, starting.parameter()),
            Card::Shared(starting) => starting.attach(domain)?,
        };
        configuration.devices.push(Box::new(network));
        if let Some(passt) = self.passt {
            let wait = move || passt.finish().map_err(|why| Error::Passt(why).to_string());
            configuration.preparation = Preparation(Some(Box::new(wait)));
        }
        Ok(parameter)
    }
}
