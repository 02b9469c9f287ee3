//! `/healthz` and `/readyz`: whether a daemon lives and serves, for a supervisor that restarts it or a balancer that
//! sends it work.
//!
//! They answer without a token and over plain HTTP from everywhere, because they tell nothing else.

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;

/// The two calls. `is_ready` says why the daemon can't serve now, if it can't.
pub(crate) fn router(
    is_ready: impl Fn() -> Result<(), &'static str> + Clone + Send + Sync + 'static,
) -> Router {
    let ready = async move || match is_ready() {
        Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    };
    Router::new().route("/healthz", get(async || "ok\n")).route("/readyz", get(ready))
}
