//! The command line of `biv network`, which is that of `biv pod network`: networks that machines and pods share.

use api::networks::Subnet;
use clap::{Args, Subcommand};
use spec::Name;

use super::Format;

/// Manage networks that machines and pods share.
///
/// The machines and pods of a network (`biv run --network`, `biv pod run --network`) reach each other by address and by
/// name. It is yours alone, and there until it is removed, or the host starts again.
#[derive(Debug, Args)]
pub struct PodNetwork {
    /// What
    #[command(subcommand)]
    pub action: NetworkAction,
}

/// What is done with networks.
#[derive(Debug, Subcommand)]
pub enum NetworkAction {
    /// Create a network, and print its name
    Create {
        /// Addresses of the network, such as 10.89.1.0/24 [default: the first of 10.89.1.0/24, 10.89.2.0/24 ... that no
        /// network has]
        #[arg(long, value_name = "SUBNET")]
        subnet: Option<Subnet>,

        /// Name of the network
        name: Name,
    },
    /// List networks
    Ls {
        /// Format of the list
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Display networks, their pods and their machines as JSON
    Inspect {
        /// Names of the networks
        #[arg(required = true, value_name = "NETWORK")]
        names: Vec<String>,
    },
    /// Join a network to the one of that name on another host, for as long as this runs.
    ///
    /// The pods and machines of both reach each other by address and by name, and connections of a pod that moves from
    /// one host to the other go on. Both networks have the same subnet. Whoever runs biv on the other host is trusted
    /// with all that those in the network say to each other.
    Join {
        /// Name of the network
        name: String,

        /// Where the other one is: ssh:HOST, where `biv pod network join NAME -` is run; listen:PATH, a socket that is
        /// made and at which one `biv pod network join NAME unix:PATH` is awaited; or -, the standard streams
        #[arg(value_name = "WHERE")]
        to: String,
    },
    /// Remove networks in which nobody lives
    Rm {
        /// Names of the networks
        #[arg(required = true, value_name = "NETWORK")]
        names: Vec<String>,
    },
}
