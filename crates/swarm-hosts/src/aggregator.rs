//! A tree's aggregator, as far as leaders see it: it counts who has come, gives the stream lock, and tells the leaders
//! of a group that one of them is gone. It never dies.

use crate::connections::EndId;
use crate::frame::Frame;
use crate::system::System;

impl System<'_> {
    /// Something has come from a leader.
    pub(super) fn read_at_aggregator(&mut self, end: EndId) {
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
