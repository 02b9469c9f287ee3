//! HTTP paths, and how their bodies become calls of the service.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use tributary_manager::Caller;
use tributary_wire::control::{Drained, GroupGrant, PageCode, RefusalCode, Status};
use tributary_wire::{JobId, NodeId};

use super::service::Service;
use super::watching::watch;
use crate::http::access::{Role, operator_only, owners_only, readers_only};
use crate::http::answer::{Refused, parse};
use crate::http::bodies::{BodyLimits, read_body};
use crate::page::Visitors;

/// Longest offer of an aggregator: 65,536 groups, each with a few dozen children.
const OFFER_BYTES_MAX: usize = 64 << 20;

/// Longest other body: a group of as many endpoints as a manager allows, with host names of 60 bytes.
const BODY_BYTES_MAX: usize = 4 << 20;

type Body = Result<Bytes, BytesRejection>;
type Number = Result<Path<u32>, PathRejection>;
type Shared = State<Arc<Service>>;

/// All calls that need a token, each for those whose token is good for it.
pub(super) fn of_all(
    service: &Arc<Service>,
    visitors: Arc<Visitors>,
    tuning: Option<Arc<str>>,
) -> Router {
    let everybodys = Router::new().route("/v1/status", get(status));
    let calls = everybodys.merge(of_owners()).merge(of_readers()).merge(of_the_operator());
    let calls = calls.with_state(Arc::clone(service));
    let codes = Router::new()
        .route("/v1/page/codes", post(draw_code))
        .route_layer(from_fn(readers_only))
        .with_state(visitors);
    let measurements = Router::new()
        .route("/v1/tuning", get(read_tuning))
        .route_layer(from_fn(owners_only))
        .with_state(tuning);
    // An aggregator's offer is longer than all else, and has a limit of its own.
    let longest = |bytes_max| from_fn_with_state(BodyLimits::up_to(bytes_max), read_body);
    let calls = calls.merge(codes).merge(measurements).route_layer(longest(BODY_BYTES_MAX));
    let offers = Router::new()
        .route("/v1/nodes", post(register))
        .route_layer(longest(OFFER_BYTES_MAX))
        .route_layer(from_fn(operator_only))
        .with_state(Arc::clone(service));
    // What is read has been measured.
    calls.merge(offers).layer(DefaultBodyLimit::disable())
}

/// What jobs call.
fn of_owners() -> Router<Arc<Service>> {
    Router::new()
        .route("/v1/jobs", post(admit))
        .route("/v1/jobs/{job}/groups", post(request_group))
        .route_layer(from_fn(owners_only))
}

/// What shows everything and changes nothing.
fn of_readers() -> Router<Arc<Service>> {
    Router::new().route("/metrics", get(render_metrics)).route_layer(from_fn(readers_only))
}

/// What aggregation nodes and the operator call.
fn of_the_operator() -> Router<Arc<Service>> {
    Router::new()
        .route("/v1/nodes/{node}/events", post(take_events))
        .route("/v1/nodes/{node}/waits", post(take_waits))
        .route("/v1/nodes/{node}/counts", post(take_counts))
        .route("/v1/drain", post(drain))
        .route_layer(from_fn(operator_only))
}

/// What the page reads.
pub(super) fn events(service: Arc<Service>) -> Router {
    Router::new().route("/v1/watch", get(watch)).with_state(service)
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
    Extension(caller): Extension<Caller>,
    job: Number,
    body: Body,
) -> Result<Json<GroupGrant>, Refused> {
    let decision = service.request_group(&caller, JobId(number(job)?), &parse(body)?)?;
    match decision.await {
        Ok(decision) => Ok(Json(decision?)),
        Err(_) => Err(Refused::new(RefusalCode::NodeSilent, "the manager is stopping")),
    }
}

async fn status(State(service): Shared, Extension(role): Extension<Role>) -> Json<Status> {
    Json(service.status(&role.view()))
}

async fn render_metrics(State(service): Shared) -> String {
    service.render_metrics()
}

/// Nothing without measurements.
async fn read_tuning(State(tuning): State<Option<Arc<str>>>) -> Result<String, StatusCode> {
    tuning.map(|text| text.to_string()).ok_or(StatusCode::NO_CONTENT)
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
