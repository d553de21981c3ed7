//! The loop that accepts connections, and how it ends. One thread runs it, and everything that does not block; what
//! blocks has threads of its own.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::OwnedSemaphorePermit;

use crate::activity::Activity;
use crate::limits::{BLOCKING_THREADS_MAX, END_TIMEOUT, HEAD_MAX_BYTES, HEAD_TIMEOUT, HEADERS_MAX};
use crate::reply;
use crate::routes;
use crate::shared::Shared;
use crate::socket::Place;
use crate::verb::Program;
use crate::web::{Gate, Web};

/// How long nothing is accepted when that has failed, such as for want of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// A server that is to run.
pub struct Server {
    /// The program that this is a part of.
    pub program: Box<dyn Program>,
    /// The socket.
    pub listener: UnixListener,
    /// Its path, if it is this process that made it.
    pub place: Option<Place>,
    /// A port for browsers, if there is to be one.
    pub web: Option<Web>,
    /// It ends when there has been nothing to do for so long.
    pub idle: Option<Duration>,
}

impl Server {
    /// Serves until SIGTERM or SIGINT, or until there is nothing to do. No machine ends with it.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn run(self) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS_MAX)
            .build()?;
        let served = runtime.block_on(self.serve());
        // Threads that wait for files or for domains end with the process.
        runtime.shutdown_background();
        served
    }

    async fn serve(self) -> io::Result<()> {
        let Server { program, listener, place, web, idle } = self;
        let shared = Arc::new(Shared::new(program));
        listener.set_nonblocking(true)?;
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let web = web.map(Port::of).transpose()?;
        let mut end = pin!(end(&shared.activity, idle)?);
        loop {
            tokio::select! {
                () = &mut end => break,
                () = accept(&shared, &listener) => {}
                () = accept_browser(&shared, web.as_ref()) => {}
            }
        }
        // Who comes now finds nobody, or another server.
        drop((listener, place, web));
        let _ = tokio::time::timeout(END_TIMEOUT, shared.activity.idle(Duration::ZERO)).await;
        Ok(())
    }
}

/// What ends when the server is to.
fn end(activity: &Activity, idle: Option<Duration>) -> io::Result<impl Future<Output = ()>> {
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let activity = activity.clone();
    Ok(async move {
        let idle = async {
            match idle {
                Some(span) => activity.idle(span).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = idle => {}
        }
    })
}

/// Accepts one connection, when there may be one more.
async fn accept(shared: &Arc<Shared>, listener: &tokio::net::UnixListener) {
    let permit = Arc::clone(&shared.connections).acquire_owned().await;
    match (permit, listener.accept().await) {
        (Ok(permit), Ok((stream, _))) => {
            // The rights of the socket's file let in nobody else, but they may have been changed.
            if host::peer::is_of(stream.as_fd(), rustix::process::geteuid()) {
                converse(shared, stream, permit, None);
            }
        }
        _ => tokio::time::sleep(PAUSE).await,
    }
}

/// A port that browsers connect to.
struct Port {
    listener: tokio::net::TcpListener,
    gate: Arc<Gate>,
}

impl Port {
    fn of(web: Web) -> io::Result<Port> {
        web.listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(web.listener)?;
        Ok(Port { listener, gate: Arc::new(web.gate) })
    }
}

/// Accepts one connection of a browser, if there is a port for them.
async fn accept_browser(shared: &Arc<Shared>, port: Option<&Port>) {
    let Some(Port { listener, gate }) = port else { return std::future::pending().await };
    let permit = Arc::clone(&shared.connections).acquire_owned().await;
    match (permit, listener.accept().await) {
        (Ok(permit), Ok((stream, _))) => converse(shared, stream, permit, Some(Arc::clone(gate))),
        _ => tokio::time::sleep(PAUSE).await,
    }
}

/// Answers what comes on a connection, if it comes through this gate.
fn converse(
    shared: &Arc<Shared>,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    permit: OwnedSemaphorePermit,
    gate: Option<Arc<Gate>>,
) {
    let busy = (shared.activity.begin(), shared.connected.begin(), permit);
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let service = service_fn(move |request| {
            let admitted = gate.as_ref().map_or(Ok(()), |gate| gate.admit(&request));
            let shared = Arc::clone(&shared);
            async move {
                Ok::<_, Infallible>(match admitted {
                    Ok(()) => routes::answer(shared, request).await,
                    Err(error) => reply::problem(&error),
                })
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(HEAD_MAX_BYTES)
            .max_headers(HEADERS_MAX)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        // What is wrong with it is the client's fault, who has been told if there was a way.
        let _ = connection.await;
        drop(busy);
    });
}
