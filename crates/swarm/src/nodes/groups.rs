//! Groups on aggregators, and the death of aggregators.

use tributary_protocol::node::{GroupConfig, PortId};
use tributary_wire::control::{GroupInstall, NodeEvent};
use tributary_wire::{Epoch, GroupId};

use super::REMOVAL_GRACE_NS;
use crate::agenda::{End, Item};
use crate::fault_record::{Key, NODE_LOST};
use crate::link::{EdgeOf, Holder};
use crate::node_host::Installed;
use crate::timeouts::SILENCE_NS;
use crate::verdict::Violation;
use crate::world::World;
use tributary_protocol_testing::values::mix;

impl World<'_> {
    /// Takes part in a group, and answers the manager.
    pub(crate) fn install(&mut self, node: u32, install: GroupInstall, parent: Option<u32>) {
        self.remove_due(node, u64::MAX);
        let (group, epoch) = (install.group, install.epoch);
        let key = Key::of(epoch);
        let port = parent.map(|parent| self.connect_upward(node, parent, &install, key));
        let time = self.time_at(self.node_machine(node));
        let order = install.clone();
        match self.node(node).machine.install(time, GroupConfig::of_order(install, port)) {
            Ok(arena) => {
                let is_near = mix(self.scenario.seed ^ u64::from(node) << 8).is_multiple_of(4);
                let host = self.node(node);
                host.memory.install(&host.machine, group, arena);
                host.locks.install(&order);
                if let Some(capability) = order.external_receiver {
                    host.machine.admit_external_receiver(group, capability);
                }
                self.use_multicast(node, &order);
                // Rings in shared memory to the parent have no datagrams.
                if !is_near {
                    self.node(node).machine.offer_datagrams(group);
                }
                let host = self.node(node);
                let held = order.to_held_group().expect("the manager gives every group a record");
                host.installed.push(Installed { key, held });
                self.trace.note(self.now, Some(key), || format!("node {node}: installed"));
                self.say(node, NodeEvent::Installed { group, epoch });
            }
            Err(error) => {
                let error = error.to_string();
                let name = self.scenario.nodes[node as usize].name.clone();
                let refused = Violation::InstallRefused { node: name, error: error.clone() };
                self.report(Some(key), refused);
                self.say(node, NodeEvent::Refused { group, epoch, reason: error });
            }
        }
        self.restless_nodes.push(node);
    }

    fn connect_upward(
        &mut self,
        node: u32,
        parent: u32,
        install: &GroupInstall,
        key: Key,
    ) -> PortId {
        let place = install.parent.as_ref().expect("only a node with a parent connects");
        let below = self.fault_record.entry(key).members_below(parent, place.child.0);
        let below = below.expect("the parent was ordered first");
        let below = below.start.0..below.end.0;
        let stream = install.stream.map(|stream| stream.terms);
        let mut edge = EdgeOf::new(key, below, install.osos, stream);
        if install.multicast.is_some() {
            edge.allow_members_ahead();
        }
        let link = self.links.len() as u32;
        let port = self.node(node).plug(link, End::Lower);
        let lower = (Holder::Node { node, port }, self.node_machine(node));
        self.connect(lower, parent, Some(edge));
        port
    }

    pub(crate) fn on_removals(&mut self, node: u32, life: u32) {
        if self.node(node).life == life && self.node(node).is_alive {
            let now = self.now;
            self.remove_due(node, now);
        }
    }

    /// Drops the groups whose time has come.
    fn remove_due(&mut self, node: u32, until: u64) {
        let now = self.now;
        while let Some((due, group, epoch)) =
            self.node(node).removals.pop_front_if(|(due, ..)| *due <= until)
        {
            if due > now
                && let Some(key) = self.installed_key(node, group, epoch)
            {
                // Its number is used again, so it cannot wait for its tree's own abort.
                self.fault_record.entry(key).may_withdraw = true;
            }
            self.node(node).machine.withdraw(group, epoch);
            self.pump_node(node);
        }
    }

    pub(crate) fn put_removal(&mut self, node: u32, group: GroupId, epoch: Epoch) {
        let at = self.now + REMOVAL_GRACE_NS;
        let host = self.node(node);
        host.removals.push_back((at, group, epoch));
        let life = host.life;
        self.agenda.put(at, Item::Removals { node, life });
    }

    /// An aggregator's process dies. How its peers learn of it depends on the kind of death.
    pub(crate) fn crash_node(&mut self, node: u32, is_silent: bool, down_ns: u64) {
        let now = self.now;
        let delay_ns = self.delay_ns();
        let noticed_at = if is_silent { now + shows_after_ns(down_ns) } else { now + delay_ns };
        for entry in self.fault_record.all() {
            if let Some(members) = entry.members_at(node) {
                entry.blame(noticed_at, NODE_LOST, members);
                entry.blame_manager(noticed_at);
            }
        }
        let links: Vec<(u32, End)> = self.node(node).links().collect();
        for (link, end) in links {
            if is_silent {
                self.vanish(link, end, noticed_at);
            } else {
                self.die(link, end);
            }
        }
        let host = self.node(node);
        (host.is_alive, host.life) = (false, host.life + 1);
        if let Some(session) = host.session.take() {
            let at_manager = true;
            self.agenda.put(noticed_at, Item::SessionOver { node, session, at_manager });
        }
        self.agenda.put(now + down_ns, Item::NodeStarts { node });
    }

    pub(crate) fn start_node(&mut self, node: u32) {
        let plan = &self.scenario.nodes[node as usize];
        let life = self.node(node).life;
        let versions = self.scenario.node_versions(node, life);
        self.node(node).start_anew(plan, versions);
        self.equip(node);
        let at = self.now + self.delay_ns();
        self.trace.note(self.now, None, || format!("node {node} starts again"));
        self.agenda.put(at, Item::Register { node, life });
    }
}

/// When a silent death is noticed: when its peers have waited long enough, or when the machine is
/// up again and resets their connections.
fn shows_after_ns(down_ns: u64) -> u64 {
    SILENCE_NS.min(down_ns)
}
