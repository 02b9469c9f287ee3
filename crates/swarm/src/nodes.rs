//! Aggregation nodes: the machine and its daemon.

mod frames;
mod groups;

use tributary_protocol::Reachability;
use tributary_protocol::node::{Event, PortId};
use tributary_wire::control::NodeEvent;
use tributary_wire::{Epoch, GroupId};

pub(super) use frames::brief;

use super::agenda::{End, Item};
use super::fault_record::Key;
use super::node_host::{Installed, NodeHost};
use super::timeouts::OVERDUE_NS;
use super::verdict::Violation;
use super::world::World;

/// How long a group that the manager wants dropped may still learn from its tree why it failed.
const REMOVAL_GRACE_NS: u64 = 50_000_000;

impl World<'_> {
    pub(super) fn node(&mut self, node: u32) -> &mut NodeHost {
        &mut self.nodes[node as usize]
    }

    /// Sends what an aggregator has to send, and takes its machine's events.
    pub(super) fn pump_node(&mut self, node: u32) {
        loop {
            // First, because every subscriber needs it.
            while let Some((group, transmit)) = self.node(node).machine.poll_multicast() {
                self.multicast(node, group, &transmit);
            }
            while let Some(port) = self.node(node).machine.poll_ready() {
                self.flush(node, port);
            }
            let Some(event) = self.node(node).machine.poll_event() else { break };
            self.on_node_event(node, event);
        }
        self.check_node(node);
        let due = self.node(node).machine.poll_timeout();
        let wakes_at = due.map(|due| self.wakes_at(self.node_machine(node), due));
        let host = self.node(node);
        if let Some(at) = wakes_at
            && host.timer_at.is_none_or(|set| at < set)
        {
            host.timer_at = Some(at);
            let life = host.life;
            self.agenda.put(at, Item::NodeTimer { node, life });
        }
    }

    pub(super) fn on_node_timer(&mut self, node: u32, life: u32) {
        let time = self.time_at(self.node_machine(node));
        let now = self.now;
        let host = self.node(node);
        // A former life's, or one that was set before an earlier one.
        if host.life != life || !host.is_alive || host.timer_at != Some(now) {
            return;
        }
        host.timer_at = None;
        if host.machine.poll_timeout().is_some_and(|due| due <= time) {
            host.machine.handle_timeout(time);
        }
        self.restless_nodes.push(node);
    }

    fn check_node(&mut self, node: u32) {
        let host = self.node(node);
        let (got, max) = (host.machine.osos_used(), host.config.osos_max);
        if got > max {
            let (got, max) = (u64::from(got), u64::from(max));
            self.report(None, Violation::Bound { what: "outstanding operations", got, max });
        }
        if let Some(what) = self.node(node).locks.check() {
            let node = self.scenario.nodes[node as usize].name.clone();
            self.report(None, Violation::Lock { node, what });
        }
    }

    fn on_node_event(&mut self, node: u32, event: Event) {
        match event {
            Event::DatagramPeer { port, .. } => {
                if let Some((link, end)) = self.node(node).link_at(port) {
                    self.link(link).takes_datagrams[end as usize] = true;
                }
                self.offer_group_of(node, port);
            }
            Event::Datagrams { port, reachability } => {
                match reachability {
                    Reachability::Reachable => self.offer_group_of(node, port),
                    Reachability::Unreachable => self.end_in_kernel(node, port),
                }
                let link = self.node(node).link_at(port).map(|(link, _)| link);
                let key = link.and_then(|link| self.edge_key(link));
                self.trace
                    .note(self.now, key, || format!("node {node}: datagrams {reachability:?}"));
            }
            Event::Multicast { group, reachability } => {
                self.trace.note(self.now, None, || {
                    format!("node {node}: {group} multicast {reachability:?}")
                });
            }
            Event::Released(arena) => self.node(node).memory.release(arena),
            Event::Close(port) => self.linger(node, port),
            Event::Formed { group, epoch } => {
                let key = self.installed_key(node, group, epoch);
                self.trace.note(self.now, key, || format!("node {node}: formed"));
                self.offer_to_kernel(node, group);
            }
            Event::Failed { group, epoch, abort } => {
                self.forget_in_kernel(node, group);
                let key = self.forget_installed(node, group, epoch);
                let reason = super::verdict::words(abort);
                self.trace.note(self.now, key, || format!("node {node}: failed, {reason}"));
                self.say(node, NodeEvent::Failed { group, epoch, reason });
            }
            Event::Ended { group, epoch } => {
                self.forget_in_kernel(node, group);
                let key = self.forget_installed(node, group, epoch);
                self.trace.note(self.now, key, || format!("node {node}: ended"));
                self.say(node, NodeEvent::Ended { group, epoch });
            }
        }
    }

    fn installed_key(&self, node: u32, group: GroupId, epoch: Epoch) -> Option<Key> {
        let installed = &self.nodes[node as usize].installed;
        let is_it = |it: &&Installed| it.held.group == group && it.held.epoch == epoch;
        installed.iter().find(is_it).map(|it| it.key)
    }

    fn forget_installed(&mut self, node: u32, group: GroupId, epoch: Epoch) -> Option<Key> {
        let key = self.installed_key(node, group, epoch)?;
        self.node(node).installed.retain(|it| it.key != key);
        self.node(node).locks.forget(epoch);
        Some(key)
    }

    /// The last message over a link was sent. The peer gets time to read it: a link that is closed
    /// with unread data is reset, which loses what is on its way.
    fn linger(&mut self, node: u32, port: PortId) {
        let Some((link, end)) = self.node(node).link_at(port) else { return };
        self.say_end(link, end);
        let at = self.now + OVERDUE_NS;
        self.link(link).lingers_until[end as usize] = Some(at);
        self.agenda.put(at, Item::LinkOverdue { link, end });
    }

    /// A link over which nobody joined, or whose peer does not close it, is closed.
    pub(super) fn on_overdue(&mut self, link: u32, end: End) {
        let entry = &self.links[link as usize];
        let has_lingered = entry.lingers_until[end as usize].is_some_and(|until| until <= self.now);
        let is_unjoined = end == End::Upper && !entry.has_joined;
        if entry.is_open(end) && (has_lingered || is_unjoined) {
            let [lower, upper] = entry.machines;
            if is_unjoined && self.cut_until(lower, upper).is_some() {
                // The join is on its way. The lower end may be told although it is not heard.
                self.blame_link(link, self.now);
            }
            self.close(link, end);
        }
    }

    /// An aggregator's end of a link was closed.
    pub(super) fn node_unplugs(&mut self, node: u32, port: PortId, is_refused: bool) {
        let host = self.node(node);
        host.ports.unplug(port);
        if is_refused {
            host.machine.handle_port_refused(port);
        } else {
            host.machine.handle_port_closed(port);
        }
        self.restless_nodes.push(node);
    }
}
