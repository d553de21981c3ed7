//! What the server has other processes of this program do: whatever starts or ends a machine, or takes long. One
//! process runs one machine, and a server that did that itself would be the parent of all of them.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use api::Name;
use serde::{Deserialize, Serialize};
use spec::Spec;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use utoipa::ToSchema;

use crate::error::Error;
use crate::limits::SAID_MAX_BYTES;

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Verb {
    /// Make a machine and start it. Its description is what the process reads.
    Create(Box<Spec>),
    /// Start one again that has ended.
    Start(Name),
    /// Ask it to end, and end it when it does not within so many seconds.
    Stop(Name, u64),
    /// Send its command a signal, or end it.
    Kill(Name, Option<u8>),
    /// Remove what is left of it; with force, end it first.
    Remove(Name, bool),
    /// Write a snapshot of it. What the process prints is a [`api::v1::Snapshot`].
    Snapshot(Name, Snapshot),
    /// Run a command in it, with the process's streams and status.
    Execute(Name, Execution),
}

/// Where a snapshot of a domain is to be written, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// The file, by an absolute path of the host.
    #[schema(value_type = String)]
    pub file: PathBuf,
    /// Compress the guest's memory (Zstandard).
    #[serde(default)]
    pub compress: bool,
    /// Replace the file if there is one.
    #[serde(default)]
    pub force: bool,
}

/// A command that is to be run in a domain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Execution {
    /// The command and its arguments.
    #[schema(min_items = 1)]
    pub args: Vec<String>,
    /// Its environment, as NAME=VALUE, beside that of the domain's description and image.
    #[serde(default)]
    pub env: Vec<String>,
    /// Its working directory; if that is left out, that of the domain's description or image, or /.
    pub directory: Option<String>,
    /// USER or USER:GROUP that it runs as; if that is left out, as the domain's description or image says, or root.
    pub user: Option<String>,
    /// Its standard input; empty if that is left out.
    pub input: Option<String>,
}

/// What processes of a domain have used of the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Time of the host's processors.
    pub computed: Duration,
    /// Bytes of the host's memory.
    pub memory: u64,
    /// Bytes read from disks.
    pub read: u64,
    /// Bytes written to them.
    pub written: u64,
}

/// The program that the server is a part of. It knows its own command line, which this crate does not.
pub trait Program: Send + Sync + 'static {
    /// The version of it.
    fn version(&self) -> String;
    /// The process that does this.
    fn command(&self, verb: &Verb) -> std::process::Command;
    /// What the processes of a domain have used that this process owns.
    fn usage(&self, process: i32) -> Usage;
}

/// What a verb has printed, and what it has said besides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said {
    /// On standard output.
    pub printed: String,
    /// On standard error.
    pub messages: String,
}

/// Starts the process that does this, with streams in our hands. The terminal's signals are not for it: who interrupts
/// the server ends no machine.
pub fn prepare(program: &dyn Program, verb: &Verb) -> Command {
    let mut command = Command::from(program.command(verb));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    command
}

/// What the process reads.
#[must_use]
pub fn input(verb: &Verb) -> Vec<u8> {
    match verb {
        Verb::Create(spec) => spec.to_json().into_bytes(),
        Verb::Execute(_, execution) => execution.input.clone().unwrap_or_default().into_bytes(),
        _ => Vec::new(),
    }
}

/// Has it done. If the server ends meanwhile, the process goes on.
///
/// # Errors
///
/// The process cannot be started, or has failed and said why.
pub async fn carry_out(program: &dyn Program, verb: &Verb) -> Result<Said, Error> {
    let mut child = prepare(program, verb).spawn()?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // One that does not read it says why.
            let _ = stdin.write_all(&input(verb)).await;
        }
    };
    let ((), printed, messages, ended) =
        tokio::join!(write, read(stdout), read(stderr), child.wait());
    let (messages, ended) = (without_prefix(&messages), ended?);
    match ended.success() {
        true => Ok(Said { printed, messages }),
        false if messages.is_empty() => Err(Error::Verb(format!("it has failed: {ended}"))),
        false => Err(Error::Verb(messages)),
    }
}

/// What comes from a stream until its end, as much as is kept of it.
async fn read(stream: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut stream) = stream else { return String::new() };
    let mut said = Vec::new();
    let _ = (&mut stream).take(SAID_MAX_BYTES).read_to_end(&mut said).await;
    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&said).into_owned()
}

/// The messages without the name of the program before each.
fn without_prefix(said: &str) -> String {
    let lines = said.lines().map(|line| line.strip_prefix("biv: ").unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Shell(&'static str);

    impl Program for Shell {
        fn version(&self) -> String {
            String::new()
        }

        fn command(&self, _: &Verb) -> std::process::Command {
            let mut command = std::process::Command::new("sh");
            command.args(["-c", self.0]);
            command
        }

        fn usage(&self, _: i32) -> Usage {
            Usage::default()
        }
    }

    fn done(script: &'static str, verb: &Verb) -> Result<Said, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let done = runtime.expect("a runtime").block_on(carry_out(&Shell(script), verb));
        done.map_err(|error| error.to_string())
    }

    fn start() -> Verb {
        Verb::Start("web".parse().expect("a name"))
    }

    #[test]
    fn what_a_verb_says_is_told() {
        let said = done("echo web; echo 'biv: careful' >&2", &start()).expect("it succeeds");
        assert_eq!((said.printed.as_str(), said.messages.as_str()), ("web\n", "careful"));
        let reason = done("echo 'biv: no room' >&2; exit 125", &start()).expect_err("it fails");
        assert_eq!(reason, "no room");
        let reason = done("exit 3", &start()).expect_err("it fails");
        assert!(reason.contains('3'), "{reason}");
    }

    #[test]
    fn what_is_beyond_the_limit_holds_nothing_up() {
        let said = done("head -c 1000000 /dev/zero; echo end >&2", &start()).expect("it succeeds");
        assert_eq!(said.printed.len() as u64, SAID_MAX_BYTES);
        assert_eq!(said.messages, "end");
    }

    #[test]
    fn a_process_that_reads_nothing_is_not_waited_for() {
        let execution = Execution { input: Some("x".repeat(1 << 20)), ..Execution::default() };
        let verb = Verb::Execute("web".parse().expect("a name"), execution);
        assert_eq!(done("exec true", &verb), Ok(Said::default()));
        let said = done("wc -c", &verb).expect("it succeeds");
        assert_eq!(said.printed.trim(), (1 << 20).to_string());
    }
}
