//! A tree's node, as far as leaders see it: who has come to an operation, the stream lock, and who is gone. It never dies.

use std::collections::VecDeque;

use super::connections::EndId;
use super::{Frame, System};

#[derive(Default)]
pub(super) struct Tree {
    groups: Vec<TreeGroup>,
    /// Groups all of whose leaders have asked for the lock. The first has it.
    lock: VecDeque<u32>,
}

/// A group's place in the node.
struct TreeGroup {
    /// By host.
    links: Vec<Option<EndId>>,
    /// Of the operation under way.
    has_asked: Vec<bool>,
    ready: Vec<usize>,
    sent: usize,
    /// A host that needs no operation any more.
    left: Option<u32>,
    /// The host at fault, once there is no going on.
    lost: Option<u32>,
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

    fn find(&self, end: EndId) -> Option<(u32, u32)> {
        (0..).zip(&self.groups).find_map(|(number, group)| {
            let host = group.links.iter().position(|link| *link == Some(end))?;
            Some((number, host as u32))
        })
    }
}

impl System<'_> {
    /// Something has come from a leader.
    pub(super) fn node_reads(&mut self, end: EndId) {
        let Some((number, host)) = self.tree.find(end) else { return };
        while let Some(frame) = self.next_frame(end) {
            let group = &mut self.tree.groups[number as usize];
            match frame {
                // A group that is lost has no lock, even for a host that still asks for it.
                Frame::Ask if group.lost.is_some() => {}
                Frame::Ask => {
                    group.has_asked[host as usize] = true;
                    if group.has_asked.iter().all(|has| *has) {
                        self.tree.lock.push_back(number);
                        self.grant();
                    }
                }
                Frame::Ready { parts, total } => {
                    group.ready[host as usize] = parts;
                    self.give_results(number, total);
                }
                Frame::Leave => group.left = Some(host),
                Frame::Abort { at_fault } => self.lose_group(number, at_fault),
                Frame::Fin => {
                    self.tree.groups[number as usize].links[host as usize] = None;
                    if self.tree.groups[number as usize].left.is_none() {
                        self.lose_group(number, host);
                    }
                    return;
                }
                _ => {}
            }
            let group = &self.tree.groups[number as usize];
            if let Some(left) = group.left.filter(|_| group.is_under_way()) {
                self.lose_group(number, left);
            }
        }
    }

    fn lose_group(&mut self, number: u32, at_fault: u32) {
        let group = &mut self.tree.groups[number as usize];
        if group.lost.is_some() {
            return;
        }
        group.lost = Some(at_fault);
        let links: Vec<EndId> = group.links.iter().copied().flatten().collect();
        links.into_iter().for_each(|end| self.send(end, Frame::Abort { at_fault }));
        let has_lock = self.tree.lock.front() == Some(&number);
        self.tree.lock.retain(|waiting| *waiting != number);
        if has_lock {
            self.grant();
        }
    }

    /// Gives the lock to the group that has waited longest.
    fn grant(&mut self) {
        if let Some(number) = self.tree.lock.front() {
            let links = self.tree.groups[*number as usize].links.clone();
            links.into_iter().flatten().for_each(|end| self.send(end, Frame::Grant));
        }
    }

    fn give_results(&mut self, number: u32, total: usize) {
        let group = &mut self.tree.groups[number as usize];
        let parts = group.ready.iter().copied().min().unwrap_or(0);
        if parts <= group.sent || group.lost.is_some() {
            return;
        }
        group.sent = parts;
        let is_stream = group.has_asked.iter().any(|has| *has);
        let links = group.links.clone();
        if parts == total {
            group.sent = 0;
            group.ready.fill(0);
            group.has_asked.fill(false);
        }
        links.into_iter().flatten().for_each(|end| self.send(end, Frame::Results { parts }));
        if parts == total && is_stream {
            self.tree.lock.pop_front();
            self.grant();
        }
    }
}

impl TreeGroup {
    fn is_under_way(&self) -> bool {
        self.has_asked.iter().any(|has| *has) || self.ready.iter().any(|ready| *ready > 0)
    }
}
