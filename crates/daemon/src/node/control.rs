//! The node's session with the manager: registers, forwards orders to the event loop and its
//! answers to the manager.
//!
//! Groups outlive a session: they need no manager. The node tells the next one what it holds
//! ([`Holdings`]), and that one orders what it does not want to be removed.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::{mpsc, watch};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep, timeout};
use tributary_wire::NodeId;
use tributary_wire::control::{
    GroupInstall, GroupWait, NodeEvent, NodeOrder, NodeRegistration, RefusalCode,
};

use super::activity::Activity;
use super::call::{CallError, Caller};
use super::commands::{Command, LoopGone, Orders};
use super::holdings::Holdings;
use super::lines::{LineError, Lines};
use super::upward::{self, UpwardError};
use crate::liveness::{MANAGER_SILENCE_MAX, TICK};
use crate::shutdown::Shutdown;
use tributary_transport::token::Token;

/// Pauses before the node registers again: the first, and the longest after doubling.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);

/// How often groups are surveyed for what they wait for.
const SURVEY_INTERVAL: Duration = Duration::from_secs(1);

/// Interval at which the manager is told what the node has done.
const COUNTS_INTERVAL: Duration = Duration::from_secs(1);

/// Most answers in one call.
const BATCH_MAX: usize = 256;

/// The control thread's state.
pub(super) struct Control {
    pub(super) manager: String,
    pub(super) token: Token,
    pub(super) registration: NodeRegistration,
    pub(super) allow_shm: bool,
    pub(super) orders: Orders,
    pub(super) events: mpsc::Receiver<NodeEvent>,
    pub(super) waits: watch::Receiver<Vec<GroupWait>>,
    pub(super) holdings: Holdings,
    pub(super) activity: Arc<Activity>,
    pub(super) shutdown: Shutdown,
}

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("orders: {0}")]
    Line(#[from] LineError),
    #[error("the manager has been silent for {MANAGER_SILENCE_MAX:?}")]
    Silent,
    #[error("the manager's first order is not a registration")]
    NotRegistered,
    #[error("group {group} install: {source}")]
    Connector { group: u32, source: tokio::task::JoinError },
    #[error(transparent)]
    LoopGone(#[from] LoopGone),
}

impl Control {
    /// Holds sessions until asked to stop, or until the event loop is gone.
    pub(super) async fn run(mut self) {
        let shutdown = self.shutdown.clone();
        tokio::select! {
            () = shutdown.requested() => {}
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
            if matches!(error, SessionError::LoopGone(_)) {
                return LoopGone;
            }
            if registered {
                pause = RETRY_MIN;
                is_outage_logged = false;
            }
            // While stopping, a node may outlive its manager for a moment.
            if !is_outage_logged && !self.shutdown.is_requested() {
                tracing::warn!("no manager: {error}; trying again until there is one");
                is_outage_logged = true;
            }
            sleep(pause).await;
            pause = (pause * 2).min(RETRY_MAX);
        }
    }

    /// Registers, and serves the session until it fails.
    async fn session(
        &mut self,
        registered: &mut bool,
    ) -> Result<std::convert::Infallible, SessionError> {
        for removed in self.holdings.begin_session(&mut self.events) {
            self.orders.give(removed).await?;
        }
        let mut caller = Caller::new(&self.manager, &self.token);
        let stream = caller.post("/v1/nodes", &self.holdings.offer(&self.registration)).await?;
        let mut lines = Lines::new(stream.into_body());
        let node = match next_order(&mut lines).await? {
            NodeOrder::Registered { node } => node,
            _ => return Err(SessionError::NotRegistered),
        };
        *registered = true;
        tracing::info!(
            "registered at {} as node {node} `{}`",
            self.manager,
            self.registration.name
        );
        let (refusals, refused) = mpsc::channel(1);
        let forwarder = Forwarder {
            orders: &self.orders,
            allow_shm: self.allow_shm,
            registration: &self.registration,
            holdings: &self.holdings,
            refusals,
        };
        let mut reporter =
            Reporter { caller: Caller::new(&self.manager, &self.token), node, takes_counts: true };
        let surveyor = Surveyor {
            caller: Caller::new(&self.manager, &self.token),
            path: format!("/v1/nodes/{node}/waits"),
            orders: &self.orders,
            holdings: &self.holdings,
            waits: self.waits.clone(),
        };
        tokio::select! {
            ended = forwarder.forward_orders(&mut lines) => ended,
            ended = reporter.report(&mut self.events, &self.holdings, &self.activity, refused) => ended,
            ended = surveyor.run() => ended,
        }
    }
}

/// Forwards orders to the event loop.
struct Forwarder<'a> {
    orders: &'a Orders,
    allow_shm: bool,
    registration: &'a NodeRegistration,
    holdings: &'a Holdings,
    /// Installs that fail before they reach the event loop.
    refusals: mpsc::Sender<NodeEvent>,
}

impl Forwarder<'_> {
    async fn forward_orders<B>(
        &self,
        lines: &mut Lines<B>,
    ) -> Result<std::convert::Infallible, SessionError>
    where
        B: hyper::body::Body<Data = hyper::body::Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        loop {
            match next_order(lines).await? {
                NodeOrder::Tick => {}
                NodeOrder::Remove { group, epoch } => {
                    self.holdings.on_removal(group, epoch);
                    self.orders.give(Command::Remove(group, epoch)).await?;
                }
                NodeOrder::Install(install) => self.forward_install(install).await?,
                NodeOrder::Registered { .. } => return Err(SessionError::NotRegistered),
            }
        }
    }

    /// Connects to the group's parent, then forwards the install. Orders are handled one at a time:
    /// a removal must not overtake the install it follows.
    async fn forward_install(&self, install: GroupInstall) -> Result<(), SessionError> {
        let (group, epoch) = (install.group, install.epoch);
        let link = match self.connect_upward(&install).await? {
            Ok(link) => link,
            Err(error) => {
                tracing::warn!("group {group} epoch {epoch} refused: {error}");
                let refused = NodeEvent::Refused { group, epoch, reason: error.to_string() };
                // The receiver lives as long as this session.
                let _ = self.refusals.send(refused).await;
                return Ok(());
            }
        };
        self.holdings.on_install(&install);
        Ok(self.orders.give(Command::Install(Box::new(install), link)).await?)
    }

    async fn connect_upward(
        &self,
        install: &GroupInstall,
    ) -> Result<Result<Option<super::links::AnyLink>, UpwardError>, SessionError> {
        let Some(parent) = &install.parent else { return Ok(Ok(None)) };
        let address = parent.address.clone();
        let allow_shm = self.allow_shm;
        // Never longer than this node's own limits.
        let segment = install.payload_max_bytes.min(self.registration.payload_max_bytes);
        let chunk = match (&install.stream, &self.registration.stream) {
            (Some(stream), Some(own)) => stream.terms.chunk_bytes.min(own.terms_max.chunk_bytes),
            _ => 0,
        };
        let payload_max_bytes = segment.max(chunk);
        let connecting = tokio::task::spawn_blocking(move || {
            upward::connect(&address, payload_max_bytes, allow_shm)
        });
        let group = install.group.0;
        match connecting.await {
            Ok(connected) => Ok(connected.map(Some)),
            Err(source) => Err(SessionError::Connector { group, source }),
        }
    }
}

/// Tells the manager what groups wait for.
struct Surveyor<'a> {
    caller: Caller,
    path: String,
    orders: &'a Orders,
    holdings: &'a Holdings,
    waits: watch::Receiver<Vec<GroupWait>>,
}

impl Surveyor<'_> {
    async fn run(mut self) -> Result<std::convert::Infallible, SessionError> {
        // The manager knows nothing of what was told before this session.
        self.waits.mark_changed();
        let mut surveys = every(SURVEY_INTERVAL);
        loop {
            tokio::select! {
                _ = surveys.tick() => if !self.holdings.is_empty() {
                    self.orders.give(Command::Survey).await?;
                },
                changed = self.waits.changed() => {
                    changed.map_err(|_| LoopGone)?;
                    self.tell().await?;
                }
            }
        }
    }

    async fn tell(&mut self) -> Result<(), SessionError> {
        let waits = self.waits.borrow_and_update().clone();
        // A manager that is older does not ask who is late.
        post_if_known(&mut self.caller, &self.path, &waits).await.map(drop)
    }
}

async fn next_order<B>(lines: &mut Lines<B>) -> Result<NodeOrder, SessionError>
where
    B: hyper::body::Body<Data = hyper::body::Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    Ok(timeout(MANAGER_SILENCE_MAX, lines.next()).await.map_err(|_| SessionError::Silent)??)
}

/// Tells the manager what the node does.
struct Reporter {
    caller: Caller,
    node: NodeId,
    /// Whether the manager knows the call for counts.
    takes_counts: bool,
}

impl Reporter {
    /// Sends answers, ticks and counts until a call fails.
    async fn report(
        &mut self,
        events: &mut mpsc::Receiver<NodeEvent>,
        holdings: &Holdings,
        activity: &Activity,
        mut refused: mpsc::Receiver<NodeEvent>,
    ) -> Result<std::convert::Infallible, SessionError> {
        let path = format!("/v1/nodes/{}/events", self.node);
        let (mut ticks, mut counts) = (every(TICK), every(COUNTS_INTERVAL));
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                taken = events.recv_many(&mut batch, BATCH_MAX) => if taken == 0 {
                    return Err(LoopGone.into());
                },
                Some(event) = refused.recv() => batch.push(event),
                _ = ticks.tick() => batch.push(NodeEvent::Tick),
                _ = counts.tick(), if self.takes_counts => {
                    self.tell_counts(activity).await?;
                    continue;
                }
            }
            batch.iter().for_each(|event| holdings.on_event(event));
            let answer = self.caller.post(&path, &batch).await?;
            drop_body(answer).await;
            batch.clear();
        }
    }

    async fn tell_counts(&mut self, activity: &Activity) -> Result<(), SessionError> {
        let path = format!("/v1/nodes/{}/counts", self.node);
        self.takes_counts = post_if_known(&mut self.caller, &path, &activity.counts()).await?;
        Ok(())
    }
}

/// Posts what managers that are older than the call refuse; `false` if this one is. If it has lost the node instead, it
/// says so when it is told of events.
async fn post_if_known(
    caller: &mut Caller,
    path: &str,
    body: &impl Serialize,
) -> Result<bool, SessionError> {
    match caller.post(path, body).await {
        Ok(answer) => drop_body(answer).await,
        Err(CallError::Refused { refusal, .. }) if refusal.code == RefusalCode::NotFound => {
            return Ok(false);
        }
        Err(error) => return Err(error.into()),
    }
    Ok(true)
}

fn every(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Reads an answer's empty body to its end, so that its connection can be reused.
async fn drop_body(answer: hyper::Response<hyper::body::Incoming>) {
    use http_body_util::BodyExt;
    let _ = timeout(TICK, http_body_util::Limited::new(answer.into_body(), 4096).collect()).await;
}
