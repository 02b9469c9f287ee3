//! The state machine, and the connections that its outputs go to.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::response::Response;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tributary_manager::{
    AdmitError, Caller, DrainError, EventError, GroupError, LateGroup, Manager, ManagerConfig,
    RegisterError, RequestTicket,
};
use tributary_protocol::Time;
use tributary_topology::Fabric;
use tributary_wire::control::{
    DrainRequest, Drained, GroupGrant, GroupRequest, GroupWait, JobRequest, NodeCounts, NodeEvent,
    NodeOffer, NodeOrder, Status, WaitingStatus,
};
use tributary_wire::text::printable_within;
use tributary_wire::{Epoch, JobId, NodeId};

use super::metrics::Metrics;
use super::refusals::Refusals;
use super::stream::{Lines, line, open_answer};
use crate::liveness::NODE_SILENT_TICKS_MAX;
use crate::shutdown::Shutdown;
use tributary_transport::token::random_bytes;

/// Most orders queued for an aggregator. An aggregator that leaves so many unread is dropped.
const ORDERS_MAX: usize = 4096;

/// Longest name or label in a line of the log, in bytes.
const LOGGED_TEXT_BYTES_MAX: usize = 64;

/// Most streams of events at once.
pub(super) const WATCHERS_MAX: usize = 32;

type Decision = Result<GroupGrant, GroupError>;

pub(super) struct Service {
    metrics: Metrics,
    started: Instant,
    /// While stopping, aggregators that disconnect are not logged.
    shutdown: Shutdown,
    /// A group that waits for so long is logged; none if it never is.
    late_after: Option<Duration>,
    watchers: Arc<Semaphore>,
    core: Mutex<Core>,
}

struct Core {
    machine: Manager,
    nodes: HashMap<NodeId, NodeConnection>,
    /// By a number of their own: a job may have several.
    leases: HashMap<u64, Lines>,
    leases_opened: u64,
    waiting: HashMap<RequestTicket, oneshot::Sender<Decision>>,
    refusals: Refusals,
}

/// Says whom a group has been waiting for.
fn log_late(late: &LateGroup) {
    let LateGroup { group, job, label, waiting } = late;
    let WaitingStatus { operation, waited_ms, hosts, nodes } = waiting;
    let what =
        operation.map_or_else(|| "members to join".to_owned(), |it| format!("operation {it}"));
    let late = [&hosts[..], &nodes[..]].concat().join(", ");
    tracing::warn!(%group, %job, label, late, "waiting for {what} for {:.1} s", *waited_ms as f64 / 1e3);
}

/// What aggregators have done so far.
#[derive(Debug, Serialize)]
pub(super) struct Counts {
    /// Milliseconds since this manager started.
    at_ms: u64,
    /// Aggregators that have told of none are left out.
    nodes: BTreeMap<NodeId, NodeCounts>,
}

struct NodeConnection {
    lines: Lines,
    /// Ticks since its last message.
    silent_ticks: u32,
    /// As it told last; none from aggregators of older versions.
    counts: Option<NodeCounts>,
}

impl Service {
    pub(super) fn new(
        config: ManagerConfig,
        fabric: Fabric,
        place_keys: Vec<[u8; 32]>,
        late_after: Option<Duration>,
        shutdown: Shutdown,
    ) -> io::Result<Self> {
        let seed = random_bytes()?;
        // A manager that comes after another meets groups and jobs with the other's numbers.
        let first = |bytes: [u8; 4]| u32::from_le_bytes(bytes);
        let config = ManagerConfig {
            first_epoch: Epoch(first(random_bytes()?)),
            first_job: JobId(first(random_bytes()?)),
            ..config
        };
        let core = Core {
            machine: Manager::new(config, fabric, seed).with_place_keys(place_keys),
            nodes: HashMap::new(),
            leases: HashMap::new(),
            leases_opened: 0,
            refusals: Refusals::default(),
            waiting: HashMap::new(),
        };
        Ok(Self {
            metrics: Metrics::new(),
            started: Instant::now(),
            shutdown,
            late_after,
            watchers: Arc::new(Semaphore::new(WATCHERS_MAX)),
            core: Mutex::new(core),
        })
    }

    /// Registers an aggregator. The answer stays open and carries the aggregator's orders.
    pub(super) fn register(self: &Arc<Self>, offer: NodeOffer) -> Result<Response, RegisterError> {
        let (name, groups) = (offer.registration.name.clone(), offer.holds.len());
        let mut core = self.lock();
        let node = core.machine.register_node(offer)?;
        let service = Arc::downgrade(self);
        let (lines, response) = open_answer(ORDERS_MAX, move || {
            if let Some(service) = service.upgrade() {
                service.node_gone(node, "its connection closed");
            }
        });
        core.nodes.insert(node, NodeConnection { lines, silent_ticks: 0, counts: None });
        tracing::info!(%node, name, groups, "aggregation node registered");
        core.deliver();
        Ok(response)
    }

    /// Handles an aggregator's events in order, up to the first that the state machine refuses.
    pub(super) fn take_events(
        &self,
        node: NodeId,
        events: Vec<NodeEvent>,
    ) -> Result<(), EventError> {
        let now = self.now();
        let mut core = self.lock();
        if let Some(connection) = core.nodes.get_mut(&node) {
            connection.silent_ticks = 0;
        }
        let outcome = events.into_iter().try_for_each(|event| {
            if !matches!(event, NodeEvent::Tick) {
                tracing::debug!(%node, ?event, "node event");
            }
            core.machine.handle_node_event(now, node, event)
        });
        core.deliver();
        outcome
    }

    /// Notes what an aggregator's groups wait for.
    pub(super) fn take_waits(&self, node: NodeId, waits: Vec<GroupWait>) {
        let now = self.now();
        self.lock().machine.note_waits(now, node, waits);
    }

    /// Keeps what an aggregator says that it has done.
    pub(super) fn take_counts(&self, node: NodeId, counts: NodeCounts) -> Result<(), EventError> {
        let mut core = self.lock();
        let connection = core.nodes.get_mut(&node).ok_or(EventError::UnknownNode { node })?;
        connection.counts = Some(counts);
        Ok(())
    }

    /// What aggregators have done.
    pub(super) fn counts(&self) -> Counts {
        let core = self.lock();
        let told =
            |(node, connection): (&NodeId, &NodeConnection)| Some((*node, connection.counts?));
        let nodes = core.nodes.iter().filter_map(told).collect();
        Counts { at_ms: self.started.elapsed().as_millis() as u64, nodes }
    }

    /// Room for one more stream of events.
    pub(super) fn admit_watcher(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.watchers).try_acquire_owned().ok()
    }

    /// Returns when the manager is asked to stop.
    pub(super) async fn stopping(&self) {
        self.shutdown.wait_for_request().await;
    }

    /// Moves an aggregator's groups away.
    pub(super) fn drain(&self, request: &DrainRequest) -> Result<Drained, DrainError> {
        let mut core = self.lock();
        let drained = core.machine.drain_node(request)?;
        tracing::info!(node = request.node, groups = drained.groups, "aggregation node drained");
        core.deliver();
        Ok(drained)
    }

    /// Admits a job. The open answer is the job's lease.
    pub(super) fn admit(
        self: &Arc<Self>,
        caller: &Caller,
        request: JobRequest,
    ) -> Result<Response, AdmitError> {
        // It may be as long as a body.
        let name = printable_within(&request.name, LOGGED_TEXT_BYTES_MAX).into_owned();
        let is_back = request.resume.is_some();
        let mut core = self.lock();
        let admission = core.machine.admit_job(caller, request).inspect_err(|error| {
            tracing::warn!(%error, name, tenant = caller.tenant(), "job refused");
        })?;
        let job = admission.job;
        core.leases_opened += 1;
        let lease = core.leases_opened;
        let service = Arc::downgrade(self);
        let (lines, response) = open_answer(1, move || {
            if let Some(service) = service.upgrade() {
                service.lease_closed(lease, job);
            }
        });
        // The channel is empty and holds one line.
        let _ = lines.try_send(line(&admission));
        core.leases.insert(lease, lines);
        tracing::info!(%job, name, tenant = caller.tenant(), is_back, "job admitted");
        Ok(response)
    }

    /// Requests a group. The decision comes through the receiver.
    pub(super) fn request_group(
        &self,
        caller: &Caller,
        job: JobId,
        request: &GroupRequest,
    ) -> Result<oneshot::Receiver<Decision>, GroupError> {
        let now = self.now();
        let mut core = self.lock();
        let ticket =
            core.machine.request_group(now, caller, job, request).inspect_err(|error| {
                let why = error.to_string();
                if core.refusals.is_new(job, &why) {
                    let label = printable_within(&request.label, LOGGED_TEXT_BYTES_MAX);
                    tracing::warn!(error = why, %job, %label, "group refused");
                }
            })?;
        let (sender, receiver) = oneshot::channel();
        core.waiting.insert(ticket, sender);
        core.deliver();
        Ok(receiver)
    }

    /// The fabric, without what aggregators have done: it changes only when something happens.
    pub(super) fn fabric(&self, caller: &Caller) -> Status {
        let now = self.now();
        self.lock().machine.visible_status(now, caller)
    }

    /// What `caller` may see of the fabric now; an operator also sees what aggregators have done for all.
    pub(super) fn status(&self, caller: &Caller) -> Status {
        let mut status = self.fabric(caller);
        if *caller == Caller::Operator {
            let core = self.lock();
            for node in &mut status.nodes {
                node.counts = core.nodes.get(&node.node).and_then(|connection| connection.counts);
            }
        }
        status
    }

    /// The metrics as Prometheus text.
    pub(super) fn render_metrics(&self) -> String {
        let now = self.now();
        let core = self.lock();
        self.metrics.render(core.machine.stats(), &core.machine.status(now))
    }

    /// Checks deadlines, sends ticks to aggregators, and drops aggregators that are silent for too long.
    pub(super) fn tick(&self) {
        let now = self.now();
        let mut core = self.lock();
        core.machine.handle_timeout(now);
        if let Some(patience) = self.late_after {
            let patience_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
            core.machine.take_late(now, patience_ms).iter().for_each(log_late);
        }
        let tick = line(&NodeOrder::Tick);
        for connection in core.nodes.values_mut() {
            connection.silent_ticks += 1;
            // If the channel is full, the aggregator does not read; its silence then ends it.
            let _ = connection.lines.try_send(tick.clone());
        }
        core.deliver();
        let is_silent =
            |connection: &NodeConnection| connection.silent_ticks > NODE_SILENT_TICKS_MAX;
        let silent: Vec<NodeId> = core
            .nodes
            .iter()
            .filter_map(|(node, connection)| is_silent(connection).then_some(*node))
            .collect();
        drop(core);
        for node in silent {
            self.node_gone(node, "it has been silent for too long");
        }
    }

    /// Ends every open answer, so that the server can stop.
    pub(super) fn close_streams(&self) {
        let mut core = self.lock();
        core.nodes.clear();
        core.leases.clear();
    }

    fn node_gone(&self, node: NodeId, why: &str) {
        let mut core = self.lock();
        if core.nodes.remove(&node).is_some() && !self.shutdown.is_requested() {
            tracing::warn!(%node, why, "aggregation node gone");
        }
        core.machine.handle_node_gone(node);
        core.deliver();
    }

    fn lease_closed(&self, lease: u64, job: JobId) {
        let mut core = self.lock();
        core.leases.remove(&lease);
        core.machine.handle_lease_closed(job);
        core.refusals.forget(job);
        tracing::info!(%job, "job's lease ended");
        core.deliver();
    }

    fn now(&self) -> Time {
        Time(self.started.elapsed().as_nanos() as u64)
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Core {
    /// Delivers the machine's outputs to aggregators and jobs.
    fn deliver(&mut self) {
        while let Some((node, order)) = self.machine.poll_order() {
            let Some(connection) = self.nodes.get(&node) else { continue };
            if connection.lines.try_send(line(&order)).is_err() {
                // It would miss an order. Ending its answer makes it register again, and the
                // machine handles that like any aggregator that disconnects.
                tracing::warn!(%node, "aggregation node takes no orders");
                self.nodes.remove(&node);
            }
        }
        while let Some((ticket, decision)) = self.machine.poll_decision() {
            match &decision {
                Ok(grant) => tracing::info!(group = %grant.group, "group granted"),
                Err(error) => tracing::warn!(%error, "group refused"),
            }
            if let Some(waiting) = self.waiting.remove(&ticket) {
                // If the caller is gone, its job's lease frees the group.
                let _ = waiting.send(decision);
            }
        }
    }
}
