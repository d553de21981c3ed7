//! The command line of `biv xen`: what there is of paravirtual domains only.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::Format;

/// Show and control paravirtual domains (`biv run --xen`).
///
/// What they have in common with other domains is in `biv ps`, `biv stop`, `biv pause`, `biv stats` and so on.
#[derive(Debug, Args)]
pub struct Xen {
    /// What
    #[command(subcommand)]
    pub action: XenAction,
}

/// What is done with paravirtual domains.
#[expect(missing_docs, reason = "what is said here would replace what is said of the arguments")]
#[derive(Debug, Subcommand)]
pub enum XenAction {
    List(List),
    Info(Info),
    Rules(Rules),
    Vif(Vif),
}

/// List paravirtual domains that run.
#[derive(Debug, Args)]
pub struct List {
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Show what a paravirtual domain has and uses.
#[derive(Debug, Args)]
pub struct Info {
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,

    /// Name of the domain
    pub name: String,
}

/// List and change the rules of a domain's virtual interface, while it runs.
///
/// A rule says whether it is about what the domain sends (tx) or receives (rx), what is done (accept, drop, to vif N,
/// to uplink, rate BYTES), and what a frame must look like: arp, ipv4, ipv6, ethertype N, tcp, udp, icmp, icmp6,
/// protocol N, src PREFIX, dst PREFIX, src-port N, dst-port N-M, src-mac MAC, dst-mac MAC, syn, fragment. The first
/// rule that fits decides; if none does, ARP and IP are accepted. Whatever the rules say, a domain sends with its own
/// addresses only.
#[derive(Debug, Args)]
pub struct Rules {
    /// Name of the domain
    pub name: String,

    /// What is done with its rules [default: list]
    #[command(subcommand)]
    pub action: Option<RulesAction>,
}

/// What is done with rules.
#[derive(Debug, Clone, Subcommand)]
pub enum RulesAction {
    /// List the rules, numbered, with the packets and bytes that each has matched
    List {
        /// Output format
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Add a rule after the others, such as: rx drop tcp dst-port 22
    Add {
        /// Add it before rule N of the list
        #[arg(long, value_name = "N")]
        before: Option<usize>,

        /// The rule
        #[arg(required = true, value_name = "RULE")]
        words: Vec<String>,
    },
    /// Remove rule N of the list
    Remove {
        /// The rule's number
        #[arg(value_name = "N")]
        number: usize,
    },
    /// Replace all rules by those in FILE, a line each
    Set {
        /// The file
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
}

/// Show a domain's virtual interface: its addresses, what it has sent and received, and what was dropped and why.
#[derive(Debug, Args)]
pub struct Vif {
    /// Limit what the domain sends to BYTES a second, such as 10M, from now on; none: do not limit it
    #[arg(long, value_name = "BYTES", value_parser = parse_rate)]
    pub rate: Option<Rate>,

    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,

    /// Name of the domain
    pub name: String,
}

/// Bytes a second, or no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate(pub Option<u64>);

fn parse_rate(text: &str) -> Result<Rate, String> {
    match text {
        "none" => Ok(Rate(None)),
        _ => spec::parse_size(text).map(|rate| Rate(Some(rate))).map_err(|error| error.to_string()),
    }
}
