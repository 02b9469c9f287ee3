//! HTTP answers that stay open and carry one JSON value a line, with a callback for their end.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use serde::Serialize;
use tokio::sync::mpsc;

/// Sends lines into an open answer. Dropping it ends the answer cleanly.
pub(super) type Lines = mpsc::Sender<Bytes>;

/// An answer that stays open until its [`Lines`] are dropped or the caller goes away.
struct OpenAnswer<F: FnMut() + Unpin + Send + 'static> {
    lines: mpsc::Receiver<Bytes>,
    on_end: F,
}

/// Makes an open answer. `on_end` is called once, when the caller has disconnected or the answer
/// has ended.
pub(super) fn open_answer(
    lines_max: usize,
    on_end: impl FnMut() + Unpin + Send + 'static,
) -> (Lines, Response) {
    let (sender, lines) = mpsc::channel(lines_max);
    let body = Body::new(OpenAnswer { lines, on_end });
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    (sender, (kind, body).into_response())
}

/// A value as a line.
pub(super) fn line(value: &impl Serialize) -> Bytes {
    let mut text = serde_json::to_vec(value).expect("control messages are plain data");
    text.push(b'\n');
    text.into()
}

impl<F: FnMut() + Unpin + Send + 'static> HttpBody for OpenAnswer<F> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.lines.poll_recv(context).map(|line| line.map(|line| Ok(Frame::data(line))))
    }
}

impl<F: FnMut() + Unpin + Send + 'static> Drop for OpenAnswer<F> {
    fn drop(&mut self) {
        (self.on_end)();
    }
}
