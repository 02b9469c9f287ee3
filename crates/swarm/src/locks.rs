//! An aggregator's stream locks as seen from outside: requested, granted, done.
//!
//! This record follows the frames that the aggregator takes and sends, beside the machine. So it shows a
//! lock that is given twice or in the wrong order, even if the machine does not notice.

use std::collections::VecDeque;

use tributary_wire::control::GroupInstall;
use tributary_wire::frame::{Header, Message};
use tributary_wire::{Epoch, TreeId};

/// The stream locks of one aggregator.
#[derive(Default)]
pub(super) struct Locks {
    groups: Vec<Watched>,
    /// Groups that wait, in the order in which they began to wait.
    waiting: VecDeque<Epoch>,
    /// Groups that were granted the lock and are not done.
    holders: Vec<Epoch>,
    /// A group that got the lock, and one that had waited longer.
    overtaken: Vec<(Epoch, Epoch)>,
}

/// A group that may stream.
struct Watched {
    epoch: Epoch,
    tree: TreeId,
    is_root: bool,
    children: usize,
    /// Links over which the next stream was requested, or the present one reported done.
    requested: Vec<u32>,
    done: Vec<u32>,
}

impl Locks {
    pub(super) fn install(&mut self, order: &GroupInstall) {
        let Some(stream) = order.stream else { return };
        self.groups.push(Watched {
            epoch: order.epoch,
            tree: stream.tree,
            is_root: order.parent.is_none(),
            children: order.children.len(),
            requested: Vec::new(),
            done: Vec::new(),
        });
    }

    /// The group has ended here.
    pub(super) fn forget(&mut self, epoch: Epoch) {
        self.groups.retain(|group| group.epoch != epoch);
        self.waiting.retain(|waiting| *waiting != epoch);
        self.holders.retain(|holder| *holder != epoch);
        self.overtaken.retain(|(_, earlier)| *earlier != epoch);
    }

    /// The aggregator has taken a frame.
    pub(super) fn on_taken(&mut self, link: u32, header: &Header) {
        let epoch = header.edge.epoch;
        let Some(group) = self.groups.iter_mut().find(|group| group.epoch == epoch) else { return };
        let mark = |links: &mut Vec<u32>| {
            if !links.contains(&link) {
                links.push(link);
            }
            links.len() == group.children
        };
        match header.message {
            Message::StreamRequest(_) => {
                let have_all_requested = mark(&mut group.requested);
                if have_all_requested && group.is_root {
                    self.wait(epoch);
                }
            }
            Message::StreamGrant(_) => self.wait(epoch),
            Message::StreamDone(_) => {
                let are_all_done = mark(&mut group.done);
                if are_all_done {
                    group.done.clear();
                    self.holders.retain(|holder| *holder != epoch);
                }
            }
            _ => {}
        }
    }

    fn wait(&mut self, epoch: Epoch) {
        if !self.waiting.contains(&epoch) {
            self.waiting.push_back(epoch);
        }
    }

    /// The aggregator sends a child the group's stream grant.
    pub(super) fn on_announced(&mut self, epoch: Epoch) {
        let Some(group) = self.groups.iter_mut().find(|group| group.epoch == epoch) else { return };
        let tree = group.tree;
        let Some(at) = self.waiting.iter().position(|waiting| *waiting == epoch) else { return };
        group.requested.clear();
        group.done.clear();
        for earlier in self.waiting.iter().take(at) {
            if self.tree_of(*earlier) == Some(tree) {
                self.overtaken.push((epoch, *earlier));
            }
        }
        self.waiting.remove(at);
        self.holders.push(epoch);
    }

    fn tree_of(&self, epoch: Epoch) -> Option<TreeId> {
        self.groups.iter().find(|group| group.epoch == epoch).map(|group| group.tree)
    }

    /// What is wrong, once the aggregator has sent all it had to send. Groups that failed meanwhile are
    /// forgotten by then.
    pub(super) fn check(&mut self) -> Option<String> {
        if let Some((late, early)) = self.overtaken.pop() {
            return Some(format!("its stream lock went to epoch {late} before epoch {early}"));
        }
        for (index, one) in self.holders.iter().enumerate() {
            let other =
                self.holders[..index].iter().find(|it| self.tree_of(**it) == self.tree_of(*one));
            if let Some(other) = other {
                return Some(format!("epochs {other} and {one} hold one stream lock"));
            }
        }
        None
    }

    /// Groups that have a lock here, then those that wait for one.
    pub(super) fn groups_concerned(&self) -> impl Iterator<Item = (Epoch, bool)> {
        let holders = self.holders.iter().map(|epoch| (*epoch, true));
        holders.chain(self.waiting.iter().map(|epoch| (*epoch, false)))
    }

    /// Whether no group has or awaits a lock.
    pub(super) fn is_quiet(&self) -> bool {
        self.holders.is_empty() && self.waiting.is_empty()
    }
}
