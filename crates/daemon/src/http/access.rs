//! Callers and what they may do: the operator, readers and tenants, each by a token.

use std::sync::{Arc, OnceLock};

use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tributary_manager::Caller;
use tributary_transport::token::Token;
use tributary_wire::control::RefusalCode;

use super::answer::Refused;
use super::bodies::BodyRoom;
use super::limits::LIMITS;
use crate::tokens::Tokens;

/// Connections that one tenant, or the readers, may have at once: a quarter of all that a daemon takes.
pub(super) const CONNECTIONS_MAX: usize = LIMITS.connections / 4;

/// What a token is good for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Everything.
    Operator,
    /// Reading: metrics, the status of all jobs, the page.
    Reader,
    /// The jobs of this tenant.
    Tenant(String),
}

impl Role {
    /// The caller whose jobs and groups it sees.
    pub(crate) fn view(&self) -> Caller {
        match self {
            Self::Operator | Self::Reader => Caller::Operator,
            Self::Tenant(name) => Caller::Tenant(name.clone()),
        }
    }

    /// The caller as the owner of jobs that it starts; none if it may start none.
    fn owner(&self) -> Option<Caller> {
        match self {
            Self::Reader => None,
            role => Some(role.view()),
        }
    }

    /// As in a refusal.
    fn token_name(&self) -> &'static str {
        match self {
            Self::Operator => "the operator's",
            Self::Reader => "a reader's",
            Self::Tenant(_) => "a tenant's",
        }
    }
}

/// The tokens that a daemon knows.
pub(crate) struct Access {
    /// The operator first.
    parties: Vec<Party>,
    /// Connections that one party but the operator may have.
    connections_max: usize,
}

/// Somebody who may call.
struct Party {
    role: Role,
    tokens: Vec<Token>,
    /// None for the operator, who is never kept out.
    connections: Option<Arc<Semaphore>>,
    bodies: BodyRoom,
}

/// A connection's place among its party's, from its first call on.
#[derive(Clone, Default)]
pub(super) struct ConnectionPermit(Arc<OnceLock<OwnedSemaphorePermit>>);

impl Access {
    /// Access for the operator, for readers, and for tenants by their names.
    pub(crate) fn new(
        tokens: Tokens,
        tenants: impl IntoIterator<Item = (String, Vec<Token>)>,
    ) -> Self {
        Self::within(tokens, tenants, CONNECTIONS_MAX)
    }

    pub(super) fn within(
        tokens: Tokens,
        tenants: impl IntoIterator<Item = (String, Vec<Token>)>,
        connections_max: usize,
    ) -> Self {
        let limited = |role, tokens| Party {
            role,
            tokens,
            connections: Some(Arc::new(Semaphore::new(connections_max))),
            bodies: BodyRoom::of_a_tenant(),
        };
        let operator = Party {
            role: Role::Operator,
            tokens: tokens.operator,
            connections: None,
            bodies: BodyRoom::of_the_operator(),
        };
        let readers = limited(Role::Reader, tokens.readers);
        let tenants = tenants.into_iter().map(|(name, tokens)| limited(Role::Tenant(name), tokens));
        Self { parties: [operator, readers].into_iter().chain(tenants).collect(), connections_max }
    }

    /// All tokens, the operator's first.
    pub(super) fn tokens(&self) -> impl Iterator<Item = &Token> {
        self.parties.iter().flat_map(|party| &party.tokens)
    }

    /// The party that the token stands for. Every known token is compared, so the time taken does not tell which it is.
    fn party(&self, shown: &[u8]) -> Option<&Party> {
        let mut found = None;
        for party in self.parties.iter().rev() {
            for token in &party.tokens {
                if token.matches(shown) {
                    found = Some(party);
                }
            }
        }
        found
    }
}

/// Refuses every request without a known token, whatever the path, and tells the others who calls.
pub(super) async fn authorize(
    State(access): State<Arc<Access>>,
    mut request: Request,
    next: Next,
) -> Response {
    let shown = request.headers().get(header::AUTHORIZATION).map(|value| value.as_bytes());
    let shown = shown.and_then(|value| value.strip_prefix(b"Bearer "));
    let Some(party) = shown.and_then(|shown| access.party(shown)) else {
        let refused = Refused::new(
            RefusalCode::Unauthorized,
            "this daemon asks for its token: authorization: Bearer TOKEN (see TRIBUTARY_TOKEN_FILE)",
        );
        let scheme = [(header::WWW_AUTHENTICATE, "Bearer")];
        return (scheme, refused).into_response();
    };
    if let Some(room) = &party.connections
        && let Some(place) = request.extensions().get::<ConnectionPermit>()
        && !place.take(room)
    {
        return too_many_connections(&party.role, access.connections_max).into_response();
    }
    let (role, bodies) = (party.role.clone(), party.bodies.clone());
    request.extensions_mut().insert(role);
    request.extensions_mut().insert(bodies);
    next.run(request).await
}

/// Refuses all but the operator.
pub(crate) async fn operator_only(request: Request, next: Next) -> Response {
    match role_of(&request) {
        Some(Role::Operator) => next.run(request).await,
        role => not_with_that_token(&request, role, "the operator's token"),
    }
}

/// Refuses tenants what shows the jobs of all.
pub(crate) async fn readers_only(request: Request, next: Next) -> Response {
    match role_of(&request) {
        Some(Role::Operator | Role::Reader) => next.run(request).await,
        role => not_with_that_token(&request, role, "the operator's token or a reader's"),
    }
}

/// Refuses those who may have no jobs, and tells the others' calls whose jobs they are about: a [`Caller`].
pub(crate) async fn owners_only(mut request: Request, next: Next) -> Response {
    let role = role_of(&request);
    match role.as_ref().and_then(Role::owner) {
        Some(owner) => {
            request.extensions_mut().insert(owner);
            next.run(request).await
        }
        None => not_with_that_token(&request, role, "a tenant's token or the operator's"),
    }
}

fn role_of(request: &Request) -> Option<Role> {
    request.extensions().get::<Role>().cloned()
}

fn not_with_that_token(request: &Request, role: Option<Role>, needed: &str) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    let shown = role.as_ref().map_or("no", Role::token_name);
    let message = format!("{method} {path} needs {needed}, and this is {shown}");
    Refused::new(RefusalCode::Forbidden, message).into_response()
}

impl ConnectionPermit {
    /// Takes one of the party's places, unless the connection has one. `false` if there is none left.
    fn take(&self, room: &Arc<Semaphore>) -> bool {
        if self.0.get().is_some() {
            return true;
        }
        let permit = Arc::clone(room).try_acquire_owned();
        permit.is_ok_and(|permit| self.0.set(permit).is_ok())
    }
}

fn too_many_connections(role: &Role, max: usize) -> Refused {
    let (who, when) = match role {
        Role::Tenant(name) => (format!("tenant `{name}` has"), "when its jobs end"),
        _ => ("readers have".to_owned(), "when they are closed"),
    };
    let message = format!(
        "{who} {max} connections to the manager already, which is the limit; they are free {when}"
    );
    Refused::new(RefusalCode::LimitReached, message)
}
