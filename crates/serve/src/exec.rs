//! `POST /v1/domains/{name}/exec`: a command in a domain. Its output is a stream of JSON lines; a client that wants
//! to type asks for frames instead ([`crate::frames`]).

use std::process::Stdio;

use bytes::Bytes;
use hyper::header::UPGRADE;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Child;
use tokio::sync::mpsc::{self, Sender};
use utoipa::ToSchema;

use crate::call::Call;
use crate::error::Error;
use crate::frames;
use crate::limits::{PIECES_MAX, READ_BYTES};
use crate::reply::{self, Reply};
use crate::verb::{Execution, Verb, input, prepare};

/// One line of the output of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub struct Line {
    /// Where it was written to: `stdout` or `stderr`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// What was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// The same, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// In the last line, and only there: the exit status that `biv exec` would have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u8>,
}

impl Line {
    fn of(stream: &str, bytes: &[u8]) -> Line {
        let (log, base64) = api::log::encoded(bytes);
        Line { stream: Some(stream.to_owned()), log, base64, status: None }
    }
}

/// Run a command in a domain. The answer has its output as JSON, a line for each piece, and its exit status in the
/// last line; without that line, the domain or the server has ended. If the client goes, the command gets SIGHUP.
/// With the header `Upgrade: bivouac-frames`, the connection becomes one of frames instead, as that of a domain's
/// control socket does.
#[utoipa::path(post, path = "/v1/domains/{name}/exec", request_body = Execution,
    params(("name" = String, Path, description = "Name of the domain")), responses(
    (status = 101, description = "What follows are frames"),
    (status = 200, description = "Output, as it comes", body = Line,
        content_type = "application/x-ndjson"),
    (status = 400, description = "It is no command", body = api::http::Problem),
    (status = 404, description = "There is none", body = api::http::Problem),
    (status = 409, description = "It does not run", body = api::http::Problem)))]
pub async fn exec(mut call: Call) -> Result<Reply, Error> {
    if call.request.headers().contains_key(UPGRADE) {
        return frames::pass_on(call, "/v1/domain/exec").await;
    }
    let execution: Execution = call.value().await?;
    check(&execution)?;
    let entry = call.entry().await?;
    if !entry.alive {
        return Err(api::client::Error::NotRunning(api::Kind::Domain, entry.name).into());
    }
    let permit = call.stream()?;
    let verb = Verb::Execute(entry.name, execution);
    let mut command = prepare(&*call.shared.program, &verb);
    let input = input(&verb);
    if input.is_empty() {
        command.stdin(Stdio::null());
    }
    // The command in the guest gets SIGHUP then.
    command.kill_on_drop(true);
    let child = command.spawn()?;
    let (sender, receiver) = mpsc::channel(PIECES_MAX);
    tokio::spawn(async move {
        tokio::select! {
            () = sender.closed() => {}
            () = carry(child, input, &sender) => {}
        }
    });
    Ok(reply::lines(receiver, permit))
}

/// What no process can be started with.
fn check(execution: &Execution) -> Result<(), Error> {
    let wrong = |what: &str| Err(Error::Request(what.to_owned()));
    let Execution { args, env, directory, user, .. } = execution;
    let words = args.iter().chain(env).chain(directory).chain(user);
    match args.first() {
        None => wrong("args is empty: name a command"),
        Some(_) if words.clone().any(|word| word.contains('\0')) => wrong("a word contains NUL"),
        Some(_) if env.iter().any(|one| one.split_once('=').is_none_or(|it| it.0.is_empty())) => {
            wrong("env is a list of NAME=VALUE")
        }
        Some(_) => Ok(()),
    }
}

/// Sends the output of the process, and its status.
async fn carry(mut child: Child, input: Vec<u8>, sender: &Sender<Bytes>) {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // One that does not read all of it need not.
            let _ = stdin.write_all(&input).await;
        }
    };
    tokio::join!(write, send(stdout, "stdout", sender), send(stderr, "stderr", sender));
    if let Ok(ended) = child.wait().await {
        let status = ended.code().and_then(|code| u8::try_from(code).ok());
        let status = status.unwrap_or(api::status::FAILURE);
        let last = Line { stream: None, log: None, base64: None, status: Some(status) };
        let _ = sender.send(reply::line(&last)).await;
    }
}

/// Sends what comes from a stream, until its end.
async fn send(stream: Option<impl AsyncRead + Unpin>, name: &str, sender: &Sender<Bytes>) {
    let Some(mut stream) = stream else { return };
    let mut bytes = Vec::new();
    let mut piece = vec![0; READ_BYTES];
    while let Ok(count @ 1..) = stream.read(&mut piece).await {
        bytes.extend_from_slice(&piece[..count]);
        let rest = bytes.split_off(whole(&bytes));
        let told = std::mem::replace(&mut bytes, rest);
        if !told.is_empty() && sender.send(reply::line(&Line::of(name, &told))).await.is_err() {
            return;
        }
    }
    if !bytes.is_empty() {
        let _ = sender.send(reply::line(&Line::of(name, &bytes))).await;
    }
}

/// How many of these bytes can be told now: not a character whose end has not come.
fn whole(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => bytes.len(),
    }
}

/// Attach to the command that a domain was started for. The connection becomes one of frames (`Upgrade:
/// bivouac-frames`), as that of the domain's control socket does.
#[utoipa::path(post, path = "/v1/domains/{name}/attach",
    params(("name" = String, Path, description = "Name of the domain")), responses(
    (status = 101, description = "What follows are frames"),
    (status = 404, description = "There is none", body = api::http::Problem),
    (status = 426, description = "The request asks for no upgrade", body = api::http::Problem)))]
pub async fn attach(call: Call) -> Result<Reply, Error> {
    frames::pass_on(call, "/v1/domain/attach").await
}

/// Attach to the console of a domain, in the same way.
#[utoipa::path(post, path = "/v1/domains/{name}/console",
    params(("name" = String, Path, description = "Name of the domain")), responses(
    (status = 101, description = "What follows are frames"),
    (status = 404, description = "There is none", body = api::http::Problem),
    (status = 426, description = "The request asks for no upgrade", body = api::http::Problem)))]
pub async fn console(call: Call) -> Result<Reply, Error> {
    frames::pass_on(call, "/v1/domain/console").await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_not_cut() {
        let check = |bytes: &[u8], expected| assert_eq!(whole(bytes), expected, "{bytes:?}");
        check("grün".as_bytes(), 5);
        check(&"grü".as_bytes()[..3], 2);
        check(b"", 0);
        check(b"\xff\xfe", 2);
        check(b"a\xf0\x9f\x98", 1);
    }

    #[test]
    fn what_is_no_command_is_refused() {
        let check_one = |args: &[&str], env: &[&str], is_fine: bool| {
            let all = |words: &[&str]| words.iter().map(ToString::to_string).collect();
            let execution = Execution { args: all(args), env: all(env), ..Execution::default() };
            assert_eq!(check(&execution).is_ok(), is_fine, "{execution:?}");
        };
        check_one(&["ls"], &["A=B"], true);
        check_one(&["--help"], &["A="], true);
        check_one(&[], &[], false);
        check_one(&["ls", "\0"], &[], false);
        check_one(&["ls"], &["A"], false);
        check_one(&["ls"], &["=A"], false);
    }
}
