//! The command line of `biv serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};

use super::parse_seconds;

/// Serve an HTTP API that makes and controls domains, on a Unix socket.
///
/// Only you and root can connect. Domains do not depend on the server: it can end at any moment, and be started when it
/// is needed, also by systemd (socket activation). docs/serve.md explains the API; GET /v1/openapi.json describes it.
/// SIGTERM and Ctrl-C end the server.
#[derive(Debug, Args)]
pub struct Serve {
    /// Listen at PATH [default: .serve in the directory of the domains, $XDG_RUNTIME_DIR/bivouac]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub socket: Option<PathBuf>,

    /// Serve a web page, too, and print its address, which has a secret in it; ADDRESS must be one of this host only
    /// [default: 127.0.0.1:0, a free port]
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        num_args = 0..=1,
        default_missing_value = "127.0.0.1:0"
    )]
    pub web: Option<SocketAddr>,

    /// End after so long without connections and jobs
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub idle: Option<Duration>,
}
