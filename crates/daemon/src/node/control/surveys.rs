//! What groups wait for, found out and told to the manager.

use std::convert::Infallible;
use std::time::Duration;

use tokio::sync::watch;
use tributary_wire::control::GroupWait;

use super::error::SessionError;
use super::reports::post_if_known;
use crate::liveness::every;
use crate::node::call::Caller;
use crate::node::commands::{Command, LoopGone, Orders};
use crate::node::installed_groups::InstalledGroups;

/// How often groups are surveyed for what they wait for.
const SURVEY_INTERVAL: Duration = Duration::from_secs(1);

/// Tells the manager what groups wait for.
pub(super) struct Surveyor<'a> {
    pub(super) caller: Caller,
    pub(super) path: String,
    pub(super) orders: &'a Orders,
    pub(super) installed_groups: &'a InstalledGroups,
    pub(super) waits: watch::Receiver<Vec<GroupWait>>,
}

impl Surveyor<'_> {
    pub(super) async fn run(mut self) -> Result<Infallible, SessionError> {
        // The manager knows nothing of what was told before this session.
        self.waits.mark_changed();
        let mut surveys = every(SURVEY_INTERVAL);
        loop {
            tokio::select! {
                _ = surveys.tick() => if !self.installed_groups.is_empty() {
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
