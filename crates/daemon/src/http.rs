//! What every HTTP interface here has: the bearer token, bounded connections, refusals as JSON.
//!
//! Knows nothing of the paths behind it.

pub(crate) mod answer;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tributary_wire::control::RefusalCode;

use crate::liveness::watch_host;
use crate::shutdown::Shutdown;
use answer::Refused;
use tributary_transport::token::Token;

/// Connections at once; more wait in the listener's queue.
const CONNECTIONS_MAX: usize = 16_384;

/// How long a client may take to send a request's head.
const HEAD_WITHIN: Duration = Duration::from_secs(10);

/// After the system was short of something, connectors wait this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long calls may take to end when the daemon stops.
const FAREWELL_WITHIN: Duration = Duration::from_secs(2);

/// Puts the token before every path of `router`, those it doesn't have included.
pub(crate) fn guarded(router: Router, token: Token) -> Router {
    router
        .fallback(not_found)
        .method_not_allowed_fallback(not_found)
        .layer(from_fn_with_state(Arc::new(token), authorize))
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

/// Serves `router` on `listener` until asked to stop; calls under way then have a moment to end.
pub(crate) async fn serve(listener: TcpListener, router: Router, shutdown: &Shutdown) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &room) => accepted,
            () = shutdown.requested() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
        };
        match accepted {
            Ok((stream, permit)) => {
                let (router, shutdown) = (router.clone(), shutdown.clone());
                connections.spawn(async move {
                    serve_connection(stream, router, &shutdown).await;
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
    let ended = tokio::time::timeout(FAREWELL_WITHIN, ending).await;
    if ended.is_err() {
        connections.shutdown().await;
    }
}

async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let permit = Arc::clone(room).acquire_owned().await.expect("the semaphore is never closed");
    let (stream, _) = listener.accept().await?;
    Ok((stream, permit))
}

async fn serve_connection(stream: TcpStream, router: Router, shutdown: &Shutdown) {
    // Orders are short lines that must not wait for each other.
    let _ = stream.set_nodelay(true);
    // A lease is silent by design, so only the kernel can notice that its holder's host is gone.
    let _ = watch_host(&stream);
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
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
