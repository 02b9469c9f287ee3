//! Removals of groups that wait until they are due.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tributary_wire::{Epoch, GroupId};

/// Delay of removals, so that a group can still learn from its own tree why it failed.
///
/// The first aggregator that notices a lost member tells both the tree and the manager. The tree's reason
/// names the lost member, so it should reach members even if the manager's removal arrives first.
const REMOVAL_GRACE: Duration = Duration::from_millis(50);

/// Groups that the manager has ordered to be removed.
#[derive(Default)]
pub(super) struct Removals {
    /// Ascending, because all wait equally long.
    queue: VecDeque<(Instant, GroupId, Epoch)>,
}

impl Removals {
    pub(super) fn add(&mut self, group: GroupId, epoch: Epoch) {
        self.queue.push_back((Instant::now() + REMOVAL_GRACE, group, epoch));
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.queue.front().map(|(due, ..)| *due)
    }

    /// The one that waits longest, due or not.
    pub(super) fn take_next(&mut self) -> Option<(GroupId, Epoch)> {
        self.queue.pop_front().map(|(_, group, epoch)| (group, epoch))
    }

    /// The next one whose delay is over.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<(GroupId, Epoch)> {
        let due = self.queue.pop_front_if(|(due, ..)| *due <= now)?;
        Some((due.1, due.2))
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }
}
