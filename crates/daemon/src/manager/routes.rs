//! HTTP paths, and how their bodies become calls of the service.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use tributary_protocol::manager::Caller;
use tributary_wire::control::{Drained, GroupGrant, PageCode, RefusalCode, Status};
use tributary_wire::{JobId, NodeId};

use super::service::Service;
use super::watching::watch;
use crate::http::answer::{Refused, parse};
use crate::page::Visitors;

/// Longest offer of a node: 65,536 groups, each with a few dozen children.
const OFFER_BYTES_MAX: usize = 64 << 20;

/// Longest other body: a group of as many endpoints as a manager allows, with host names of 60 bytes.
const BODY_BYTES_MAX: usize = 4 << 20;

type Body = Result<Bytes, BytesRejection>;
type Number = Result<Path<u32>, PathRejection>;
type Shared = State<Arc<Service>>;

/// What jobs call, and whoever has a token.
pub(super) fn of_jobs(service: Arc<Service>) -> Router {
    Router::new()
        .route("/v1/jobs", post(admit))
        .route("/v1/jobs/{job}/groups", post(request_group))
        .route("/v1/status", get(status))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(service)
}

/// What nodes call, and whoever runs the fabric.
pub(super) fn of_the_operator(service: Arc<Service>) -> Router {
    Router::new()
        .route("/v1/nodes", post(register).layer(DefaultBodyLimit::max(OFFER_BYTES_MAX)))
        .route("/v1/nodes/{node}/events", post(take_events))
        .route("/v1/nodes/{node}/waits", post(take_waits))
        .route("/v1/nodes/{node}/counts", post(take_counts))
        .route("/v1/drain", post(drain))
        .route("/metrics", get(render_metrics))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(service)
}

/// What the page reads.
pub(super) fn events(service: Arc<Service>) -> Router {
    Router::new().route("/v1/watch", get(watch)).with_state(service)
}

/// Where a holder of the token gets codes for the page.
pub(super) fn codes(visitors: Arc<Visitors>) -> Router {
    Router::new().route("/v1/page/codes", post(draw_code)).with_state(visitors)
}

async fn register(State(service): Shared, body: Body) -> Result<Response, Refused> {
    Ok(service.register(parse(body)?)?)
}

async fn take_events(
    State(service): Shared,
    node: Number,
    body: Body,
) -> Result<StatusCode, Refused> {
    service.take_events(NodeId(number(node)?), parse(body)?)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn take_waits(
    State(service): Shared,
    node: Number,
    body: Body,
) -> Result<StatusCode, Refused> {
    service.take_waits(NodeId(number(node)?), parse(body)?);
    Ok(StatusCode::NO_CONTENT)
}

async fn take_counts(
    State(service): Shared,
    node: Number,
    body: Body,
) -> Result<StatusCode, Refused> {
    service.take_counts(NodeId(number(node)?), parse(body)?)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn drain(State(service): Shared, body: Body) -> Result<Json<Drained>, Refused> {
    Ok(Json(service.drain(&parse(body)?)?))
}

async fn admit(
    State(service): Shared,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Result<Response, Refused> {
    Ok(service.admit(&caller, parse(body)?)?)
}

async fn request_group(
    State(service): Shared,
    job: Number,
    body: Body,
) -> Result<Json<GroupGrant>, Refused> {
    let decision = service.request_group(JobId(number(job)?), &parse(body)?)?;
    match decision.await {
        Ok(decision) => Ok(Json(decision?)),
        Err(_) => Err(Refused::new(RefusalCode::NodeSilent, "the manager is stopping")),
    }
}

async fn status(State(service): Shared, Extension(caller): Extension<Caller>) -> Json<Status> {
    Json(service.status(&caller))
}

async fn render_metrics(State(service): Shared) -> String {
    service.render_metrics()
}

async fn draw_code(State(visitors): State<Arc<Visitors>>) -> Result<Json<PageCode>, Refused> {
    let code = visitors.draw_code().map_err(|error| {
        Refused::new(RefusalCode::LimitReached, format!("no random bytes for a code: {error}"))
    })?;
    Ok(Json(PageCode { code }))
}

fn number(path: Number) -> Result<u32, Refused> {
    path.map(|Path(number)| number)
        .map_err(|error| Refused::new(RefusalCode::BadRequest, error.body_text()))
}
