//! The command line of `biv xen`: what there is of paravirtual domains only.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};

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
    Set(Set),
    Store(Store),
    Audit(Audit),
    Top(Top),
    Scheduler(Scheduler),
    Admission(Admission),
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
    unless_none(text, spec::parse_size).map(Rate)
}

/// "none", or what can be parsed.
fn unless_none<E: std::fmt::Display>(
    text: &str,
    parse: impl FnOnce(&str) -> Result<u64, E>,
) -> Result<Option<u64>, String> {
    match text {
        "none" => Ok(None),
        _ => parse(text).map(Some).map_err(|error| error.to_string()),
    }
}

/// Change what a running paravirtual domain has, and what it is worth. What is not named stays as it is.
///
/// Of memory and processors its kernel is told, and does what it can: the stock balloon driver returns memory and
/// takes it, processors go offline and can be brought online again.
#[derive(Debug, Args)]
pub struct Set {
    /// Memory that the guest is to keep, such as 512M, up to its --max-mem
    #[arg(long, value_name = "SIZE", value_parser = spec::parse_size)]
    pub mem: Option<u64>,

    /// Processors that the guest is to use, up to its --cpus
    #[arg(long, value_name = "N",
        value_parser = clap::value_parser!(u8).range(1..=vmm::MAX_PROCESSORS as i64))]
    pub cpus: Option<u8>,

    /// Share of the host's processors in proportion to the weights of others: 1 to 65535
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub weight: Option<u32>,

    /// The most that it gets, as a percentage of one processor; 0: no limit
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=6400))]
    pub cap: Option<u32>,

    /// Milliseconds of its time by which it is favoured when it wakes up
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub warp: Option<u32>,

    /// Name of the domain
    pub name: String,
}

/// Read and write the xenstore of a running paravirtual domain, as its domain 0.
///
/// In its own store a domain is number 1; the other ends of its devices are number 0. A PATH that does not begin with
/// "/" is below /local/domain/1.
#[derive(Debug, Args)]
pub struct Store {
    /// Name of the domain
    #[arg(long, value_name = "NAME", global = true, default_value = "")]
    pub domain: String,

    /// What
    #[command(subcommand)]
    pub action: StoreAction,
}

/// What is done with the store.
#[derive(Debug, Subcommand)]
pub enum StoreAction {
    /// List the nodes below a node, with their values
    Ls {
        /// Show who may read and write them
        #[arg(short, long)]
        permissions: bool,
        /// The node
        path: String,
    },
    /// Print the value of a node
    Read {
        /// The node
        path: String,
    },
    /// Write a node; nodes above it are created
    Write {
        /// The node
        path: String,
        /// Its value
        value: String,
    },
    /// Remove a node and all below it
    Rm {
        /// The node
        path: String,
    },
    /// Print the path of each change at a node and below it, until Ctrl-C; the first line is the node itself
    Watch {
        /// End after so many lines
        #[arg(short = 'n', long, value_name = "N")]
        count: Option<u64>,
        /// The node
        path: String,
    },
}

/// Count all uses of a paravirtual domain's page frames once more, and list what differs.
///
/// The domain is paused meanwhile. The exit status is 0 if nothing differs.
#[derive(Debug, Args)]
pub struct Audit {
    /// Name of the domain
    pub name: String,
}

/// Show which domains use the host's processors.
///
/// CPU is what a domain has used, in percent of one processor, by the host's account; WAIT is how long its vCPUs wanted
/// to run and others did.
#[derive(Debug, Args)]
pub struct Top {
    /// Show it once, and not again every second
    #[arg(long)]
    pub once: bool,

    /// Output format; JSON is shown once
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Show or change what shares the host's processors among paravirtual domains.
///
/// It holds for all domains of this user, at once and until it is changed again.
#[derive(Debug, Args)]
pub struct Scheduler {
    /// bvt: Borrowed Virtual Time, with weights, caps and warps; host: the host's scheduler, to which these mean
    /// nothing
    #[arg(value_enum)]
    pub scheduler: Option<SchedulerName>,
}

/// Show or change how much memory and how many processors paravirtual domains may have.
///
/// A domain counts with the most that it may ever have: its --max-mem, and all of its --cpus. Limits hold for the
/// domains of this user that begin from now on; one that does not fit is refused. A machine in the foreground without
/// a name is no domain and not counted.
#[derive(Debug, Args)]
pub struct Admission {
    /// Memory of all domains together, such as 8G; or "none"
    #[arg(long, value_name = "SIZE", value_parser = limit_of_memory)]
    pub memory: Option<Limit>,

    /// Processors of all domains together; or "none"
    #[arg(long, value_name = "N", value_parser = limit_of_processors)]
    pub cpus: Option<Limit>,

    /// Memory of one domain; or "none"
    #[arg(long, value_name = "SIZE", value_parser = limit_of_memory)]
    pub domain_memory: Option<Limit>,

    /// Processors of one domain; or "none"
    #[arg(long, value_name = "N", value_parser = limit_of_processors)]
    pub domain_cpus: Option<Limit>,

    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// The most that there may be, or no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit(pub Option<u64>);

fn limit_of_memory(text: &str) -> Result<Limit, String> {
    unless_none(text, spec::parse_size).map(Limit)
}

fn limit_of_processors(text: &str) -> Result<Limit, String> {
    unless_none(text, |text| text.parse().map_err(|_| "not a number")).map(Limit)
}

/// The schedulers that there are.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum SchedulerName {
    /// Borrowed Virtual Time
    Bvt,
    /// The host's
    Host,
}
