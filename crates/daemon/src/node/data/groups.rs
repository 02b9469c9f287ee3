//! Installs and removes groups as the manager orders, and reports the outcome.

use std::time::Instant;

use tributary_protocol::node::{GroupConfig, InstallError};
use tributary_transport::AuthenticationKey;
use tributary_wire::control::{GroupInstall, NodeEvent};
use tributary_wire::frame::{Abort, AbortReason};
use tributary_wire::{Epoch, GroupId};

use super::DataLoop;
use crate::node::arenas::AllocateError;
use crate::node::links::{AnyLink, Stage};

/// Why a group could not be installed.
#[derive(Debug, thiserror::Error)]
enum InstallFailure {
    #[error("{0}")]
    Machine(#[from] InstallError),
    #[error("{0}")]
    Memory(#[from] AllocateError),
    #[error("its link upward can't be watched: {0}")]
    Link(#[from] std::io::Error),
}

impl DataLoop {
    /// Installs a group, and answers.
    pub(super) fn install(&mut self, install: GroupInstall, upward: Option<AnyLink>) {
        // The manager already counts the resources of removed groups as free.
        while let Some((group, epoch)) = self.removals.take_next() {
            self.remove(group, epoch);
        }
        let (group, epoch) = (install.group, install.epoch);
        self.unknown_senders.expect_new_capabilities(self.datagrams.as_mut());
        match self.try_install(install, upward) {
            Ok(()) => {
                tracing::debug!("group {group} epoch {epoch} installed");
                self.answers.push(NodeEvent::Installed { group, epoch });
            }
            Err(failure) => {
                tracing::warn!("group {group} epoch {epoch} refused: {failure}");
                let reason = failure.to_string();
                self.answers.push(NodeEvent::Refused { group, epoch, reason });
                // After the answer, so that the manager ignores later events about this group.
                self.machine.withdraw(group, epoch);
            }
        }
        self.drain();
    }

    fn try_install(
        &mut self,
        install: GroupInstall,
        upward: Option<AnyLink>,
    ) -> Result<(), InstallFailure> {
        let now = Instant::now();
        let is_tcp = upward.as_ref().is_some_and(AnyLink::is_tcp);
        let keys = install.keys;
        let port = match upward {
            Some(mut link) => {
                if let Some(keys) = keys {
                    link.authenticate(AuthenticationKey::new(keys.group));
                }
                self.make_room();
                Some(self.watch(now, link, Stage::Joined)?)
            }
            None => None,
        };
        let (group, epoch) = (install.group, install.epoch);
        let multicast = install.multicast.clone();
        let external_receiver = install.external_receiver;
        let arena = match self.machine.install(self.time(now), GroupConfig::of_order(install, port))
        {
            Ok(arena) => arena,
            Err(error) => {
                if let Some(port) = port {
                    self.close(port);
                }
                return Err(error.into());
            }
        };
        self.installed.insert(group, epoch, keys);
        self.arenas.allocate(&arena)?;
        if let Some(arena) = self.machine.stream_arena(group) {
            self.arenas.allocate(&arena)?;
        }
        if let Some(capability) = external_receiver {
            self.machine.admit_external_receiver(group, capability);
        }
        if let Some(grant) = multicast {
            self.use_multicast(group, &grant);
        }
        // A parent in shared memory needs no datagrams: rings lose nothing and are faster.
        if is_tcp {
            self.machine.offer_datagrams(group);
        }
        Ok(())
    }

    /// Removes the groups whose delay is over. True if there were any.
    pub(super) fn remove_due(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some((group, epoch)) = self.removals.take_due(now) {
            self.remove(group, epoch);
            any = true;
        }
        any
    }

    fn remove(&mut self, group: GroupId, epoch: Epoch) {
        self.machine.withdraw(group, epoch);
        self.drain();
    }

    /// Withdraws every group, and tells its children and parent.
    pub(super) fn remove_all(&mut self) {
        self.removals.clear();
        while let Some((group, epoch)) = self.installed.first() {
            self.machine.withdraw(group, epoch);
            self.installed.remove(group);
            self.drain();
        }
    }

    fn forget(&mut self, group: GroupId) {
        self.installed.remove(group);
        self.forget_in_kernel(group);
        self.unknown_senders.expect_fewer_capabilities();
    }

    pub(super) fn on_failed(&mut self, group: GroupId, epoch: Epoch, abort: Abort) {
        if abort.reason == AbortReason::Withdrawn {
            // The usual end of a job whose last members had not left yet.
            tracing::info!("group {group} epoch {epoch} withdrawn by the manager");
        } else {
            tracing::warn!("group {group} epoch {epoch} failed: {}", describe(abort));
        }
        self.forget(group);
        self.answers.push(NodeEvent::Failed { group, epoch, reason: describe(abort) });
    }

    pub(super) fn on_ended(&mut self, group: GroupId, epoch: Epoch) {
        tracing::debug!("group {group} epoch {epoch} ended");
        self.forget(group);
        self.answers.push(NodeEvent::Ended { group, epoch });
    }
}

fn describe(abort: Abort) -> String {
    format!("{} (member {})", abort.reason, abort.at_fault)
}
