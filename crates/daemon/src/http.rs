//! What every HTTP interface here has: the bearer token, bounded connections, refusals as JSON.
//!
//! Knows nothing of the paths behind it.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tributary_wire::control::{Refusal, RefusalCode};

use crate::shutdown::Shutdown;
use crate::token::Token;

/// Connections at once; more wait in the listener's queue.
const CONNECTIONS_MAX: usize = 16_384;

/// How long a client may take to send a request's head.
const HEAD_WITHIN: Duration = Duration::from_secs(10);

/// After the system was short of something, connectors wait this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A silent connection is probed after this long, and as often again.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);

/// Unanswered probes after which its other end counts as gone.
const PROBES_MAX: u32 = 3;

/// An answer that is not a success.
pub(crate) fn refuse(code: RefusalCode, message: impl Into<String>) -> Response {
    let body = Refusal { code, message: message.into() };
    let mut response = (status(code), json(&body)).into_response();
    if code == RefusalCode::Unauthorized {
        let scheme = header::HeaderValue::from_static("Bearer");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
    }
    response
}

/// A value as a JSON answer.
pub(crate) fn json<T: serde::Serialize>(value: &T) -> Response {
    // The control types have string keys and finite numbers only, which always serialise.
    let text = serde_json::to_string(value).expect("a control message has a JSON form");
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

fn status(code: RefusalCode) -> StatusCode {
    match code {
        RefusalCode::Unauthorized => StatusCode::UNAUTHORIZED,
        RefusalCode::Forbidden => StatusCode::FORBIDDEN,
        RefusalCode::BadRequest => StatusCode::BAD_REQUEST,
        RefusalCode::NotFound => StatusCode::NOT_FOUND,
        RefusalCode::NameTaken | RefusalCode::NoTree | RefusalCode::NodeExhausted => {
            StatusCode::CONFLICT
        }
        RefusalCode::NodeSilent => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Puts the token before every path of `router`, those it doesn't have included.
pub(crate) fn guarded(router: Router, token: Token) -> Router {
    router
        .fallback(|| async { refuse(RefusalCode::NotFound, "no such path; see docs/control.md") })
        .method_not_allowed_fallback(|| async {
            refuse(RefusalCode::BadRequest, "this path takes another method; see docs/control.md")
        })
        .layer(from_fn_with_state(Arc::new(token), check_token))
}

async fn check_token(State(token): State<Arc<Token>>, request: Request, next: Next) -> Response {
    let shown = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    match shown {
        Some(shown) if token.matches(shown) => next.run(request).await,
        Some(_) => refuse(RefusalCode::Unauthorized, "the bearer token is not this fabric's"),
        None => refuse(RefusalCode::Unauthorized, "every call needs the fabric's bearer token"),
    }
}

/// Serves `router` on `listener` until asked to stop. Streams are cut then: to their readers, the
/// daemon is gone.
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
                let router = router.clone();
                connections.spawn(async move {
                    serve_connection(stream, router).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::error!("cannot accept control connections for now: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    connections.shutdown().await;
}

async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let permit = Arc::clone(room).acquire_owned().await.expect("the semaphore is never closed");
    let (stream, _) = listener.accept().await?;
    Ok((stream, permit))
}

async fn serve_connection(stream: TcpStream, router: Router) {
    // Orders are short lines that must not wait for each other.
    let _ = stream.set_nodelay(true);
    // A lease is silent by design, so only the kernel can notice that its holder's host is gone.
    let _ = keep_alive(&stream);
    let outcome = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await;
    if let Err(error) = outcome {
        // A node or job that dies ends its stream this way: nothing out of the ordinary.
        tracing::debug!("control connection: {error}");
    }
}

fn keep_alive(stream: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PROBE_INTERVAL)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, PROBES_MAX)
}
