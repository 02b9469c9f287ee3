//! The page that the manager serves to browsers: what is allowed to see it, and its files.
//!
//! A holder of the token draws a code, opens `/open` with it, and gets a cookie ([`visitors`]). With the cookie a
//! browser may read, and nothing else. The files are written by hand and part of the program, so that nothing is
//! fetched from anywhere else; the policy in [`POLICY`] has browsers enforce that.
//!
//! Knows nothing of what is shown: the manager supplies the stream of events.

mod visitors;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::get;

pub(crate) use visitors::Visitors;

/// Scripts, styles and connections of this manager only, and no page around it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Path, type, content.
type File = (&'static str, &'static str, &'static str);

const FILES: [File; 8] = [
    ("/", "text/html; charset=utf-8", include_str!("../page/index.html")),
    ("/page/style.css", "text/css; charset=utf-8", include_str!("../page/style.css")),
    ("/page/main.js", SCRIPT, include_str!("../page/main.js")),
    ("/page/fabric.js", SCRIPT, include_str!("../page/fabric.js")),
    ("/page/rates.js", SCRIPT, include_str!("../page/rates.js")),
    ("/page/table.js", SCRIPT, include_str!("../page/table.js")),
    ("/page/tree.js", SCRIPT, include_str!("../page/tree.js")),
    ("/page/icon.svg", "image/svg+xml", include_str!("../page/icon.svg")),
];

/// What a browser without a cookie is told.
const CLOSED: &str = include_str!("../page/closed.html");

/// The page's calls. `events` is served to visitors, too.
pub(crate) fn router(visitors: Arc<Visitors>, events: Router) -> Router {
    let files = FILES.iter().fold(Router::new(), |router, &(path, kind, content)| {
        router.route(path, get(async move || ([(header::CONTENT_TYPE, kind)], content)))
    });
    files
        .merge(events)
        .layer(from_fn_with_state(Arc::clone(&visitors), admit))
        .route("/open", get(open).with_state(visitors))
        .layer(from_fn(add_headers))
}

/// Lets visitors pass.
async fn admit(State(visitors): State<Arc<Visitors>>, request: Request, next: Next) -> Response {
    let is_visitor = request
        .headers()
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|cookies| visitors.knows(cookies));
    if is_visitor { next.run(request).await } else { refuse_page() }
}

/// Exchanges a code for a cookie.
async fn open(State(visitors): State<Arc<Visitors>>, request: Request) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let on_loopback = host.is_some_and(visitors::is_loopback);
    let code = request.uri().query().and_then(|query| query.strip_prefix("code="));
    match code.and_then(|code| visitors.redeem(code, on_loopback)) {
        Some(cookie) => ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response(),
        None => refuse_page(),
    }
}

fn refuse_page() -> Response {
    (StatusCode::UNAUTHORIZED, Html(CLOSED)).into_response()
}

async fn add_headers(request: Request, next: Next) -> Response {
    let answer = next.run(request).await;
    (HEADERS, answer).into_response()
}
