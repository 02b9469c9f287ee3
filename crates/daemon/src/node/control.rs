//! The aggregator's session with the manager: registers, and then takes orders, reports and surveys at once.
//!
//! Groups outlive a session: they need no manager. The aggregator tells the next one what it holds
//! ([`InstalledGroups`]), and that one orders what it does not want to be removed.

mod error;
mod orders;
mod reports;
mod surveys;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tributary_wire::control::{GroupWait, NodeEvent, NodeOrder, NodeRegistration};

use super::activity::Activity;
use super::call::Caller;
use super::commands::{LoopGone, Orders};
use super::installed_groups::InstalledGroups;
use super::lines::Lines;
use crate::shutdown::Shutdown;
use error::SessionError;
use orders::{Forwarder, next_order};
use reports::Reporter;
use surveys::Surveyor;
use tributary_transport::token::Token;

/// Pauses before the aggregator registers again: the first, and the longest after doubling.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);

/// The control thread's state.
pub(super) struct Control {
    pub(super) manager: String,
    pub(super) token: Token,
    pub(super) registration: NodeRegistration,
    pub(super) allow_shm: bool,
    pub(super) orders: Orders,
    pub(super) events: mpsc::Receiver<NodeEvent>,
    pub(super) waits: watch::Receiver<Vec<GroupWait>>,
    pub(super) installed_groups: InstalledGroups,
    pub(super) activity: Arc<Activity>,
    /// Whether a manager has the aggregator registered.
    pub(super) is_registered: Arc<AtomicBool>,
    pub(super) shutdown: Shutdown,
}

impl Control {
    /// Holds sessions until asked to stop, or until the event loop is gone.
    pub(super) async fn run(mut self) {
        let shutdown = self.shutdown.clone();
        tokio::select! {
            () = shutdown.wait_for_request() => {}
            LoopGone = self.reconnect_until_stopped() => {}
        }
    }

    async fn reconnect_until_stopped(&mut self) -> LoopGone {
        let mut pause = RETRY_MIN;
        // One line per outage, not one per attempt.
        let mut is_outage_logged = false;
        loop {
            let mut registered = false;
            let Err(error) = self.session(&mut registered).await;
            // Relaxed: nothing else is read because of it.
            self.is_registered.store(false, Ordering::Relaxed);
            if matches!(error, SessionError::LoopGone(_)) {
                return LoopGone;
            }
            if registered {
                pause = RETRY_MIN;
                is_outage_logged = false;
            }
            // While stopping, an aggregator may outlive its manager for a moment.
            if !is_outage_logged && !self.shutdown.is_requested() {
                tracing::warn!("no manager: {error}; trying again until there is one");
                is_outage_logged = true;
            }
            sleep(pause).await;
            pause = (pause * 2).min(RETRY_MAX);
        }
    }

    /// Registers, and serves the session until it fails.
    async fn session(&mut self, registered: &mut bool) -> Result<Infallible, SessionError> {
        for removed in self.installed_groups.begin_session(&mut self.events) {
            self.orders.give(removed).await?;
        }
        let mut caller = Caller::new(&self.manager, &self.token);
        let stream =
            caller.post("/v1/nodes", &self.installed_groups.offer(&self.registration)).await?;
        let mut lines = Lines::new(stream.into_body());
        let node = match next_order(&mut lines).await? {
            NodeOrder::Registered { node } => node,
            _ => return Err(SessionError::NotRegistered),
        };
        *registered = true;
        // Relaxed: as above.
        self.is_registered.store(true, Ordering::Relaxed);
        tracing::info!(
            "registered at {} as aggregation node {node} `{}`",
            self.manager,
            self.registration.name
        );
        let (refusals, refused) = mpsc::channel(1);
        let forwarder = Forwarder {
            orders: &self.orders,
            allow_shm: self.allow_shm,
            registration: &self.registration,
            installed_groups: &self.installed_groups,
            refusals,
        };
        let mut reporter =
            Reporter { caller: Caller::new(&self.manager, &self.token), node, takes_counts: true };
        let surveyor = Surveyor {
            caller: Caller::new(&self.manager, &self.token),
            path: format!("/v1/nodes/{node}/waits"),
            orders: &self.orders,
            installed_groups: &self.installed_groups,
            waits: self.waits.clone(),
        };
        tokio::select! {
            ended = forwarder.forward_orders(&mut lines) => ended,
            ended = reporter.report(&mut self.events, &self.installed_groups, &self.activity, refused) => ended,
            ended = surveyor.run() => ended,
        }
    }
}
