//! The router of a network between domains: a process of ours ([`vfr`]), one for each network.
//!
//! 1. *Who needs it first starts it*, under a lock, with an uplink ([`uplink`]). Both end by themselves when no
//!    domain is attached any more; nobody waits for them.
//! 2. *It may be gone at any time.* Whoever needs it then starts another, and attaches all domains that live. What it
//!    has to know of them is in a file ([`Kept`]) that their processes, which their guests may own, have no way to
//!    write. (A domain's record is none such: its process writes there how it has ended.)
//! 3. *Nothing of it is said by a domain's process.* That one only accepts a cable, from processes of its user.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use api::{Entry, Name, Registry, files};
use host::duplex::Duplex;
use rustix::fs::{AtFlags, FlockOperation, flock, unlinkat};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::{SocketFlags, SocketType};
use serde::{Deserialize, Serialize};
use spec::Vif;
use uplink::Several;
use vfr::{Attach, Client, Plan, Request, Server};

use super::Error;
use crate::helper::{helper, spawn_with};

/// The kind of process that is one.
pub const KIND: &str = "router";

/// The files of a network's directory.
const CONTROL: &str = "control";
const LOCK: &str = "lock";
const MESSAGES: &str = "messages";

/// How long to wait for others that start the same router.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Connections to the control socket that wait to be accepted.
const BACKLOG: i32 = 16;

/// The largest file of a VIF that is read: rules, as JSON has them.
const KEPT_MAX_BYTES: u64 = 1 << 20;

/// What that process is started with: numbers of descriptors that are open.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Serving {
    /// The socket that listens for requests.
    pub control: i32,
    /// The way to the world.
    pub uplink: i32,
    /// The network's gateway, which is at the uplink's other end.
    pub gateway: Ipv4Addr,
    /// Bits of its prefix.
    pub bits: u8,
    /// It may make the system calls only that it needs.
    pub confined: bool,
}

/// What that process does.
pub fn serve(serving: &Serving) -> io::Result<()> {
    host::inherited::close_marked();
    let control = host::inherited::take(serving.control)?;
    let uplink = Some(host::inherited::take(serving.uplink)?);
    // A cable for each domain, of two descriptors.
    host::raise_descriptor_limit();
    let (gateway, bits) = (serving.gateway, serving.bits);
    let plan = Plan { control, uplink, uplink_mac: network::OURS, gateway, bits };
    let mut server = Server::new(plan)?;
    if serving.confined {
        host::privileges::drop_all()?;
        host::confine::confine_router().map_err(io::Error::other)?;
    }
    server.run()
}

/// A domain's VIF as it is now: what it was given, with the rules and the rate that `biv xen` has changed since.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// The VIF.
    pub vif: Vif,
    /// A router that is started for it is confined.
    pub confined: bool,
}

impl Kept {
    /// That of the domain with this directory; none if it has no VIF.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn of(directory: &OwnedFd) -> io::Result<Option<Self>> {
        match files::read(directory, files::VIF_STATE, KEPT_MAX_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        }
    }

    /// Keep it as long as there is something of the domain.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn keep(&self, directory: &OwnedFd) -> io::Result<()> {
        files::replace(directory, files::VIF_STATE, &serde_json::to_vec(self)?)
    }
}

/// A network between domains, as its directory has it.
pub struct Routed {
    registry: Registry,
    name: Name,
    directory: OwnedFd,
}

impl Routed {
    /// The network of this user that has this name.
    ///
    /// # Errors
    ///
    /// The registry cannot be used.
    pub fn open(name: &Name) -> Result<Self, Error> {
        let registry = Registry::open()?;
        let directory = registry.network(name)?;
        Ok(Self { registry, name: name.clone(), directory })
    }

    /// Be the only one who starts its router or changes what is kept, until this is dropped.
    ///
    /// # Errors
    ///
    /// Somebody else is for too long.
    pub fn lock(&self) -> Result<OwnedFd, Error> {
        let lock = files::create(&self.directory, LOCK).map_err(io::Error::from)?;
        let start = Instant::now();
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK | Errno::INTR) if start.elapsed() < LOCK_TIMEOUT => {
                    std::thread::sleep(LOCK_PAUSE);
                }
                Err(error) => return Err(self.fails(error.into())),
                Ok(()) => return Ok(lock),
            }
        }
    }

    fn fails(&self, error: io::Error) -> Error {
        Error::Router(self.name.clone(), error)
    }

    /// Who speaks to its router, if that runs and answers.
    fn client(&self) -> Option<Client> {
        let client = Client::connect(Path::new(&files::path(&self.directory, CONTROL))).ok()?;
        client.ask(&Request::Ports { from: usize::MAX }, &[]).is_ok().then_some(client)
    }

    /// Who speaks to its router, which is started if there is none, for a VIF like this.
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub fn reach(&self, vif: &Vif, confine: bool) -> Result<Client, Error> {
        if let Some(client) = self.client() {
            return Ok(client);
        }
        let _alone = self.lock()?;
        if let Some(client) = self.client() {
            return Ok(client);
        }
        self.start(vif, confine).map_err(|error| self.fails(error))?;
        let ended = || self.fails(io::Error::other("it has ended at once (see its messages)"));
        let client = self.client().ok_or_else(ended)?;
        for entry in self.registry.list()? {
            // One that cannot be attached, because it ends just now, is without a network as before.
            if let Ok(Some(Kept { vif, .. })) = Kept::of(&entry.directory)
                && entry.alive
                && vif.net == self.name
            {
                let _ = attach_again(&client, &entry, &vif);
            }
        }
        Ok(client)
    }

    /// Starts its router, with its uplink.
    fn start(&self, vif: &Vif, confine: bool) -> io::Result<()> {
        match unlinkat(&self.directory, CONTROL, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let place = files::path(&self.directory, CONTROL);
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::NONBLOCK);
        let control = host::listener::listen_at(place.as_ref(), kind, flags, BACKLOG)?;
        let messages = File::from(files::create(&self.directory, MESSAGES)?);
        messages.set_len(0)?;
        let (gateway, bits) = (vif.gateway(), vif.bits);
        let several = Several { gateway, bits };
        let uplink = uplink::start_for_several(several, messages.try_clone()?, confine)?;
        let (control_fd, uplink_fd) = (control.as_raw_fd(), uplink.as_raw_fd());
        let confined = confine;
        let order = Serving { control: control_fd, uplink: uplink_fd, gateway, bits, confined };
        fcntl_setfd(&control, FdFlags::empty())?;
        spawn_with(&uplink, helper(KIND, &order)?.stderr(messages))?;
        Ok(())
    }
}

/// Attaches a domain that runs.
///
/// # Errors
///
/// It does not listen, or the router refuses it.
pub fn attach_again(client: &Client, entry: &Entry, vif: &Vif) -> io::Result<()> {
    let bell = UnixStream::connect(files::path(&entry.directory, files::VIF))?;
    let memory = Duplex::memory()?;
    host::rights::send(&bell, &[1], &[memory.as_fd()])?;
    attach(client, &entry.name, vif, [&bell.into(), &memory])
}

/// Attaches a VIF by a cable: a socket, and memory.
///
/// # Errors
///
/// The router refuses it, or has gone.
pub fn attach(client: &Client, name: &Name, vif: &Vif, cable: [&OwnedFd; 2]) -> io::Result<()> {
    let attach = Attach {
        name: name.to_string(),
        mac: vif.mac().map_err(io::Error::other)?,
        address: vif.ip.into(),
        bits: vif.bits,
        rate: vif.rate,
        rules: vif.rules.join("\n"),
    };
    client.ask(&Request::Attach(attach), &cable.map(AsFd::as_fd)).map(drop)
}
