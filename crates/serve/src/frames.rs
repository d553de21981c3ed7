//! Connections that become those of a domain's control socket: what the client and the domain say is passed on as it
//! is.

use std::io;
use std::os::unix::net::UnixStream;

use api::client::Client;
use api::http::FRAMES;
use hyper::StatusCode;
use hyper::header::{CONNECTION, HeaderValue, UPGRADE};
use hyper::upgrade::{OnUpgrade, on};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncWriteExt, copy_bidirectional};

use crate::call::{Call, blocking};
use crate::error::Error;
use crate::reply::{self, Reply};

/// Asks the domain for the same, by this path, and passes on what both say if it agrees.
///
/// # Errors
///
/// The request does not ask for frames, or the domain refuses.
pub async fn pass_on(mut call: Call, path: &'static str) -> Result<Reply, Error> {
    if !asks_for_frames(&call) {
        return Err(Error::Upgrade);
    }
    let (entry, permit) = (call.entry().await?, call.stream()?);
    let (stream, received) =
        blocking(move || Ok(Client::connect(&entry)?.upgrade(path, FRAMES)?)).await?;
    let client = on(&mut call.request);
    // The server has something to do although this is no connection of HTTP any more.
    let busy = call.shared.activity.begin();
    tokio::spawn(async move {
        // Who breaks it off has what he wants.
        let _ = carry(client, stream, received).await;
        drop((busy, permit));
    });
    let mut reply = Reply::new(reply::body(""));
    *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    reply.headers_mut().insert(UPGRADE, HeaderValue::from_static(FRAMES));
    Ok(reply)
}

/// Whether a request asks for frames.
fn asks_for_frames(call: &Call) -> bool {
    let wanted = call.request.headers().get(UPGRADE);
    wanted.is_some_and(|wanted| wanted.as_bytes().eq_ignore_ascii_case(FRAMES.as_bytes()))
}

async fn carry(client: OnUpgrade, domain: UnixStream, received: Vec<u8>) -> io::Result<()> {
    domain.set_nonblocking(true)?;
    let mut domain = tokio::net::UnixStream::from_std(domain)?;
    let mut client = TokioIo::new(client.await.map_err(io::Error::other)?);
    client.write_all(&received).await?;
    copy_bidirectional(&mut client, &mut domain).await?;
    Ok(())
}
