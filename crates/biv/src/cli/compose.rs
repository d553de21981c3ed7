//! The command line of `biv up` and `biv down`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use spec::Name;

/// Which project.
#[derive(Debug, Args)]
pub struct Which {
    /// The compose file [default: compose.yaml, compose.yml, docker-compose.yaml or docker-compose.yml here]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,

    /// Name of the project [default: `name` in the file, or that of the file's directory]
    #[arg(short, long, value_name = "NAME")]
    pub project_name: Option<Name>,
}

/// Start the machines of a compose file, in a network of their own.
///
/// Each service is a machine, which others of the project find by the service's name; it is called PROJECT-SERVICE.
/// What runs already as the file says is left alone; what has changed is made again. `biv logs`, `biv exec` and all
/// other verbs do with these machines what they do with others. docs/guide.md says which words of a file have a
/// meaning.
#[derive(Debug, Args)]
pub struct Up {
    /// Which
    #[command(flatten)]
    pub which: Which,

    /// Say how each machine would be started, and start none
    #[arg(long)]
    pub dry_run: bool,

    /// Accepted for those who are used to it: machines run by themselves
    #[arg(short, long)]
    pub detach: bool,

    /// Only these services, and those that they depend on
    #[arg(value_name = "SERVICE")]
    pub services: Vec<Name>,
}

/// Stop and remove the machines of a compose file, and their network.
///
/// Caches (the file's volumes) stay; `biv cache rm` removes them. The last that was started is stopped first.
#[derive(Debug, Args)]
pub struct Down {
    /// Which
    #[command(flatten)]
    pub which: Which,
}
