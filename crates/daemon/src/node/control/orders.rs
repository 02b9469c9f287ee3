//! Orders of the manager, on their way to the event loop.

use std::convert::Infallible;

use tokio::sync::mpsc;
use tokio::time::timeout;
use tributary_wire::control::{GroupInstall, NodeEvent, NodeOrder, NodeRegistration};

use super::error::SessionError;
use crate::limits::check_descriptors;
use crate::liveness::MANAGER_SILENCE_MAX;
use crate::node::commands::{Command, Orders};
use crate::node::installed_groups::InstalledGroups;
use crate::node::lines::Lines;
use crate::node::links::AnyLink;
use crate::node::upward::{self, UpwardError};

/// Forwards orders to the event loop.
pub(super) struct Forwarder<'a> {
    pub(super) orders: &'a Orders,
    pub(super) allow_shm: bool,
    pub(super) registration: &'a NodeRegistration,
    pub(super) installed_groups: &'a InstalledGroups,
    /// Installs that fail before they reach the event loop.
    pub(super) refusals: mpsc::Sender<NodeEvent>,
}

impl Forwarder<'_> {
    pub(super) async fn forward_orders<B>(
        &self,
        lines: &mut Lines<B>,
    ) -> Result<Infallible, SessionError>
    where
        B: hyper::body::Body<Data = hyper::body::Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        loop {
            match next_order(lines).await? {
                NodeOrder::Tick => {}
                NodeOrder::Remove { group, epoch } => {
                    self.installed_groups.on_removal(group, epoch);
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
        // Before the members are told to connect: links that can't be accepted would keep them waiting.
        let links = install.children.len() + usize::from(install.parent.is_some());
        if let Err(error) = check_descriptors(links) {
            self.refuse(&install, error).await;
            return Ok(());
        }
        let link = match self.connect_upward(&install).await? {
            Ok(link) => link,
            Err(error) => {
                self.refuse(&install, error).await;
                return Ok(());
            }
        };
        self.installed_groups.on_install(&install);
        Ok(self.orders.give(Command::Install(Box::new(install), link)).await?)
    }

    /// Tells the manager that a group isn't installed, and why.
    async fn refuse(&self, install: &GroupInstall, reason: impl std::fmt::Display) {
        let (group, epoch) = (install.group, install.epoch);
        tracing::warn!("group {group} epoch {epoch} refused: {reason}");
        let refused = NodeEvent::Refused { group, epoch, reason: reason.to_string() };
        // The receiver lives as long as this session.
        let _ = self.refusals.send(refused).await;
    }

    async fn connect_upward(
        &self,
        install: &GroupInstall,
    ) -> Result<Result<Option<AnyLink>, UpwardError>, SessionError> {
        let Some(parent) = &install.parent else { return Ok(Ok(None)) };
        let address = parent.address.clone();
        let allow_shm = self.allow_shm;
        // Never longer than this aggregator's own limits.
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

pub(super) async fn next_order<B>(lines: &mut Lines<B>) -> Result<NodeOrder, SessionError>
where
    B: hyper::body::Body<Data = hyper::body::Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    Ok(timeout(MANAGER_SILENCE_MAX, lines.next()).await.map_err(|_| SessionError::Silent)??)
}
