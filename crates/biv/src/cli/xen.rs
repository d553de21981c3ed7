//! The command line of `biv xen`: what there is of paravirtual domains only.

use clap::{Args, Subcommand};

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
