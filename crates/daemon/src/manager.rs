//! The manager's HTTP service around [`tributary_protocol::manager`].
//!
//! Owns the connections, the clock and the way of each order to its node. Decides nothing: every
//! request becomes an input of the machine, every output goes to whoever waits for it. Paths and
//! bodies: `docs/control.md`.
//!
//! One mutex guards the machine. Its inputs take microseconds, and there are a few per job.

mod metrics;
mod routes;
mod service;
mod stream;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tributary_protocol::manager::ManagerConfig;
use tributary_topology::Fabric;
use tributary_wire::control::Status;

use crate::http;
use crate::shutdown::Shutdown;
use service::Service;
use tributary_transport::token::Token;

/// Between two ticks: to nodes, and of the manager's own deadlines.
const TICK_INTERVAL: Duration = Duration::from_millis(250);

/// What a manager is told at its start.
#[derive(Debug)]
pub struct ManagerOptions {
    /// What every caller has to show.
    pub token: Token,
    /// The fabric; an empty one where there is no topology file.
    pub fabric: Fabric,
    /// Limits.
    pub config: ManagerConfig,
}

/// Why there is no manager.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// No random seed for capabilities could be had.
    #[error("no random bytes for capabilities: {0}")]
    NoEntropy(io::Error),
}

/// A manager that is about to serve.
pub struct Manager {
    token: Token,
    service: Arc<Service>,
    shutdown: Shutdown,
}

/// A look at a manager from within its process.
#[derive(Clone)]
pub struct Watch(Arc<Service>);

impl Watch {
    /// The fabric now.
    #[must_use]
    pub fn status(&self) -> Status {
        self.0.status()
    }
}

impl Manager {
    /// A manager with nothing to manage yet, that serves until `shutdown`.
    ///
    /// # Errors
    /// If no random bytes can be had.
    pub fn new(options: ManagerOptions, shutdown: Shutdown) -> Result<Self, ManagerError> {
        let ManagerOptions { token, fabric, config } = options;
        let service =
            Service::new(config, fabric, shutdown.clone()).map_err(ManagerError::NoEntropy)?;
        Ok(Self { token, service: Arc::new(service), shutdown })
    }

    /// A look at it, for whoever runs it in the same process.
    #[must_use]
    pub fn watch(&self) -> Watch {
        Watch(Arc::clone(&self.service))
    }

    /// Serves until asked to stop. Then nodes and jobs see their connections end.
    pub async fn serve(self, listener: TcpListener) {
        if let Ok(address) = listener.local_addr() {
            tracing::info!(%address, "manager listens");
        }
        let ticking = tokio::spawn(tick(Arc::clone(&self.service)));
        let ending = {
            let (service, shutdown) = (Arc::clone(&self.service), self.shutdown.clone());
            tokio::spawn(async move {
                shutdown.requested().await;
                service.close_streams();
            })
        };
        let calls = http::Guarded::new(routes::router(self.service), self.token);
        http::serve(listener, calls, &self.shutdown).await;
        ending.abort();
        ticking.abort();
        tracing::info!("manager stopped");
    }
}

async fn tick(service: Arc<Service>) {
    let mut interval = tokio::time::interval(TICK_INTERVAL);
    loop {
        interval.tick().await;
        service.tick();
    }
}
