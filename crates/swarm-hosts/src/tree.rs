//! What a tree's aggregator keeps: the leaders of each group that have come to an operation, and the stream lock.

use std::collections::VecDeque;

use crate::connections::EndId;

#[derive(Default)]
pub(super) struct Tree {
    pub(super) groups: Vec<TreeGroup>,
    /// Groups all of whose leaders have asked for the lock. The first has it.
    pub(super) lock: VecDeque<u32>,
}

/// A group's place in the aggregator.
pub(super) struct TreeGroup {
    /// By host.
    pub(super) links: Vec<Option<EndId>>,
    /// Of the operation under way.
    pub(super) has_asked: Vec<bool>,
    pub(super) ready: Vec<usize>,
    pub(super) sent: usize,
    /// A host that needs no operation any more.
    pub(super) left: Option<u32>,
    /// The host at fault, once there is no going on.
    pub(super) lost: Option<u32>,
}

impl Tree {
    pub(super) fn add_group(&mut self, hosts: usize) {
        self.groups.push(TreeGroup {
            links: vec![None; hosts],
            has_asked: vec![false; hosts],
            ready: vec![0; hosts],
            sent: 0,
            left: None,
            lost: None,
        });
    }

    /// A leader takes its place.
    pub(super) fn join(&mut self, communicator: u32, host: u32, end: EndId) {
        self.groups[communicator as usize].links[host as usize] = Some(end);
    }

    pub(super) fn find(&self, end: EndId) -> Option<(u32, u32)> {
        (0..).zip(&self.groups).find_map(|(number, group)| {
            let host = group.links.iter().position(|link| *link == Some(end))?;
            Some((number, host as u32))
        })
    }
}

impl TreeGroup {
    pub(super) fn is_under_way(&self) -> bool {
        self.has_asked.iter().any(|has| *has) || self.ready.iter().any(|ready| *ready > 0)
    }
}
