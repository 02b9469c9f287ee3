//! The manager's HTTP service around [`tributary_manager`].
//!
//! Owns the connections and the clock, and delivers orders to aggregators. Decides nothing: every request
//! becomes an input of the state machine, and every output goes to the connection that waits for
//! it. `docs/control.md` describes paths and bodies.
//!
//! One mutex guards the machine. Its inputs take microseconds, and there are a few per job.

mod metrics;
mod refusals;
mod routes;
mod service;
mod stream;
mod tenants;
mod watching;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tributary_manager::{Caller, ManagerConfig};
use tributary_topology::Fabric;
use tributary_wire::control::Status;

use crate::http;
use crate::http::access::Access;
use crate::liveness::{TICK, every};
use crate::page::{self, Visitors};
use crate::shutdown::Shutdown;
use crate::tokens::Tokens;
use service::Service;
pub use tenants::{Tenant, TenantsError, load_tenants};
use tributary_transport::token::Token;

/// Options of a manager.
#[derive(Debug)]
pub struct ManagerOptions {
    /// The operator's tokens, which aggregators and people who run the fabric present, and jobs may; and readers'.
    pub tokens: Tokens,
    /// The tenants, which may have jobs besides the operator.
    pub tenants: Vec<Tenant>,
    /// The fabric; empty without a topology file.
    pub fabric: Fabric,
    /// Limits.
    pub config: ManagerConfig,
    /// A group that waits for an operation's missing parts for so long is logged, with who is late; none if it
    /// never is.
    pub late_after: Option<Duration>,
    /// Measurements of the site for all jobs, as `tributary tune` writes them; none if there are none.
    pub tuning: Option<String>,
}

/// Why a manager did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// The kernel gave no random seed for secrets.
    #[error("no random bytes for secrets: {0}")]
    NoEntropy(io::Error),
}

/// A manager that does not serve yet.
pub struct Manager {
    access: Access,
    service: Arc<Service>,
    visitors: Arc<Visitors>,
    tuning: Option<Arc<str>>,
    shutdown: Shutdown,
}

/// Reads a manager's status from within its process.
#[derive(Clone)]
pub struct Watch(Arc<Service>);

impl Watch {
    /// The fabric now.
    #[must_use]
    pub fn status(&self) -> Status {
        self.0.status(&Caller::Operator)
    }
}

impl Manager {
    /// A manager without aggregators and jobs, which will serve until `shutdown`.
    ///
    /// # Errors
    /// If the kernel gives no random bytes.
    pub fn new(options: ManagerOptions, shutdown: Shutdown) -> Result<Self, ManagerError> {
        let ManagerOptions { tokens, tenants, fabric, config, late_after, tuning } = options;
        let limits = tenants.iter().map(|tenant| (tenant.name.clone(), tenant.limits)).collect();
        let config = ManagerConfig { tenants: limits, has_tuning: tuning.is_some(), ..config };
        let place_keys = tokens.operator.iter().map(Token::place_key).collect();
        let access = Access::new(tokens, tenants.into_iter().map(|it| (it.name, it.tokens)));
        let service = Service::new(config, fabric, place_keys, late_after, shutdown.clone())
            .map_err(ManagerError::NoEntropy)?;
        let visitors = Visitors::new().map_err(ManagerError::NoEntropy)?;
        Ok(Self {
            access,
            service: Arc::new(service),
            visitors: Arc::new(visitors),
            tuning: tuning.map(Arc::from),
            shutdown,
        })
    }

    /// Gives access to its status from within this process.
    #[must_use]
    pub fn watch(&self) -> Watch {
        Watch(Arc::clone(&self.service))
    }

    /// Serves until asked to stop. Then it closes the connections of aggregators and jobs.
    pub async fn serve(self, listener: TcpListener) {
        if let Ok(address) = listener.local_addr() {
            tracing::info!(%address, "manager listens");
        }
        let ticking = tokio::spawn(tick(Arc::clone(&self.service)));
        let ending = {
            let (service, shutdown) = (Arc::clone(&self.service), self.shutdown.clone());
            tokio::spawn(async move {
                shutdown.wait_for_request().await;
                service.close_streams();
            })
        };
        let page =
            page::router(Arc::clone(&self.visitors), routes::events(Arc::clone(&self.service)));
        let stopping = self.shutdown.clone();
        let health = http::health::router(move || match stopping.is_requested() {
            true => Err("the manager is stopping"),
            false => Ok(()),
        });
        let router = routes::of_all(&self.service, self.visitors, self.tuning);
        let calls = http::Guarded::new(router, self.access).beside(page).openly(health);
        http::serve(listener, calls, &self.shutdown).await;
        ending.abort();
        ticking.abort();
        tracing::info!("manager stopped");
    }
}

async fn tick(service: Arc<Service>) {
    let mut ticks = every(TICK);
    loop {
        ticks.tick().await;
        service.tick();
    }
}
