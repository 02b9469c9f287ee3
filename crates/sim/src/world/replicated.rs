//! Replicated groups: ranks send their contributions to one another as datagrams, and each folds them all.
//!
//! A rank's groups are the product's own machine. What members ask each other goes over links. A rank takes all datagrams that
//! have come with one call, as `recvmmsg` does, and sends the copies for a group with one.

use std::sync::Arc;

use tributary_algorithms::plan::Plan;
use tributary_replicated::{ASK_AFTER_NS, Call, Datagram, Levels, Step};

use super::event::Event;
use super::ids::{NoticeId, RankId};
use super::notices::{Groups, Notice, Said, Traffic};
use super::packet::{Cargo, Packet};
use super::payload::Data;
use super::rank::Team;
use super::state::World;
use crate::engine::Picos;
use crate::fabric::Flow;

impl<D: Data> World<D> {
    /// Makes the ranks of a team, one on each host, members of replicated groups, which multicast where nobody stands in for others, or
    /// send copies.
    ///
    /// # Panics
    /// If the plan has not as many hosts as the team has ranks, or a group of a single member.
    pub fn add_groups(&mut self, team: &Team, plan: &Arc<Plan>, multicast: bool) {
        assert_eq!(plan.hosts(), team.ranks, "a rank for each host of the plan");
        for number in 0..team.ranks {
            let levels = Levels::new(plan, number, ASK_AFTER_NS);
            let levels = levels.expect("groups that a machine serves");
            let traffic = levels.groups().iter().map(|group| Traffic {
                multicasts: multicast && !plan.has_stand_ins(group.level()),
                ranks: group.hosts().iter().map(|host| team.rank(*host)).collect(),
            });
            let groups = Groups {
                traffic: traffic.collect(),
                levels,
                len_bytes: None,
                timer_at: None,
                inbox: Vec::new(),
                is_taking: false,
            };
            self.ranks[team.rank(number).index()].groups = Some(Box::new(groups));
        }
    }

    /// Runs an allreduce of `bytes`, or a barrier of none, by the groups of a team. Each rank has its own start.
    ///
    /// # Panics
    /// If there is not one start for each rank.
    pub fn enter_groups(&mut self, team: &Team, bytes: u32, starts: &[Picos]) {
        assert_eq!(starts.len(), team.ranks as usize, "one start for each rank");
        for (number, &start) in (0..).zip(starts) {
            self.events.schedule(start, Event::Contribute(team.rank(number), bytes));
        }
    }

    /// A rank begins an operation.
    pub(super) fn contribute(&mut self, id: RankId, bytes: u32) {
        let now = self.events.now();
        let rank = &mut self.ranks[id.index()];
        rank.began_at = now;
        let process = rank.process;
        let called_at = self.work(process, now, self.costs.message.call);
        let groups = self.groups_of(id);
        groups.len_bytes = Some(bytes);
        let begun = groups.levels.begin(Call { kind: 1, len_bytes: bytes }, ns(called_at));
        begun.expect("operations run one by one, and nobody dies");
        let at = self.act_in_groups(id, called_at);
        self.take_later(id, at);
    }

    fn groups_of(&mut self, id: RankId) -> &mut Groups {
        self.ranks[id.index()].groups.as_mut().expect("a rank in groups has a place in them")
    }

    /// Does what the machine says. Returns when the core is done.
    fn act_in_groups(&mut self, id: RankId, from: Picos) -> Picos {
        let mut at = from;
        // All contributions that are due go out by one call.
        let mut has_called = false;
        while let Some(step) = self.groups_of(id).levels.poll(ns(at)) {
            at = match step {
                Step::Send { group, datagram, .. } => {
                    let is_first = !std::mem::replace(&mut has_called, true);
                    self.send_contribution(id, group, datagram, at, is_first)
                }
                step => self.act_on(id, step, at),
            };
        }
        self.set_group_timer(id);
        at
    }

    fn act_on(&mut self, id: RankId, step: Step, at: Picos) -> Picos {
        match step {
            Step::Send { .. } => unreachable!("contributions are sent elsewhere"),
            Step::Tell { group, to, message, payload } => {
                let groups = self.groups_of(id);
                let bytes = payload.and(groups.len_bytes).unwrap_or(0);
                let to = groups.traffic[group].ranks[usize::from(to)];
                let process = self.ranks[id.index()].process;
                let done_at = self.work(process, at, self.costs.message.send.of(bytes));
                self.post_notice(id, to, group, Said::Message(message), bytes, done_at);
                done_at
            }
            Step::Fold { group, .. } => {
                let groups = self.groups_of(id);
                let others = groups.traffic[group].ranks.len() as u32 - 1;
                let bytes = groups.len_bytes.unwrap_or(0);
                let process = self.ranks[id.index()].process;
                self.work(process, at, self.costs.message.reduce.of(others * bytes))
            }
            Step::Raise { .. } => at,
            Step::Completed { .. } => {
                self.groups_of(id).len_bytes = None;
                self.finish(id, at);
                at
            }
            Step::Failed { failure, .. } => unreachable!("{failure:?}: nobody dies"),
        }
    }

    fn send_contribution(
        &mut self,
        id: RankId,
        group: usize,
        datagram: Datagram,
        at: Picos,
        is_first: bool,
    ) -> Picos {
        let bytes = bytes_of(&datagram);
        let first = self.costs.message.send.of(bytes);
        let cost = if is_first { first } else { self.costs.copies.send.of(bytes) };
        if self.groups_of(id).traffic[group].multicasts {
            self.multicast(id, group, datagram, at, cost)
        } else {
            self.send_copies(id, group, datagram, at, cost)
        }
    }

    /// One call sends the copies, one after the other, from the next member on as in the product.
    fn send_copies(
        &mut self,
        id: RankId,
        group: usize,
        datagram: Datagram,
        at: Picos,
        first_cost: Picos,
    ) -> Picos {
        let bytes = bytes_of(&datagram);
        let process = self.ranks[id.index()].process;
        let groups = self.groups_of(id);
        let me = usize::from(groups.levels.groups()[group].me());
        let ranks = &groups.traffic[group].ranks;
        let others = [&ranks[me + 1..], &ranks[..me]].concat();
        let (mut at, mut cost) = (at, first_cost);
        for to in others {
            at = self.work(process, at, cost);
            self.post_notice(id, to, group, Said::Datagram(datagram), bytes, at);
            cost = self.costs.copies.send.of(bytes);
        }
        at
    }

    /// One datagram goes out, to all other members of the group.
    fn multicast(
        &mut self,
        id: RankId,
        group: usize,
        datagram: Datagram,
        at: Picos,
        cost: Picos,
    ) -> Picos {
        let bytes = bytes_of(&datagram);
        let process = self.ranks[id.index()].process;
        let at = self.work(process, at, cost);
        let group = &self.groups_of(id).levels.groups()[group];
        let receivers = (u64::MAX >> (64 - group.hosts().len())) & !(1 << group.me());
        let said = Said::Datagram(datagram);
        let notice = Notice { to: id, group: group.tag(), from: group.me(), said };
        let cargo = Cargo::Multicast { notice: self.notices.put(notice), receivers };
        let here = self.host_of(process);
        let packet = Packet { from: here, at: here, to: here, bytes, cargo };
        self.events.schedule(at, Event::Emit(packet));
        at
    }

    /// A host or switch sends a multicast on: one packet over each link behind which there are receivers.
    pub(super) fn split(&mut self, packet: Packet, id: NoticeId, receivers: u64) {
        let now = self.events.now();
        let notice = self.notices.take(id);
        let groups = self.groups_of(notice.to);
        let ranks = groups.traffic[groups.find(notice.group)].ranks.clone();
        let mut left = receivers;
        while left != 0 {
            let first = left.trailing_zeros() as usize;
            let host = self.host_of(self.ranks[ranks[first].index()].process);
            let to = |host| Flow { from: packet.from, to: host };
            let next = self.network.next(packet.at, to(host));
            let mut beyond = 0_u64;
            for (member, rank) in ranks.iter().enumerate().filter(|(at, _)| left >> at & 1 == 1) {
                let host = self.host_of(self.ranks[rank.index()].process);
                let goes_there = self.network.next(packet.at, to(host)) == next;
                beyond |= u64::from(goes_there) << member;
            }
            left &= !beyond;
            let cargo = if beyond.is_power_of_two() {
                let notice = self.notices.put(Notice { to: ranks[first], ..notice });
                Cargo::Notice { notice, is_datagram: true }
            } else {
                Cargo::Multicast { notice: self.notices.put(notice), receivers: beyond }
            };
            self.forward(Packet { to: host, cargo, ..packet }, now);
        }
    }

    fn post_notice(
        &mut self,
        from: RankId,
        to: RankId,
        group: usize,
        said: Said,
        bytes: u32,
        at: Picos,
    ) {
        let group = &self.groups_of(from).levels.groups()[group];
        let notice = Notice { to, group: group.tag(), from: group.me(), said };
        let notice = self.notices.put(notice);
        let [here, there] = [from, to].map(|rank| self.host_of(self.ranks[rank.index()].process));
        let is_datagram = matches!(said, Said::Datagram(_));
        let cargo = Cargo::Notice { notice, is_datagram };
        let packet = Packet { from: here, at: here, to: there, bytes, cargo };
        self.events.schedule(at, Event::Post(packet));
    }

    /// Something that a member said can be seen at its receiver.
    pub(super) fn notice_receives(&mut self, seen_at: Picos, id: NoticeId) {
        self.events.schedule(seen_at, Event::Notice(id));
    }

    pub(super) fn see_notice(&mut self, id: NoticeId) {
        let notice = self.notices.take(id);
        self.groups_of(notice.to).inbox.push(notice);
        self.take_later(notice.to, self.events.now());
    }

    /// Schedules when a rank takes what has come. What comes over a link, a thread of its own looks after while the program
    /// is in no operation.
    fn take_later(&mut self, id: RankId, at: Picos) {
        let groups = self.groups_of(id);
        let is_message = |notice: &Notice| matches!(notice.said, Said::Message(_));
        let is_due = groups.is_datagram_awaited() || groups.inbox.iter().any(is_message);
        if is_due && !groups.inbox.is_empty() && !std::mem::replace(&mut groups.is_taking, true) {
            let process = self.ranks[id.index()].process;
            let at = at.max(self.processes[process.index()].free_at);
            self.events.schedule(at, Event::TakeNotices(id));
        }
    }

    /// A rank takes all that has come.
    pub(super) fn take_notices(&mut self, id: RankId) {
        let now = self.events.now();
        let groups = self.groups_of(id);
        groups.is_taking = false;
        let taken = std::mem::take(&mut groups.inbox);
        if taken.is_empty() {
            return;
        }
        let mut at = now;
        let process = self.ranks[id.index()].process;
        let datagrams = || {
            taken.iter().filter_map(|notice| match notice.said {
                Said::Datagram(datagram) => Some(datagram.call.len_bytes),
                Said::Message(_) => None,
            })
        };
        if datagrams().next().is_some() {
            at = self.work(process, at, self.costs.copies.receive_call);
        }
        for bytes in datagrams() {
            at = self.work(process, at, self.costs.copies.receive.of(bytes));
        }
        for Notice { group, from, said, .. } in taken {
            let groups = self.groups_of(id);
            let group = groups.find(group);
            match said {
                Said::Datagram(datagram) => {
                    groups.levels.handle_datagram(group, from, &datagram);
                }
                Said::Message(message) => {
                    groups.levels.handle_message(group, from, message);
                    at = self.work(process, at, self.costs.message.control);
                }
            }
        }
        let at = self.act_in_groups(id, at);
        // What comes until then is taken next.
        self.groups_of(id).is_taking = true;
        self.events.schedule(at, Event::TakeNotices(id));
    }

    fn set_group_timer(&mut self, id: RankId) {
        let now = self.events.now();
        let groups = self.groups_of(id);
        let Some(due_ns) = groups.levels.next_timer_ns() else { return };
        let at = Picos(due_ns.saturating_mul(1000)).max(now);
        if groups.timer_at.is_none_or(|set| at < set) {
            groups.timer_at = Some(at);
            self.events.schedule(at, Event::GroupTimer(id));
        }
    }

    /// A contribution may be late.
    pub(super) fn group_timer(&mut self, id: RankId) {
        let now = self.events.now();
        let groups = self.groups_of(id);
        if groups.timer_at != Some(now) {
            return;
        }
        groups.timer_at = None;
        groups.levels.handle_timer(ns(now));
        self.act_in_groups(id, now);
    }
}

/// Of a contribution and the one that it repeats.
fn bytes_of(datagram: &Datagram) -> u32 {
    datagram.call.len_bytes + datagram.previous.map_or(0, |previous| previous.len_bytes)
}

fn ns(at: Picos) -> u64 {
    at.0 / 1000
}
