//! The fabric as a stream of server-sent events, for the page.
//!
//! `fabric` is the status, sent at the start and whenever it changes. `counts` is what aggregators have done, once a
//! second.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::interval;
use tributary_manager::Caller;
use tributary_wire::control::RefusalCode;

use super::service::{Service, WATCHERS_MAX};
use super::stream::{Lines, open_answer};
use crate::http::answer::Refused;

const INTERVAL: Duration = Duration::from_secs(1);

/// Events that a reader may be behind. Beyond that it misses some.
const BEHIND_MAX: usize = 4;

/// Opens a stream.
pub(super) async fn watch(State(service): State<Arc<Service>>) -> Result<Response, Refused> {
    let permit = service.admit_watcher().ok_or_else(|| {
        let full = format!("{WATCHERS_MAX} streams are open already");
        Refused::new(RefusalCode::LimitReached, full)
    })?;
    let (events, answer) = open_answer(BEHIND_MAX, || ());
    tokio::spawn(send(service, events, permit));
    let kind = [(header::CONTENT_TYPE, "text/event-stream")];
    Ok((kind, answer).into_response())
}

/// Sends events until the reader or the manager ends.
async fn send(service: Arc<Service>, events: Lines, _permit: OwnedSemaphorePermit) {
    let mut ticks = interval(INTERVAL);
    let mut sent = Bytes::new();
    while !events.is_closed() {
        tokio::select! {
            _ = ticks.tick() => {}
            () = service.stopping() => return,
        }
        let fabric = event("fabric", &service.fabric(&Caller::Operator));
        if fabric != sent && events.try_send(fabric.clone()).is_ok() {
            sent = fabric;
        }
        // A reader that is behind gets the next one.
        let _ = events.try_send(event("counts", &service.counts()));
    }
}

fn event(name: &str, value: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(value).expect("control messages are plain data");
    format!("event: {name}\ndata: {data}\n\n").into()
}
