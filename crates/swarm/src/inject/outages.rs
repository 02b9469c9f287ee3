//! Partitions, the death of aggregators that are waited for, and clocks that jump.

use rand::RngExt;

use crate::agenda::{End, Item};
use crate::fault_record::GIVEN_UP_EARLY;
use crate::member::Member;
use crate::timeouts::SILENCE_NS;
use crate::world::{Partition, World};

/// How much later than the first one the second end of a link may find it dead.
const UNEVEN_NS_MAX: u64 = 1_000_000_000;

impl World<'_> {
    pub(super) fn part(
        &mut self,
        index: u32,
        machines: u64,
        for_ns: u64,
        is_one_way: bool,
    ) -> bool {
        if self.partition.is_some_and(|partition| self.now < partition.until) {
            return false;
        }
        self.partition = Some(Partition { machines, until: self.now + for_ns, is_one_way });
        if for_ns > SILENCE_NS {
            self.agenda.put(self.now + SILENCE_NS, Item::PartitionSilent { index });
        }
        true
    }

    /// The partition has lasted so long that both sides give each other up.
    pub(crate) fn on_partition_silent(&mut self, _index: u32) {
        self.trace.note(self.now, None, || "links across the partition time out".to_owned());
        for link in 0..self.links.len() as u32 {
            let [lower, upper] = self.links[link as usize].machines;
            if self.apart_until(lower, upper).is_none() {
                continue;
            }
            if self.partition.is_some_and(|partition| partition.is_one_way) {
                self.give_up_in_turn(link);
                continue;
            }
            self.blame_link(link, self.now);
            for end in [End::Lower, End::Upper] {
                // Nothing that an end sends now reaches the other.
                self.link(link).has_ended[end as usize] = true;
                self.give_up(link, end);
            }
        }
        self.part_leaders();
        self.part_sessions();
        self.part_leases();
    }

    /// Both ends of a link that carries one direction only find it dead, each in its own time: one
    /// hears nothing, the other no acknowledgement. Only one hears that the other gives up.
    fn give_up_in_turn(&mut self, link: u32) {
        self.blame_link(link, self.now + UNEVEN_NS_MAX);
        let machines = self.links[link as usize].machines;
        for end in [End::Lower, End::Upper] {
            let [from, to] = [end, end.other()].map(|end| machines[end as usize]);
            if self.cut_until(from, to).is_some() {
                self.link(link).has_ended[end as usize] = true;
            }
            let at = self.now + self.random.random_range(0..UNEVEN_NS_MAX);
            self.agenda.put(at, Item::LinkSilent { link, end });
        }
    }

    /// Waits until members wait for results of a group, and then lets one of its aggregators die.
    pub(super) fn crash_busy_node(
        &mut self,
        index: u32,
        pick: u32,
        is_silent: bool,
        down_ns: u64,
    ) -> bool {
        let busy: Vec<u32> =
            (0..self.nodes.len() as u32).filter(|node| self.is_in_operation(*node)).collect();
        if busy.is_empty() {
            self.look_again(index);
            return false;
        }
        let node = busy[pick as usize % busy.len()];
        self.trace.note(self.now, None, || format!("node {node} dies in an operation"));
        self.crash_node(node, is_silent, down_ns);
        true
    }

    /// Waits until leaders settle the loss of a tree, or take places in another, and lets an aggregator die.
    pub(super) fn crash_node_of_leaders(
        &mut self,
        index: u32,
        pick: u32,
        is_silent: bool,
        down_ns: u64,
    ) -> bool {
        if !self.leaders_between_trees().any(|leader| leader.is_settling() || leader.is_entering())
        {
            self.look_again(index);
            return false;
        }
        let alive = |node: &u32| self.nodes[*node as usize].is_alive;
        let alive: Vec<u32> = (0..self.nodes.len() as u32).filter(alive).collect();
        let Some(node) = alive.get(pick as usize % alive.len().max(1)).copied() else {
            return false;
        };
        self.trace.note(self.now, None, || format!("node {node} dies while leaders have no tree"));
        self.crash_node(node, is_silent, down_ns);
        true
    }

    /// Waits until leaders have no tree, and lets the process of one die.
    pub(super) fn crash_leader(&mut self, index: u32, pick: u32) -> bool {
        let hosts: Vec<(u32, u32)> = self.leaders_between_trees().map(|it| it.process()).collect();
        if hosts.is_empty() {
            self.look_again(index);
            return false;
        }
        let (job, host) = hosts[pick as usize % hosts.len()];
        self.trace.note(self.now, None, || format!("job {job}'s process on host {host} dies"));
        self.doom(job, host, false);
        self.kill_leaders(|it, leader| it.job == job && leader.host == host, false);
        true
    }

    /// Whether a member waits for a result of a group that the aggregator serves.
    fn is_in_operation(&self, node: u32) -> bool {
        let host = &self.nodes[node as usize];
        let is_served = |member: &Member| {
            let key = self.runs[member.run as usize].key;
            host.installed.iter().any(|installed| installed.key == key)
        };
        host.is_alive
            && self.members.iter().any(|member| member.awaits_result() && is_served(member))
    }

    /// A machine's clock jumps. A party that is waited for then may be given up too early.
    pub(super) fn jump(&mut self, pick: u32, by_ns: i64) -> bool {
        let machine = pick % (self.manager_machine() + 1);
        self.trace
            .note(self.now, None, || format!("machine {machine}'s clock jumps by {by_ns} ns"));
        self.jump_clock(machine, by_ns);
        if let Some(node) = machine.checked_sub(self.scenario.hosts) {
            for entry in self.fault_record.all() {
                if entry.members_at(node).is_some() {
                    entry.blame(self.now, GIVEN_UP_EARLY, 0..u32::MAX);
                }
            }
        }
        true
    }
}
