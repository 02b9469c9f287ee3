//! Bodies of requests: how long they may take, how long they may be, and how much of them one party may have here at
//! once.
//!
//! A body is read before its call is made, so a call never holds what has not come.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tributary_wire::control::RefusalCode;

use super::answer::Refused;

/// How long a body may take: the longest that a tenant may send needs 3.4 Mbit/s.
const WITHIN: Duration = Duration::from_secs(10);

/// Bytes of bodies that one tenant may have in a daemon at once: eight of the longest requests for a group.
const TENANT_BYTES_MAX: usize = 32 << 20;

/// As above, of the operator: four of the longest offers of an aggregator.
const OPERATOR_BYTES_MAX: usize = 256 << 20;

/// Room for the bodies of one party. Clones share it.
#[derive(Clone)]
pub(super) struct BodyRoom {
    bytes: Arc<Semaphore>,
    bytes_max: usize,
}

impl BodyRoom {
    pub(super) fn of_a_tenant() -> Self {
        Self::new(TENANT_BYTES_MAX)
    }

    pub(super) fn of_the_operator() -> Self {
        Self::new(OPERATOR_BYTES_MAX)
    }

    fn new(bytes_max: usize) -> Self {
        Self { bytes: Arc::new(Semaphore::new(bytes_max)), bytes_max }
    }

    /// Takes room for `bytes` more; none if there is not so much.
    fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.bytes).try_acquire_many_owned(u32::try_from(bytes).ok()?).ok()
    }
}

/// Limits of the bodies of some calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyLimits {
    bytes_max: usize,
    within: Duration,
}

impl BodyLimits {
    /// Bodies of up to `bytes_max` bytes, each of which comes in time.
    pub(crate) fn up_to(bytes_max: usize) -> Self {
        Self { bytes_max, within: WITHIN }
    }

    #[cfg(test)]
    pub(super) fn within(self, within: Duration) -> Self {
        Self { within, ..self }
    }
}

/// Reads the body, and makes the call with it.
pub(crate) async fn read_body(
    State(limits): State<BodyLimits>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    // Requests of those who showed a token have it.
    let Some(room) = parts.extensions.remove::<BodyRoom>() else {
        return Refused::new(RefusalCode::Unauthorized, "no token, no body").into_response();
    };
    let declared = parts.headers.get(header::CONTENT_LENGTH);
    let declared = declared.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if declared.is_some_and(|bytes| bytes > limits.bytes_max) {
        return too_long(limits).into_response();
    }
    let read = match timeout(limits.within, read(body, &room, limits)).await {
        Ok(Ok(read)) => read,
        Ok(Err(refused)) => return refused.into_response(),
        Err(_) => return too_slow(limits).into_response(),
    };
    let (bytes, _held) = read;
    next.run(Request::from_parts(parts, Body::from(bytes))).await
}

type Read = (Bytes, Option<OwnedSemaphorePermit>);

/// The whole body, and the room that it takes.
async fn read(mut body: Body, room: &BodyRoom, limits: BodyLimits) -> Result<Read, Refused> {
    let mut whole = Vec::new();
    let mut held: Option<OwnedSemaphorePermit> = None;
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let broken = |error: axum::Error| {
            Refused::new(RefusalCode::BadRequest, format!("the body broke off: {error}"))
        };
        // Anything else is a trailer, which no call has a use for.
        let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
        if whole.len() + data.len() > limits.bytes_max {
            return Err(too_long(limits));
        }
        let more = room.take(data.len()).ok_or_else(|| no_room(room))?;
        match &mut held {
            Some(held) => held.merge(more),
            None => held = Some(more),
        }
        whole.extend_from_slice(&data);
    }
    Ok((whole.into(), held))
}

fn too_long(limits: BodyLimits) -> Refused {
    let message = format!("the body is longer than {} bytes", limits.bytes_max);
    Refused::new(RefusalCode::BadRequest, message)
}

fn too_slow(limits: BodyLimits) -> Refused {
    let message = format!("the body did not come within {:?}", limits.within);
    Refused::new(RefusalCode::BadRequest, message)
}

fn no_room(room: &BodyRoom) -> Refused {
    let message = format!(
        "requests with this token have bodies of {} bytes under way already, which is the limit; try again",
        room.bytes_max
    );
    Refused::new(RefusalCode::LimitReached, message)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::task::{Context, Poll};

    use axum::Router;
    use axum::http::StatusCode;
    use axum::middleware::from_fn_with_state;
    use axum::routing::post;
    use hyper::body::Frame;
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;
    use tokio::runtime::Builder;

    use super::*;

    /// A body of which some has come, and the rest never does.
    struct Unfinished(Option<Bytes>);

    impl HttpBody for Unfinished {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            self.0.take().map_or(Poll::Pending, |data| Poll::Ready(Some(Ok(Frame::data(data)))))
        }
    }

    async fn send(limits: BodyLimits, room: &BodyRoom, body: Body) -> StatusCode {
        let calls = Router::new()
            .route("/", post(async |body: Bytes| body.len().to_string()))
            .layer(from_fn_with_state(limits, read_body));
        let mut request = Request::post("/").body(body).unwrap();
        request.extensions_mut().insert(room.clone());
        TowerToHyperService::new(calls).call(request).await.unwrap().status()
    }

    fn run(test: impl Future<Output = ()>) {
        Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
    }

    #[test]
    fn a_body_that_never_ends_is_refused_and_gives_its_room_back() {
        run(unfinished_bodies());
    }

    async fn unfinished_bodies() {
        let room = BodyRoom::new(1000);
        let limits = BodyLimits::up_to(800).within(Duration::from_millis(20));
        for _ in 0..5 {
            let body = Body::new(Unfinished(Some(Bytes::from(vec![0; 700]))));
            assert_eq!(send(limits, &room, body).await, StatusCode::BAD_REQUEST);
            assert_eq!(room.bytes.available_permits(), 1000);
        }
        assert_eq!(send(limits, &room, Body::from(vec![0; 800])).await, StatusCode::OK);
        assert_eq!(send(limits, &room, Body::from(vec![0; 801])).await, StatusCode::BAD_REQUEST);
        assert_eq!(room.bytes.available_permits(), 1000);
    }

    #[test]
    fn all_bodies_of_a_party_together_are_bounded() {
        run(many_bodies());
    }

    async fn many_bodies() {
        let room = BodyRoom::new(1000);
        let limits = BodyLimits::up_to(800).within(Duration::from_secs(3600));
        let held = tokio::spawn({
            let room = room.clone();
            async move {
                send(limits, &room, Body::new(Unfinished(Some(Bytes::from(vec![0; 700]))))).await
            }
        });
        while room.bytes.available_permits() == 1000 {
            tokio::task::yield_now().await;
        }
        let refused = send(limits, &room, Body::from(vec![0; 301])).await;
        assert_eq!(refused, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(send(limits, &room, Body::from(vec![0; 300])).await, StatusCode::OK);
        held.abort();
        let _ = held.await;
        assert_eq!(send(limits, &room, Body::from(vec![0; 800])).await, StatusCode::OK);
    }
}
