//! Messages between the control session and the event loop.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use mio::Waker;
use tokio::sync::{mpsc, watch};
use tributary_wire::control::{GroupInstall, GroupWait, NodeEvent};
use tributary_wire::{Epoch, GroupId};

use super::links::AnyLink;

/// Most orders queued for the event loop.
const COMMANDS_MAX: usize = 256;

/// Most answers queued for the control session, per group the aggregator can have.
const ANSWERS_PER_GROUP: usize = 4;

/// Pause before offering a command again when the queue is full.
const RETRY: Duration = Duration::from_millis(1);

/// An order.
#[expect(clippy::large_enum_variant, reason = "orders are few, and gone as soon as they are taken")]
pub(super) enum Command {
    /// Take part in a group, over this link upward.
    Install(Box<GroupInstall>, Option<AnyLink>),
    /// Drop a group.
    Remove(GroupId, Epoch),
    /// Tell what groups wait for.
    Survey,
}

/// The control session's end.
pub(super) struct Orders {
    commands: SyncSender<Command>,
    waker: Arc<Waker>,
}

/// The event loop is gone.
#[derive(Debug, thiserror::Error)]
#[error("the event loop has stopped")]
pub(super) struct LoopGone;

impl Orders {
    /// Sends one order, waiting while the queue is full.
    pub(super) async fn give(&self, mut command: Command) -> Result<(), LoopGone> {
        loop {
            match self.commands.try_send(command) {
                Ok(()) => break,
                Err(TrySendError::Full(back)) => command = back,
                Err(TrySendError::Disconnected(_)) => return Err(LoopGone),
            }
            tokio::time::sleep(RETRY).await;
        }
        self.waker.wake().map_err(|_| LoopGone)
    }
}

/// The event loop's end for answers.
pub(super) struct Answers {
    events: mpsc::Sender<NodeEvent>,
    waits: watch::Sender<Vec<GroupWait>>,
}

impl Answers {
    /// Queues an answer. A group causes three at most (installed, failed, ended), and the manager
    /// reuses its number only after it has seen the last, so the queue is long enough.
    pub(super) fn push(&self, event: NodeEvent) {
        // A closed queue means that the aggregator is stopping, and with it every group.
        if let Err(mpsc::error::TrySendError::Full(event)) = self.events.try_send(event) {
            tracing::error!("answer to the manager is lost: {event:?}");
        }
    }

    /// Tells what groups wait for, unless that was told last. How long they have waited can be told from it.
    pub(super) fn tell_waits(&self, waits: Vec<GroupWait>) {
        let same = |told: &GroupWait, now: &GroupWait| {
            GroupWait { waited_ms: 0, ..told.clone() } == GroupWait { waited_ms: 0, ..now.clone() }
        };
        self.waits.send_if_modified(|told| {
            let is_told = told.len() == waits.len()
                && told.iter().zip(&waits).all(|(told, now)| same(told, now));
            *told = waits;
            !is_told
        });
    }
}

/// Both directions between the control session and the event loop.
pub(super) struct Channels {
    pub(super) orders: Orders,
    pub(super) commands: Receiver<Command>,
    pub(super) answers: Answers,
    pub(super) events: mpsc::Receiver<NodeEvent>,
    pub(super) waits: watch::Receiver<Vec<GroupWait>>,
}

impl Channels {
    pub(super) fn new(waker: Arc<Waker>, groups_max: u32) -> Self {
        let (sender, commands) = sync_channel(COMMANDS_MAX);
        let (answer, events) = mpsc::channel(ANSWERS_PER_GROUP * groups_max.max(1) as usize);
        let (tell, waits) = watch::channel(Vec::new());
        Self {
            orders: Orders { commands: sender, waker },
            commands,
            answers: Answers { events: answer, waits: tell },
            events,
            waits,
        }
    }
}
