//! The manager: its machine, its conversations with aggregators, and its death.
//!
//! A conversation keeps its order both ways, and each side learns of its end at its own time. An
//! aggregator whose conversation ends keeps its groups, and tells of them when it registers again. A manager
//! that learns of the end considers the aggregator dead; one that starts takes over what aggregators hold.

use std::collections::VecDeque;

use tributary_manager::{EventError, GroupError, Manager, RequestTicket};
use tributary_wire::NodeId;
use tributary_wire::control::{GroupGrant, GroupInstall, NodeEvent, NodeOffer, NodeOrder};

use super::agenda::Item;
use super::fault_record::Key;
use super::manager_host::{Session, machine};
use super::node_host::{node_at, registration};
use super::verdict::Violation;
use super::world::World;

/// Pause between two attempts to reach the manager.
const RETRY_NS: u64 = 100_000_000;

impl World<'_> {
    /// An aggregator registers.
    pub(super) fn on_register(&mut self, node: u32, life: u32) {
        let host = &self.nodes[node as usize];
        if !host.is_alive || host.life != life || host.session.is_some() {
            return;
        }
        let apart = self.apart_until(self.node_machine(node), self.manager_machine());
        let registered = match &mut self.manager.machine {
            Some(machine) if apart.is_none() => {
                let plan = &self.scenario.nodes[node as usize];
                let registration = registration(plan, node, host.config.frame_versions);
                let holds = host.installed.iter().map(|it| it.held.clone()).collect();
                machine.register_node(NodeOffer { registration, holds }).ok()
            }
            _ => None,
        };
        let Some(id) = registered else {
            // The manager is down, or still considers the aggregator's former life alive.
            let at = self.now + RETRY_NS;
            self.agenda.put(at, Item::Register { node, life });
            return;
        };
        let session = self.sessions.len() as u32;
        self.sessions.push(Session {
            node,
            life: self.manager.life,
            id,
            orders: VecDeque::new(),
            events: VecDeque::new(),
            orders_last_at: 0,
            events_last_at: 0,
            is_open_at_manager: true,
        });
        self.node(node).session = Some(session);
        self.trace.note(self.now, None, || format!("node {node} is registered"));
        self.pump_manager();
    }

    /// Takes the manager's orders and decisions.
    pub(super) fn pump_manager(&mut self) {
        while let Some((id, order)) = self.manager.machine.as_mut().and_then(Manager::poll_order) {
            self.give_order(id, order);
        }
        while let Some((ticket, decision)) =
            self.manager.machine.as_mut().and_then(Manager::poll_decision)
        {
            self.on_decided(ticket, decision);
        }
        let due = self.manager.machine.as_ref().and_then(Manager::poll_timeout);
        if let Some(due) = due {
            let at = self.wakes_at(self.manager_machine(), due);
            if self.manager.timer_at.is_none_or(|set| at < set) {
                self.manager.timer_at = Some(at);
                let life = self.manager.life;
                self.agenda.put(at, Item::ManagerTimer { life });
            }
        }
    }

    pub(super) fn on_manager_timer(&mut self, life: u32) {
        if self.manager.life == life && self.manager.timer_at == Some(self.now) {
            self.manager.timer_at = None;
            let time = self.time_at(self.manager_machine());
            if let Some(machine) = &mut self.manager.machine {
                machine.handle_timeout(time);
            }
            self.pump_manager();
        }
    }

    fn give_order(&mut self, id: NodeId, order: NodeOrder) {
        let life = self.manager.life;
        let is_it = |session: &Session| {
            session.is_open_at_manager && session.life == life && session.id == id
        };
        let Some(index) = self.sessions.iter().rposition(is_it) else { return };
        let node = self.sessions[index].node;
        if let NodeOrder::Remove { epoch, .. } = order {
            let key = Key::of(epoch);
            // The group was given up while it was being installed, so no member knows it; or it is a former
            // manager's, and could not be taken over.
            if key.life != life || self.runs.iter().all(|run| run.key != key) {
                self.fault_record.entry(key).blame_manager(self.now);
            }
        }
        if let NodeOrder::Install(install) = &order {
            let key = Key::of(install.epoch);
            self.trace.note(self.now, Some(key), || {
                format!("node {node} is ordered to install it, {} children", install.children.len())
            });
            self.fault_record.entry(key).installs.push((node, install.clone()));
        }
        let at = self.now + self.delay_ns();
        let session = &mut self.sessions[index];
        session.orders_last_at = session.orders_last_at.max(at);
        session.orders.push_back(order);
        let at = session.orders_last_at;
        self.agenda.put(at, Item::Order { node, session: index as u32 });
    }

    fn on_decided(&mut self, ticket: RequestTicket, decision: Result<GroupGrant, GroupError>) {
        let waiting = &mut self.manager.waiting;
        let Some(at) = waiting.iter().position(|(other, ..)| *other == ticket) else { return };
        let (_, job, group, attempt) = waiting.swap_remove(at);
        self.answer(job, group, attempt, decision);
    }

    pub(super) fn on_order(&mut self, node: u32, session: u32) {
        let cut = self.cut_until(self.manager_machine(), self.node_machine(node));
        if let Some(until) = cut {
            self.agenda.put(until, Item::Order { node, session });
            return;
        }
        if self.node(node).session != Some(session) {
            return;
        }
        let Some(order) = self.sessions[session as usize].orders.pop_front() else { return };
        self.node(node).inbox.push_back(order);
        self.work_inbox(node, session);
    }

    /// Executes orders one at a time, because a removal must not overtake the install before it.
    fn work_inbox(&mut self, node: u32, session: u32) {
        while self.node(node).connecting.is_none() {
            let Some(order) = self.node(node).inbox.pop_front() else { return };
            match order {
                NodeOrder::Registered { .. } | NodeOrder::Tick => {}
                NodeOrder::Remove { group, epoch } => self.put_removal(node, group, epoch),
                NodeOrder::Install(install) if install.parent.is_none() => {
                    self.install(node, install, None);
                }
                NodeOrder::Install(install) => {
                    self.node(node).connecting = Some(install);
                    let at = self.now + self.delay_ns() + self.delay_ns();
                    self.agenda.put(at, Item::Connected { node, session });
                }
            }
        }
    }

    pub(super) fn on_connected(&mut self, node: u32, session: u32) {
        if self.node(node).session != Some(session) {
            return;
        }
        let Some(install) = self.node(node).connecting.take() else { return };
        let parent = install.parent.as_ref().expect("a root connects to nobody");
        let parent = node_at(&parent.address);
        let apart = self.apart_until(self.node_machine(node), self.node_machine(parent));
        if self.node(parent).is_alive && apart.is_none() {
            self.install(node, install, Some(parent));
        } else {
            let GroupInstall { group, epoch, .. } = install;
            let reason = "the parent can't be reached".to_owned();
            self.say(node, NodeEvent::Refused { group, epoch, reason });
        }
        self.work_inbox(node, session);
    }

    /// An aggregator sends the manager events, if it has a conversation.
    pub(super) fn say(&mut self, node: u32, event: NodeEvent) {
        let Some(index) = self.node(node).session else { return };
        let at = self.now + self.delay_ns();
        let session = &mut self.sessions[index as usize];
        session.events_last_at = session.events_last_at.max(at);
        session.events.push_back(event);
        let at = session.events_last_at;
        self.agenda.put(at, Item::Report { node, session: index });
    }

    pub(super) fn on_report(&mut self, node: u32, session: u32) {
        let cut = self.cut_until(self.node_machine(node), self.manager_machine());
        if let Some(until) = cut {
            self.agenda.put(until, Item::Report { node, session });
            return;
        }
        let entry = &mut self.sessions[session as usize];
        let Some(event) = entry.events.pop_front() else { return };
        let (id, life, is_open) = (entry.id, entry.life, entry.is_open_at_manager);
        if !is_open || life != self.manager.life {
            return;
        }
        let time = self.time_at(self.manager_machine());
        let Some(machine) = &mut self.manager.machine else { return };
        match machine.handle_node_event(time, id, event) {
            Ok(()) | Err(EventError::UnknownNode { .. }) => {}
            Err(error) => {
                let error = error.to_string();
                self.report(None, Violation::HonestEventRefused { error });
            }
        }
        self.pump_manager();
    }

    /// One side learns that a conversation has ended.
    pub(super) fn on_session_over(&mut self, node: u32, session: u32, at_manager: bool) {
        if at_manager {
            self.lose_node(session);
            return;
        }
        if !self.node(node).is_alive || self.node(node).session != Some(session) {
            return;
        }
        self.trace.note(self.now, None, || format!("node {node} loses its manager"));
        let host = self.node(node);
        host.inbox.clear();
        host.connecting = None;
        // Nobody receives the events that it still has.
        host.session = None;
        let life = host.life;
        let (at, noticed_at) = (self.now + RETRY_NS, self.now + self.delay_ns());
        self.agenda.put(at, Item::Register { node, life });
        self.agenda.put(noticed_at, Item::SessionOver { node, session, at_manager: true });
    }

    /// The manager considers an aggregator dead, and ends every group on it.
    fn lose_node(&mut self, session: u32) {
        let entry = &mut self.sessions[session as usize];
        let was_open = std::mem::take(&mut entry.is_open_at_manager);
        let (node, id, life) = (entry.node, entry.id, entry.life);
        if !was_open || life != self.manager.life {
            return;
        }
        self.trace.note(self.now, None, || format!("the manager loses node {node}"));
        let now = self.now;
        for group in self.fault_record.all().filter(|group| group.members_at(node).is_some()) {
            group.blame_manager(now);
        }
        if let Some(machine) = &mut self.manager.machine {
            machine.handle_node_gone(id);
        }
        let at = self.now + self.delay_ns();
        self.agenda.put(at, Item::SessionOver { node, session, at_manager: false });
        self.pump_manager();
    }

    /// The manager dies: all leases end. Groups live on.
    pub(super) fn crash_manager(&mut self, down_ns: u64) -> bool {
        if self.manager.machine.take().is_none() {
            return false;
        }
        self.manager.life += 1;
        self.manager.timer_at = None;
        self.manager.waiting.clear();
        let now = self.now;
        for index in 0..self.sessions.len() {
            let entry = &mut self.sessions[index];
            if std::mem::take(&mut entry.is_open_at_manager) {
                let (node, session) = (entry.node, index as u32);
                let at = now + self.delay_ns();
                self.agenda.put(at, Item::SessionOver { node, session, at_manager: false });
            }
        }
        self.lose_leases();
        self.agenda.put(now + down_ns, Item::ManagerStarts);
        true
    }

    pub(super) fn start_manager(&mut self) {
        self.trace.note(self.now, None, || "the manager starts again".to_owned());
        self.manager.machine = Some(machine(self.scenario, self.manager.life));
    }

    /// Ends every conversation across a partition, on both sides.
    pub(super) fn part_sessions(&mut self) {
        for session in 0..self.sessions.len() as u32 {
            let entry = &self.sessions[session as usize];
            let node = entry.node;
            let machine = self.node_machine(node);
            if self.apart_until(machine, self.manager_machine()).is_none() {
                continue;
            }
            for at_manager in [false, true] {
                let at = self.now;
                self.agenda.put(at, Item::SessionOver { node, session, at_manager });
            }
        }
    }
}
