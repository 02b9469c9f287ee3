//! Who may call: the operator by its token, tenants by theirs.

use std::sync::{Arc, OnceLock};

use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tributary_protocol::manager::Caller;
use tributary_transport::token::Token;
use tributary_wire::control::RefusalCode;

use super::answer::Refused;

/// Connections that one tenant may have at once: a quarter of all that a daemon takes.
pub(super) const TENANT_CONNECTIONS_MAX: usize = super::LIMITS.connections / 4;

/// The tokens that a daemon knows.
pub(crate) struct Access {
    operator: Token,
    tenants: Vec<TenantAccess>,
    /// Connections that one tenant may have.
    connections_max: usize,
}

struct TenantAccess {
    name: String,
    token: Token,
    room: Arc<Semaphore>,
}

/// A connection's place among its tenant's, from its first call on.
#[derive(Clone, Default)]
pub(super) struct Place(Arc<OnceLock<OwnedSemaphorePermit>>);

impl Access {
    /// Access for the operator, and for tenants by their names.
    pub(crate) fn new(operator: Token, tenants: impl IntoIterator<Item = (String, Token)>) -> Self {
        Self::within(operator, tenants, TENANT_CONNECTIONS_MAX)
    }

    pub(super) fn within(
        operator: Token,
        tenants: impl IntoIterator<Item = (String, Token)>,
        connections_max: usize,
    ) -> Self {
        let tenants = tenants.into_iter().map(|(name, token)| TenantAccess {
            name,
            token,
            room: Arc::new(Semaphore::new(connections_max)),
        });
        Self { operator, tenants: tenants.collect(), connections_max }
    }

    /// The operator's token, then those of tenants.
    pub(super) fn tokens(&self) -> impl Iterator<Item = &Token> {
        std::iter::once(&self.operator).chain(self.tenants.iter().map(|tenant| &tenant.token))
    }

    /// Whom the token stands for. Every known token is compared, so the time taken does not tell which it is.
    fn caller(&self, shown: &[u8]) -> Option<(Caller, Option<&TenantAccess>)> {
        let mut found = None;
        for tenant in &self.tenants {
            if tenant.token.matches(shown) {
                found = Some((Caller::Tenant(tenant.name.clone()), Some(tenant)));
            }
        }
        if self.operator.matches(shown) { Some((Caller::Operator, None)) } else { found }
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
    let Some((caller, tenant)) = shown.and_then(|shown| access.caller(shown)) else {
        let refused = Refused::new(
            RefusalCode::Unauthorized,
            "this daemon asks for its token: authorization: Bearer TOKEN (see TRIBUTARY_TOKEN_FILE)",
        );
        let scheme = [(header::WWW_AUTHENTICATE, "Bearer")];
        return (scheme, refused).into_response();
    };
    if let Some(tenant) = tenant
        && let Some(place) = request.extensions().get::<Place>()
        && !place.take(&tenant.room)
    {
        return too_many_connections(&tenant.name, access.connections_max).into_response();
    }
    request.extensions_mut().insert(caller);
    next.run(request).await
}

/// Refuses tenants what is the operator's.
pub(crate) async fn operator_only(request: Request, next: Next) -> Response {
    match request.extensions().get::<Caller>() {
        Some(Caller::Operator) => next.run(request).await,
        _ => {
            let (method, path) = (request.method(), request.uri().path());
            let message =
                format!("{method} {path} needs the operator's token, and this is a tenant's");
            Refused::new(RefusalCode::Forbidden, message).into_response()
        }
    }
}

impl Place {
    /// Takes one of the tenant's places, unless the connection has one. `false` if there is none left.
    fn take(&self, room: &Arc<Semaphore>) -> bool {
        if self.0.get().is_some() {
            return true;
        }
        let permit = Arc::clone(room).try_acquire_owned();
        permit.is_ok_and(|permit| self.0.set(permit).is_ok())
    }
}

fn too_many_connections(tenant: &str, max: usize) -> Refused {
    let message = format!(
        "tenant `{tenant}` has {max} connections to the manager already, which is its limit; \
         they are free when its jobs end"
    );
    Refused::new(RefusalCode::LimitReached, message)
}
