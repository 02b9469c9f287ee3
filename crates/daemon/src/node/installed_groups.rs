//! The groups that this aggregator holds, as the next manager has to be told of them.
//!
//! Follows orders and answers as they pass between the session and the event loop.

use std::cell::RefCell;
use std::collections::BTreeMap;

use tokio::sync::mpsc;
use tributary_wire::control::{GroupInstall, HeldGroup, NodeEvent, NodeOffer, NodeRegistration};
use tributary_wire::{Epoch, GroupId};

use super::commands::Command;

/// Names a group and its incarnation.
type Key = (GroupId, Epoch);

/// What the aggregator has of groups. The tasks of a session share it on one thread.
#[derive(Default)]
pub(super) struct InstalledGroups {
    groups: RefCell<BTreeMap<Key, InstalledGroup>>,
}

struct InstalledGroup {
    /// None if the manager gave no record of the group: then no other can take it over.
    held: Option<HeldGroup>,
    is_installed: bool,
}

impl InstalledGroups {
    /// Whether it holds no group at all.
    pub(super) fn is_empty(&self) -> bool {
        self.groups.borrow().is_empty()
    }

    /// The event loop is about to be told to install a group.
    pub(super) fn on_install(&self, install: &GroupInstall) {
        let group = InstalledGroup { held: install.to_held_group(), is_installed: false };
        self.groups.borrow_mut().insert((install.group, install.epoch), group);
    }

    /// The event loop is about to be told to drop a group.
    pub(super) fn on_removal(&self, group: GroupId, epoch: Epoch) {
        self.groups.borrow_mut().remove(&(group, epoch));
    }

    /// The event loop said something.
    pub(super) fn on_event(&self, event: &NodeEvent) {
        let mut groups = self.groups.borrow_mut();
        match *event {
            NodeEvent::Tick => {}
            NodeEvent::Installed { group, epoch } => {
                if let Some(group) = groups.get_mut(&(group, epoch)) {
                    group.is_installed = true;
                }
            }
            NodeEvent::Refused { group, epoch, .. }
            | NodeEvent::Failed { group, epoch, .. }
            | NodeEvent::Ended { group, epoch } => {
                groups.remove(&(group, epoch));
            }
        }
    }

    /// A session is about to begin: takes in what was said since the last, and returns the orders to drop what no
    /// manager can take over. An install that was under way has lost who asked for it.
    pub(super) fn begin_session(&self, events: &mut mpsc::Receiver<NodeEvent>) -> Vec<Command> {
        while let Ok(event) = events.try_recv() {
            self.on_event(&event);
        }
        let is_lost =
            |_: &Key, group: &mut InstalledGroup| !group.is_installed || group.held.is_none();
        let mut groups = self.groups.borrow_mut();
        groups
            .extract_if(.., is_lost)
            .map(|((group, epoch), _)| Command::Remove(group, epoch))
            .collect()
    }

    /// What to register with.
    pub(super) fn offer(&self, registration: &NodeRegistration) -> NodeOffer {
        let groups = self.groups.borrow();
        let holds = groups.values().filter_map(|group| group.held.clone()).collect();
        NodeOffer { registration: registration.clone(), holds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tributary_wire::JobId;
    use tributary_wire::control::{GroupRecord, NodeAddress};
    use tributary_wire::frame::Versions;

    const EPOCH: Epoch = Epoch(7);

    fn install(group: u32, has_record: bool) -> GroupInstall {
        let record = GroupRecord {
            job: JobId(3),
            job_name: "job".to_owned(),
            processes: 2,
            label: "world".to_owned(),
            level: 0,
            parent: None,
            children: vec!["h0".to_owned()],
            tenant: None,
        };
        GroupInstall {
            group: GroupId(group),
            epoch: EPOCH,
            frame_version: Versions::SPOKEN.newest,
            osos: 2,
            payload_max_bytes: 64,
            children: Vec::new(),
            parent: None,
            stream: None,
            multicast: None,
            external_receiver: None,
            keys: None,
            record: has_record.then_some(record),
        }
    }

    fn held(installed_groups: &InstalledGroups) -> Vec<u32> {
        let address = NodeAddress { tcp: "n:1".to_owned(), machine: "m".to_owned(), shm: None };
        let registration = NodeRegistration {
            name: "n".to_owned(),
            address,
            radix: 4,
            osos: 4,
            payload_max_bytes: 64,
            frame_versions: Versions::SPOKEN,
            stream: None,
            kernel: None,
        };
        installed_groups.offer(&registration).holds.iter().map(|held| held.group.0).collect()
    }

    #[test]
    fn only_what_stands_is_told() {
        let installed_groups = InstalledGroups::default();
        let (answers, mut events) = mpsc::channel(16);
        for group in 0..6 {
            installed_groups.on_install(&install(group, group != 5));
        }
        for group in [0, 1, 2, 3, 5].map(GroupId) {
            installed_groups.on_event(&NodeEvent::Installed { group, epoch: EPOCH });
        }
        installed_groups.on_event(&NodeEvent::Ended { group: GroupId(0), epoch: EPOCH });
        installed_groups.on_removal(GroupId(1), EPOCH);
        // Another incarnation's end is not this one's.
        installed_groups.on_event(&NodeEvent::Ended { group: GroupId(3), epoch: Epoch(8) });
        let reason = "member-lost".to_owned();
        let failed = NodeEvent::Failed { group: GroupId(2), epoch: EPOCH, reason };
        answers.try_send(failed).unwrap();
        let removed: Vec<u32> = installed_groups
            .begin_session(&mut events)
            .into_iter()
            .map(|command| match command {
                Command::Remove(group, EPOCH) => group.0,
                _ => panic!("only removals are due"),
            })
            .collect();
        assert_eq!(removed, [4, 5], "not installed; without a record");
        assert_eq!(held(&installed_groups), [3]);
        assert_eq!(installed_groups.begin_session(&mut events).len(), 0);
    }
}
