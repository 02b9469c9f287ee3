//! The HTTP server of all daemons: TLS, bearer token, bounded connections, refusals as JSON.
//!
//! Knows nothing of the paths that it serves.

pub(crate) mod access;
pub(crate) mod answer;
pub(crate) mod bodies;
mod certificate;
pub(crate) mod health;
mod limits;
mod scheme;
mod stalls;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::middleware::from_fn_with_state;
use axum::{Extension, Router};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tributary_wire::control::RefusalCode;

pub use certificate::certificate_pem;

use crate::liveness::watch_host;
use crate::shutdown::Shutdown;
use access::{Access, ConnectionPermit, authorize};
use answer::Refused;
use limits::{LIMITS, Limits};
use scheme::Scheme;
use stalls::Unstalled;

/// What is read ahead of a connection, and most bytes of a request's head.
const READ_AHEAD_BYTES_MAX: usize = 32 << 10;

/// Pause before the next accept after the system lacked a resource.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Timeout of the graceful close of all connections when the daemon stops.
const GRACEFUL_CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// A router whose calls need a token.
#[derive(Clone)]
pub(crate) struct Guarded {
    calls: Router,
    exposed: Router,
    tls: TlsAcceptor,
}

impl Guarded {
    /// Requires a known token for every path, including unknown ones, and TLS from clients on other
    /// hosts. Requests then say who calls, as a [`tributary_manager::Caller`].
    pub(crate) fn new(router: Router, access: Access) -> Self {
        let tls = TlsAcceptor::from(certificate::server_config(&access));
        let calls = router
            .fallback(not_found)
            .method_not_allowed_fallback(not_found)
            .layer(from_fn_with_state(Arc::new(access), authorize));
        Self { calls, exposed: scheme::exposed_router(), tls }
    }

    /// Serves calls that need neither a token nor TLS.
    pub(crate) fn openly(mut self, health: Router) -> Self {
        self.calls = self.calls.merge(health.clone());
        self.exposed = self.exposed.merge(health);
        self
    }

    /// Serves `others` as well, which decide for themselves whom they answer.
    pub(crate) fn beside(mut self, others: Router) -> Self {
        self.calls = self.calls.merge(others);
        self
    }
}

async fn not_found(request: Request) -> Refused {
    let (method, path) = (request.method(), request.uri().path());
    Refused::new(RefusalCode::NotFound, format!("no such call: {method} {path}"))
}

/// Serves `guarded` on `listener` until asked to stop, then closes gracefully.
pub(crate) async fn serve(listener: TcpListener, guarded: Guarded, shutdown: &Shutdown) {
    serve_within(LIMITS, listener, guarded, shutdown).await;
}

async fn serve_within(
    limits: Limits,
    listener: TcpListener,
    guarded: Guarded,
    shutdown: &Shutdown,
) {
    let room = Arc::new(Semaphore::new(limits.connections));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &room) => accepted,
            () = shutdown.wait_for_request() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
        };
        match accepted {
            Ok((accepted, permit)) => {
                let (guarded, shutdown) = (guarded.clone(), shutdown.clone());
                connections.spawn(async move {
                    accepted.serve(guarded, limits, &shutdown).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::error!(%error, "cannot accept control connections for now");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let ending = async { while connections.join_next().await.is_some() {} };
    let ended = tokio::time::timeout(GRACEFUL_CLOSE_WITHIN, ending).await;
    if ended.is_err() {
        connections.shutdown().await;
    }
}

async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> io::Result<(Accepted, OwnedSemaphorePermit)> {
    let permit = Arc::clone(room).acquire_owned().await.expect("the semaphore is never closed");
    let (stream, peer) = listener.accept().await?;
    Ok((Accepted { stream, peer }, permit))
}

/// A connection on which nothing has been received.
struct Accepted {
    stream: TcpStream,
    peer: SocketAddr,
}

impl Accepted {
    async fn serve(self, guarded: Guarded, limits: Limits, shutdown: &Shutdown) {
        // Orders are short lines that must not wait for each other.
        let _ = self.stream.set_nodelay(true);
        // A lease is silent by design, so only the kernel can notice that its holder's host is
        // gone.
        let _ = watch_host(&self.stream);
        let peer = self.peer;
        let opening = tokio::time::timeout(limits.head_within, self.open(&guarded.tls));
        let opened = tokio::select! {
            opened = opening => opened,
            () = shutdown.wait_for_request() => return,
        };
        match opened {
            Ok(Ok(Opened::Tls(stream))) => {
                serve_requests(*stream, guarded.calls, limits, shutdown).await;
            }
            Ok(Ok(Opened::Plain(stream))) => {
                serve_requests(stream, guarded.calls, limits, shutdown).await;
            }
            Ok(Ok(Opened::Exposed(stream))) => {
                let calls = guarded.exposed.layer(Extension(scheme::Stranger(peer)));
                serve_requests(stream, calls, limits, shutdown).await;
            }
            // A client with another token ends the handshake here, and reports the reason on its
            // side.
            Ok(Err(error)) => tracing::debug!(%peer, %error, "no control connection"),
            Err(_) => {
                tracing::debug!(%peer, "no control connection within {:?}", limits.head_within)
            }
        }
    }

    /// Waits for the first byte, then does the TLS handshake if the byte begins one.
    async fn open(self, tls: &TlsAcceptor) -> io::Result<Opened> {
        let mut first_byte = [0];
        if self.stream.peek(&mut first_byte).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(match Scheme::of(first_byte[0], self.peer.ip()) {
            Scheme::Tls => Opened::Tls(Box::new(tls.accept(self.stream).await?)),
            Scheme::Plain => Opened::Plain(self.stream),
            Scheme::Exposed => Opened::Exposed(self.stream),
        })
    }
}

/// A connection that is ready for HTTP.
enum Opened {
    Tls(Box<tokio_rustls::server::TlsStream<TcpStream>>),
    Plain(TcpStream),
    Exposed(TcpStream),
}

async fn serve_requests(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    router: Router,
    limits: Limits,
    shutdown: &Shutdown,
) {
    let router = router.layer(Extension(ConnectionPermit::default()));
    let stream = Unstalled::new(stream, limits.unread_within);
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_within)
        .max_buf_size(READ_AHEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = shutdown.wait_for_request() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = outcome {
        // An aggregator or job that dies ends its stream this way, which is no fault of this daemon.
        tracing::debug!(%error, "control connection");
    }
}
