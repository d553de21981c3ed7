//! A domain's virtual interface, in a network between domains: from both sides.
//!
//! A domain that starts makes its cable and has the router take one end of it; and it listens where a router that is
//! started again makes another ([`vmm::Network::relink`]). `biv xen` looks at a domain's port and changes it.

use std::io;

use api::{Entry, Name, files};
use host::duplex::Duplex;
use spec::Vif;
use vfr::{Client, Reply, Request};
pub use vfr::{Port, RuleState, Traffic};
use vmm::{Netdev, Network};

use super::Error;
use super::routed::{Kept, Routed, attach, attach_again};
use crate::Domain;

/// A VIF whose network is there.
pub struct Starting {
    vif: Vif,
    confine: bool,
}

impl Starting {
    /// Starts its network's router, if that does not run.
    pub fn new(vif: &Vif, confine: bool) -> Result<Self, Error> {
        Routed::open(&vif.net)?.reach(vif, confine)?;
        Ok(Self { vif: vif.clone(), confine })
    }

    /// What the guest's init is told.
    pub fn parameter(&self) -> String {
        let Vif { ip, bits, .. } = self.vif;
        let gateway = self.vif.gateway();
        format!("biv.network={ip}/{bits},{gateway},{gateway}")
    }

    /// Attaches it; returns the domain's card.
    pub fn attach(&self, domain: &Domain) -> Result<Network, Error> {
        let Self { vif, confine } = self;
        let name = domain.name().cloned();
        // Nobody asks for one that is in no registry.
        let name = name.unwrap_or_else(|| Name::generated(files::random()));
        let relink = domain.directory().map(|directory| {
            Kept { vif: vif.clone(), confined: *confine }.keep(directory)?;
            Ok::<_, io::Error>(files::listen(directory, files::VIF)?.into())
        });
        let relink = relink.transpose()?;
        let address = vif.mac().map_err(io::Error::other)?;
        let (bell, theirs) = uplink::pair()?;
        let memory = Duplex::memory()?;
        let routed = Routed::open(&vif.net)?;
        let try_it = || {
            let client = routed.reach(vif, *confine)?;
            Ok::<_, Error>(attach(&client, &name, vif, [&theirs, &memory]))
        };
        let attached = match try_it()? {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(error),
            // A router that was about to end may have ended meanwhile.
            Err(_) => try_it()?,
            Ok(()) => Ok(()),
        };
        attached.map_err(|error| Error::Attach(vif.net.clone(), error))?;
        Ok(Network { netdev: Netdev::Memory { memory, bell }, address, relink })
    }
}

/// A domain's port of its router's.
pub struct Attached<'a> {
    entry: &'a Entry,
    kept: Kept,
    routed: Routed,
    client: Client,
}

impl<'a> Attached<'a> {
    /// That of a domain; its router is started if it has gone.
    ///
    /// # Errors
    ///
    /// It has none, or there is no router for it.
    pub fn of(entry: &'a Entry) -> Result<Self, Error> {
        let kept = Kept::of(&entry.directory)?.filter(|_| entry.alive);
        let kept = kept.ok_or_else(|| Error::NoVif(entry.name.clone()))?;
        let routed = Routed::open(&kept.vif.net)?;
        let client = routed.reach(&kept.vif, kept.confined)?;
        let it = Self { entry, kept, routed, client };
        if !it.client.ports().map_err(|error| it.fails(error))?.iter().any(|port| it.is(port)) {
            attach_again(&it.client, entry, &it.kept.vif).map_err(|error| it.fails(error))?;
        }
        Ok(it)
    }

    fn is(&self, port: &Port) -> bool {
        port.name == self.entry.name.as_str()
    }

    fn name(&self) -> String {
        self.entry.name.to_string()
    }

    fn fails(&self, error: io::Error) -> Error {
        Error::Attach(self.kept.vif.net.clone(), error)
    }

    /// What it is, and what has gone through it.
    ///
    /// # Errors
    ///
    /// The router has gone.
    pub fn port(&self) -> Result<Port, Error> {
        let ports = self.client.ports().map_err(|error| self.fails(error))?;
        let own = ports.into_iter().find(|port| self.is(port));
        own.ok_or_else(|| Error::NoVif(self.entry.name.clone()))
    }

    /// Its rules.
    ///
    /// # Errors
    ///
    /// The router has gone.
    pub fn rules(&self) -> Result<Vec<RuleState>, Error> {
        match self.client.ask(&Request::Rules { name: self.name() }, &[]) {
            Ok(Reply::Rules(rules)) => Ok(rules),
            Ok(_) => Err(self.fails(io::Error::other("it answers something else"))),
            Err(error) => Err(self.fails(error)),
        }
    }

    /// Changes its rules: `change` makes another list of them, a line each.
    ///
    /// # Errors
    ///
    /// That of `change`, or what the router says is wrong with the list: then nothing has changed.
    pub fn change_rules(
        &self,
        change: impl FnOnce(&mut Vec<String>) -> Result<(), String>,
    ) -> Result<(), Error> {
        let _alone = self.routed.lock()?;
        let mut lines: Vec<String> = self.rules()?.into_iter().map(|state| state.rule).collect();
        change(&mut lines).map_err(Error::Rules)?;
        let request = Request::SetRules { name: self.name(), text: lines.join("\n") };
        self.client.ask(&request, &[]).map_err(|error| Error::Rules(error.to_string()))?;
        self.keep(|vif| vif.rules = lines)
    }

    /// Has another rate, or none.
    ///
    /// # Errors
    ///
    /// The router refuses it: then nothing has changed.
    pub fn set_rate(&self, rate: Option<u64>) -> Result<(), Error> {
        let _alone = self.routed.lock()?;
        let request = Request::SetRate { name: self.name(), rate };
        self.client.ask(&request, &[]).map_err(|error| Error::Rules(error.to_string()))?;
        self.keep(|vif| vif.rate = rate)
    }

    /// Keeps what has changed, for a router that is started again.
    fn keep(&self, change: impl FnOnce(&mut Vif)) -> Result<(), Error> {
        // Somebody else may have changed something else meanwhile.
        let mut kept = Kept::of(&self.entry.directory)?.unwrap_or_else(|| self.kept.clone());
        change(&mut kept.vif);
        Ok(kept.keep(&self.entry.directory)?)
    }
}
