//! How `biv` starts itself as one of the processes that serve a machine. No user needs these verbs.

use std::path::PathBuf;

use clap::Args;

use domain::{network, seal, vsock};

/// Run a machine that is described by a descriptor which is open; biv starts this itself.
#[derive(Debug, Args)]
pub struct LaunchProcess {
    /// The descriptor of the description
    #[arg(long)]
    pub descriptor: i32,

    /// Go on by itself, and tell who waits at the other end of standard input
    #[arg(long)]
    pub detached: bool,

    /// What runs, for who looks at the host's processes
    #[arg(last = true)]
    pub shown: Vec<std::ffi::OsString>,
}

/// Serve files to a machine, which is at the other end of standard input; biv starts this itself.
#[derive(Debug, Args)]
pub struct ServeFiles {
    /// The user's home directory
    #[arg(long)]
    pub home: Option<PathBuf>,

    /// Make any system call
    #[arg(long)]
    pub no_seccomp: bool,
}

/// Be the network of a machine, by descriptors that are open; `biv run` starts this itself.
#[derive(Debug, Args)]
pub struct NetworkProcess {
    /// The descriptor that is the cable
    #[arg(long)]
    pub cable: i32,

    /// Let the guest reach this host
    #[arg(long)]
    pub reach_host: bool,

    /// Make any system call
    #[arg(long)]
    pub no_seccomp: bool,

    /// A descriptor that listens, and the guest's port to which it leads
    #[arg(long, value_name = "DESCRIPTOR:PORT")]
    pub tcp: Vec<BoundPort>,

    /// The same of UDP
    #[arg(long, value_name = "DESCRIPTOR:PORT")]
    pub udp: Vec<BoundPort>,
}

/// Sign a warm start and name it, as `biv run` asks by standard input; it starts this itself.
#[derive(Debug, Args)]
pub struct SealProcess {
    /// The directory of the key
    #[arg(long)]
    pub state: PathBuf,

    /// What is signed with it
    #[arg(long)]
    pub text: String,

    /// The name
    #[arg(long)]
    pub name: String,

    /// Be the process that does it, and not the one that starts it
    #[arg(long)]
    pub in_background: bool,
}

/// Be the other end of a machine's sockets: what `biv run` starts, with descriptors that it has opened.
#[derive(Debug, Args)]
pub struct SocketsProcess {
    /// The descriptor that is the cable
    #[arg(long)]
    pub cable: i32,

    /// The descriptor that listens
    #[arg(long)]
    pub listener: i32,

    /// Where it listens
    #[arg(long)]
    pub path: PathBuf,

    /// The guest's address
    #[arg(long)]
    pub address: u32,

    /// Make any system call
    #[arg(long)]
    pub no_seccomp: bool,
}

impl From<NetworkProcess> for network::Serving {
    fn from(process: NetworkProcess) -> Self {
        let ports = |ports: Vec<BoundPort>| {
            ports.into_iter().map(|port| (port.descriptor, port.guest)).collect()
        };
        Self {
            cable: process.cable,
            reaches_host: process.reach_host,
            tcp: ports(process.tcp),
            udp: ports(process.udp),
            confined: !process.no_seccomp,
        }
    }
}

impl From<SealProcess> for seal::Sealing {
    fn from(process: SealProcess) -> Self {
        let SealProcess { state, text, name, in_background } = process;
        Self { state, text, name, in_background }
    }
}

impl From<SocketsProcess> for vsock::Serving {
    fn from(process: SocketsProcess) -> Self {
        let SocketsProcess { cable, listener, path, address, no_seccomp } = process;
        Self { cable, listener, path, address, confined: !no_seccomp }
    }
}

/// Unpack a kernel's payload from standard input to standard output: what `biv run` starts for a kernel that is
/// not in its cache.
#[derive(Debug, Args)]
pub struct UnpackProcess {
    /// Make any system call
    #[arg(long)]
    pub no_seccomp: bool,
}

/// A socket that is bound, and the guest's port to which it leads.
#[derive(Debug, Clone, Copy)]
pub struct BoundPort {
    /// The socket.
    pub descriptor: i32,
    /// The port.
    pub guest: u16,
}

impl std::str::FromStr for BoundPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (descriptor, guest) = text.split_once(':')?;
            Some(Self { descriptor: descriptor.parse().ok()?, guest: guest.parse().ok()? })
        };
        parse().ok_or_else(|| "not a descriptor and a port".to_owned())
    }
}
