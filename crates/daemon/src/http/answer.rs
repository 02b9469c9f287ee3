//! Refusals as HTTP answers, and bodies as values.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use tributary_wire::control::{Refusal, RefusalCode};

/// A refusal on its way to the caller.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) Refusal);

impl Refused {
    pub(crate) fn new(code: RefusalCode, message: impl Into<String>) -> Self {
        Self(Refusal { code, message: message.into() })
    }

    fn status(&self) -> StatusCode {
        match self.0.code {
            RefusalCode::Unauthorized => StatusCode::UNAUTHORIZED,
            RefusalCode::Forbidden => StatusCode::FORBIDDEN,
            RefusalCode::BadRequest | RefusalCode::TlsRequired => StatusCode::BAD_REQUEST,
            RefusalCode::NotFound => StatusCode::NOT_FOUND,
            RefusalCode::NameTaken | RefusalCode::NoTree | RefusalCode::NodeExhausted => {
                StatusCode::CONFLICT
            }
            RefusalCode::LimitReached => StatusCode::TOO_MANY_REQUESTS,
            RefusalCode::NodeSilent => StatusCode::SERVICE_UNAVAILABLE,
            // A code that only a newer version of the messages has.
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl<E: Into<Refusal>> From<E> for Refused {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        tracing::debug!(code = ?self.0.code, message = self.0.message, "request refused");
        (self.status(), Json(self.0)).into_response()
    }
}

/// Reads a body.
pub(crate) fn parse<T: DeserializeOwned>(
    body: Result<Bytes, BytesRejection>,
) -> Result<T, Refused> {
    let bad = |problem: String| Refused::new(RefusalCode::BadRequest, problem);
    let body = body.map_err(|rejection| bad(rejection.body_text()))?;
    serde_json::from_slice(&body).map_err(|error| bad(format!("body: {error}")))
}
