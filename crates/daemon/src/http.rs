//! What every HTTP interface here has: TLS, the bearer token, bounded connections, refusals as JSON.
//!
//! Knows nothing of the paths behind it.

pub(crate) mod answer;
mod certificate;
mod scheme;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
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
use answer::Refused;
use scheme::Scheme;
use tributary_transport::token::Token;

/// What connections may take.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Connections at once, handshakes included; more wait in the listener's queue.
    connections: usize,
    /// How long a client may take until both have agreed on keys, and again for a request's head.
    head_within: Duration,
}

const LIMITS: Limits = Limits { connections: 16_384, head_within: Duration::from_secs(10) };

/// After the system was short of something, connectors wait this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long calls may take to end when the daemon stops.
const GRACEFUL_CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// Calls that are answered to holders of the token.
#[derive(Clone)]
pub(crate) struct Guarded {
    calls: Router,
    exposed: Router,
    tls: TlsAcceptor,
}

impl Guarded {
    /// Puts the token before every path of `router`, those it doesn't have included, and before
    /// that TLS for whoever is on another host.
    pub(crate) fn new(router: Router, token: Token) -> Self {
        let tls = TlsAcceptor::from(certificate::server_config(&token));
        let calls = router
            .fallback(not_found)
            .method_not_allowed_fallback(not_found)
            .layer(from_fn_with_state(Arc::new(token), authorize));
        Self { calls, exposed: scheme::exposed_router(), tls }
    }
}

async fn not_found(request: Request) -> Refused {
    let (method, path) = (request.method(), request.uri().path());
    Refused::new(RefusalCode::NotFound, format!("no such call: {method} {path}"))
}

/// Lets nobody in without the token, whatever the path.
async fn authorize(State(token): State<Arc<Token>>, request: Request, next: Next) -> Response {
    let shown = request.headers().get(header::AUTHORIZATION).map(|value| value.as_bytes());
    let shown = shown.and_then(|value| value.strip_prefix(b"Bearer "));
    if shown.is_some_and(|shown| token.matches(shown)) {
        return next.run(request).await;
    }
    let refused = Refused::new(
        RefusalCode::Unauthorized,
        "this daemon asks for its token: authorization: Bearer TOKEN (see TRIBUTARY_TOKEN_FILE)",
    );
    let scheme = [(header::WWW_AUTHENTICATE, "Bearer")];
    (scheme, refused).into_response()
}

/// Serves `guarded` on `listener` until asked to stop; calls under way then have a moment to end.
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
            () = shutdown.requested() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
        };
        match accepted {
            Ok((accepted, permit)) => {
                let (guarded, shutdown) = (guarded.clone(), shutdown.clone());
                connections.spawn(async move {
                    accepted.serve(guarded, limits.head_within, &shutdown).await;
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

/// A connection that has said nothing yet.
struct Accepted {
    stream: TcpStream,
    peer: SocketAddr,
}

impl Accepted {
    async fn serve(self, guarded: Guarded, head_within: Duration, shutdown: &Shutdown) {
        // Orders are short lines that must not wait for each other.
        let _ = self.stream.set_nodelay(true);
        // A lease is silent by design, so only the kernel can notice that its holder's host is gone.
        let _ = watch_host(&self.stream);
        let peer = self.peer;
        let opening = tokio::time::timeout(head_within, self.open(&guarded.tls));
        let opened = tokio::select! {
            opened = opening => opened,
            () = shutdown.requested() => return,
        };
        match opened {
            Ok(Ok(Opened::Tls(stream))) => {
                converse(*stream, guarded.calls, head_within, shutdown).await;
            }
            Ok(Ok(Opened::Plain(stream))) => {
                converse(stream, guarded.calls, head_within, shutdown).await;
            }
            Ok(Ok(Opened::Exposed(stream))) => {
                tracing::warn!("{peer} speaks plain HTTP over a network; it is told to use TLS");
                converse(stream, guarded.exposed, head_within, shutdown).await;
            }
            // Whoever has another token gives up here, and says why on his side.
            Ok(Err(error)) => tracing::debug!(%peer, %error, "no control connection"),
            Err(_) => tracing::debug!(%peer, "no control connection within {head_within:?}"),
        }
    }

    /// Waits for the first byte, and for keys if it asks for them.
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

/// A connection over which HTTP can be spoken.
enum Opened {
    Tls(Box<tokio_rustls::server::TlsStream<TcpStream>>),
    Plain(TcpStream),
    Exposed(TcpStream),
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    router: Router,
    head_within: Duration,
    shutdown: &Shutdown,
) {
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_within)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = shutdown.requested() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = outcome {
        // A node or job that dies ends its stream this way: nothing out of the ordinary.
        tracing::debug!(%error, "control connection");
    }
}
