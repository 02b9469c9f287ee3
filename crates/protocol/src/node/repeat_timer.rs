//! When the next request upward is to be repeated, over all groups.

use super::group::Group;
use crate::Time;

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct RepeatTimer {
    /// Groups that wait for an answer to a datagram they sent upward. Without any, no timer runs.
    waiting_groups: u32,
    /// The earliest timer of those groups, or earlier.
    at: Option<Time>,
}

impl RepeatTimer {
    /// Takes note of what an input has changed at a group, which waited before or did not.
    pub(super) fn update(&mut self, was_waiting: bool, group: &Group) {
        match (was_waiting, group.awaits_parent()) {
            (false, false) => {}
            (true, false) => {
                self.remove();
                if self.waiting_groups == 0 {
                    self.at = None;
                }
            }
            (was_waiting, true) => {
                self.waiting_groups += u32::from(!was_waiting);
                self.at = [self.at, group.next_repeat()].into_iter().flatten().min();
            }
        }
    }

    /// A group that waited is gone. The timer stays where it was: at worst it runs out early.
    pub(super) fn remove(&mut self) {
        self.waiting_groups -= 1;
    }

    /// Forgets when it is due. The caller updates it for every group that waits.
    pub(super) fn reset(&mut self) {
        self.at = None;
    }

    pub(super) fn due_at(&self) -> Option<Time> {
        if self.waiting_groups == 0 { None } else { self.at }
    }
}
