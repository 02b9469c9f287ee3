//! What the aggregator says of itself: answers to orders, signs of life, and what it has done.

use std::convert::Infallible;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::Response;
use hyper::body::Incoming;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tributary_wire::NodeId;
use tributary_wire::control::{NodeEvent, RefusalCode};

use super::error::SessionError;
use crate::liveness::{TICK, every};
use crate::node::activity::Activity;
use crate::node::call::{CallError, Caller};
use crate::node::commands::LoopGone;
use crate::node::installed_groups::InstalledGroups;

/// Interval at which the manager is told what the aggregator has done.
const COUNTS_INTERVAL: Duration = Duration::from_secs(1);

/// Most answers in one call.
const BATCH_MAX: usize = 256;

/// Longest answer that is read so that its connection can be used again: calls answer with nothing, or a word.
const ANSWER_BYTES_MAX: usize = 4096;

/// Tells the manager what the aggregator does.
pub(super) struct Reporter {
    pub(super) caller: Caller,
    pub(super) node: NodeId,
    /// Whether the manager knows the call for counts.
    pub(super) takes_counts: bool,
}

impl Reporter {
    /// Sends answers, ticks and counts until a call fails.
    pub(super) async fn report(
        &mut self,
        events: &mut mpsc::Receiver<NodeEvent>,
        installed_groups: &InstalledGroups,
        activity: &Activity,
        mut refused: mpsc::Receiver<NodeEvent>,
    ) -> Result<Infallible, SessionError> {
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
            batch.iter().for_each(|event| installed_groups.on_event(event));
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

/// Posts what managers that are older than the call refuse; `false` if this one is. If it has lost the aggregator
/// instead, it says so when it is told of events.
pub(super) async fn post_if_known(
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

/// Reads an answer's empty body to its end, so that its connection can be reused.
async fn drop_body(answer: Response<Incoming>) {
    let _ = timeout(TICK, Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect()).await;
}
